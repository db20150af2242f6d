function* primes() { const c = new Set(); for (let i = 2; ; i++) if (!c.has(i)) { yield i; for (let j = i * i; j < 5000; j += i) c.add(j); } }
let n = 0, s = 0; for (const p of primes()) { if (p > 4000) break; n++; s += p; } console.log(n, s);
class A { #x = 1; get x() { return this.#x; } static make() { return new A(); } } console.log(A.make().x, [3, 1, 2].sort(), { a: 1n << 70n });
let hot = 0; for (let i = 0; i < 2e6; i++) hot = (hot * 31 + i) | 0; console.log(hot);
const crypto = require('crypto'), zlib = require('zlib'); console.log(crypto.createHash('sha256').update('x'.repeat(1000)).digest('hex'));
console.log(zlib.gunzipSync(zlib.gzipSync('hello '.repeat(100))).length); try { null.x } catch (e) { console.log(e.constructor.name) }
(async () => { const r = await Promise.all([1, 2, 3].map(async v => { await new Promise(f => setTimeout(f, v)); return v * v; })); console.log(r); })();
console.log('the quick brown fox'.replace(/(\w+) (\w+)/g, '$2 $1'), JSON.stringify({ d: new Date(0), m: [...new Map([[1, 2]])] }));
