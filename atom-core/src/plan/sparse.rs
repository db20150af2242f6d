//! Byte sequences with long runs of zeros.
//!
//! A tool has many counters, which are zero at first. So runs of zeros take no memory.

/// Length in bytes from which a run of zeros is left out.
const GAP: usize = 4096;

/// A sequence of bytes; bytes outside of all pieces are zero.
#[derive(Clone, Default, Debug)]
pub struct Sparse {
    len: usize,
    /// Offsets and contents, in order, without overlap.
    pieces: Vec<(usize, Vec<u8>)>,
}

impl Sparse {
    /// Copies these bytes.
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut copy = Self::default();
        for chunk in bytes.chunks(GAP) {
            if chunk.iter().all(|b| *b == 0) {
                copy.grow(copy.len + chunk.len());
            } else {
                copy.extend(chunk);
            }
        }
        copy
    }

    /// Number of bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Appends zeros up to a length, if it is shorter.
    pub fn grow(&mut self, len: usize) {
        self.len = self.len.max(len);
    }

    /// Appends bytes.
    pub fn extend(&mut self, bytes: &[u8]) {
        let at = self.len;
        self.len += bytes.len();
        if let Some((start, last)) = self.pieces.last_mut()
            && at - (*start + last.len()) < GAP
        {
            last.resize(at - *start, 0);
            last.extend_from_slice(bytes);
        } else if !bytes.is_empty() {
            self.pieces.push((at, bytes.to_vec()));
        }
    }

    /// Replaces bytes from an offset on.
    pub fn write(&mut self, at: usize, bytes: &[u8]) {
        self.len = self.len.max(at + bytes.len());
        let mut at = at;
        let mut bytes = bytes;
        while !bytes.is_empty() {
            let next = self.pieces.partition_point(|p| p.0 <= at);
            let limit = self.pieces.get(next).map_or(usize::MAX, |p| p.0 - at);
            let (here, rest) = bytes.split_at(bytes.len().min(limit));
            let piece = next.checked_sub(1).map(|i| &mut self.pieces[i]);
            match piece.filter(|p| p.0 + p.1.len() >= at) {
                Some((start, old)) => {
                    let (_, old_here) = old.split_at_mut(at - *start);
                    let kept = old_here.len().min(here.len());
                    let (over, behind) = here.split_at(kept);
                    old_here[..kept].copy_from_slice(over);
                    old.extend_from_slice(behind);
                }
                None => self.pieces.insert(next, (at, here.to_vec())),
            }
            at += here.len();
            bytes = rest;
        }
    }

    /// The bytes at an offset; beyond the end they are zero.
    pub fn read<const N: usize>(&self, at: usize) -> [u8; N] {
        let mut bytes = [0; N];
        let mut i = self.pieces.partition_point(|p| p.0 + p.1.len() <= at);
        while let Some((start, piece)) = self.pieces.get(i).filter(|p| p.0 < at + N) {
            let from = at.max(*start);
            let to = (at + N).min(*start + piece.len());
            bytes[from - at..to - at].copy_from_slice(&piece[from - start..to - start]);
            i += 1;
        }
        bytes
    }

    /// The pieces that may not be zero: offsets and bytes, in order.
    pub fn pieces(&self) -> impl Iterator<Item = (usize, &[u8])> {
        self.pieces.iter().map(|(at, bytes)| (*at, &bytes[..]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dense(sparse: &Sparse) -> Vec<u8> {
        let mut all = vec![0; sparse.len()];
        let mut end = 0;
        for (at, bytes) in sparse.pieces() {
            assert!(at >= end, "pieces are in order");
            end = at + bytes.len();
            all[at..end].copy_from_slice(bytes);
        }
        all
    }

    #[test]
    fn the_same_as_dense_bytes() {
        let mut state = 0x2545_f491_4f6c_dd1du64;
        let mut below = |n: u64| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) % n
        };
        for _ in 0..200 {
            let (mut sparse, mut vec) = (Sparse::default(), Vec::new());
            for _ in 0..40 {
                let bytes = vec![below(256) as u8; below(100) as usize];
                match below(3) {
                    0 => {
                        vec.extend_from_slice(&bytes);
                        sparse.extend(&bytes);
                    }
                    1 => {
                        let len = vec.len() + below(3 * GAP as u64) as usize;
                        vec.resize(len, 0);
                        sparse.grow(len);
                    }
                    _ => {
                        let at = below(vec.len() as u64 + 1) as usize;
                        vec.resize(vec.len().max(at + bytes.len()), 0);
                        vec[at..at + bytes.len()].copy_from_slice(&bytes);
                        sparse.write(at, &bytes);
                    }
                }
                let at = below(vec.len() as u64 + 1) as usize;
                let mut word = [0; 8];
                let have = 8.min(vec.len() - at);
                word[..have].copy_from_slice(&vec[at..at + have]);
                assert_eq!(sparse.read(at), word);
            }
            assert_eq!(sparse.len(), vec.len());
            assert!(dense(&sparse) == vec);
            assert!(dense(&Sparse::copy_of(&vec)) == vec);
        }
    }

    #[test]
    fn zeros_take_no_space() {
        let mut sparse = Sparse::copy_of(&vec![0; 10 * GAP]);
        sparse.grow(1 << 40);
        sparse.extend(&[1]);
        assert_eq!(sparse.pieces().collect::<Vec<_>>(), [(1 << 40, &[1][..])]);
    }
}
