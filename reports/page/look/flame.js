"use strict";
// A flame graph that hangs from the top: what is around above, what is within below. A node: name, value, children (made when
// asked for), note. Only what can be seen becomes an element.

const FRAME_HEIGHT = 20;
const NARROWEST = 0.0008;

function warm(name) {
  let hash = 7;
  for (let at = 0; at < name.length; at++) hash = (hash * 31 + name.charCodeAt(at)) >>> 0;
  return `hsl(${14 + hash % 42} ${72 + hash % 20}% ${64 + (hash >>> 8) % 12}%)`;
}

class Flame {
  // options: show(value) its text, open(node) for Enter and double click, colour(node).
  constructor(holder, root, options = {}) {
    this.root = root;
    this.options = options;
    this.zoomed = [root];
    this.words = [];
    this.box = element("div", null, "flame");
    this.box.setAttribute("role", "tree");
    this.box.addEventListener("mouseleave", (event) => showTip(event, ""));
    this.box.addEventListener("keydown", (event) => this.key(event));
    holder.append(this.box);
    this.draw();
  }

  search(text) {
    this.words = wordsOf(text);
    this.draw();
  }

  zoom(way) {
    this.zoomed = way;
    this.draw();
  }

  draw() {
    const parts = document.createDocumentFragment();
    this.ways = [];
    let deepest = this.zoomed.length - 1;
    this.zoomed.slice(0, -1).forEach((node, at) => {
      parts.append(this.frame(node, this.zoomed.slice(0, at + 1), at, 0, 1, true));
    });
    const stack = [[this.zoomed, 0, 1]];
    while (stack.length) {
      const [way, left, width] = stack.pop();
      const node = way[way.length - 1];
      deepest = Math.max(deepest, way.length - 1);
      parts.append(this.frame(node, way, way.length - 1, left, width, false));
      const children = node.children ?? [];
      const sum = children.reduce((n, child) => n + child.value, 0);
      // Children may together be more than what is around them, where values do not add up.
      const unit = width / Math.max(sum, node.value) || 0;
      let at = left;
      for (const child of children) {
        const part = child.value * unit;
        if (part >= NARROWEST) stack.push([[...way, child], at, part]);
        at += part;
      }
    }
    this.box.style.height = (deepest + 1) * FRAME_HEIGHT + "px";
    this.box.replaceChildren(parts);
  }

  frame(node, way, level, left, width, around) {
    const made = element("button", node.name, `frame${around ? " around" : ""}${level === 0 ? " all" : ""}`);
    made.style.cssText = `top:${level * FRAME_HEIGHT}px;left:${100 * left}%;width:${100 * width}%`;
    if (level) made.style.background = this.options.colour?.(node) ?? warm(node.name);
    if (this.words.length && hasAll(node.name.toLowerCase(), this.words)) made.classList.add("found");
    const show = this.options.show ?? shown;
    made.dataset.value = node.value;
    made.setAttribute("role", "treeitem");
    made.setAttribute("aria-level", level + 1);
    const text = `${node.name}\n${show(node.value)} (${percent(node.value, this.root.value)} %)${node.note ? `\n${node.note}` : ""}`;
    made.setAttribute("aria-label", text);
    made.tabIndex = level === this.zoomed.length - 1 ? 0 : -1;
    made.addEventListener("mousemove", (event) => showTip(event, text));
    made.addEventListener("click", () => this.zoom(way));
    made.addEventListener("dblclick", () => this.options.open?.(node));
    this.ways.push([made, way, left]);
    return made;
  }

  // Arrows go to what is around, within and beside; Enter opens.
  key(event) {
    const at = this.ways.find(([made]) => made === event.target);
    if (!at) return;
    const [, way, left] = at;
    const level = (n) => this.ways.filter(([, w]) => w.length === n).sort((a, b) => a[2] - b[2]);
    const beside = level(way.length);
    const place = beside.findIndex(([made]) => made === event.target);
    const next = {
      ArrowDown: level(way.length + 1).find(([, w, l]) => l >= left && w[way.length - 1] === way[way.length - 1]),
      ArrowUp: level(way.length - 1).find(([, w]) => w[w.length - 1] === way[way.length - 2]),
      ArrowLeft: beside[place - 1],
      ArrowRight: beside[place + 1],
    }[event.key];
    if (next) next[0].focus();
    else if (event.key === "Escape") this.zoom([this.root]);
    else if (event.key === "Enter" && this.options.open) this.options.open(way[way.length - 1]);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }
}
