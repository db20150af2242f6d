//! Reasons why a procedure stays in place.
//!
//! A procedure that moves must be understood in full. Others stay in place, where they work as before,
//! and are reported with the reason.

use rustc_hash::FxHashSet;

use object::elf;
use rayon::prelude::*;

use super::discovery::Discovery;
use super::jump_code::{self, JumpForm};
use super::jump_table::FoundTable;
use super::regions::region_end;
use super::returns::{self, Use};
use super::seeds::{FrameFacts, Seed};
use super::traverse::{Body, Ref, mark};
use super::{frame_tables, go_stack, stack_limits, v8};
use crate::image::Image;
use crate::parallel::AT_ONCE;
use crate::x86::{ControlFlow, Inst};

/// The instruction that contains a byte.
pub(super) struct Around<'a> {
    /// Number of its body.
    pub body: usize,
    pub inst: &'a Inst,
    /// The byte's offset from the image's base.
    pub offset: u32,
}

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

/// Procedures whose return addresses are in tables of OCaml's.
pub(super) struct Described {
    /// Numbers of their bodies.
    pub(super) bodies: FxHashSet<usize>,
    /// Numbers of the bodies from which the runtime goes to OCaml's stacks.
    ends: Vec<usize>,
    /// The return addresses.
    pub(super) returns: Vec<u64>,
    /// True if they may run on stacks that OCaml allocates, with too little space left for inserted code (OCaml 5). The
    /// runtime of OCaml 4 has one place at which the stack ends, OCaml 5 has two, and a part that is loaded later none.
    pub(super) on_small_stacks: bool,
}

/// Why a procedure stays in place, for each body; the first reason found counts.
pub(super) type Reasons = Vec<Option<String>>;

impl Discovery<'_> {
    /// Why a procedure stays in place, for each body. The return addresses of the procedures in
    /// `described` are in tables.
    pub(super) fn obstacles(
        &self,
        frames: &FrameFacts,
        tables: &[FoundTable],
        described: &Described,
    ) -> Reasons {
        let owners = TableOwners::new(self, tables);
        let read = self.read_bodies();
        let bodies = self.bodies.par_iter().enumerate();
        let mut reasons: Reasons = bodies
            .map(|(i, body)| {
                let is_go = self.seeds[i].is_go;
                self.obstacle_before_code(body)
                    .or_else(|| (!is_go).then(|| self.obstacle_in_return_addresses(body))?)
                    .or_else(|| self.obstacle_in_jumps(i, body, &owners, is_go))
                    .or_else(|| self.obstacle_in_evidence(i, &read))
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
        for (i, address) in self.entered_inside() {
            reasons[i].get_or_insert_with(|| {
                format!(
                    "control comes by a pointer to {address:#x}, in the middle of an instruction"
                )
            });
        }
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
        if described.on_small_stacks {
            add(
                self.on_small_stacks(described),
                "the program looks its return addresses up in a table, and its stacks may be small (OCaml 5)",
            );
        }
        add(
            go_stack::tight(frames, &self.bodies),
            "it may run at the end of a goroutine's stack, with too little left for inserted code",
        );
        add(
            stack_limits::limited(self.image, frames, &self.bodies),
            "it may run at the end of a stack of its language's runtime, with too little left for inserted code",
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

    /// Addresses in the middle of known instructions to which code certainly goes by a pointer, with the numbers of their
    /// bodies. A pad there would overlap others.
    fn entered_inside(&self) -> Vec<(usize, u64)> {
        let inside = |r: &Ref| match *r {
            Ref::Code(t) => {
                let i = self.body_at(t)?;
                let marks = self.bodies[i].mark_at(t) & (mark::START | mark::INSIDE);
                (marks == mark::INSIDE).then_some((i, t))
            }
            _ => None,
        };
        let known = self.bodies.par_iter().zip(&self.seeds);
        known
            .filter(|(_, seed)| !seed.is_doubtful)
            .flat_map_iter(|(body, _)| body.refs.iter().filter_map(inside))
            .collect()
    }

    /// Why a procedure stays in place whatever its indirect jumps do.
    fn obstacle_before_code(&self, body: &Body) -> Option<String> {
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
        if image.is_writable_code(start) {
            return Some("the program may change it at any time (a writable segment)".to_string());
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
    /// Go's own functions jump by a computed address to the start of a function, or to where a goroutine continues.
    fn obstacle_in_jumps(
        &self,
        i: usize,
        body: &Body,
        owners: &TableOwners,
        is_go: bool,
    ) -> Option<String> {
        let is_own_label = |r: &Ref| matches!(r, Ref::Address(t) | Ref::Code(t) if body.contains(*t) && *t != body.start);
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
        let uses: Vec<Option<Use>> = self
            .bodies
            .par_iter()
            .zip(&self.seeds)
            .map(|(b, seed)| (!seed.is_go).then(|| returns::use_of(image, b, b.start))?)
            .collect();
        let users = self.bodies.iter().zip(&uses).filter(|(_, u)| u.is_some());
        let mut readers: FxHashSet<u64> = users.map(|(b, _)| b.start).collect();
        // Without symbols a procedure may be inside of what looks like another one.
        let called_inside = |r: &Ref| match r {
            Ref::Call(t) => {
                Some((self.body_at(*t)?, *t)).filter(|(i, t)| self.bodies[*i].start != *t)
            }
            _ => None,
        };
        let inside: Vec<(usize, u64, Use)> = (self.bodies.par_iter())
            .flat_map_iter(|body| body.refs.iter().filter_map(called_inside))
            .filter(|(i, _)| !self.seeds[*i].is_go)
            .filter_map(|(i, t)| Some((i, t, returns::use_of(image, &self.bodies[i], t)?)))
            .collect();
        readers.extend(inside.iter().map(|(_, t, _)| *t));
        for (j, t, _) in inside.iter().filter(|(.., found)| *found == Use::Changes) {
            reasons[*j]
                .get_or_insert_with(|| format!("its code at {t:#x} changes its return address"));
        }
        self.drop_parts(frames, &mut readers);
        // The code to which such a procedure returns expects arguments, not results.
        for ((body, found), reason) in self.bodies.iter().zip(uses).zip(&mut *reasons) {
            if found == Some(Use::Changes) && readers.contains(&body.start) {
                reason.get_or_insert_with(|| "it changes its return address".into());
            }
        }
        self.add_jumps_to(&mut readers);
        let bodies = self.bodies.par_iter().zip(&self.seeds);
        let bodies = bodies.zip(&mut *reasons).with_max_len(AT_ONCE);
        bodies.for_each(|((body, seed), reason)| {
            let outside = body.refs.iter().find_map(|r| match r {
                Ref::Call(t) if readers.contains(t) => Some(*t),
                _ => None,
            });
            let call = outside.or_else(|| {
                let local = body.local_calls.iter().copied();
                let mut local = local.filter(|_| !seed.is_go);
                local.find(|t| returns::use_of(image, body, *t).is_some())
            });
            if let Some(t) = call {
                reason.get_or_insert_with(|| {
                    format!("it calls {t:#x}, which takes its return address as data")
                });
            }
        });
    }

    /// Removes parts of other procedures (`foo.cold`), which are only jumped to. Their first
    /// instructions may undo the beginning of `foo`, for example `pop %rdx` for `sub $8,%rsp`, so
    /// they look like a procedure that takes its return address. The frame description of a part
    /// says that more than the return address is on the stack; a symbol says it by its name.
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
        if readers.is_empty() {
            return;
        }
        let jump = |start: u64| {
            move |r: &Ref| match *r {
                Ref::Jump(target) => Some((target, start)),
                _ => None,
            }
        };
        let mut by_target: Vec<(u64, u64)> = (self.bodies.par_iter())
            .flat_map_iter(|body| body.refs.iter().filter_map(jump(body.start)))
            .collect();
        by_target.par_sort_unstable();
        let mut work: Vec<u64> = readers.iter().copied().collect();
        while let Some(reader) = work.pop() {
            let first = by_target.partition_point(|jump| jump.0 < reader);
            let here = by_target[first..]
                .iter()
                .take_while(|jump| jump.0 == reader);
            work.extend(
                here.map(|jump| jump.1)
                    .filter(|start| readers.insert(*start)),
            );
        }
    }

    /// The bodies whose return addresses are in descriptors of frames. A single
    /// word that looks like a descriptor proves nothing: tables of functions have many such words, and some
    /// functions are after a call. In a table of descriptors nearly all addresses are after calls.
    pub(super) fn described(&self) -> Described {
        let behind_call = |address: u64| {
            let Around { body, inst, offset } = self.inst_around(address - 1)?;
            let is_call = matches!(inst.flow, ControlFlow::Call | ControlFlow::IndirectCall);
            (is_call && inst.offset + u32::from(inst.len) == offset + 1).then_some((body, address))
        };
        let callers: Vec<_> = frame_tables::described(self.image)
            .iter()
            .map(|word| frame_tables::Descriptor {
                back: behind_call(word.back),
                ends_stack: word.ends_stack,
            })
            .collect();
        let found = frame_tables::in_tables(&callers);
        Described {
            on_small_stacks: found.iter().filter(|word| word.ends_stack).count() != 1,
            ends: found
                .iter()
                .filter(|word| word.ends_stack)
                .map(|word| word.back.0)
                .collect(),
            bodies: found.iter().map(|word| word.back.0).collect(),
            returns: found.iter().map(|word| word.back.1).collect(),
        }
    }

    /// Numbers of the bodies that may run on small stacks: those in `described`, and procedures without calls between
    /// them or beside them. The runtime's procedures that go from stack to stack are together.
    fn on_small_stacks(&self, described: &Described) -> Vec<usize> {
        const BETWEEN: usize = 64;
        const BESIDE: usize = 4;
        const OF_RUNTIME: usize = 10;
        const SIZE_OF_RUNTIME: u64 = 0x1000;
        let mut all: Vec<usize> = described.bodies.iter().copied().collect();
        all.sort_unstable();
        let mut found = FxHashSet::default();
        for pair in all.windows(2).filter(|pair| pair[1] - pair[0] <= BETWEEN) {
            found.extend(pair[0]..pair[1]);
        }
        let around = |i: usize, count: usize| {
            let start = self.bodies[i].start;
            let near = i.saturating_sub(count)..(i + count + 1).min(self.bodies.len());
            near.filter(move |n| self.bodies[*n].start.abs_diff(start) <= SIZE_OF_RUNTIME)
        };
        found.extend(all.iter().flat_map(|i| around(*i, BESIDE)));
        found.extend(described.ends.iter().flat_map(|i| around(*i, OF_RUNTIME)));
        found.into_iter().collect()
    }

    /// Return addresses in descriptors of frames are no places to which control goes by a pointer, unless a jump
    /// table or an operand names them, too.
    pub(super) fn unmark_described(&mut self, described: &Described, tables: &[FoundTable]) {
        if described.returns.is_empty() {
            return;
        }
        let mut named: FxHashSet<u64> = tables.iter().flat_map(|t| &t.targets).copied().collect();
        for reference in self.bodies.iter().flat_map(|b| &b.refs) {
            if let Ref::Address(to) | Ref::Code(to) = reference {
                named.insert(*to);
            }
        }
        for back in described
            .returns
            .iter()
            .filter(|back| !named.contains(back))
        {
            if let Some(i) = self.body_at(*back)
                && self.bodies[i].start != *back
            {
                self.body_mut(i).remove_mark(*back, mark::INDIRECT);
                self.pointers.remove(*back);
            }
        }
    }

    /// Numbers of bodies with relocations in their instructions, and the relocated addresses. The loader
    /// would not relocate a copy.
    fn relocated(&self) -> Vec<(usize, u64)> {
        self.image
            .relocs
            .par_iter()
            .filter(|r| self.image.is_code(r.address))
            .filter_map(|r| Some((self.inst_around(r.address)?.body, r.address)))
            .collect()
    }

    /// The instruction that contains a byte.
    pub(super) fn inst_around(&self, address: u64) -> Option<Around<'_>> {
        let body = self.body_at(address)?;
        let offset = u32::try_from(address - self.image.base).ok()?;
        let insts = &self.bodies[body].insts;
        let next = insts.partition_point(|inst| inst.offset <= offset);
        let inst = insts.get(next.checked_sub(1)?)?;
        (offset < inst.offset + u32::from(inst.len)).then_some(Around { body, inst, offset })
    }

    /// Numbers of bodies of IFUNC resolvers of an object in which the runtime is, and of their callees.
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
        let unnamed = if has_v8 {
            None
        } else {
            v8::built_in_code(self.image, &self.regions)
        };
        (0..self.seeds.len())
            .filter(|i| {
                let seed = &self.seeds[*i];
                has_v8 && is_builtin(seed)
                    || unnamed
                        .as_ref()
                        .is_some_and(|code| code.contains(&seed.start))
            })
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

/// Address of an instruction that reads the return address of the call made just before, which still is
/// below the stack pointer. Code hardened against speculation compares it with the address after the call.
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
