//! The compact format: a few bytes for each event, with everything that a reader
//! needs in one file.
//!
//! The file begins with [`MAGIC`]. Then come blocks: a letter, the number of bytes
//! that follow (LEB128), and these bytes. A reader skips blocks whose letter it
//! does not know.
//!
//! | block | contents |
//! | --- | --- |
//! | `H`, the first | version (1), clock, process, parent process (0 if it is not a forked child), clock at the start, ticks per second (f64, 0 if unknown), nanoseconds since 1970 at the start, name of the program |
//! | `P` | procedures: number, address, name, file, line, for each until the block ends. Before the first event that names them |
//! | `E` | events of one thread: the thread's number in the log, its number in the system, number of events, clock before the first one; then each event |
//! | `C` | contents as in `Z`, while the program continues |
//! | `Z`, the last | clock at the end, ticks per second (f64), events, unmatched exits, procedures left without an exit, points that were lost |
//!
//! Numbers are in LEB128. An f64 has eight bytes, lowest first. A text is its length in bytes, then its bytes in UTF-8.
//!
//! An event is one number: four times the ticks since the event before it, plus its
//! kind: 0 entry, 1 exit, 2 left, 3 resumed ([`EventKind`]). An entry or a
//! resumption is followed by the procedure's number. The other kinds concern the
//! procedure of that thread that was opened last and is still open.
//!
//! Blocks of different threads come in any order, blocks of one thread in the order of time.
//! If the process was killed, there is no `Z`; readers take the last `C`, if there is one, and the last block may be cut off.
//! If a process wrote its log and continued (after a failed `exec`), there are several `Z`, of which the last one counts.

mod read;
mod write;

pub use read::{Header, Reader, Tail};
pub use write::{Encoder, end_block, header_block, procedures_block};

use crate::EventKind;

/// The first bytes of a file.
pub const MAGIC: &[u8; 8] = b"CALLLOG\n";

/// The format's version.
pub const VERSION: u64 = 1;

const HEADER: u8 = b'H';
const PROCEDURES: u8 = b'P';
const EVENTS: u8 = b'E';
const CHECKPOINT: u8 = b'C';
const END: u8 = b'Z';

const KINDS: [EventKind; 4] = [
    EventKind::Entry,
    EventKind::Exit,
    EventKind::Left,
    EventKind::Resumed,
];

fn number_of(kind: EventKind) -> u64 {
    match kind {
        EventKind::Entry => 0,
        EventKind::Exit => 1,
        EventKind::Left => 2,
        EventKind::Resumed => 3,
    }
}
