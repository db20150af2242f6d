//! Libraries that the process opens while it runs are instrumented when they are opened.
//!
//! The program interpreter is about to open a file that is a library and none of the known objects. The runtime
//! starts `atom` in a child process and waits. `atom` runs the instrument routine again, for all objects with the
//! library after them, and writes the instrumented library and a file that is mapped into the area
//! ([`atom_abi::LateInfo`]). From then on the library is an object like the others. If anything fails, it runs as it is.
//!
//! The child shares the memory of the process until it executes `atom` (`vfork`), and ends without a signal, so the
//! program's own children, SIGCHLD and `wait` are not concerned. All signals wait meanwhile. The loader opens
//! libraries one after the other, under a lock of its own.

use core::ffi::c_void;
use core::mem::MaybeUninit;
use core::ptr::{null, null_mut, with_exposed_provenance};
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};

use atom_abi::{LATE_VERSION, LateInfo, ThreadBlock};

use crate::process::identity::{self, ProcessKind};
use crate::process::{info, mapping, table, told};
use crate::sys::call::{call6, is_error, syscall};
use crate::sys::sandbox;
use crate::sys::{clone, memory, signals, stacks};

/// Size in bytes of the longest path, with its null.
const MOST_PATH: usize = libc::PATH_MAX as usize;
/// Size in bytes of the child's stack.
const STACK: usize = 1 << 16;
/// Most words of the command line.
const MOST_WORDS: usize = 16;
/// Number of files that are remembered because they could not be instrumented.
const MOST_REFUSED: usize = 64;

/// True while a library is added.
static IS_BUSY: AtomicBool = AtomicBool::new(false);
/// Path of the state that `atom` left for the next library, with a null after it; empty before the first one.
static STATE: [AtomicU8; MOST_PATH] = [const { AtomicU8::new(0) }; MOST_PATH];
/// Inodes of files that could not be instrumented.
static REFUSED: [AtomicU64; MOST_REFUSED] = [const { AtomicU64::new(0) }; MOST_REFUSED];
static REFUSED_COUNT: AtomicUsize = AtomicUsize::new(0);
/// Number of objects with which the process began; 0 as long as none was added.
static FIRST_ADDED: AtomicUsize = AtomicUsize::new(0);

/// System calls that adding a library needs.
const NEEDED: [i64; 9] = [
    libc::SYS_clone,
    libc::SYS_execve,
    libc::SYS_pipe2,
    libc::SYS_dup2,
    libc::SYS_close_range,
    libc::SYS_wait4,
    libc::SYS_read,
    libc::SYS_pread64,
    libc::SYS_mmap,
];

/// Calls `each` with the path of each library that was instrumented and opened while the process ran.
pub fn late_objects(each: &mut dyn FnMut(&[u8])) {
    let first = FIRST_ADDED.load(Ordering::Acquire);
    if let Some(process) = table::process().filter(|_| first != 0) {
        let added = table::objects(process).iter().enumerate().skip(first);
        let opened = added.filter(|(i, _)| mapping::was_opened(process, *i));
        opened.for_each(|(_, object)| each(crate::process::objects::path(object)));
    }
}

/// Instruments the library at `path`, which ends with a null after it and has this inode, and adds it to the objects of
/// the process. False if it runs as it is.
///
/// # Safety
/// Called before the program interpreter opens the file.
pub(crate) unsafe fn add(path: &[u8], inode: u64) -> bool {
    let Some((words, first_state)) = told::late() else {
        return false;
    };
    let is_possible = sandbox_allows()
        && identity::kind() != ProcessKind::Other
        && !super::follow::has_little_space()
        && path.len() < MOST_PATH;
    let refused = REFUSED_COUNT.load(Ordering::Relaxed).min(MOST_REFUSED);
    if !is_possible
        || REFUSED[..refused].iter().any(|r| r.load(Ordering::Relaxed) == inode)
        // SAFETY: the path ends with a null.
        || !unsafe { is_library(path) }
        || IS_BUSY.swap(true, Ordering::Acquire)
    {
        return false;
    }
    let mut wish = Wish {
        words,
        first_state,
        path,
        is_added: false,
    };
    // SAFETY: the flag is this thread's, so nobody else is here; the wish lives across the call.
    signals::with_all_blocked(|| unsafe { stacks::call(work, (&raw mut wish).cast()) });
    let is_added = wish.is_added;
    if !is_added {
        let at = REFUSED_COUNT.fetch_add(1, Ordering::Relaxed);
        if let Some(place) = REFUSED.get(at) {
            place.store(inode, Ordering::Relaxed);
        }
    }
    IS_BUSY.store(false, Ordering::Release);
    is_added
}

/// What is wanted.
struct Wish<'a> {
    words: &'a [u8],
    first_state: &'a [u8],
    path: &'a [u8],
    /// What came of it.
    is_added: bool,
}

/// Fulfils a [`Wish`].
unsafe extern "C" fn work(wish: *mut c_void) {
    // SAFETY: `add` passes a wish that lives across the call.
    unsafe {
        let wish = &mut *wish.cast::<Wish<'_>>();
        wish.is_added = made_and_mapped(wish.words, wish.first_state, wish.path);
    }
}

fn sandbox_allows() -> bool {
    NEEDED.iter().all(|number| sandbox::is_allowed(*number)) && sandbox::may_report()
}

/// True for a shared object for x86-64.
///
/// # Safety
/// A null is after the path.
unsafe fn is_library(path: &[u8]) -> bool {
    const HEAD: usize = 20;
    const CLASS_64: u8 = 2;
    const DYNAMIC: [u8; 2] = [3, 0];
    const X86_64: [u8; 2] = [62, 0];
    let mut head = [0u8; HEAD];
    // SAFETY: the caller's promise; the kernel writes at most the buffer's length.
    let is_read = unsafe { read_start(path.as_ptr(), head.as_mut_ptr(), HEAD) };
    is_read
        && head.starts_with(b"\x7fELF")
        && head[4] == CLASS_64
        && head[16..18] == DYNAMIC
        && head[18..20] == X86_64
}

/// Reads the first `len` bytes of a file; false if there are fewer.
///
/// # Safety
/// The path ends with a null; `len` bytes may be written at `to`.
unsafe fn read_start(path: *const u8, to: *mut u8, len: usize) -> bool {
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    // SAFETY: the caller's promise.
    unsafe {
        let file = syscall!(libc::SYS_openat, libc::AT_FDCWD, path, flags, 0);
        if is_error(file) {
            return false;
        }
        let read = syscall!(libc::SYS_pread64, file, to, len, 0);
        syscall!(libc::SYS_close, file);
        read == len as isize
    }
}

/// Has the library instrumented and maps what belongs to it.
///
/// # Safety
/// One thread at a time; all signals wait; a null is after the path.
unsafe fn made_and_mapped(words: &[u8], first_state: &[u8], path: &[u8]) -> bool {
    let mut answer = [0u8; MOST_PATH];
    // SAFETY: the caller's promise.
    let Some(len) = (unsafe { ask(words, first_state, path, &mut answer) }) else {
        return false;
    };
    // The answer is a folder.
    const FILE: &[u8] = b"/area\0";
    const NEXT: &[u8] = b"/state\0";
    if len == 0 || len + NEXT.len() > MOST_PATH {
        return false;
    }
    answer[len..len + FILE.len()].copy_from_slice(FILE);
    // SAFETY: the path ends with a null.
    if !unsafe { map(answer.as_ptr()) } {
        return false;
    }
    answer[len..len + NEXT.len()].copy_from_slice(NEXT);
    for (cell, byte) in STATE.iter().zip(&answer[..len + NEXT.len()]) {
        cell.store(*byte, Ordering::Relaxed);
    }
    true
}

/// Runs `atom`; returns the number of bytes of its answer.
///
/// # Safety
/// As for [`made_and_mapped`].
unsafe fn ask(
    words: &[u8],
    first_state: &[u8],
    path: &[u8],
    answer: &mut [u8; MOST_PATH],
) -> Option<usize> {
    let mut arguments = [null::<u8>(); MOST_WORDS + 3];
    let mut count = 0;
    for word in words.split_inclusive(|b| *b == 0) {
        *arguments[..MOST_WORDS].get_mut(count)? = word.as_ptr();
        count += 1;
    }
    arguments[count] = match STATE[0].load(Ordering::Relaxed) {
        0 => first_state.as_ptr(),
        _ => STATE.as_ptr().cast(),
    };
    arguments[count + 1] = path.as_ptr();
    let stack = memory::map(STACK);
    if stack.is_null() {
        return None;
    }
    let mut pipe = [0i32; 2];
    // SAFETY: the kernel writes two descriptors.
    if is_error(unsafe { syscall!(libc::SYS_pipe2, pipe.as_mut_ptr(), libc::O_CLOEXEC) }) {
        // SAFETY: mapped above, for this alone.
        unsafe { memory::unmap(stack, STACK) };
        return None;
    }
    let child = Child {
        arguments: arguments.as_ptr(),
        output: pipe[1],
    };
    // SAFETY: the stack is the child's alone; this thread continues when the child has executed `atom` or ended.
    unsafe {
        let argument = (&raw const child).expose_provenance();
        let number = clone::start(FLAGS, stack.add(STACK), null_mut(), run, argument);
        syscall!(libc::SYS_close, pipe[1]);
        let mut len = 0;
        while !is_error(number) && len < answer.len() {
            let rest = answer.len() - len;
            let read = syscall!(libc::SYS_read, pipe[0], answer[len..].as_mut_ptr(), rest);
            if read <= 0 {
                break;
            }
            len += read as usize;
        }
        syscall!(libc::SYS_close, pipe[0]);
        let mut status = -1i32;
        if !is_error(number) {
            syscall!(libc::SYS_wait4, number, &raw mut status, libc::__WALL, 0);
        }
        memory::unmap(stack, STACK);
        (status == 0).then_some(len)
    }
}

/// The flags of `clone`; there is no signal at the end.
const FLAGS: i32 = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_UNTRACED;

/// What the child needs.
struct Child {
    /// The command line, with a null at its end.
    arguments: *const *const u8,
    /// Descriptor to which the command's output goes.
    output: i32,
}

/// Executes `atom`. The descriptors are the child's own.
extern "C" fn run(child: usize) -> ! {
    const ERROR: usize = 1;
    const CLOSE_ON_EXEC: usize = 4;
    let environment = [null::<u8>()];
    let nothing = c"/dev/null".as_ptr();
    // SAFETY: the parent passes its `Child`, which lives until the child has executed `atom`. System calls on the child's
    // descriptors; the parent's memory stays as it is.
    unsafe {
        let child = &*with_exposed_provenance::<Child>(child);
        syscall!(libc::SYS_dup2, child.output, 1);
        let null = syscall!(libc::SYS_openat, libc::AT_FDCWD, nothing, libc::O_RDWR, 0);
        syscall!(libc::SYS_dup2, null, 0);
        syscall!(libc::SYS_dup2, null, 2);
        syscall!(libc::SYS_close_range, 3, u32::MAX, CLOSE_ON_EXEC);
        syscall!(
            libc::SYS_execve,
            *child.arguments,
            child.arguments,
            environment.as_ptr()
        );
        loop {
            call6(libc::SYS_exit_group as usize, [ERROR; 6]);
        }
    }
}

/// Maps the file of an added library and changes the words that it names.
///
/// # Safety
/// The path ends with a null; `atom` wrote the file.
unsafe fn map(path: *const u8) -> bool {
    let mut head = MaybeUninit::<LateInfo>::uninit();
    // SAFETY: the caller's promise. The file is as its head says.
    unsafe {
        if !read_start(path, head.as_mut_ptr().cast(), size_of::<LateInfo>()) {
            return false;
        }
        let head = head.assume_init();
        let Some(process) = table::process() else {
            return false;
        };
        let before = process.object_count;
        if head.version != LATE_VERSION || head.object != before {
            return false;
        }
        let file = syscall!(
            libc::SYS_openat,
            libc::AT_FDCWD,
            path,
            libc::O_RDONLY | libc::O_CLOEXEC,
            0
        );
        if is_error(file) {
            return false;
        }
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_FIXED_NOREPLACE;
        let at = syscall!(
            libc::SYS_mmap,
            head.start,
            head.size,
            access,
            flags,
            file,
            0
        );
        syscall!(libc::SYS_close, file);
        if at != head.start as isize {
            if !is_error(at) {
                // A kernel before 4.17 takes the address for a wish.
                syscall!(libc::SYS_munmap, at, head.size);
            }
            return false;
        }
        for [address, value] in list(head.words, head.word_count) {
            AtomicU64::from_ptr(*address as *mut u64).store(*value, Ordering::Release);
        }
        let blocks = list(head.block_words, head.block_word_count);
        let main = info::get()
            .and_then(|info| info.cells.as_ref())
            .map(|cells| cells.main);
        let mut block = main.unwrap_or(core::ptr::null_mut::<ThreadBlock>());
        while let Some(header) = block.as_ref() {
            for [offset, value] in blocks {
                let cell = block.cast::<u8>().add(*offset as usize).cast::<u64>();
                AtomicU64::from_ptr(cell).store(*value, Ordering::Release);
            }
            block = header.next.load(Ordering::Acquire);
        }
        let first = &FIRST_ADDED;
        first
            .compare_exchange(0, before, Ordering::AcqRel, Ordering::Acquire)
            .unwrap_or_default();
    }
    true
}

/// The entries of a list.
///
/// # Safety
/// `atom` wrote that many entries there.
unsafe fn list(first: *const [u64; 2], count: usize) -> &'static [[u64; 2]] {
    match count {
        0 => &[],
        // SAFETY: the caller's promise; the file stays mapped.
        _ => unsafe { core::slice::from_raw_parts(first, count) },
    }
}
