// packages: bun deno workerd @biomejs/biome
// Other virtual machines as children: JavaScriptCore in a program of Zig, V8 in one of Rust and in one of C++.
const fs = require("fs");
const path = require("path");
const { spawnSync } = require("child_process");
fs.writeFileSync("t.ts", `interface P { a: number }
const f = (n: number): number => n < 2 ? n : f(n - 1) + f(n - 2);
class Q { #x: P = { a: 3 }; get a() { return this.#x.a ?? 0; } }
let s = 0;
for (let i = 0; i < 300000; i++) s = (s * 31 + i) | 0;
try { null!.x; } catch (e) { console.log((e as Error).constructor.name); }
try { (function r() { r(); })(); } catch (e) { console.log((e as Error).constructor.name); }
const w = new WebAssembly.Instance(new WebAssembly.Module(new Uint8Array([0,97,115,109,1,0,0,0,1,7,1,96,2,127,127,1,127,3,2,1,0,7,5,1,1,100,0,0,10,9,1,7,0,32,0,32,1,109,11])));
try { (w.exports.d as any)(1, 0); } catch (e) { console.log((e as Error).constructor.name); }
console.log(f(21), new Q().a, s, (w.exports.d as any)(9, 2), [3, 1, 2].toSorted(), /(?<y>\\d+)-/.exec("12-")!.groups!.y);
await new Promise((done) => setTimeout(done, 5));
console.log((await Promise.all([1, 2, 3].map(async (x) => x * 2))).join());
`);
fs.writeFileSync("b.js", "var a=1;if(a==2){debugger}\nlet   b = ( x )=>{return x}\n");
const home = { ...process.env, HOME: process.cwd(), DENO_DIR: process.cwd() + "/deno", DENO_NO_UPDATE_CHECK: "1", NO_COLOR: "1" };
const bin = path.join(process.env.NODE_PATH, ".bin");
for (const words of [["bun", "run", "t.ts"], ["deno", "run", "--no-lock", "t.ts"], ["deno", "fmt", "--check", "b.js"], ["bun", "build", "b.js", "--minify"], ["workerd", "--version"], ["biome", "lint", "--colors=off", "--max-diagnostics=1", "b.js"]]) {
  const run = spawnSync(path.join(bin, words[0]), words.slice(1), { env: home, encoding: "utf8" });
  console.log(words.join(" "), run.status, run.signal, run.stdout.replace(/[\d.]+ ?[mµ]?s\b/g, "T"), run.stderr.replace(/[\d.]+ ?[mµ]?s\b/g, "T").slice(0, 600));
}
