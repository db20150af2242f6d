//! Seccomp filters that the application installs.
//!
//! A filter is a program of the classic Berkeley packet filter. Just before the application installs a
//! filter, the program is run here for each system call's number, to see whether the call passes, fails or ends
//! the process. A filter that looks at arguments counts as one that may end it.

use atom_abi::SystemCall;

use crate::process::copy::copy_words;
use crate::sys::call::{note_pid, syscall};
use crate::sys::memory;
use crate::sys::sandbox::{Effect, forbid, is_allowed};

/// `PR_SET_SECCOMP` with `SECCOMP_MODE_STRICT` allows these calls only.
const STRICT: [i64; 4] = [
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_exit,
    libc::SYS_rt_sigreturn,
];

/// Most instructions of a filter (`BPF_MAXINSNS`).
const MOST: usize = 4096;

/// Looks at a system call `prctl` or `seccomp` that the application makes next.
pub(crate) fn look(call: &SystemCall) {
    let [first, second, third, ..] = call.arguments;
    let (mode, filter) = match call.number as i64 {
        libc::SYS_prctl if first == libc::PR_SET_SECCOMP as usize => (second, third),
        libc::SYS_seccomp if first == libc::SECCOMP_SET_MODE_STRICT as usize => {
            (libc::SECCOMP_MODE_STRICT as usize, 0)
        }
        libc::SYS_seccomp if first == libc::SECCOMP_SET_MODE_FILTER as usize => {
            (libc::SECCOMP_MODE_FILTER as usize, third)
        }
        _ => return,
    };
    if mode == libc::SECCOMP_MODE_STRICT as usize {
        restrict(|number| {
            if STRICT.contains(&(number as i64)) {
                Effect::Passes
            } else {
                Effect::Ends
            }
        });
    } else if mode == libc::SECCOMP_MODE_FILTER as usize && may_install() {
        with_filter(filter, |filter| {
            restrict(|number| effect(filter, number as u32).unwrap_or(Effect::Depends));
        });
    }
}

/// Takes what a process needs that is shut in, and notes what a new filter does.
fn restrict(effect: impl Fn(usize) -> Effect) {
    if effect(libc::SYS_mmap as usize) != Effect::Passes {
        memory::set_aside();
    }
    note_pid();
    forbid(effect);
}

/// True unless the kernel certainly refuses a filter: the process needs `no_new_privs`, or privileges.
fn may_install() -> bool {
    // SAFETY: no effect on memory.
    unsafe {
        !is_allowed(libc::SYS_geteuid)
            || syscall!(libc::SYS_prctl, libc::PR_GET_NO_NEW_PRIVS) == 1
            || syscall!(libc::SYS_geteuid) == 0
    }
}

/// Gives the instructions of the filter that a `struct sock_fprog` names to `act`, if they can be read.
fn with_filter(program: usize, act: impl FnOnce(&[u64])) {
    let mut head = [0; 2];
    if !copy_words(program, &mut head) {
        return;
    }
    // The number of instructions has 16 bits.
    let (count, from) = ((head[0] & 0xffff) as usize, head[1] as usize);
    if count == 0 || count > MOST {
        return;
    }
    let size = count * size_of::<u64>();
    if !is_allowed(libc::SYS_mmap) || !is_allowed(libc::SYS_munmap) {
        // The next filter of a process that is shut in so far changes nothing that matters here.
        return;
    }
    let room = memory::map(size);
    if room.is_null() {
        return;
    }
    // SAFETY: the mapping is new, zeroed and has this size.
    let filter = unsafe { core::slice::from_raw_parts_mut(room.cast::<u64>(), count) };
    if copy_words(from, filter) {
        act(filter);
    }
    // SAFETY: nobody else knows the mapping.
    unsafe { memory::unmap(room, size) };
}

/// Numbers of the filter's memory words.
const SCRATCH: usize = 16;
/// `AUDIT_ARCH_X86_64`: the contents of the field `arch`.
const ARCH: u32 = 0xc000_003e;

/// Runs a filter for a system call. `None` for a filter that reads an argument, or that is malformed.
fn effect(filter: &[u64], number: u32) -> Option<Effect> {
    let (mut a, mut x, mut scratch) = (0u32, 0u32, [0u32; SCRATCH]);
    let mut at = 0;
    // Jumps lead forward only.
    while let Some(word) = filter.get(at) {
        let (code, jt, jf) = (*word as u16, (word >> 16) as u8, (word >> 24) as u8);
        let k = (word >> 32) as u32;
        at += 1;
        let operand = match code & 0x08 {
            0 => k,
            _ => x,
        };
        match (code & 0x07, code) {
            // Loads: from the system call's data, a constant, memory, the length of the data.
            (0, 0x20) => {
                a = match k {
                    0 => number,
                    4 => ARCH,
                    _ => return None,
                }
            }
            (0, 0x00) => a = k,
            (0, 0x60) if (k as usize) < SCRATCH => a = scratch[k as usize],
            (0, 0x80) => a = DATA,
            (1, 0x01) => x = k,
            (1, 0x61) if (k as usize) < SCRATCH => x = scratch[k as usize],
            (1, 0x81) => x = DATA,
            (2, _) if (k as usize) < SCRATCH => scratch[k as usize] = a,
            (3, _) if (k as usize) < SCRATCH => scratch[k as usize] = x,
            (4, _) => match alu(code, a, operand) {
                Some(result) => a = result,
                None => return None,
            },
            (5, _) => {
                at += match code & 0xf0 {
                    0x00 => k as usize,
                    0x10 if a == operand => jt.into(),
                    0x20 if a > operand => jt.into(),
                    0x30 if a >= operand => jt.into(),
                    0x40 if a & operand != 0 => jt.into(),
                    _ => jf.into(),
                }
            }
            (6, _) => {
                let action = if code & 0x18 == 0x10 { a } else { k };
                return Some(match action & ACTION {
                    libc::SECCOMP_RET_ALLOW | libc::SECCOMP_RET_LOG => Effect::Passes,
                    libc::SECCOMP_RET_ERRNO => Effect::Fails,
                    _ => Effect::Ends,
                });
            }
            (7, 0x07) => x = a,
            (7, 0x87) => a = x,
            _ => return None,
        }
    }
    None
}

/// Size of `struct seccomp_data` in bytes.
const DATA: u32 = 64;
/// Mask of the action in a filter's answer.
const ACTION: u32 = 0xffff_0000;

fn alu(code: u16, a: u32, operand: u32) -> Option<u32> {
    Some(match code & 0xf0 {
        0x00 => a.wrapping_add(operand),
        0x10 => a.wrapping_sub(operand),
        0x20 => a.wrapping_mul(operand),
        0x30 => a.checked_div(operand)?,
        0x40 => a | operand,
        0x50 => a & operand,
        0x60 => a.checked_shl(operand).unwrap_or(0),
        0x70 => a.checked_shr(operand).unwrap_or(0),
        0x80 => a.wrapping_neg(),
        0xa0 => a ^ operand,
        _ => return None,
    })
}
