"use strict";
// Miss ratios by the size of the cache, from a table with the columns `cache` and `miss %`: the profile of reuse.

const CURVE = { width: 640, height: 300, left: 52, right: 16, top: 12, bottom: 44 };

// An empty picture with room for axes: its plane ends at `right` and `bottom`. `line` and `text` draw in it, and `show` puts it
// into the overview under a title.
function plot(place, label) {
  const picture = vector("svg", { viewBox: `0 0 ${place.width} ${place.height}`, role: "group", "aria-label": label });
  return {
    picture, bottom: place.height - place.bottom, right: place.width - place.right,
    line: (x1, y1, x2, y2) => picture.append(vector("line", { class: "grid-line", x1, y1, x2, y2 })),
    text: (at, x, y, anchor, kind) => picture.append(vector("text", { class: kind ?? "tick", x, y, "text-anchor": anchor }, at)),
    show: (title) => {
      const part = element("div", null, "curve");
      part.append(element("h2", title), picture);
      byId("top").append(part);
    },
  };
}

// A size in bytes with a prefix of powers of 1,024.
function binary(bytes) {
  const power = Math.min(Math.floor(Math.log2(bytes) / 10), 4);
  return `${Number((bytes / 2 ** (10 * power)).toPrecision(4))} ${["", "Ki", "Mi", "Gi", "Ti"][power]}B`;
}

// Sizes of the caches whose misses tables have in columns such as `misses 48K`.
function marks(model) {
  const power = { "": 0, K: 10, M: 20, G: 30 };
  const names = model.tables.flatMap((table) => table.columns.map((column) => column.name));
  const sizes = names.map((name) => /^misses (\d+)([KMG]?)$/.exec(name)).filter(Boolean);
  return [...new Set(sizes.map(([, number, unit]) => number * 2 ** power[unit]))];
}

function drawCurve(model, table) {
  const [cache, ratio] = ["cache", "miss %"].map((name) => model.column(table, name));
  if (cache?.type !== "bytes" || !ratio) return;
  const rows = Array.from({ length: table.rows }, (_, row) => ({ bytes: value(cache.values[row]), misses: model.number(table, ratio, row) }));
  const points = rows.filter((p) => p.bytes > 0 && p.misses >= 0).sort((a, b) => a.bytes - b.bytes);
  if (points.length < 2) return;
  const { picture, bottom, right, line, text, show } = plot(CURVE, "Miss ratios by the size of the cache");
  const [low, high] = [points[0], points[points.length - 1]].map((p) => Math.log2(p.bytes));
  const most = Math.max(...points.map((p) => p.misses)) || 1;
  const step = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20].find((s) => most / s <= 6) ?? 20;
  const top = Math.ceil(most / step) * step;
  const x = (bytes) => CURVE.left + (Math.log2(bytes) - low) / (high - low) * (right - CURVE.left);
  const y = (misses) => bottom - misses / top * (bottom - CURVE.top);
  for (let share = 0; share <= top + step / 2; share += step) {
    line(CURVE.left, y(share), right, y(share));
    text(`${Number(share.toFixed(2))} %`, CURVE.left - 6, y(share) + 4, "end");
  }
  const each = Math.ceil((high - low) / 7);
  for (let power = Math.ceil(low); power <= high; power += each) {
    line(x(2 ** power), CURVE.top, x(2 ** power), bottom);
    text(binary(2 ** power), x(2 ** power), bottom + 16, "middle");
  }
  // The caches of which the profile has misses: this machine's, unless the user named others.
  for (const bytes of marks(model).filter((size) => size > points[0].bytes && Math.log2(size) <= high)) {
    const at = x(bytes);
    picture.append(vector("line", { class: "mark", x1: at, y1: CURVE.top, x2: at, y2: bottom, "data-cache": bytes }));
    text(binary(bytes), at + 3, CURVE.top + 10, "start", "mark-name");
  }
  text("size of a fully associative cache", (CURVE.left + right) / 2, CURVE.height - 6, "middle", "axis");
  const path = points.map((p) => `${x(p.bytes).toFixed(1)},${y(p.misses).toFixed(1)}`).join(" ");
  picture.append(vector("polyline", { class: "roof", points: path }));
  for (const p of points) {
    const made = vector("circle", { class: "point", cx: x(p.bytes).toFixed(2), cy: y(p.misses).toFixed(2), r: 3.5, "data-bytes": p.bytes, "data-misses": p.misses });
    made.append(vector("title", {}, `${binary(p.bytes)}: ${p.misses.toFixed(2)} % of the references miss`));
    picture.append(made);
  }
  show("Miss ratios");
}
