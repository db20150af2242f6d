// Panics out of code behind an epilogue, through procedures that keep values in registers.
// variants: rustc-O1 rustc-O2 rustc-O3 rustc-O2-strip rustc-O2-static rustc-O2-fp rustc-O2-lto
// counts: no
// stdout: early 2985 kept 2179 nested 2916
use std::hint::black_box;
use std::panic::{catch_unwind, panic_any, resume_unwind};

#[inline(never)]
fn step(x: u64) -> u64 {
    black_box(x.wrapping_mul(11).wrapping_add(5))
}

#[inline(never)]
fn early(x: u64) -> u64 {
    let (a, b) = (step(x), step(x + 1));
    let c = step(a ^ b);
    if (a ^ b ^ c) % 3 != 0 {
        return (a + b + c) & 63;
    }
    panic_any(c & 7)
}

struct Note<'a>(&'a mut u64, u64);
impl Drop for Note<'_> {
    fn drop(&mut self) {
        *self.0 = self.0.wrapping_mul(3).wrapping_add(self.1);
    }
}

#[inline(never)]
fn kept(x: u64) -> u64 {
    let mut seen = x;
    let (a, b) = (step(x), step(x + 2));
    let result = {
        let note = Note(&mut seen, a);
        if b % 4 == 1 {
            return *note.0 & 31;
        }
        early(x) + early(a & 127)
    };
    (result + seen + a + b) & 127
}

#[inline(never)]
fn nested(x: u64) -> u64 {
    let a = step(x);
    match catch_unwind(|| kept(a & 255)) {
        Ok(n) if n % 2 == 0 => n + a & 63,
        Ok(n) => early(n),
        Err(e) => {
            if a % 8 == 0 {
                return step(a) & 15;
            }
            resume_unwind(e)
        }
    }
}

#[inline(never)]
fn all(f: fn(u64) -> u64, n: u64) -> u64 {
    let (mut s, mut t, mut u, mut v, mut w) = (0u64, 1u64, 2u64, 3u64, 5u64);
    for i in 0..n {
        match catch_unwind(|| f(i)) {
            Ok(r) => {
                s += r;
                t ^= s & 31;
                u += t & 7;
                v += u & 3;
                w ^= v & 15;
            }
            Err(e) => {
                s += *e.downcast::<u64>().unwrap();
                t += 5;
                u ^= 3;
                v += 2;
                w += 7;
            }
        }
    }
    s + t * 3 + u * 5 + v * 7 + w
}

fn main() {
    std::panic::set_hook(Box::new(|_| {}));
    println!("early {} kept {} nested {}", all(early, 60), all(kept, 60), all(nested, 60));
}
