//! Reasons why a procedure stays in place.
//!
//! A procedure that moves must be understood in full. Others stay in place, where they work as before,
//! and are reported with the reason.

use rustc_hash::FxHashSet;

use object::elf;
use rayon::prelude::*;

use super::build::{Discovery, region_end};
use super::jump_code::{self, JumpForm};
use super::jump_table::FoundTable;
use super::seeds::{FrameFacts, Seed};
use super::traverse::{Body, Ref};
use super::{Kept, frame_tables, go_stack};
use crate::image::{Image, decoded};
use crate::x86::{ControlFlow, Inst};

/// Which indirect jumps and which bodies have jump tables. Tables in the text are left out: such a
/// table might be taken for code and get a pad.
struct TableOwners {
    /// Jumps whose table is known.
    jumps: FxHashSet<u64>,
    /// Jumps of whose table only a part is understood.
    partial_jumps: FxHashSet<u64>,
    /// Numbers of bodies in which a table leads. Where a jump's own table is not known, all tables
    /// of the body were looked for.
    bodies: FxHashSet<usize>,
}

impl TableOwners {
    fn new(discovery: &Discovery<'_>, tables: &[FoundTable]) -> Self {
        let outside_text = || {
            let is_outside = |t: &&FoundTable| region_end(&discovery.regions, t.table).is_none();
            tables.iter().filter(is_outside)
        };
        Self {
            jumps: outside_text().filter_map(|t| t.jump).collect(),
            partial_jumps: tables
                .iter()
                .filter(|t| t.is_short)
                .filter_map(|t| t.jump)
                .collect(),
            bodies: outside_text()
                .filter_map(|t| discovery.body_at(*t.targets.first()?))
                .collect(),
        }
    }
}

/// Why a procedure stays in place, for each body; the first reason found counts.
type Reasons = Vec<Option<String>>;

impl Discovery<'_> {
    /// Why a procedure stays in place, for each body. The return addresses of the procedures in
    /// `described` stand in tables.
    pub(super) fn obstacles(
        &self,
        frames: &FrameFacts,
        tables: &[FoundTable],
        described: &FxHashSet<usize>,
        kept: &Kept,
    ) -> Reasons {
        let owners = TableOwners::new(self, tables);
        let bodies = self.bodies.par_iter().enumerate();
        let mut reasons: Reasons = bodies
            .map(|(i, body)| {
                let is_go = self.seeds[i].is_go;
                self.obstacle_before_code(body, kept)
                    .or_else(|| (!is_go).then(|| self.obstacle_in_return_addresses(body))?)
                    .or_else(|| self.obstacle_in_jumps(i, body, &owners, is_go))
            })
            .collect();
        for range in &frames.ranges {
            if let (Some(reason), Some(i)) = (&range.obstacle, self.body_at(range.start)) {
                reasons[i].get_or_insert_with(|| {
                    format!("its exception tables cannot be moved: {reason}")
                });
            }
        }
        self.add_return_address_readers(frames, &mut reasons);
        for (i, address) in self.relocated() {
            reasons[i].get_or_insert_with(|| {
                format!(
                    "the dynamic loader changes its instruction at {address:#x} (a text relocation)"
                )
            });
        }
        let mut add = |bodies: Vec<usize>, reason: &str| {
            for i in bodies {
                reasons[i].get_or_insert_with(|| reason.to_string());
            }
        };
        add(
            described.iter().copied().collect(),
            "the program looks its return addresses up in a table (OCaml)",
        );
        add(
            go_stack::tight(frames, &self.bodies),
            "it may run at the end of a goroutine's stack, with too little left for inserted code",
        );
        add(
            self.before_start(),
            "an IFUNC resolver calls it before the program is initialised",
        );
        add(
            self.self_examining(),
            "V8 looks the return addresses of its built-in code up in a table",
        );
        add(
            self.restartable(),
            "it contains a restartable sequence (rseq)",
        );
        reasons
    }

    /// Why a procedure stays in place whatever its indirect jumps do.
    fn obstacle_before_code(&self, body: &Body, kept: &Kept) -> Option<String> {
        let image = self.image;
        let (Some(first), Some(last)) = (body.insts.first(), body.insts.last()) else {
            return Some("no instruction could be decoded".to_string());
        };
        let in_header = |i: &Inst| image.is_header(image.base + u64::from(i.offset), i.len.into());
        let span = last.offset + u32::from(last.len) - first.offset;
        let start = image.base + u64::from(first.offset);
        if image.is_header(start, span.into()) && body.insts.iter().any(in_header) {
            return Some("it lies in the headers of the file".to_string());
        }
        if let Some(reason) = kept.get(&body.start) {
            return Some(reason.clone());
        }
        let (pc, reason) = body.obstacle.as_ref()?;
        Some(format!("{reason} at {pc:#x}"))
    }

    /// Why a procedure stays in place that looks at return addresses of its own calls.
    fn obstacle_in_return_addresses(&self, body: &Body) -> Option<String> {
        let pc = looks_back(self.image, body)?;
        Some(format!(
            "after a call it looks at {pc:#x} where that returned to"
        ))
    }

    /// An indirect jump whose targets are not known, as the reason why body number `i` stays in place.
    /// Go's own functions jump by a computed address to the start of a function, or to where a goroutine goes on.
    fn obstacle_in_jumps(
        &self,
        i: usize,
        body: &Body,
        owners: &TableOwners,
        is_go: bool,
    ) -> Option<String> {
        let is_own_label =
            |r: &Ref| matches!(r, Ref::Address(t) if body.contains(*t) && *t != body.start);
        let own_labels = body.refs.iter().any(is_own_label);
        body.indirect_jumps.iter().find_map(|jump| {
            match jump_code::form_of(self.image, body, *jump) {
                _ if owners.partial_jumps.contains(jump) => Some(format!(
                    "only a part of the jump table of the indirect jump at {jump:#x} is understood"
                )),
                _ if owners.jumps.contains(jump) => None,
                JumpForm::Pointer => None,
                _ if owners.bodies.contains(&i) && !own_labels => None,
                JumpForm::RelativeTable => Some(format!(
                    "the jump table of the indirect jump at {jump:#x} was not found"
                )),
                JumpForm::Computed if is_go && !own_labels => None,
                JumpForm::Computed => Some(format!(
                    "the indirect jump at {jump:#x} goes to a computed address"
                )),
            }
        })
    }

    /// Adds the procedures that change their return address, and the procedures that call one
    /// which takes its return address as data.
    fn add_return_address_readers(&self, frames: &FrameFacts, reasons: &mut Reasons) {
        let image = self.image;
        let mut readers: FxHashSet<u64> = self
            .bodies
            .par_iter()
            .zip(&self.seeds)
            .filter(|(b, seed)| !seed.is_go && reads_return_address(image, b, b.start))
            .map(|(b, _)| b.start)
            .collect();
        self.drop_parts(frames, &mut readers);
        // The code to which such a procedure returns expects arguments, not results.
        for (body, reason) in self.bodies.iter().zip(&mut *reasons) {
            if readers.contains(&body.start)
                && adds_to_return_address(instructions(image, body, body.start))
            {
                reason.get_or_insert_with(|| "it changes its return address".into());
            }
        }
        self.add_jumps_to(&mut readers);
        let bodies = self.bodies.iter().zip(&self.seeds);
        for ((body, seed), reason) in bodies.zip(&mut *reasons) {
            let outside = body.refs.iter().find_map(|r| match r {
                Ref::Call(t) if readers.contains(t) => Some(*t),
                _ => None,
            });
            let call = outside.or_else(|| {
                let local = body.local_calls.iter().copied();
                let mut local = local.filter(|_| !seed.is_go);
                local.find(|t| reads_return_address(image, body, *t))
            });
            if let Some(t) = call {
                reason.get_or_insert_with(|| {
                    format!("it calls {t:#x}, which takes its return address as data")
                });
            }
        }
    }

    /// Removes parts of other procedures (`foo.cold`), which are only jumped to. Their first
    /// instructions may undo the beginning of `foo`, for example `pop %rdx` for `sub $8,%rsp`, so
    /// they look like a procedure that takes its return address. The frame description of a part
    /// says that more than the return address lies on the stack; a symbol says it by its name.
    fn drop_parts(&self, frames: &FrameFacts, readers: &mut FxHashSet<u64>) {
        let is_part = |start: u64| {
            let range = frames.ranges.binary_search_by_key(&start, |r| r.start);
            match range {
                Ok(i) => frames.ranges[i].is_in_frame,
                Err(_) => self
                    .body_at(start)
                    .is_some_and(|i| self.seeds[i].looks_like_fragment),
            }
        };
        let parts: FxHashSet<u64> = readers.iter().copied().filter(|r| is_part(*r)).collect();
        if parts.is_empty() {
            return;
        }
        // Hand-written code may describe its frame wrongly.
        let called: FxHashSet<u64> = self
            .bodies
            .par_iter()
            .flat_map_iter(|b| &b.refs)
            .filter_map(|r| match r {
                Ref::Call(t) if parts.contains(t) => Some(*t),
                _ => None,
            })
            .collect();
        readers.retain(|r| !parts.contains(r) || called.contains(r));
    }

    /// Adds the procedures that jump to one of `readers`, which then reads their return address.
    fn add_jumps_to(&self, readers: &mut FxHashSet<u64>) {
        let mut found = readers.len();
        while found != 0 {
            let more: Vec<u64> = self
                .bodies
                .par_iter()
                .filter(|b| !readers.contains(&b.start))
                .filter(|b| {
                    b.refs
                        .iter()
                        .any(|r| matches!(r, Ref::Jump(t) if readers.contains(t)))
                })
                .map(|b| b.start)
                .collect();
            found = more.len();
            readers.extend(more);
        }
    }

    /// Numbers of bodies whose return addresses stand in descriptors of frames. A single
    /// word that looks like a descriptor proves nothing: tables of functions have many such words, and some
    /// functions lie behind a call. In a table of descriptors nearly all addresses lie behind calls.
    pub(super) fn described(&self) -> FxHashSet<usize> {
        const ENOUGH: usize = 32;
        let behind_call = |address: u64| {
            let (i, inst, last) = self.inst_around(address - 1)?;
            let is_call = matches!(inst.flow, ControlFlow::Call | ControlFlow::IndirectCall);
            (is_call && inst.offset + u32::from(inst.len) == last + 1).then_some(i)
        };
        let callers: Vec<Option<usize>> = frame_tables::described(self.image)
            .iter()
            .map(|address| behind_call(*address))
            .collect();
        let found = frame_tables::in_tables(&callers);
        if found.len() < ENOUGH {
            return FxHashSet::default();
        }
        found.into_iter().collect()
    }

    /// Numbers of bodies with relocations in their instructions, and the relocated addresses. The loader
    /// would not relocate a copy.
    fn relocated(&self) -> Vec<(usize, u64)> {
        self.image
            .relocs
            .par_iter()
            .filter(|r| self.image.is_code(r.address))
            .filter_map(|r| {
                let (i, ..) = self.inst_around(r.address)?;
                Some((i, r.address))
            })
            .collect()
    }

    /// The instruction that contains a byte: the number of its body, the instruction, and the
    /// byte's offset from the image's base.
    fn inst_around(&self, address: u64) -> Option<(usize, &Inst, u32)> {
        let i = self.body_at(address)?;
        let offset = u32::try_from(address - self.image.base).ok()?;
        let insts = &self.bodies[i].insts;
        let next = insts.partition_point(|inst| inst.offset <= offset);
        let inst = insts.get(next.checked_sub(1)?)?;
        (offset < inst.offset + u32::from(inst.len)).then_some((i, inst, offset))
    }

    /// Numbers of bodies of IFUNC resolvers of an object in which the runtime lies, and of their callees.
    /// The dynamic loader runs them before any inserted code can run. In a whole process inserted code
    /// can run from the beginning.
    fn before_start(&self) -> Vec<usize> {
        if !self.image.is_started_by_loader() {
            return Vec::new();
        }
        let resolvers = self
            .image
            .relocs
            .iter()
            .filter(|r| r.kind == elf::R_X86_64_IRELATIVE)
            .map(|r| r.addend as u64);
        let exported = self
            .image
            .dynamic_symbols
            .iter()
            .filter(|s| s.is_ifunc && !s.is_undefined)
            .map(|s| s.address);
        let mut work: Vec<usize> = resolvers
            .chain(exported)
            .filter_map(|a| self.body_at(a))
            .collect();
        let mut seen = FxHashSet::default();
        while let Some(i) = work.pop() {
            if seen.insert(i) {
                work.extend(self.bodies[i].refs.iter().filter_map(|r| match r {
                    Ref::Call(t) | Ref::Jump(t) | Ref::CondJump(t) => self.body_at(*t),
                    _ => None,
                }));
            }
        }
        seen.into_iter().collect()
    }

    /// Numbers of bodies of V8's built-in code (node, Chromium), which
    /// walks the stack by its own tables of return addresses, like Go.
    fn self_examining(&self) -> Vec<usize> {
        let has_v8 = self
            .image
            .symbols
            .iter()
            .any(|s| s.name.contains("embedded_blob_code"));
        let is_builtin = |s: &Seed| s.name.as_ref().is_some_and(|n| n.starts_with("Builtins_"));
        (0..self.seeds.len())
            .filter(|i| has_v8 && is_builtin(&self.seeds[*i]))
            .collect()
    }

    /// Numbers of bodies with restartable sequences, whose program counter the kernel
    /// compares with the descriptors in `__rseq_cs`.
    fn restartable(&self) -> Vec<usize> {
        let Some(section) = self.image.section("__rseq_cs") else {
            return Vec::new();
        };
        let Some(bytes) = self.image.bytes_at(section.address, section.size as usize) else {
            return Vec::new();
        };
        let in_file = bytes
            .chunks_exact(8)
            .map(|c| u64::from_le_bytes(c.try_into().expect("eight bytes")));
        let range = section.address..section.address + section.size;
        let relocated = self
            .image
            .relocs
            .iter()
            .filter(|r| range.contains(&r.address))
            .map(|r| r.addend as u64);
        in_file
            .chain(relocated)
            .filter(|a| self.image.is_code(*a))
            .filter_map(|a| self.body_at(a))
            .collect()
    }
}

/// True if a procedure takes its return address off the stack for good, or
/// returns it as a value. The bytes behind the call are then data, or the address is used in a computation.
/// (`vfork` pops its return address too, but pushes it again.) True also for a procedure that goes
/// to an address computed from its return address (split stacks: `__morestack` calls the address
/// one byte behind its call).
///
/// `start` is the first address of the procedure or of a local subroutine.
fn reads_return_address(image: &Image, body: &Body, start: u64) -> bool {
    use crate::x86::{Mnemonic, OpKind, Register};
    let mut own = instructions(image, body, start);
    let Some(first) = own.find(|i| i.mnemonic() != Mnemonic::Endbr64) else {
        return false;
    };
    match first.mnemonic() {
        Mnemonic::Pop if first.op0_kind() == OpKind::Register => {
            let register = first.op0_register();
            !own.any(|i| i.mnemonic() == Mnemonic::Push && i.op0_register() == register)
        }
        Mnemonic::Mov => {
            first.op1_kind() == OpKind::Memory
                && first.memory_base() == Register::RSP
                && first.memory_index() == Register::None
                && first.memory_displacement64() == 0
                && own.next().is_some_and(|i| i.mnemonic() == Mnemonic::Ret)
        }
        Mnemonic::Push if first.op0_register() == Register::RBP => {
            let framed = own.next().is_some_and(|i| {
                i.mnemonic() == Mnemonic::Mov
                    && i.op0_register() == Register::RBP
                    && i.op1_register() == Register::RSP
            });
            framed && may_load_return_address(image, body, start) && goes_behind_its_call(own)
        }
        _ => {
            may_add_to_return_address(image, body, start)
                && adds_to_return_address(std::iter::once(first).chain(own))
        }
    }
}

/// Address of an instruction that reads the return address of the call made just before, which still lies
/// below the stack pointer. Code hardened against speculation compares it with the address behind the call.
fn looks_back(image: &Image, body: &Body) -> Option<u64> {
    const NEAR: usize = 4;
    // mov reg, [rsp-8]
    let reads = |i: &Inst| {
        let pc = image.base + u64::from(i.offset);
        let bytes = (i.len == 5).then(|| image.bytes_at(pc, 5)).flatten()?;
        matches!(bytes, [0x48 | 0x4c, 0x8b, modrm, 0x24, 0xf8] if modrm & 0xc7 == 0x44)
            .then_some(pc)
    };
    let calls = body.insts.iter().enumerate();
    calls
        .filter(|(_, i)| matches!(i.flow, ControlFlow::Call | ControlFlow::IndirectCall))
        .find_map(|(at, _)| {
            let behind = body.insts[at + 1..].iter().take(NEAR);
            behind.take_while(|i| !i.flow.ends_block()).find_map(reads)
        })
}

/// The instructions of a body from an address on, without decoding.
fn insts_from<'a>(image: &Image, body: &'a Body, start: u64) -> &'a [Inst] {
    let from = (start - image.base) as u32;
    &body.insts[body.insts.partition_point(|i| i.offset < from)..]
}

/// A cheap necessary condition for [`goes_behind_its_call`]: a call or jump through
/// a pointer, and `mov 8(%rbp), %reg`.
fn may_load_return_address(image: &Image, body: &Body, start: u64) -> bool {
    let insts = insts_from(image, body, start);
    let by_pointer = |i: &Inst| {
        matches!(
            i.flow,
            ControlFlow::IndirectCall | ControlFlow::IndirectJump
        )
    };
    let is_load = |inst: &Inst| {
        let pc = image.base + u64::from(inst.offset);
        let bytes = image.bytes_at(pc, usize::from(inst.len)).unwrap_or(&[]);
        bytes.windows(3).any(|b| {
            b[0] == 0x8b
                && matches!(
                    (b[1] & 0xc7, b[2]),
                    (0x45, 8) | (0x85, 8) | (0x44 | 0x84, _)
                )
        })
    };
    insts.iter().any(by_pointer) && insts.iter().any(is_load)
}

/// A cheap necessary condition for [`adds_to_return_address`]: before the first unconditional
/// transfer an operand based on rsp, in an instruction whose opcode may add to memory.
fn may_add_to_return_address(image: &Image, body: &Body, start: u64) -> bool {
    insts_from(image, body, start)
        .iter()
        .take_while(|i| matches!(i.flow, ControlFlow::FallThrough | ControlFlow::CondJump | ControlFlow::Halt))
        .any(|inst| {
            let pc = image.base + u64::from(inst.offset);
            let bytes = image.bytes_at(pc, usize::from(inst.len)).unwrap_or(&[]);
            let prefix = |b: &&u8| matches!(**b, 0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3);
            let prefixes = bytes.iter().take_while(prefix).count();
            matches!(
                bytes[prefixes..],
                [0 | 1 | 0x28 | 0x29 | 0x80 | 0x81 | 0x83 | 0xfe | 0xff, modrm, sib, ..]
                    if modrm < 0xc0 && modrm & 7 == 4 && sib & 7 == 4
            )
        })
}

/// The instructions of a body from an address on, decoded.
fn instructions<'a>(
    image: &'a Image,
    body: &'a Body,
    start: u64,
) -> impl Iterator<Item = crate::x86::Instruction> + 'a {
    decoded(image, insts_from(image, body, start).iter())
}

/// True if a procedure adds to its return address on the stack, before its
/// stack pointer is changed by other means than `push` and `pop`.
fn adds_to_return_address(code: impl Iterator<Item = crate::x86::Instruction>) -> bool {
    use crate::x86::{FlowControl, Mnemonic, OpKind, Register};
    let mut pushed = 0i64;
    for inst in code {
        if !matches!(
            inst.flow_control(),
            FlowControl::Next | FlowControl::ConditionalBranch
        ) {
            return false;
        }
        match inst.mnemonic() {
            Mnemonic::Push | Mnemonic::Pop => {
                pushed -= i64::from(inst.stack_pointer_increment());
                continue;
            }
            _ if inst.op0_kind() == OpKind::Register && inst.op0_register() == Register::RSP => {
                return false;
            }
            // `lock add [rsp], 0` is a memory barrier.
            _ if inst.has_lock_prefix() => continue,
            Mnemonic::Inc | Mnemonic::Dec | Mnemonic::Add | Mnemonic::Sub => {}
            _ => continue,
        }
        if inst.op0_kind() == OpKind::Memory
            && inst.memory_base() == Register::RSP
            && inst.memory_index() == Register::None
            && inst.memory_displacement64() as i64 == pushed
        {
            return true;
        }
    }
    false
}

/// True if code with a frame at rbp loads its return address and calls or
/// jumps to it, changed or not, before control goes elsewhere.
fn goes_behind_its_call(code: impl Iterator<Item = crate::x86::Instruction>) -> bool {
    use crate::x86::{FlowControl, Mnemonic, OpKind, Register};
    let mut holder = Register::None;
    for inst in code {
        match inst.flow_control() {
            FlowControl::IndirectCall | FlowControl::IndirectBranch
                if holder != Register::None
                    && inst.op0_kind() == OpKind::Register
                    && inst.op0_register() == holder =>
            {
                return true;
            }
            FlowControl::Next => {}
            _ => {
                holder = Register::None;
                continue;
            }
        }
        let is_load = inst.mnemonic() == Mnemonic::Mov
            && inst.op0_kind() == OpKind::Register
            && inst.op1_kind() == OpKind::Memory
            && inst.memory_base() == Register::RBP
            && inst.memory_index() == Register::None
            && inst.memory_displacement64() == 8;
        let changes = inst.op0_kind() == OpKind::Register
            && holder != Register::None
            && inst.op0_register().full_register() == holder;
        let computes = matches!(
            inst.mnemonic(),
            Mnemonic::Inc | Mnemonic::Add | Mnemonic::Sub | Mnemonic::Lea
        );
        if is_load {
            holder = inst.op0_register();
        } else if changes && !computes && inst.mnemonic() != Mnemonic::Cmp {
            holder = Register::None;
        }
    }
    false
}
