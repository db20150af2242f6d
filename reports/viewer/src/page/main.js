"use strict";
// Tabs, search, keyboard, and the address of the page, which says what is shown.

class ReportPage {
  constructor(model, roofs) {
    this.model = model;
    const { profile } = model;
    byId("title").textContent = `${profile.tool} of ${profile.program.path.split("/").pop()}`;
    byId("subtitle").textContent = [(profile.program.arguments ?? []).join(" "), profile.host?.name, profile.time?.start?.slice(0, 19).replace("T", " "),
      profile.time?.seconds && duration(profile.time.seconds * 1e6)].filter(Boolean).join("  ·  ");
    const open = (place) => this.go({ proc: `${place.object}:${place.address.toString(16)}` });
    drawFacts(model);
    drawRun(model);
    drawTop(model, open);
    this.open = open;
    this.map = new TreeMap(model, open);
    this.calls = new CallView(model, open);
    this.roofline = new Roofline(model, roofs, open);
    this.code = new CodeView(model, open);
    this.grids = new Map();
    this.tabs();
    byId("find").addEventListener("input", () => this.search());
    byId("find").addEventListener("keydown", (event) => {
      if (event.key === "Escape") { byId("find").value = ""; this.search(); byId("find").blur(); }
      if (event.key !== "Enter" && event.key !== "ArrowDown") return;
      event.preventDefault();
      (this.grid ? this.grid.box : document.querySelector("main section:not([hidden]) button"))?.focus();
    });
    byId("back").addEventListener("click", () => this.back());
    addEventListener("keydown", (event) => {
      if (event.key === "Escape" && !byId("code-panel").hidden) this.back();
    });
    addEventListener("hashchange", () => this.show());
    this.show();
  }

  tabs() {
    const tables = this.model.tables.map((table, at) => [`table-${at}`, table.name]);
    const all = [["overview", "Overview"], ...(this.roofline.has ? [["roofline", "Roofline"]] : []), ...(this.calls.has ? [["calls", "Call graph"]] : []), ...tables];
    for (const [id, name] of all) {
      const button = element("button", name);
      button.setAttribute("role", "tab");
      button.dataset.tab = id;
      button.addEventListener("click", () => this.go({ tab: id }));
      byId("tabs").append(button);
    }
    byId("tabs").addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      const buttons = [...byId("tabs").children];
      const next = step && buttons[buttons.indexOf(event.target) + step];
      if (!next) return;
      next.focus();
      next.click();
    });
  }

  state() {
    return new URLSearchParams(location.hash.slice(1));
  }

  go(change) {
    const state = this.state();
    if (change.tab) state.delete("proc");
    for (const [key, text] of Object.entries(change)) state.set(key, text);
    if (location.hash.slice(1) === state.toString()) this.show();
    else location.hash = state.toString();
    // A page in a frame without history shows it nevertheless.
    this.show();
  }

  back() {
    const state = this.state();
    state.delete("proc");
    location.hash = state.toString() || "tab=overview";
    this.show();
    (this.grid?.box ?? byId("tabs").querySelector("[aria-selected=true]"))?.focus();
  }

  show() {
    const state = this.state();
    const now = state.toString();
    if (now === this.now) return;
    this.now = now;
    const proc = state.get("proc");
    const wanted = state.get("tab") ?? "overview";
    const tab = [...byId("tabs").children].some((b) => b.dataset.tab === wanted) ? wanted : "overview";
    for (const button of byId("tabs").children) {
      button.setAttribute("aria-selected", button.dataset.tab === tab);
      button.tabIndex = button.dataset.tab === tab ? 0 : -1;
    }
    const panel = proc ? "code-panel" : tab.startsWith("table-") ? "table" : tab;
    for (const id of ["overview", "table", "calls", "roofline", "code-panel"]) byId(id).hidden = id !== panel;
    this.grid = null;
    if (proc) {
      const [object, address] = proc.split(":");
      this.code.show({ object: Number(object), address: Number.parseInt(address, 16) });
      scrollTo(0, 0);
    } else if (panel === "table") {
      this.table(Number(tab.split("-")[1]));
    } else if (panel === "calls" && !this.calls.flame) {
      this.calls.make();
    } else if (panel === "roofline") {
      this.roofline.draw();
    }
    this.search();
  }

  search() {
    const text = byId("find").value;
    if (this.grid) this.grid.search(text);
    if (!byId("overview").hidden) this.map.search(text);
    if (!byId("roofline").hidden) this.roofline.search(text);
    if (!byId("calls").hidden) this.calls.search(text);
  }

  table(at) {
    byId("grid").replaceChildren();
    if (!this.grids.has(at)) this.grids.set(at, this.makeGrid(this.model.tables[at]));
    this.grid = this.grids.get(at);
    byId("grid").append(this.grid.box);
    this.grid.draw();
  }

  makeGrid(table) {
    const { model } = this;
    const times = timesOf(model, table);
    const columns = table.columns.map((column) => {
      const isText = ["text", "place"].includes(column.type);
      const made = {
        name: column.name, text: isText, kind: column.type === "text" ? "name" : column.type, title: column.unit,
        show: (row) => model.text(table, column, row),
        key: isText ? (row) => model.text(table, column, row)
          : column.type === "address" ? (row) => (column.objects?.[row] ?? 0) * 2 ** 48 + value(column.values[row])
            : (row) => model.number(table, column, row),
      };
      if (column.type === "text") {
        // The whole name stands in the hint and is found, too.
        made.find = made.show;
        made.show = (row) => model.short(model.text(table, column, row));
      }
      if (column.type === "place") {
        // The folder stands in the hint and is found, too.
        made.find = made.show;
        made.show = (row) => model.text(table, column, row).split("/").pop();
      }
      if (column === times) {
        made.name = "time";
        made.show = (row) => duration(value(column.values[row]));
      }
      if (column.type === "percent") {
        let most = 100;
        if (!column.whole) for (let row = 0, first = true; row < table.rows; row++) {
          const share = model.number(table, column, row);
          if (share >= 0 && (first || share > most)) { most = share; first = false; }
        }
        made.part = (row) => 100 * model.number(table, column, row) / (most || 1);
      }
      return made;
    });
    if (model.column(table, "taken") && model.column(table, "not taken")) {
      columns.unshift({
        name: "against", title: "executions against the usual direction: what the best static prediction gets wrong",
        show: (row) => shown(against(model, table, row)), key: (row) => against(model, table, row),
      });
    }
    const isCode = table.by !== "data" && (table.columns.some((c) => c.type === "address") || table.by === "line");
    const grid = new Grid(byId("grid"), columns, table.rows, {
      label: table.name,
      open: isCode ? (row) => this.openRow(table, row) : null,
      arranged: (n) => {
        byId("rows").textContent = n === table.rows ? `${shown(n)} rows` : `${shown(n)} of ${shown(table.rows)} rows`;
      },
    });
    const first = columns.findIndex((c, at) => c.name === "against" || table.columns[at]?.role === "measure");
    // Rows in the order of time stay in it.
    if (first >= 0 && !times) grid.sort(first);
    return grid;
  }

  // The code of a row: by its address, or by its source line.
  openRow(table, row) {
    const place = this.model.place(table, row);
    if (place) return this.open(place);
    const column = this.model.first(table, "place");
    const path = column && this.model.strings[column.files?.[row]];
    const line = column && value(column.values[row]);
    const files = this.model.code?.files ?? [];
    for (const procedure of this.model.code?.procedures ?? []) {
      const at = procedure.line.findIndex((l, i) => l === line && files[procedure.file[i]]?.path === path);
      if (at >= 0) return this.open({ object: procedure.object, address: procedure.address[at] });
    }
    return undefined;
  }
}

function markDark() {
  const { theme } = document.documentElement.dataset;
  const dark = theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  document.documentElement.toggleAttribute("data-dark", dark);
}

(async () => {
  themeSwitch(byId("theme"));
  markDark();
  byId("theme").addEventListener("click", markDark);
  const [profile, code, short, roofs] = await Promise.all(["profile", "code", "short", "roofs"].map(pageData));
  globalThis.report = new ReportPage(new Model(profile, code, short), roofs);
  document.documentElement.dataset.state = "ready";
  document.dispatchEvent(new Event("page-ready"));
})();
