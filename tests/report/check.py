"""Looks at reports in a real browser, and at a trace: check.py FOLDER (which make_report has filled)."""
import html
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

here = pathlib.Path(__file__).parent
folder = pathlib.Path(sys.argv[1])
browser = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
if browser is None:
    sys.exit("there is no chromium: cmake/install_dependencies.sh checks")


def problems_of(page, expected, script="check.js"):
    """What the script finds wrong in a page."""
    values = json.dumps(expected).replace("</", "<\\/")
    before = f"""<script>var expected = {values}, problems = [];
addEventListener("error", (e) => problems.push("error: " + e.message));
addEventListener("securitypolicyviolation", (e) => problems.push("it loads " + e.blockedURI));
console.error = console.warn = (...what) => problems.push("console: " + what.join(" "));
</script>"""
    check = "<script>" + (here / script).read_text() + "</script>"
    page = page.replace("<title>", before + "<title>", 1).replace("</body>", check + "</body>", 1)
    with tempfile.TemporaryDirectory() as scratch:
        file = pathlib.Path(scratch) / "page.html"
        file.write_text(page)
        run = subprocess.run(
            [browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", f"--user-data-dir={scratch}/profile",
             "--window-size=1400,1000", "--virtual-time-budget=10000", "--dump-dom", file.as_uri()],
            capture_output=True, text=True, timeout=300)
    found = re.search(r'<pre id="checked">(.*?)</pre>', run.stdout, re.DOTALL)
    if not found:
        sys.exit(f"the browser gave no answer:\n{run.stderr}")
    return json.loads(html.unescape(found[1]))


def check_trace(trace, steps):
    events = [e for e in trace["traceEvents"] if e["ph"] != "M"]
    assert {e["ph"] for e in events} == {"X"}
    assert all(e["name"] and e["dur"] >= 0 and e["pid"] == 1 and e["tid"] == 1 for e in events)
    assert [e["ts"] for e in events] == sorted(e["ts"] for e in events), "events are not in order"
    assert {e["cat"] for e in events} == {"step", "data", "forward", "backward", "update"}
    whole = [e for e in events if e["cat"] == "step"]
    assert len(whole) == 12 and all(e["dur"] > 0 for e in whole)
    kernels = [e for e in events if e["cat"] not in ("step", "data")]
    assert len(kernels) == 12 * steps
    for e in kernels:
        assert e["args"]["source"].startswith("make_report.cpp:") and e["args"]["bytes"] > 0 and e["args"]["shape"], e
        assert any(s["ts"] - 0.002 <= e["ts"] and e["ts"] + e["dur"] <= s["ts"] + s["dur"] + 0.002 for s in whole), e
    assert {"matmul_epilogue", "matmul", "dropout_mask", "fused_group"} <= {e["name"] for e in kernels}
    assert {"wait for data", "load"} == {e["name"] for e in events if e["cat"] == "data"}


def damaged(page, pattern, replacement, which=0):
    """The page with one match replaced."""
    match = list(re.finditer(pattern, page, re.DOTALL))[which]
    return page[:match.start()] + match.expand(replacement) + page[match.end():]


failed = 0


def expect(good, text):
    global failed
    failed += not good
    print("ok  " if good else "FAIL", text)


expected = json.loads((folder / "expected.json").read_text())
page = (folder / "plan.html").read_text()
for name in ("plan.html", "not_profiled.html"):
    problems = problems_of((folder / name).read_text(), expected | {"profiled": name == "plan.html"})
    expect(not problems, name)
    print(*problems[:20], sep="\n")

replicas = (folder / "replicas.html").read_text()
expected_replicas = json.loads((folder / "expected_replicas.json").read_text()) | {"profiled": False}
problems = problems_of(replicas, expected_replicas)
expect(not problems, "replicas.html")
print(*problems[:20], sep="\n")

# Checks that the checks detect broken reports.
buffer = r'(id="memory-after".*<g class="buffer [^>]*>(?:(?!<rect).)*<rect x="[^"]*" y=")([^"]*)'
damages = {
    "a node that is missing": damaged(page, r'<g class="node \w+ runs".*?</g>', ""),
    "a node over others": damaged(page, r'(<g class="node (?:(?!<rect).)*<rect x=")[^"]*(" y=")[^"]*', r"\g<1>600\g<2>900"),
    "a step that is missing": damaged(page, r'<tr id="s\d+"[^>]*class="runs".*?</tr>', ""),
    "a source line that is missing": damaged(page, r'<code>[^<]*network\(batch\)[^<]*</code></td>', "</td>", 5),
    "a buffer outside of the arena": damaged(page, buffer, r"\g<1>-100"),
    "a buffer over another": damaged(page, r'(id="memory-after".*?<g class="buffer [^>]*>(?:(?!<rect).)*<rect x=")[^"]*(" y=")[^"]*(" width=")[^"]*',
                                     r"\g<1>64\g<2>14\g<3>1056"),
    "a mark that is elsewhere": damaged(page, r'(<rect class="fullest" x=")[^"]*', r"\g<1>900"),
    "an error in the script": page.replace('"use strict";', '"use strict"; undefined_name();'),
    "something from outside": page.replace("</main>", '<img src="https://example.org/a.png"></main>'),
}
for name, text in damages.items():
    problems = problems_of(text, expected | {"profiled": True})
    expect(problems, f"the check sees {name}: {problems[:1]}")
point = r'<circle class="point update" data-replicas="64"'
damages = {
    "a chart that is missing": damaged(replicas, r'<svg class="scaling" id="scaling-strong".*?</svg>', ""),
    "a line that is missing": damaged(replicas, r'<path class="line batch"[^>]*>', "", 4),
    "a point that is missing": damaged(replicas, point + r'.*?</circle>', "", 2),
    "a point outside of its panel": damaged(replicas, rf'({point}[^>]* cy=")[^"]*', r"\g<1>5"),
    "a point with another value": damaged(replicas, rf'({point}[^>]* cy=")[^"]*', r"\g<1>200", 2),
    "labels over each other": damaged(replicas, r'(id="scaling-weak".*?<text class="axis" text-anchor="middle" x=")[^"]*', r"\g<1>290"),
    "a bucket that is missing": damaged(replicas, r'(id="bucket-table".*?<tbody>\n)<tr.*?</tr>', r"\g<1>"),
    "assumptions that are missing": damaged(replicas, r'(<h3>What this assumes</h3>).*?</ul>', r"\g<1>"),
}
for name, text in damages.items():
    problems = problems_of(text, expected_replicas)
    expect(problems, f"the check sees {name}: {problems[:1]}")

chart = (folder / "history.svg").read_text()
expected_chart = json.loads((folder / "expected_history.json").read_text())


def problems_of_chart(svg):
    page = "<!doctype html><meta charset=utf-8><title>chart</title><body></body>"
    return problems_of(page, expected_chart | {"svg": svg}, "check_chart.js")


problems = problems_of_chart(chart)
expect(not problems, "history.svg")
print(*problems[:20], sep="\n")
damages = {
    "a chart that is no XML": chart.replace("</svg>", ""),
    "a point that is missing": damaged(chart, r"<circle[^>]*>", "", 3),
    "a point outside of its diagram": damaged(chart, r'(<circle[^>]* cy=")[^"]*', r"\g<1>5"),
    "a label outside of the chart": damaged(chart, r'(<text class="label" x=")[^"]*', r"\g<1>990"),
}
for name, text in damages.items():
    problems = problems_of_chart(text)
    expect(problems, f"the check sees {name}: {problems[:1]}")

try:
    check_trace(json.loads((folder / "trace.json").read_text()), expected["steps"])
    expect(True, "trace.json")
except AssertionError as error:
    expect(False, f"trace.json: {error!r}")
sys.exit(failed > 0)
