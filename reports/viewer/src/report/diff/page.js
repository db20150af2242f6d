// What changed between two profiles: a table for each table of theirs, the largest change first.
(async () => {
  const data = await pageData("data");
  themeSwitch(byId("theme"));
  document.querySelector("h1").textContent = data.title;
  for (const note of data.notes) byId("notes").append(element("p", note));
  const grids = [];
  for (const table of data.tables) {
    const { rows } = table;
    const change = table.columns.findIndex((column) => column.name === "change");
    const most = rows.reduce((most, row) => Math.max(most, Math.abs(value(row[change])) || 0), 0);
    const columns = table.columns.map((column, at) => {
      const made = { name: column.name, text: column.text, kind: column.mono ? "name" : "" };
      const isChange = column.name.startsWith("change");
      made.key = (row) => (column.text ? String(rows[row][at]) : value(rows[row][at]));
      made.show = (row) => {
        const cell = rows[row][at];
        if (column.text) return String(cell ?? "");
        if (cell === null) return column.name === "change %" ? "new" : "";
        const digits = column.name === "change %" ? cell.toFixed(2) : shown(cell);
        return isChange && cell > 0 ? `+${digits}` : digits;
      };
      if (at === change) made.part = (row) => (most ? 100 * Math.abs(value(rows[row][at])) / most : 0);
      return made;
    });
    const [before, after] = table.unmatched;
    const section = element("section");
    section.append(element("h2", table.name));
    const only = before || after ? `, ${shown(before)} of them only before, ${shown(after)} only after` : "";
    section.append(element("p", `${shown(rows.length)} ${rows.length === 1 ? "row" : "rows"} with a difference${only}`, "hint"));
    byId("tables").append(section);
    const grid = new Grid(section, columns, rows.length, { label: table.name });
    // Growth and decrease have colours of their own.
    const line = grid.line.bind(grid);
    grid.line = (at) => {
      const made = line(at);
      const sign = value(rows[grid.order[at]][change]);
      [change, change + 1].forEach((i) => made.children[i].classList.add(sign > 0 ? "more" : "less"));
      return made;
    };
    grid.draw();
    grids.push(grid);
  }
  if (!data.tables.length) byId("tables").append(element("p", "No differences."));
  byId("find").addEventListener("input", (event) => grids.forEach((grid) => grid.search(event.target.value)));
  document.documentElement.dataset.state = "ready";
  document.dispatchEvent(new Event("page-ready"));
})();
