"use strict";
// A table with any number of rows: only rows in view are elements.
//
// A column: name, text (true for texts), kind (a class of its cells), show(row) the cell's text, key(row) what rows are
// sorted by, part(row) the length of the cell's bar in per cent, if it has one.

class Grid {
  constructor(holder, columns, rows, options = {}) {
    this.columns = columns;
    this.rows = rows;
    this.options = options;
    this.order = Array.from({ length: rows }, (_, row) => row);
    this.by = -1;
    this.up = false;
    this.words = [];
    this.current = 0;
    this.height = 26;
    this.texts = null;
    this.box = element("div", null, "grid");
    this.box.tabIndex = 0;
    this.box.setAttribute("role", "grid");
    this.box.setAttribute("aria-label", options.label ?? "table");
    this.head = element("div", null, "head");
    this.head.setAttribute("role", "rowgroup");
    this.space = element("div", null, "space");
    this.space.setAttribute("role", "rowgroup");
    this.box.append(this.head, this.space);
    this.makeHead();
    this.measure();
    this.box.addEventListener("scroll", () => this.draw());
    this.box.addEventListener("keydown", (event) => this.key(event));
    this.space.addEventListener("click", (event) => {
      const line = event.target.closest(".row");
      if (!line) return;
      this.current = Number(line.dataset.at);
      this.draw();
      this.options.open?.(this.order[this.current]);
    });
    addEventListener("resize", () => this.draw());
    holder.append(this.box);
    this.draw();
  }

  // Widths in characters, by the longest texts of a sample of rows.
  measure() {
    const step = Math.max(1, Math.floor(this.rows / 400));
    const widths = this.columns.map((column) => {
      let most = column.name.length + 2;
      for (let row = 0; row < this.rows; row += step) most = Math.max(most, column.show(row).length);
      return `${Math.min(most, column.text ? 90 : 30) * (column.text ? 0.6 : 0.62) + 1.6}em`;
    });
    this.template = widths.join(" ");
    this.head.firstChild.style.gridTemplateColumns = this.template;
  }

  makeHead() {
    const line = element("div", null, "line");
    line.setAttribute("role", "row");
    this.columns.forEach((column, at) => {
      const button = element("button", column.name, column.text ? "text" : "");
      button.setAttribute("role", "columnheader");
      if (column.title) button.title = column.title;
      button.addEventListener("click", () => {
        this.sort(at, this.by === at ? !this.up : Boolean(column.text));
      });
      line.append(button);
    });
    this.head.append(line);
  }

  sort(at, up = false) {
    this.by = at;
    this.up = up;
    [...this.head.firstChild.children].forEach((head, i) => {
      if (i === at) head.setAttribute("aria-sort", up ? "ascending" : "descending");
      else head.removeAttribute("aria-sort");
    });
    this.arrange();
  }

  search(text) {
    this.words = wordsOf(text);
    this.arrange();
  }

  // Rows that are found, in order.
  arrange() {
    let order = Array.from({ length: this.rows }, (_, row) => row);
    if (this.words.length) {
      this.texts ??= order.map((row) => this.columns.map((c) => c.find?.(row) ?? c.show(row)).join("\t").toLowerCase());
      order = order.filter((row) => hasAll(this.texts[row], this.words));
    }
    const column = this.columns[this.by];
    if (column) {
      const keys = order.map((row) => column.key(row));
      const sign = this.up ? 1 : -1;
      const places = order.map((_, i) => i);
      const compare = column.text
        ? (a, b) => sign * (keys[a] < keys[b] ? -1 : keys[a] > keys[b] ? 1 : 0) || a - b
        : (a, b) => {
          const [x, y] = [keys[a], keys[b]];
          // What is not known comes last.
          if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y) || a - b;
          return sign * (x - y) || a - b;
        };
      places.sort(compare);
      order = places.map((i) => order[i]);
    }
    this.order = order;
    this.current = 0;
    this.box.scrollTop = 0;
    this.draw();
    this.options.arranged?.(order.length);
  }

  draw() {
    this.height = matchMedia("(max-width: 700px)").matches ? 50 : 26;
    this.space.style.height = this.order.length * this.height + "px";
    this.box.setAttribute("aria-rowcount", this.order.length + 1);
    const view = this.box.clientHeight || 700;
    const first = Math.max(0, Math.floor(this.box.scrollTop / this.height) - 4);
    const last = Math.min(this.order.length, first + Math.ceil(view / this.height) + 10);
    const lines = document.createDocumentFragment();
    for (let at = first; at < last; at++) lines.append(this.line(at));
    this.space.replaceChildren(lines);
  }

  line(at) {
    const row = this.order[at];
    const line = element("div", null, `line row${this.options.open ? " link" : ""}${at === this.current ? " current" : ""}`);
    line.style.gridTemplateColumns = this.template;
    line.style.top = at * this.height + "px";
    line.dataset.at = at;
    line.dataset.row = row;
    line.setAttribute("role", "row");
    line.setAttribute("aria-rowindex", at + 2);
    if (at === this.current) line.setAttribute("aria-selected", "true");
    for (const column of this.columns) {
      const cell = element("div", null, `cell ${column.text ? "text" : ""} ${column.kind ?? ""}`);
      cell.setAttribute("role", "gridcell");
      const text = column.show(row);
      if (column.part) {
        cell.classList.add("share");
        cell.style.setProperty("--part", Math.max(0, Math.min(100, column.part(row) || 0)));
        cell.append(element("span", text));
      } else {
        cell.textContent = text;
        if (column.text) cell.title = column.find?.(row) ?? text;
      }
      line.append(cell);
    }
    return line;
  }

  key(event) {
    if (event.target !== this.box) return;
    const page = Math.max(1, Math.floor(this.box.clientHeight / this.height) - 2);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key === "Enter") {
      if (this.order.length) this.options.open?.(this.order[this.current]);
    } else if (event.key in steps) {
      this.select(this.current + steps[event.key]);
    } else {
      return;
    }
    event.preventDefault();
  }

  select(at) {
    this.current = Math.max(0, Math.min(this.order.length - 1, at));
    const [top, view] = [this.current * this.height, this.box.clientHeight - this.head.offsetHeight];
    if (top < this.box.scrollTop) this.box.scrollTop = top;
    if (top + this.height > this.box.scrollTop + view) this.box.scrollTop = top + this.height - view;
    this.draw();
  }
}
