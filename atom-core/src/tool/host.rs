//! The table of functions that the tool calls, over a [`Session`]. The rules of [`super::context`] hold here.

use atom_abi::host::{Arg, Context, Host, NONE, Place, ProgramInfo, Scope};
use atom_abi::{INTERFACE_VERSION, StrRef};

use super::check::{self, Request};
use super::context::{
    Numbered, bytes, items, of_address, of_scope, process, program, queries, text,
};
use super::objects;
use super::places;
use super::process::Process;
use super::query;
use super::session::Session;
use crate::cfg::Status;
use crate::error::ErrorKind;
use crate::ids::{BlockId, InstId, ProcId};
use crate::x86::direct_target;

/// The table for a process; valid as long as the process lives.
pub(super) fn table(process: &Process<'_>) -> Host {
    Host {
        version: INTERFACE_VERSION,
        size: size_of::<Host>() as u32,
        context: std::ptr::from_ref(process).cast_mut().cast(),
        error,
        panicked,
        program_name,
        program_path,
        program_info,
        named_proc,
        proc_at,
        proc_name,
        proc_file,
        proc_pc,
        proc_size,
        proc_status,
        proc_first_block,
        proc_block_count,
        block_proc,
        block_pc,
        block_first_inst,
        block_inst_count,
        inst_block,
        inst_pc,
        inst_len,
        inst_bytes,
        inst_types,
        inst_class,
        inst_target,
        inst_at,
        inst_line,
        inst_text,
        add_call,
        named_routine,
        refused_at,
        add_data,
        offers,
        proc_is_selected,
        add_thread_data,
        named_procs: query::named_procs,
        bytes_at: query::bytes_at,
        called_name: query::called_name,
        inst_info: query::inst_info,
        inst_operands: query::inst_operands,
        inst_memory: query::inst_memory,
        inst_reg_usage: query::inst_reg_usage,
        inst_reg_accesses: query::inst_reg_accesses,
        block_successors: query::block_successors,
        block_predecessors: query::block_predecessors,
        block_relation: query::block_relation,
        block_dominates: query::block_dominates,
        proc_loops: query::proc_loops,
        proc_entries: query::proc_entries,
        proc_crossings: query::proc_crossings,
        proc_frame: query::proc_frame,
        stack_alignment: query::stack_alignment,
        call_frames: query::call_frames,
        map_returns,
        tables_may_grow,
        source_frames: query::source_frames,
        labels: query::labels,
        section: query::section,
        matching_procs: query::matching_procs,
        sections: places::sections,
        data_symbols: places::data_symbols,
        variables: places::variables,
        entered_import: places::entered_import,
        inst_mnemonic: query::inst_mnemonic,
        object_count: objects::object_count,
        object: objects::object,
        bound_proc: objects::bound_proc,
        mark_counts,
        object_range: objects::object_range,
        inst_isa: query::inst_isa,
        sign,
    }
}

extern "C" fn error(context: *mut Context, is_usage: bool, message: StrRef) {
    let session = program(context);
    session.note(own_error(session, is_usage, text(message)));
}

/// An error of the tool's own: mostly about its options, so where its file is does not matter.
fn own_error(session: &Session<'_>, is_usage: bool, message: &str) -> crate::Error {
    let name = session.tool.name();
    let mut error = crate::Error::new("running the tool", message).symbol(name);
    if is_usage {
        error.kind = ErrorKind::Usage;
    }
    error
}

extern "C" fn panicked(
    context: *mut Context,
    is_usage: bool,
    message: StrRef,
    location: StrRef,
) -> ! {
    let session = program(context);
    let (message, location) = (text(message), text(location));
    if is_usage {
        match (session.panicked)(&own_error(session, true, message)) {}
    }
    let reason = match location {
        // The routine stopped by itself, where it could not return an error.
        "" => message.to_owned(),
        _ => format!("it panicked at {location}: {message}"),
    };
    match (session.panicked)(&session.error(reason)) {}
}

extern "C" fn program_name(context: *mut Context) -> StrRef {
    let session = program(context);
    let name = session.image.path.file_name().unwrap_or_default();
    let name = name.to_string_lossy();
    // ATOM's programs have the extension `.rr`; other extensions belong to the name (`python3.11`).
    let name = name.strip_suffix(".rr").unwrap_or(&name);
    StrRef::new(session.keep(name.to_owned()))
}

extern "C" fn program_path(context: *mut Context) -> StrRef {
    let session = program(context);
    StrRef::new(session.keep(session.image.path.display().to_string()))
}

extern "C" fn program_info(context: *mut Context, what: u32) -> u64 {
    use ProgramInfo::*;
    let session = program(context);
    let image = session.image;
    let sum = |number: fn(&Session<'_>) -> usize| -> u64 {
        let sessions = process(context).sessions.iter();
        sessions.map(|s| number(s) as u64).sum()
    };
    let text = || image.segments.iter().filter(|s| s.is_executable());
    let data = || {
        image
            .segments
            .iter()
            .filter(|s| s.is_writable() && !s.is_executable())
    };
    let text_start = text().map(|s| s.address).min().unwrap_or(0);
    let data_start = data().map(|s| s.address).min().unwrap_or(0);
    let file_end = data()
        .map(|s| s.address + s.file_size)
        .max()
        .unwrap_or(data_start);
    let data_end = data()
        .map(|s| s.address + s.mem_size)
        .max()
        .unwrap_or(data_start);
    let known = |item: ProgramInfo| what == item as u32;
    if known(TextStartAddress) {
        text_start
    } else if known(TextSize) {
        text()
            .map(|s| s.address + s.file_size)
            .max()
            .unwrap_or(text_start)
            - text_start
    } else if known(InitDataStartAddress) {
        data_start
    } else if known(InitDataSize) {
        file_end - data_start
    } else if known(UninitDataStartAddress) {
        file_end
    } else if known(UninitDataSize) {
        data_end.saturating_sub(file_end)
    } else if known(MayHaveThreads) {
        process(context).may_have_threads().into()
    } else if known(ProcCount) {
        sum(|s| s.cfg.procs.len())
    } else if known(BlockCount) {
        sum(|s| s.cfg.blocks.len())
    } else if known(InstCount) {
        sum(|s| s.cfg.insts.len())
    } else {
        session.note(session.error(format!(
            "it asked for number {what} about the program, which does not exist"
        )));
        0
    }
}

extern "C" fn named_proc(context: *mut Context, name: StrRef) -> u32 {
    let mut sessions = process(context).sessions.iter();
    let found = sessions.find_map(|s| Some(s.numbers.proc + s.named_proc(text(name))?.0));
    found.unwrap_or(NONE)
}

extern "C" fn proc_at(context: *mut Context, address: u64) -> u32 {
    let (session, address) = of_address(context, address);
    session
        .cfg
        .proc_at(address)
        .map_or(NONE, |id| session.numbers.proc + id.0)
}

queries! {
    fn proc_name(s, proc: ProcId, demangle: bool) -> StrRef, StrRef::new(""); {
        StrRef::new(if demangle { s.proc_name(proc) } else { s.proc_symbol(proc) })
    }

    fn proc_file(s, proc: ProcId) -> StrRef, StrRef::new(""); {
        let line = s.lines.line_at(s.cfg.proc(proc).start);
        StrRef::new(line.map_or("", |(file, _)| file))
    }

    fn proc_pc(s, proc: ProcId) -> u64, 0; { s.numbers.address(s.cfg.proc(proc).start) }

    fn proc_size(s, proc: ProcId) -> u64, 0; { s.cfg.proc(proc).end - s.cfg.proc(proc).start }

    fn proc_status(s, proc: ProcId) -> u32, 2; {
        match s.cfg.proc(proc).status {
            Status::Full => 0,
            Status::Partial(_) => 1,
            Status::Opaque(_) => 2,
        }
    }

    fn proc_first_block(s, proc: ProcId) -> u32, NONE; {
        let proc = s.cfg.proc(proc);
        if proc.is_movable() { s.numbers.block + proc.first_block.0 } else { NONE }
    }

    fn proc_block_count(s, proc: ProcId) -> u32, 0; { s.cfg.proc(proc).block_count }

    fn block_proc(s, block: BlockId) -> u32, NONE; { s.numbers.proc + s.cfg.block(block).proc.0 }

    fn block_pc(s, block: BlockId) -> u64, 0; { s.numbers.address(s.cfg.block_pc(block)) }

    fn block_first_inst(s, block: BlockId) -> u32, NONE; { s.numbers.inst + s.cfg.block(block).first.0 }

    fn block_inst_count(s, block: BlockId) -> u32, 0; { s.cfg.block(block).count }

    fn inst_block(s, inst: InstId) -> u32, NONE; { s.numbers.block + s.cfg.block_of(inst).0 }

    fn inst_pc(s, inst: InstId) -> u64, 0; { s.numbers.address(s.cfg.inst_pc(inst)) }

    fn inst_len(s, inst: InstId) -> u32, 0; { s.cfg.inst(inst).len.into() }

    fn inst_bytes(s, inst: InstId) -> StrRef, bytes(&[]); { bytes(s.inst_bytes(inst)) }

    fn inst_types(s, inst: InstId) -> u32, 0; { s.inst_types(inst) }

    fn inst_class(s, inst: InstId) -> u32, 0; { s.classifier.borrow_mut().class(&s.decode(inst)) as u32 }

    fn inst_target(s, inst: InstId) -> u64, 0; {
        if s.cfg.inst(inst).flow.is_direct() { direct_target(&s.decode(inst)).map_or(0, |t| s.numbers.address(t)) } else { 0 }
    }

    fn inst_text(s, inst: InstId) -> StrRef, StrRef::new(""); { StrRef::new(s.keep(s.inst_text(inst))) }
}

extern "C" fn inst_at(context: *mut Context, address: u64) -> u32 {
    let (session, address) = of_address(context, address);
    session
        .cfg
        .inst_at(address)
        .map_or(NONE, |id| session.numbers.inst + id.0)
}

extern "C" fn inst_line(context: *mut Context, inst: u32, file: *mut StrRef) -> u32 {
    let line =
        InstId::known(context, inst).and_then(|(s, inst)| s.lines.line_at(s.cfg.inst_pc(inst)));
    let (name, line) = line.unwrap_or(("", 0));
    if !file.is_null() {
        // SAFETY: by the interface, a pointer that is not null leads to memory for the result.
        unsafe { file.write(StrRef::new(name)) };
    }
    line
}

extern "C" fn add_call(
    context: *mut Context,
    scope: Scope,
    id: u32,
    place: Place,
    routine: *const (),
    args: *const Arg,
    arg_count: usize,
) -> i32 {
    // SAFETY: by the interface, `args` leads to `arg_count` arguments.
    let args = unsafe { items(args, arg_count) };
    let (session, id) = of_scope(context, scope, id);
    let request = Request {
        scope,
        id,
        place,
        routine,
        args,
    };
    i32::from(!check::add_call(session, &request))
}

extern "C" fn refused_at(context: *mut Context, file: StrRef, line: u32) {
    program(context).note_place(text(file), line);
}

extern "C" fn named_routine(context: *mut Context, name: StrRef) -> *const () {
    program(context)
        .tool
        .named(text(name))
        .unwrap_or(std::ptr::null())
}

extern "C" fn add_data(context: *mut Context, bytes: *const u8, len: usize) -> u64 {
    let session = program(context);
    check::place(session, bytes, len).unwrap_or_else(|error| {
        session.note_lack(error);
        u64::MAX
    })
}

extern "C" fn mark_counts(context: *mut Context, offset: u64, len: usize) {
    let session = program(context);
    if let Err(error) = check::mark_counts(session, offset, len) {
        session.note(error);
    }
}

extern "C" fn map_returns(context: *mut Context) {
    program(context).calls.borrow_mut().maps_returns = true;
}

extern "C" fn tables_may_grow(context: *mut Context) {
    program(context).calls.borrow_mut().tables_may_grow = true;
}

extern "C" fn sign(context: *mut Context, bytes: *const u8, len: usize) {
    // SAFETY: by the interface, `bytes` leads to `len` bytes.
    let bytes = unsafe { items(bytes, len) };
    program(context).calls.borrow_mut().signature.extend(bytes);
}

extern "C" fn offers(
    context: *mut Context,
    scope: Scope,
    id: u32,
    place: Place,
    arg: *const Arg,
) -> bool {
    // SAFETY: by the interface, `arg` leads to an argument.
    let args = unsafe { std::slice::from_raw_parts(arg, 1) };
    let (session, id) = of_scope(context, scope, id);
    let request = Request {
        scope,
        id,
        place,
        routine: std::ptr::null(),
        args,
    };
    check::offers(session, &request)
}

extern "C" fn proc_is_selected(context: *mut Context, proc: u32) -> bool {
    let (session, proc) = of_scope(context, Scope::Proc, proc);
    let known = session.cfg.procs.get(proc as usize);
    known.is_some_and(|known| {
        let selected = session.selected;
        selected.is_none_or(|s| s.contains(ProcId(proc), known.start))
    })
}

extern "C" fn add_thread_data(
    context: *mut Context,
    initial: *const u8,
    initial_len: usize,
    len: usize,
    sum_from: usize,
) -> u64 {
    let session = program(context);
    // SAFETY: by the interface, `initial` leads to `initial_len` bytes.
    let initial = unsafe { items(initial, initial_len) };
    check::place_thread_data(session, initial, len, sum_from).unwrap_or_else(|error| {
        session.note_lack(error);
        u64::MAX
    })
}
