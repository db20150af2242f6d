//! Traces of memtrace: arbitrary contents give an error and not a panic, and take little memory at once.
//!
//! The first byte chooses the use of the rest: as all after the magic bytes (T), or as a description of a batch (D), or as the
//! words of a trace that is written and read again (W).
#![no_main]

use std::sync::atomic::AtomicU64;

use libfuzzer_sys::fuzz_target;
use mem_trace::{
    Batch, Encoder, Item, MAGIC, MOST_VALUES, READ, Reader, Shape, Stream, WRITE, begin, chunk,
    describe, descriptions,
};

/// Number of references after which reading ends.
const ENOUGH: usize = 1 << 21;
/// Number of batches of a written trace.
const WRITTEN: u32 = 12;
/// Distance of their numbers, more than a batch has values.
const APART: u32 = MOST_VALUES as u32 + 2;

fuzz_target!(|data: &[u8]| {
    let Some((how, data)) = data.split_first() else {
        return;
    };
    match how {
        b'D' => _ = Batch::parse(data),
        b'W' => write_and_read(data),
        _ => {
            let file = [MAGIC, data].concat();
            let mut reader = Reader::new(&file[..]).expect("it begins rightly");
            let mut count = 0;
            while let Ok(Some(references)) = reader.next_chunk() {
                count += references.len();
                if let Some(first) = references.first() {
                    let _ = reader.place(first.pc);
                }
                if count > ENOUGH {
                    break;
                }
            }
        }
    }
});

/// Each entry comes back with its values. Each group of nine bytes is a batch and what its values are made of.
fn write_and_read(data: &[u8]) {
    let values_of = |number: u32| (number / APART) as usize % (MOST_VALUES + 1);
    let batches: Vec<(u32, Vec<u8>)> = (1..=WRITTEN)
        .map(|number| {
            let number = number * APART;
            let items: Vec<Item> = (0..values_of(number) as u8)
                .map(|value| Item {
                    pc: number.into(),
                    access: if value % 2 == 0 { READ } else { WRITE },
                    size: 8,
                    value,
                    offset: 0,
                })
                .collect();
            (number, describe(false, values_of(number) as u8, &items))
        })
        .collect();
    let (mut words, mut expected) = (Vec::new(), Vec::new());
    for group in data.chunks_exact(9) {
        let number = (u32::from(group[0]) % WRITTEN + 1) * APART;
        let value = u64::from_le_bytes(group[1..].try_into().expect("eight bytes"));
        words.push(begin(number, values_of(number)));
        for i in 0..values_of(number) as u32 {
            words.push(value.rotate_left(8 * i));
            expected.push((u64::from(number), value.rotate_left(8 * i)));
        }
    }
    let words: Vec<AtomicU64> = words.into_iter().map(AtomicU64::new).collect();
    let mut encoder = Encoder::default();
    let mut found = Vec::new();
    let mut file = MAGIC.to_vec();
    let described: Vec<(u32, &[u8])> = batches.iter().map(|(n, d)| (*n, &d[..])).collect();
    descriptions(&mut file, &described);
    let mut stream = Stream::default();
    encoder.encode(&mut stream, &words, &mut |number| {
        Some(Shape {
            values: values_of(number) as _,
            references: values_of(number) as _,
            is_repeated: false,
        })
    });
    chunk(&mut file, 1, &mut stream, data.len() % 2 == 0);
    let mut reader = Reader::new(&file[..]).expect("it begins rightly");
    while let Some(references) = reader.next_chunk().expect("it can be read") {
        found.extend(references.iter().map(|r| (r.pc, r.address)));
    }
    assert_eq!(found, expected);
}
