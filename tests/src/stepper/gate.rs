//! Text without execute permission: a program's libraries run at full speed meanwhile, and the
//! fault at the first instruction of its own shows when control comes back.
//!
//! No entry can be missed, be it a return, a callback, a handler or a destructor. No byte of the
//! text changes, so the program may read it. The permission is changed by a system call in the
//! program's name, at a `syscall` instruction of the vDSO.

use std::io;

use libc::pid_t;

use super::ptrace;

/// Number of steps outside the program's text after which it is worth switching to full speed
/// (closing and opening the text costs about as much as four steps).
pub const OUTSIDE_STEPS: u32 = 4;

/// Length in bytes of the instruction `syscall`.
const SYSCALL_LEN: u64 = 2;

/// Place from which a process can be made to change the permissions of its text.
#[derive(Clone, Copy, Debug)]
pub struct Gate {
    /// Address of a `syscall` instruction.
    syscall: u64,
}

impl Gate {
    /// Finds a `syscall` instruction in the process's vDSO.
    pub fn find(pid: pid_t) -> Option<Self> {
        use std::os::unix::fs::FileExt;
        let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
        let line = maps.lines().find(|l| l.ends_with("[vdso]"))?;
        let (start, end) = line.split(' ').next()?.split_once('-')?;
        let (start, end) = (
            u64::from_str_radix(start, 16).ok()?,
            u64::from_str_radix(end, 16).ok()?,
        );
        let mut bytes = vec![0; (end - start) as usize];
        std::fs::File::open(format!("/proc/{pid}/mem"))
            .ok()?
            .read_exact_at(&mut bytes, start)
            .ok()?;
        let at = bytes.windows(2).position(|w| w == [0x0f, 0x05])?;
        Some(Self {
            syscall: start + at as u64,
        })
    }

    /// Makes ranges of addresses (start at run time, size in bytes) executable or not. The thread
    /// must be stopped, and has the same registers afterwards.
    ///
    /// # Errors
    /// The system call fails; `ESRCH` if the thread was killed meanwhile.
    pub fn protect(
        &self,
        tid: pid_t,
        ranges: impl Iterator<Item = (u64, u64)>,
        executable: bool,
    ) -> io::Result<()> {
        let saved = ptrace::regs(tid)?;
        let mut early = Vec::new();
        let prot = libc::PROT_READ | if executable { libc::PROT_EXEC } else { 0 };
        for (address, size) in ranges {
            let start = address & !0xfff;
            let end = (address + size + 0xfff) & !0xfff;
            let mut regs = saved;
            regs.orig_rax = u64::MAX;
            regs.rax = libc::SYS_mprotect as u64;
            (regs.rdi, regs.rsi, regs.rdx) = (start, end - start, prot as u64);
            regs.rip = self.syscall;
            ptrace::set_regs(tid, &regs)?;
            loop {
                ptrace::step(tid, 0)?;
                let (_, status) = ptrace::wait(tid)?;
                if !libc::WIFSTOPPED(status) {
                    return Err(io::Error::from_raw_os_error(libc::ESRCH));
                }
                let signal = libc::WSTOPSIG(status);
                if ptrace::pc(tid)? == self.syscall + SYSCALL_LEN {
                    break;
                }
                // Another signal came first; it is sent again after the call.
                early.push(signal);
            }
            let result = ptrace::regs(tid)?.rax as i64;
            if result != 0 {
                return Err(io::Error::from_raw_os_error(-result as i32));
            }
        }
        ptrace::set_regs(tid, &saved)?;
        for signal in early {
            // SAFETY: tkill takes numbers only; the thread is stopped by us.
            unsafe { libc::syscall(libc::SYS_tkill, tid, signal) };
        }
        Ok(())
    }
}
