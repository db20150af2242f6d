//! The few ptrace requests that the stepper makes, as safe functions.
//!
//! The invariant after each `unsafe`: the request reads or writes only the
//! traced process, or a local variable of the type that the request documents.

use std::io;

use libc::{c_long, c_void, pid_t, user_regs_struct};

fn request(op: libc::c_uint, tid: pid_t, addr: u64, data: u64) -> io::Result<c_long> {
    // SAFETY: callers pass only requests whose addr and data are numbers, never pointers of ours.
    let r = unsafe { libc::ptrace(op, tid, addr as *mut c_void, data as *mut c_void) };
    if r == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(r)
    }
}

/// Reads one word of the thread's user area; offsets as in `struct user`.
fn peek_user(tid: pid_t, offset: usize) -> io::Result<u64> {
    let mut word = 0u64;
    // SAFETY: the raw call stores one word at its fourth argument, which is `word`.
    let r = unsafe {
        libc::syscall(
            libc::SYS_ptrace,
            libc::PTRACE_PEEKUSER,
            tid,
            offset,
            &raw mut word,
        )
    };
    if r == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(word)
    }
}

pub fn pc(tid: pid_t) -> io::Result<u64> {
    peek_user(tid, std::mem::offset_of!(user_regs_struct, rip))
}

pub fn rsp(tid: pid_t) -> io::Result<u64> {
    peek_user(tid, std::mem::offset_of!(user_regs_struct, rsp))
}

pub fn rcx(tid: pid_t) -> io::Result<u64> {
    peek_user(tid, std::mem::offset_of!(user_regs_struct, rcx))
}

pub fn flags(tid: pid_t) -> io::Result<u64> {
    peek_user(tid, std::mem::offset_of!(user_regs_struct, eflags))
}

pub fn regs(tid: pid_t) -> io::Result<user_regs_struct> {
    // SAFETY: all-zero is a valid user_regs_struct.
    let mut regs: user_regs_struct = unsafe { std::mem::zeroed() };
    // SAFETY: GETREGS fills the structure that data points to.
    let r = unsafe { libc::ptrace(libc::PTRACE_GETREGS, tid, 0, &raw mut regs) };
    if r == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(regs)
    }
}

pub fn set_regs(tid: pid_t, regs: &user_regs_struct) -> io::Result<()> {
    // SAFETY: SETREGS only reads the structure that data points to.
    let r = unsafe {
        libc::ptrace(
            libc::PTRACE_SETREGS,
            tid,
            0,
            regs as *const user_regs_struct,
        )
    };
    if r == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// The signal at which the thread stopped; `None` in a group stop.
pub fn signal_code(tid: pid_t) -> Option<i32> {
    // SAFETY: all-zero is a valid siginfo_t, and GETSIGINFO fills it.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        (libc::ptrace(libc::PTRACE_GETSIGINFO, tid, 0, &raw mut info) == 0).then_some(info.si_code)
    }
}

/// Whether the thread stopped because the page of the instruction at `pc` is not executable.
pub fn fetch_refused(tid: pid_t, pc: u64) -> bool {
    const SEGV_ACCERR: i32 = 2;
    // SAFETY: all-zero is a valid siginfo_t, and GETSIGINFO fills it; si_addr is a number there.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        libc::ptrace(libc::PTRACE_GETSIGINFO, tid, 0, &raw mut info) == 0
            && info.si_signo == libc::SIGSEGV
            && info.si_code == SEGV_ACCERR
            && info.si_addr() as u64 == pc
    }
}

pub fn set_options(tid: pid_t, options: i32) -> io::Result<()> {
    request(libc::PTRACE_SETOPTIONS, tid, 0, options as u64).map(|_| ())
}

pub fn event_message(tid: pid_t) -> io::Result<u64> {
    let mut message = 0u64;
    // SAFETY: GETEVENTMSG stores one word at data.
    let r = unsafe { libc::ptrace(libc::PTRACE_GETEVENTMSG, tid, 0, &raw mut message) };
    if r == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(message)
    }
}

pub fn step(tid: pid_t, signal: i32) -> io::Result<()> {
    request(libc::PTRACE_SINGLESTEP, tid, 0, signal as u64).map(|_| ())
}

pub fn resume(tid: pid_t, signal: i32) -> io::Result<()> {
    request(libc::PTRACE_CONT, tid, 0, signal as u64).map(|_| ())
}

pub fn detach(tid: pid_t, signal: i32) -> io::Result<()> {
    request(libc::PTRACE_DETACH, tid, 0, signal as u64).map(|_| ())
}

/// Reads the word at an address of the process.
pub fn peek(tid: pid_t, address: u64) -> io::Result<u64> {
    let mut word = 0u64;
    // SAFETY: as in `peek_user`.
    let r = unsafe {
        libc::syscall(
            libc::SYS_ptrace,
            libc::PTRACE_PEEKDATA,
            tid,
            address,
            &raw mut word,
        )
    };
    if r == -1 {
        Err(io::Error::last_os_error())
    } else {
        Ok(word)
    }
}

pub fn poke(tid: pid_t, address: u64, word: u64) -> io::Result<()> {
    request(libc::PTRACE_POKEDATA, tid, address, word).map(|_| ())
}

/// Waits for one thread, or with -1 for any child or tracee of the calling thread.
pub fn wait(tid: pid_t) -> io::Result<(pid_t, i32)> {
    let mut status = 0;
    loop {
        // SAFETY: waitpid stores one int at `status`.
        let r = unsafe { libc::waitpid(tid, &raw mut status, libc::__WALL | libc::__WNOTHREAD) };
        if r >= 0 {
            return Ok((r, status));
        }
        let e = io::Error::last_os_error();
        if e.kind() != io::ErrorKind::Interrupted {
            return Err(e);
        }
    }
}

/// The extended state of a thread, as `xsave` stores it.
pub fn extended(tid: pid_t) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; 1 << 14];
    let mut area = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    const NT_X86_XSTATE: u64 = 0x202;
    // SAFETY: GETREGSET fills what the vector describes, which is `bytes`.
    let r = unsafe {
        libc::ptrace(
            libc::PTRACE_GETREGSET,
            tid,
            NT_X86_XSTATE as *mut c_void,
            &raw mut area,
        )
    };
    if r == -1 {
        return Err(io::Error::last_os_error());
    }
    bytes.truncate(area.iov_len);
    Ok(bytes)
}
