"use strict";
// A procedure: figures, loops, callers and callees, source and instructions with heat.

const LANGUAGES = {
  c: "c", h: "cpp", cc: "cpp", cpp: "cpp", cxx: "cpp", hpp: "cpp", hh: "cpp", tcc: "cpp", rs: "rust", go: "go", f: "fortran", f90: "fortran",
};

// Lines of a source text as HTML. Elements that reach over the end of a line are closed and opened again.
function highlighted(path, text) {
  const language = LANGUAGES[path.split(".").pop().toLowerCase()];
  if (!language || !globalThis.hljs?.getLanguage(language)) return null;
  const open = [];
  return hljs.highlight(text, { language, ignoreIllegals: true }).value.split("\n").map((line) => {
    const start = open.join("");
    for (const [tag] of line.matchAll(/<span[^>]*>|<\/span>/g)) {
      if (tag === "</span>") open.pop();
      else open.push(tag);
    }
    return start + line + "</span>".repeat(open.length);
  });
}

const escaped = (text) => text.replace(/[&<>]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;" }[c]));
const REGISTERS = /\b([re]?[abcd]x|[abcd][lh]|[re]?[sd]il?|[re]?[sb]pl?|r\d+[dwb]?|[xyz]mm\d+|k[0-7]|rip|[cdefgs]s)\b/g;

function instruction(text) {
  const [, mnemonic, rest] = text.match(/^((?:(?:rep\w*|lock|bnd|notrack) )?\S+)(.*)$/) ?? [null, text, ""];
  const operands = escaped(rest).replace(REGISTERS, "<b class=R>$1</b>").replace(/\b(0x[0-9a-f]+|\d+)\b/g, "<b class=I>$1</b>");
  const spans = operands.replace(/<b class=R>/g, "<span class=r>").replace(/<b class=I>/g, "<span class=i>").replace(/<\/b>/g, "</span>");
  return `<span class=m>${escaped(mnemonic)}</span>${spans}`;
}

class CodeView {
  constructor(model, open) {
    this.model = model;
    this.open = open;
    this.measures = model.code?.measures ?? [];
    this.lines = new Map();
  }

  // Lines of a file that the page has: number to HTML.
  source(file) {
    if (this.lines.has(file)) return this.lines.get(file);
    const { path, parts } = this.model.code.files[file];
    const lines = new Map();
    for (const [first, text] of parts) {
      const html = highlighted(path, text) ?? text.split("\n").map(escaped);
      html.forEach((line, at) => lines.set(first + at, line));
    }
    this.lines.set(file, lines);
    return lines;
  }

  show(place) {
    const { model } = this;
    const procedure = model.procedureAt(place.object, place.address);
    const known = model.procedures.filter((p) => p.object === place.object &&
      (procedure ? procedure.start <= p.address && p.address < procedure.end : p.address === place.address));
    byId("code-name").textContent = procedure?.name ?? known[0]?.name ?? place.name ?? "";
    const range = procedure ? `${model.address(place.object, procedure.start)} to 0x${procedure.end.toString(16)}` : model.address(place.object, place.address);
    byId("code-place").textContent = `${model.object(place.object)}  ${range}`;
    byId("code-facts").replaceChildren();
    byId("code-side").replaceChildren();
    byId("code-body").replaceChildren();
    this.figures(procedure, known);
    if (procedure) this.loops(procedure);
    this.calls(procedure, known[0] ?? place);
    if (!procedure?.text.length) {
      const why = procedure?.reason ? `Its code is not understood: ${procedure.reason}.` :
        `The page has no code of this procedure. On the terminal: atom annotate PROFILE ${byId("code-name").textContent || "ADDRESS"}`;
      byId("code-body").append(element("p", why, "hint"));
      return;
    }
    this.listings(procedure);
    const at = procedure.address.indexOf(place.address);
    if (at > 0) this.light(procedure, (i) => i === at);
  }

  figures(procedure, known) {
    const { columns } = this.model;
    const sums = (columns ?? []).map((_, k) => known.reduce((sum, p) => sum + p.values[k], 0));
    (columns ?? []).forEach((column, k) => {
      const whole = this.model.procedures.reduce((sum, p) => sum + p.values[k], 0);
      card(byId("code-facts"), `${column.name}, ${percent(sums[k], whole)} %`, shown(sums[k]));
    });
    if (procedure) card(byId("code-facts"), "instructions", shown(procedure.text.length));
    if (procedure?.loops.length) card(byId("code-facts"), "loops", shown(procedure.loops.length));
  }

  table(title, heads, rows) {
    if (!rows.length) return;
    const part = element("div");
    part.append(element("h3", title));
    const table = element("table");
    const line = element("tr");
    heads.forEach((head, i) => line.append(element("th", head, i ? "" : "text")));
    table.append(line);
    for (const [first, ...rest] of rows) {
      const row = element("tr");
      const cell = element("td", null, "text");
      cell.append(first);
      row.append(cell, ...rest.map((text) => element("td", text)));
      table.append(row);
    }
    part.append(table);
    byId("code-side").append(part);
  }

  loops(procedure) {
    const rows = procedure.loops.map((loop, at) => {
      const i = procedure.address.indexOf(loop.header);
      const button = element("button", `${"  ".repeat(loop.depth - 1)}0x${loop.header.toString(16)}${i >= 0 && procedure.line[i] ? ` (line ${procedure.line[i]})` : ""}`);
      button.style.whiteSpace = "pre";
      const inside = (l) => l >= 0 && (l === at || inside(procedure.loops[l].parent ?? -1));
      button.addEventListener("click", () => this.light(procedure, (k) => inside(procedure.loop[k])));
      const each = loop.entries ? (loop.rounds / loop.entries).toFixed(1) : "";
      return [button, String(loop.depth), shown(loop.rounds), shown(loop.entries), each];
    });
    this.table("Loops", ["header", "depth", "rounds", "entered", "rounds each"], rows);
  }

  calls(procedure, place) {
    const { model } = this;
    const { table, list } = model.arcs();
    const ids = new Set([`${place.object}:${procedure?.start ?? place.address}`, `${place.object}:${place.address}`]);
    const rows = (mine, other, name) => {
      const sums = new Map();
      for (const arc of list) {
        if (!ids.has(arc[mine])) continue;
        const known = sums.get(arc[other]) ?? { name: arc[name], count: 0 };
        known.count += arc.values[0];
        sums.set(arc[other], known);
      }
      const all = [...sums].sort((a, b) => b[1].count - a[1].count).slice(0, 40);
      return all.map(([id, { name: text, count }]) => {
        const [object, address] = id.split(":").map(Number);
        if (Number.isNaN(address)) return [element("span", text, "mono"), shown(count)];
        const button = element("button", text);
        button.addEventListener("click", () => this.open({ object, address, name: text }));
        return [button, shown(count)];
      });
    };
    const among = table ? "" : " (direct calls on this page)";
    this.table(`Callers${among}`, ["procedure", "calls"], rows("to", "from", "fromName"));
    this.table(`Callees${among}`, ["procedure", "calls"], rows("from", "to", "toName"));
  }

  listings(procedure) {
    const body = byId("code-body");
    this.sums = this.measures.map((_, k) => procedure.values.reduce((sum, v) => sum + v[k], 0));
    const source = this.sourceListing(procedure);
    body.classList.toggle("alone", !source);
    if (source) body.append(source);
    body.append(this.instructionListing(procedure));
  }

  // Cells with values; the first measure has heat and a share.
  cells(line, values) {
    this.measures.forEach((_, k) => {
      const cell = element("span", values ? shown(values[k]) : "", "n");
      line.append(cell);
      if (k) return;
      const share = values && this.sums[0] ? values[0] / this.sums[0] : 0;
      if (share > 0) {
        cell.classList.add("heat");
        cell.style.setProperty("--heat", (0.06 + 0.74 * Math.sqrt(share)).toFixed(3));
      }
      line.append(element("span", share ? (100 * share).toFixed(2) : "", "n"));
    });
    if (values && !values.some(Boolean) && this.measures.length) line.classList.add("none");
  }

  listing(title, last) {
    const box = element("div", null, "listing");
    box.tabIndex = 0;
    box.setAttribute("aria-label", title);
    const heads = this.measures.flatMap((m, k) => (k ? [m.name] : [m.name, "%"]));
    const heading = element("h3", `${title}${heads.length ? `: ${heads.join(", ")}` : ""}`);
    const widths = this.measures.flatMap((m, k) => {
      const width = `${Math.max(4, shown(this.sums[k]).length) + 3}ch`;
      return k ? [width] : [width, "8ch"];
    });
    box.style.setProperty("--cells", [...widths, ...last].join(" "));
    box.append(heading);
    return box;
  }

  sourceListing(procedure) {
    // Sums by file and line.
    const files = new Map();
    procedure.file.forEach((file, i) => {
      if (file < 0) return;
      if (!files.has(file)) files.set(file, new Map());
      const lines = files.get(file);
      const sums = lines.get(procedure.line[i]) ?? this.measures.map(() => 0);
      this.measures.forEach((_, k) => { sums[k] += procedure.values[i][k]; });
      lines.set(procedure.line[i], sums);
    });
    const shownFiles = [...files].filter(([file]) => this.model.code.files[file].parts.length);
    if (!shownFiles.length) return null;
    const box = this.listing("Source", ["7ch"]);
    for (const [file, counted] of shownFiles) {
      box.append(element("h3", this.model.code.files[file].path));
      const text = this.source(file);
      let last = null;
      const near = [...counted.keys()].sort((a, b) => a - b);
      for (const number of [...text.keys()].sort((a, b) => a - b)) {
        // Of a file that several procedures share only what is near this one.
        if (!near.some((line) => Math.abs(line - number) <= 6)) continue;
        if (last !== null && number !== last + 1) box.append(element("div", "⋯", "gap"));
        last = number;
        const line = element("div", null, "l");
        line.dataset.place = `${file}:${number}`;
        this.cells(line, counted.get(number));
        const code = element("span");
        code.innerHTML = text.get(number);
        line.append(element("span", String(number), "number"), code);
        if (counted.has(number)) {
          line.addEventListener("click", () => this.light(procedure, (i) => procedure.file[i] === file && procedure.line[i] === number, true));
        }
        box.append(line);
      }
    }
    return box;
  }

  instructionListing(procedure) {
    const deepest = Math.max(0, ...procedure.loops.map((l) => l.depth));
    const box = this.listing("Instructions", [`${deepest + 1}ch`, "12ch"]);
    const blocks = new Set(procedure.blocks);
    procedure.address.forEach((address, i) => {
      if (i && address !== procedure.address[i - 1] + procedure.bytes[i - 1].length / 2) box.append(element("div", "⋯", "gap"));
      const line = element("div", null, `l${blocks.has(i) ? " block" : ""}`);
      line.dataset.at = i;
      this.cells(line, procedure.values[i]);
      const depth = procedure.loop[i] >= 0 ? procedure.loops[procedure.loop[i]].depth : 0;
      line.append(element("span", "│".repeat(depth), "depth"), element("span", address.toString(16), "address"));
      const code = element("span");
      code.innerHTML = instruction(procedure.text[i]);
      code.title = procedure.bytes[i];
      this.notes(procedure, i, code);
      line.append(code);
      line.addEventListener("click", () => this.light(procedure, (k) => procedure.file[k] === procedure.file[i] && procedure.line[k] === procedure.line[i], false, i));
      box.append(line);
    });
    return box;
  }

  // What an instruction refers to, and where a branch went.
  notes(procedure, i, code) {
    const note = element("span", null, "note");
    const link = (text, object, address) => {
      const button = element("button", text);
      button.addEventListener("click", (event) => {
        event.stopPropagation();
        const at = procedure.address.indexOf(address);
        if (at >= 0 && object === procedure.object) this.light(procedure, (k) => k === at, true);
        else this.open({ object, address, name: text });
      });
      note.append("  ", button);
    };
    if (procedure.target[i] !== undefined) link(procedure.comment[i] ?? "0x" + procedure.target[i].toString(16), procedure.object, procedure.target[i]);
    else if (procedure.comment[i]) note.append(`  ${procedure.comment[i]}`);
    const branch = procedure.branch[i];
    if (branch) {
      const [taken, not] = branch;
      const way = element("span", null, "way");
      way.style.setProperty("--taken", 100 * taken / (taken + not) || 0);
      note.append(way, `${procedure.target[i] <= procedure.address[i] ? "↑" : "↓"} taken ${percent(taken, taken + not)} % (${shown(taken)} of ${shown(taken + not)})`);
    }
    for (const [object, address, count] of (procedure.targets[i] ?? []).slice(0, 6)) {
      link(this.model.named(object, address), object, address);
      note.append(` ${shown(count)}`);
    }
    if (note.childNodes.length) code.append(note);
  }

  // Marks instructions and their source lines. `scroll`: brings the first instruction into view; else the source line.
  light(procedure, wanted, scroll = true, origin = -1) {
    const body = byId("code-body");
    body.querySelectorAll(".lit").forEach((line) => line.classList.remove("lit"));
    const places = new Set();
    let first = null;
    body.querySelectorAll(".l[data-at]").forEach((line) => {
      const i = Number(line.dataset.at);
      if (i !== origin && !wanted(i)) return;
      line.classList.add("lit");
      first ??= line;
      places.add(`${procedure.file[i]}:${procedure.line[i]}`);
    });
    let source = null;
    body.querySelectorAll(".l[data-place]").forEach((line) => {
      if (!places.has(line.dataset.place)) return;
      line.classList.add("lit");
      source ??= line;
    });
    const into = (line) => {
      const box = line?.closest(".listing");
      if (!box) return;
      const top = line.offsetTop - box.offsetTop;
      if (top < box.scrollTop + 40 || top > box.scrollTop + box.clientHeight - 40) box.scrollTop = top - box.clientHeight / 3;
    };
    if (scroll) into(first);
    into(source);
  }
}
