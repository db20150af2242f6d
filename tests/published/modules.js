// packages: sharp @napi-rs/canvas bcrypt @node-rs/argon2 better-sqlite3
// Extension modules that call back into JavaScript: images with vendored libvips, a canvas, hashes on a thread pool, a database.
const crypto = require("crypto");
const digest = (bytes) => crypto.createHash("sha1").update(bytes).digest("hex");
async function main() {
  const Database = require("better-sqlite3");
  const base = new Database(":memory:");
  base.function("twice", (x) => x * 2);
  base.aggregate("product", { start: 1, step: (a, x) => a * x });
  base.exec("create table t(a, b); with recursive c(n) as (select 1 union all select n + 1 from c where n < 5000) insert into t select n, n % 97 from c");
  console.log(base.prepare("select b, sum(twice(a)) s from t group by b order by s desc limit 3").all(), base.prepare("select product(a) p from t where a < 10").get());
  try {
    base.prepare("select missing").get();
  } catch (error) {
    console.log(error.message);
  }
  const sharp = require("sharp");
  const raw = Buffer.from(Array.from({ length: 120 * 90 * 3 }, (_, n) => (n * n) % 251));
  const image = sharp(raw, { raw: { width: 120, height: 90, channels: 3 } });
  for (const kind of ["png", "jpeg", "webp", "avif"]) console.log(kind, digest(await image.clone().resize(60).rotate(90).toFormat(kind).toBuffer()));
  try {
    await sharp(Buffer.from("no image")).toBuffer();
  } catch (error) {
    console.log(error.message);
  }
  const { createCanvas } = require("@napi-rs/canvas");
  const canvas = createCanvas(100, 80);
  const pen = canvas.getContext("2d");
  pen.fillStyle = "teal";
  pen.arc(50, 40, 30, 0, 5);
  pen.fill();
  pen.filter = "blur(2px)";
  pen.fillRect(5, 5, 30, 30);
  console.log(digest(pen.getImageData(0, 0, 100, 80).data), digest(canvas.toBuffer("image/png")));
  const bcrypt = require("bcrypt");
  console.log((await Promise.all(["a", "b", "c", "d"].map((p) => bcrypt.hash(p, "$2b$05$abcdefghijklmnopqrstuu")))).join(" "), bcrypt.compareSync("x", bcrypt.hashSync("x", 4)));
  const argon2 = require("@node-rs/argon2");
  console.log((await argon2.hashRaw("p", { salt: Buffer.from("s".repeat(16)), memoryCost: 1024 })).toString("hex"));
}
main();
