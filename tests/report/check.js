// Runs in a copy of a report in a browser, and writes the problems of the drawing into the page. `expected` and
// `problems` are defined before.
addEventListener("load", () => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const by = (id) => document.getElementById(id);
  const check = (good, text) => { if (!good) problems.push(text); };
  const box = (element) => element.getBoundingClientRect();
  const overlap = (a, b, slack) => a.left < b.right - slack && b.left < a.right - slack &&
    a.top < b.bottom - slack && b.top < a.bottom - slack;
  const inside = (a, b, slack) => a.left >= b.left - slack && a.right <= b.right + slack &&
    a.top >= b.top - slack && a.bottom <= b.bottom + slack;
  const number = (text) => Number(text.replace(/[^0-9.]/g, ""));

  try {
    const text = document.body.innerText;
    check(text.includes("Plan of make_report.cpp:"), "the title names no source line");
    check(document.documentElement.scrollWidth <= innerWidth + 1, "the page is wider than the window");
    check(all("[src], link, iframe, object").length === 0, "something comes from outside");

    // The graph.
    const frame = box(by("graph-svg"));
    const nodes = all("#graph .node");
    const places = new Map();
    check(all("#graph .node.runs").length === expected.steps, "the graph does not show each step");
    for (const node of nodes) {
      const rect = box(node.querySelector("rect"));
      places.set(node.dataset.node, rect);
      check(rect.width > 20 && rect.height > 10, `node ${node.id} is not drawn`);
      check(inside(rect, frame, 0.5), `node ${node.id} is outside of the drawing`);
      for (const label of all("text", node))
        check(inside(box(label), rect, 3), `"${label.textContent}" is larger than its node`);
      check(/make_report\.cpp:\d+/.test(node.dataset.tip), `the tooltip of ${node.id} names no source line`);
    }
    const drawn = [...places.entries()];
    drawn.forEach(([name, a], i) => drawn.slice(0, i).forEach(([other, b]) =>
      check(!overlap(a, b, 0.5), `nodes ${name} and ${other} overlap`)));
    check(all("#graph .edge").length >= nodes.length / 2, "there are few edges");
    for (const edge of all("#graph .edge:not(.weak)")) {
      const length = edge.getTotalLength(), from = places.get(edge.dataset.from), to = places.get(edge.dataset.to);
      const at = (l) => edge.getPointAtLength(l).matrixTransform(edge.getScreenCTM());
      const name = `the edge from ${edge.dataset.from} to ${edge.dataset.to}`;
      check(from && to, `${name} has no ends`);
      check(length > 5, `${name} has no length`);
      const begin = at(0), end = at(length);
      check(Math.abs(begin.y - from.bottom) < 2 && begin.x > from.left && begin.x < from.right, `${name} begins elsewhere`);
      check(Math.abs(end.y - to.top) < 2 && end.x > to.left && end.x < to.right, `${name} ends elsewhere`);
    }
    for (const part of ["forward", "backward", "update"])
      check(all(`#graph .node.runs.${part}`).length > 0, `no node is ${part}`);
    const fill = (selector) => getComputedStyle(document.querySelector(selector)).fill;
    check(new Set(["forward", "backward", "update"].map((p) => fill(`#graph .node.runs.${p} rect`))).size === 3,
      "the parts have no colours of their own");

    // The steps.
    const rows = all("#step-table tbody tr").filter((row) => box(row).height > 5);
    check(rows.length === expected.steps, `${rows.length} steps are in the table`);
    for (const row of rows) {
      check(/make_report\.cpp:\d+/.test(row.innerText), `${row.id} names no source line`);
      check((row.querySelector(".source code") || {}).innerText?.includes("= "), `${row.id} shows no source text`);
    }
    check(rows.some((row) => row.innerText.includes("network(batch)")), "the line of the network is not shown");
    check(rows.some((row) => row.innerText.includes("in place")), "nothing runs in place");
    const bars = all("#step-table tbody tr.runs .bar");
    check((bars.length > 0) === expected.profiled, "times are shown where none were measured, or the reverse");
    check(text.includes("Not profiled.") === !expected.profiled, "the page does not say whether it was profiled");
    if (expected.profiled) {
      const shares = bars.map((bar) => number(bar.innerText));
      const sum = shares.reduce((a, b) => a + b, 0);
      check(Math.abs(sum - 100) < 0.05 * shares.length + 0.1, `the shares add up to ${sum} %`);
      const widths = bars.map((bar) => box(bar.querySelector("span")).width);
      const most = shares.indexOf(Math.max(...shares));
      check(widths[most] > 20 && widths[most] >= Math.max(...widths) - 0.5, "the largest bar is not the largest share");
      check(all(".stack i").every((i) => box(i).height > 10), "the bar of the summary is not drawn");
    }

    // The memory.
    for (const id of ["memory-before", "memory-after"]) {
      const bounds = box(document.querySelector(`#${id} .bounds`));
      check(bounds.width > 300 && bounds.height > 50, `${id} is not drawn`);
      const buffers = all(`#${id} .buffer`);
      check(buffers.length > 10, `${id} shows few buffers`);
      const rects = buffers.map((buffer) => box(buffer.querySelector("rect")));
      const heights = rects.map((rect) => rect.height);
      const total = buffers.reduce((sum, buffer) => sum + Number(buffer.dataset.bytes), 0);
      const bytes = id === "memory-after" ? expected.arena : total;
      rects.forEach((a, i) => {
        const name = `buffer ${i} of ${id}`;
        check(a.width > 0.5 && a.height > 0, `${name} is not drawn`);
        check(inside(a, bounds, 1.2), `${name} is outside of the frame`); // half of its outline
        const share = Number(buffers[i].dataset.bytes) / bytes * bounds.height;
        check(Math.abs(heights[i] - share) < 0.02 * share + 2, `${name} is not as tall as its bytes`);
        for (let j = 0; j < i; ++j)
          check(!overlap(exact(buffers[i]), exact(buffers[j]), 0.005), `${name} overlaps buffer ${j}`);
      });
    }
    function exact(buffer) { // without the outline
      const rect = buffer.querySelector("rect");
      const [x, y, w, h] = ["x", "y", "width", "height"].map((a) => Number(rect.getAttribute(a)));
      return { left: x, right: x + w, top: y, bottom: y + h };
    }
    const full = box(document.querySelector("#memory-after .fullest"));
    const live = all("#memory-after .buffer").filter((buffer) => {
      const rect = box(buffer.querySelector("rect")), middle = (full.left + full.right) / 2;
      return rect.left < middle && middle < rect.right;
    });
    check(live.reduce((sum, buffer) => sum + Number(buffer.dataset.bytes), 0) === expected.live,
      "the framed column does not hold the largest live set");
    check(live.every((buffer) => buffer.classList.contains("counts")), "the largest live set is not marked");
    check(box(document.querySelector("#memory-live .live")).height > 20, "the bytes in use are not drawn");

    // The passes.
    check(all("#pass-table tbody tr").length === expected.passes, "passes are missing");
    const details = all("#passes details");
    check(details.length === all("#pass-table tbody tr:not(.unchanged)").length, "what changed cannot be unfolded");
    for (const item of details) {
      item.open = true;
      check(all("pre", item).every((pre) => box(pre).height > 50), "a graph is not shown");
      check(all("pre .gone, pre .new, pre .other", item).length > 0, "no difference is marked");
    }

    // The scale.
    check((by("scaling") !== null) === (expected.replicas !== undefined), "the scale is shown for one device, or not for replicas");
    if (expected.replicas) {
      check(all('nav a[href="#scaling"]').length === 1, "nothing leads to the scale");
      check(all("#bucket-table tbody tr").length === expected.buckets, "buckets are missing");
      check(all("#machine-table tbody tr").length === expected.machines, "machines are missing");
      check(all("#scaling li").filter((item) => box(item).height > 10).length >= 5, "the assumptions are not shown");
      const colors = new Set(all("#machine-table i").map((i) => getComputedStyle(i).borderColor));
      check(colors.size === expected.machines, "machines share a colour");
      const replicas = (limit) => Array.from({ length: Math.floor(Math.log2(limit)) + 1 }, (_, i) => 2 ** i);
      for (const [id, largest] of [["scaling-weak", 4096], ["scaling-strong", Math.min(4096, expected.rows)]]) {
        if (!by(id)) { problems.push(`${id} is missing`); continue; }
        const drawing = box(by(id)), frames = all(`#${id} .bounds`).map(box);
        check(frames.length === 3, `${id} has ${frames.length} panels`);
        frames.forEach((a, i) => {
          check(a.width > 150 && a.height > 100 && inside(a, drawing, 0.5), `panel ${i} of ${id} is not drawn`);
          frames.slice(0, i).forEach((b) => check(!overlap(a, b, 0), `panels of ${id} overlap`));
        });
        const labels = all(`#${id} text`);
        labels.forEach((a, i) => {
          const name = `"${a.textContent}" of ${id}`;
          check(box(a).width > 3 && inside(box(a), drawing, 0.5), `${name} is outside of the drawing`);
          check(frames.every((b) => !overlap(box(a), b, 1)), `${name} is over a panel`);
          labels.slice(0, i).forEach((b) => check(!overlap(box(a), box(b), 0.5), `${name} and "${b.textContent}" overlap`));
        });
        check(all(`#${id} .line`).length === 3 * expected.machines, `lines of ${id} are missing`);
        const lines = new Map(); // points by panel and machine
        for (const point of all(`#${id} .point`)) {
          const at = box(point), panel = frames.findIndex((b) => inside(at, b, 6));
          check(panel >= 0, `a point of ${id} is outside of its panel`);
          check(/rows\/s/.test(point.dataset.tip), `a point of ${id} has no tooltip`);
          const key = panel + " " + point.getAttribute("class");
          lines.set(key, [...(lines.get(key) || []), point]);
        }
        check(lines.size === 3 * expected.machines, `${id} has ${lines.size} rows of points`);
        for (const [key, points] of lines) {
          const counts = points.map((point) => Number(point.dataset.replicas));
          check(counts.join() === replicas(largest).join(), `${key} of ${id} is at ${counts} replicas`);
          const values = points.map((point) => Number(point.dataset.value)), places = points.map(box);
          const step = (places[places.length - 1].left - places[0].left) / (places.length - 1);
          const panel = frames[Number(key[0])];
          check(Math.abs(step - panel.width / 12) < 0.5, `the replicas of ${key} are not a factor apart`);
          places.forEach((place, i) => {
            if (i === 0) return;
            check(Math.abs(place.left - places[i - 1].left - step) < 0.5, `${key} of ${id} is not evenly spaced`);
            const rises = place.top < places[i - 1].top + 0.05, grows = values[i] >= values[i - 1] * (1 - 1e-4);
            check(rises === grows || Math.abs(place.top - places[i - 1].top) < 0.1, `${key} of ${id} does not show its values`);
          });
          if (key[0] === "0") continue;
          check(values.every((value) => value >= 0 && value <= 1 + 1e-6), `${key} of ${id} has shares beyond 1`);
          places.forEach((place, i) => {
            const height = 1 - (place.top + place.height / 2 - panel.top) / panel.height;
            check(Math.abs(height - values[i]) < 0.02, `${key} of ${id} is drawn at ${height}, not ${values[i]}`);
          });
          check(values[0] === (key[0] === "1" ? 0 : 1), `one replica of ${key} waits for others`);
        }
      }
    }

    // Interaction.
    const node = document.querySelector("#graph .node.runs"), row = by("s" + node.dataset.node);
    const mouse = (type) => node.querySelector("rect").dispatchEvent(
      new MouseEvent(type, { bubbles: true, clientX: 300, clientY: 300 }));
    mouse("mouseover");
    mouse("mousemove");
    check(box(by("tip")).height > 20 && by("tip").innerText.includes("make_report.cpp"), "there is no tooltip");
    check(all("#graph .edge.lit").length > 0, "the edges of a node do not light up");
    mouse("click");
    check(row.classList.contains("lit") && box(row).top > 0 && box(row).bottom < innerHeight, "a click does not lead to the step");
    const filter = by("filter");
    filter.value = "matmul";
    filter.dispatchEvent(new Event("input"));
    const found = all("#step-table tbody tr").filter((r) => box(r).height > 0);
    check(found.length > 0 && found.every((r) => r.innerText.includes("matmul")), "the filter does not filter");
    filter.value = "";
    filter.dispatchEvent(new Event("input"));
    if (expected.profiled) {
      by("by-time").click();
      const times = all("#step-table tbody tr").map((r) => Number(r.dataset.time));
      check(times.every((time, i) => i === 0 || time <= times[i - 1]), "the slowest are not first");
    }
    by("idle").click();
    check(all("#step-table tbody tr").every((r) => box(r).height > 0), "what needs no kernel is not shown");
    document.querySelector("[data-zoom=fit]").click();
    check(box(by("graph-svg")).width <= box(by("graph-frame")).width, "the whole graph does not fit");
  } catch (error) {
    problems.push("the check itself failed: " + error.stack);
  }
  const result = document.createElement("pre");
  result.id = "checked";
  result.textContent = JSON.stringify(problems);
  document.body.append(result);
});
