//! The way from `atom` into the tool: the header, the instrument routine, its panics.

use std::panic::PanicHookInfo;

use analysis_rt::EXPORTS;
use atom_abi::host::Host;
use atom_abi::{Export, INTERFACE_VERSION, StartInfo, StrRef, TOOL_MAGIC, ToolHeader};

use crate::navigation::program::{Program, Session};
use crate::options::{Args, WrongOption};
use crate::report::output;
use crate::{Error, Result};

/// Runs an instrument routine inside `atom`.
pub type Run = extern "C" fn(*const Host, usize, *const StrRef) -> i32;

/// The header that [`tool!`](crate::tool) exports.
pub const fn header(instrument: Run) -> ToolHeader {
    header_with(instrument, EXPORTS.as_ptr(), EXPORTS.len(), start)
}

/// As [`header`], with a longer table of C functions and a start of its own, which calls [`start`].
pub const fn header_with(
    instrument: Run,
    exports: *const Export,
    export_count: usize,
    start: unsafe extern "C" fn(*const StartInfo, *const usize),
) -> ToolHeader {
    ToolHeader {
        magic: TOOL_MAGIC,
        version: INTERFACE_VERSION,
        size: size_of::<ToolHeader>() as u32,
        instrument,
        exports,
        export_count,
        start,
        finish: analysis_rt::finish,
        thread_enter: analysis_rt::thread_enter,
        thread_started: analysis_rt::thread_started,
        thread_block: analysis_rt::thread_block,
    }
}

/// The bytes of a text; `N` is its length.
pub const fn bytes<const N: usize>(text: &str) -> [u8; N] {
    let (text, mut bytes, mut i) = (text.as_bytes(), [0; N], 0);
    while i < N {
        bytes[i] = text[i];
        i += 1;
    }
    bytes
}

/// Starts the runtime in the instrumented program.
///
/// # Safety
/// The same as for [`ToolHeader::start`].
pub unsafe extern "C" fn start(info: *const StartInfo, stack: *const usize) {
    analysis_rt::set_flush_hook(flush);
    // SAFETY: the caller's promise.
    unsafe { analysis_rt::start(info, stack) }
    output::begin();
    crate::report::begin();
}

/// The end of the calls at ProgramAfter. Flushes the buffers of `print!` and of logs; nothing else does, as the runtime never returns
/// from `main`.
pub fn flush() {
    use std::io::Write;
    output::flush_all();
    // An error here cannot be reported: the process ends.
    let _ = std::io::stdout().flush();
    output::all_written();
}

/// An instrument routine.
pub type Instrument = fn(&Program<'_>, &Args<'_>) -> Result;

/// Runs an instrument routine, whose options `help` declares. Returns 0, or 1 after having reported its error.
///
/// # Safety
/// `host` is the table of an `atom` of this interface version, valid for the
/// call; `args` points to `count` strings that live as long.
pub unsafe fn run(
    instrument: Instrument,
    help: &str,
    host: *const Host,
    count: usize,
    args: *const StrRef,
) -> i32 {
    // SAFETY: the caller's promise.
    let host = unsafe { &*host };
    let args: Vec<&str> = (0..count)
        // SAFETY: the caller's promise.
        .map(|i| unsafe { (*args.add(i)).as_str() })
        .collect();

    // A panic must not unwind into `atom`, which has a std of its own, and with panic=abort it
    // cannot unwind. The hook runs in both cases and does not return.
    let table = host as *const Host as usize;
    std::panic::set_hook(Box::new(move |info| panicked(table as *const Host, info)));
    let session = Session::new(host);
    // Not inlined here, so that a breakpoint at the routine is reached.
    let instrument = std::hint::black_box(instrument);
    let result = instrument(
        &Program { session: &session },
        &Args::new(&args, help, Some(&session)),
    );
    let _ = std::panic::take_hook();

    match result {
        Ok(()) => 0,
        Err(error) => {
            let is_usage = error.is::<WrongOption>();
            (host.error)(host.context, is_usage, StrRef::new(&chain(&error)));
            1
        }
    }
}

fn panicked(host: *const Host, info: &PanicHookInfo<'_>) {
    let payload = info.payload();
    let message = match (
        payload.downcast_ref::<&str>(),
        payload.downcast_ref::<String>(),
    ) {
        (Some(text), _) => text,
        (_, Some(text)) => text.as_str(),
        _ => "(a panic without a message)",
    };
    let location = info.location().map_or(String::new(), |at| at.to_string());
    // SAFETY: the hook is removed before the table's life ends.
    let host = unsafe { &*host };
    let (message, location) = (StrRef::new(message), StrRef::new(&location));
    (host.panicked)(host.context, false, message, location)
}

/// An error and its causes on one line.
fn chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let cause_text = cause.to_string();
        // The text of many errors ends with the text of their cause.
        if !text.ends_with(&cause_text) {
            text.push_str(": ");
            text.push_str(&cause_text);
        }
        source = cause.source();
    }
    text
}
