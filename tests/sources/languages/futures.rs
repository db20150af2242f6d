// Futures, panics that are caught in them, threads, channels and iterators in Rust.
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};

struct Quiet;
impl Wake for Quiet {
    fn wake(self: Arc<Self>) {}
}

/// Is ready at the second poll.
struct Later(bool);
impl Future for Later {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.0, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

struct Drops(Arc<Mutex<u32>>);
impl Drop for Drops {
    fn drop(&mut self) {
        *self.0.lock().unwrap() += 1;
    }
}

fn act(n: i64) -> Result<i64, String> {
    Ok(match n % 8 {
        0 => n + 3,
        1 => n * 5,
        2 => n - 7,
        3 => return Err(format!("refused {n}")),
        4 => n ^ 0x55,
        5 => n << 2,
        6 => n / 3,
        _ => -n,
    })
}

async fn step(n: i64, drops: Arc<Mutex<u32>>) -> i64 {
    let _kept = Drops(drops);
    Later(false).await;
    if n % 31 == 30 {
        panic!("step {n}");
    }
    act(n).unwrap_or_else(|e| e.len() as i64 * 100)
}

async fn all(first: i64, drops: Arc<Mutex<u32>>) -> i64 {
    let mut sum = 0;
    for n in first..first + 20 {
        sum += step(n, drops.clone()).await;
        Later(false).await;
    }
    sum
}

fn main() {
    std::panic::set_hook(Box::new(|_| {}));
    let drops = Arc::new(Mutex::new(0));
    let waker = Waker::from(Arc::new(Quiet));
    let mut cx = Context::from_waker(&waker);
    let mut queue: VecDeque<(i64, Pin<Box<dyn Future<Output = i64>>>)> = VecDeque::new();
    for k in 0..20 {
        queue.push_back((k, Box::pin(all(k * 10, drops.clone()))));
    }
    let (mut done, mut failed) = (BTreeMap::new(), 0);
    while let Some((k, mut future)) = queue.pop_front() {
        match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut cx))) {
            Ok(Poll::Ready(sum)) => drop(done.insert(k, sum)),
            Ok(Poll::Pending) => queue.push_back((k, future)),
            Err(_) => failed += 1,
        }
    }
    println!("done {done:?} failed {failed} drops {}", drops.lock().unwrap());
    let (send, receive) = mpsc::channel();
    for k in 0..4_i64 {
        let send = send.clone();
        std::thread::spawn(move || {
            let sum: i64 = (k..k + 300).filter_map(|n| act(n).ok()).sum();
            send.send(sum).unwrap();
        });
    }
    drop(send);
    println!("total {}", receive.iter().sum::<i64>());
    let wave: f64 = (1..100).map(|i| (i as f64 * 0.1).sin() * (i as f64).sqrt()).sum();
    println!("wave {wave:.6}");
    let mut words: Vec<&str> = "the cat and the dog and the bird".split(' ').collect();
    words.sort_by_key(|w| (w.len(), *w));
    words.dedup();
    println!("{}", words.join(","));
    let joined = std::thread::spawn(|| -> u32 { panic!("in a thread") }).join();
    println!("{}", joined.is_err());
    std::process::exit(3);
}
