//! Original addresses of the new text, and new ones of the original: the tables of [`atom_abi::boundaries`].
//!
//! Nothing here is written, and little of the stack is used: signal handlers run on small stacks.

use core::ptr::with_exposed_provenance as pointer;

use atom_abi::boundaries::{ENTRY, HEAD, MARK, MARK_KEPT, Piece, Records};

use crate::process::frames::is_tool;
use crate::process::info;
use crate::process::table::{PROGRAM, load_bias, object_at, objects, process};

/// What is at an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// Code that did not move, or no code that is known.
    Foreign,
    /// Inserted code, or the tool's.
    Inserted,
    /// The start of an instruction that moved. Registers and memory are the same there as in the original program at this
    /// address of the original text.
    Boundary(u64),
}

/// The table of an object.
#[derive(Clone, Copy)]
struct Table {
    /// Address of the table's head.
    at: u64,
    /// Run-time address of the object's image.
    image: u64,
}

/// Number of the head's word with the offset of the accesses.
const ACCESSES: usize = 3;

/// The entry of a procedure: offsets from the starts of the new text, of the image, and of all records.
#[repr(C)]
#[derive(Clone, Copy)]
struct Proc {
    new: u32,
    old: u32,
    records: u32,
}

/// True if the program has a table of its moved code, or no code that moved.
pub(crate) fn are_known() -> bool {
    match process() {
        // SAFETY: `atom` wrote the tables, with an entry for each object.
        Some(process) => unsafe {
            Table::of(PROGRAM).is_some_and(|t| !t.procs().is_empty())
                || process.texts.is_null()
                || (*process.texts.add(PROGRAM)).table == 0
        },
        None => info::get().is_some_and(|info| {
            Table::of(PROGRAM).is_some_and(|t| !t.procs().is_empty()) || info.text.is_null()
        }),
    }
}

impl Table {
    /// The table of the object in which an address is, if it describes moved code.
    fn at(address: u64) -> Option<Self> {
        Self::any_at(address).filter(|t| !t.procs().is_empty())
    }

    /// The table of the object in which an address is.
    fn any_at(address: u64) -> Option<Self> {
        match process() {
            Some(_) => Self::of(object_at(address)?.0),
            None => Self::of(PROGRAM),
        }
    }

    /// The table of an object.
    fn of(object: usize) -> Option<Self> {
        let bias = load_bias(object)?;
        let (map, base) = match process() {
            Some(process) => {
                if process.boundaries.is_null() {
                    return None;
                }
                // SAFETY: the table has an entry for each object.
                let map = unsafe { *process.boundaries.add(object) };
                if map == 0 {
                    return None;
                }
                (map.wrapping_add(bias), objects(process)[object].base)
            }
            None => {
                let info = info::get().filter(|info| !info.boundaries.is_null())?;
                (info.boundaries.addr() as u64, info.image)
            }
        };
        // SAFETY: `atom` wrote the table.
        let is_table = [MARK, MARK_KEPT].contains(unsafe { &*pointer::<u32>(map as usize) });
        is_table.then_some(Self {
            at: map,
            image: base.wrapping_add(bias),
        })
    }

    /// A word of the head.
    fn word(&self, index: usize) -> u32 {
        // SAFETY: `atom` wrote the table; the head has five words.
        unsafe { *pointer::<u32>(self.at as usize).add(index) }
    }

    /// Start of the new text.
    fn text(&self) -> u64 {
        self.at.wrapping_sub(u64::from(self.word(2)))
    }

    /// All procedures that moved.
    fn procs(&self) -> &'static [Proc] {
        let first = pointer::<Proc>(self.at as usize + HEAD);
        // SAFETY: `atom` wrote the table, which stays mapped as long as the object, whose code runs.
        unsafe { core::slice::from_raw_parts(first, self.word(1) as usize) }
    }

    /// The records of the procedure with a number.
    fn records(&self, index: usize) -> Records<'static> {
        let procs = self.procs();
        let all = self.at as usize + HEAD + ENTRY * (procs.len() + 1);
        let proc = procs[index];
        // SAFETY: an entry that ends them follows the last.
        let end = unsafe { (*procs.as_ptr().add(index + 1)).records };
        // SAFETY: `atom` wrote the records.
        let bytes = unsafe {
            let len = (end - proc.records) as usize;
            core::slice::from_raw_parts(pointer(all + proc.records as usize), len)
        };
        Records::new(bytes, proc.new, proc.old)
    }

    fn contains(&self, address: u64) -> bool {
        address.wrapping_sub(self.text()) < u64::from(self.word(2))
    }
}

/// What is at an address at which an instruction starts.
pub(crate) fn place_of(address: u64) -> Place {
    located(address).0
}

/// True if the program's own tables describe the new text at an address, as Go's do: handlers see such an address as it is.
pub(crate) fn is_kept(address: u64) -> bool {
    Table::at(address).is_some_and(|table| table.contains(address) && table.word(0) == MARK_KEPT)
}

/// True if an address is a boundary at which inserted code starts.
pub(crate) fn starts_inserted(address: u64) -> bool {
    matches!(located(address), (Place::Boundary(_), false))
}

/// What is at an address at which an instruction starts, and whether that is an instruction of the program.
fn located(address: u64) -> (Place, bool) {
    if is_tool(address) {
        return (Place::Inserted, false);
    }
    let Some(table) = Table::at(address).filter(|t| t.contains(address)) else {
        return (Place::Foreign, true);
    };
    let offset = (address - table.text()) as u32;
    let after = table.procs().partition_point(|p| p.new <= offset);
    let Some(proc) = after.checked_sub(1) else {
        return (Place::Inserted, false);
    };
    for piece in table.records(proc) {
        if offset < piece.behind {
            break;
        }
        if let Some(old) = piece.original_of(offset) {
            let is_own = offset.wrapping_sub(piece.run) < piece.len;
            return (Place::Boundary(table.image + u64::from(old)), is_own);
        }
    }
    (Place::Inserted, false)
}

/// The original address of the point at which inserted code is; `None` if that is not known.
pub(crate) fn point_of(address: u64) -> Option<u64> {
    let table = Table::at(address).filter(|t| t.contains(address))?;
    let offset = (address - table.text()) as u32;
    let after = table.procs().partition_point(|p| p.new <= offset);
    let mut end = None;
    for piece in table.records(after.checked_sub(1)?) {
        // Code between a run and the next label is after the run's last instruction.
        if offset < piece.label {
            return Some(table.image + u64::from(end.unwrap_or(piece.old)));
        }
        if offset < piece.run + piece.len {
            let inside = offset.saturating_sub(piece.run);
            return Some(table.image + u64::from(piece.old + inside));
        }
        end = Some(piece.old + piece.len);
    }
    let before = entrance(&table, after - 1, offset)?;
    point_of(before)
}

/// True in code that inserted code calls, which many points share.
pub(crate) fn is_shared(address: u64) -> bool {
    let table = Table::at(address).filter(|t| t.contains(address));
    table.is_some_and(|t| address - t.text() < u64::from(t.procs().first().map_or(0, |p| p.new)))
}

/// Address of the jump by which control came to code after a procedure's instructions: the jump from one of them, or from inserted code
/// next to them, whose target is nearest before the code. No table has it, so the bytes are searched.
fn entrance(table: &Table, proc: usize, offset: u32) -> Option<u64> {
    /// First byte of a conditional jump with a displacement of 32 bits, and its size in bytes. The low half of the second byte is the condition.
    const JCC: u8 = 0x0f;
    const SIZE: u64 = 6;
    let end = table.records(proc).last().map(|p| p.run + p.len)?;
    let tails = table.text() + u64::from(end)..=table.text() + u64::from(offset);
    let mut best: Option<(u64, u64)> = None;
    let mut from = table.procs()[proc].new;
    for piece in table.records(proc) {
        // A jump in the place of a program's jump of another size begins at the end of its run.
        for at in (from..piece.run).map(|at| table.text() + u64::from(at)) {
            if opcode(at) != JCC || opcode(at + 1) & 0xf0 != 0x80 {
                continue;
            }
            // SAFETY: code of the new text, after which the table is.
            let distance = unsafe { pointer::<i32>(at as usize + 2).read_unaligned() };
            let target = (at + SIZE).wrapping_add_signed(distance.into());
            if tails.contains(&target) && best.is_none_or(|b| b.0 < target) {
                best = Some((target, at));
            }
        }
        from = (piece.run + piece.len).saturating_sub(1);
    }
    best.map(|b| b.1)
}

/// The routine in whose place inserted code executes the instruction at this address, which may fault; the address of the routine.
pub(crate) fn routine_at(address: u64) -> Option<u64> {
    let table = Table::any_at(address).filter(|t| t.contains(address))?;
    let offset = u64::from(table.word(ACCESSES));
    if offset == 0 {
        return None;
    }
    let wanted = address - table.text();
    let head = pointer::<u32>((table.at + offset) as usize);
    // SAFETY: `atom` wrote the table.
    let (routines, mut entries) = unsafe {
        let [count, size] = [0, 1].map(|i| *head.add(i) as usize);
        let routines = core::slice::from_raw_parts(head.add(2), count);
        let entries = head.add(2 + count).cast::<u8>();
        (routines, core::slice::from_raw_parts(entries, size))
    };
    let (mut at, mut routine) = (0, 0);
    while at < wanted {
        let entry = leb128::next(&mut entries)?;
        if entry & 1 != 0 {
            routine = leb128::next(&mut entries)? as usize;
        }
        at += entry >> 1;
    }
    let in_file = u64::from(*routines.get(routine)?);
    (at == wanted).then(|| info::get().map(|info| info.code.addr() as u64 + in_file))?
}

/// Where control continues that is to come to an original address: at the label of the moved instruction, or
/// at a pad. `None`: there.
pub(crate) fn new_address(original: u64) -> Option<u64> {
    let (table, piece, inside) = find(original)?;
    if leads_to_new_text(&table, original) {
        return None;
    }
    let at = if inside == 0 {
        piece.label
    } else {
        piece.run + inside
    };
    Some(table.text() + u64::from(at))
}

/// The copy of an instruction that moved.
pub(crate) fn copy_of(original: u64) -> Option<u64> {
    let (table, piece, inside) = find(original)?;
    Some(table.text() + u64::from(piece.run + inside))
}

/// True if an instruction's bytes are not at its original address any more: a pad is there. `copy` is the
/// address of its copy, which begins with the same byte.
pub(crate) fn is_overwritten(original: u64, copy: u64) -> bool {
    opcode(original) != opcode(copy)
}

/// Opcodes of jumps with displacements of 32 and of 8 bits.
const JMP: u8 = 0xe9;
const JMP_SHORT: u8 = 0xeb;

/// A byte of an object's code, or of what is next to it.
fn opcode(at: u64) -> u8 {
    // SAFETY: the object is mapped, with what is between its procedures.
    unsafe { *pointer::<u8>(at as usize) }
}

/// The run in which an original address is, and the address's distance from the run's start.
fn find(original: u64) -> Option<(Table, Piece, u32)> {
    let table = Table::at(original)?;
    let offset = u32::try_from(original.wrapping_sub(table.image)).ok()?;
    let front = table.word(4) as usize;
    let after = table.procs()[front..].partition_point(|p| p.old <= offset);
    let mut pieces = table.records(front + after.checked_sub(1)?);
    let piece = pieces.find(|p| offset.wrapping_sub(p.old) < p.len)?;
    Some((table, piece, offset - piece.old))
}

/// True if a pad is at an original address: a jump to the new text, perhaps by way of another one nearby.
fn leads_to_new_text(table: &Table, mut address: u64) -> bool {
    if opcode(address) == JMP_SHORT {
        let distance = i64::from(opcode(address + 1) as i8);
        address = (address + 2).wrapping_add_signed(distance);
    }
    if opcode(address) != JMP {
        return false;
    }
    // SAFETY: as for the opcode; four bytes follow it.
    let distance = unsafe { pointer::<i32>(address as usize + 1).read_unaligned() };
    table.contains((address + 5).wrapping_add_signed(distance.into()))
}
