//! Live bytes over time.

/// Largest number of samples. When there are more, every second one is dropped.
const MOST: usize = 256;
/// Ticks of the time-stamp counter between the first samples.
const FIRST: u64 = 1 << 16;

/// Live bytes at moments with equal distances.
#[derive(Clone, Debug)]
pub struct Timeline {
    /// Time and live bytes.
    pub samples: Vec<(u64, u64)>,
    /// Time of the next sample.
    next: u64,
    /// Ticks between samples.
    step: u64,
    /// Live bytes at the last note.
    bytes: u64,
}

impl Timeline {
    pub fn new(start: u64) -> Self {
        Self {
            samples: vec![(start, 0)],
            next: start + FIRST,
            step: FIRST,
            bytes: 0,
        }
    }

    /// The time has come to `now`; `bytes` are live from then on.
    #[inline]
    pub fn pass(&mut self, now: u64, bytes: u64) {
        if now >= self.next {
            self.sample(now);
        }
        self.bytes = bytes;
    }

    #[cold]
    fn sample(&mut self, now: u64) {
        if self.samples.len() >= MOST {
            let mut is_even = false;
            self.samples.retain(|_| {
                is_even = !is_even;
                is_even
            });
            self.step *= 2;
        }
        self.samples.push((now, self.bytes));
        self.next = now + self.step;
    }
}
