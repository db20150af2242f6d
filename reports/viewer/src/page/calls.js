"use strict";
// The call graph as a flame graph. A profile has calls between two procedures and not whole stacks, so what a procedure
// costs is divided among its callers in proportion to their calls. Calls that close a circle (recursion) stay with
// the procedure that is running. So the parts add up to the whole exactly. A profile of calltree has whole stacks, which
// are shown as they are.

class CallTree {
  // own(id) is the cost of a procedure itself.
  constructor(arcs, at, own) {
    this.nodes = new Map();
    const node = (id, name) => {
      if (!this.nodes.has(id)) this.nodes.set(id, { id, name, to: new Map(), from: 0, own: 0, whole: -1, round: 0 });
      return this.nodes.get(id);
    };
    const top = node("outside", "all");
    for (const arc of arcs) {
      const from = node(arc.from, arc.fromName);
      const to = node(arc.to, arc.toName);
      from.to.set(to, (from.to.get(to) ?? 0) + (arc.values[at] ?? 0));
      to.entered = (to.entered ?? 0) + (arc.values[at] ?? 0);
    }
    for (const known of this.nodes.values()) known.own = known === top ? 0 : own(known);
    this.cut(top);
    this.top = this.grow(top, 1);
  }

  // Leaves out calls that close a circle, and adds what nothing calls to the top.
  cut(top) {
    const OPEN = 1, DONE = 2;
    const visit = (start) => {
      const stack = [[start, this.callees(start)]];
      start.state = OPEN;
      while (stack.length) {
        const [node, left] = stack[stack.length - 1];
        const next = left.shift();
        if (!next) { node.state = DONE; stack.pop(); continue; }
        const [callee, calls] = next;
        if (callee.state === OPEN) { node.to.delete(callee); callee.round += calls; continue; }
        callee.from += calls;
        if (callee.state === undefined) { callee.state = OPEN; stack.push([callee, this.callees(callee)]); }
      }
    };
    visit(top);
    // Procedures without callers come first, so that others are found below them.
    const called = new Set([...this.nodes.values()].flatMap((node) => [...node.to.keys()]));
    const rest = [...this.nodes.values()].sort((a, b) => called.has(a) - called.has(b) || b.own - a.own);
    for (const node of rest) {
      if (node.state !== undefined) continue;
      // Nothing that is known calls it: it stands beside main.
      const calls = Math.max(1, node.own);
      top.to.set(node, calls);
      node.from += calls;
      visit(node);
    }
    // Costs with callees, callees first.
    const order = [];
    const seen = new Set();
    const work = [[top, false]];
    while (work.length) {
      const [node, isDone] = work.pop();
      if (isDone) { order.push(node); continue; }
      if (seen.has(node)) continue;
      seen.add(node);
      work.push([node, true]);
      for (const callee of node.to.keys()) if (!seen.has(callee)) work.push([callee, false]);
    }
    for (const node of order) {
      node.whole = node.own;
      for (const [callee, calls] of node.to) if (callee.from) node.whole += callee.whole * calls / callee.from;
    }
  }

  callees(node) {
    return [...node.to].sort((a, b) => b[1] - a[1]);
  }

  // A node of the tree; its children are made when they are asked for.
  grow(node, part) {
    const tree = this;
    const note = node.round ? `${shown(node.round)} recursive calls` : "";
    return {
      name: node.name, id: node.id, value: node.whole * part, own: node.own * part, note,
      get children() {
        this.made ??= [...node.to].filter(([callee, calls]) => callee.from && calls)
          .map(([callee, calls]) => tree.grow(callee, part * calls / callee.from))
          .filter((child) => child.value > 0).sort((a, b) => b.value - a.value);
        return this.made;
      },
    };
  }
}

// The root of the tree of a table of whole stacks: procedures with `;` between them, the outermost first.
function exactTree(model, table) {
  const ids = new Map(model.procedures.map((p) => [p.object ? `${model.object(p.object)}:${p.name}` : p.name, `${p.object}:${p.address}`]));
  const objects = new Set(model.objects.map((object) => object.name));
  const node = (whole) => {
    // The object is in the hint: the same one for most frames, it would hide what tells them apart.
    const end = whole.indexOf(":");
    const object = objects.has(whole.slice(0, end)) ? whole.slice(0, end) : "";
    return { name: object ? whole.slice(end + 1) : whole, id: ids.get(whole) ?? "", own: 0, value: 0, note: object, children: [], below: new Map() };
  };
  const root = node("all");
  const [paths, own] = [model.column(table, "path"), model.column(table, "own")];
  for (let row = 0; row < table.rows; row++) {
    const cost = value(own.values[row]) || 0;
    let at = root;
    root.value += cost;
    for (const name of (model.text(table, paths, row) || "(start)").split(";")) {
      if (!at.below.has(name)) {
        at.below.set(name, node(name));
        at.children.push(at.below.get(name));
      }
      at = at.below.get(name);
      at.value += cost;
    }
    at.own += cost;
  }
  const work = [root];
  while (work.length) {
    const next = work.pop();
    next.children = next.children.filter((child) => child.value > 0).sort((a, b) => b.value - a.value);
    work.push(...next.children);
  }
  return root;
}

class CallView {
  constructor(model, open) {
    this.model = model;
    const { table, measures, list } = model.arcs();
    const exact = model.tables.find((t) => t.name === "call paths" && model.column(t, "own") && model.column(t, "path")?.type === "text");
    this.has = Boolean(exact) || Boolean(table) && list.length > 0;
    if (!this.has) return;
    this.arcs = list;
    this.choices = [];
    if (exact) this.choices.push({ name: `${model.column(exact, "own").unit ?? "own"}, by call path`, exact });
    const costs = new Map(model.procedures.map((p) => [`${p.object}:${p.address}`, p]));
    model.columns?.forEach((column, k) => {
      if (["entries", "calls", "callers", "callees"].includes(column.name)) return;
      // What a procedure and its callees cost is no cost of its own.
      if (exact && ["own", "inclusive"].includes(column.name)) return;
      this.choices.push({ name: column.name, at: 0, own: (node) => costs.get(node.id)?.values[k] ?? 0 });
    });
    (measures ?? []).forEach((m, at) => {
      if (exact && m.name === "inclusive") return;
      this.choices.push({ name: m.name === "calls" ? "number of entries" : m.name, at, own: (node) => node.entered ?? 0 });
    });
    const select = byId("calls-measure");
    this.choices.forEach((choice, at) => select.append(new Option(choice.name, at)));
    select.parentElement.hidden = this.choices.length < 2;
    select.addEventListener("change", () => this.make());
    byId("calls-all").addEventListener("click", () => this.flame.zoom([this.flame.root]));
    this.open = (node) => {
      const [object, address] = node.id.split(":").map(Number);
      if (!Number.isNaN(address)) open({ object, address, name: node.name });
    };
  }

  make() {
    const choice = this.choices[Number(byId("calls-measure").value) || 0];
    const root = choice.exact ? exactTree(this.model, choice.exact) : new CallTree(this.arcs, choice.at, choice.own).top;
    const how = choice.exact ? "The profile has these call paths: the figures are exact." : "The profile has calls between pairs of procedures: a procedure's cost is " +
      "divided among its callers in proportion to their calls, and recursive calls stay with the procedure.";
    byId("calls-note").textContent = `Width is the cost with callees. ${how} A click zooms, a double click or Enter shows the code.`;
    byId("flame").replaceChildren();
    this.flame = new Flame(byId("flame"), root, {
      show: (x) => shown(Math.round(x * 100) / 100), open: this.open,
    });
    if (this.words) this.flame.search(this.words);
  }

  search(text) {
    this.words = text;
    this.flame?.search(text);
  }
}
