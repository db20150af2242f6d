"use strict";
// Tells whoever drives the browser how it went.
addEventListener("error", (event) => { document.documentElement.dataset.error = event.message; });
addEventListener("unhandledrejection", (event) => { document.documentElement.dataset.error = String(event.reason); });

const byId = (id) => document.getElementById(id);

function element(name, text, className) {
  const made = document.createElement(name);
  if (text !== undefined && text !== null) made.textContent = text;
  if (className) made.className = className;
  return made;
}

// The JSON in an element, which may be compressed.
async function pageData(id) {
  const holder = byId(id);
  if (!holder) return null;
  const text = holder.textContent;
  holder.remove();
  if (holder.dataset.packed === undefined) return JSON.parse(text);
  const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return JSON.parse(await new Response(stream).text());
}

// Numbers. Integers that a double does not hold are texts.
const value = (x) => (typeof x === "number" ? x : x === null || x === undefined ? NaN : Number(x));

function shown(x) {
  if (x === null || x === undefined || Number.isNaN(x)) return "";
  if (typeof x === "string" && /^\d+$/.test(x)) return BigInt(x).toLocaleString("en");
  if (typeof x !== "number") return String(x);
  const size = Math.abs(x);
  if (Number.isInteger(x) && size < 1e15) return x.toLocaleString("en");
  if (size !== 0 && (size < 1e-4 || size >= 1e15)) return x.toExponential(4);
  return x.toLocaleString("en", { maximumSignificantDigits: size < 1e6 ? 6 : 15, maximumFractionDigits: 9 });
}

const percent = (part, whole) => (whole ? (100 * part / whole).toFixed(2) : "");

// A duration in microseconds.
function duration(us) {
  if (us >= 1e6) return (us / 1e6).toFixed(3) + " s";
  if (us >= 1e3) return (us / 1e3).toFixed(3) + " ms";
  return us.toFixed(3) + " µs";
}

// Words of a search: a text matches if it has all of them.
const wordsOf = (text) => text.toLowerCase().split(/\s+/).filter(Boolean);
const hasAll = (text, words) => words.every((word) => text.includes(word));

// Light and dark: as the system wants it, until the user chooses.
function themeSwitch(button) {
  const root = document.documentElement;
  const wanted = new URLSearchParams(location.hash.slice(1)).get("theme");
  let stored = null;
  try { stored = localStorage.getItem("atom-theme"); } catch { /* Pages of files may have no store. */ }
  const set = (theme) => {
    if (theme) root.dataset.theme = theme;
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    button.textContent = dark ? "☀ Light" : "☾ Dark";
    button.setAttribute("aria-label", dark ? "Switch to light colours" : "Switch to dark colours");
    return dark;
  };
  set(wanted || stored);
  button.addEventListener("click", () => {
    const next = set() ? "light" : "dark";
    set(next);
    try { localStorage.setItem("atom-theme", next); } catch { /* As above. */ }
    dispatchEvent(new Event("resize"));
  });
}

// A text beside the pointer.
function showTip(event, text) {
  let tip = byId("tip");
  if (!tip) {
    tip = element("div");
    tip.id = "tip";
    tip.setAttribute("role", "tooltip");
    document.body.append(tip);
  }
  tip.style.display = text ? "block" : "none";
  if (!text) return;
  tip.textContent = text;
  tip.style.left = Math.max(4, Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8)) + "px";
  const below = event.clientY + 16;
  tip.style.top = (below + tip.offsetHeight > innerHeight ? event.clientY - tip.offsetHeight - 10 : below) + "px";
}

// `/` leads to the search.
addEventListener("keydown", (event) => {
  if (event.key !== "/" || /INPUT|SELECT|TEXTAREA/.test(event.target.tagName ?? "")) return;
  const search = [...document.querySelectorAll("input[type=search]")].find((input) => input.offsetParent);
  if (!search) return;
  event.preventDefault();
  search.focus();
  search.select();
});
