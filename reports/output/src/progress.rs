//! Progress bars of long work, on terminals only.

use std::io::IsTerminal;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Time after which work on a terminal brings up the progress bar.
const PATIENCE: Duration = Duration::from_secs(1);

/// Time between two pictures of the bar.
const TICK: Duration = Duration::from_millis(100);

/// A progress bar that appears when the work takes longer than [`PATIENCE`], and goes when the value is dropped.
pub struct Progress(Option<Bar>);

struct Bar {
    /// Number of parts of the work that are done.
    position: Arc<AtomicU64>,
    finished: Sender<()>,
    thread: Option<JoinHandle<()>>,
}

impl Progress {
    /// Work that has one part.
    pub fn start(doing: &'static str) -> Self {
        Self::start_at(doing, 0, 1)
    }

    /// Work with `total` parts, of which `position` are done.
    pub fn start_at(doing: &'static str, position: u64, total: u64) -> Self {
        if !std::io::stderr().is_terminal() {
            return Self(None);
        }
        let position = Arc::new(AtomicU64::new(position));
        let (finished, wait) = channel();
        let shown = Arc::clone(&position);
        let thread = std::thread::spawn(move || {
            if wait.recv_timeout(PATIENCE) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            let style = ProgressStyle::with_template("{bar:24} {pos}/{len} {msg} {elapsed}");
            let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr())
                .with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
                .with_message(doing)
                .with_elapsed(PATIENCE);
            // A message, or the end of the channel, tells that the work is done.
            while wait.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                bar.set_position(shown.load(Ordering::Relaxed));
                bar.tick();
            }
            bar.finish_and_clear();
        });
        Self(Some(Bar {
            position,
            finished,
            thread: Some(thread),
        }))
    }

    /// Tells that one more part is done.
    pub fn advance(&self) {
        if let Some(bar) = &self.0 {
            bar.position.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        let _ = self.finished.send(());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
