//! A log in the compact format is read back as it was written. A damaged one gives an error or
//! another log, and never a panic or memory that is many times its size.

use std::path::Path;

use call_log::account::Account;
use call_log::clock::Clock;
use call_log::compact::{Encoder, Header, Reader, Tail, end_block, header_block, procedures_block};
use call_log::{Event, EventKind, Procedure};

fn header() -> Header {
    Header {
        clock: Clock::Tsc,
        process: 77,
        parent: 0,
        start: 1000,
        ticks_per_second: 0.0,
        unix_nanos: 5,
        program: "program".into(),
    }
}

fn procedure(number: u32) -> Procedure {
    Procedure {
        number,
        pc: 0x1000 + u64::from(number),
        name: format!("proc{number}"),
        file: "file.c".into(),
        line: 7,
    }
}

/// A log of two threads, whose blocks alternate; the second thread is cut off in the middle of its calls.
fn events(thread: u32) -> Vec<Event> {
    let mut all = Vec::new();
    let mut clock = 2000 + u64::from(thread);
    for round in 0..50 {
        for (kind, proc) in [
            (EventKind::Entry, 0),
            (EventKind::Entry, 300 + thread),
            (EventKind::Left, 300 + thread),
            (EventKind::Resumed, 300 + thread),
            (EventKind::Exit, 300 + thread),
            (EventKind::Exit, 0),
        ] {
            clock += round * round * 1000;
            all.push(Event { proc, kind, clock });
        }
    }
    all
}

fn log() -> Vec<u8> {
    let mut bytes = Vec::new();
    header_block(&mut bytes, &header());
    procedures_block(&mut bytes, &[procedure(0), procedure(300), procedure(301)]);
    let (first, second) = (events(0), events(1));
    for (a, b) in first.chunks(40).zip(second.chunks(40)) {
        for (thread, chunk) in [(0, a), (1, b)] {
            let mut encoder = Encoder::new();
            chunk.iter().for_each(|event| encoder.push(*event));
            encoder.take_block(thread, 100 + thread, &mut bytes);
        }
    }
    let tail = Tail {
        end: 9,
        ticks_per_second: 2e9,
        ..Tail::default()
    };
    end_block(&mut bytes, &tail, true);
    bytes
}

/// Reads a whole log: the events of each thread, and whether the log came to its end.
fn read(bytes: &[u8]) -> Result<(Vec<Vec<Event>>, bool), String> {
    let mut reader = Reader::new(bytes, Path::new("log")).map_err(|e| e.to_string())?;
    let (mut all, mut events) = (Vec::new(), Vec::new());
    let mut account = Account::new(|_| true);
    while let Some(thread) = reader.next_events(&mut events).map_err(|e| e.to_string())? {
        assert!(events.len() <= bytes.len());
        account.add(thread, &events);
        all.resize(all.len().max(thread as usize + 1), Vec::new());
        all[thread as usize].append(&mut events);
    }
    Ok((all, reader.is_ended()))
}

#[test]
fn what_is_written_comes_back() {
    let bytes = log();
    assert_eq!(read(&bytes).unwrap(), (vec![events(0), events(1)], true));
    let mut reader = Reader::new(&*bytes, Path::new("log")).unwrap();
    assert_eq!(*reader.header(), header());
    while reader.next_events(&mut Vec::new()).unwrap().is_some() {}
    assert_eq!(reader.tail().unwrap().ticks_per_second, 2e9);
    assert_eq!(reader.procedures()[&301], procedure(301));
    assert_eq!(reader.tid(1), 101);
    // An event takes between two and five bytes.
    assert!(bytes.len() < 5 * 600 + 200, "{}", bytes.len());
}

#[test]
fn a_log_that_is_cut_off_is_read_as_far_as_it_goes() {
    let bytes = log();
    let (whole, _) = read(&bytes).unwrap();
    for len in 0..bytes.len() {
        if let Ok((part, is_ended)) = read(&bytes[..len]) {
            assert!(!is_ended, "{len}");
            for (part, whole) in part.iter().zip(&whole) {
                assert!(whole.starts_with(part));
            }
        } else {
            // Bytes without a header are no log.
            assert!(len < 64, "{len}");
        }
    }
}

#[test]
fn a_damaged_log_is_an_error_or_another_log() {
    let bytes = log();
    let mut errors = 0;
    for at in 0..bytes.len() {
        for change in [1, 0x40, 0x80, 0xff] {
            let mut other = bytes.clone();
            other[at] ^= change;
            errors += u32::from(read(&other).is_err());
        }
    }
    assert!(errors > 100, "{errors}");
}

#[test]
fn events_that_do_not_pair_are_refused() {
    let mut bytes = Vec::new();
    header_block(&mut bytes, &header());
    let mut encoder = Encoder::new();
    let (proc, kind, clock) = (0, EventKind::Entry, 5);
    encoder.push(Event { proc, kind, clock });
    let mut unnamed = bytes.clone();
    encoder.clone().take_block(0, 1, &mut unnamed);
    assert!(read(&unnamed).unwrap_err().contains("has no name"));
    procedures_block(&mut bytes, &[procedure(0)]);
    let kind = EventKind::Exit;
    encoder.push(Event { proc, kind, clock });
    encoder.push(Event { proc, kind, clock });
    encoder.take_block(0, 1, &mut bytes);
    assert!(read(&bytes).unwrap_err().contains("leaves more procedures"));
}
