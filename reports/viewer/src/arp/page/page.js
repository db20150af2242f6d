"use strict";
(async () => {
themeSwitch(byId("theme"));
const data = await pageData("data");
const told = (x) => shown(x) || "-";

// The tree: contexts with their children, outer ones first.
const contexts = data.contexts.map(([parent, section, name, count, values], index) =>
  ({ parent, section, name, count, values, index, children: [], depth: 0 }));
const roots = [];
for (const context of contexts) {
  if (context.parent === null) {
    roots.push(context);
  } else {
    contexts[context.parent].children.push(context);
    context.depth = contexts[context.parent].depth + 1;
  }
}
const sections = new Map(data.sections.map((section) => [section.id, section]));
const named = (context) => sections.get(context.section);

let set = 0;
let wanted = "";
let zoom = null;
const total = (context) => value(context.values[set][0]);
const matches = (name) => wanted !== "" && name.toLowerCase().includes(wanted);

function share(x) {
  const part = 100 * value(x) / value(data.sets[set].total);
  return Number.isFinite(part) ? part.toFixed(1) : "-";
}

// Tables whose heads sort. A column: head, text of a row, what it is sorted by, whether it is a name.
function heads(table, columns, state, redraw) {
  const row = element("tr");
  columns.forEach((column, at) => {
    const head = element("th", column.head, column.text ? "text" : "");
    if (state.by === at) head.classList.add("by");
    if (state.by === at && state.up) head.classList.add("up");
    head.addEventListener("click", () => {
      state.up = state.by === at ? !state.up : Boolean(column.text);
      state.by = at;
      redraw();
    });
    row.append(head);
  });
  table.tHead.replaceChildren(row);
}

function sorted(rows, columns, state) {
  const key = columns[state.by].key;
  const sign = state.up ? 1 : -1;
  return rows.slice().sort((a, b) => {
    const [x, y] = [key(a), key(b)];
    if (typeof x === "string") return sign * x.localeCompare(y);
    // What is not known comes last.
    if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y);
    return sign * (x - y);
  });
}

function cells(row, columns, item) {
  for (const column of columns) row.append(element("td", column.show(item), column.text ? "text" : ""));
  return row;
}

const sums = ["Total", "%", "Self"].map((head, at) => ({
  head,
  show: (row) => (at === 1 ? share(figures(row)[0]) : told(figures(row)[at && 1])),
  key: (row) => value(figures(row)[at && at - 1]),
}));
const figures = (row) => (row.id === undefined ? row.values[set] : row.values[set].f);
const rest = ["Mean", "Min", "Max"].map((head, at) => ({
  head,
  show: (row) => told(figures(row)[at + 2]),
  key: (row) => value(figures(row)[at + 2]),
}));
const numeric = (count) => Number.parseFloat(String(count).replace(/,/g, ""));

// Contexts.
const treeColumns = [
  ...sums,
  { head: "Count", show: (c) => c.count, key: (c) => numeric(c.count) },
  ...rest,
  { head: "Context", text: true, show: (c) => c.name, key: (c) => c.name },
  { head: "Source", text: true, show: (c) => named(c)?.source ?? "", key: (c) => named(c)?.source ?? "" },
];
const treeState = { by: 0, up: false };
const opened = new Set();
const MOST_ROWS = 5000;

function drawTree() {
  heads(byId("tree"), treeColumns, treeState, drawTree);
  const body = document.createDocumentFragment();
  const left = sorted(roots, treeColumns, treeState).reverse();
  let rows = 0;
  while (left.length && rows < MOST_ROWS) {
    const context = left.pop();
    const row = cells(element("tr", null, matches(context.name) ? "found" : ""), treeColumns, context);
    row.dataset.context = context.index;
    const name = row.children[treeColumns.length - 2];
    const button = element("button", context.children.length ? (opened.has(context) ? "▾" : "▸") : "");
    name.style.paddingLeft = Math.min(context.depth, 40) * 1.2 + "em";
    name.prepend(button);
    if (context.children.length) {
      button.addEventListener("click", () => {
        if (!opened.delete(context)) opened.add(context);
        drawTree();
      });
      if (opened.has(context)) left.push(...sorted(context.children, treeColumns, treeState).reverse());
    }
    body.append(row);
    rows++;
  }
  byId("tree").tBodies[0].replaceChildren(body);
}

// The way to the heaviest context is open at first.
for (let level = roots; level.length;) {
  const heaviest = level.reduce((a, b) => (total(b) > total(a) ? b : a));
  opened.add(heaviest);
  level = heaviest.children;
}
byId("open").addEventListener("click", () => { contexts.forEach((c) => opened.add(c)); drawTree(); });
byId("close").addEventListener("click", () => { opened.clear(); drawTree(); });

// Sections.
const sectionColumns = [
  ...sums,
  { head: "Count", show: (s) => s.shown, key: (s) => value(s.count) },
  ...rest.slice(0, 2),
  ...data.quantiles.map((head, at) => ({
    head,
    show: (s) => told(s.values[set].q[at]),
    key: (s) => value(s.values[set].q[at]),
  })),
  rest[2],
  { head: "Id", show: (s) => s.id, key: (s) => s.id },
  { head: "Kind", text: true, show: (s) => s.kind ?? "", key: (s) => s.kind ?? "" },
  { head: "Section", text: true, show: (s) => s.name, key: (s) => s.name },
  { head: "Source", text: true, show: (s) => s.source, key: (s) => s.source },
];
const sectionState = { by: 0, up: false };

function drawSections() {
  heads(byId("sections"), sectionColumns, sectionState, drawSections);
  const rows = sorted(data.sections, sectionColumns, sectionState).map((section) =>
    cells(element("tr", null, matches(section.name) ? "found" : ""), sectionColumns, section));
  byId("sections").tBodies[0].replaceChildren(...rows);
}

// Flame graph: what is around above, what is within below. Only what can be seen becomes an element.
const HEIGHT = 17;
const NARROWEST = 0.0007;

function colour(name) {
  let hash = 7;
  for (let at = 0; at < name.length; at++) hash = (hash * 31 + name.charCodeAt(at)) >>> 0;
  return `hsl(${15 + hash % 45} ${70 + hash % 20}% ${62 + (hash >>> 8) % 14}%)`;
}

function frame(context, level, left, width, around) {
  const made = element("div", context.name, "frame");
  made.style.cssText = `top:${level * HEIGHT}px;left:${100 * left}%;width:${100 * width}%`;
  made.style.background = matches(context.name) ? "" : colour(context.name);
  if (matches(context.name)) made.classList.add("found");
  if (around) made.classList.add("around");
  made.title = `${context.name}: ${told(context.values[set][0])} (${share(context.values[set][0])} %), ` +
    `self ${told(context.values[set][1])}, count ${context.count}`;
  made.dataset.context = context.index;
  made.addEventListener("click", () => { zoom = context; drawFlame(); });
  return made;
}

function drawFlame() {
  const flame = byId("flame");
  const parts = document.createDocumentFragment();
  let deepest = 0;
  const way = [];
  for (let at = zoom; at; at = at.parent === null ? null : contexts[at.parent]) way.unshift(at);
  const all = element("div", `all: ${told(data.sets[set].total)}`, "frame");
  all.style.cssText = "top:0;left:0;width:100%;background:#ccc";
  all.addEventListener("click", () => { zoom = null; drawFlame(); });
  parts.append(all);
  way.slice(0, -1).forEach((context, at) => parts.append(frame(context, at + 1, 0, 1, true)));
  const base = Math.max(way.length, 1);
  const positive = (context) => Math.max(total(context) || 0, 0);
  // Children may together be more than what is around them, where values do not add up.
  const spread = (list, level, left, width, whole) => {
    const sum = list.reduce((n, c) => n + positive(c), 0);
    const unit = width / Math.max(sum, whole) || 0;
    const out = [];
    for (const context of list) {
      const part = positive(context) * unit;
      if (part >= NARROWEST) out.push([context, level, left, part]);
      left += part;
    }
    return out;
  };
  const stack = zoom ? [[zoom, base, 0, 1]] : spread(roots, base, 0, 1, 0);
  while (stack.length) {
    const [context, level, left, width] = stack.pop();
    deepest = Math.max(deepest, level);
    parts.append(frame(context, level, left, width, false));
    stack.push(...spread(context.children, level + 1, left, width, positive(context)));
  }
  flame.style.height = (deepest + 1) * HEIGHT + "px";
  flame.replaceChildren(parts);
}

// Histograms of what was measured.
function figure(section) {
  const { bars, f, q } = section.values[set];
  const made = element("figure", null, matches(section.name) ? "found" : "");
  made.append(element("figcaption", section.name));
  made.append(element("div", `count ${section.shown}, mean ${told(f[2])}`));
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  svg.setAttribute("viewBox", "0 0 1 1");
  svg.setAttribute("preserveAspectRatio", "none");
  const highest = Math.max(...bars.map((bar) => bar[2]));
  bars.forEach(([from, to, count], at) => {
    const bar = document.createElementNS(space, "rect");
    const height = count / highest;
    const place = { x: at / bars.length, width: 0.9 / bars.length, y: 1 - height, height };
    for (const [key, number] of Object.entries(place)) bar.setAttribute(key, number);
    const title = document.createElementNS(space, "title");
    title.textContent = (from === to ? told(from) : `${told(from)} to ${told(to)}`) + `: ${told(count)}`;
    bar.append(title);
    svg.append(bar);
  });
  const ends = element("div", null, "ends");
  const wide = (bar) => bar[1] - bar[0];
  const grows = wide(bars[bars.length - 1]) > 1.5 * wide(bars[0]);
  ends.append(element("span", told(f[3])), element("span", grows ? "logarithmic" : ""), element("span", told(f[4])));
  const quantiles = data.quantiles.map((name, at) => `${name} ${told(q[at])}`).join(", ");
  made.append(svg, ends, element("div", quantiles));
  return made;
}

let figuresShown = 60;

function drawHistograms() {
  const known = sorted(data.sections, sectionColumns, sectionState)
    .filter((section) => section.values[set].bars?.length);
  const parts = known.slice(0, figuresShown).map(figure);
  if (known.length > figuresShown) {
    const more = element("button", `Show ${known.length - figuresShown} more`);
    more.addEventListener("click", () => { figuresShown = known.length; drawHistograms(); });
    parts.push(more);
  }
  if (!parts.length) parts.push(element("p", "The file has averages only.", "hint"));
  byId("histograms").replaceChildren(...parts);
}

function draw() {
  drawFlame();
  drawTree();
  drawSections();
  drawHistograms();
  // What is found within what is found counts once.
  let sum = 0;
  const stack = wanted === "" ? [] : roots.slice();
  while (stack.length) {
    const context = stack.pop();
    if (matches(context.name)) sum += total(context) || 0;
    else stack.push(...context.children);
  }
  byId("found").textContent = wanted === "" ? "" : `${told(sum)} (${share(sum)} %)`;
}

document.querySelector("h1").textContent = data.heading[0];
for (const line of data.heading.slice(1)) byId("notes").append(element("div", line));
for (const line of data.damage) byId("notes").append(element("div", `Damaged: ${line}`, "damage"));
data.sets.forEach((known, at) => byId("set").append(new Option(known.name, at)));
byId("choice").hidden = data.sets.length < 2;
byId("set").addEventListener("change", (event) => { set = Number(event.target.value); draw(); });
byId("find").addEventListener("input", (event) => { wanted = event.target.value.toLowerCase(); draw(); });
draw();
document.documentElement.dataset.state = "ready";
document.dispatchEvent(new Event("page-ready"));
})();
