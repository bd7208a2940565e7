// Runs in a page that shows a chart of a History, and writes the problems of the drawing into the page. `expected`, with
// the text of the file, and `problems` are defined before.
addEventListener("load", () => {
  const check = (good, text) => { if (!good) problems.push(text); };
  const box = (element) => element.getBoundingClientRect();
  const overlap = (a, b, slack) => a.left < b.right - slack && b.left < a.right - slack &&
    a.top < b.bottom - slack && b.top < a.bottom - slack;
  const inside = (a, b, slack) => a.left >= b.left - slack && a.right <= b.right + slack &&
    a.top >= b.top - slack && a.bottom <= b.bottom + slack;

  try {
    const parsed = new DOMParser().parseFromString(expected.svg, "image/svg+xml");
    check(!parsed.querySelector("parsererror"), "the file is no XML");
    const svg = document.body.appendChild(document.importNode(parsed.documentElement, true));
    const all = (selector) => [...svg.querySelectorAll(selector)];
    const frame = box(svg), axes = all("path.axis").map(box);
    check(frame.width >= 800 && frame.height >= 500, "the chart is not drawn");
    check(axes.length === 2 && axes.every((a) => a.width > 400 && a.height > 150 && inside(a, frame, 0)),
      "there are not two diagrams");
    check(!overlap(axes[0], axes[1], 0), "the diagrams overlap");

    const texts = all("text");
    texts.forEach((a, i) => {
      const name = `"${a.textContent}"`;
      check(box(a).width > 3 && inside(box(a), frame, 0), `${name} is outside of the chart`);
      check(axes.every((b) => !overlap(box(a), b, 1)), `${name} is over a diagram`);
      texts.slice(0, i).forEach((b) => check(!overlap(box(a), box(b), 0.5), `${name} and "${b.textContent}" overlap`));
    });
    const labels = texts.map((text) => text.textContent);
    for (const label of ["Loss", "Outputs", ...expected.labels]) check(labels.includes(label), `there is no "${label}"`);

    const epochs = expected.losses.length, points = all("circle").map(box);
    check(all("path.curve").length === 2 * expected.labels.length, "curves or their legends are missing");
    check(points.length === epochs * expected.labels.length, `there are ${points.length} points`);
    check(points.every((point) => axes.some((a) => inside(point, a, 4))), "a point is outside of its diagram");
    const losses = points.slice(0, epochs);
    losses.forEach((point, i) => {
      if (i === 0) return;
      check(point.left > losses[i - 1].left + 50, "epochs do not follow each other");
      const falls = expected.losses[i] < expected.losses[i - 1], lower = point.top > losses[i - 1].top;
      check(falls === lower || Math.abs(point.top - losses[i - 1].top) < 0.2, "the losses are not drawn by their values");
    });
  } catch (error) {
    problems.push("the check itself failed: " + error.stack);
  }
  const result = document.createElement("pre");
  result.id = "checked";
  result.textContent = JSON.stringify(problems);
  document.body.append(result);
});
