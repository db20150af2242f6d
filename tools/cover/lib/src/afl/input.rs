//! The test case in memory.
//!
//! A fuzzer may offer shared memory for test cases: their length in 32 bits, then their bytes. Where it does not, the
//! test case is read from descriptor 0.

use std::ffi::{c_int, c_long};
use std::ptr;

use super::shared::Shared;
use super::sys::syscall;

/// The variable that names the shared memory.
const VARIABLE: &str = "__AFL_SHM_FUZZ_ID";

/// Bytes of the length in front of the test case.
const LENGTH: usize = size_of::<u32>();

/// Where test cases come from.
pub enum Source {
    /// Memory of the fuzzer's.
    Shared(Shared),
    /// Descriptor 0.
    Descriptor(Vec<u8>),
}

impl Source {
    /// What the environment offers.
    pub fn of_environment() -> Result<Self, String> {
        Ok(match Shared::attach(VARIABLE)? {
            Some(memory) if memory.size > LENGTH => Self::Shared(memory),
            _ => Self::Descriptor(Vec::new()),
        })
    }

    /// True for shared memory, which the announcement has to mention.
    pub fn is_shared(&self) -> bool {
        matches!(self, Self::Shared(_))
    }

    /// Address and length of the test case.
    pub fn test_case(&mut self) -> [u64; 2] {
        match self {
            Self::Shared(Shared { at, size }) => {
                // SAFETY: attached by `of_environment`, and never detached. The fuzzer writes before it asks for a run.
                let length = unsafe { ptr::with_exposed_provenance::<u32>(*at).read_volatile() };
                [
                    (*at + LENGTH) as u64,
                    u64::from(length).min((*size - LENGTH) as u64),
                ]
            }
            Self::Descriptor(bytes) => {
                read_all(bytes);
                [
                    bytes.as_ptr().expose_provenance() as u64,
                    bytes.len() as u64,
                ]
            }
        }
    }
}

/// Reads descriptor 0 from its start to its end, or what is left of a pipe.
fn read_all(bytes: &mut Vec<u8>) {
    const DESCRIPTOR: c_int = 0;
    const STEP: usize = 64 << 10;
    let start: c_long = 0;
    // SAFETY: no effect on memory.
    unsafe { syscall(libc::SYS_lseek, DESCRIPTOR, start, libc::SEEK_SET) };
    bytes.clear();
    loop {
        let before = bytes.len();
        bytes.resize(before + STEP, 0);
        // SAFETY: the kernel writes at most the new bytes.
        let read = unsafe {
            syscall(
                libc::SYS_read,
                DESCRIPTOR,
                bytes[before..].as_mut_ptr(),
                STEP,
            )
        };
        bytes.truncate(before + usize::try_from(read).unwrap_or(0));
        if read <= 0 {
            return;
        }
    }
}
