//! Functions of C with a variable number of arguments, and their lists of arguments.
//!
//! Rust has no stable way to define such a function. So each begins in assembly, which makes the list of arguments
//! as a C compiler would, and calls a function that takes the list.
//!
//! ABI (System V, x86-64): the caller puts integers and pointers into rdi, rsi, rdx, rcx, r8 and r9, and
//! floating-point numbers into xmm0 to xmm7, of which `al` is an upper limit of the number in use. Further arguments
//! are on the stack, 8 bytes each; a `long double` takes 16, aligned. `va_list` is an array of one structure of 24 bytes, so it
//! is passed as a pointer: the offsets of the next registers in an area of saved registers, the address of the next argument on the stack, and
//! the address of that area.

use std::ffi::{CStr, c_char};

/// Bytes of the saved general registers in the area.
const GENERAL: u32 = 48;
/// Bytes of all saved registers.
const ALL: u32 = GENERAL + 8 * 16;

/// C's `va_list`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct VaList {
    general: u32,
    vectors: u32,
    stack: *const u8,
    saved: *const u8,
}

impl VaList {
    /// A list with one argument, an integer, a pointer or a `double`.
    pub fn of_word(word: &u64) -> Self {
        Self {
            general: GENERAL,
            vectors: ALL,
            stack: std::ptr::from_ref(word).cast(),
            saved: std::ptr::null(),
        }
    }

    /// The next argument on the stack.
    ///
    /// # Safety
    /// There is one.
    unsafe fn take_stack<T: Copy>(&mut self, size: usize) -> T {
        // SAFETY: the caller's promise.
        unsafe {
            let value = self.stack.cast::<T>().read_unaligned();
            self.stack = self.stack.add(size);
            value
        }
    }

    /// The next argument, an integer or a pointer, as 64 bits. Of an `int` the upper half has no meaning.
    ///
    /// # Safety
    /// There is such an argument.
    pub unsafe fn word(&mut self) -> u64 {
        // SAFETY: the caller's promise; the area has six general registers.
        unsafe {
            if self.general >= GENERAL {
                return self.take_stack(8);
            }
            let value = self.saved.add(self.general as usize).cast::<u64>().read();
            self.general += 8;
            value
        }
    }

    /// The next argument, an `int`.
    ///
    /// # Safety
    /// There is such an argument.
    pub unsafe fn int(&mut self) -> i32 {
        // SAFETY: the caller's promise.
        unsafe { self.word() as i32 }
    }

    /// The next argument, a pointer.
    ///
    /// # Safety
    /// There is such an argument.
    pub unsafe fn pointer<T>(&mut self) -> *mut T {
        // SAFETY: the caller's promise.
        unsafe { self.word() as *mut T }
    }

    /// The next argument, a `double`.
    ///
    /// # Safety
    /// There is such an argument.
    pub unsafe fn double(&mut self) -> f64 {
        // SAFETY: the caller's promise; after the general registers the area has eight vector registers.
        unsafe {
            if self.vectors >= ALL {
                return self.take_stack(8);
            }
            let value = self.saved.add(self.vectors as usize).cast::<f64>().read();
            self.vectors += 16;
            value
        }
    }

    /// The next argument, a `long double`, rounded to a `double`.
    ///
    /// # Safety
    /// There is such an argument.
    pub unsafe fn long_double(&mut self) -> f64 {
        self.stack = self.stack.map_addr(|at| at.next_multiple_of(16));
        // SAFETY: the caller's promise.
        let bits: [u64; 2] = unsafe { self.take_stack(16) };
        // Analysis routines have no x87 registers, so this is done by integers.
        from_extended(bits[0], bits[1] as u16)
    }
}

/// The exponent 0 of a `long double` as it is stored.
const BIAS: i32 = 16383;
/// Bits after the point of a `long double`.
const FRACTION: i32 = 63;

/// A `long double` (64 bits of mantissa, then 15 of exponent and the sign), rounded to a `double`.
fn from_extended(mantissa: u64, top: u16) -> f64 {
    let exponent = i32::from(top & 0x7fff);
    let value = match (exponent, mantissa << 1) {
        (0x7fff, 0) => f64::INFINITY,
        (0x7fff, _) => f64::NAN,
        _ => libm::scalbn(mantissa as f64, exponent.max(1) - BIAS - FRACTION),
    };
    match top >> 15 {
        0 => value,
        _ => -value,
    }
}

/// A `double` as the 10 bytes of a `long double`.
pub fn to_extended(x: f64) -> [u8; 10] {
    let sign = u16::from(x.is_sign_negative()) << 15;
    let (mantissa, exponent) = match x.abs() {
        0.0 => (0, 0),
        x if x.is_nan() => (3 << 62, 0x7fff),
        f64::INFINITY => (1 << 63, 0x7fff),
        x => {
            let (fraction, exponent) = libm::frexp(x);
            // The fraction is at least one half: its 53 bits are the highest ones.
            (
                (libm::scalbn(fraction, 64)) as u64,
                (exponent - 1 + BIAS) as u16,
            )
        }
    };
    let mut bytes = [0; 10];
    bytes[..8].copy_from_slice(&mantissa.to_le_bytes());
    bytes[8..].copy_from_slice(&(exponent | sign).to_le_bytes());
    bytes
}

/// A string of C as the bytes in front of its null; empty for a null pointer.
///
/// # Safety
/// It is null or such a string, which lives for `'a`.
pub unsafe fn bytes<'a>(text: *const c_char) -> &'a [u8] {
    if text.is_null() {
        &[]
    } else {
        // SAFETY: the caller's promise.
        unsafe { CStr::from_ptr(text).to_bytes() }
    }
}

/// Defines functions with a variable number of arguments: `name => function, registers, register`. The `function`
/// takes the fixed arguments, which take a number of bytes in registers, and then in the next `register` the list.
#[macro_export]
macro_rules! variadic {
    ($($(#[$meta:meta])* $name:ident => $function:path, $bytes:literal, $register:literal;)*) => {$(
        $(#[$meta])*
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() {
            // The list is at rsp, the area of saved registers at rsp + 32. With the return address the frame takes
            // 224 bytes, so that the stack is aligned at the call.
            core::arch::naked_asm!(
                ".cfi_startproc",
                "sub rsp, 216",
                ".cfi_adjust_cfa_offset 216",
                "mov [rsp + 32], rdi",
                "mov [rsp + 40], rsi",
                "mov [rsp + 48], rdx",
                "mov [rsp + 56], rcx",
                "mov [rsp + 64], r8",
                "mov [rsp + 72], r9",
                "test al, al",
                "je 2f",
                "movaps [rsp + 80], xmm0",
                "movaps [rsp + 96], xmm1",
                "movaps [rsp + 112], xmm2",
                "movaps [rsp + 128], xmm3",
                "movaps [rsp + 144], xmm4",
                "movaps [rsp + 160], xmm5",
                "movaps [rsp + 176], xmm6",
                "movaps [rsp + 192], xmm7",
                "2:",
                concat!("mov dword ptr [rsp], ", $bytes),
                "mov dword ptr [rsp + 4], 48",
                "lea rax, [rsp + 224]",
                "mov [rsp + 8], rax",
                "lea rax, [rsp + 32]",
                "mov [rsp + 16], rax",
                concat!("mov ", $register, ", rsp"),
                "call {function}",
                "add rsp, 216",
                ".cfi_adjust_cfa_offset -216",
                "ret",
                ".cfi_endproc",
                function = sym $function,
            )
        }
    )*};
}
