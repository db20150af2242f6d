//! A process of this command that shares the memory of the one that is entered: it maps and unmaps, and it reports.
//!
//! A thread of the process starts it, by way of a child that ends at once and that the thread waits for, so that it is no child of
//! the process. It closes its copies of descriptors, and stops. It does what this command wants and nothing else. If this command ends, the
//! kernel ends it.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt;

use atom_core::{Error, Result};

use super::inject::{self, Code, FRAME, Worker};
use super::maps::Map;
use super::objects::PAGE;
use super::trace::{self, DOING, Threads};

/// Size in bytes of the helper's memory, without what the runtime is shown.
const SIZE: u64 = 1 << 20;
/// Address of that memory, if it is free: far from where programs and the kernel map something.
const HINT: u64 = 0x54f0_0000_0000;
/// Bytes at the end of it to which the helper's thread pointer leads.
const THREAD: u64 = 1 << 12;
/// Bytes of a stack.
const STACK: u64 = 1 << 18;
/// Size in bytes of a frame without vector registers, and of what is beside them.
const SMALL: u64 = 512;
/// Bytes below the stack pointer that a thread may use.
const RED_ZONE: u64 = 128;
/// Most descriptors that are sent at a time.
const AT_ONCE: usize = 200;

/// The helper, which ends with this value.
pub struct Helper {
    /// Its process number.
    pub pid: i32,
    worker: Worker,
    /// The memory of the process.
    pub memory: File,
    /// Code for system calls there, of this command.
    pub code: Code,
    /// The helper's own memory.
    own: [u64; 2],
}

impl Helper {
    /// Starts it in the process. `room` bytes of its memory are for other uses.
    pub fn start(process: i32, maps: &[Map], room: u64) -> Result<Self> {
        let path = format!("/proc/{process}/mem");
        let memory = File::options().read(true).write(true).open(path);
        let memory = memory.map_err(|e| Error::new(DOING, e))?;
        let code = Code::find(maps, &memory)?;
        let fail = |e: io::Error| Error::new(DOING, e);
        let threads = Threads::stop_one(process)?;
        let tid = threads.all[0];
        let before = trace::registers(tid).map_err(fail)?;
        // Below what the thread has on its stack, if that is certainly a large one.
        let size = trace::vectors(tid).map_err(fail)?.len() as u64 + SMALL;
        let stack = maps.iter().find(|m| m.path.as_os_str() == "[stack]");
        let is_large = stack.is_some_and(|m| (m.start + 4 * size..m.end).contains(&before.rsp));
        let [frame, end_frame] = match ((before.rsp - RED_ZONE - size) & !15) + 8 {
            frame if is_large => [frame, frame - SMALL],
            _ => [0; 2],
        };
        let mut starter = Worker::new(tid, code, &memory, frame)?;
        // A task that this command starts ends by itself if nobody stops it.
        let mut ending = before;
        (ending.rip, ending.rax, ending.rdi, ending.rsp) =
            (code.call, libc::SYS_exit_group as u64, 0, end_frame);
        let bytes = inject::frame(&code, end_frame, &ending, u64::MAX, &[]);
        if is_large {
            memory.write_all_at(&bytes, end_frame).map_err(fail)?;
        }
        let told = libc::PTRACE_O_TRACESYSGOOD | libc::PTRACE_O_TRACECLONE;
        let options = told | libc::PTRACE_O_EXITKILL;
        trace::set_options(tid, told).map_err(fail)?;
        let clone = |worker: &mut Worker| {
            worker.made(
                "starting a helper",
                libc::SYS_clone,
                &[libc::CLONE_VM as u64, end_frame, 0, 0, 0],
            )?;
            if worker.child == 0 || !trace::wait_for_trap(worker.child)? {
                return Err(Error::new(DOING, "the helper has ended"));
            }
            trace::set_options(worker.child, options).map_err(fail)?;
            Ok(worker.child)
        };
        let between = clone(&mut starter)?;
        let started =
            Worker::own(between, code, end_frame).and_then(|mut second| clone(&mut second));
        end(between);
        starter.call(
            libc::SYS_wait4,
            &[between as u64, 0, libc::__WALL as u64, 0],
        )?;
        starter.end()?;
        drop(threads);
        let pid = started?;
        let options = options & !libc::PTRACE_O_TRACECLONE;
        trace::set_options(pid, options).map_err(fail)?;
        let mut worker = Worker::own(pid, code, end_frame)?;
        worker.change(|registers| registers.gs_base = 0);
        let mut helper = Self {
            pid,
            worker,
            memory,
            code,
            own: [0; 2],
        };
        helper.prepare(maps, room)?;
        Ok(helper)
    }

    fn prepare(&mut self, maps: &[Map], room: u64) -> Result<()> {
        let fail = |e: io::Error| Error::new(DOING, e);
        self.worker.made(
            "closing files",
            libc::SYS_close_range,
            &[0, u32::MAX.into(), 0],
        )?;
        self.worker.call(libc::SYS_setpgid, &[0, 0])?;
        let size = (SIZE + room).next_multiple_of(PAGE);
        let is_free = |at: u64| maps.iter().all(|m| m.end <= at || at + size <= m.start);
        let at = (0..)
            .map(|i| HINT + i * (1 << 30))
            .find(|at| is_free(*at))
            .unwrap_or(HINT);
        let (text, data) = ([at, at + PAGE], [at + PAGE, at + size]);
        self.own = [
            self.map(text, libc::PROT_READ | libc::PROT_EXEC, None)?,
            at + size,
        ];
        self.map(data, libc::PROT_READ | libc::PROT_WRITE, None)?;
        self.memory.write_all_at(&Code::bytes(), at).map_err(fail)?;
        self.code = Code::at(at);
        // Functions return there; this command notices it, so there is no frame.
        let frame = self.own[1] - THREAD - FRAME + 8;
        self.memory
            .write_all_at(&self.code.returned.to_le_bytes(), frame)
            .map_err(fail)?;
        self.worker.settle(self.code, frame);
        let thread = self.own[1] - THREAD;
        self.worker.change(|registers| registers.fs_base = thread);
        self.memory
            .write_all_at(b"atom-helper\0", self.room())
            .map_err(fail)?;
        self.worker
            .call(libc::SYS_prctl, &[libc::PR_SET_NAME as u64, self.room()])?;
        Ok(())
    }

    /// Address of the memory for other uses.
    pub fn room(&self) -> u64 {
        self.own[0] + PAGE
    }

    /// Place of a frame, after a stack, for one thread at a time that works.
    pub fn frame(&self) -> u64 {
        self.own[1] - THREAD - 2 * FRAME - STACK + 8
    }

    /// Maps memory, or a part of a file by the helper's descriptor, where nothing is mapped.
    pub fn map(
        &mut self,
        [start, end]: [u64; 2],
        rights: i32,
        file: Option<(i32, u64)>,
    ) -> Result<u64> {
        let flags = libc::MAP_PRIVATE | libc::MAP_FIXED_NOREPLACE;
        self.mapped([start, end], rights, flags, file)
    }

    /// Maps a part of a file in the place of what is mapped there.
    pub fn replace(
        &mut self,
        [start, end]: [u64; 2],
        rights: i32,
        file: (i32, u64),
    ) -> Result<u64> {
        self.mapped(
            [start, end],
            rights,
            libc::MAP_PRIVATE | libc::MAP_FIXED,
            Some(file),
        )
    }

    fn mapped(
        &mut self,
        [start, end]: [u64; 2],
        rights: i32,
        flags: i32,
        file: Option<(i32, u64)>,
    ) -> Result<u64> {
        let (descriptor, offset) = file.map_or((u64::MAX, 0), |(d, offset)| (d as u64, offset));
        let flags = if file.is_some() {
            flags
        } else {
            flags | libc::MAP_ANONYMOUS
        };
        let arguments = [
            start,
            end - start,
            rights as u64,
            flags as u64,
            descriptor,
            offset,
        ];
        let at = self
            .worker
            .made("mapping memory", libc::SYS_mmap, &arguments)?;
        if at != start {
            self.unmap([at, at + (end - start)]);
            return Err(Error::new(DOING, "the addresses are in use"));
        }
        Ok(at)
    }

    /// Unmaps memory.
    pub fn unmap(&mut self, [start, end]: [u64; 2]) {
        // If it stays, it is in nobody's way.
        self.worker
            .call(libc::SYS_munmap, &[start, end - start])
            .unwrap_or_default();
    }

    /// Makes a folder, by the helper's descriptor, the helper's working folder.
    pub fn go_to(&mut self, folder: i32) -> Result<()> {
        self.worker
            .made(
                "going to the folder for reports",
                libc::SYS_fchdir,
                &[folder as u64],
            )
            .map(|_| ())
    }

    /// Calls a function of the runtime.
    pub fn function(&mut self, address: u64, arguments: [u64; 2]) -> Result<u64> {
        self.worker.function(&self.memory, address, arguments)
    }

    /// Gives the helper descriptors of open files; the numbers that it knows them by.
    pub fn receive(&mut self, files: &[&File]) -> Result<Vec<i32>> {
        let fail = |e: io::Error| Error::new(DOING, e);
        let at = self.room();
        let kind = (libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC) as u64;
        self.worker.made(
            "a socket",
            libc::SYS_socketpair,
            &[libc::AF_UNIX as u64, kind, 0, at],
        )?;
        let mut pair = [0u8; 8];
        self.memory.read_exact_at(&mut pair, at).map_err(fail)?;
        let word = |i: usize| i32::from_le_bytes(pair[i..i + 4].try_into().expect("four bytes"));
        let (theirs, ours) = (word(0), word(4));
        let ours = taken(self.pid, ours).map_err(fail)?;
        let mut all = Vec::new();
        for some in files.chunks(AT_ONCE) {
            send(&ours, some).map_err(fail)?;
            all.extend(self.take(theirs, some.len())?);
        }
        Ok(all)
    }

    /// Receives descriptors that were sent.
    fn take(&mut self, socket: i32, count: usize) -> Result<Vec<i32>> {
        let fail = |e: io::Error| Error::new(DOING, e);
        let room = self.room();
        // A byte of data, its place, the answer's head, and the control message.
        let [byte, vector, head, control] = [room, room + 16, room + 32, room + 128];
        let size = 16 + 4 * count as u64;
        let words = [vector, 1, control, size, 0].map(u64::to_le_bytes).concat();
        // struct msghdr begins with an address and its length, which are not wanted.
        let head_bytes = [vec![0; 16], words].concat();
        self.memory.write_all_at(&head_bytes, head).map_err(fail)?;
        let place = [byte.to_le_bytes(), 1u64.to_le_bytes()].concat();
        self.memory.write_all_at(&place, vector).map_err(fail)?;
        let flags = libc::MSG_CMSG_CLOEXEC as u64;
        self.worker.made(
            "receiving files",
            libc::SYS_recvmsg,
            &[socket as u64, head, flags],
        )?;
        let mut numbers = vec![0u8; 4 * count];
        self.memory
            .read_exact_at(&mut numbers, control + 16)
            .map_err(fail)?;
        let numbers = numbers.chunks_exact(4);
        Ok(numbers
            .map(|n| i32::from_le_bytes(n.try_into().expect("four bytes")))
            .collect())
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        let own = self.own;
        self.unmap(own);
        end(self.pid);
    }
}

/// Ends a task of this command.
fn end(pid: i32) {
    // SAFETY: system calls; the kernel writes a status.
    unsafe {
        libc::kill(pid, libc::SIGKILL);
        let mut status = 0;
        while libc::waitpid(pid, &mut status, libc::__WALL) == pid && libc::WIFSTOPPED(status) {}
    }
}

/// A copy of another process's descriptor.
fn taken(pid: i32, descriptor: i32) -> io::Result<OwnedFd> {
    // SAFETY: system calls; the descriptors are new, and nobody else has them.
    unsafe {
        let process = libc::syscall(libc::SYS_pidfd_open, pid, 0);
        if process < 0 {
            return Err(io::Error::last_os_error());
        }
        let process = OwnedFd::from_raw_fd(process as i32);
        let own = libc::syscall(libc::SYS_pidfd_getfd, process.as_raw_fd(), descriptor, 0);
        if own < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(OwnedFd::from_raw_fd(own as i32))
    }
}

/// Sends descriptors.
fn send(socket: &OwnedFd, files: &[&File]) -> io::Result<()> {
    const HEAD: usize = 16;
    let numbers: Vec<u8> = files
        .iter()
        .flat_map(|f| f.as_raw_fd().to_ne_bytes())
        .collect();
    let length = HEAD + numbers.len();
    // A control message: its length, level and kind, then the descriptors.
    let mut control: Vec<u64> = vec![0; length.div_ceil(8)];
    control[0] = length as u64;
    control[1] = (libc::SOL_SOCKET as u64) | (libc::SCM_RIGHTS as u64) << 32;
    let mut byte = 0u8;
    let mut vector = libc::iovec {
        iov_base: (&raw mut byte).cast(),
        iov_len: 1,
    };
    // SAFETY: the control message has room for the numbers after its head; all structures live across the call.
    let sent = unsafe {
        let behind = control.as_mut_ptr().cast::<u8>().add(HEAD);
        std::ptr::copy_nonoverlapping(numbers.as_ptr(), behind, numbers.len());
        let mut head: libc::msghdr = std::mem::zeroed();
        head.msg_iov = &raw mut vector;
        head.msg_iovlen = 1;
        head.msg_control = control.as_mut_ptr().cast();
        head.msg_controllen = length;
        libc::sendmsg(socket.as_raw_fd(), &raw const head, 0)
    };
    if sent < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}
