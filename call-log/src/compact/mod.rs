//! The compact format: a few bytes for each event, and everything that a reader
//! needs to know in the same file.
//!
//! The file begins with [`MAGIC`]. Then come blocks: a letter, the number of bytes
//! that follow (LEB128), and these bytes. A reader skips blocks whose letter it
//! does not know.
//!
//! | block | contents |
//! | --- | --- |
//! | `H`, the first | version (1), clock, process, parent process (0 if it is not a forked child), clock at the start, ticks per second (f64, 0 if unknown), nanoseconds since 1970 at the start, name of the program |
//! | `P` | procedures: number, address, name, file, line, for each until the block ends. Before the first event that names them |
//! | `E` | events of one thread: the thread's number in the log, its number in the system, how many, the clock before the first; then each event |
//! | `C` | the same as `Z`, while the program goes on |
//! | `Z`, the last | clock at the end, ticks per second (f64), events, unmatched exits, procedures left without an exit, points that were lost |
//!
//! Numbers are variable in length, f64 have eight bytes, lowest first; texts are UTF-8 behind their length.
//!
//! An event is one number, four times the ticks since the event before it plus what
//! it is: 0 entry, 1 exit, 2 left, 3 resumed ([`EventKind`]). Behind an entry or a
//! resumption stands the procedure's number. The others concern the
//! procedure of that thread that was opened last and is still open.
//!
//! Blocks of several threads come in any order, those of one thread in the order of time.
//! If the process was killed the last `C` stands for `Z`, if there is one, and the last block may be cut off.
//! If a process wrote its log and went on (after a failed `exec`) there are several `Z`; the last holds.

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
