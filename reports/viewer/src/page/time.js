"use strict";
// Bytes over time with the peak marked, from a table with the columns `microseconds` and `live`, and what was live at the peak:
// the profile of heap.

const TIME = { width: 640, height: 260, left: 64, right: 16, top: 24, bottom: 44 };

// The column of times of a table, in microseconds since the start.
const timesOf = (model, table) => model.column(table, "microseconds");

// Steps of 1, 2 or 5 times a power of ten that divide a length into six parts at most.
function stepOf(length) {
  const power = 10 ** Math.floor(Math.log10(length / 6));
  return [1, 2, 5, 10].map((n) => n * power).find((step) => length / step <= 6);
}

function timeText(us, step) {
  const [unit, size] = step >= 1e6 ? ["s", 1e6] : step >= 1e3 ? ["ms", 1e3] : ["µs", 1];
  return `${shown(Number((us / size).toFixed(3)))} ${unit}`;
}

// A size in bytes with a prefix of powers of 1,000.
function decimal(bytes) {
  const power = bytes ? Math.min(Math.floor(Math.log10(bytes) / 3), 4) : 0;
  return `${Number((bytes / 1000 ** power).toPrecision(4))} ${["", "k", "M", "G", "T"][power]}B`;
}

function drawTime(model, table) {
  const [times, live] = [timesOf(model, table), model.column(table, "live")];
  if (!times || live?.type !== "bytes") return;
  const fact = (name) => value((model.profile.facts ?? []).find((f) => f.name === name)?.value);
  const points = Array.from({ length: table.rows }, (_, row) => ({ us: value(times.values[row]), bytes: value(live.values[row]) }));
  // Samples may miss the peak.
  const peak = { us: fact("time of the peak") * 1e6, bytes: fact("bytes at the peak") };
  const hasPeak = peak.us >= 0 && peak.bytes > 0;
  if (hasPeak) points.push(peak);
  points.sort((a, b) => a.us - b.us);
  const last = points[points.length - 1]?.us;
  const most = Math.max(...points.map((p) => p.bytes));
  if (points.length < 2 || !(last > 0) || !(most > 0)) return;
  const { picture, bottom, right, line, text, show } = plot(TIME, "Live bytes over time");
  const x = (us) => TIME.left + us / last * (right - TIME.left);
  const y = (bytes) => bottom - bytes / most * (bottom - TIME.top);
  for (let bytes = 0, step = stepOf(most); bytes <= most; bytes += step) {
    line(TIME.left, y(bytes), right, y(bytes));
    text(decimal(bytes), TIME.left - 6, y(bytes) + 4, "end");
  }
  for (let us = 0, step = stepOf(last); us <= last; us += step) {
    line(x(us), TIME.top, x(us), bottom);
    text(timeText(us, step), x(us), bottom + 16, "middle");
  }
  text("time since the start", (TIME.left + right) / 2, TIME.height - 6, "middle", "axis");
  // What was live at a sample stays until the next one.
  const path = points.map((p, at) => (at ? `H${x(p.us).toFixed(1)}V` : `M${x(p.us).toFixed(1)},`) + y(p.bytes).toFixed(1)).join("");
  picture.append(vector("path", { class: "area", d: `${path}V${bottom}H${x(points[0].us).toFixed(1)}Z` }), vector("path", { class: "roof", d: path }));
  if (hasPeak) {
    const mark = vector("circle", { class: "point peak", cx: x(peak.us).toFixed(2), cy: y(peak.bytes).toFixed(2), r: 4, "data-bytes": peak.bytes, "data-us": peak.us });
    const label = `peak: ${decimal(peak.bytes)} at ${duration(peak.us)}`;
    mark.append(vector("title", {}, `${shown(peak.bytes)} bytes at ${duration(peak.us)}`));
    const isLeft = x(peak.us) < (TIME.left + right) / 2;
    picture.append(mark);
    text(label, x(peak.us) + (isLeft ? 8 : -8), TIME.top - 8, isLeft ? "start" : "end", "axis");
  }
  show("Live bytes over time");
}

// The blocks that were live at the peak, by the calls that have allocated them.
function drawPeak(model, table) {
  const [path, peak] = [model.column(table, "path"), model.column(table, "peak")];
  if (path?.type !== "text" || peak?.type !== "bytes") return;
  const rows = Array.from({ length: table.rows }, (_, row) => {
    const title = model.text(table, path, row);
    return { name: model.short(title), title, count: value(peak.values[row]) || 0 };
  }).filter((row) => row.count).sort((a, b) => b.count - a.count);
  const whole = rows.reduce((sum, row) => sum + row.count, 0);
  if (rows.length) bars("Bytes live at the peak by call path", rows.slice(0, TOP), whole);
}
