// A Rust program: panics caught and not, threads, maps, formatting, dynamic
// dispatch, slices with bounds checks, destructors during unwinding.
// variants: rustc-O0 rustc-O2 rustc-O2-strip rustc-O2-nopie rustc-O2-static rustc-O2-staticpie
// counts: no
// run: -> exit 0 stdout caught 3 dropped 4 threads 4950 words a=2,b=1 shapes 7.0 sorted [1, 2, 3] parse Err
// run: panic -> exit 101 stdout
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

static DROPPED: AtomicUsize = AtomicUsize::new(0);

struct Guard;
impl Drop for Guard {
    fn drop(&mut self) {
        DROPPED.fetch_add(1, Ordering::SeqCst);
    }
}

trait Shape {
    fn area(&self) -> f64;
}
struct Square(f64);
struct Rect(f64, f64);
impl Shape for Square {
    fn area(&self) -> f64 {
        self.0 * self.0
    }
}
impl Shape for Rect {
    fn area(&self) -> f64 {
        self.0 * self.1
    }
}

#[inline(never)]
fn dive(n: usize, list: &[i32]) -> i32 {
    let _guard = Guard;
    if n == 0 { list[list.len() + n] } else { dive(n - 1, list) + 1 }
}

fn main() {
    if std::env::args().count() > 1 {
        // The standard message names the thread's id, which is never the same.
        std::panic::set_hook(Box::new(|info| eprintln!("line {}", info.location().unwrap().line())));
        panic!("asked to");
    }
    std::panic::set_hook(Box::new(|_| {}));
    let caught = (0..3).filter(|_| std::panic::catch_unwind(|| dive(0, &[1])).is_err()).count();
    let _ = std::panic::catch_unwind(|| dive(0, &[]));
    let sum = Arc::new(Mutex::new(0));
    let threads: Vec<_> = (0..10)
        .map(|t| {
            let sum = Arc::clone(&sum);
            std::thread::spawn(move || (0..10).for_each(|i| *sum.lock().unwrap() += t * 10 + i))
        })
        .collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
    let mut words = BTreeMap::new();
    for w in ["a", "b", "a"] {
        *words.entry(w).or_insert(0) += 1;
    }
    let words: Vec<String> = words.iter().map(|(w, n)| format!("{w}={n}")).collect();
    let shapes: [Box<dyn Shape>; 2] = [Box::new(Square(1.0)), Box::new(Rect(2.0, 3.0))];
    let area: f64 = shapes.iter().map(|s| s.area()).sum();
    let mut list = vec![3, 1, 2];
    list.sort();
    let parse = if "x".parse::<i32>().is_err() { "Err" } else { "Ok" };
    println!(
        "caught {caught} dropped {} threads {} words {} shapes {area:.1} sorted {list:?} parse {parse}",
        DROPPED.load(Ordering::SeqCst),
        sum.lock().unwrap(),
        words.join(",")
    );
}
