//! Files without a name, files in memory, and locks.
//!
//! SAFETY of all functions: C's contract.

use std::ffi::{CStr, c_char, c_int};
use std::ptr::null_mut;

use atom_tool::SpinLock;

use super::file::File;
use super::set_errno;

unsafe extern "C" {
    fn open(path: *const c_char, flags: c_int, ...) -> c_int;
    fn getrandom(to: *mut u8, n: usize, flags: c_int) -> isize;
    fn uname(to: *mut libc::utsname) -> c_int;
}

pub unsafe extern "C" fn open_memstream(text: *mut *mut c_char, size: *mut usize) -> *mut File {
    let file = File::add(File::in_memory(text, size));
    // The text is there, empty, before anything is written.
    unsafe { File::with(file, |file| file.show_memory()) };
    file
}

pub extern "C" fn tmpfile() -> *mut File {
    let flags = libc::O_TMPFILE | libc::O_RDWR | libc::O_CLOEXEC;
    match unsafe { open(c"/tmp".as_ptr(), flags, 0o600) } {
        fd if fd >= 0 => File::add(File::of(fd, "w+")),
        _ => null_mut(),
    }
}

pub unsafe extern "C" fn mkstemp(name: *mut c_char) -> c_int {
    const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    const ATTEMPTS: usize = 100;
    unsafe {
        let length = CStr::from_ptr(name).to_bytes().len();
        let end = CStr::from_ptr(name).to_bytes().ends_with(b"XXXXXX");
        if !end {
            set_errno(libc::EINVAL);
            return -1;
        }
        let place = name.add(length - 6);
        for _ in 0..ATTEMPTS {
            let mut random = [0; 6];
            getrandom(random.as_mut_ptr(), random.len(), 0);
            for (i, byte) in random.into_iter().enumerate() {
                place
                    .add(i)
                    .write(LETTERS[usize::from(byte % 32)] as c_char);
            }
            let flags = libc::O_RDWR | libc::O_CREAT | libc::O_EXCL;
            let fd = open(name, flags, 0o600);
            if fd >= 0 || super::errno() != libc::EEXIST {
                return fd;
            }
        }
    }
    -1
}

pub unsafe extern "C" fn gethostname(to: *mut c_char, size: usize) -> c_int {
    unsafe {
        let mut names: libc::utsname = std::mem::zeroed();
        if uname(&raw mut names) != 0 {
            return -1;
        }
        if super::string::strlcpy(to, names.nodename.as_ptr(), size) >= size {
            set_errno(libc::ENAMETOOLONG);
            return -1;
        }
    }
    0
}

/// A `pthread_mutex_t`: the first word is the lock, and all zeros are a free one.
const _: () = assert!(size_of::<SpinLock>() <= size_of::<libc::pthread_mutex_t>());

pub unsafe extern "C" fn mutex_init(mutex: *mut SpinLock, _attributes: *const u8) -> c_int {
    unsafe { mutex.write(SpinLock::new()) };
    0
}

/// Waits for a free lock. In a forked child a lock of a thread of its parent's is free.
pub unsafe extern "C" fn mutex_lock(mutex: *mut SpinLock) -> c_int {
    unsafe { (*mutex).lock_for_process() };
    0
}

pub unsafe extern "C" fn mutex_trylock(mutex: *mut SpinLock) -> c_int {
    if unsafe { (*mutex).try_lock_for_process() } {
        0
    } else {
        libc::EBUSY
    }
}

pub unsafe extern "C" fn mutex_unlock(mutex: *mut SpinLock) -> c_int {
    unsafe { (*mutex).unlock() };
    0
}

pub extern "C" fn mutex_destroy(_mutex: *mut SpinLock) -> c_int {
    0
}
