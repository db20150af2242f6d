//! Checking a call before it is added.

use std::hash::BuildHasher;

use atom_abi::OBJECT_SHIFT;
use atom_abi::host::{ANY_OPERAND, Arg, ArgKind, InstType, Place, Reg, SYSTEM_CALL_RESULT, Scope};
use rustc_hash::FxBuildHasher;

use super::calls::{self, Argument, Call, Calls};
use super::operand::{At, When};
use super::session::Session;
use super::space::Piece;
use crate::cfg::ProcKind;
use crate::ids::{Address48, BlockId, InstId, ProcId};
use crate::x86::asm::Gpr;
use crate::x86::{Code, ControlFlow};
use crate::{Error, Result};

/// Number of arguments of a call at most; no routine of the typed interface has more.
const MAX_ARGS: usize = 32;
/// Bytes of data that all calls carry at most, so that a 32-bit displacement reaches all data.
const MAX_DATA: usize = 1 << 30;

/// A call as the tool requests it.
pub(super) struct Request<'r> {
    pub(super) scope: Scope,
    pub(super) id: u32,
    pub(super) place: Place,
    pub(super) routine: *const (),
    pub(super) args: &'r [Arg],
}

/// Adds a call to the session's calls, if it is valid; else notes an error, and returns false.
pub(super) fn add_call(session: &Session<'_>, request: &Request<'_>) -> bool {
    if session.lacks_data() {
        return false;
    }
    let added = checked(session, request);
    added.map_err(|error| session.note(error)).is_ok()
}

/// Adds a call to the session's calls, if it is valid.
fn checked(session: &Session<'_>, request: &Request<'_>) -> Result<()> {
    let Some(routine) = session.tool.code_in_file(request.routine) else {
        let reason = "a call was added of something that is not a routine of the tool";
        return Err(session
            .error(reason)
            .advice("mark the routine with #[analysis]"));
    };
    let refuse = |reason: &str| refusal(session, request, routine, reason);
    check_point(session, request).map_err(|reason| refuse(&reason))?;
    if request.args.len() > MAX_ARGS {
        return Err(refuse(&format!("it has more than {MAX_ARGS} arguments")));
    }

    let calls = &mut *session.calls.borrow_mut();
    let (first, data) = (calls.args.len(), calls.data.len());
    for (i, arg) in request.args.iter().enumerate() {
        match argument(session, request, arg, calls) {
            Ok(arg) => calls.args.push(arg),
            Err(reason) => {
                calls.args.truncate(first);
                calls.data.truncate(data);
                return Err(refuse(&format!("argument {}: {reason}", i + 1)));
            }
        }
    }
    calls.calls.push(Call {
        scope: request.scope.into(),
        id: match request.scope {
            Scope::Program => 0,
            Scope::Proc | Scope::Instead => session.numbers.proc + request.id,
            Scope::Inst => session.numbers.inst + request.id,
            Scope::Block | Scope::Entry | Scope::Falling | Scope::Taken => {
                session.numbers.block + request.id
            }
        },
        place: request.place.into(),
        routine: Address48::new(routine),
        args: first as u32..calls.args.len() as u32,
    });
    Ok(())
}

/// An error that names the call's routine and point.
fn refusal(session: &Session<'_>, request: &Request<'_>, routine: u64, reason: &str) -> Error {
    let cfg = session.cfg;
    let place = match (request.scope, request.place) {
        (Scope::Instead, _) => "in place of",
        (_, Place::Before) => "before",
        (_, Place::After) => "after",
    };
    let index = request.id as usize;
    let (what, address) = match request.scope {
        Scope::Program => ("the program".to_owned(), None),
        Scope::Proc | Scope::Instead if index < cfg.procs.len() => {
            let id = ProcId(request.id);
            (
                format!("the procedure `{}`", session.proc_name(id)),
                Some(cfg.proc(id).start),
            )
        }
        Scope::Block | Scope::Entry | Scope::Falling | Scope::Taken if index < cfg.blocks.len() => {
            (
                "a block".to_owned(),
                Some(cfg.block_pc(BlockId(request.id))),
            )
        }
        Scope::Inst if index < cfg.insts.len() => {
            let id = InstId(request.id);
            (
                format!("`{}`", session.inst_text(id)),
                Some(cfg.inst_pc(id)),
            )
        }
        _ => ("what does not exist".to_owned(), None),
    };
    let routine = session.tool.routine_name(routine);
    let error = session.error(format!("the call of `{routine}` {place} {what}: {reason}"));
    match address {
        Some(address) => error.address(address),
        None => error,
    }
}

fn check_point(session: &Session<'_>, request: &Request<'_>) -> Result<(), String> {
    let (kind, count) = match request.scope {
        Scope::Program => return Ok(()),
        Scope::Proc | Scope::Instead => ("procedure", session.cfg.procs.len()),
        Scope::Block | Scope::Entry | Scope::Falling | Scope::Taken => {
            ("block", session.cfg.blocks.len())
        }
        Scope::Inst => ("instruction", session.cfg.insts.len()),
    };
    if request.id as usize >= count {
        return Err(format!(
            "there is no {kind} {}, there are {count}",
            request.id
        ));
    }
    let cfg = session.cfg;
    let last_flow = || cfg.inst(cfg.block(BlockId(request.id)).last()).flow;
    match request.scope {
        Scope::Entry if !cfg.is_entry(BlockId(request.id)) => {
            return Err("no other procedure enters there".to_owned());
        }
        Scope::Falling if last_flow().ends_flow() => {
            return Err("the block is not followed by what stands behind it".to_owned());
        }
        Scope::Taken
            if !matches!(
                last_flow(),
                ControlFlow::Jump
                    | ControlFlow::CondJump
                    | ControlFlow::IndirectJump
                    | ControlFlow::Return
            ) =>
        {
            return Err("the block does not end with a jump or return".to_owned());
        }
        _ => {}
    }
    if matches!(request.scope, Scope::Proc | Scope::Instead)
        && let Some(reason) = session.opaque_reason(ProcId(request.id))
    {
        return Err(format!(
            "the procedure is opaque and takes no calls ({reason}); ask for its status first"
        ));
    }
    if request.scope == Scope::Instead {
        return check_replaced(session, ProcId(request.id));
    }
    Ok(())
}

/// Checks that a routine can run in place of a procedure.
fn check_replaced(session: &Session<'_>, id: ProcId) -> Result<(), String> {
    let proc = session.cfg.proc(id);
    if let ProcKind::Fragment(_) = proc.kind {
        return Err("it is a part of another procedure, which jumps to it".to_owned());
    }
    let symbols = session.image.symbols.iter();
    let mut symbols = symbols.chain(&session.image.dynamic_symbols);
    if symbols.any(|s| s.is_ifunc && !s.is_undefined && s.address == proc.start) {
        return Err("it chooses a function when the program starts (IFUNC)".to_owned());
    }
    if session.image.is_go() {
        return Err("functions of Go have a convention of their own".to_owned());
    }
    let number = session.numbers.proc + id.0;
    if session.calls.borrow().replaced().any(|n| n == number) {
        return Err("another routine runs in its place".to_owned());
    }
    Ok(())
}

/// Checks one argument. Contents of strings and arrays go to the end of `calls.data`.
fn argument(
    session: &Session<'_>,
    request: &Request<'_>,
    arg: &Arg,
    calls: &mut Calls,
) -> Result<Argument, String> {
    match arg.kind {
        ArgKind::Const => Ok(Argument::Const(arg.value)),
        ArgKind::Str | ArgKind::CStr | ArgKind::Array | ArgKind::CArray => copied(arg, calls),
        ArgKind::Data | ArgKind::ThreadData => placed(arg, calls),
        ArgKind::Regv | ArgKind::RegvHigh => register(session, request, arg),
        ArgKind::EffAddr
        | ArgKind::AccessSize
        | ArgKind::LoadedValue
        | ArgKind::StoredValue
        | ArgKind::RepCount
        | ArgKind::Direction
        | ArgKind::BranchTarget
        | ArgKind::BrCondValue
        | ArgKind::EffAddrValue => of_instruction(session, request, arg),
        ArgKind::ReturnValue => {
            if request.scope == Scope::Proc && request.place == Place::After {
                returns(session, ProcId(request.id))?;
                return Ok(Argument::ReturnValue);
            }
            computed(session, request, Argument::ReturnValue)
        }
        ArgKind::Exported => exported(session, request, arg),
        ArgKind::ImageAddress => image_address(session, arg.value),
        ArgKind::Sum => sum(session, request, arg.value),
        ArgKind::Outcome => outcome(session, request, arg),
        ArgKind::SystemCall => of_system_call(session, request, arg.value),
        ArgKind::FunctionArgument | ArgKind::ReturnAddress => at_entry(session, request, arg),
    }
}

/// The number, an argument or the result of a system call: registers.
fn of_system_call(
    session: &Session<'_>,
    request: &Request<'_>,
    value: u64,
) -> Result<Argument, String> {
    const ASKED: [Reg; 7] = [
        Reg::Rax,
        Reg::Rdi,
        Reg::Rsi,
        Reg::Rdx,
        Reg::R10,
        Reg::R8,
        Reg::R9,
    ];
    let is_call =
        request.scope == Scope::Inst && session.decode(InstId(request.id)).code() == Code::Syscall;
    if !is_call {
        return Err("what a system call is asked for, and its result, are known only at the instruction `syscall`".to_owned());
    }
    let asked = usize::try_from(value).ok().and_then(|i| ASKED.get(i));
    let register = match (value, request.place, asked) {
        (SYSTEM_CALL_RESULT, Place::After, _) => Reg::Rax,
        (SYSTEM_CALL_RESULT, ..) => {
            return Err("the result of a system call is known only after it".to_owned());
        }
        (_, Place::Before, Some(register)) => *register,
        (_, Place::After, Some(_)) => {
            return Err("what a system call is asked for is known only before it".to_owned());
        }
        _ => return Err("a system call has the arguments 0 to 5".to_owned()),
    };
    at_instruction(session, request, Argument::Regv(register as u8))
}

/// What a procedure finds at its entry: an argument, or the address to which it returns.
fn at_entry(session: &Session<'_>, request: &Request<'_>, arg: &Arg) -> Result<Argument, String> {
    const REGISTERS: [Reg; 6] = [Reg::Rdi, Reg::Rsi, Reg::Rdx, Reg::Rcx, Reg::R8, Reg::R9];
    /// No procedure has more arguments.
    const MOST: u64 = 256;
    let is_entry = match request.scope {
        Scope::Proc => request.place == Place::Before,
        scope => scope == Scope::Instead,
    };
    if !is_entry {
        return Err(
            "an argument of a procedure, and its return address, are known only before the procedure"
                .to_owned(),
        );
    }
    if arg.kind == ArgKind::ReturnAddress {
        return Ok(Argument::ReturnAddress);
    }
    if session.image.is_go() {
        return Err("functions of Go have a convention of their own".to_owned());
    }
    if arg.value >= MOST {
        return Err(format!("a procedure has no argument {}", arg.value));
    }
    let number = arg.value as usize;
    Ok(match REGISTERS.get(number) {
        Some(register) => Argument::Regv(*register as u8),
        // The return address is below them.
        None => Argument::Stacked(8 * (number - REGISTERS.len() + 1) as i32),
    })
}

/// A string or an array, whose contents go to the end of `calls.data`.
fn copied(arg: &Arg, calls: &mut Calls) -> Result<Argument, String> {
    let size = match arg.kind {
        ArgKind::Str | ArgKind::CStr => 1,
        _ => arg.elem_size,
    };
    let (start, end) = copy(arg, size, calls)?;
    Ok(match arg.kind {
        ArgKind::Str => Argument::Str(start, end),
        ArgKind::CStr => {
            if calls.data[start as usize..end as usize].contains(&0) {
                return Err("a null-terminated string cannot have a null inside".to_owned());
            }
            Argument::CStr(start, end)
        }
        ArgKind::CArray => Argument::CArray(start, end, size),
        _ => Argument::Array(start, end, size),
    })
}

/// An offset in the data that the tool placed.
fn placed(arg: &Arg, calls: &Calls) -> Result<Argument, String> {
    let (size, for_each_thread) = match arg.kind {
        ArgKind::ThreadData => (u64::from(calls.thread_data.len), " for each thread"),
        _ => (calls.placed.len() as u64, ""),
    };
    let offset = arg.value;
    if offset >= size {
        return Err(format!(
            "offset {offset} lies outside the data that the tool placed{for_each_thread}"
        ));
    }
    Ok(match arg.kind {
        ArgKind::ThreadData => Argument::ThreadData(offset as u32),
        _ => Argument::Data(offset as u32),
    })
}

/// What a call changes: the procedure in whose place it is made, or a register at its instruction.
fn outcome(session: &Session<'_>, request: &Request<'_>, arg: &Arg) -> Result<Argument, String> {
    match request.scope {
        Scope::Instead => return Ok(Argument::Outcome(None)),
        Scope::Inst => {}
        _ => {
            return Err(
                "only a call in place of a procedure or at an instruction has an outcome"
                    .to_owned(),
            );
        }
    }
    let number = u8::try_from(arg.value).ok();
    let register = number.filter(|number| *number < 16 && Gpr(*number) != Gpr::RSP);
    if register.is_none() {
        return Err("only a general register other than rsp can be set".to_owned());
    }
    let flow = session.cfg.inst(InstId(request.id)).flow;
    let goes_elsewhere = matches!(
        flow,
        ControlFlow::Jump
            | ControlFlow::CondJump
            | ControlFlow::IndirectJump
            | ControlFlow::Return
            | ControlFlow::Halt
    );
    if request.place == Place::After && goes_elsewhere {
        return Err("the instruction goes elsewhere; set the register before it".to_owned());
    }
    Ok(Argument::Outcome(register))
}

/// The value of a register, or the upper half of a vector register.
fn register(session: &Session<'_>, request: &Request<'_>, arg: &Arg) -> Result<Argument, String> {
    let in_program = request.scope == Scope::Program;
    let argument = match arg.kind {
        ArgKind::RegvHigh if in_program || !is_vector(arg.value) => {
            return Err("only a vector register has a second half".to_owned());
        }
        ArgKind::RegvHigh => Argument::RegvHigh(arg.value as u8),
        _ if in_program => {
            return Err("a register has no value before or after the program".to_owned());
        }
        _ if arg.value > Reg::CycleCounter as u64
            && !is_vector(arg.value)
            && !is_mask(arg.value) =>
        {
            return Err(format!("register {} cannot be an argument", arg.value));
        }
        _ => Argument::Regv(arg.value as u8),
    };
    at_instruction(session, request, argument)
}

/// What is known of the instruction before or after which the call is made.
fn of_instruction(
    session: &Session<'_>,
    request: &Request<'_>,
    arg: &Arg,
) -> Result<Argument, String> {
    let before_inst = request.scope == Scope::Inst && request.place == Place::Before;
    let is_before_any =
        |types: u32| before_inst && session.inst_types(InstId(request.id)) & types != 0;
    let argument = match arg.kind {
        ArgKind::BrCondValue if is_before_any(InstType::CondBr as u32) => {
            return Ok(Argument::BrCondValue);
        }
        ArgKind::BrCondValue => {
            return Err("BrCondValue is known only before a conditional branch".to_owned());
        }
        ArgKind::EffAddrValue if is_before_any(InstType::Load as u32 | InstType::Store as u32) => {
            return Ok(Argument::EffAddrValue);
        }
        ArgKind::EffAddrValue => {
            return Err(
                "EffAddrValue is known only before an instruction that accesses memory".to_owned(),
            );
        }
        ArgKind::EffAddr if !before_inst => {
            return Err("EffAddrValue is known only before an instruction".to_owned());
        }
        ArgKind::EffAddr => Argument::EffAddr(operand(arg)?),
        ArgKind::AccessSize => Argument::AccessSize(operand(arg)?),
        ArgKind::LoadedValue => Argument::LoadedValue(operand(arg)?),
        ArgKind::StoredValue => Argument::StoredValue(operand(arg)?),
        ArgKind::RepCount => Argument::RepCount,
        ArgKind::Direction => Argument::Direction,
        _ => Argument::BranchTarget,
    };
    computed(session, request, argument)
}

/// A routine or a static that the tool exports.
fn exported(session: &Session<'_>, request: &Request<'_>, arg: &Arg) -> Result<Argument, String> {
    if request.scope != Scope::Program {
        return Err("what the tool exports is known only before and after the program".to_owned());
    }
    match session.tool.exported_in_file(arg.ptr.cast()) {
        Some((address, true)) => Ok(Argument::Routine(address)),
        Some((address, false)) => Ok(Argument::Static(address)),
        None => Err("the tool exports nothing at this address".to_owned()),
    }
}

/// A sum of registers.
fn sum(session: &Session<'_>, request: &Request<'_>, value: u64) -> Result<Argument, String> {
    if request.scope != Scope::Inst || request.place != Place::Before {
        return Err("a sum of registers is known only before an instruction".to_owned());
    }
    let [base, index, scale, ..] = value.to_le_bytes();
    let is_register = |r: u8| r <= Reg::R15 as u8 || r == calls::NO_REGISTER;
    let is_index = is_register(index) && index != Reg::Rsp as u8;
    if !is_register(base) || !is_index || ![1, 2, 4, 8].contains(&scale) {
        return Err("it is no sum of general registers".to_owned());
    }
    let displacement = (value >> 32) as i32;
    at_instruction(
        session,
        request,
        Argument::Sum(base, index, scale, displacement),
    )
}

/// An address of the program; 0 asks for the load bias.
fn image_address(session: &Session<'_>, address: u64) -> Result<Argument, String> {
    let image = session.image;
    let is_program = address >> OBJECT_SHIFT == 0 && session.numbers.object == 0;
    if session.is_one_of_several && !is_program {
        // Another object's address, or a call in another object: the load bias is found at run time.
        return Ok(Argument::Original(address));
    }
    if address != 0 && !(image.base..=image.end).contains(&address) {
        return Err(format!(
            "{address:#x} is no address of the program, which lies at {:#x} to {:#x}",
            image.base, image.end
        ));
    }
    Ok(if image.kind.is_position_independent() {
        Argument::Original(address)
    } else {
        Argument::Const(address)
    })
}

fn is_mask(register: u64) -> bool {
    (Reg::K0 as u64..=Reg::K7 as u64).contains(&register)
}

fn is_vector(register: u64) -> bool {
    (Reg::Xmm0 as u64..=Reg::Xmm31 as u64).contains(&register)
}

/// Checks the number of a memory operand.
fn operand(arg: &Arg) -> Result<u8, String> {
    match arg.value {
        ANY_OPERAND => Ok(calls::ANY_OPERAND),
        n if n < u64::from(calls::ANY_OPERAND) => Ok(n as u8),
        n => Err(format!("there is no memory operand {n}")),
    }
}

/// Checks an argument that exists only at an instruction.
fn computed(
    session: &Session<'_>,
    request: &Request<'_>,
    argument: Argument,
) -> Result<Argument, String> {
    if request.scope != Scope::Inst {
        let name = format!("{argument:?}");
        let name = name.split('(').next().unwrap_or_default();
        return Err(format!("{name} is known only at an instruction"));
    }
    at_instruction(session, request, argument)
}

/// Checks that an argument has a value, if the call is added to an instruction. Planning would find
/// the same mistake, but could not tell the tool.
fn at_instruction(
    session: &Session<'_>,
    request: &Request<'_>,
    argument: Argument,
) -> Result<Argument, String> {
    if request.scope != Scope::Inst {
        return Ok(argument);
    }
    let id = InstId(request.id);
    let transfers = matches!(
        session.cfg.inst(id).flow,
        ControlFlow::Jump | ControlFlow::CondJump | ControlFlow::IndirectJump | ControlFlow::Return
    );
    let when = match request.place {
        Place::Before => When::Before,
        Place::After if transfers => When::Transfer,
        Place::After => When::After,
    };
    let at = At::new(session.decode(id));
    let pc = session.cfg.inst_pc(id);
    let block = || session.cfg.block(session.cfg.block_of(id)).insts();
    let avx512 = || {
        let mut encodings = block().map(|i| session.decode(i).code().encoding());
        encodings.any(|e| e == crate::x86::EncodingKind::EVEX)
    };
    at.value(&argument, pc, when, 0, &avx512)
        .map_err(|error| error.reason)?;
    Ok(argument)
}

/// Refuses a procedure with an exit by a jump, where another procedure returns the value to the callers.
fn returns(session: &Session<'_>, id: ProcId) -> Result<(), String> {
    let mut parts = std::iter::once(id).chain(session.fragments(id));
    match parts.find_map(|p| session.cfg.exit_by_jump(p)) {
        None => Ok(()),
        Some(jump) => Err(format!(
            "ReturnValue is not known where the procedure ends in a jump to another one, by `{}` at {:#x}",
            session.inst_text(jump),
            session.cfg.inst_pc(jump)
        )),
    }
}

/// True if a call at this point could pass the request's first argument.
pub(super) fn offers(session: &Session<'_>, request: &Request<'_>) -> bool {
    check_point(session, request).is_ok()
        && argument(session, request, &request.args[0], &mut Calls::default()).is_ok()
}

/// Copies a string or an array to the end of `calls.data`, unless equal contents are there already; returns their range.
fn copy(arg: &Arg, elem_size: u32, calls: &mut Calls) -> Result<(u32, u32), String> {
    let start = calls.data.len();
    let too_large = || format!("all data together would exceed {MAX_DATA} bytes");
    let size = usize::try_from(arg.value)
        .ok()
        .and_then(|n| n.checked_mul(elem_size as usize))
        .filter(|size| *size <= MAX_DATA)
        .ok_or_else(too_large)?;
    if size == 0 {
        return Ok((start as u32, start as u32));
    }
    if arg.ptr.is_null() {
        return Err("its data is null".to_owned());
    }
    // SAFETY: by the interface, `arg.ptr` leads to `arg.value` elements of this size.
    let bytes = unsafe { std::slice::from_raw_parts(arg.ptr, size) };
    let hash = FxBuildHasher.hash_one(bytes);
    // The data may have been cut off since, or have other contents there now.
    if let Some(&(from, to)) = calls.known.get(&hash)
        && calls.data.get(from as usize..to as usize) == Some(bytes)
    {
        return Ok((from, to));
    }
    let others = calls.placed.len() + calls.thread_data.len as usize;
    if size.saturating_add(start + others) > MAX_DATA {
        return Err(too_large());
    }
    calls.data.extend_from_slice(bytes);
    let range = (start as u32, (start + size) as u32);
    calls.known.insert(hash, range);
    Ok(range)
}

/// Places data for the tool; returns its offset in [`Calls::placed`].
pub(super) fn place(session: &Session<'_>, bytes: *const u8, len: usize) -> Result<u64> {
    let calls = &mut *session.calls.borrow_mut();
    let start = calls.placed.len().next_multiple_of(16);
    let others = calls.data.len() + calls.thread_data.len as usize;
    let space = calls.spaces[0].of(calls.pieces.len(), len, start + others)?;
    let end = start
        .checked_add(space)
        .filter(|end| end.saturating_add(others) <= MAX_DATA);
    let Some(end) = end else {
        return Err(session.error(format!(
            "all data that it places would exceed {MAX_DATA} bytes"
        )));
    };
    calls.placed.resize(start, 0);
    calls.regions.push(start as u32);
    calls.pieces.push(Piece {
        start: start as u32,
        size: len as u32,
        space: space as u32,
    });
    if !bytes.is_null() {
        // SAFETY: by the interface, `len` bytes are there.
        calls
            .placed
            .extend_from_slice(unsafe { std::slice::from_raw_parts(bytes, len) });
    }
    calls.placed.resize(end, 0);
    Ok(start as u64)
}

/// Notes that placed data counts what the process does.
pub(super) fn mark_counts(session: &Session<'_>, offset: u64, len: usize) -> Result<()> {
    let calls = &mut *session.calls.borrow_mut();
    let start = usize::try_from(offset).unwrap_or(usize::MAX);
    let range = start..start.saturating_add(len);
    match calls.placed.get(range.clone()) {
        // The sum of all data fits into 32 bits.
        Some(bytes) if bytes.iter().all(|b| *b == 0) => {
            calls.counts.push(range.start as u32..range.end as u32);
            Ok(())
        }
        Some(_) => Err(session.error("counts that it places are not 0")),
        None => Err(session.error("counts lie outside the data that it placed")),
    }
}

/// Places data for each thread; its offset.
pub(super) fn place_thread_data(
    session: &Session<'_>,
    initial: &[u8],
    len: usize,
    sum_from: usize,
) -> Result<u64> {
    let calls = &mut *session.calls.borrow_mut();
    let others = calls.data.len() + calls.placed.len();
    let used = others + calls.thread_data.len as usize;
    let space = calls.spaces[1].of(calls.thread_data.pieces.len(), len, used)?;
    let data = &mut calls.thread_data;
    let start = data.len.next_multiple_of(16);
    if initial.len() > len || sum_from > len || !sum_from.is_multiple_of(8) {
        return Err(session.error(format!(
            "data of {len} bytes for each thread cannot have {} initial ones and cells from {sum_from} on",
            initial.len()
        )));
    }
    let end = (start as usize)
        .checked_add(space)
        .filter(|end| end.saturating_add(others) <= MAX_DATA);
    let Some(end) = end else {
        return Err(session.error(format!(
            "all data that it places would exceed {MAX_DATA} bytes"
        )));
    };
    data.len = end as u32;
    data.regions.push(start);
    data.pieces.push(Piece {
        start,
        size: len as u32,
        space: space as u32,
    });
    if initial.iter().any(|byte| *byte != 0) {
        let from = data.contents.len() as u32;
        data.contents.extend_from_slice(initial);
        data.initial.push((start, from..data.contents.len() as u32));
    }
    let cells = start + sum_from as u32..(start + len as u32) & !7;
    if cells.start < cells.end {
        data.sums.push(cells);
    }
    Ok(start.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn array(elements: &[u64]) -> Arg {
        Arg {
            kind: ArgKind::Array,
            value: elements.len() as u64,
            ptr: elements.as_ptr().cast(),
            elem_size: size_of::<u64>() as u32,
        }
    }

    #[test]
    fn equal_contents_are_stored_once() {
        let mut calls = Calls::default();
        let (a, b, c) = (vec![1u64; 1000], vec![1u64; 1000], vec![2u64; 1000]);
        let first = copied(&array(&a), &mut calls).unwrap();
        for _ in 0..1000 {
            assert_eq!(copied(&array(&b), &mut calls).unwrap(), first);
        }
        assert_eq!(calls.data.len(), 8000);
        assert_ne!(copied(&array(&c), &mut calls).unwrap(), first);
        assert_eq!(calls.data.len(), 16_000);
        // As after a call that was refused: what was cut off is copied again, even after other contents.
        calls.data.truncate(8000);
        calls.data.extend([7; 100]);
        let again = copied(&array(&c), &mut calls).unwrap();
        assert_eq!(again, Argument::Array(8100, 16_100, 8));
        assert_eq!(calls.data[8100..16_100], bytes(&c)[..]);
        let empty = copied(&array(&[]), &mut calls).unwrap();
        assert_eq!(empty, Argument::Array(16_100, 16_100, 8));
    }

    fn bytes(elements: &[u64]) -> Vec<u8> {
        elements.iter().flat_map(|n| n.to_le_bytes()).collect()
    }
}
