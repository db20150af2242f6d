"use strict";
// The profile (docs/profile-format.md) as the parts of the page ask for it.

class Model {
  constructor(profile, code, short) {
    this.profile = profile;
    this.code = code;
    this.strings = profile.strings ?? [];
    this.shorts = new Map(Object.entries(short ?? {}).map(([at, text]) => [this.strings[at], text]));
    this.objects = profile.objects ?? [];
    this.tables = (profile.tables ?? []).filter((table) => table.rows);
    this.procedures = this.collect();
    // Embedded procedures by object and start, for finding one by an address.
    this.embedded = new Map();
    for (const procedure of code?.procedures ?? []) {
      if (!this.embedded.has(procedure.object)) this.embedded.set(procedure.object, []);
      this.embedded.get(procedure.object).push(procedure);
    }
  }

  // A name as it stands in a line: long names are shortened.
  short(name) {
    return this.shorts.get(name) ?? name;
  }

  object(index) {
    return this.objects[index]?.name ?? "";
  }

  // An address as reports write it: of a library after its name.
  address(object, address) {
    const digits = "0x" + address.toString(16);
    return object ? `${this.object(object)}+${digits}` : digits;
  }

  column(table, name) {
    return table.columns.find((column) => column.name === name);
  }

  first(table, type) {
    return table.columns.find((column) => column.type === type);
  }

  measures(table) {
    return table.columns.filter((column) => column.role === "measure");
  }

  // The value of a number's column in a row, NaN if it is not known.
  number(table, column, row) {
    if (column.role !== "derived") return value(column.values[row]);
    column.stored ??= this.column(table, column.part);
    if (!column.stored) return NaN;
    const part = value(column.stored.values[row]);
    let whole;
    if (column.whole) {
      column.divisor ??= this.column(table, column.whole);
      whole = column.divisor ? value(column.divisor.values[row]) : NaN;
    } else {
      if (column.sum_ === undefined) {
        const fact = (this.profile.facts ?? []).find((f) => f.name === column.whole_fact);
        const known = column.stored.values.map(value).filter((x) => !Number.isNaN(x));
        column.sum_ = column.whole_fact ? value(fact?.value) : known.reduce((a, b) => a + b, 0);
      }
      whole = column.sum_;
    }
    return whole ? part / whole * (column.type === "percent" ? 100 : 1) : NaN;
  }

  text(table, column, row) {
    const x = column.values?.[row];
    switch (column.type) {
      case "text": return x >= 0 ? this.strings[x] ?? "" : "";
      case "address": return x === null ? "" : this.address(column.objects?.[row] ?? 0, value(x));
      case "place": {
        const file = column.files?.[row] ?? -1;
        return file < 0 ? "" : x ? `${this.strings[file]}:${x}` : this.strings[file];
      }
      case "percent": {
        const share = this.number(table, column, row);
        return Number.isNaN(share) ? "" : share.toFixed(2);
      }
      case "ratio": {
        const ratio = this.number(table, column, row);
        return Number.isNaN(ratio) ? "" : ratio.toFixed(2);
      }
      default: return shown(column.role === "derived" ? this.number(table, column, row) : x);
    }
  }

  // Object and address of the code that a row stands for, if it stands for code.
  place(table, row) {
    const column = this.column(table, "pc") ?? this.column(table, "callee pc") ?? this.first(table, "address");
    if (!column || table.by === "data" || column.values[row] === null) return null;
    return { object: column.objects?.[row] ?? 0, address: value(column.values[row]) };
  }

  // The table whose rows are put together by procedure.
  main() {
    const of = (by) => this.tables.find((t) => t.by === by && this.first(t, "address") && this.measures(t).length);
    return ["procedure", "branch", "block", "instruction"].map(of).find(Boolean);
  }

  // All procedures with the sums of their measures.
  collect() {
    const table = this.main();
    if (!table) return [];
    this.columns = this.measures(table).filter((c) => c.sum === "add" || c.sum === undefined);
    const names = this.column(table, "procedure");
    const places = this.first(table, "place");
    const found = new Map();
    for (let row = 0; row < table.rows; row++) {
      const place = this.place(table, row);
      if (!place) continue;
      const name = (names && this.text(table, names, row)) || this.address(place.object, place.address);
      const key = table.by === "procedure" ? `${place.object}:${place.address}` : `${place.object}:${name}`;
      let procedure = found.get(key);
      if (!procedure) {
        const file = places?.files?.[row] ?? -1;
        procedure = { ...place, name, file: file < 0 ? "" : this.strings[file], values: this.columns.map(() => 0) };
        found.set(key, procedure);
      }
      this.columns.forEach((column, at) => { procedure.values[at] += value(column.values[row]) || 0; });
    }
    return [...found.values()].sort((a, b) => b.values[0] - a.values[0]);
  }

  // The embedded procedure that contains an address; parts of it may lie elsewhere.
  procedureAt(object, address) {
    const list = this.embedded.get(object) ?? [];
    return list.find((p) => p.start <= address && address < p.end) ?? list.find((p) => p.address.includes(address));
  }

  named(object, address) {
    const known = this.procedureAt(object, address);
    if (known) return known.name;
    return this.procedures.find((p) => p.object === object && p.address === address)?.name ?? this.address(object, address);
  }

  // Calls between procedures: of the table by arc, or else of the embedded code's call instructions.
  arcs() {
    if (this.known) return this.known;
    const table = this.tables.find((t) => t.by === "arc" && this.column(t, "caller pc") && this.column(t, "callee pc"));
    if (!table) return (this.known = { table: null, list: this.callInstructions() });
    const [from, to] = [this.column(table, "caller pc"), this.column(table, "callee pc")];
    const measures = this.measures(table);
    const name = (column, pc, row) => (column ? this.text(table, column, row) : "") ||
      (pc.values[row] === null ? "(outside)" : this.named(pc.objects?.[row] ?? 0, value(pc.values[row])));
    const end = (pc, row) => (pc.values[row] === null ? "outside" : `${pc.objects?.[row] ?? 0}:${value(pc.values[row])}`);
    const [callers, callees] = [this.column(table, "caller"), this.column(table, "callee")];
    const list = [];
    for (let row = 0; row < table.rows; row++) {
      list.push({
        from: end(from, row), to: end(to, row), fromName: name(callers, from, row), toName: name(callees, to, row),
        values: measures.map((m) => value(m.values[row]) || 0),
      });
    }
    return (this.known = { table, measures, list });
  }

  callInstructions() {
    const list = [];
    for (const p of this.code?.procedures ?? []) {
      for (const i of Object.keys(p.call)) {
        const count = p.values[i]?.[0];
        if (!count || p.target[i] === undefined) continue;
        const callee = this.procedureAt(p.object, p.target[i]);
        list.push({
          from: `${p.object}:${p.start}`, to: `${p.object}:${callee?.start ?? p.target[i]}`, fromName: p.name,
          toName: callee?.name ?? p.comment[i] ?? this.address(p.object, p.target[i]), values: [count],
        });
      }
    }
    return list;
  }
}
