// The page is complete without this: it adds tooltips, zoom, filters, and the way from a drawing to its step.
(() => {
  "use strict";
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];
  const by = (id) => document.getElementById(id);
  document.body.classList.add("scripted");
  for (const tools of all(".tools")) tools.hidden = false;

  // Tooltips of our own: the browser's come late, and in its font.
  const tip = by("tip");
  for (const item of all(".node, .buffer, .point")) {
    const title = item.querySelector("title");
    item.dataset.tip = title.textContent;
    item.setAttribute("aria-label", title.textContent);
    title.remove();
  }
  const edges = all(".edge");
  const light = (node) => {
    for (const item of all(".lit")) item.classList.remove("lit");
    if (node === undefined || node === "") return;
    for (const item of all(`[data-node="${node}"]`)) item.classList.add("lit");
    for (const edge of edges)
      edge.classList.toggle("lit", edge.dataset.from === node || edge.dataset.to === node);
  };
  document.addEventListener("mousemove", (event) => {
    const item = event.target.closest(".node, .buffer, .point");
    tip.hidden = !item;
    if (!item) return;
    tip.textContent = item.dataset.tip;
    const room = [innerWidth - tip.offsetWidth - 8, innerHeight - tip.offsetHeight - 8];
    tip.style.left = Math.max(4, Math.min(event.clientX + 14, room[0])) + "px";
    tip.style.top = Math.max(4, Math.min(event.clientY + 14, room[1])) + "px";
  });
  document.addEventListener("mouseover", (event) => {
    const item = event.target.closest("[data-node]");
    if (item) light(item.dataset.node);
  });

  // From a drawing to the step, and back.
  let dragged = false;
  document.addEventListener("click", (event) => {
    const item = event.target.closest("[data-node]");
    if (!item || item.dataset.node === "" || dragged) return;
    const node = item.dataset.node;
    const target = item.tagName === "TR" ? by("g" + node) : by("s" + node);
    if (!target) return;
    target.classList.add("shown");
    target.classList.remove("filtered");
    target.scrollIntoView({ block: "center", inline: "center" });
    light(node);
  });

  // The graph: zoom and drag.
  const frame = by("graph-frame"), svg = by("graph-svg");
  const whole = svg.viewBox.baseVal;
  let zoom = 1;
  const apply = (next) => {
    const before = zoom;
    const middle = [frame.scrollLeft + frame.clientWidth / 2, frame.scrollTop + frame.clientHeight / 2];
    zoom = Math.min(4, Math.max(0.02, next));
    svg.setAttribute("width", whole.width * zoom);
    svg.setAttribute("height", whole.height * zoom);
    frame.scrollLeft = middle[0] * zoom / before - frame.clientWidth / 2;
    frame.scrollTop = middle[1] * zoom / before - frame.clientHeight / 2;
  };
  for (const button of all("[data-zoom]"))
    button.addEventListener("click", () => {
      const how = button.dataset.zoom;
      if (how === "fit") apply(Math.min(1, (frame.clientWidth - 4) / whole.width, innerHeight * 0.76 / whole.height));
      else apply(how === "1" ? 1 : zoom * Number(how));
    });
  let from = null;
  frame.addEventListener("mousedown", (event) => {
    from = [event.clientX + frame.scrollLeft, event.clientY + frame.scrollTop, event.clientX, event.clientY];
    dragged = false;
  });
  addEventListener("mousemove", (event) => {
    if (!from) return;
    dragged ||= Math.hypot(event.clientX - from[2], event.clientY - from[3]) > 4;
    if (!dragged) return;
    frame.classList.add("grabbed");
    frame.scrollLeft = from[0] - event.clientX;
    frame.scrollTop = from[1] - event.clientY;
  });
  addEventListener("mouseup", () => {
    from = null;
    frame.classList.remove("grabbed");
    setTimeout(() => { dragged = false; });
  });
  const first = frame.querySelector(".node.forward.runs") || frame.querySelector(".node");
  if (first) frame.scrollLeft = first.getBBox().x - frame.clientWidth / 2;

  // The steps: filter and order.
  const body = by("step-table").tBodies[0];
  const rows = [...body.rows];
  const idle = by("idle"), filter = by("filter"), slow = by("by-time");
  const choose = () => {
    const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.classList.toggle("filtered", !words.every((word) => text.includes(word)));
      row.classList.toggle("shown", idle.checked);
    }
  };
  idle.addEventListener("change", choose);
  filter.addEventListener("input", choose);
  if (slow) slow.addEventListener("change", () => {
    const order = slow.checked ? [...rows].sort((a, b) => b.dataset.time - a.dataset.time) : rows;
    body.append(...order);
  });
})();
