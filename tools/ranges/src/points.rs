//! Where the program calls the tool: references, calls of the allocator, procedures with
//! variables on the stack.

use std::collections::{HashMap, HashSet};

use atom_tool::prelude::*;
use atom_tool::{
    AllThreadRows, MemoryAccess, References, ThreadData, ThreadRowAt, ThreadRows, Times,
};

use crate::frames::{back, entered, left};
use crate::heap::{Calls, Kind, enter, leave};
use crate::model::{self, CELLS, Place, Shape, State};
use crate::spec::{self, Code, Data};

/// What a place is: the number of its instruction, its size, loads and stores, its block, and
/// 1 if each execution of that is a reference.
pub type PlaceRow = [u32; 6];

/// All references of a program.
pub struct AllReferences {
    pub rows: ThreadRows<CELLS>,
    pub places: Vec<PlaceRow>,
    pub sites: SiteList,
    pub executed: atom_tool::CounterTable,
    /// Ranges of code: (place's instruction, range) where it is in one.
    pub codes: Vec<[u32; 2]>,
}

#[analysis]
fn executed(counter: Counter) {
    counter.increment();
}

/// A place for which the memory accesses say how it is accessed.
fn access(memory: &[MemoryAccess], operand: u8) -> u64 {
    let Some(memory) = memory.get(operand as usize) else {
        return Place::LOADS;
    };
    let read = if memory.access.reads() {
        Place::LOADS
    } else {
        0
    };
    let write = if memory.access.writes() {
        Place::STORES
    } else {
        0
    };
    read | write
}

impl AllReferences {
    pub fn add(
        program: &Program<'_>,
        shape: Shape,
        state: ThreadData<State>,
        codes: &[Code],
        is_changing: bool,
    ) -> Self {
        let blocks = || program.procs().flat_map(|proc| proc.blocks());
        let insts = blocks().flat_map(|block| block.insts());
        let insts: Vec<(Inst<'_>, References)> = insts
            .filter_map(|inst| Some((inst, inst.references()?)))
            .collect();
        let count = insts.iter().map(|(_, r)| r.operands.len().max(1)).sum();
        let mut all = Self {
            rows: program.thread_rows(count),
            places: Vec::with_capacity(count),
            sites: SiteList::new(),
            executed: program.counters(program.block_count()),
            codes: Vec::new(),
        };
        let mut counted_blocks = HashSet::new();
        for (inst, references) in &insts {
            let block = inst.block();
            if counted_blocks.insert(block.index()) {
                block.add_call(Before, executed, (all.executed.at(block.index()),));
            }
            let site = all.sites.push(*inst) as u32;
            let mut is_counted = codes.is_empty();
            for (number, _) in codes.iter().enumerate().filter(|(_, c)| c.contains(*inst)) {
                all.codes.push([site, number as u32]);
                is_counted = true;
            }
            all.reference(
                *inst,
                references,
                site,
                is_counted,
                shape,
                state,
                is_changing,
            );
        }
        all
    }

    /// A new place; its row and argument.
    fn place(
        &mut self,
        inst: Inst<'_>,
        site: u32,
        operand: u8,
        memory: &[MemoryAccess],
        flags: u64,
        each: u32,
    ) -> (ThreadRowAt<CELLS>, u64) {
        let number = self.places.len();
        let access = access(memory, operand);
        let known = inst.has_access_size(operand);
        let size = memory.get(operand as usize).filter(|_| known);
        let size = size.map_or(1, |m| m.size.max(1));
        let block = inst.block().index() as u32;
        self.places
            .push([site, size, access as u32, block, each, flags as u32]);
        (self.rows.at(number), Place::new(number, access | flags).0)
    }

    #[allow(clippy::too_many_arguments)]
    fn reference(
        &mut self,
        inst: Inst<'_>,
        references: &References,
        site: u32,
        is_counted: bool,
        shape: Shape,
        state: ThreadData<State>,
        is_changing: bool,
    ) {
        let memory = inst.memory();
        let flags = if is_counted { Place::COUNTED } else { 0 };
        let operands = &references.operands;
        if references.times == Times::Once {
            let routine = match (is_counted, shape == model::DEFAULT) {
                (true, true) if is_changing => model::refer_changing(),
                (true, true) => model::refer_default(),
                (true, false) => model::refer(),
                (false, true) => model::pass_default(),
                (false, false) => model::pass(),
            };
            for n in operands {
                let (row, place) = self.place(inst, site, *n, &memory, flags, 1);
                let address = EffAddrOf(*n);
                if inst.has_access_size(*n) {
                    let size = AccessSizeOf(*n);
                    inst.add_call(Before, routine, (state, shape.0, address, size, row, place));
                } else {
                    inst.add_call(Before, routine, (state, shape.0, address, 1, row, place));
                }
            }
            return;
        }
        let (row_a, place_a) = self.place(inst, site, operands[0], &memory, flags, 0);
        let (row_b, place_b) = match operands.get(1) {
            Some(n) => self.place(inst, site, *n, &memory, flags, 0),
            None => (row_a, place_a),
        };
        let (a, size) = (EffAddrOf(operands[0]), AccessSizeOf(operands[0]));
        let b = operands.get(1).map(|n| EffAddrOf(*n));
        let (down, shape) = (Direction, shape.0);
        macro_rules! repeat {
            ($b:expr, $times:expr, $down:expr) => {{
                let args = (
                    state, shape, a, $b, $times, $down, size, row_a, row_b, place_a, place_b,
                );
                inst.add_call(Before, model::repeat, args);
            }};
        }
        match (references.times, b) {
            (Times::Compared, b) => {
                match b {
                    Some(b) => inst.add_call(Before, model::compare, (state, a, b, RepCount)),
                    None => inst.add_call(Before, model::compare, (state, a, 0, RepCount)),
                }
                let args = (
                    state,
                    shape,
                    Reg::Rcx,
                    down,
                    size,
                    row_a,
                    row_b,
                    place_a,
                    place_b,
                );
                inst.add_call(After, model::compared, args);
            }
            (Times::Repeated, Some(b)) => repeat!(b, RepCount, down),
            (Times::Repeated, None) => repeat!(0, RepCount, down),
            _ => repeat!(0, 1, 0),
        }
    }
}

/// What a heap range wants: range, sizes, numbers; and the sites that fit, with the number of the wish.
pub struct HeapPoints {
    pub wanted: Vec<[u64; 5]>,
    pub sites: Vec<[u32; 2]>,
    /// Calls of the allocator that were found.
    pub calls: usize,
}

/// What a call or jump to elsewhere enters: an allocator's procedure.
fn allocator(inst: Inst<'_>) -> Option<Kind> {
    if let Some(name) = inst.entered_import() {
        return Kind::of(name);
    }
    let symbol = inst.entered_proc()?.symbol();
    Kind::of(symbol.strip_suffix("@plt").unwrap_or(symbol))
}

/// Adds calls where blocks of the heap come and go, if a range wants any.
pub fn heap(program: &Program<'_>, data: &[Data], calls: ThreadData<Calls>) -> HeapPoints {
    let mut points = HeapPoints {
        wanted: Vec::new(),
        sites: Vec::new(),
        calls: 0,
    };
    let mut wishes = Vec::new();
    for (number, range) in data.iter().enumerate() {
        if let spec::Place::Heap(heap) = &range.place {
            let [from, to] = heap.sizes;
            let [first, last] = heap.numbers;
            points.wanted.push([number as u64, from, to, first, last]);
            wishes.push(heap);
        }
    }
    if wishes.is_empty() {
        return points;
    }
    let stub = |proc: &Proc<'_>| proc.name().ends_with("@plt");
    let insts = || {
        let procs = program.procs().filter(move |p| !stub(p));
        procs
            .flat_map(|proc| proc.blocks())
            .map(|block| block.last_inst())
    };
    // Procedures that may end in a jump to the allocator, and those that end in a jump to them.
    let mut jumping: HashSet<usize> = HashSet::new();
    let mut jumps: HashMap<usize, Vec<usize>> = HashMap::new();
    for inst in insts().filter(|i| !i.is_type(InstType::Call)) {
        if allocator(inst).is_some() {
            jumping.insert(inst.proc().index());
        } else if let Some(to) = inst.entered_proc() {
            let from = inst.proc().index();
            jumps.entry(to.index()).or_default().push(from);
        }
    }
    let mut new: Vec<usize> = jumping.iter().copied().collect();
    while let Some(proc) = new.pop() {
        for from in jumps.get(&proc).into_iter().flatten() {
            if jumping.insert(*from) {
                new.push(*from);
            }
        }
    }
    let mut site = 0;
    for inst in insts() {
        let is_call = inst.is_type(InstType::Call);
        if let Some(kind) = allocator(inst) {
            let what = site << 4 | kind as u64;
            let (sp, a, b, c) = (Reg::Rsp, Reg::Rdi, Reg::Rsi, Reg::Rdx);
            for (number, wish) in wishes.iter().enumerate() {
                if wish.fits(inst) {
                    points.sites.push([site as u32, number as u32]);
                }
            }
            site += 1;
            // A jump leaves the caller's return address on the stack, a call adds its own.
            if is_call {
                inst.add_call(Before, enter, (calls, what, 0, sp, a, b, c));
            } else {
                inst.add_call(Before, enter, (calls, what, 8, sp, a, b, c));
            }
        }
        let returns = match inst.called_proc() {
            Some(proc) => allocator(inst).is_some() || jumping.contains(&proc.index()),
            None => true,
        };
        if is_call && returns {
            inst.add_call(After, leave, (calls, Reg::Rsp, Reg::Rax));
        }
    }
    points.calls = site as usize;
    points
}

/// Adds calls where procedures with variables that are ranges are entered and left.
/// Gives procedure's number, range, offset and size of each.
pub fn frames(
    program: &Program<'_>,
    data: &[Data],
    calls: ThreadData<Calls>,
) -> Result<Vec<[u64; 4]>> {
    let mut procs: Vec<u64> = Vec::new();
    let mut variables = Vec::new();
    for (number, range) in data.iter().enumerate() {
        let spec::Place::Frame { proc, offset, size } = range.place else {
            continue;
        };
        let place = procs.iter().position(|p| *p == proc);
        let place = place.unwrap_or_else(|| {
            procs.push(proc);
            procs.len() - 1
        });
        variables.push([place as u64, number as u64, offset as u64, size]);
    }
    for (number, address) in procs.iter().enumerate() {
        let Some(proc) = program
            .proc_at(*address)
            .filter(|p| p.first_block().is_some())
        else {
            let at = format!("the procedure at {address:#x}");
            return Err(
                format!("variables of {at} cannot be followed: it is not understood").into(),
            );
        };
        proc.add_call(Before, entered, (calls, number as u32, Reg::Rsp));
        proc.add_call(After, left, (calls, number as u32, Reg::Rsp));
    }
    if procs.is_empty() {
        return Ok(variables);
    }
    // Where control comes back past procedures that did not return.
    for block in program.procs().flat_map(|proc| proc.blocks()) {
        let lands = |from: Edge<'_>| from.kind == EdgeKind::Unwind;
        if block.predecessors().into_iter().any(lands) {
            block.add_call(Before, back, (calls, Reg::Rsp));
        }
        let last = block.last_inst();
        if last.is_type(InstType::Call)
            && let Ok(Some(name)) = last.called_name()
            && RETURN_AGAIN.contains(&name.strip_suffix("@plt").unwrap_or(name))
        {
            last.add_call(After, back, (calls, Reg::Rsp));
        }
    }
    Ok(variables)
}

/// Procedures to which `longjmp` and its like come back.
const RETURN_AGAIN: [&str; 5] = ["setjmp", "_setjmp", "__setjmp", "sigsetjmp", "__sigsetjmp"];

/// What the report gets of the rows.
pub type AllRows = AllThreadRows<CELLS>;
