"use strict";
// Calls over time: an axis, a lane for each thread, a flame graph and a table of sums.

const ROW = 18, GAP = 24;
const KINDS = ["own code", "library", "waiting"];

class Lanes {
  constructor(data) {
    this.data = data;
    this.calls = data.calls;
    this.words = [];
    this.hidden = new Set();
    this.whole = data.length || 1;
    this.found = data.names.map(() => true);
    const depth = data.threads.map(() => 0);
    this.calls.thread.forEach((thread, i) => { depth[thread] = Math.max(depth[thread], this.calls.depth[i] + 1); });
    // The main thread comes first.
    this.order = data.threads.map((_, t) => t).sort((a, b) => data.threads[b].main - data.threads[a].main || a - b);
    this.tops = [];
    this.height = 0;
    for (const thread of this.order) {
      this.tops[thread] = this.height + GAP;
      this.height += GAP + depth[thread] * ROW + 6;
    }
    // Calls of a thread and depth lie one behind the other: those in view are found by bisection.
    this.rows = new Map();
    this.calls.thread.forEach((thread, i) => {
      const key = thread * 65536 + Math.min(this.calls.depth[i], 65535);
      if (!this.rows.has(key)) this.rows.set(key, []);
      this.rows.get(key).push(i);
    });
    this.canvas = byId("view");
    this.pen = this.canvas.getContext("2d");
    this.show(0, this.whole);
    this.listen();
  }

  show(from, to) {
    const size = Math.min(Math.max(to - from, 0.01), this.whole);
    this.from = Math.max(0, Math.min(from, this.whole - size));
    this.to = this.from + size;
    this.draw();
  }

  zoom(factor, share = 0.5) {
    const when = this.from + share * (this.to - this.from);
    const size = (this.to - this.from) * factor;
    this.show(when - share * size, when + (1 - share) * size);
  }

  // First call of a row that ends behind a time.
  first(row, time) {
    let [low, high] = [0, row.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.calls.start[row[middle]] + this.calls.length[row[middle]] < time) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  colour(place) {
    const kind = this.data.kinds[place];
    if (!this.found[place] || this.hidden.has(kind)) return this.colours.faded;
    if (kind === 2) return this.colours.waiting;
    const shade = (place * 7) % 13;
    return kind === 1 ? `hsl(${205 + place * 5 % 24} 46% ${66 + shade}%)` : `hsl(${14 + place * 11 % 38} 86% ${60 + shade}%)`;
  }

  prepare(canvas, height) {
    const scale = devicePixelRatio || 1;
    const width = canvas.clientWidth;
    canvas.style.height = height + "px";
    canvas.width = width * scale;
    canvas.height = height * scale;
    const pen = canvas.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.font = "11px system-ui, sans-serif";
    pen.textBaseline = "middle";
    return [pen, width];
  }

  draw() {
    const style = getComputedStyle(document.documentElement);
    const of = (name) => style.getPropertyValue(name).trim();
    this.colours = { text: of("--text"), soft: of("--soft"), line: of("--line"), faded: of("--line"), waiting: of("--waiting") };
    const [pen, width] = this.prepare(this.canvas, this.height);
    const zoom = width / (this.to - this.from);
    this.ticks(zoom);
    for (const tick of this.marks) {
      pen.fillStyle = this.colours.line;
      pen.fillRect(Math.round((tick - this.from) * zoom), 0, 1, this.height);
    }
    for (const thread of this.order) {
      pen.fillStyle = this.colours.text;
      pen.fillText(this.data.threads[thread].name + (this.data.threads[thread].main ? " main" : ""), 4, this.tops[thread] - GAP / 2);
    }
    for (const [key, row] of this.rows) this.lane(pen, width, zoom, Math.floor(key / 65536), key % 65536, row);
    byId("range").textContent = `${duration(this.from)} to ${duration(this.to)}: ${duration(this.to - this.from)}`;
  }

  lane(pen, width, zoom, thread, depth, row) {
    const y = this.tops[thread] + depth * ROW;
    let drawn = -1;
    for (let at = this.first(row, this.from); at < row.length; at++) {
      const i = row[at];
      const start = this.calls.start[i];
      if (start > this.to) break;
      const x = Math.max((start - this.from) * zoom, 0);
      const end = Math.min((start + this.calls.length[i] - this.from) * zoom, width);
      // Of calls that share a point of the screen one is enough.
      if (end < drawn + 0.4) continue;
      drawn = end;
      const w = Math.max(end - x, 0.6);
      const place = this.calls.place[i];
      pen.fillStyle = this.colour(place);
      pen.fillRect(x, y, w, ROW - 1);
      if (this.data.kinds[place] === 2 && w > 3) this.hatch(pen, x, y, w);
      if (w <= 40) continue;
      pen.fillStyle = "#16181b";
      pen.save();
      pen.beginPath();
      pen.rect(x, y, w, ROW);
      pen.clip();
      pen.fillText(this.data.names[place], x + 3, y + ROW / 2);
      pen.restore();
    }
  }

  hatch(pen, x, y, w) {
    pen.save();
    pen.beginPath();
    pen.rect(x, y, w, ROW - 1);
    pen.clip();
    pen.strokeStyle = "#8a919988";
    pen.beginPath();
    for (let at = x - ROW - (x % 8); at < x + w; at += 8) {
      pen.moveTo(at, y + ROW);
      pen.lineTo(at + ROW, y);
    }
    pen.stroke();
    pen.restore();
  }

  // The axis: a mark at each round time.
  ticks(zoom) {
    const [pen, width] = this.prepare(byId("axis"), 26);
    const least = 90 / zoom;
    let step = 10 ** Math.floor(Math.log10(least));
    step *= [1, 2, 5, 10].find((n) => n * step >= least);
    this.marks = [];
    pen.fillStyle = this.colours.soft;
    for (let at = Math.ceil(this.from / step) * step; at <= this.to; at += step) {
      const x = Math.round((at - this.from) * zoom);
      this.marks.push(at);
      pen.fillRect(x, 18, 1, 8);
      const [unit, name] = this.to >= 1e6 ? [1e6, "s"] : this.to >= 1e3 ? [1e3, "ms"] : [1, "µs"];
      const text = `${(at / unit).toFixed(Math.max(0, Math.min(9, -Math.floor(Math.log10(step / unit) + 1e-9))))} ${name}`;
      pen.fillText(text, Math.min(x + 3, width - 60), 10);
    }
    byId("axis").dataset.ticks = this.marks.length;
  }

  at(event) {
    const box = this.canvas.getBoundingClientRect();
    const [x, y] = [event.clientX - box.left, event.clientY - box.top];
    const when = this.from + x * (this.to - this.from) / box.width;
    const slack = (this.to - this.from) / box.width / 2;
    for (const thread of this.order) {
      const depth = Math.floor((y - this.tops[thread]) / ROW);
      const row = depth >= 0 && this.rows.get(thread * 65536 + depth);
      if (!row) continue;
      const i = row[this.first(row, when - slack)];
      if (i !== undefined && this.calls.start[i] <= when + slack) return i;
    }
    return null;
  }

  listen() {
    const { canvas } = this;
    canvas.addEventListener("wheel", (event) => {
      if (event.shiftKey) return;
      event.preventDefault();
      const box = canvas.getBoundingClientRect();
      this.zoom(event.deltaY > 0 ? 1.25 : 0.8, (event.clientX - box.left) / box.width);
    }, { passive: false });
    let held = null;
    canvas.addEventListener("pointerdown", (event) => { held = [event.clientX, this.from, this.to]; });
    addEventListener("pointerup", () => { held = null; });
    addEventListener("pointermove", (event) => {
      if (!held) return;
      const moved = (held[0] - event.clientX) * (held[2] - held[1]) / canvas.clientWidth;
      this.show(held[1] + moved, held[2] + moved);
    });
    canvas.addEventListener("mousemove", (event) => {
      const i = this.at(event);
      const text = (place) => `${this.data.names[place]} (${KINDS[this.data.kinds[place]]})\n${this.data.places[place]}`;
      showTip(event, i === null ? "" : `${text(this.calls.place[i]).trim()}\n${duration(this.calls.length[i])}, from ${duration(this.calls.start[i])}`);
    });
    canvas.addEventListener("mouseleave", (event) => showTip(event, ""));
    canvas.addEventListener("dblclick", () => this.show(0, this.whole));
    byId("in").addEventListener("click", () => this.zoom(0.5));
    byId("out").addEventListener("click", () => this.zoom(2));
    byId("everything").addEventListener("click", () => this.show(0, this.whole));
    byId("lanes").addEventListener("keydown", (event) => {
      const step = (this.to - this.from) / 5;
      const keys = {
        "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(2), Escape: () => this.show(0, this.whole),
        ArrowLeft: () => this.show(this.from - step, this.to - step), ArrowRight: () => this.show(this.from + step, this.to + step),
      };
      if (!keys[event.key]) return;
      event.preventDefault();
      keys[event.key]();
    });
    byId("legend").addEventListener("change", () => {
      this.hidden = new Set([...byId("legend").querySelectorAll("input:not(:checked)")].map((input) => Number(input.value)));
      this.draw();
    });
    addEventListener("resize", () => this.draw());
  }

  search(text) {
    const words = wordsOf(text);
    this.found = this.data.names.map((name) => hasAll(name.toLowerCase(), words));
    this.draw();
  }
}

// The tree of stacks for the flame graph.
function stacks(data) {
  const nodes = data.tree.map(([parent, place, calls, length]) => ({
    parent, place, name: data.names[place], value: length, children: [], note: `${shown(calls)} calls, ${KINDS[data.kinds[place]]}`,
  }));
  const root = { name: "all threads", value: 0, children: [] };
  for (const node of nodes) (node.parent < 0 ? root : nodes[node.parent]).children.push(node);
  root.value = root.children.reduce((sum, node) => sum + node.value, 0);
  for (const node of [root, ...nodes]) node.children.sort((a, b) => b.value - a.value);
  return root;
}

function sums(data) {
  const rows = data.sums.filter((row) => row[1] || row[2]);
  const whole = rows.reduce((sum, row) => sum + row[2], 0);
  const most = Math.max(...rows.map((row) => row[2]), 1e-9);
  const number = (name, at, show) => ({ name, show: (row) => show(rows[row][at]), key: (row) => rows[row][at] });
  const text = (name, of, kind) => ({ name, text: true, kind, show: of, key: of });
  const columns = [
    number("own time", 2, duration),
    { name: "%", kind: "percent", show: (row) => percent(rows[row][2], whole), key: (row) => rows[row][2], part: (row) => 100 * rows[row][2] / most },
    number("with callees", 3, duration),
    number("calls", 1, shown),
    { name: "own time each", show: (row) => (rows[row][1] ? duration(rows[row][2] / rows[row][1]) : ""), key: (row) => rows[row][2] / rows[row][1] },
    text("kind", (row) => KINDS[data.kinds[rows[row][0]]]),
    text("procedure", (row) => data.names[rows[row][0]], "name"),
    text("line", (row) => data.places[rows[row][0]].split("/").pop()),
  ];
  const grid = new Grid(byId("grid"), columns, rows.length, {
    label: "sums by procedure",
    arranged: (n) => { byId("rows").textContent = n === rows.length ? `${shown(n)} procedures` : `${shown(n)} of ${shown(rows.length)} procedures`; },
  });
  grid.sort(0);
  return grid;
}

(async () => {
  themeSwitch(byId("theme"));
  const data = await pageData("timeline");
  byId("title").textContent = `${data.title}: calls over time`;
  byId("subtitle").textContent = `${duration(data.length)} · ${shown(data.threads.length)} ${data.threads.length === 1 ? "thread" : "threads"} · ` +
    `${shown(data.calls.start.length + data.left_out)} calls`;
  byId("note").textContent = data.left_out ? `${shown(data.left_out)} shorter calls are left out here; their time is seen as their callers'.` : "";
  const lanes = new Lanes(data);
  const flame = new Flame(byId("flame"), stacks(data), {
    show: duration, colour: (node) => (data.kinds[node.place] === 0 ? warm(node.name) : `var(--${data.kinds[node.place] === 1 ? "library" : "waiting"})`),
  });
  const grid = sums(data);
  byId("find").addEventListener("input", () => {
    for (const part of [lanes, flame, grid]) part.search(byId("find").value);
  });
  document.documentElement.dataset.state = "ready";
  document.dispatchEvent(new Event("page-ready"));
})();
