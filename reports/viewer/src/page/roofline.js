"use strict";
// Procedures by their floating-point operations per byte that their instructions access, and their operations, or
// operations per second below the machine's roofs. Times of procedures are estimates: the run's time by their share of
// the instructions.

// Number of procedures whose names stand in the picture.
const NAMED = 8;
const ROOF = { width: 1000, height: 480, left: 84, right: 24, top: 16, bottom: 48 };

function vector(name, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, x] of Object.entries(attributes ?? {})) made.setAttribute(key, x);
  if (text !== undefined) made.textContent = text;
  return made;
}

// A number with a prefix of SI: 1.5 G.
function prefixed(x) {
  const steps = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];
  const [size, prefix] = steps.find(([size]) => x >= size) ?? [1, ""];
  return `${Number((x / size).toPrecision(4))} ${prefix}`.trim();
}

// An axis whose unit is a power of ten; `pixels` are its two ends.
class Scale {
  constructor(values, pixels) {
    const known = values.filter((x) => x > 0 && Number.isFinite(x)).map(Math.log10);
    this.low = Math.floor(Math.min(...known));
    this.high = Math.max(Math.ceil(Math.max(...known)), this.low + 1);
    this.pixels = pixels;
  }

  at(x) {
    const [first, last] = this.pixels;
    return first + (Math.log10(x) - this.low) / (this.high - this.low) * (last - first);
  }

  ticks() {
    const step = Math.ceil((this.high - this.low) / 10);
    const number = Math.floor((this.high - this.low) / step) + 1;
    return Array.from({ length: number }, (_, i) => this.low + i * step);
  }
}

class Roofline {
  constructor(model, roofs, open) {
    this.model = model;
    this.open = open;
    const needed = ["FLOP", "bytes", "instructions"];
    this.table = model.tables.find((t) => t.by === "procedure" && needed.every((name) => model.column(t, name)));
    const all = this.table ? this.collect() : [];
    this.points = all.filter((point) => point.flop && point.bytes);
    this.has = this.points.length > 0;
    if (!this.has) return;
    const sum = (name) => all.reduce((total, point) => total + point[name], 0);
    this.all = { name: "(all)", flop: sum("flop"), bytes: sum("bytes"), instructions: sum("instructions") };
    this.all.intensity = this.all.flop / this.all.bytes;
    byId("roof-seconds").value = roofs?.seconds ?? model.profile.time?.seconds ?? "";
    const text = (x) => (x ? prefixed(x).replace(" ", "") : "");
    byId("roof-peak").value = text(roofs?.peak_flops);
    byId("roof-bandwidth").value = text(roofs?.bandwidth);
    this.isGiven = Boolean(roofs?.seconds);
    for (const id of ["roof-y", "roof-seconds", "roof-peak", "roof-bandwidth"]) {
      byId(id).addEventListener("input", () => {
        if (id === "roof-seconds") this.isGiven = true;
        this.draw();
      });
    }
    if (!(this.number("roof-seconds") > 0)) byId("roof-y").value = "flop";
  }

  collect() {
    const { model, table } = this;
    const column = (name) => model.column(table, name);
    const of = (name, row) => value(column(name).values[row]) || 0;
    return Array.from({ length: table.rows }, (_, row) => {
      const [flop, bytes, instructions] = ["FLOP", "bytes", "instructions"].map((name) => of(name, row));
      const name = column("procedure") ? model.text(table, column("procedure"), row) : "";
      return { name, flop, bytes, instructions, intensity: flop / bytes, place: model.place(table, row) };
    });
  }

  number(id) {
    const text = byId(id).value.trim();
    const match = /^([0-9.]+(?:e[+-]?[0-9]+)?) *([kMGTP]?)$/i.exec(text);
    const sizes = { "": 1, k: 1e3, m: 1e6, g: 1e9, t: 1e12, p: 1e15 };
    return match ? Number(match[1]) * sizes[match[2].toLowerCase()] : NaN;
  }

  // The height of a point: its operations, or those of each second of its share of the run.
  height(point, seconds) {
    return seconds ? point.flop / (seconds * point.instructions / this.all.instructions) : point.flop;
  }

  draw() {
    const seconds = byId("roof-y").value === "rate" ? this.number("roof-seconds") : 0;
    const isRate = seconds > 0;
    const shownPoints = [this.all, ...this.points];
    for (const point of shownPoints) point.height = this.height(point, seconds);
    const positive = (x) => (isRate && x > 0 ? x : 0);
    const [peak, bandwidth] = [positive(this.number("roof-peak")), positive(this.number("roof-bandwidth"))];
    const widths = shownPoints.map((p) => p.intensity).concat(peak && bandwidth ? [peak / bandwidth] : []);
    const x = new Scale(widths, [ROOF.left, ROOF.width - ROOF.right]);
    const roof = (intensity) => Math.min(peak || Infinity, bandwidth ? bandwidth * intensity : Infinity);
    const heights = shownPoints.map((p) => p.height).concat([peak, ...shownPoints.map((p) => roof(p.intensity))]);
    const y = new Scale(heights, [ROOF.height - ROOF.bottom, ROOF.top]);
    const picture = vector("svg", { viewBox: `0 0 ${ROOF.width} ${ROOF.height}`, role: "group", "aria-label": "Roofline picture" });
    this.axes(picture, x, y, isRate);
    if (peak || bandwidth) this.roofs(picture, x, y, peak, bandwidth);
    const procedures = this.points.slice().sort((a, b) => b.instructions - a.instructions);
    for (const point of [...procedures, this.all]) this.point(picture, point, x, y, isRate);
    for (const point of [this.all, ...procedures.slice(0, NAMED)]) {
      picture.append(vector("text", { class: "name", x: x.at(point.intensity) + this.radius(point) + 4, y: y.at(point.height) + 4 }, this.model.short(point.name)));
    }
    byId("roof").replaceChildren(picture);
    byId("roof-note").textContent = this.note(isRate);
    this.search(byId("find").value);
  }

  axes(picture, x, y, isRate) {
    const [bottom, right] = [ROOF.height - ROOF.bottom, ROOF.width - ROOF.right];
    for (const power of x.ticks()) {
      const at = x.at(10 ** power);
      picture.append(vector("line", { class: "grid-line", x1: at, x2: at, y1: ROOF.top, y2: bottom }),
        vector("text", { class: "tick", x: at, y: bottom + 16, "text-anchor": "middle" }, shown(10 ** power)));
    }
    for (const power of y.ticks()) {
      const at = y.at(10 ** power);
      picture.append(vector("line", { class: "grid-line", x1: ROOF.left, x2: right, y1: at, y2: at }),
        vector("text", { class: "tick", x: ROOF.left - 6, y: at + 4, "text-anchor": "end" }, prefixed(10 ** power)));
    }
    const middle = (ROOF.top + bottom) / 2;
    picture.append(vector("text", { class: "axis", x: (ROOF.left + right) / 2, y: ROOF.height - 8, "text-anchor": "middle" },
      "FLOP per byte of loads and stores"),
    vector("text", { class: "axis", x: 16, y: middle, "text-anchor": "middle", transform: `rotate(-90 16 ${middle})` },
      isRate ? "FLOP/s" : "FLOP"));
  }

  // The bandwidth's slope up to the peak, and the peak behind it.
  roofs(picture, x, y, peak, bandwidth) {
    const [first, last] = [10 ** x.low, 10 ** x.high];
    const bound = (at) => (bandwidth ? Math.min(Math.max(at, first), last) : first);
    const lowest = bandwidth ? bound(10 ** y.low / bandwidth) : first;
    const ridge = bound((peak || 10 ** y.high) / (bandwidth || 1));
    const corners = [];
    if (bandwidth) corners.push([lowest, bandwidth * lowest], [ridge, bandwidth * ridge]);
    if (peak && (!bandwidth || peak / bandwidth < last)) corners.push([ridge, peak], [last, peak]);
    const path = corners.map(([a, b]) => `${x.at(a).toFixed(1)},${y.at(b).toFixed(1)}`).join(" ");
    picture.append(vector("polyline", { class: "roof", points: path }));
    const label = [peak && `${prefixed(peak)}FLOP/s`, bandwidth && `${prefixed(bandwidth)}B/s`].filter(Boolean).join(", ");
    picture.append(vector("text", { class: "tick", x: ROOF.width - ROOF.right, y: ROOF.top + 10, "text-anchor": "end" }, label));
  }

  // Areas grow with the instructions.
  radius(point) {
    return point === this.all ? 5 : 3 + 12 * Math.sqrt(point.instructions / this.all.instructions);
  }

  point(picture, point, x, y, isRate) {
    const share = point.instructions / this.all.instructions;
    const unit = isRate ? "FLOP/s" : "FLOP";
    const label = `${point.name}\n${shown(point.intensity)} FLOP per byte, ${prefixed(point.height)} ${unit}`.replace(/ ([kMGTP]) F/, " $1F");
    const is = point === this.all ? "point whole" : "point";
    const made = vector("circle", { class: is, cx: x.at(point.intensity).toFixed(2), cy: y.at(point.height).toFixed(2), r: this.radius(point).toFixed(2),
      "aria-label": label, "data-intensity": point.intensity, "data-height": point.height });
    made.append(vector("title", {}, `${label}\n${shown(point.flop)} FLOP, ${shown(point.bytes)} bytes, ${(100 * share).toFixed(2)} % of the instructions`));
    made.dataset.name = point.name;
    if (point.place) {
      made.setAttribute("role", "button");
      made.setAttribute("tabindex", "0");
      made.addEventListener("click", () => this.open(point.place));
      made.addEventListener("keydown", (event) => { if (event.key === "Enter") this.open(point.place); });
    }
    picture.append(made);
  }

  note(isRate) {
    const texts = ["Bytes are those that instructions ask for, not those that come from memory. A procedure above the slope of the memory's bandwidth has data in a cache."];
    if (isRate) {
      texts.push("A procedure's time is an estimate: its share of the instructions, of the seconds above.");
      if (!this.isGiven) texts.push("These seconds are the run's with the tool, which slows the program; give those of the original program.");
    }
    return texts.join(" ");
  }

  search(text) {
    const words = wordsOf(text);
    for (const point of byId("roof").querySelectorAll(".point")) {
      point.classList.toggle("faded", !hasAll(point.dataset.name.toLowerCase(), words));
    }
  }
}
