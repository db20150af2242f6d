//! The instruction set: what `atom` knows of x86-64 and of its encodings.
//!
//! First in the order of stages: each stage may use this folder, and it uses none of them.
//!
//! A second architecture would have to supply what these files do:
//!
//! - `decode.rs`, `memo.rs`: decoding, how control leaves an instruction, padding, where an
//!   operand relative to the program counter has its displacement;
//! - `class.rs`, `operands.rs`, `memory.rs`, `registers.rs`: what tools may ask of an instruction:
//!   its types and class, operands, memory operands, the registers and flags that it uses;
//! - `gpr.rs`, `flags.rs`, `opcode.rs`: names of registers, flags, conditions, opcodes, prefixes
//!   and fields of encodings;
//! - `asm.rs`, `asm/`: assembling inserted code, and any instruction of a routine's body;
//! - `branch.rs`: forms and reach of direct branches, the jumps in pads and over long ways, the
//!   marker of places that indirect branches may lead to;
//! - `guard.rs`, `search.rs`: code that is once for many: guards of threads' entries, the
//!   look-up of original return addresses;
//! - `jump_table.rs`, `plt.rs`: idioms of compilers and linkers: jumps through tables, procedure
//!   linkage tables;
//! - `abi.rs`: the calling convention.
//!
//! Not here is the use of all this, which would need a counterpart too: the meaning of single
//! instructions for liveness (`live/effects.rs`, `live/below.rs`), for the stack
//! (`cfg/frame.rs`, `plan/edge_counts/returns_once.rs`), for constants and system calls
//! (`tool/constants.rs`, `tool/threads.rs`), for what routines of a tool change
//! (`analysis/effect.rs`, `analysis/summary.rs`) and do (`analysis/specialise/`), and for
//! the checker (`check/`), which shares little on purpose. `plan/` chooses the instructions of
//! inserted code, and `emit/start.rs` has the start-up code.
//!
//! Only this folder names the decoder's crate. What other files need of it is handed on below, so
//! `use crate::x86::{Mnemonic, ...}` marks a file that knows single instructions.

pub mod abi;
pub mod asm;
pub mod branch;
pub mod class;
mod decode;
pub mod flags;
mod gpr;
pub mod guard;
pub mod jump_table;
mod memo;
pub mod memory;
pub mod opcode;
pub mod operands;
pub mod plt;
pub mod registers;
pub mod search;

pub use branch::target_of;
pub use decode::{
    ControlFlow, Inst, MAX_LEN, Run, decode_again, decode_at, direct_target, flow_of, is_padding,
    is_rip_relative, padding_len, rip_field,
};
pub use flags::Cond;
pub use gpr::Gpr;
pub use memo::Memo;

pub use iced_x86::{
    Code, ConditionCode, CpuidFeature, Decoder, DecoderOptions, EncodingKind, FlowControl,
    FormatMnemonicOptions, Formatter, Instruction, InstructionInfoFactory, InstructionInfoOptions,
    Mnemonic, NasmFormatter, OpAccess, OpKind, Register, RflagsBits,
};

/// The assembler for code of which there is one piece in an output, and encoding again.
pub mod assembler {
    pub use iced_x86::{BlockEncoderOptions, Encoder, IcedError, MemoryOperand, code_asm};
}
