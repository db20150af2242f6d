//! Names of functions that a process has made at run time, where it tells them: in `/tmp/perf-PID.map`, or in a file
//! `jit-PID.dump`, which it maps so that tools find it.
//!
//! Memory is used again for other functions, and the files say how it was when the process ended.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::path::Path;

use linux_perf_data::jitdump::{JitDumpReader, JitDumpRecord};

/// Functions by their start: their end, and their name.
type Functions = BTreeMap<u64, (u64, String)>;

/// The functions of processes, as far as they have been asked for.
#[derive(Default)]
pub struct Names {
    processes: HashMap<u32, Functions>,
}

impl Names {
    /// The name of the function at an address. `files` are those that the process has mapped.
    pub fn of<'a>(
        &mut self,
        process: u32,
        files: impl Iterator<Item = &'a Path>,
        address: u64,
    ) -> Option<String> {
        let functions = self.processes.entry(process).or_insert_with(|| {
            let mut functions = Functions::new();
            let map = format!("/tmp/perf-{process}.map");
            let text = std::fs::read_to_string(map).unwrap_or_default();
            functions.extend(text.lines().filter_map(line));
            let is_dump = |file: &&Path| {
                let name = file.file_name().map(|name| name.to_string_lossy());
                name.is_some_and(|name| name.starts_with("jit-") && name.ends_with(".dump"))
            };
            for file in files.filter(is_dump) {
                // A dump that cannot be read names nothing.
                if let Ok(file) = File::open(file) {
                    read_dump(file, &mut functions);
                }
            }
            functions
        });
        let (_, (end, name)) = functions.range(..=address).next_back()?;
        (address < *end).then(|| name.clone())
    }
}

/// A line of a perf map: start and size in hexadecimal digits, and the name.
fn line(text: &str) -> Option<(u64, (u64, String))> {
    let mut parts = text.splitn(3, ' ');
    let mut number = || {
        let digits = parts.next()?;
        u64::from_str_radix(digits.trim_start_matches("0x"), 16).ok()
    };
    let (start, size) = (number()?, number()?);
    let name = parts.next()?;
    Some((start, (start.checked_add(size)?, name.to_owned())))
}

fn read_dump(file: File, functions: &mut Functions) {
    let Ok(mut reader) = JitDumpReader::new(file) else {
        return;
    };
    while let Ok(Some(record)) = reader.next_record() {
        if let Ok(JitDumpRecord::CodeLoad(load)) = record.parse() {
            let name = String::from_utf8_lossy(&load.function_name.as_slice()).into_owned();
            let end = load.code_addr.saturating_add(load.code_bytes.len() as u64);
            functions.insert(load.code_addr, (end, name));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_map_are_read() {
        assert_eq!(
            line("7f00 1a f(int, int)"),
            Some((0x7f00, (0x7f1a, "f(int, int)".into())))
        );
        assert_eq!(line("0x10 2 g"), Some((0x10, (0x12, "g".into()))));
        assert_eq!(line("x"), None);
    }
}
