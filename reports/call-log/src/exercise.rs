//! The format of the exercise: an array of records of a procedure's index, a direction and a clock value.
//!
//! ABI: an array of the C structure
//! `{ unsigned char proc_index, direction; struct timeval clock_value; }` as the
//! compiler for x86-64 lays it out: index at 0, direction at 1 (0 begin, 1 end), six
//! bytes of padding, seconds at 8 and microseconds at 16, both signed and of
//! eight bytes, lowest first. There is no header.
//!
//! The clock may count downwards, as `ITIMER_PROF` does, or upwards; the records show which.

use std::io::Read;
use std::path::{Path, PathBuf};

use crate::{Error, Event, EventKind, Location, Result};

/// Size of a record in bytes.
pub const SIZE: usize = 24;

/// Number of procedures that an index of one byte can name.
pub const MOST_PROCEDURES: usize = 256;

/// Ticks of the format's clock per second.
pub const TICKS: u64 = 1_000_000;

/// Encodes a record.
pub fn record(proc: u8, ends: bool, seconds: i64, micros: i64) -> [u8; SIZE] {
    let mut bytes = [0; SIZE];
    bytes[0] = proc;
    bytes[1] = ends.into();
    bytes[8..16].copy_from_slice(&seconds.to_le_bytes());
    bytes[16..].copy_from_slice(&micros.to_le_bytes());
    bytes
}

/// Encodes an event of a clock that counts upwards from 0; in the record the clock
/// counts downwards from `from` seconds.
pub fn counted_down(event: Event, ticks_per_second: f64, from: i64) -> [u8; SIZE] {
    let micros = event.clock as f64 * TICKS as f64 / ticks_per_second;
    let left = from * TICKS as i64 - micros as i64;
    let (seconds, micros) = (left.div_euclid(TICKS as i64), left.rem_euclid(TICKS as i64));
    record(event.proc as u8, !event.kind.opens(), seconds, micros)
}

/// Reads a file of records.
pub struct Reader<R> {
    from: R,
    file: PathBuf,
    /// Number of records read.
    read: u64,
    /// The first clock value, from which the clocks of events count.
    first: Option<i64>,
    last: i64,
    /// 1 if the clock counts upwards, -1 if it counts downwards, 0 while that is not known.
    direction: i64,
    /// Running procedures, innermost last.
    open: Vec<u8>,
}

impl<R: Read> Reader<R> {
    /// Starts reading; `file` is the name in errors.
    pub fn new(from: R, file: &Path) -> Self {
        Self {
            from,
            file: file.to_path_buf(),
            read: 0,
            first: None,
            last: 0,
            direction: 0,
            open: Vec::new(),
        }
    }

    /// Reads the next events; false at the end.
    ///
    /// # Errors
    /// Names the record that is wrong.
    pub fn next_events(&mut self, events: &mut Vec<Event>) -> Result<bool> {
        events.clear();
        let mut bytes = [0; SIZE * 4096];
        let mut filled = 0;
        while filled < bytes.len() {
            match self.from.read(&mut bytes[filled..]) {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(Error::new(&self.file, e.to_string())),
            }
        }
        for record in bytes[..filled].chunks(SIZE) {
            self.read += 1;
            let event = self.event(record).map_err(|reason| {
                let error = Error::new(&self.file, reason).at(Location::Record(self.read));
                error.advice("a file of timing data is an array of records of 24 bytes")
            })?;
            events.push(event);
        }
        if let (0, Some(open)) = (filled, self.open.last()) {
            let reason = format!("the file ends while procedure {open} is running");
            let error = Error::new(&self.file, reason).at(Location::Record(self.read));
            return Err(error.advice("was log_size too small, or a return without write_log?"));
        }
        Ok(filled != 0)
    }

    /// Decodes a record.
    fn event(&mut self, record: &[u8]) -> Result<Event, String> {
        let Ok(record) = <&[u8; SIZE]>::try_from(record) else {
            return Err(format!("the file ends after {} bytes of it", record.len()));
        };
        let word = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&record[at..at + 8]);
            i64::from_le_bytes(bytes)
        };
        let (proc, direction) = (record[0], record[1]);
        let (seconds, micros) = (word(8), word(16));
        if !(0..TICKS as i64).contains(&micros) {
            return Err(format!("{micros} microseconds are not less than a second"));
        }
        let clock = seconds
            .checked_mul(TICKS as i64)
            .and_then(|s| s.checked_add(micros))
            .filter(|_| seconds >= 0)
            .ok_or_else(|| format!("{seconds} seconds are no sensible clock value"))?;
        let first = *self.first.get_or_insert_with(|| {
            self.last = clock;
            clock
        });
        let step = (clock - self.last).signum();
        if self.direction * step < 0 {
            return Err("the clock turns around".into());
        }
        if step != 0 {
            self.direction = step;
        }
        self.last = clock;
        let kind = match direction {
            0 => {
                self.open.push(proc);
                EventKind::Entry
            }
            1 => {
                match self.open.pop() {
                    Some(open) if open == proc => {}
                    Some(open) => {
                        return Err(format!("procedure {proc} ends, but {open} is running"));
                    }
                    None => return Err(format!("procedure {proc} ends, but has not begun")),
                }
                EventKind::Exit
            }
            other => return Err(format!("{other} is no direction: 0 begins, 1 ends")),
        };
        Ok(Event {
            proc: proc.into(),
            kind,
            clock: (clock - first).unsigned_abs(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<Vec<Event>, String> {
        let mut reader = Reader::new(bytes, Path::new("t.dat"));
        let (mut all, mut events) = (Vec::new(), Vec::new());
        while reader.next_events(&mut events).map_err(|e| e.to_string())? {
            all.append(&mut events);
        }
        Ok(all)
    }

    #[test]
    fn both_directions_of_the_clock() {
        let down = [
            record(0, false, 9, 500_000),
            record(1, false, 9, 0),
            record(1, true, 8, 999_999),
            record(0, true, 8, 0),
        ];
        let clocks = |records: &[[u8; SIZE]]| -> Vec<u64> {
            read(records.as_flattened())
                .unwrap()
                .iter()
                .map(|e| e.clock)
                .collect()
        };
        assert_eq!(clocks(&down), [0, 500_000, 500_001, 1_500_000]);
        let up = [record(7, false, 0, 3), record(7, true, 1, 4)];
        assert_eq!(clocks(&up), [0, 1_000_001]);
        let event = Event {
            proc: 3,
            kind: EventKind::Left,
            clock: 5_000_000_000,
        };
        assert_eq!(counted_down(event, 2e9, 100), record(3, true, 97, 500_000));
        assert_eq!(counted_down(event, 2e9, 0), record(3, true, -3, 500_000));
    }

    #[test]
    fn mistakes_are_told_with_their_record() {
        let cases: [(&[[u8; SIZE]], &str); 6] = [
            (
                &[record(0, false, 1, 0)],
                "record 1: the file ends while procedure 0",
            ),
            (
                &[record(0, true, 1, 0)],
                "record 1: procedure 0 ends, but has not begun",
            ),
            (
                &[record(0, false, 1, 0), record(1, true, 1, 0)],
                "record 2: procedure 1 ends, but 0 is running",
            ),
            (
                &[record(0, false, 1, 1_000_000)],
                "record 1: 1000000 microseconds",
            ),
            (&[record(0, false, -1, 0)], "record 1: -1 seconds"),
            (
                &[
                    record(0, false, 1, 0),
                    record(0, true, 2, 0),
                    record(0, false, 1, 0),
                ],
                "record 3: the clock turns around",
            ),
        ];
        for (records, want) in cases {
            let error = read(records.as_flattened()).unwrap_err();
            assert!(error.contains(want), "{error}");
        }
        assert!(
            read(&record(0, false, 1, 0)[..23])
                .unwrap_err()
                .contains("23 bytes")
        );
        let mut odd = record(0, false, 1, 0);
        odd[1] = 2;
        assert!(read(&odd).unwrap_err().contains("2 is no direction"));
    }
}
