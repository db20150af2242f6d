//! The instruction set: what the stages know of x86-64, gathered.
//!
//! The first in the order of stages: each stage may use it, and it uses none of them.

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
    Code, ConditionCode, Decoder, DecoderOptions, EncodingKind, FlowControl, FormatMnemonicOptions,
    Formatter, Instruction, InstructionInfoFactory, InstructionInfoOptions, Mnemonic,
    NasmFormatter, OpAccess, OpKind, Register, RflagsBits,
};

/// The assembler for code of which there is one piece in an output, and encoding again.
pub mod assembler {
    pub use iced_x86::{BlockEncoderOptions, Encoder, IcedError, MemoryOperand, code_asm};
}
