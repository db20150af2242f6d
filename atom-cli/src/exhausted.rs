//! What happens when memory is exhausted: a message and exit code 1.
//!
//! The standard library would print a line and abort, with a backtrace if one is wanted. The command has one large
//! job and nothing to save, so it removes its temporary files and ends.

use std::alloc::{GlobalAlloc, Layout, System};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use atom_core::{Error, Result};
use object::elf::PT_LOAD;
use object::read::elf::{ElfFile64, ProgramHeader};
use output::temporary;

/// The system's allocator, whose failures end the command.
pub struct Allocator;

/// Passes a pointer on that is not null.
fn checked(pointer: *mut u8, size: usize) -> *mut u8 {
    if pointer.is_null() && size != 0 {
        end()
    }
    pointer
}

// SAFETY: each function is the system's allocator's, whose contract is the same.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        checked(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(pointer, layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        checked(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise.
        checked(unsafe { System.realloc(pointer, layout, size) }, size)
    }
}

/// Ends the command with a message. It must not allocate.
fn end() -> ! {
    static IS_TOLD: AtomicBool = AtomicBool::new(false);
    if IS_TOLD.swap(true, Ordering::Relaxed) {
        // Another thread is ending the process.
        loop {
            // SAFETY: a system call without effects.
            unsafe { libc::pause() };
        }
    }
    tell(
        "atom: out of memory\n  help: a smaller program, or fewer libraries (--own), needs less; \
         `ulimit -v` may set a limit\n",
    );
    temporary::remove_if_free();
    // SAFETY: ends the process at once; destructors could allocate.
    unsafe { libc::_exit(1) }
}

fn tell(text: &str) {
    // SAFETY: the text is valid for the call. A failure to print cannot be told.
    let _ = unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
}

/// True for the text of a panic that comes from a lack of memory, such as a thread that cannot be started.
pub fn is_cause(panic: &str) -> bool {
    let errors = [libc::ENOMEM, libc::EAGAIN].map(|code| format!("os error {code})"));
    let codes = [libc::ENOMEM, libc::EAGAIN].map(|code| format!("code: {code},"));
    errors
        .iter()
        .chain(&codes)
        .any(|e| panic.contains(e.as_str()))
}

/// Says that memory is exhausted; for a caller that ends the process.
pub fn report() {
    tell(
        "atom: out of memory, or no more threads are allowed\n  help: `ulimit -a` shows the limits\n",
    );
}

/// Makes an abort, as tools make it when they find no memory, a message and exit code 1: a tool has a standard library of
/// its own.
pub fn on_abort() {
    extern "C" fn aborted(_: libc::c_int) {
        tell("atom: the tool or the command has aborted; is the memory exhausted?\n");
        temporary::remove_if_free();
        // SAFETY: ends the process at once.
        unsafe { libc::_exit(1) }
    }
    let handler: extern "C" fn(libc::c_int) = aborted;
    // SAFETY: the handler only writes, removes files and ends the process.
    unsafe { libc::signal(libc::SIGABRT, handler as *const () as libc::sighandler_t) };
}

/// Refuses to run an instrumented program for which the limit of the address space is too small: the kernel
/// would end it by a segmentation fault, without a word.
pub fn check_limit(program: &Path) -> Result<()> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the pointer is valid for the call.
    let got = unsafe { libc::getrlimit(libc::RLIMIT_AS, &mut limit) };
    if got != 0 || limit.rlim_cur == libc::RLIM_INFINITY {
        return Ok(());
    }
    let Some(span) = span(program).filter(|span| *span > limit.rlim_cur) else {
        return Ok(());
    };
    let kilobytes = |bytes: u64| tables::grouped(bytes.div_ceil(1024));
    let reason = format!(
        "its segments lie in {} kB of addresses, and the limit (ulimit -v) is {} kB",
        kilobytes(span),
        kilobytes(limit.rlim_cur)
    );
    let error = Error::new("running the instrumented program", reason).file(program);
    Err(error.advice("most of them are never used as memory: raise the limit, or limit resident memory by a control group"))
}

/// Bytes from the first address of a program's segments to their last.
fn span(program: &Path) -> Option<u64> {
    let file = std::fs::File::open(program).ok()?;
    let cache = object::ReadCache::new(file);
    let elf = ElfFile64::<object::LittleEndian, _>::parse(&cache).ok()?;
    let endian = elf.endian();
    let loaded = || {
        elf.elf_program_headers()
            .iter()
            .filter(|p| p.p_type(endian) == PT_LOAD)
    };
    let end = loaded()
        .map(|p| p.p_vaddr(endian).saturating_add(p.p_memsz(endian)))
        .max()?;
    Some(end - loaded().map(|p| p.p_vaddr(endian)).min()?)
}
