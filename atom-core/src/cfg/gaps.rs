//! Code outside of all known procedures.
//!
//! A stripped program without unwind tables names hardly any procedure. Procedures are
//! found by their callers and by pointers to them. A pointer may also lead
//! to a table in the text, so control is followed from it through all that it
//! calls, and any contradiction shows that the bytes are data.
//!
//! Code that is not found runs in the old text and enters moved
//! procedures by original addresses. Every such address needs a pad, so bytes
//! that discovery did not reach are searched for calls, jumps and addresses of code.

use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use rustc_hash::FxHashSet;

use rayon::prelude::*;

use super::addresses::{Addresses, Word};
use super::discovery::Discovery;
use super::regions::region_end;
use super::traverse::{Body, Ref, mark, reaches_image};
use crate::image::{Image, ImageDecoder};
use crate::x86::{
    ControlFlow, Instruction, decode_at, direct_target, flow_of, is_padding, padding_len,
};

/// Number of instructions without a contradiction that prove that bytes are code.
const ENOUGH: usize = 1 << 16;

/// Number of addresses at most from which threads follow control at the same time.
const AT_ONCE: usize = 256;

/// Results of following control from earlier addresses.
pub(super) struct Followed {
    /// Instructions from which no contradiction is reached.
    right: Addresses,
    /// Addresses from which a contradiction is reached.
    wrong: FxHashSet<u64>,
    /// Empty sets, for what is met from one address.
    spare: Mutex<Vec<Addresses>>,
}

/// What is met from one address.
#[derive(Default)]
struct Walk {
    /// The targets of calls that are in no procedure; `None` if the bytes cannot be code.
    callees: Option<Vec<u64>>,
    /// First and last instruction of each run of instructions one after the other.
    runs: Vec<(u64, u64)>,
    /// The instructions.
    met: Vec<Word>,
    /// Number of the instructions.
    count: usize,
}

impl Walk {
    /// True if an address is in a run.
    fn passes(&self, address: u64) -> bool {
        let mut runs = self.runs.iter();
        runs.any(|(first, last)| (*first..=*last).contains(&address))
    }
}

impl Followed {
    /// No results.
    pub(super) fn new(image: &Image) -> Self {
        Self {
            right: Addresses::new(image),
            wrong: FxHashSet::default(),
            spare: Mutex::default(),
        }
    }

    /// Adds what was met from an address.
    fn add(&mut self, address: u64, walk: Walk) -> Option<Vec<u64>> {
        if walk.callees.is_none() {
            self.wrong.insert(address);
            return None;
        }
        self.right.add(&walk.met);
        walk.callees
    }
}

impl Discovery<'_> {
    /// Follows control from an address outside of all procedures, also into callees. Returns
    /// the targets of calls that are in no procedure, or `None`
    /// if the bytes cannot be code.
    pub(super) fn follow(&self, address: u64, followed: &mut Followed) -> Option<Vec<u64>> {
        let walk = self.walk(address, followed);
        followed.add(address, walk)
    }

    /// Follows control from several addresses as [`Self::follow`] does.
    pub(super) fn follow_all(
        &self,
        addresses: &[u64],
        followed: &mut Followed,
    ) -> Vec<Option<Vec<u64>>> {
        let mut found = Vec::with_capacity(addresses.len());
        // What several addresses lead to is examined from each of them, so few are taken at once while much is new.
        let mut count = 1;
        while found.len() < addresses.len() {
            let rest = &addresses[found.len()..];
            let batch = &rest[..count.min(rest.len())];
            let known = &*followed;
            let walks: Vec<Walk> = (batch.par_iter())
                .map(|address| self.walk(*address, known))
                .collect();
            count = AT_ONCE.min(2 * count);
            let mut refused = Vec::new();
            for (address, mut walk) in batch.iter().zip(walks) {
                // The result is the same as one after the other. With what is known of the addresses before it, a walk may
                // be shorter, or end otherwise.
                let is_long = walk.count >= ENOUGH;
                let is_other = is_long
                    || walk.callees.is_none()
                    || refused.iter().any(|address| walk.passes(*address));
                if is_other && batch.len() > 1 {
                    walk = self.walk(*address, followed);
                }
                if walk.callees.is_none() {
                    refused.push(*address);
                }
                found.push(followed.add(*address, walk));
                if is_long {
                    count = 1;
                    break;
                }
            }
        }
        found
    }

    /// Follows control from an address.
    fn walk(&self, address: u64, followed: &Followed) -> Walk {
        let spare = followed
            .spare
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        let mut seen = spare.unwrap_or_else(|| Addresses::new(self.image));
        let mut walk = Walk::default();
        walk.callees = self.follow_from(address, followed, &mut seen, &mut walk);
        for (first, last) in &walk.runs {
            seen.take(*first, *last, &mut walk.met);
        }
        followed
            .spare
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(seen);
        walk
    }

    /// Follows control from an address. Adds the addresses of the instructions to `seen`, and their runs to `walk`.
    /// Returns what becomes [`Walk::callees`].
    fn follow_from(
        &self,
        address: u64,
        followed: &Followed,
        seen: &mut Addresses,
        walk: &mut Walk,
    ) -> Option<Vec<u64>> {
        let mut known = KnownCode::new(self);
        let mut region = 0..0;
        // Bytes that are not known to be data.
        let mut clear = 0..0;
        let mut decoder = ImageDecoder::new(self.image);
        let mut instruction = Instruction::default();
        let mut callees = Vec::new();
        let mut work = vec![address];
        // True until an instruction other than a fall-through is found.
        let mut is_straight = true;
        while let Some(leader) = work.pop() {
            let mut pc = leader;
            // Bytes after a call need not be code, as the callee may never return.
            let mut after_call = false;
            loop {
                // Where there are no marks, the address has not been reached yet.
                let marks = known.marks(pc);
                if marks & (mark::START | mark::INSIDE) == mark::INSIDE && !after_call {
                    return None;
                }
                if marks & (mark::START | mark::INSIDE) != 0 || after_call && known.is_in_body(pc) {
                    break;
                }
                if !clear.contains(&pc) {
                    clear = pc..self.data.next_from(pc);
                }
                if clear.is_empty() {
                    if after_call { break } else { return None }
                }
                let place = followed.right.place(pc);
                let is_met = place.is_some_and(|at| followed.right.has(at) || seen.has(at));
                if is_met || walk.count >= ENOUGH {
                    break;
                }
                if !region.contains(&pc) {
                    region = region_end(&self.regions, pc).map_or(0..0, |end| pc..end);
                }
                let is_code = region.contains(&pc)
                    && decoder.decode_into(pc, &mut instruction)
                    && instruction.next_ip() <= region.end
                    && reaches_image(self.image, &instruction)
                    && !is_kernels(&instruction, is_straight);
                if !is_code {
                    if after_call { break } else { return None }
                }
                if followed.wrong.contains(&pc) {
                    return None;
                }
                if let Some(place) = place {
                    seen.set(place);
                }
                match walk.runs.last_mut() {
                    Some(run) if pc != leader => run.1 = pc,
                    _ => walk.runs.push((pc, pc)),
                }
                walk.count += 1;
                let flow = flow_of(&instruction);
                is_straight &= flow == ControlFlow::FallThrough;
                pc = instruction.next_ip();
                if let Some(target) = direct_target(&instruction) {
                    work.push(target);
                    if flow == ControlFlow::Call && target != pc && !known.is_in_body(target) {
                        callees.push(target);
                    }
                }
                if flow.ends_flow() {
                    break;
                }
                after_call = matches!(flow, ControlFlow::Call | ControlFlow::IndirectCall);
            }
        }
        Some(callees)
    }

    /// Marks the addresses that code which discovery did not reach may enter, and the addresses in pointers.
    pub(super) fn mark_entries_from_unreached(&mut self) {
        let this = &*self;
        let targets: Vec<(usize, u64)> = this
            .unreached()
            .into_par_iter()
            .flat_map_iter(|gap| code_targets(this.image, gap))
            // A pointer may lead to code that was found after the pointer was processed.
            .chain(this.pointers.iter().collect::<Vec<_>>())
            .filter_map(|t| {
                let i = this.body_at(t)?;
                (this.bodies[i].mark_at(t) & mark::START != 0).then_some((i, t))
            })
            .collect();
        for (i, target) in targets {
            self.body_mut(i)
                .add_mark(target, mark::INDIRECT | mark::LEADER);
            self.pointers.insert(target);
        }
    }

    /// Ranges of executable bytes that belong to no instruction.
    fn unreached(&self) -> Vec<(u64, u64)> {
        let inside = self.bodies.par_iter().flat_map_iter(|body| {
            let is_code = |m: &u8| m & (mark::START | mark::INSIDE) != 0;
            let mut at = 0;
            std::iter::from_fn(move || {
                let rest = body.marks.get(at..)?;
                let first = at + rest.iter().position(|m| !is_code(m))?;
                let rest = &body.marks[first..];
                at = first + rest.iter().position(is_code).unwrap_or(rest.len());
                Some((body.start + first as u64, body.start + at as u64))
            })
        });
        let mut gaps: Vec<(u64, u64)> = inside.collect();
        for (start, end) in &self.regions {
            let mut at = *start;
            let first = self.bodies.partition_point(|b| b.end <= *start);
            for body in &self.bodies[first..] {
                if body.start >= *end {
                    break;
                }
                if at < body.start {
                    gaps.push((at, body.start));
                }
                at = at.max(body.end);
            }
            if at < *end {
                gaps.push((at, *end));
            }
        }
        gaps
    }
}

/// What is known of the code at addresses. Neighbouring addresses are asked for one after the other, so the answer for one
/// is kept with the range in which it is the same.
pub(super) struct KnownCode<'d, 'a> {
    discovery: &'d Discovery<'a>,
    /// The range of a body, or between bodies.
    range: Range<u64>,
    /// The marks of the body.
    marks: Option<&'d [u8]>,
}

impl<'d, 'a> KnownCode<'d, 'a> {
    /// Nothing was asked for yet.
    pub(super) fn new(discovery: &'d Discovery<'a>) -> Self {
        Self {
            discovery,
            range: 0..0,
            marks: None,
        }
    }

    /// The [`mark`] bits at an address; none if it is in no body.
    pub(super) fn marks(&mut self, address: u64) -> u8 {
        if !self.range.contains(&address) {
            (self.range, self.marks) = self.discovery.around(address);
        }
        let marks = self.marks;
        marks.map_or(0, |marks| marks[(address - self.range.start) as usize])
    }

    /// True if an address is in a body.
    pub(super) fn is_in_body(&mut self, address: u64) -> bool {
        self.marks(address);
        self.marks.is_some()
    }
}

/// True for privileged instructions and port accesses. Tables of numbers contain many byte sequences
/// that decode to them, programs hardly any. Programs may use `hlt` to stop, but not before a branch
/// (`at_once`: no branch came before).
pub(super) fn is_kernels(instruction: &Instruction, at_once: bool) -> bool {
    use crate::x86::Mnemonic::{Cli, Hlt, In, Insb, Insd, Insw, Out, Outsb, Outsd, Outsw, Sti};
    let mnemonic = instruction.mnemonic();
    let moves_ports = matches!(
        mnemonic,
        In | Insb | Insw | Insd | Out | Outsb | Outsw | Outsd
    );
    moves_ports
        || matches!(mnemonic, Cli | Sti)
        || instruction.is_privileged() && (mnemonic != Hlt || at_once)
}

/// Targets of instructions in a range of unknown bytes, and code addresses that the instructions may take.
///
/// It is not known where instructions start. Decoding one after the other from the start of the range is
/// right for code, and finds the boundaries again soon after data. Instructions that reach far are looked for at
/// every byte: a wrong one hardly ever leads to the start of an instruction.
fn code_targets(image: &Image, (start, end): (u64, u64)) -> Vec<u64> {
    let bytes = image
        .bytes_at(start, (end - start) as usize)
        .unwrap_or_default();
    let mut targets = Vec::new();
    if is_all_padding(bytes) {
        return targets;
    }
    let mut body = Body::default();
    let mut boundary = 0;
    for at in 0..bytes.len() {
        let rest = &bytes[at..bytes.len().min(at + 15)];
        let reaches_far = matches!(
            rest,
            [0xe8 | 0xe9 | 0x8d, ..]
                | [0x0f, 0x80..=0x8f, ..]
                | [0xb8..=0xbf | 0x68, ..]
                | [0x40..=0x4f, 0xc7, ..]
        );
        if at != boundary && !reaches_far {
            continue;
        }
        let pc = start + at as u64;
        let instruction = decode_at(rest, pc);
        if at == boundary {
            boundary += instruction.as_ref().map_or(1, |i| i.len());
        }
        if let Some(instruction) = instruction {
            targets.extend(direct_target(&instruction));
            body.note_refs(image, &instruction, flow_of(&instruction));
        }
    }
    if flows_out(bytes, start) {
        targets.push(end);
    }
    targets.extend(body.refs.iter().filter_map(|r| match r {
        Ref::Address(t) | Ref::Code(t) => Some(*t),
        _ => None,
    }));
    targets
}

/// True if all bytes are padding.
pub(super) fn is_all_padding(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    while let Some(len) = padding_len(rest) {
        rest = &rest[len..];
    }
    rest.is_empty()
}

/// True if an instruction may end at the end of the range and control continue after it. Padding alone does
/// not count, since control comes to the aligned code by other ways.
fn flows_out(bytes: &[u8], start: u64) -> bool {
    if is_all_padding(bytes) {
        return false;
    }
    (1..=bytes.len().min(15)).any(|length| {
        let at = bytes.len() - length;
        decode_at(&bytes[at..], start + at as u64)
            .is_some_and(|i| i.len() == length && !flow_of(&i).ends_flow() && !is_padding(&i))
    })
}

#[cfg(test)]
mod tests {
    use super::{flows_out, is_kernels};
    use crate::x86::decode_at;

    #[test]
    fn programs_leave_the_machine_alone() {
        let is_kernels = |bytes: &[u8], at_once| {
            let instruction = decode_at(bytes, 0x1000).expect("it is valid");
            assert_eq!(instruction.len(), bytes.len());
            is_kernels(&instruction, at_once)
        };
        // in %dx,%al; insb; out %eax,$0x80; cli; sti; wrmsr; mov %rax,%cr3; lgdt (%rax)
        let of_the_kernel: [&[u8]; 8] = [
            &[0xec],
            &[0x6c],
            &[0xe7, 0x80],
            &[0xfa],
            &[0xfb],
            &[0x0f, 0x30],
            &[0x0f, 0x22, 0xd8],
            &[0x0f, 0x01, 0x10],
        ];
        assert!(of_the_kernel.iter().all(|bytes| is_kernels(bytes, false)));
        // rdtsc; rdpmc; syscall; ud2; int3; int $0x80; wrfsbase %rax; xgetbv; cpuid; mov %fs,%eax
        let of_programs: [&[u8]; 10] = [
            &[0x0f, 0x31],
            &[0x0f, 0x33],
            &[0x0f, 0x05],
            &[0x0f, 0x0b],
            &[0xcc],
            &[0xcd, 0x80],
            &[0xf3, 0x48, 0x0f, 0xae, 0xd0],
            &[0x0f, 0x01, 0xd0],
            &[0x0f, 0xa2],
            &[0x8c, 0xe0],
        ];
        assert!(!of_programs.iter().any(|bytes| is_kernels(bytes, true)));
        // hlt
        assert!(is_kernels(&[0xf4], true) && !is_kernels(&[0xf4], false));
    }

    #[test]
    fn padding_leads_nowhere() {
        // `nopl 0(%rax,%rax,1)`: its last two bytes alone would be an addition.
        assert!(!flows_out(&[0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0], 0x1308));
        assert!(!flows_out(&[0xcc, 0xcc, 0x66, 0x90], 0x1000));
        assert!(!flows_out(&[], 0x1000));
    }

    #[test]
    fn code_goes_on() {
        // `inc %eax`, also after padding.
        assert!(flows_out(&[0xff, 0xc0], 0x1000));
        assert!(flows_out(&[0x90, 0xff, 0xc0], 0x1000));
        // `ret` does not.
        assert!(!flows_out(&[0xc3], 0x1000));
    }
}
