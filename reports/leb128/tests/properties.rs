//! Properties of reading and writing, over random numbers and random bytes; gimli's reader
//! is the independent judge.

use gimli::{EndianSlice, LittleEndian, leb128::read as judge};
use leb128::{Error, fill, push, push_signed, read_signed, take, unzigzag, zigzag};

/// Random numbers of all sizes; the same ones in each run.
struct Random(u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number with as many bits as chance says, so that small ones are as frequent as large ones.
    fn number(&mut self) -> u64 {
        let size = self.bits() % 65;
        self.bits().checked_shr(64 - size as u32).unwrap_or(0)
    }

    fn wide(&mut self) -> u128 {
        let size = (self.bits() % 129) as u32;
        let all = u128::from(self.bits()) << 64 | u128::from(self.bits());
        all.checked_shr(128 - size).unwrap_or(0)
    }
}

const ROUNDS: usize = 50_000;

fn numbers() -> impl Iterator<Item = u64> {
    let edges = (0..64).flat_map(|bit| [(1u64 << bit) - 1, 1 << bit, (1 << bit) + 1]);
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let random = (0..ROUNDS).map(move |_| random.number());
    edges.chain([u64::MAX - 1, u64::MAX]).chain(random)
}

#[test]
fn unsigned_numbers_come_back_and_agree_with_the_judge() {
    for value in numbers() {
        let mut bytes = Vec::new();
        push(&mut bytes, value);
        let judged = judge::unsigned(&mut EndianSlice::new(&bytes, LittleEndian));
        assert_eq!(judged, Ok(value));
        let needed = (64 - value.leading_zeros()).div_ceil(7).max(1);
        assert_eq!(bytes.len(), needed as usize, "{value}");
        let mut rest = &bytes[..];
        assert_eq!((take(&mut rest), rest), (Ok(value), &[][..]));
        for len in 0..bytes.len() {
            assert_eq!(take::<u64>(&mut &bytes[..len]), Err(Error::Truncated));
        }
    }
}

#[test]
fn signed_numbers_come_back_and_agree_with_the_judge() {
    for value in numbers().flat_map(|n| [n as i64, (n as i64).wrapping_neg(), !n as i64]) {
        let mut bytes = Vec::new();
        push_signed(&mut bytes, value);
        let judged = judge::signed(&mut EndianSlice::new(&bytes, LittleEndian));
        assert_eq!(judged, Ok(value));
        let magnitude = if value < 0 { !value } else { value };
        let needed = (65 - magnitude.leading_zeros()).div_ceil(7);
        assert_eq!(bytes.len(), needed as usize, "{value}");
        let mut iter = bytes.iter().copied();
        assert_eq!(read_signed(|| iter.next()), Ok(value), "{bytes:x?}");
        assert_eq!(iter.next(), None);
        for len in 0..bytes.len() {
            let mut iter = bytes[..len].iter().copied();
            assert_eq!(read_signed(|| iter.next()), Err(Error::Truncated));
        }
        // Padding keeps the value, whatever its length.
        let last = bytes.len() - 1;
        let pad = if value < 0 { 0x7f } else { 0 };
        for len in [1, 2, 9, 12] {
            let mut padded = bytes.clone();
            padded[last] |= 0x80;
            padded.extend(vec![pad | 0x80; len - 1]);
            padded.push(pad);
            let mut iter = padded.iter().copied();
            assert_eq!(read_signed(|| iter.next()), Ok(value), "{padded:x?}");
        }
    }
}

#[test]
fn wide_numbers_come_back() {
    let mut random = Random(1);
    let edges = [0, 1, u128::MAX, u128::MAX >> 1, 1 << 127, 1 << 126, 1 << 64];
    let values = edges.into_iter();
    for value in values.chain((0..ROUNDS).map(|_| random.wide())) {
        let mut bytes = Vec::new();
        push(&mut bytes, value);
        assert_eq!(take(&mut &bytes[..]), Ok(value));
        assert_eq!(unzigzag(zigzag(value as i128)), value as i128);
        let narrow = u64::try_from(value).map_err(|_| Error::Overflow);
        assert_eq!(take::<u64>(&mut &bytes[..]), narrow);
    }
}

/// What is read from any bytes: the judge's number, or an error where it has one.
#[test]
fn random_bytes_are_read_as_the_judge_reads_them() {
    let mut random = Random(2);
    for _ in 0..ROUNDS {
        // At most ten bytes: the judge refuses longer padding.
        let len = 1 + random.bits() as usize % 10;
        let mut bytes: Vec<u8> = (0..len).map(|_| random.bits() as u8).collect();
        if !random.bits().is_multiple_of(3) {
            for byte in &mut bytes[..len - 1] {
                *byte |= 0x80;
            }
        }
        let judged = judge::unsigned(&mut EndianSlice::new(&bytes, LittleEndian));
        assert_eq!(take::<u64>(&mut &bytes[..]).ok(), judged.ok(), "{bytes:x?}");
        let judged = judge::signed(&mut EndianSlice::new(&bytes, LittleEndian));
        let mut iter = bytes.iter().copied();
        assert_eq!(read_signed(|| iter.next()).ok(), judged.ok(), "{bytes:x?}");
    }
}

#[test]
fn numbers_too_large_are_refused() {
    let too_large = [0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 2];
    assert_eq!(take::<u64>(&mut &too_large[..]), Err(Error::Overflow));
    assert_eq!(take::<u64>(&mut &[0xff; 30][..]), Err(Error::Overflow));
    assert_eq!(take::<u128>(&mut &[0xff; 30][..]), Err(Error::Overflow));
    assert_eq!(take::<u64>(&mut &[0xff; 9][..]), Err(Error::Truncated));
    let mut signed = too_large.iter().copied();
    assert_eq!(read_signed(|| signed.next()), Err(Error::Overflow));
    // Zeros after a number that fits are padding.
    let padded: Vec<u8> = [0x85].into_iter().chain([0x80; 40]).chain([0]).collect();
    assert_eq!(take::<u64>(&mut &padded[..]), Ok(5));
}

#[test]
fn filling_keeps_the_length() {
    for value in numbers() {
        for len in 1..12 {
            let mut bytes = vec![0xee; len];
            fill(&mut bytes, value);
            let mut rest = &bytes[..];
            let largest = if len < 10 {
                (1 << (7 * len)) - 1
            } else {
                u64::MAX
            };
            assert_eq!(take(&mut rest), Ok(value.min(largest)));
            assert_eq!(rest, [], "{len} bytes for {value}");
        }
    }
    fill(&mut [], 7);
}

#[test]
fn zigzag_keeps_small_numbers_small() {
    for (signed, unsigned) in [
        (0, 0),
        (-1, 1),
        (1, 2),
        (-2, 3),
        (i64::MAX, u64::MAX - 1),
        (i64::MIN, u64::MAX),
    ] {
        assert_eq!(zigzag(signed), unsigned);
        assert_eq!(unzigzag(unsigned), signed);
    }
}
