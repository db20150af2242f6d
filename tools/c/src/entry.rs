//! The header of a tool in C, and the way from `atom` to the C instrument routine.

use std::ffi::{CString, c_char, c_int, c_long};
use std::ptr::null;

use atom_tool::private::{self, Export, Host, Instrument, StartInfo, StrRef, ToolHeader};
use atom_tool::{Args, Program, Result, output};

use crate::c::{EXPORT_COUNT, EXPORTS};
use crate::primitives::{handles, options};

unsafe extern "C" {
    /// The user's routine, by way of a function that the command compiles with the tool. Returns 0, or an error
    /// of an `InstrumentAll`.
    fn atom_c_instrument(count: c_int, arguments: *mut *const c_char, object: usize) -> c_int;
}

const TOTAL: usize = EXPORT_COUNT + private::EXPORT_COUNT;

/// All functions that analysis routines can call by C's names. The first entry of a name counts.
static ALL: [Export; TOTAL] = {
    const NOTHING: Export = Export {
        name: StrRef::new(""),
        address: null(),
    };
    let mut all = [NOTHING; TOTAL];
    let mut i = 0;
    while i < TOTAL {
        let from = if i < private::EXPORT_COUNT {
            &private::EXPORTS[i]
        } else {
            &EXPORTS[i - private::EXPORT_COUNT]
        };
        all[i] = Export {
            name: from.name,
            address: from.address,
        };
        i += 1;
    }
    all
};

/// The symbol by which `atom` recognises a tool.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static atom_tool_header: ToolHeader =
    private::header_with(run, ALL.as_ptr(), TOTAL, start_in_program);

/// The symbol by which a debugger finds the instrument routine.
#[unsafe(no_mangle)]
#[allow(non_upper_case_globals)]
pub static atom_tool_instrument: Instrument = instrument;

extern "C" fn run(host: *const Host, count: usize, args: *const StrRef) -> i32 {
    // SAFETY: `atom` calls this with its table and its arguments.
    unsafe { private::run(atom_tool_instrument, "", host, count, args) }
}

/// Starts the runtime in the instrumented program.
///
/// # Safety
/// As for [`private::start`].
unsafe extern "C" fn start_in_program(info: *const StartInfo, stack: *const usize) {
    // Routines at ProgramBefore, and constructors, use C's library, and may end the process.
    private::set_begin_hook(|| {
        crate::c::begin();
        private::set_flush_hook(|| {
            crate::c::at_end();
            private::flush();
        });
    });
    // SAFETY: the caller's promise.
    unsafe { private::start(info, stack) }
}

fn instrument(program: &Program, args: &Args) -> Result {
    // Output of `printf` at ProgramAfter is lost in programs that close their standard output before they end.
    output::keep_stdout(program);
    let name = CString::new(program.name()).unwrap_or_default();
    let mut words = vec![name];
    for word in args.as_slice() {
        words.push(CString::new(*word)?);
    }
    let mut pointers: Vec<*const c_char> = words.iter().map(|word| word.as_ptr()).collect();
    pointers.push(null());
    let _open = handles::open(program);
    options::open(args);
    let object = handles::number(program.objects().next().map(|object| object.index()));
    // SAFETY: the user's function; it takes the arguments of C's `main`, and a handle.
    let code = unsafe { atom_c_instrument(words.len() as c_int, pointers.as_mut_ptr(), object) };
    match code {
        0 => Ok(()),
        code => Err(format!("InstrumentAll returned {code}").into()),
    }
}

const _: () = assert!(size_of::<c_long>() == 8);
