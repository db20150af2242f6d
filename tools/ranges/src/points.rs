//! The points at which the program calls the tool: references, calls of the allocator, entries and exits of
//! procedures with variables on the stack.

use std::collections::{HashMap, HashSet};

use atom_tool::allocations::{self, GoPoint, Point, Role};
use atom_tool::prelude::*;
use atom_tool::simulate::cache::Shape;
use atom_tool::{Allocator, MemoryAccess, References, ThreadData, ThreadRowAt, ThreadRows, Times};

use crate::cache::State;
use crate::frames::{StackVariable, back, entered, left};
use crate::heap::{
    Calls, Request, RequestSite, enter, enter_by_jump, enter_by_pointer, enter_by_pointer_jump,
    enter_go, enter_proc, enter_runtime, landed, leave, leave_go, leave_proc, leave_runtime,
};
use crate::model::{self, CELLS, OperandTag, Repeated, RepeatedOperand};
use crate::spec::{self, Code, Data, DataPlace};

plain_data! {
    /// A memory operand of an instruction.
    pub struct Operand {
        /// Number of the instruction among the sites.
        pub site: u32,
        /// Size of one access in bytes; 1 if it is not known before the program runs.
        pub size: u32,
        /// [`OperandTag::LOADS`], [`OperandTag::STORES`] or both.
        pub access: u32,
        /// Number of its block in the program.
        pub block: u32,
        /// Number of references that each execution of the block makes; 0 if the routine counts
        /// all references of the operand.
        pub each: u32,
    }

    /// An instruction that is in a range of code.
    pub struct CodeSite {
        /// Number of the instruction among the sites.
        pub site: u32,
        /// Number of the range of code.
        pub code: u32,
    }
}

/// The simulated cache.
#[derive(Clone, Copy)]
pub struct Simulated {
    pub shape: Shape,
    pub state: ThreadData<State>,
    /// See [`model::CHANGING`].
    pub is_changing: bool,
}

/// All references of a program.
pub struct AllReferences {
    simulated: Simulated,
    pub rows: ThreadRows<CELLS>,
    pub operands: Vec<Operand>,
    pub sites: SiteList,
    pub executed: atom_tool::CounterTable,
    pub codes: Vec<CodeSite>,
}

/// An instruction that refers to memory.
struct Referring<'a> {
    inst: Inst<'a>,
    /// Its number among the sites.
    site: u32,
    memory: Vec<MemoryAccess>,
    /// Its references to ranges are counted.
    is_counted: bool,
}

/// Counts the executions of a block.
#[analysis]
fn executed(counter: Counter) {
    counter.increment();
}

impl Referring<'_> {
    /// Accesses of an operand, as flags of an [`OperandTag`].
    fn access(&self, operand: u8) -> u64 {
        let Some(memory) = self.memory.get(operand as usize) else {
            return OperandTag::LOADS;
        };
        let flag = |is: bool, flag: u64| if is { flag } else { 0 };
        flag(memory.access.reads(), OperandTag::LOADS)
            | flag(memory.access.writes(), OperandTag::STORES)
    }

    /// Size of one access of an operand in bytes, if it is known before the program runs.
    fn size(&self, operand: u8) -> Option<u32> {
        let known = self.inst.has_access_size(operand);
        let memory = self.memory.get(operand as usize).filter(|_| known);
        memory.map(|memory| memory.size)
    }
}

impl AllReferences {
    pub fn add(program: &Program<'_>, simulated: Simulated, codes: &[Code]) -> Self {
        let blocks = || program.procs().flat_map(|proc| proc.blocks());
        let insts = blocks().flat_map(|block| block.insts());
        let insts: Vec<(Inst<'_>, References)> = insts
            .filter_map(|inst| Some((inst, inst.references()?)))
            .collect();
        let count = insts.iter().map(|(_, r)| r.operands.len().max(1)).sum();
        let mut all = Self {
            simulated,
            rows: program.thread_rows(count),
            operands: Vec::with_capacity(count),
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
                let code = number as u32;
                all.codes.push(CodeSite { site, code });
                is_counted = true;
            }
            let referring = Referring {
                inst: *inst,
                site,
                memory: inst.memory(),
                is_counted,
            };
            match references.times {
                Times::Once => all.once(&referring, &references.operands),
                times => all.many(&referring, &references.operands, times),
            }
        }
        all
    }

    /// Adds an operand; returns its row and its tag.
    fn operand(
        &mut self,
        referring: &Referring<'_>,
        operand: u8,
        each: u32,
    ) -> (ThreadRowAt<CELLS>, OperandTag) {
        let number = self.operands.len();
        let access = referring.access(operand);
        self.operands.push(Operand {
            site: referring.site,
            size: referring.size(operand).map_or(1, |size| size.max(1)),
            access: access as u32,
            block: referring.inst.block().index() as u32,
            each,
        });
        let counted = if referring.is_counted {
            OperandTag::COUNTED
        } else {
            0
        };
        (
            self.rows.at(number),
            OperandTag::new(number, access | counted),
        )
    }

    /// Adds the calls for an instruction that makes each of its references once.
    fn once(&mut self, referring: &Referring<'_>, operands: &[u8]) {
        let Simulated {
            shape,
            state,
            is_changing,
        } = self.simulated;
        let routine = match (referring.is_counted, shape == model::DEFAULT) {
            (true, true) if is_changing => model::refer_changing(),
            (true, true) => model::refer_default(),
            (true, false) => model::refer(),
            (false, true) => model::pass_default(),
            (false, false) => model::pass(),
        };
        let inst = referring.inst;
        for n in operands {
            let (row, tag) = self.operand(referring, *n, 1);
            let address = EffAddrOf(*n);
            if inst.has_access_size(*n) {
                let size = AccessSizeOf(*n);
                inst.add_call(Before, routine, (state, shape.0, address, size, row, tag.0));
            } else {
                inst.add_call(Before, routine, (state, shape.0, address, 1, row, tag.0));
            }
        }
    }

    /// Adds the calls for an instruction that may make each of its references several times.
    fn many(&mut self, referring: &Referring<'_>, operands: &[u8], times: Times) {
        let Simulated { shape, state, .. } = self.simulated;
        let inst = referring.inst;
        let mut new = |operand: u8| {
            let (row, tag) = self.operand(referring, operand, 0);
            RepeatedOperand { row, tag: tag.0 }
        };
        let first = new(operands[0]);
        let second = operands.get(1).map(|n| new(*n));
        let what = Repeated {
            shape: shape.0,
            size: referring.size(operands[0]).unwrap_or(0).into(),
            operands: [first, second.unwrap_or(first)],
        };
        let a = EffAddrOf(operands[0]);
        let b = operands.get(1).map(|n| EffAddrOf(*n));
        match (times, b) {
            (Times::Compared, b) => {
                match b {
                    Some(b) => inst.add_call(Before, model::compare, (state, a, b, RepCount)),
                    None => inst.add_call(Before, model::compare, (state, a, 0, RepCount)),
                }
                let args = (state, &what, Reg::Rcx, Direction);
                inst.add_call(After, model::compared, args);
            }
            (Times::Repeated, Some(b)) => {
                let args = (state, &what, a, b, RepCount, Direction);
                inst.add_call(Before, model::repeat, args);
            }
            (Times::Repeated, None) => {
                let args = (state, &what, a, 0, RepCount, Direction);
                inst.add_call(Before, model::repeat, args);
            }
            _ => inst.add_call(Before, model::repeat, (state, &what, a, 0, 1, 0)),
        }
    }
}

/// The points at which blocks for ranges are allocated.
pub struct HeapPoints {
    pub requests: Vec<Request>,
    /// For each request the calls of the allocator that may allocate its blocks.
    pub sites: Vec<RequestSite>,
    /// Number of places at which blocks are allocated.
    pub calls: usize,
    /// Number of calls of the allocator in the program; those through pointers are not among them.
    pub known: usize,
}

impl HeapPoints {
    /// Adds a call of the allocator, which may allocate blocks for the requests that `fits` names. Returns the call's
    /// number.
    pub fn add_site(
        &mut self,
        requests: &[&spec::Heap],
        fits: impl Fn(&spec::Heap) -> bool,
    ) -> u64 {
        let site = self.calls;
        self.calls += 1;
        let fitting = requests
            .iter()
            .enumerate()
            .filter(|(_, request)| fits(request));
        self.sites.extend(fitting.map(|(request, _)| RequestSite {
            site: site as u32,
            request: request as u32,
        }));
        site as u64
    }

    /// Fails if no call of the allocator can allocate a block for a range of blocks.
    pub fn check(&self, data: &[Data]) -> Result {
        for (number, request) in self.requests.iter().enumerate() {
            if self.sites.iter().any(|site| site.request == number as u32) {
                continue;
            }
            let reason = match self.known {
                0 => "the instrumented code does not call the allocator by a name that is known; what \
                      libraries allocate is seen with `atom run` only, and the allocator in a static program \
                      without symbols is not seen"
                    .to_owned(),
                calls => format!("none of the {calls} calls of the allocator makes blocks for it"),
            };
            let name = &data[request.range as usize].name;
            return Err(format!("the range `{name}` has no blocks: {reason}").into());
        }
        Ok(())
    }
}

/// The procedure of the allocator that a call, or a jump out of its procedure, enters.
fn allocator(inst: Inst<'_>) -> Option<Allocator> {
    if let Some(name) = inst.entered_import() {
        return Allocator::of(name);
    }
    let symbol = inst.entered_proc()?.symbol();
    Allocator::of(symbol.strip_suffix("@plt").unwrap_or(symbol))
}

/// The instructions by which control may leave a procedure, except in stubs.
fn leaving<'a>(program: &Program<'a>) -> impl Iterator<Item = Inst<'a>> {
    let stub = |proc: &Proc<'_>| proc.name().ends_with("@plt");
    let procs = program.procs().filter(move |p| !stub(p));
    procs
        .flat_map(|proc| proc.blocks())
        .map(|block| block.last_inst())
}

/// Numbers of the procedures that may end in a jump to the allocator, or to another such procedure.
fn jumping_procs(program: &Program<'_>) -> HashSet<usize> {
    let mut jumping: HashSet<usize> = HashSet::new();
    // For each procedure the procedures that end in a jump to it.
    let mut jumps: HashMap<usize, Vec<usize>> = HashMap::new();
    for inst in leaving(program).filter(|i| !i.is_type(InstType::Call)) {
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
    jumping
}

/// Adds calls where blocks of the heap are allocated and freed, if a range consists of blocks.
pub fn heap(program: &Program<'_>, data: &[Data], calls: ThreadData<Calls>) -> HeapPoints {
    let mut points = HeapPoints {
        requests: Vec::new(),
        sites: Vec::new(),
        calls: 0,
        known: 0,
    };
    let mut requests = Vec::new();
    for (number, range) in data.iter().enumerate() {
        if let DataPlace::Heap(heap) = &range.place {
            points.requests.push(Request {
                sizes: heap.sizes,
                numbers: heap.numbers,
                range: number as u32,
                _unused: 0,
            });
            requests.push(heap);
        }
    }
    if requests.is_empty() {
        return points;
    }
    let jumping = jumping_procs(program);
    for inst in leaving(program) {
        let is_call = inst.is_type(InstType::Call);
        if let Some(allocator) = allocator(inst) {
            points.known += 1;
            let site = points.add_site(&requests, |request| request.fits(inst));
            let what = site << 4 | allocator as u64;
            let (sp, a, b, c) = (Reg::Rsp, Reg::Rdi, Reg::Rsi, Reg::Rdx);
            // A call pushes a return address; a jump leaves the caller's on top of the stack.
            if is_call {
                inst.add_call(Before, enter, (calls, what, sp, a, b, c));
            } else {
                inst.add_call(Before, enter_by_jump, (calls, what, sp, a, b, c));
            }
        } else if is_through_pointer(inst)
            && requests
                .iter()
                .any(|request| !request.is_anywhere() && request.fits(inst))
        {
            let site = points.add_site(&requests, |request| request.fits(inst));
            if is_call {
                inst.add_call(Before, enter_by_pointer, (calls, site, Reg::Rsp));
            } else {
                inst.add_call(Before, enter_by_pointer_jump, (calls, site, Reg::Rsp));
            }
        }
        let returns = match inst.called_proc() {
            // A stub leads to any procedure.
            Some(proc) if !proc.is_stub() || program.objects().len() == 1 => {
                allocator(inst).is_some() || jumping.contains(&proc.index())
            }
            _ => true,
        };
        if is_call && returns {
            inst.add_call(After, leave, (calls, Reg::Rsp, Reg::Rax));
        }
    }
    through_pointers(program, &requests, calls, &mut points);
    heap_of_go(program, &requests, calls, &mut points);
    points
}

/// True for a call, or a jump out of a procedure, whose target is not known.
fn is_through_pointer(inst: Inst<'_>) -> bool {
    if inst.is_type(InstType::Call) {
        return inst.called_proc().is_none();
    }
    let unknown = |edge: &Edge<'_>| edge.kind == EdgeKind::Unknown;
    !inst.is_type(InstType::Ret) && inst.block().successors().iter().any(unknown)
}

/// Adds calls where procedures of the allocator are entered and left, for calls of them through pointers.
fn through_pointers(
    program: &Program<'_>,
    requests: &[&spec::Heap],
    calls: ThreadData<Calls>,
    points: &mut HeapPoints,
) {
    let mut found =
        allocations::find(program, &allocations::Named::new(), true).unwrap_or_default();
    for landing in allocations::landings(program, &found) {
        landing.add_call(landed, (calls, Reg::Rsp));
    }
    // The procedure of a stub is entered in a library that is not seen.
    found.retain(|(proc, _)| !proc.is_stub());
    if found.is_empty() {
        return;
    }
    let unknown = points.add_site(requests, spec::Heap::is_anywhere);
    let sp = Reg::Rsp;
    allocations::points(program, &found, &mut |point| match point {
        Point::Enter(proc, Role::Known(allocator)) => {
            let what = (unknown << 4) | allocator as u64;
            let args = (calls, what, sp, Reg::Rdi, Reg::Rsi, Reg::Rdx);
            proc.add_call(Before, enter_proc, args);
        }
        Point::Leave(inst, result) => inst.add_call(Before, leave_proc, (calls, sp, result)),
        Point::Enter(..) | Point::Left(_) | Point::Lose(_) | Point::Landed(_) => {}
    });
}

/// Adds calls where Go's allocator is entered and left, and where other code enters Go's runtime.
fn heap_of_go(
    program: &Program<'_>,
    requests: &[&spec::Heap],
    calls: ThreadData<Calls>,
    points: &mut HeapPoints,
) {
    let mut unknown = None;
    let goroutine = Reg::R14;
    allocations::go_points(program, &mut |point| match point {
        GoPoint::Enter(proc, number) => {
            let anywhere = || points.add_site(requests, spec::Heap::is_anywhere);
            let unknown = *unknown.get_or_insert_with(anywhere);
            let args = (calls, number, goroutine, Reg::Rax, unknown);
            proc.add_call(Before, enter_go, args);
        }
        GoPoint::Leave(inst, number) => {
            inst.add_call(Before, leave_go, (number, goroutine, Reg::Rax));
        }
        GoPoint::EnterRuntime(inst) => {
            let site = points.add_site(requests, |request| request.fits(inst));
            inst.add_call(Before, enter_runtime, (calls, goroutine, site));
            inst.add_call(After, leave_runtime, (calls, goroutine));
        }
    });
}

/// Adds calls where procedures with variables that are ranges are entered and left.
/// Returns the variables.
pub fn frames(
    program: &Program<'_>,
    data: &[Data],
    calls: ThreadData<Calls>,
) -> Result<Vec<StackVariable>> {
    let mut procs: Vec<u64> = Vec::new();
    let mut variables = Vec::new();
    for (number, range) in data.iter().enumerate() {
        let DataPlace::Frame { proc, offset, size } = range.place else {
            continue;
        };
        let place = procs.iter().position(|p| *p == proc);
        let place = place.unwrap_or_else(|| {
            procs.push(proc);
            procs.len() - 1
        });
        variables.push(StackVariable {
            offset,
            size,
            proc: place as u32,
            range: number as u32,
        });
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
    // Exceptions and longjmp skip the returns of procedures, so calls are where control comes back.
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

/// Procedures that return again after `longjmp` or `siglongjmp`.
const RETURN_AGAIN: [&str; 5] = ["setjmp", "_setjmp", "__setjmp", "sigsetjmp", "__sigsetjmp"];
