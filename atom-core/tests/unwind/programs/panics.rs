//! Panics caught and clean-up run on the way; prints a trace.

use std::panic::{catch_unwind, resume_unwind};

struct Guard(u32);

impl Drop for Guard {
    fn drop(&mut self) {
        print!("~{} ", self.0);
    }
}

#[inline(never)]
fn fall(depth: u32, values: &[u32]) -> u32 {
    let guard = Guard(depth);
    if depth == 0 {
        // Out of bounds: panics in the library's own code.
        return values[guard.0 as usize + 3];
    }
    let text = format!("{depth}");
    fall(depth - 1, values) + text.len() as u32
}

#[inline(never)]
fn nested() {
    let _guard = Guard(50);
    let caught = catch_unwind(|| {
        let _inner = Guard(51);
        std::panic::panic_any(7u8);
    });
    let payload = caught.expect_err("it panics");
    println!("payload {:?}", payload.downcast_ref::<u8>());
    resume_unwind(payload);
}

fn main() {
    std::panic::set_hook(Box::new(|info| print!("[{}] ", info.location().unwrap().line())));
    println!("{:?}", catch_unwind(|| fall(4, &[1, 2, 3, 4])));
    println!("{:?}", catch_unwind(|| fall(4, &[1, 2, 3])).is_err());
    println!("{:?}", catch_unwind(nested).is_err());
    let thread = std::thread::spawn(|| fall(2, &[]));
    println!("{:?}", thread.join().is_err());
    println!("{:?}", catch_unwind(|| "x".parse::<u32>().unwrap()).is_err());
    let frames = std::backtrace::Backtrace::force_capture().to_string();
    assert!(frames.lines().count() >= 3, "{frames}");
}
