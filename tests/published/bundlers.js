// packages: esbuild @swc/core rollup lightningcss typescript
// Programs of Go as children, three extension modules in Rust with threads, and much JavaScript.
const fs = require("fs");
const parts = [];
for (let n = 0; n < 30; n++) {
  fs.writeFileSync(`m${n}.ts`, `import { f${n + 1} } from "./m${n + 1}";\nexport enum E${n} { A, B = ${n} }\nexport const f${n} = async <T>(x: T, y?: number): Promise<T> => { const z = { ...{ x }, y: y ?? ${n} }; await f${n + 1}(z.y); return x; };\n`);
}
fs.writeFileSync("m30.ts", "export const f30 = (x: number) => console.log(x);\n");
async function main() {
  const esbuild = require("esbuild");
  const built = await esbuild.build({ entryPoints: ["m0.ts"], bundle: true, minify: true, write: false, target: "es2017", format: "esm" });
  console.log(built.outputFiles[0].text.length, built.outputFiles[0].text.slice(0, 90));
  try {
    await esbuild.transform("let x = ;", { logLevel: "silent" });
  } catch (error) {
    console.log(error.errors[0].text);
  }
  const swc = require("@swc/core");
  const text = fs.readFileSync("m3.ts", "utf8");
  console.log(swc.transformSync(text, { jsc: { parser: { syntax: "typescript" }, target: "es5" } }).code.length);
  console.log((await swc.minify("function f(first) { return first + (1 + 2) } f(3)")).code);
  try {
    swc.parseSync("let = = 3");
  } catch (error) {
    console.log(error.message.split("\n").length > 1);
  }
  const rollup = require("rollup");
  fs.writeFileSync("r.mjs", built.outputFiles[0].text + "\nexport const used = 1; const unused = 2;\n");
  const bundle = await rollup.rollup({ input: "r.mjs", onwarn: () => {} });
  console.log((await bundle.generate({ format: "cjs" })).output[0].code.length);
  const css = require("lightningcss");
  console.log(css.transform({ filename: "a.css", code: Buffer.from(".a { color: rgb(255 0 0 / 50%); .b & { inset: 0 } }".repeat(50)), minify: true, targets: { safari: 12 << 16 } }).code.length);
  // The compiler is a program of Go, which node executes.
  const tsc = require.resolve("typescript/package.json").replace("package.json", "bin/tsc");
  const run = require("child_process").spawnSync(process.execPath, [tsc, "--noEmit", "--strict", "--target", "es2020", "--types", "", "m28.ts", "--pretty", "false"]);
  console.log(run.status, run.stdout.toString(), run.stderr.toString());
}
main();
