//! Runs code with all registers, flags and the stack set, and reads them back.

use std::sync::{Mutex, MutexGuard};

/// The processor's state, as far as inserted code may see or change it.
#[repr(C, align(16))]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct State {
    pub gprs: [u64; 16],
    pub flags: u64,
    pub mxcsr: u32,
    pub unused: u32,
    pub xmms: [[u64; 2]; 16],
}

// Entered as `fn(input, output, code)`. The code comes back by a jump to
// `atom_test_back`. The caller's stack pointer and the code's address lie in
// statics, so only one run continues at a time.
core::arch::global_asm!(
    ".pushsection .bss",
    ".balign 8",
    "atom_test_rsp: .skip 8",
    "atom_test_code: .skip 8",
    "atom_test_rdi: .skip 8",
    ".popsection",
    ".pushsection .text",
    ".globl atom_test_run",
    "atom_test_run:",
    "push rbx",
    "push rbp",
    "push r12",
    "push r13",
    "push r14",
    "push r15",
    "push rsi",
    "mov [rip + atom_test_rsp], rsp",
    "mov [rip + atom_test_code], rdx",
    "movups xmm0, [rdi + 144]",
    "movups xmm1, [rdi + 160]",
    "movups xmm2, [rdi + 176]",
    "movups xmm3, [rdi + 192]",
    "movups xmm4, [rdi + 208]",
    "movups xmm5, [rdi + 224]",
    "movups xmm6, [rdi + 240]",
    "movups xmm7, [rdi + 256]",
    "movups xmm8, [rdi + 272]",
    "movups xmm9, [rdi + 288]",
    "movups xmm10, [rdi + 304]",
    "movups xmm11, [rdi + 320]",
    "movups xmm12, [rdi + 336]",
    "movups xmm13, [rdi + 352]",
    "movups xmm14, [rdi + 368]",
    "movups xmm15, [rdi + 384]",
    "ldmxcsr [rdi + 136]",
    "push qword ptr [rdi + 128]",
    "popfq",
    "mov rax, [rdi]",
    "mov rcx, [rdi + 8]",
    "mov rdx, [rdi + 16]",
    "mov rbx, [rdi + 24]",
    "mov rsp, [rdi + 32]",
    "mov rbp, [rdi + 40]",
    "mov rsi, [rdi + 48]",
    "mov r8, [rdi + 64]",
    "mov r9, [rdi + 72]",
    "mov r10, [rdi + 80]",
    "mov r11, [rdi + 88]",
    "mov r12, [rdi + 96]",
    "mov r13, [rdi + 104]",
    "mov r14, [rdi + 112]",
    "mov r15, [rdi + 120]",
    "mov rdi, [rdi + 56]",
    "jmp [rip + atom_test_code]",
    ".globl atom_test_back",
    "atom_test_back:",
    "mov [rip + atom_test_rdi], rdi",
    "mov rdi, [rip + atom_test_rsp]",
    "mov rdi, [rdi]",
    "mov [rdi], rax",
    "mov [rdi + 8], rcx",
    "mov [rdi + 16], rdx",
    "mov [rdi + 24], rbx",
    "mov [rdi + 32], rsp",
    "mov [rdi + 40], rbp",
    "mov [rdi + 48], rsi",
    "mov rax, [rip + atom_test_rdi]",
    "mov [rdi + 56], rax",
    "mov [rdi + 64], r8",
    "mov [rdi + 72], r9",
    "mov [rdi + 80], r10",
    "mov [rdi + 88], r11",
    "mov [rdi + 96], r12",
    "mov [rdi + 104], r13",
    "mov [rdi + 112], r14",
    "mov [rdi + 120], r15",
    "mov rsp, [rip + atom_test_rsp]",
    "pushfq",
    "pop qword ptr [rdi + 128]",
    "cld",
    "stmxcsr [rdi + 136]",
    "movups [rdi + 144], xmm0",
    "movups [rdi + 160], xmm1",
    "movups [rdi + 176], xmm2",
    "movups [rdi + 192], xmm3",
    "movups [rdi + 208], xmm4",
    "movups [rdi + 224], xmm5",
    "movups [rdi + 240], xmm6",
    "movups [rdi + 256], xmm7",
    "movups [rdi + 272], xmm8",
    "movups [rdi + 288], xmm9",
    "movups [rdi + 304], xmm10",
    "movups [rdi + 320], xmm11",
    "movups [rdi + 336], xmm12",
    "movups [rdi + 352], xmm13",
    "movups [rdi + 368], xmm14",
    "movups [rdi + 384], xmm15",
    "push 0x1f80",
    "ldmxcsr [rsp]",
    "pop rsi",
    "pop rsi",
    "pop r15",
    "pop r14",
    "pop r13",
    "pop r12",
    "pop rbp",
    "pop rbx",
    "ret",
    ".popsection",
);

unsafe extern "C" {
    fn atom_test_run(input: *const State, output: *mut State, code: *const u8);
    fn atom_test_back();
}

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// Sizes of the parts of the machine's memory.
pub const CODE: usize = 1 << 16;
const DATA: usize = 1 << 16;
const STACK: usize = 1 << 14;

/// Memory that code runs in: code, then data, then a stack.
pub struct Machine {
    base: *mut u8,
    _guard: MutexGuard<'static, ()>,
}

impl Machine {
    pub fn new() -> Self {
        let guard = ONE_AT_A_TIME.lock().unwrap_or_else(|e| e.into_inner());
        // SAFETY: a new anonymous mapping; nothing else uses it.
        let base = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                CODE + DATA + STACK,
                libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            )
        };
        assert_ne!(base, libc::MAP_FAILED);
        Self {
            base: base.cast(),
            _guard: guard,
        }
    }

    pub fn code_at(&self) -> u64 {
        self.base as u64
    }

    pub fn data_at(&self) -> u64 {
        self.code_at() + CODE as u64
    }

    /// Middle of the stack.
    pub fn stack_at(&self) -> u64 {
        self.data_at() + (DATA + STACK / 2) as u64
    }

    /// Copies of memory, by address.
    pub fn read(&self, at: u64, len: usize) -> Vec<u8> {
        self.check(at, len);
        // SAFETY: the range is in the mapping, which no reference points into.
        unsafe { std::slice::from_raw_parts(at as *const u8, len) }.to_vec()
    }

    pub fn read_u64(&self, at: u64) -> u64 {
        u64::from_le_bytes(self.read(at, 8).try_into().unwrap())
    }

    pub fn write(&mut self, at: u64, bytes: &[u8]) {
        self.check(at, bytes.len());
        // SAFETY: the range is in the mapping, which no reference points into.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), at as *mut u8, bytes.len()) }
    }

    fn check(&self, at: u64, len: usize) {
        let end = self.code_at() + (CODE + DATA + STACK) as u64;
        assert!(at >= self.code_at() && at + len as u64 <= end);
    }

    /// The jump that code ends with: `jmp [rip + 0]` and the address.
    pub fn way_back() -> Vec<u8> {
        let mut bytes = vec![0xff, 0x25, 0, 0, 0, 0];
        bytes.extend((atom_test_back as *const () as u64).to_le_bytes());
        bytes
    }

    /// Runs the code at an address, which must end with [`Machine::way_back`].
    pub fn run(&mut self, at: u64, input: &State) -> State {
        let mut output = State::default();
        // SAFETY: `at` is code of this mapping that touches only the mapping
        // and comes back; the lock keeps other runs away from the statics.
        unsafe { atom_test_run(input, &mut output, at as *const u8) };
        output
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`.
        unsafe { libc::munmap(self.base.cast(), CODE + DATA + STACK) };
    }
}
