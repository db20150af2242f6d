//! Memory that the fuzzer shares with the program.
//!
//! An environment variable has the number of a System V shared memory segment, or the name of one of POSIX (`/NAME`).

use std::env;
use std::ffi::{c_long, c_void};
use std::fs::OpenOptions;
use std::os::fd::AsRawFd;
use std::ptr;

use super::sys::syscall;

/// Shared memory that is attached.
#[derive(Clone, Copy)]
pub struct Shared {
    /// Address of its first byte.
    pub at: usize,
    /// Number of its bytes.
    pub size: usize,
}

impl Shared {
    /// Attaches the memory that a variable of the environment names. `None` if the variable is not set.
    pub fn attach(variable: &str) -> Result<Option<Self>, String> {
        let Some(name) = env::var_os(variable) else {
            return Ok(None);
        };
        let name = name.to_string_lossy();
        let name = name.as_ref();
        let attached = match name.parse() {
            Ok(number) => Self::system_v(number),
            Err(_) => Self::posix(name),
        };
        match attached {
            Some(memory) => Ok(Some(memory)),
            None => Err(format!("cannot attach shared memory {variable}={name}")),
        }
    }

    fn system_v(number: c_long) -> Option<Self> {
        const IPC_STAT: c_long = libc::IPC_STAT as c_long;
        /// Bytes of the kernel's description of a segment, at most.
        const DESCRIPTION: usize = 128;
        /// Place of the size in it, in words: it follows the permissions.
        const SIZE_AT: usize = 48 / 8;
        let mut description = [0usize; DESCRIPTION / 8];
        // SAFETY: the kernel writes the description, which is smaller than that. The new mapping's addresses are the
        // kernel's choice.
        let at = unsafe {
            if syscall(libc::SYS_shmctl, number, IPC_STAT, description.as_mut_ptr()) != 0 {
                return None;
            }
            syscall(libc::SYS_shmat, number, ptr::null::<c_void>(), 0)
        };
        let size = description[SIZE_AT];
        (at != -1).then_some(Self {
            at: at as usize,
            size,
        })
    }

    fn posix(name: &str) -> Option<Self> {
        const READ_WRITE: c_long = (libc::PROT_READ | libc::PROT_WRITE) as c_long;
        const SHARED: c_long = libc::MAP_SHARED as c_long;
        let path = format!("/dev/shm/{}", name.trim_start_matches('/'));
        let file = OpenOptions::new().read(true).write(true).open(path).ok()?;
        let size = file.metadata().ok()?.len() as usize;
        let (any, descriptor) = (ptr::null::<c_void>(), file.as_raw_fd());
        // SAFETY: as above.
        let at = unsafe { syscall(libc::SYS_mmap, any, size, READ_WRITE, SHARED, descriptor, 0) };
        (at != -1).then_some(Self {
            at: at as usize,
            size,
        })
    }
}
