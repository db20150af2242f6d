// Threads of Rust's standard library: scoped ones, a channel, one that panics.
// variants: rustc-O2 rustc-O2-static rustc-O2-staticpie rustc-O2-strip
// count: visit_rust 30000
// stdout: 30000
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

static VISITS: AtomicU64 = AtomicU64::new(0);

#[unsafe(no_mangle)]
#[inline(never)]
extern "C" fn visit_rust() {
    VISITS.fetch_add(1, Ordering::Relaxed);
}

fn main() {
    let (send, receive) = mpsc::channel();
    std::panic::set_hook(Box::new(|_| {}));
    std::thread::scope(|s| {
        let start = |_| {
            let send = send.clone();
            s.spawn(move || {
                for _ in 0..5000 {
                    visit_rust();
                }
                send.send(1).unwrap();
            })
        };
        // A scope waits for the closures only; join waits for the threads' own ends, which would
        // else go on counting while the counts are read.
        for thread in [0, 1, 2, 3].map(start) {
            thread.join().unwrap();
        }
    });
    drop(send);
    assert_eq!(receive.iter().sum::<i32>(), 4);
    let failed = std::thread::spawn(|| {
        for _ in 0..10000 {
            visit_rust();
        }
        panic!("on purpose");
    })
    .join();
    assert!(failed.is_err());
    println!("{}", VISITS.load(Ordering::Relaxed));
}
