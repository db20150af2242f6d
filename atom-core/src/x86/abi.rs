//! Calling convention: the System V ABI for x86-64.

use super::asm::Gpr;

/// Registers that carry the first six integer arguments, in the order of the arguments.
pub const ARGUMENT_REGISTERS: [Gpr; 6] = [Gpr::RDI, Gpr::RSI, Gpr::RDX, Gpr::RCX, Gpr::R8, Gpr::R9];

/// Registers that a called function preserves, without rsp, as bits by number: rbx, rbp, r12 to r15.
pub const CALLEE_SAVED: u16 = 1 << 3 | 1 << 5 | 0xf << 12;

/// Size of the red zone in bytes: this much below rsp belongs to the running function.
pub const RED_ZONE: i32 = 128;

/// Control word of SSE (MXCSR) at a program's start: all exceptions masked, round to nearest.
pub const DEFAULT_MXCSR: i32 = 0x1f80;
