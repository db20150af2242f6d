//! The functions of `<stdio.h>`.
//!
//! SAFETY of all of them: C's contract. Files are files of [`super::file`], strings end with a null, and lists have the arguments
//! that formats name.

use std::ffi::{CStr, c_char, c_int, c_long, c_void};
use std::ptr::null_mut;

use super::errno;
use super::file::{Buffering, EOF, File, STDERR, STDIN, STDOUT, for_each};
use super::format::format;
use super::scan::{self, Input, scan};
use super::string::error_text;
use crate::varargs::{VaList, bytes};

unsafe extern "C" {
    fn malloc(size: usize) -> *mut c_char;
    fn realloc(block: *mut c_void, size: usize) -> *mut c_void;
    fn unlink(path: *const c_char) -> c_int;
    fn rmdir(path: *const c_char) -> c_int;
}

crate::variadic! {
    printf => vprintf, 8, "rsi";
    fprintf => vfprintf, 16, "rdx";
    dprintf => vdprintf, 16, "rdx";
    sprintf => vsprintf, 16, "rdx";
    snprintf => vsnprintf, 24, "rcx";
    asprintf => vasprintf, 16, "rdx";
    scanf => vscanf, 8, "rsi";
    fscanf => vfscanf, 16, "rdx";
    sscanf => vsscanf, 16, "rdx";
    // What `_FORTIFY_SOURCE` makes of them.
    printf_checked => vprintf_checked, 16, "rdx";
    fprintf_checked => vfprintf_checked, 24, "rcx";
    sprintf_checked => vsprintf_checked, 32, "r8";
    snprintf_checked => vsnprintf_checked, 40, "r9";
}

/// The formatted text.
///
/// # Safety
/// C's contract: `text` ends with a null, and `list` has the arguments that `text` names.
unsafe fn formatted(text: *const c_char, list: *mut VaList) -> Vec<u8> {
    let mut printed = Vec::new();
    unsafe {
        format(
            &mut |part| printed.extend_from_slice(part),
            bytes(text),
            &mut *list,
        );
    }
    printed
}

pub unsafe extern "C" fn vfprintf(
    file: *mut File,
    text: *const c_char,
    list: *mut VaList,
) -> c_int {
    unsafe {
        let printed = formatted(text, list);
        if File::with(file, |file| file.put(&printed)) {
            printed.len() as c_int
        } else {
            -1
        }
    }
}

pub unsafe extern "C" fn vprintf(text: *const c_char, list: *mut VaList) -> c_int {
    unsafe { vfprintf(STDOUT, text, list) }
}

pub unsafe extern "C" fn vdprintf(fd: c_int, text: *const c_char, list: *mut VaList) -> c_int {
    let mut file = File::of(fd, "w");
    unsafe {
        let n = format(&mut |part| _ = file.put(part), bytes(text), &mut *list);
        if file.flush() { n as c_int } else { -1 }
    }
}

pub unsafe extern "C" fn vsnprintf(
    to: *mut c_char,
    size: usize,
    text: *const c_char,
    list: *mut VaList,
) -> c_int {
    let mut at = 0;
    unsafe {
        let n = format(
            &mut |part| {
                // One byte is the null's.
                let fits = part.len().min(size.saturating_sub(at + 1));
                to.add(at)
                    .cast::<u8>()
                    .copy_from_nonoverlapping(part.as_ptr(), fits);
                at += fits;
            },
            bytes(text),
            &mut *list,
        );
        if size > 0 {
            to.add(at).write(0);
        }
        n as c_int
    }
}

pub unsafe extern "C" fn vsprintf(
    to: *mut c_char,
    text: *const c_char,
    list: *mut VaList,
) -> c_int {
    unsafe { vsnprintf(to, usize::MAX, text, list) }
}

pub unsafe extern "C" fn vasprintf(
    to: *mut *mut c_char,
    text: *const c_char,
    list: *mut VaList,
) -> c_int {
    unsafe {
        let mut printed = formatted(text, list);
        let n = printed.len();
        let copy = malloc(n + 1);
        *to = copy;
        if copy.is_null() {
            return -1;
        }
        printed.push(0);
        copy.cast::<u8>()
            .copy_from_nonoverlapping(printed.as_ptr(), printed.len());
        n as c_int
    }
}

pub unsafe extern "C" fn vprintf_checked(
    _: c_int,
    text: *const c_char,
    list: *mut VaList,
) -> c_int {
    unsafe { vprintf(text, list) }
}

pub unsafe extern "C" fn vfprintf_checked(
    file: *mut File,
    _: c_int,
    text: *const c_char,
    list: *mut VaList,
) -> c_int {
    unsafe { vfprintf(file, text, list) }
}

pub unsafe extern "C" fn vsprintf_checked(
    to: *mut c_char,
    _: c_int,
    size: usize,
    text: *const c_char,
    list: *mut VaList,
) -> c_int {
    unsafe { vsnprintf(to, size, text, list) }
}

pub unsafe extern "C" fn vsnprintf_checked(
    to: *mut c_char,
    size: usize,
    _: c_int,
    _: usize,
    text: *const c_char,
    list: *mut VaList,
) -> c_int {
    unsafe { vsnprintf(to, size, text, list) }
}

pub unsafe extern "C" fn fopen(path: *const c_char, mode: *const c_char) -> *mut File {
    unsafe {
        let mode = String::from_utf8_lossy(bytes(mode));
        File::open(CStr::from_ptr(path), &mode).unwrap_or(null_mut())
    }
}

pub unsafe extern "C" fn fdopen(fd: c_int, mode: *const c_char) -> *mut File {
    let mode = String::from_utf8_lossy(unsafe { bytes(mode) });
    File::add(File::of(fd, &mode))
}

pub unsafe extern "C" fn fclose(file: *mut File) -> c_int {
    if unsafe { File::with(file, File::close) } {
        0
    } else {
        EOF
    }
}

pub unsafe extern "C" fn fflush(file: *mut File) -> c_int {
    let mut is_written = true;
    if file.is_null() {
        for_each(|file| is_written &= file.flush())
    } else {
        is_written = unsafe { File::with(file, File::flush) }
    }
    if is_written { 0 } else { EOF }
}

pub unsafe extern "C" fn fputs(text: *const c_char, file: *mut File) -> c_int {
    if unsafe { File::with(file, |file| file.put(bytes(text))) } {
        1
    } else {
        EOF
    }
}

pub unsafe extern "C" fn puts(text: *const c_char) -> c_int {
    unsafe {
        let line = [bytes(text), b"\n"].concat();
        if File::with(STDOUT, |file| file.put(&line)) {
            1
        } else {
            EOF
        }
    }
}

pub unsafe extern "C" fn fputc(c: c_int, file: *mut File) -> c_int {
    if unsafe { File::with(file, |file| file.put(&[c as u8])) } {
        c & 0xff
    } else {
        EOF
    }
}

pub unsafe extern "C" fn putchar(c: c_int) -> c_int {
    unsafe { fputc(c, STDOUT) }
}

/// For the macro `putc_unlocked`.
pub unsafe extern "C" fn overflow(file: *mut File, c: c_int) -> c_int {
    unsafe { fputc(c, file) }
}

pub unsafe extern "C" fn fwrite(from: *const u8, size: usize, n: usize, file: *mut File) -> usize {
    let total = size.saturating_mul(n);
    if total == 0 {
        return 0;
    }
    let text = unsafe { std::slice::from_raw_parts(from, total) };
    if unsafe { File::with(file, |file| file.put(text)) } {
        n
    } else {
        0
    }
}

pub unsafe extern "C" fn fread(to: *mut u8, size: usize, n: usize, file: *mut File) -> usize {
    let total = size.saturating_mul(n);
    if total == 0 {
        return 0;
    }
    let read = unsafe {
        File::with(file, |file| {
            let each = (0..total).map_while(|i| file.next_byte().map(|byte| to.add(i).write(byte)));
            each.count()
        })
    };
    read / size
}

pub unsafe extern "C" fn fgetc(file: *mut File) -> c_int {
    unsafe { File::with(file, |file| file.next_byte().map_or(EOF, c_int::from)) }
}

pub unsafe extern "C" fn getchar() -> c_int {
    unsafe { fgetc(STDIN) }
}

pub unsafe extern "C" fn ungetc(c: c_int, file: *mut File) -> c_int {
    if let Ok(byte) = u8::try_from(c) {
        unsafe { File::with(file, |file| file.give_back(byte)) };
    }
    c
}

pub unsafe extern "C" fn fgets(to: *mut c_char, size: c_int, file: *mut File) -> *mut c_char {
    let most = usize::try_from(size).unwrap_or(0).saturating_sub(1);
    unsafe {
        let mut n = 0;
        File::with(file, |file| {
            while n < most
                && let Some(byte) = file.next_byte()
            {
                to.add(n).write(byte as c_char);
                n += 1;
                if byte == b'\n' {
                    break;
                }
            }
        });
        if n == 0 {
            return null_mut();
        }
        to.add(n).write(0);
        to
    }
}

pub unsafe extern "C" fn getdelim(
    line: *mut *mut c_char,
    size: *mut usize,
    end: c_int,
    file: *mut File,
) -> isize {
    let mut read = Vec::new();
    unsafe {
        File::with(file, |file| {
            while let Some(byte) = file.next_byte() {
                read.push(byte);
                if c_int::from(byte) == end {
                    break;
                }
            }
        });
        if read.is_empty() {
            return -1;
        }
        let length = read.len();
        read.push(0);
        if (*line).is_null() || *size < read.len() {
            let room: *mut c_char = realloc((*line).cast(), read.len()).cast();
            if room.is_null() {
                return -1;
            }
            (*line, *size) = (room, read.len());
        }
        (*line)
            .cast::<u8>()
            .copy_from_nonoverlapping(read.as_ptr(), read.len());
        length as isize
    }
}

pub unsafe extern "C" fn getline(
    line: *mut *mut c_char,
    size: *mut usize,
    file: *mut File,
) -> isize {
    unsafe { getdelim(line, size, b'\n'.into(), file) }
}

pub unsafe extern "C" fn fgets_checked(
    to: *mut c_char,
    _: usize,
    size: c_int,
    file: *mut File,
) -> *mut c_char {
    unsafe { fgets(to, size, file) }
}

pub unsafe extern "C" fn fread_checked(
    to: *mut u8,
    _: usize,
    size: usize,
    n: usize,
    file: *mut File,
) -> usize {
    unsafe { fread(to, size, n, file) }
}

pub unsafe extern "C" fn fseek(file: *mut File, offset: c_long, from: c_int) -> c_int {
    if unsafe { File::with(file, |file| file.seek(offset, from)) } {
        0
    } else {
        -1
    }
}

pub unsafe extern "C" fn rewind(file: *mut File) {
    unsafe {
        File::with(file, |file| {
            file.seek(0, libc::SEEK_SET);
            file.clear();
        });
    }
}

pub unsafe extern "C" fn ftell(file: *mut File) -> c_long {
    unsafe { File::with(file, File::tell) }
}

pub unsafe extern "C" fn feof(file: *mut File) -> c_int {
    unsafe { File::with(file, |file| file.is_at_end()).into() }
}

pub unsafe extern "C" fn ferror(file: *mut File) -> c_int {
    unsafe { File::with(file, |file| file.has_failed()).into() }
}

pub unsafe extern "C" fn clearerr(file: *mut File) {
    unsafe { File::with(file, File::clear) };
}

pub unsafe extern "C" fn fileno(file: *mut File) -> c_int {
    unsafe { File::with(file, |file| file.descriptor()) }
}

pub unsafe extern "C" fn setvbuf(file: *mut File, _: *mut c_char, mode: c_int, _: usize) -> c_int {
    let buffering = match mode {
        libc::_IOFBF => Buffering::Full,
        libc::_IOLBF => Buffering::Lines,
        _ => Buffering::None,
    };
    unsafe { File::with(file, |file| file.set_buffering(buffering)) };
    0
}

pub unsafe extern "C" fn setbuf(file: *mut File, buffer: *mut c_char) {
    let mode = if buffer.is_null() {
        libc::_IONBF
    } else {
        libc::_IOFBF
    };
    unsafe { setvbuf(file, buffer, mode, 0) };
}

pub unsafe extern "C" fn setlinebuf(file: *mut File) {
    unsafe { setvbuf(file, null_mut(), libc::_IOLBF, 0) };
}

pub unsafe extern "C" fn perror(text: *const c_char) {
    let reason = error_text(errno());
    unsafe {
        let text = bytes(text);
        let colon: &[u8] = if text.is_empty() { b"" } else { b": " };
        let line = [text, colon, reason.as_bytes(), b"\n"].concat();
        File::with(STDERR, |file| file.put(&line));
    }
}

pub unsafe extern "C" fn remove(path: *const c_char) -> c_int {
    unsafe {
        match unlink(path) {
            0 => 0,
            _ if errno() == libc::EISDIR => rmdir(path),
            code => code,
        }
    }
}

pub unsafe extern "C" fn vfscanf(file: *mut File, text: *const c_char, list: *mut VaList) -> c_int {
    unsafe {
        File::with(file, |file| {
            let next = &mut |back: Option<u8>| match back {
                Some(byte) => {
                    file.give_back(byte);
                    None
                }
                None => file.next_byte(),
            };
            scan(&mut Input::new(next), bytes(text), &mut *list)
        })
    }
}

pub unsafe extern "C" fn vscanf(text: *const c_char, list: *mut VaList) -> c_int {
    unsafe { vfscanf(STDIN, text, list) }
}

pub unsafe extern "C" fn vsscanf(
    from: *const c_char,
    text: *const c_char,
    list: *mut VaList,
) -> c_int {
    unsafe { scan::text(bytes(from), bytes(text), &mut *list) }
}
