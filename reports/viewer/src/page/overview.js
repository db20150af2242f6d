"use strict";
// Facts as figures, the run, and the first rows of the most telling tables.

function card(holder, name, text, isText, title) {
  const made = element("div", null, "card");
  const figure = element("div", text, `figure${isText ? " text" : ""}`);
  if (title) figure.title = title;
  made.append(figure, element("div", name, "name"));
  holder.append(made);
}

function drawFacts(model) {
  for (const fact of model.profile.facts ?? []) {
    const isText = fact.type === "text";
    let text = isText ? fact.value : shown(fact.value);
    if ((fact.type === "percent" || fact.name.endsWith("%")) && typeof fact.value === "number") text = fact.value.toFixed(2) + " %";
    if (fact.type === "seconds" && typeof fact.value === "number") text = duration(fact.value * 1e6);
    const unit = fact.type === "bytes" ? "bytes" : fact.unit;
    const isNamed = unit && !fact.name.includes(unit) && !["percent", "seconds"].includes(fact.type);
    card(byId("facts"), fact.name + (isNamed ? ` (${unit})` : ""), text, isText);
  }
}

function drawRun(model) {
  const { profile } = model;
  const rows = [
    ["Program", profile.program.path],
    ["Arguments", (profile.program.arguments ?? []).join(" ")],
    ["Tool", [profile.tool, ...(profile.options ?? [])].join(" ") + (profile.atom ? `, atom ${profile.atom}` : "")],
    ["Scope", profile.scope === "process" ? "the whole process" : "the program's own file"],
    ["Process", profile.process?.pid],
    ["Host", [profile.host?.name, profile.host?.kernel, profile.host?.processor,
      profile.host?.processors && `${profile.host.processors} processors`].filter(Boolean).join(", ")],
    ["Start", profile.time?.start],
    ["Duration", profile.time?.seconds ? duration(profile.time.seconds * 1e6) : ""],
  ];
  for (const object of model.objects) {
    const notes = [object.path, object.build_id && `build-id ${object.build_id}`, object.instrumented === false && "not instrumented",
      object.opaque_procedures && `${object.opaque_procedures} opaque procedures`];
    rows.push([object.name, notes.filter(Boolean).join(", ")]);
  }
  for (const problem of model.code?.problems ?? []) rows.push(["No code", problem]);
  for (const [name, text] of rows) {
    if (text === undefined || text === null || text === "") continue;
    byId("run").append(element("dt", name), element("dd", String(text)));
  }
}

// A list of bars: rows of [name, count, place].
function bars(title, rows, whole, open) {
  const part = element("div");
  part.append(element("h2", title));
  const list = element("div", null, "bars");
  const most = Math.max(...rows.map((row) => row.count));
  for (const row of rows) {
    const name = element("button", row.name, "name");
    name.style.display = "block";
    name.style.setProperty("--part", 100 * row.count / most);
    name.title = row.title ?? row.name;
    if (row.place) name.addEventListener("click", () => open(row.place));
    list.append(name, element("span", shown(row.count), "count"),
      element("span", whole ? percent(row.count, whole) + " %" : "", "count soft"));
  }
  part.append(list);
  byId("top").append(part);
}

const TOP = 12;

function drawTop(model, open) {
  model.tables.forEach((table) => drawTime(model, table));
  model.tables.forEach((table) => drawPeak(model, table));
  const first = model.columns?.[0];
  const { procedures } = model;
  if (first && procedures.length) {
    const whole = procedures.reduce((sum, p) => sum + p.values[0], 0);
    const rows = procedures.slice(0, TOP).filter((p) => p.values[0]).map((p) => ({
      name: model.short(p.name), count: p.values[0], place: p, title: `${p.name}\n${model.object(p.object)} ${p.file}`,
    }));
    bars(`Procedures by ${first.name}`, rows, whole, open);
  }
  for (const table of model.tables) {
    if (table.by === "branch" && model.column(table, "taken") && model.column(table, "not taken")) drawBranches(model, table, open);
    drawCurve(model, table);
    if (table.by === "data" && model.measures(table).length) drawData(model, table);
  }
}

// Wrong predictions of a branch by the best model that was simulated; executions against its usual direction if there is none.
function mispredicted(model, table) {
  const column = ["tage", "gshare", "2-bit"].map((name) => model.column(table, name)).find(Boolean);
  if (!column) return { title: "Hard to predict: against the usual direction", hint: "executions against the usual direction", of: (row) => against(model, table, row) };
  return { title: `Branches by mispredictions (${column.name})`, hint: "wrong predictions", of: (row) => value(column.values[row]) || 0 };
}

// Executions of a branch against its usual direction: what the best static prediction gets wrong.
function against(model, table, row) {
  const number = (name) => value(model.column(table, name).values[row]) || 0;
  return Math.min(number("taken"), number("not taken"));
}

function drawBranches(model, table, open) {
  const rows = Array.from({ length: table.rows }, (_, row) => row);
  const { title, hint, of } = mispredicted(model, table);
  const hard = rows.map((row) => ({ row, count: of(row) })).filter((r) => r.count);
  const whole = hard.reduce((sum, r) => sum + r.count, 0);
  hard.sort((a, b) => b.count - a.count);
  const label = (row) => table.columns.filter((c) => c.type === "text" || c.type === "place")
    .map((c) => model.text(table, c, row)).filter(Boolean).map((t) => t.split("/").pop()).join("  ");
  const list = hard.slice(0, TOP).map(({ row, count }) => ({
    name: label(row) || model.address(model.place(table, row).object, model.place(table, row).address),
    count, place: model.place(table, row), title: hint,
  }));
  if (list.length) bars(title, list, whole, open);
}

function drawData(model, table) {
  const [measure] = model.measures(table);
  const label = model.first(table, "text");
  const rows = Array.from({ length: table.rows }, (_, row) => {
    const title = label ? model.text(table, label, row) : `row ${row + 1}`;
    return { name: model.short(title), title, count: value(measure.values[row]) || 0 };
  }).sort((a, b) => b.count - a.count);
  const whole = rows.reduce((sum, row) => sum + row.count, 0);
  bars(`${table.name} by ${measure.name}`, rows.slice(0, TOP), whole);
}
