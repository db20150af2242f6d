//! Data files of the record and playback library: arbitrary contents give an error and not a panic.
//!
//! The first byte chooses the use of the rest: as a file (T), or as contents of blocks in a binary file with
//! correct heads and checksums (B), which arbitrary bytes would never have.
#![no_main]

use std::io::Cursor;

use arp::{Format, Mode, Profile, Reader};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((how, data)) = data.split_first() else {
        return;
    };
    let file = match how {
        b'B' => match blocks(data) {
            Some(file) => file,
            None => return,
        },
        _ => data.to_vec(),
    };
    let Ok(reader) = Reader::new(Cursor::new(file)) else {
        return;
    };
    let Ok(mut profile) = Profile::read(reader) else {
        return;
    };
    // Valid records can be written, and are the same when they are read again.
    let path = format!("/dev/shm/atom-fuzz-arp-{}", std::process::id());
    for format in [Format::Ascii, Format::Binary] {
        profile.save(&path, format, false).expect("it can be written");
        let again = Profile::load(&path).expect("it can be read");
        assert!(again.damage().is_none(), "{:?}", again.damage());
        assert_eq!(again.len(), profile.len());
        for i in 0..again.len() {
            assert_eq!(again.stack(i), profile.stack(i));
            assert_eq!(again.count(i), profile.count(i));
        }
    }
    for mode in [Mode::RecordHistogram, Mode::RecordAverage] {
        let _ = profile.switch_mode(mode);
        for i in 0..profile.len() {
            let _ = profile.value(i, 0);
            let _ = profile.histogram(i, 0).map(|h| h.quantile(0.5));
        }
    }
});

/// Makes a binary file. `data` is the kind of the records' block, the number of types, the types, and chunks
/// of contents, each with a length of one byte, a kind and the bytes.
fn blocks(data: &[u8]) -> Option<Vec<u8>> {
    let (kind, data) = data.split_first()?;
    let (sets, data) = data.split_first()?;
    let sets = usize::from(*sets % 4 + 1);
    let (types, mut data) = data.split_at_checked(sets)?;
    let mode = match kind % 3 {
        0 => 1,
        1 => 0,
        _ => 2,
    };
    let mut file = b"# Atomium record and playback data - format version 1.1.\n".to_vec();
    file.extend(format!("1 {mode} {sets}").bytes());
    types.iter().for_each(|ty| file.extend(format!(" {}", ty % 13).bytes()));
    file.extend(b"\nARPBIN\0\x01");
    let main = [3, 4, 5][usize::from(kind % 3)];
    while let Some((head, rest)) = data.split_at_checked(2) {
        let length = usize::from(head[0]).min(rest.len());
        let (contents, rest) = rest.split_at(length);
        let kind = if head[1] < 4 { head[1] + 1 } else { main };
        let mut block = b"ARPb".to_vec();
        block.extend([kind, 0, 0, 0, head[1] % 3, 0, 0, 0]);
        block.extend(u32::from(head[1] / 4).to_le_bytes());
        block.extend((length as u32).to_le_bytes());
        block.extend((length as u32).to_le_bytes());
        let mut hasher = crc32fast::Hasher::new();
        hasher.update(&block);
        hasher.update(contents);
        block.extend(hasher.finalize().to_le_bytes());
        file.extend(block);
        file.extend(contents);
        data = rest;
    }
    Some(file)
}
