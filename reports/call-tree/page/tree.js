"use strict";
// A flame graph of call paths, for one measure at a time.

function size(bytes) {
  const units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
  let at = 0;
  while (bytes >= 1024 && at < units.length - 1) {
    bytes /= 1024;
    at++;
  }
  return `${shown(at ? Number(bytes.toFixed(2)) : bytes)} ${units[at]}`;
}

// The tree with the values of a measure.
function treeOf(data, measure) {
  const nodes = data.nodes.map(([parent, frame, note, values]) => ({
    parent,
    name: data.names[frame],
    value: values[measure],
    children: [],
    note: [data.places[frame], note].filter(Boolean).join("\n"),
  }));
  const root = { name: "all", value: 0, children: [] };
  for (const node of nodes) {
    if (node.value) (node.parent < 0 ? root : nodes[node.parent]).children.push(node);
  }
  root.value = root.children.reduce((sum, node) => sum + node.value, 0);
  for (const node of [root, ...nodes]) node.children.sort((a, b) => b.value - a.value);
  return root;
}

(async () => {
  const data = await pageData("tree");
  byId("title").textContent = data.title;
  byId("facts").textContent = data.facts;
  themeSwitch(byId("theme"));
  const choice = byId("measure");
  data.measures.forEach((measure, at) => {
    const made = element("option", measure.name);
    made.value = at;
    choice.append(made);
  });
  let flame;
  const draw = () => {
    const at = Number(choice.value);
    byId("flame").replaceChildren();
    flame = new Flame(byId("flame"), treeOf(data, at), { show: data.measures[at].bytes ? size : shown });
    flame.search(byId("find").value);
  };
  choice.addEventListener("change", draw);
  byId("find").addEventListener("input", () => flame.search(byId("find").value));
  draw();
  document.documentElement.dataset.state = "ready";
  document.dispatchEvent(new Event("page-ready"));
})();
