//! The functions of `<string.h>` that the runtime does not have.
//!
//! SAFETY of all of them: C's contract. Strings end with a null, and what is written has room.

use std::cmp::Ordering;
use std::ffi::{c_char, c_int, c_long};
use std::ptr::{null_mut, write_bytes};

use crate::varargs::bytes;

unsafe extern "C" {
    fn malloc(size: usize) -> *mut c_char;
    fn strlen(text: *const c_char) -> usize;
    fn memcpy(to: *mut c_char, from: *const c_char, n: usize) -> *mut c_char;
}

/// A position in a string as a pointer, or NULL.
unsafe fn at(text: *const c_char, found: Option<usize>) -> *mut c_char {
    found.map_or(null_mut(), |i| text.wrapping_add(i).cast_mut())
}

pub unsafe extern "C" fn strcpy(to: *mut c_char, from: *const c_char) -> *mut c_char {
    unsafe { memcpy(to, from, strlen(from) + 1) }
}

pub unsafe extern "C" fn stpcpy(to: *mut c_char, from: *const c_char) -> *mut c_char {
    unsafe {
        let n = strlen(from);
        memcpy(to, from, n + 1).add(n)
    }
}

pub unsafe extern "C" fn strncpy(to: *mut c_char, from: *const c_char, n: usize) -> *mut c_char {
    unsafe {
        let length = length_within(from, n);
        memcpy(to, from, length);
        write_bytes(to.add(length), 0, n - length);
    }
    to
}

/// The length of a string, at most `most`.
unsafe fn length_within(text: *const c_char, most: usize) -> usize {
    (0..most)
        .find(|i| unsafe { text.add(*i).read() == 0 })
        .unwrap_or(most)
}

pub unsafe extern "C" fn strcat(to: *mut c_char, from: *const c_char) -> *mut c_char {
    unsafe { strcpy(to.add(strlen(to)), from) };
    to
}

pub unsafe extern "C" fn strncat(to: *mut c_char, from: *const c_char, n: usize) -> *mut c_char {
    unsafe {
        let (end, length) = (to.add(strlen(to)), length_within(from, n));
        memcpy(end, from, length);
        end.add(length).write(0);
    }
    to
}

pub unsafe extern "C" fn mempcpy(to: *mut c_char, from: *const c_char, n: usize) -> *mut c_char {
    unsafe { memcpy(to, from, n).add(n) }
}

pub unsafe extern "C" fn memccpy(
    to: *mut c_char,
    from: *const c_char,
    c: c_int,
    n: usize,
) -> *mut c_char {
    unsafe {
        let found = (0..n).find(|i| from.add(*i).read() == c as c_char);
        memcpy(to, from, found.map_or(n, |i| i + 1));
        found.map_or(null_mut(), |i| to.add(i + 1))
    }
}

pub unsafe extern "C" fn strchr(text: *const c_char, c: c_int) -> *mut c_char {
    unsafe {
        let all = bytes(text);
        let end = (c as u8 == 0).then_some(all.len());
        at(text, end.or_else(|| all.iter().position(|b| *b == c as u8)))
    }
}

pub unsafe extern "C" fn strchrnul(text: *const c_char, c: c_int) -> *mut c_char {
    unsafe {
        let all = bytes(text);
        let found = all.iter().position(|b| *b == c as u8);
        at(text, found.or(Some(all.len())))
    }
}

pub unsafe extern "C" fn strrchr(text: *const c_char, c: c_int) -> *mut c_char {
    unsafe {
        let all = bytes(text);
        let end = (c as u8 == 0).then_some(all.len());
        at(
            text,
            end.or_else(|| all.iter().rposition(|b| *b == c as u8)),
        )
    }
}

/// The position of a text in another one.
fn find(all: &[u8], part: &[u8]) -> Option<usize> {
    match part {
        [] => Some(0),
        _ => all.windows(part.len()).position(|window| window == part),
    }
}

pub unsafe extern "C" fn strstr(text: *const c_char, part: *const c_char) -> *mut c_char {
    unsafe { at(text, find(bytes(text), bytes(part))) }
}

pub unsafe extern "C" fn strcasestr(text: *const c_char, part: *const c_char) -> *mut c_char {
    unsafe {
        let [all, part] = [text, part].map(|text| bytes(text).to_ascii_lowercase());
        at(text, find(&all, &part))
    }
}

pub unsafe extern "C" fn memmem(
    text: *const c_char,
    n: usize,
    part: *const u8,
    size: usize,
) -> *mut c_char {
    unsafe {
        let all = std::slice::from_raw_parts(text.cast(), n);
        at(text, find(all, std::slice::from_raw_parts(part, size)))
    }
}

/// The number of characters in front that are, or are not, among others.
unsafe fn span(text: *const c_char, set: *const c_char, is_in: bool) -> usize {
    unsafe {
        let set = bytes(set);
        let fits = |b: &&u8| set.contains(b) == is_in;
        bytes(text).iter().take_while(fits).count()
    }
}

pub unsafe extern "C" fn strspn(text: *const c_char, set: *const c_char) -> usize {
    unsafe { span(text, set, true) }
}

pub unsafe extern "C" fn strcspn(text: *const c_char, set: *const c_char) -> usize {
    unsafe { span(text, set, false) }
}

pub unsafe extern "C" fn strpbrk(text: *const c_char, set: *const c_char) -> *mut c_char {
    unsafe {
        let found = span(text, set, false);
        at(text, (found < strlen(text)).then_some(found))
    }
}

pub unsafe extern "C" fn strtok_r(
    text: *mut c_char,
    set: *const c_char,
    rest: *mut *mut c_char,
) -> *mut c_char {
    unsafe {
        let text = if text.is_null() { *rest } else { text };
        if text.is_null() {
            return null_mut();
        }
        let word = text.add(span(text, set, true));
        let end = word.add(span(word, set, false));
        if end == word {
            *rest = end;
            return null_mut();
        }
        *rest = end;
        if *end != 0 {
            *end = 0;
            *rest = end.add(1);
        }
        word
    }
}

pub unsafe extern "C" fn strtok(text: *mut c_char, set: *const c_char) -> *mut c_char {
    static mut REST: *mut c_char = null_mut();
    unsafe { strtok_r(text, set, &raw mut REST) }
}

pub unsafe extern "C" fn strsep(text: *mut *mut c_char, set: *const c_char) -> *mut c_char {
    unsafe {
        let word = *text;
        if word.is_null() {
            return word;
        }
        let end = word.add(span(word, set, false));
        *text = null_mut();
        if *end != 0 {
            *end = 0;
            *text = end.add(1);
        }
        word
    }
}

pub unsafe extern "C" fn strdup(text: *const c_char) -> *mut c_char {
    unsafe { strndup(text, usize::MAX) }
}

pub unsafe extern "C" fn strndup(text: *const c_char, most: usize) -> *mut c_char {
    unsafe {
        let n = length_within(text, most);
        let copy = malloc(n + 1);
        if !copy.is_null() {
            memcpy(copy, text, n);
            copy.add(n).write(0);
        }
        copy
    }
}

/// Compares without regard to case.
unsafe fn compare(a: *const c_char, b: *const c_char, most: usize) -> c_int {
    for i in 0..most {
        let [x, y] = [a, b].map(|text| unsafe { text.add(i).read() } as u8);
        let [x, y] = [x, y].map(|c| c_int::from(c.to_ascii_lowercase()));
        if x != y || x == 0 {
            return x - y;
        }
    }
    0
}

pub unsafe extern "C" fn strcasecmp(a: *const c_char, b: *const c_char) -> c_int {
    unsafe { compare(a, b, usize::MAX) }
}

pub unsafe extern "C" fn strncasecmp(a: *const c_char, b: *const c_char, n: usize) -> c_int {
    unsafe { compare(a, b, n) }
}

pub unsafe extern "C" fn memcpy_checked(
    to: *mut c_char,
    from: *const c_char,
    n: usize,
) -> *mut c_char {
    unsafe { memcpy(to, from, n) }
}

pub unsafe extern "C" fn memmove_checked(
    to: *mut c_char,
    from: *const c_char,
    n: usize,
) -> *mut c_char {
    unsafe { to.copy_from(from, n) };
    to
}

pub unsafe extern "C" fn memset_checked(to: *mut c_char, c: c_int, n: usize) -> *mut c_char {
    unsafe { write_bytes(to, c as u8, n) };
    to
}

pub unsafe extern "C" fn bzero(to: *mut u8, n: usize) {
    unsafe { write_bytes(to, 0, n) };
}

pub unsafe extern "C" fn bcopy(from: *const u8, to: *mut u8, n: usize) {
    unsafe { to.copy_from(from, n) };
}

pub unsafe extern "C" fn stpncpy(to: *mut c_char, from: *const c_char, n: usize) -> *mut c_char {
    unsafe {
        let text = bytes(from);
        strncpy(to, from, n);
        to.add(text.len().min(n))
    }
}

pub unsafe extern "C" fn strlcpy(to: *mut c_char, from: *const c_char, size: usize) -> usize {
    unsafe {
        let text = bytes(from);
        if size > 0 {
            let n = text.len().min(size - 1);
            to.cast::<u8>().copy_from(text.as_ptr(), n);
            to.add(n).write(0);
        }
        text.len()
    }
}

pub unsafe extern "C" fn strlcat(to: *mut c_char, from: *const c_char, size: usize) -> usize {
    unsafe {
        let front = (0..size).take_while(|i| *to.add(*i) != 0).count();
        front + strlcpy(to.add(front), from, size - front)
    }
}

/// In C's own locale, texts have the order of their bytes.
pub unsafe extern "C" fn strxfrm(to: *mut c_char, from: *const c_char, size: usize) -> usize {
    unsafe { strlcpy(to, from, size) }
}

pub unsafe extern "C" fn strcoll(a: *const c_char, b: *const c_char) -> c_int {
    unsafe {
        match bytes(a).cmp(bytes(b)) {
            Ordering::Less => -1,
            Ordering::Equal => 0,
            Ordering::Greater => 1,
        }
    }
}

/// The last part of a path, of `<string.h>`: it does not change the path.
pub unsafe extern "C" fn basename(path: *const c_char) -> *mut c_char {
    unsafe {
        let last = bytes(path).iter().rposition(|byte| *byte == b'/');
        path.add(last.map_or(0, |at| at + 1)).cast_mut()
    }
}

pub unsafe extern "C" fn rawmemchr(at: *const u8, byte: c_int) -> *mut u8 {
    unsafe {
        let mut at = at;
        while *at != byte as u8 {
            at = at.add(1);
        }
        at.cast_mut()
    }
}

pub extern "C" fn ffs(n: c_long) -> c_int {
    match n {
        0 => 0,
        n => n.trailing_zeros() as c_int + 1,
    }
}

/// The upper half of an `int` argument has no meaning.
pub extern "C" fn ffs_int(n: c_int) -> c_int {
    ffs(n.into())
}

/// What a signal means; for those that end processes.
pub extern "C" fn strsignal(number: c_int) -> *const c_char {
    match number {
        libc::SIGHUP => c"Hangup".as_ptr(),
        libc::SIGINT => c"Interrupt".as_ptr(),
        libc::SIGQUIT => c"Quit".as_ptr(),
        libc::SIGILL => c"Illegal instruction".as_ptr(),
        libc::SIGTRAP => c"Trace/breakpoint trap".as_ptr(),
        libc::SIGABRT => c"Aborted".as_ptr(),
        libc::SIGBUS => c"Bus error".as_ptr(),
        libc::SIGFPE => c"Floating point exception".as_ptr(),
        libc::SIGKILL => c"Killed".as_ptr(),
        libc::SIGUSR1 => c"User defined signal 1".as_ptr(),
        libc::SIGSEGV => c"Segmentation fault".as_ptr(),
        libc::SIGUSR2 => c"User defined signal 2".as_ptr(),
        libc::SIGPIPE => c"Broken pipe".as_ptr(),
        libc::SIGALRM => c"Alarm clock".as_ptr(),
        libc::SIGTERM => c"Terminated".as_ptr(),
        libc::SIGCHLD => c"Child exited".as_ptr(),
        _ => c"Unknown signal".as_ptr(),
    }
}

/// What an error number means.
pub fn error_text(number: c_int) -> String {
    let known = KNOWN.iter().find(|(n, _)| *n == number);
    known.map_or_else(
        || format!("Unknown error {number}"),
        |(_, text)| (*text).to_owned(),
    )
}

/// The errors that files and memory have.
const KNOWN: [(c_int, &str); 36] = [
    (0, "Success"),
    (libc::EPERM, "Operation not permitted"),
    (libc::ENOENT, "No such file or directory"),
    (libc::EINTR, "Interrupted system call"),
    (libc::EIO, "Input/output error"),
    (libc::ENXIO, "No such device or address"),
    (libc::EBUSY, "Device or resource busy"),
    (libc::EXDEV, "Invalid cross-device link"),
    (libc::ENODEV, "No such device"),
    (libc::ENFILE, "Too many open files in system"),
    (libc::ETXTBSY, "Text file busy"),
    (libc::EMLINK, "Too many links"),
    (libc::ENAMETOOLONG, "File name too long"),
    (libc::ENOTEMPTY, "Directory not empty"),
    (libc::ELOOP, "Too many levels of symbolic links"),
    (libc::EOVERFLOW, "Value too large for defined data type"),
    (libc::E2BIG, "Argument list too long"),
    (libc::EBADF, "Bad file descriptor"),
    (libc::EAGAIN, "Resource temporarily unavailable"),
    (libc::ENOMEM, "Cannot allocate memory"),
    (libc::EACCES, "Permission denied"),
    (libc::EFAULT, "Bad address"),
    (libc::EEXIST, "File exists"),
    (libc::ENOTDIR, "Not a directory"),
    (libc::EISDIR, "Is a directory"),
    (libc::EINVAL, "Invalid argument"),
    (libc::EMFILE, "Too many open files"),
    (libc::ENOTTY, "Inappropriate ioctl for device"),
    (libc::EFBIG, "File too large"),
    (libc::ENOSPC, "No space left on device"),
    (libc::ESPIPE, "Illegal seek"),
    (libc::EROFS, "Read-only file system"),
    (libc::EPIPE, "Broken pipe"),
    (libc::EDOM, "Numerical argument out of domain"),
    (libc::ERANGE, "Numerical result out of range"),
    (libc::ENOSYS, "Function not implemented"),
];

pub extern "C" fn strerror(number: c_int) -> *mut c_char {
    // As in C, the next call may change the text.
    static mut TEXT: [u8; 64] = [0; 64];
    let text = error_text(number);
    let n = text.len().min(63);
    // SAFETY: the text is shorter than the buffer.
    unsafe {
        let buffer = &raw mut TEXT;
        let to = buffer.cast::<u8>();
        to.copy_from_nonoverlapping(text.as_ptr(), n);
        to.add(n).write(0);
        to.cast()
    }
}
