//! Evidence that bytes of the text are code.
//!
//! A pad overwrites bytes of the old text, which is right only where the program never reads these bytes as data. Tables in
//! the text look like code often enough: of random tables one in seven decodes without a contradiction. So evidence has a
//! strength.
//!
//! Proof: a frame description, a symbol of a function or Go's tables name a procedure there; proven code calls it or jumps to
//! it; a proven jump table leads to it; an initialiser; `endbr64`, GHC's info table in front of it. Code to which only a
//! pointer leads is proven if it calls the start of a proven procedure or an import, or jumps there by a displacement of 32
//! bits, since no table does that by chance, unless the pointer leads into the middle of an instruction.
//!
//! No proof: an address that code computes, a pointer in data, bytes that decode. Code to which nothing else leads stays in
//! place, and is reported ([`Discovery::settle_doubtful`]).
//!
//! Counter-evidence: a symbol of an object covers the bytes, an instruction reads them, or an address of them serves as the
//! base of loads.

use std::collections::BTreeSet;

use rayon::prelude::*;
use rustc_hash::FxHashSet;

use super::discovery::{Discovery, Tested};
use super::gaps::{Followed, KnownCode, is_all_padding, is_kernels};
use super::jump_code::{self, JumpForm};
use super::reaching::Reaching;
use super::regions::region_end;
use super::traverse::{Body, Others, Ref, mark, reaches_image};
use super::{ProcKind, jump_table, pointers};
use crate::image::{Image, decoded};
use crate::x86::jump_table::constant;
use crate::x86::{
    ControlFlow, CpuidFeature, Inst, Instruction, MAX_LEN, Mnemonic, OpKind, Register, Run,
    decode_at, direct_target, flow_of,
};

/// Number of instructions in which a call that proves code is looked for at most.
const SEARCHED: usize = 400;

/// Number of instructions in which the end of a procedure is looked for at most.
const LONGEST: usize = 4096;

/// Result of a search for a proof that there is code at an address.
enum Proof {
    /// It is proven.
    Found,
    /// It is not proven; where the address was searched for the first time, what was met.
    NotYet(Option<Tested>),
}

impl Discovery<'_> {
    /// Notes that proven code reads the text at an address. Unless `is_exact`, an index is added to the address, which
    /// may then are in front of a table, in the code that ends there.
    pub(super) fn note_read(&mut self, address: u64, is_exact: bool) {
        if region_end(&self.regions, address).is_none() {
            return;
        }
        let owner = self.body_at(address);
        let code = owner.filter(|i| {
            let marks = self.bodies[*i].mark_at(address);
            marks & (mark::START | mark::INSIDE) != 0
        });
        if !is_exact
            && code
                .is_some_and(|i| self.bodies[i].start != address && !self.is_behind_call(address))
        {
            return;
        }
        if self.data.read.insert(address)
            && let (Some(i), None) = (owner, code)
        {
            self.body_mut(i).add_mark(address, mark::DATA);
        }
    }

    /// True if bytes that are read were taken for code only since they are after a call, which perhaps
    /// never returns. `known` are the reads that discovery knew from the start.
    pub(super) fn has_followed_data(&self, known: &BTreeSet<u64>) -> bool {
        let new = self.data.read.difference(known);
        new.into_iter().any(|address| self.is_behind_call(*address))
    }

    /// True if the instruction at an address, if there is one, is after a call, without an end of control in between.
    fn is_behind_call(&self, address: u64) -> bool {
        let Some(around) = self.inst_around(address) else {
            return false;
        };
        let insts = &self.bodies[around.body].insts;
        let at = insts.partition_point(|x| x.offset < around.inst.offset);
        let adjoins = |pair: &&[Inst]| pair[0].offset + u32::from(pair[0].len) == pair[1].offset;
        let before = insts[..=at].windows(2).rev().take_while(adjoins);
        before
            .map(|pair| pair[0].flow)
            .take_while(|flow| !flow.ends_flow())
            .any(|flow| matches!(flow, ControlFlow::Call | ControlFlow::IndirectCall))
    }

    /// True if an address that is no known instruction is proven to be code by what is there, or by what leads there.
    pub(super) fn is_proven(&self, address: u64) -> bool {
        if self.data.contains(address) {
            return false;
        }
        if self.has_endbr(address) {
            return true;
        }
        if self.has_info_tables {
            return pointers::has_info_table(self.image, address);
        }
        let Some(i) = self.body_at(address) else {
            return false;
        };
        if self.seeds[i].kind == ProcKind::Plt {
            return true;
        }
        // A table of labels, to which a jump of the procedure goes.
        let body = &self.bodies[i];
        let reaching = Reaching::new(self.image, body);
        let by_pointer = |jump: &u64| {
            jump_code::form_of(self.image, body, *jump) == JumpForm::Pointer
                && jump_code::dissect(self.image, body, *jump, &reaching).is_none()
        };
        let mut jumps = body.indirect_jumps.iter().filter(|jump| by_pointer(jump));
        match self.stored.binary_search(&address) {
            Ok(_) => jumps.next().is_some(),
            Err(_) => jumps.any(|jump| self.goes_through(body, *jump, address)),
        }
    }

    /// True if an indirect jump goes through a register into which the procedure puts an address.
    fn goes_through(&self, body: &Body, jump: u64, address: u64) -> bool {
        let decode = |pc: u64| {
            let rest = self.image.rest_at(pc)?;
            decode_at(&rest[..rest.len().min(MAX_LEN)], pc)
        };
        let Some(jump) = decode(jump).filter(|jump| jump.op0_kind() == OpKind::Register) else {
            return false;
        };
        let puts = |i: Instruction| {
            i.op_count() == 2
                && i.op0_kind() == OpKind::Register
                && i.op0_register().full_register() == jump.op0_register()
                && (i.is_ip_rel_memory_operand() && i.memory_displacement64() == address
                    || i.mnemonic() == Mnemonic::Mov && constant(&i) == Some(address))
        };
        decoded(self.image, body.insts.iter()).any(puts)
    }

    /// The addresses among those without proof that are proven by now, with [`mark`] bits.
    pub(super) fn newly_proven(&mut self) -> Vec<(u64, u8)> {
        if self.doubtful.is_empty() || self.bodies.len() == self.bodies_at_last_proof {
            return Vec::new();
        }
        self.bodies_at_last_proof = self.bodies.len();
        let mut doubtful = std::mem::take(&mut self.doubtful);
        doubtful.sort_unstable();
        doubtful.dedup();
        let this = &*self;
        let judged: Vec<(u64, Proof)> = (doubtful.into_par_iter())
            .map(|address| (address, this.proof(address)))
            .collect();
        let mut proven = Vec::new();
        for (address, proof) in judged {
            match proof {
                Proof::Found => proven.push((address, mark::INDIRECT)),
                Proof::NotYet(tested) => {
                    self.tested.extend(tested.map(|tested| (address, tested)));
                    self.doubtful.push(address);
                }
            }
        }
        proven
    }

    /// Searches for a proof that an address without one is code.
    fn proof(&self, address: u64) -> Proof {
        let known = self.body_at(address);
        if known.is_some_and(|i| self.bodies[i].mark_at(address) & mark::START != 0) {
            return Proof::Found;
        }
        let mut targets = Vec::new();
        let is_found = match self.tested.get(&address) {
            // Since then more is known, so each search would end sooner. Only calls of what is known by now are new.
            Some(tested) => {
                tested.targets.iter().any(|target| self.is_start(*target))
                    && self.calls_known_code(address, &mut targets)
            }
            None => {
                self.calls_known_code(address, &mut targets)
                    || self.restores_registers(address)
                    || self.looks_like_code(address)
            }
        };
        match is_found {
            // It stays unproven, whatever becomes known.
            true if self.lies_inside_an_instruction(address) => Proof::NotYet(Some(Tested {
                targets: Box::default(),
            })),
            true => Proof::Found,
            false => Proof::NotYet((!self.tested.contains_key(&address)).then(|| Tested {
                targets: targets.into(),
            })),
        }
    }

    /// True if the code in front of an address seems to have an instruction across it. A number that happens to be an address
    /// of the text leads into the middle of an instruction as often as not, and the code after that instruction proves
    /// nothing about it.
    ///
    /// Code is decoded from the last known instruction on, if it is near. Else it is decoded from several places: in real code
    /// almost all of these runs soon meet the same instructions.
    fn lies_inside_an_instruction(&self, address: u64) -> bool {
        /// Bytes in front of the address where runs begin, and where they have to be alike.
        const LOOKED_AT: u64 = 64;
        const ALIKE: u64 = 16;
        let mut known = KnownCode::new(self);
        let mut is_known = |pc: u64| known.marks(pc) & (mark::START | mark::INSIDE) != 0;
        let is_in_region =
            |pc: &u64| region_end(&self.regions, *pc).is_some_and(|end| end > address);
        let from = address.saturating_sub(LOOKED_AT);
        let open = (from..address).rev().take_while(is_in_region);
        let open = open
            .take_while(|pc| !is_known(*pc))
            .last()
            .unwrap_or(address);
        let starts = if open > from {
            open..open + 1
        } else {
            from..address - ALIKE
        };
        let (mut across, mut before) = (0, 0);
        for start in starts {
            let mut run = Run::new(self.image.rest_at(start).unwrap_or(&[]), start);
            let (mut i, mut pc) = (Instruction::default(), start);
            while pc < address && run.next_into(&mut i) {
                pc = i.next_ip();
            }
            across += usize::from(pc > address);
            before += usize::from(pc == address);
        }
        across > before
    }

    /// True if a procedure starts at an address.
    fn is_start(&self, address: u64) -> bool {
        self.body_at(address)
            .is_some_and(|i| self.bodies[i].start == address)
    }

    /// True if bytes that are no known instructions call or jump to the start of a procedure by a displacement of 32 bits, or
    /// call an import, before control ends and before another address that something refers to. Adds the targets at which
    /// no procedure starts to `targets`.
    fn calls_known_code(&self, address: u64, targets: &mut Vec<u64>) -> bool {
        let Some(end) = region_end(&self.regions, address) else {
            return false;
        };
        let rest = self.image.bytes_at(address, (end - address) as usize);
        let mut run = Run::new(rest.unwrap_or(&[]), address);
        let mut known = KnownCode::new(self);
        let mut instruction = Instruction::default();
        let mut pc = address;
        for _ in 0..SEARCHED {
            if !self.is_open(&mut known, pc, address) || !run.next_into(&mut instruction) {
                return false;
            }
            let flow = flow_of(&instruction);
            let proves = match flow {
                // One displacement of eight bits in some hundred leads to a start by chance.
                ControlFlow::Jump if instruction.is_jmp_short() => false,
                ControlFlow::Call | ControlFlow::Jump => {
                    let target = direct_target(&instruction);
                    targets.extend(target);
                    target.is_some_and(|target| self.is_start(target))
                }
                ControlFlow::IndirectCall | ControlFlow::IndirectJump => {
                    instruction.is_ip_rel_memory_operand()
                        && self
                            .imports
                            .name(instruction.memory_displacement64())
                            .is_some()
                }
                _ => false,
            };
            if proves {
                return true;
            }
            if flow.ends_flow() {
                return false;
            }
            pc = instruction.next_ip();
        }
        false
    }

    /// True if the byte at `pc` is neither known code nor known data, and nothing refers to it unless it is `address`.
    fn is_open(&self, known: &mut KnownCode<'_, '_>, pc: u64, address: u64) -> bool {
        known.marks(pc) & (mark::START | mark::INSIDE) == 0
            && (pc == address || !self.pointers.contains(pc))
            && !self.data.contains(pc)
    }

    /// True if two of three instructions at an address are such as code has often and other bytes have rarely, of many
    /// different kinds. Tables of numbers do not look so: of the constants of Debian's libraries, tried at all multiples
    /// of 16, none does.
    fn looks_like_code(&self, address: u64) -> bool {
        let Some(end) = region_end(&self.regions, address) else {
            return false;
        };
        let mut known = KnownCode::new(self);
        let is_open = |pc| self.is_open(&mut known, pc, address);
        let rest = self.image.bytes_at(address, (end - address) as usize);
        is_typical_code(self.image, rest.unwrap_or(&[]), address, is_open)
    }

    /// True if code outside of all procedures begins by saving at least three registers, and somewhere before
    /// another address that something refers to restores them in the opposite order and returns.
    fn restores_registers(&self, address: u64) -> bool {
        const ENOUGH: usize = 3;
        let Some(end) = region_end(&self.regions, address) else {
            return false;
        };
        let rest = self.image.bytes_at(address, (end - address) as usize);
        let mut run = Run::new(rest.unwrap_or(&[]), address);
        let mut i = Instruction::default();
        // Pushes of arguments may follow those of saved registers.
        let ends_as = |restored: &[Register], saved: &[Register]| {
            saved.len() >= restored.len() && restored.iter().rev().eq(&saved[..restored.len()])
        };
        let mut known = KnownCode::new(self);
        let (mut saved, mut restored, mut is_start) = (Vec::new(), Vec::new(), true);
        let mut pc = address;
        for _ in 0..LONGEST {
            if !self.is_open(&mut known, pc, address) || !run.next_into(&mut i) {
                return false;
            }
            let register = (i.op0_kind() == OpKind::Register).then(|| i.op0_register());
            match (i.mnemonic(), register) {
                (Mnemonic::Push, Some(r)) if is_start => saved.push(r),
                (Mnemonic::Pop, Some(r)) => restored.push(r),
                (Mnemonic::Ret, _) if restored.len() >= ENOUGH && ends_as(&restored, &saved) => {
                    return true;
                }
                _ => {
                    is_start &= !saved.is_empty() && flow_of(&i) == ControlFlow::FallThrough;
                    restored.clear();
                }
            }
            if !is_start && saved.len() < ENOUGH {
                return false;
            }
            pc = i.next_ip();
        }
        false
    }

    /// Decides on the code that nothing proves. What lies outside of all procedures becomes a procedure that stays in
    /// place, with all that it reaches; a procedure with such bytes inside stays in place.
    pub(super) fn settle_doubtful(&mut self) {
        let mut followed = Followed::new(self.image);
        for address in std::mem::take(&mut self.lone) {
            self.end_open_body(address);
            match self.body_at(address) {
                None => self.doubtful.push(address),
                Some(i) => self.settle_behind(i, address),
            }
        }
        while !self.doubtful.is_empty() {
            let mut starts = Vec::new();
            for address in std::mem::take(&mut self.doubtful) {
                if self.data.contains(address) {
                    continue;
                }
                self.end_open_body(address);
                match self.body_at(address) {
                    Some(i) => self.settle_inside(i, address),
                    None if region_end(&self.regions, address).is_none() => {}
                    None if self.leads_through_padding(address) => {}
                    None => {
                        let callees = self.follow(address, &mut followed);
                        starts.extend(callees.map(|_| address));
                    }
                }
            }
            self.add_procs(starts, true);
            let targets = self.new_refs();
            let in_tables = self.find_open_tables(usize::MAX);
            for (target, bits) in targets.into_iter().chain(in_tables) {
                match self.body_at(target) {
                    Some(i) if self.bodies[i].mark_at(target) & mark::START != 0 => {
                        self.body_mut(i)
                            .add_mark(target, bits & !mark::DOUBTFUL | mark::LEADER);
                    }
                    Some(i) if bits & mark::ENTRY != 0 => self.settle_behind(i, target),
                    Some(_) => {}
                    None => self.doubtful.push(target),
                }
            }
        }
    }

    /// True if nothing but padding is between an address and the next known code or procedure.
    fn leads_through_padding(&self, address: u64) -> bool {
        let next = self.bodies.partition_point(|body| body.start <= address);
        let next = self.bodies.get(next).map_or(u64::MAX, |body| body.start);
        let end = region_end(&self.regions, address).map_or(address, |end| end.min(next));
        let known = self.body_at(address).map_or(&[][..], |i| {
            let body = &self.bodies[i];
            &body.marks[(address - body.start) as usize..]
        });
        let code = known.iter().position(|m| m & mark::START != 0);
        let size = code.unwrap_or((end - address) as usize);
        let bytes = self.image.bytes_at(address, size);
        bytes.is_none_or(is_all_padding)
    }

    /// Ends a body without a stated end after its code, if an address is there.
    fn end_open_body(&mut self, address: u64) {
        let Some(i) = self.body_at(address) else {
            return;
        };
        let is_open = self.seeds[i].end.is_none() && self.seeds[i].kind != ProcKind::Plt;
        if is_open && address >= self.bodies[i].code_end() {
            self.body_mut(i).end_at_code();
        }
    }

    /// Notes that the bytes at an address of a body may be code or data, if they are plausible code.
    fn settle_inside(&mut self, i: usize, address: u64) {
        let (image, body) = (self.image, &self.bodies[i]);
        if body.mark_at(address) & mark::START != 0 {
            self.body_mut(i)
                .add_mark(address, mark::INDIRECT | mark::LEADER);
            return;
        }
        if self.seeds[i].is_doubtful || !jump_table::is_plausible(image, body, address) {
            return;
        }
        let body = self.body_mut(i);
        let explore = |body: &mut Body| body.explore(image, address);
        if !body.attempt(image.base, Others::Earlier, explore) {
            return;
        }
        body.finish();
        body.add_mark(address, mark::INDIRECT);
        let start = body.start;
        self.ambiguous.entry(start).or_insert(address);
    }

    /// Notes that something without proof leads to an address of a body. If there may be code that is not known, it runs
    /// in place, and so does what it jumps to.
    fn settle_behind(&mut self, i: usize, address: u64) {
        let mut seen = FxHashSet::default();
        let mut work = vec![(i, address)];
        while let Some((i, address)) = work.pop() {
            let (image, body) = (self.image, &self.bodies[i]);
            let is_known = body.mark_at(address) & mark::START != 0;
            if is_known
                || !seen.insert(address)
                || !jump_table::is_plausible(image, body, address)
                || self.leads_through_padding(address)
            {
                continue;
            }
            let is_doubtful = self.seeds[i].is_doubtful;
            let body = self.body_mut(i);
            if is_doubtful {
                body.explore(image, address);
                body.finish();
                continue;
            }
            for r in body.refs_from(image, address) {
                if let Ref::Call(t) | Ref::Jump(t) | Ref::CondJump(t) = r {
                    match self.body_at(t) {
                        Some(j) => work.push((j, t)),
                        None => self.doubtful.push(t),
                    }
                }
            }
            self.pointers.insert(address);
            let start = self.bodies[i].start;
            self.uncounted.entry(start).or_insert(address);
        }
    }

    /// What a procedure that can move lacks: code inside that only code without proof enters.
    pub(super) fn gap(&self, i: usize) -> Option<String> {
        let address = self.uncounted.get(&self.seeds[i].start)?;
        Some(format!(
            "the bytes at {address:#x}, to which only what may be data leads, run in place if they are code"
        ))
    }

    /// Why a procedure stays in place for want of proof, or since its code is data too.
    pub(super) fn obstacle_in_evidence(&self, i: usize, read: &FxHashSet<usize>) -> Option<String> {
        if self.seeds[i].is_doubtful {
            return Some("only an address leads to it, which may be the address of data".into());
        }
        if read.contains(&i) {
            return Some("the program reads its instructions as data".into());
        }
        let address = self.ambiguous.get(&self.seeds[i].start)?;
        Some(format!(
            "the bytes at {address:#x}, to which only an address leads, may be code or data"
        ))
    }

    /// Numbers of the bodies whose instructions are read as data.
    pub(super) fn read_bodies(&self) -> FxHashSet<usize> {
        let all = self.data.read.iter();
        all.filter_map(|address| Some(self.inst_around(*address)?.body))
            .collect()
    }

    /// The addresses in the text that something refers to and at which no known instruction starts, in order.
    pub(super) fn text_references(&self) -> Vec<u64> {
        let objects = self.data.objects.iter().map(|o| o.0);
        let all = self.pointers.iter();
        let mut all: Vec<u64> = all
            .chain(self.data.read.iter().copied())
            .chain(objects)
            .filter(|address| {
                self.body_at(*address)
                    .is_none_or(|i| self.bodies[i].mark_at(*address) & mark::START == 0)
            })
            .collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// True if bytes look like the beginning of code: see [`Discovery::looks_like_code`].
fn is_typical_code(
    image: &Image,
    bytes: &[u8],
    address: u64,
    mut is_open: impl FnMut(u64) -> bool,
) -> bool {
    /// Number of instructions that are examined.
    const FIRST: usize = 24;
    /// Number of different typical instructions that there must be.
    const KINDS: usize = 5;
    let mut run = Run::new(bytes, address);
    let mut i = Instruction::default();
    let mut pc = address;
    let (mut kinds, mut typical) = (FxHashSet::default(), 0);
    for count in 1..=FIRST {
        if !is_open(pc)
            || !run.next_into(&mut i)
            || !reaches_image(image, &i)
            || is_kernels(&i, false)
        {
            return false;
        }
        if is_typical(&i) {
            typical += 1;
            kinds.insert(i.code());
        }
        let flow = flow_of(&i);
        if count == FIRST || flow.ends_flow() {
            let ends_well =
                !flow.ends_flow() || matches!(flow, ControlFlow::Return | ControlFlow::Jump);
            return ends_well && kinds.len() >= KINDS && 3 * typical >= 2 * count;
        }
        pc = i.next_ip();
    }
    false
}

/// True for instructions that are frequent in code and rare in bytes that are none: they have vector registers, or
/// 64-bit registers as operands of common operations.
fn is_typical(i: &Instruction) -> bool {
    let mut registers = (0..i.op_count())
        .filter(|op| i.op_kind(*op) == OpKind::Register)
        .map(|op| i.op_register(op));
    let is_3dnow = || i.cpuid_features().contains(&CpuidFeature::D3NOW);
    let is_common = matches!(
        i.mnemonic(),
        Mnemonic::Mov
            | Mnemonic::Movsxd
            | Mnemonic::Movzx
            | Mnemonic::Lea
            | Mnemonic::Add
            | Mnemonic::Sub
            | Mnemonic::Cmp
            | Mnemonic::Test
            | Mnemonic::Shl
            | Mnemonic::Shr
            | Mnemonic::Sar
            | Mnemonic::Imul
    );
    registers.any(|r| r.is_vector_register() && !is_3dnow() || is_common && r.is_gpr64())
        || matches!(i.mnemonic(), Mnemonic::Vzeroupper | Mnemonic::Endbr64)
}
