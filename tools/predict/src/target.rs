//! The models that predict the targets of jumps and calls through pointers.

/// Number of entries of the branch target buffer.
const BUFFER: usize = 1 << 11;
/// Binary logarithm of the number of entries that are found by the path.
const PATH_BITS: u32 = 12;
const PATH_ENTRIES: usize = 1 << PATH_BITS;
/// Largest confidence of an entry.
const MOST_SURE: u8 = 3;

/// An entry of the branch target buffer.
#[derive(Clone, Copy, Default)]
struct Last {
    /// The key of the jump plus 1; 0 is a free entry.
    tag: u64,
    target: u64,
}

/// An entry that is found by the path.
#[derive(Clone, Copy, Default)]
struct ByPath {
    /// A tag plus 1; 0 is a free entry.
    tag: u32,
    sure: u8,
    target: u64,
}

/// Which models were wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wrong {
    /// The branch target buffer: the jump's last target.
    pub buffer: bool,
    /// The table by path, and the buffer where the table has no entry.
    pub path: bool,
}

/// A branch target buffer, and a table that is indexed by the jump and the path by which control came there.
pub struct Targets {
    buffer: Box<[Last; BUFFER]>,
    by_path: Box<[ByPath; PATH_ENTRIES]>,
    /// The last targets: 12 bits of each, moved by 5 bits for each later one.
    path: u32,
}

impl Targets {
    pub fn new() -> Self {
        Self {
            buffer: Box::new([Last::default(); BUFFER]),
            by_path: Box::new([ByPath::default(); PATH_ENTRIES]),
            path: 0,
        }
    }

    /// Predicts the target of the jump with this key and learns it; returns which models were wrong.
    pub fn are_wrong(&mut self, key: u32, target: u64) -> Wrong {
        let last = &mut self.buffer[key as usize % BUFFER];
        let tag = u64::from(key) + 1;
        let buffer = last.tag != tag || last.target != target;
        *last = Last { tag, target };

        let path = self.path;
        let index = key ^ key >> PATH_BITS ^ path ^ path >> PATH_BITS ^ path >> (2 * PATH_BITS);
        let entry = &mut self.by_path[index as usize % PATH_ENTRIES];
        let tag = ((key ^ path.wrapping_mul(0x9e37_79b1) >> 16) & 0xffff) + 1;
        let fits = entry.tag == tag;
        let by_path = if fits { entry.target != target } else { buffer };
        if by_path && entry.sure != 0 {
            entry.sure -= 1;
        } else if by_path {
            *entry = ByPath {
                tag,
                sure: 0,
                target,
            };
        } else if fits {
            entry.sure = (entry.sure + 1).min(MOST_SURE);
        }
        // The lowest 12 bits of an address are the same in each run.
        let seen = target as u32 & 0xfff;
        self.path = path << 5 ^ seen ^ seen >> 5;
        Wrong {
            buffer,
            path: by_path,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_tells_what_the_last_target_does_not() {
        let mut targets = Targets::new();
        let rounds = [0x7f00_1000, 0x7f00_2010, 0x7f00_1000, 0x7f00_3020];
        let mut last = Vec::new();
        for _ in 0..100 {
            last = rounds.iter().map(|t| targets.are_wrong(77, *t)).collect();
        }
        assert!(
            last.iter().all(|wrong| wrong.buffer && !wrong.path),
            "{last:?}"
        );
        let mut targets = Targets::new();
        let first = targets.are_wrong(77, 5);
        let again = targets.are_wrong(77, 5);
        assert!(first.buffer && first.path && !again.buffer && !again.path);
    }
}
