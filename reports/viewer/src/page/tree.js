"use strict";
// The treemap: objects, their source files, their procedures.

const LEAVES = 900;

class TreeMap {
  constructor(model, open) {
    this.model = model;
    this.open = open;
    this.words = [];
    this.zoomed = [];
    this.box = byId("map");
    if (!model.columns?.length || !model.procedures.length) return;
    byId("map-part").hidden = false;
    model.columns.forEach((column, at) => byId("map-measure").append(new Option(column.name, at)));
    byId("map-colour").append(new Option("object", ""));
    model.columns.forEach((column, at) => model.columns.forEach((other, below) => {
      if (at !== below) byId("map-colour").append(new Option(`${column.name} / ${other.name}`, `${at}/${below}`));
    }));
    byId("map-colour").parentElement.hidden = model.columns.length < 2;
    byId("map-measure").addEventListener("change", () => this.draw());
    byId("map-colour").addEventListener("change", () => this.draw());
    this.box.addEventListener("keydown", (event) => this.key(event));
    this.box.addEventListener("mouseleave", (event) => showTip(event, ""));
    addEventListener("resize", () => this.draw());
  }

  search(text) {
    this.words = wordsOf(text);
    this.draw();
  }

  // Objects with files with procedures; the lightest procedures of a file are one leaf.
  tree(measure) {
    const { model } = this;
    const sorted = model.procedures.filter((p) => p.values[measure] > 0).sort((a, b) => b.values[measure] - a.values[measure]);
    const objects = new Map();
    sorted.forEach((procedure, rank) => {
      const object = model.object(procedure.object) || "program";
      if (!objects.has(object)) objects.set(object, { name: object, files: new Map() });
      const { files } = objects.get(object);
      if (!files.has(procedure.file)) files.set(procedure.file, { name: procedure.file, children: [], rest: 0, others: 0 });
      const file = files.get(procedure.file);
      if (rank < LEAVES) file.children.push({ name: procedure.name, procedure, size: procedure.values[measure] });
      else { file.rest += procedure.values[measure]; file.others++; }
    });
    const children = [...objects.values()].map((object) => ({
      name: object.name,
      children: [...object.files.values()].map((file) => ({
        name: file.name,
        children: file.others ? [...file.children, { name: `(${file.others} more)`, size: file.rest }] : file.children,
      })),
    }));
    return { name: "all", children };
  }

  draw() {
    const { box, model } = this;
    if (!model.columns?.length || !box.offsetParent) return;
    const measure = Number(byId("map-measure").value);
    let data = this.tree(measure);
    const way = [];
    for (const name of this.zoomed) {
      const next = data.children?.find((child) => child.name === name);
      if (!next) break;
      way.push(name);
      data = next;
    }
    if (way.length === 1 || !way.length) data = way.length ? { name: "all", children: [data] } : data;
    else data = { name: "all", children: [{ name: way[0], children: [data] }] };
    byId("map-way").textContent = way.filter(Boolean).join(" › ");
    const root = d3.hierarchy(data).sum((d) => d.size ?? 0).sort((a, b) => b.value - a.value);
    d3.treemap().size([box.clientWidth, box.clientHeight]).paddingInner(1).paddingOuter((n) => (n.depth ? 2 : 0))
      .paddingTop((n) => (n.depth && n.x1 - n.x0 > 40 && n.data.name ? 17 : 2)).round(true)(root);
    const parts = document.createDocumentFragment();
    let isFirst = true;
    root.each((node) => {
      const [width, height] = [node.x1 - node.x0, node.y1 - node.y0];
      if (!node.depth || width < 2 || height < 2) return;
      const made = node.children ? this.group(node, root) : this.leaf(node, root, measure);
      if (!node.children && node.data.procedure) { made.tabIndex = isFirst ? 0 : -1; isFirst = false; }
      made.style.cssText += `left:${node.x0}px;top:${node.y0}px;width:${width}px;height:${height}px`;
      parts.append(made);
    });
    box.replaceChildren(parts);
  }

  found(text) {
    return !this.words.length || hasAll(text.toLowerCase(), this.words);
  }

  tip(made, node, root, more = "") {
    const share = percent(node.value, root.value);
    const text = `${node.data.name || "(file not known)"}\n${shown(node.value)} (${share} %)${more}`;
    made.setAttribute("aria-label", text);
    made.addEventListener("mousemove", (event) => showTip(event, text));
  }

  group(node, root) {
    const name = node.depth === 1 ? node.data.name : node.data.name.split("/").pop();
    const made = element("div", node.x1 - node.x0 > 40 ? name : "", `group${node.depth === 2 ? " file" : ""}`);
    const way = node.ancestors().reverse().slice(1).map((n) => n.data.name);
    this.tip(made, node, root);
    made.addEventListener("click", () => {
      const same = way.join("\n") === this.zoomed.join("\n");
      this.zoomed = same ? way.slice(0, -1) : way;
      this.draw();
    });
    return made;
  }

  leaf(node, root, measure) {
    const { procedure } = node.data;
    const wide = node.x1 - node.x0 > 34 && node.y1 - node.y0 > 14;
    const made = element("button", wide ? node.data.name : "", `leaf${procedure ? "" : " rest"}`);
    made.style.background = this.colour(node, root, measure);
    if (!procedure) { made.tabIndex = -1; return made; }
    made.dataset.place = `${procedure.object}:${procedure.address}`;
    if (!this.found(`${node.data.name} ${procedure.file} ${this.model.object(procedure.object)}`)) made.classList.add("faded");
    this.tip(made, node, root, `\n${this.model.object(procedure.object)} ${procedure.file}`);
    made.addEventListener("click", () => this.open(procedure));
    return made;
  }

  colour(node, root) {
    const [part, whole] = byId("map-colour").value.split("/").map(Number);
    const { procedure } = node.data;
    if (byId("map-colour").value && procedure) {
      const ratio = procedure.values[part] / procedure.values[whole] || 0;
      const top = Math.max(...this.model.procedures.slice(0, 50).map((p) => p.values[part] / p.values[whole] || 0), 1e-9);
      return `hsl(20 90% ${88 - 43 * Math.min(1, ratio / top)}%)`;
    }
    const object = procedure?.object ?? 0;
    const share = Math.sqrt(node.value / root.value);
    return `hsl(${(212 + object * 67) % 360} 62% ${84 - 26 * share}%)`;
  }

  // Arrows go to the nearest procedure in their direction.
  key(event) {
    const way = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (event.key === "Escape" && this.zoomed.length) {
      this.zoomed.pop();
      this.draw();
    } else if (way) {
      const middle = (e) => [e.offsetLeft + e.offsetWidth / 2, e.offsetTop + e.offsetHeight / 2];
      const [x, y] = middle(event.target);
      let best = null;
      let nearest = Infinity;
      for (const leaf of this.box.querySelectorAll(".leaf:not(.rest)")) {
        const [dx, dy] = middle(leaf).map((at, i) => at - [x, y][i]);
        const ahead = dx * way[0] + dy * way[1];
        const aside = Math.abs(dx * way[1]) + Math.abs(dy * way[0]);
        if (leaf !== event.target && ahead > 0 && ahead + 2 * aside < nearest) [best, nearest] = [leaf, ahead + 2 * aside];
      }
      best?.focus();
    } else {
      return;
    }
    event.preventDefault();
    event.stopPropagation();
  }
}
