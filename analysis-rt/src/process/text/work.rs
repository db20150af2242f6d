//! Puts procedures of one object in place, by the object's table.

use core::slice;
use core::sync::atomic::{AtomicPtr, Ordering};

use atom_abi::TextTable;

use super::writer::{FIELD, Writer};
use super::{IN_PLACE, MARKS, marks_of, object_count};
use crate::sys::memory;

/// A mark of a procedure that moved.
pub(super) type Mark = u8;
/// It runs in the new text.
const MOVED: Mark = 0;
/// It is being put in place.
const NOW: Mark = 1;
/// It runs in place.
pub(super) const DONE: Mark = 2;

/// A procedure that moved. Addresses are those in the file.
#[derive(Clone, Copy)]
struct Proc {
    start: u64,
    end: u64,
    new_start: u64,
}

/// A changed piece of the original text.
struct Change<'a> {
    at: u64,
    /// An address of the procedure to which it belongs.
    owner: u64,
    original: &'a [u8],
}

/// The table of one object, read.
pub(super) struct Work {
    table: &'static TextTable,
    bias: u64,
    procs: &'static mut [Proc],
    marks: &'static mut [Mark],
    /// Numbers after the procedures.
    rest: &'static [u8],
}

impl Drop for Work {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`, to which nothing refers any more.
        unsafe { memory::unmap(self.procs.as_mut_ptr().cast(), size_of_val(self.procs)) };
    }
}

/// The next number of a table, which `atom` wrote.
fn next(numbers: &mut &[u8]) -> u64 {
    leb128::next(numbers).unwrap_or(0)
}

/// The next bytes of a table.
fn bytes<'a>(numbers: &mut &'a [u8], len: usize) -> &'a [u8] {
    let (bytes, rest) = numbers.split_at(len.min(numbers.len()));
    *numbers = rest;
    bytes
}

impl Work {
    /// Reads the procedures. `None` if there is no memory.
    pub(super) fn new(object: usize, table: &'static TextTable, bias: u64) -> Option<Self> {
        let count = table.procs as usize;
        if MARKS.load(Ordering::Acquire).is_null() {
            // Libraries may be added.
            let count = object_count().max(atom_abi::MOST_OBJECTS);
            let all = memory::map(count * size_of::<AtomicPtr<u8>>());
            MARKS.store(all.cast(), Ordering::Release);
        }
        let marks = marks_of(object)?;
        if marks.load(Ordering::Acquire).is_null() {
            marks.store(memory::map(count), Ordering::Release);
        }
        let marks = marks.load(Ordering::Acquire);
        if marks.is_null() || count == 0 {
            return None;
        }
        let procs = memory::map(count * size_of::<Proc>()).cast::<Proc>();
        if procs.is_null() {
            return None;
        }
        // SAFETY: the numbers are after the structure; both mappings are large enough, and zeros are valid.
        let (mut numbers, procs, marks) = unsafe {
            let behind = core::ptr::from_ref(table).add(1).cast::<u8>();
            (
                slice::from_raw_parts(behind, table.size as usize),
                slice::from_raw_parts_mut(procs, count),
                slice::from_raw_parts_mut(marks, count),
            )
        };
        let (mut old, mut new) = (table.image, table.new_text);
        for proc in procs.iter_mut() {
            let start = old + next(&mut numbers);
            old = start + next(&mut numbers);
            new += next(&mut numbers);
            *proc = Proc {
                start,
                end: old,
                new_start: new,
            };
        }
        Some(Self {
            table,
            bias,
            procs,
            marks,
            rest: numbers,
        })
    }

    /// The procedure at an original address.
    fn proc_at(&self, address: u64) -> Option<usize> {
        let behind = self.procs.partition_point(|p| p.start <= address);
        let i = behind.checked_sub(1)?;
        (address < self.procs[i].end).then_some(i)
    }

    /// Puts procedures in place, with those that have to follow.
    pub(super) fn put_in_place(mut self, from: u64, to: u64) {
        let first = self.procs.partition_point(|p| p.end <= from);
        let end = self.procs.partition_point(|p| p.start < to);
        let mut any = false;
        for i in first..end.max(first) {
            any |= self.mark(i);
        }
        while self.follow(from, to) {
            any = true;
        }
        if !any {
            return;
        }
        let mut writer = Writer::default();
        if self.write(&mut writer) {
            let now = self.marks.iter_mut().filter(|mark| **mark == NOW);
            let count = now.map(|mark| *mark = DONE).count();
            IN_PLACE.fetch_add(count, Ordering::Relaxed);
        } else {
            // The kernel does not permit it, and will not permit the application's own call.
            let now = self.marks.iter_mut().filter(|mark| **mark == NOW);
            now.for_each(|mark| *mark = MOVED);
        }
        writer.close();
    }

    /// Marks a procedure; true if it ran in the new text.
    fn mark(&mut self, proc: usize) -> bool {
        let is_new = self.marks[proc] == MOVED;
        if is_new {
            self.marks[proc] = NOW;
        }
        is_new
    }

    /// Marks procedures that have to follow those that are marked; true if there were any.
    fn follow(&mut self, from: u64, to: u64) -> bool {
        let mut any = false;
        let mut numbers = self.rest;
        for _ in 0..self.table.pairs {
            let pair = [next(&mut numbers) as usize, next(&mut numbers) as usize];
            if pair.iter().any(|p| self.marks[*p] != MOVED) {
                any |= self.mark(pair[0]) | self.mark(pair[1]);
            }
        }
        let range = from..to;
        self.each_change(&mut numbers, |work, change| {
            let is_concerned = range.contains(&change.at)
                || work
                    .proc_at(change.at)
                    .is_some_and(|p| work.marks[p] != MOVED);
            if is_concerned && let Some(owner) = work.proc_at(change.owner) {
                any |= work.mark(owner);
            }
            true
        });
        self.each_branch(&mut numbers, |work, field, target, _| {
            if range.contains(&field)
                && let Some(to) = work.proc_at(target)
            {
                any |= work.mark(to);
            }
            true
        });
        any
    }

    /// Calls `each` with each change of the text, until it answers false.
    fn each_change(
        &mut self,
        numbers: &mut &'static [u8],
        mut each: impl FnMut(&mut Self, &Change<'static>) -> bool,
    ) -> bool {
        let mut at = self.table.image;
        for _ in 0..self.table.changes {
            at += next(numbers);
            let owner = at.wrapping_add_signed(leb128::unzigzag(next(numbers)));
            let len = next(numbers) as usize;
            let original = bytes(numbers, len);
            let change = Change {
                at,
                owner,
                original,
            };
            if !each(self, &change) {
                return false;
            }
        }
        true
    }

    /// Calls `each` with each changed displacement, its original target and its original bytes, until it answers false.
    fn each_branch(
        &mut self,
        numbers: &mut &'static [u8],
        mut each: impl FnMut(&mut Self, u64, u64, [u8; FIELD]) -> bool,
    ) -> bool {
        let mut at = self.table.image;
        for _ in 0..self.table.branches {
            at += next(numbers);
            let Ok(original) = <[u8; FIELD]>::try_from(bytes(numbers, FIELD)) else {
                return false;
            };
            let distance = i32::from_le_bytes(original);
            let target = (at + FIELD as u64).wrapping_add_signed(distance.into());
            if !each(self, at, target, original) {
                return false;
            }
        }
        true
    }

    /// Changes the code; false if the kernel does not permit it, in which case nothing is changed.
    fn write(&mut self, writer: &mut Writer) -> bool {
        let mut numbers = self.rest;
        for _ in 0..2 * self.table.pairs {
            next(&mut numbers);
        }
        let mut all = numbers;
        // The numbers in front of the displacements of the new text.
        self.each_change(&mut numbers, |_, _| true);
        self.each_branch(&mut numbers, |_, _, _, _| true);
        let mut field = self.table.new_text;
        for _ in 0..self.table.sites {
            field += next(&mut numbers);
            if !self.lead_to_original(writer, field) {
                return false;
            }
        }
        self.each_change(&mut all, |work, change| {
            let is_ours = |p| work.marks[p] == NOW;
            !work.proc_at(change.owner).is_some_and(is_ours)
                || writer.put(change.at.wrapping_add(work.bias), change.original)
        }) && self.each_branch(&mut all, |work, at, target, original| {
            let mark = |address| work.proc_at(address).map(|p| work.marks[p]);
            // A call of a procedure that moved may stay in the original text.
            let is_ours = match mark(at) {
                Some(NOW) => true,
                None | Some(MOVED) => mark(target) == Some(NOW),
                _ => false,
            };
            !is_ours || writer.put(at.wrapping_add(work.bias), &original)
        })
    }

    /// Leads a direct call or jump of the new text to the original entry, if it leads to a procedure that is put in place.
    fn lead_to_original(&self, writer: &mut Writer, field: u64) -> bool {
        let address = field.wrapping_add(self.bias);
        // SAFETY: the displacement is a part of the new text, which is mapped.
        let distance =
            unsafe { core::ptr::with_exposed_provenance::<i32>(address as usize).read_unaligned() };
        let target = (field + FIELD as u64).wrapping_add_signed(distance.into());
        let Ok(proc) = self.procs.binary_search_by_key(&target, |p| p.new_start) else {
            return true;
        };
        if self.marks[proc] != NOW {
            return true;
        }
        let distance = self.procs[proc].start.wrapping_sub(field + FIELD as u64) as i32;
        writer.put(address, &distance.to_le_bytes())
    }
}
