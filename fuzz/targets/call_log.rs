//! Logs of calls in both formats, descriptions of reports, `gmon.out`.
#![no_main]

use std::path::Path;

use call_log::account::Account;
use call_log::{compact, exercise, gmon, indat};

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((first, rest)) = data.split_first() else {
        return;
    };
    let file = Path::new("input");
    let mut events = Vec::new();
    let mut account = Account::new(|proc| proc % 3 != 0);
    match first % 4 {
        0 => {
            // Spares the fuzzer the search for the magic bytes.
            let whole = [compact::MAGIC, rest].concat();
            if let Ok(mut reader) = compact::Reader::new(&*whole, file) {
                while let Ok(Some(thread)) = reader.next_events(&mut events) {
                    account.add(thread, &events);
                }
            }
        }
        1 => {
            let mut reader = exercise::Reader::new(rest, file);
            while let Ok(true) = reader.next_events(&mut events) {
                account.add(0, &events);
            }
        }
        2 => {
            if let Ok(text) = std::str::from_utf8(rest) {
                let _ = indat::parse(text, file);
            }
        }
        _ => {
            if let Ok(gmon) = gmon::parse(rest, file) {
                let samples = gmon.histograms.iter().map(|h| h.samples(0, u64::MAX));
                let _ = samples.sum::<f64>();
            }
        }
    }
});
