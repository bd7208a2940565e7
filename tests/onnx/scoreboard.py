#!/usr/bin/env python3
"""Runs the cases and writes the scoreboard, the end of a page from its heading on: scoreboard.py program page.md"""
import collections
import pathlib
import re
import subprocess
import sys
import tempfile

import onnx
import onnx.defs

from cases import node_cases, stored_cases

HEADING = "## Scoreboard"
PASSED = ("fed", "constants", "eager")


def run_all(program, folders, limit=120):
    """folder -> (status, reason). A case that ends or hangs the program is counted, and the others go on."""
    results, left = {}, [str(folder) for folder in folders]
    while left:
        try:
            done = subprocess.run([program], input="\n".join(left) + "\n", text=True, capture_output=True,
                                  timeout=limit + len(left))
            text, ended = done.stdout, f"the program ended with {done.returncode}"
        except subprocess.TimeoutExpired as late:
            text, ended = (late.stdout or b"").decode(), "it does not end"
        last = None
        for line in text.split("\n"):
            parts = line.split("\t")
            if len(parts) >= 2:
                results[parts[0]] = (parts[1], parts[2] if len(parts) > 2 else "")
            elif line:
                last = line
        if last is not None:
            results[last] = ("crash", ended)
        left = [folder for folder in left if folder not in results]
        if last is None and left:
            raise RuntimeError(f"{program} ends without a result: {ended}")
    return results


def operator_of(case, operators):
    """The operator that a generated case is of: its only one, or the one its name begins with."""
    words = re.sub(r"_expanded(_.*)?$", "", case.group).replace("_", "")
    fitting = [name for name in operators if words.startswith(name.lower())]
    own = [name for name in fitting if name in case.types]
    if own or fitting:
        return max(own or fitting, key=len)
    return next(iter(case.types)) if len(case.types) == 1 else max(case.types, key=len)


def shortened(reason, folder):
    reason = reason.replace(str(folder), "").replace("'/model.onnx': ", "")
    reason = re.sub(r"(node '[^']*' \(\w+\)|node \w+): ", "", reason)
    reason = re.sub(r" \(\S+\.cpp:\d+\)", "", reason)
    return reason.replace("|", "\\|")[:160]


def main():
    program, page = sys.argv[1], pathlib.Path(sys.argv[2])
    operators = sorted({schema.name for schema in onnx.defs.get_all_schemas()}, key=len)
    with tempfile.TemporaryDirectory() as folder:
        cases = list(node_cases(pathlib.Path(folder))) + list(stored_cases(pathlib.Path(folder)))
        ours = [case for case in cases if case.foreign is None]
        results = run_all(program, [case.folder for case in ours])
    table = collections.defaultdict(lambda: [0, 0, 0])
    failures, missing, foreign, ways = [], collections.Counter(), collections.Counter(), collections.Counter()
    for case in cases:
        generated = "/" not in case.name
        row = table[operator_of(case, operators) if generated else f"*{case.group}*"]
        status, reason = ("foreign", case.foreign) if case.foreign else results[str(case.folder)]
        if status in PASSED:
            ways[status] += 1
            row[0] += 1
        elif status == "foreign":
            foreign[reason] += 1
            row[2] += 1
        elif known := re.search(r"the operator (\S+) of opset", reason):
            missing[known[1]] += 1
            row[2] += 1
        else:
            failures.append((case.name, status, shortened(reason, case.folder)))
            row[1] += 1
    passed, failed = sum(ways.values()), len(failures)
    share = 100 * passed / max(1, passed + failed)
    lines = [
        HEADING, "",
        f"`tests/onnx/run.sh` writes this part: the cases that onnx {onnx.__version__} (opset "
        f"{onnx.defs.onnx_opset_version()}) generates or brings, without a download, against their expected outputs.", "",
        "| | cases |", "| --- | --- |",
        f"| passed | {passed} |",
        f"| … with all inputs fed to a plan | {ways['fed']} |",
        f"| … with inputs that decide about shapes as constants, the others fed | {ways['constants']} |",
        f"| … computed eagerly, since shapes depend on values | {ways['eager']} |",
        f"| failed | {failed} |",
        f"| unsupported operators | {sum(missing.values())} |",
        f"| types that are no tensors of Espalier | {sum(foreign.values())} |",
        "", f"Of the cases whose types and operators Espalier has, {share:.1f} % pass.", "",
        "### By operator", "", "| operator | passed | failed | unsupported |", "| --- | --- | --- | --- |"]
    lines += [f"| {name} | {p} | {f} | {u} |" for name, (p, f, u) in sorted(table.items())]
    lines += ["", "### Failures", "", "| case | | reason |", "| --- | --- | --- |"]
    lines += [f"| {name.removeprefix('test_')} | {status} | {reason} |" for name, status, reason in sorted(failures)]
    lines += ["", "### Unsupported", "", "| | cases |", "| --- | --- |"]
    lines += [f"| operator {name} | {count} |" for name, count in sorted(missing.items())]
    lines += [f"| {name} | {count} |" for name, count in sorted(foreign.items())]
    page.write_text(page.read_text().split(HEADING)[0] + "\n".join(lines) + "\n")
    print(f"{passed} passed, {failed} failed, {sum(missing.values()) + sum(foreign.values())} unsupported: {share:.1f} %")


if __name__ == "__main__":
    main()
