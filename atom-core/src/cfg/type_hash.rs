//! Hashes of types before procedures, which clang writes for control-flow integrity (`-fsanitize=kcfi`).
//!
//! Before a call through a pointer, code compares the four bytes at a fixed distance before the callee with the hash of
//! the type that it expects. The hash is the constant of a `mov` among padding, and has a function symbol of its own:
//! `__cfi_` with the function's name. Nothing executes it, and a pad or a trap there would change what is compared, so
//! it is data.

use crate::image::{Image, Symbol};
use crate::x86::{opcode, padding_len};

/// What the symbols of hashes begin with.
const PREFIX: &str = "__cfi_";

/// Length in bytes of the instruction with the hash, `mov eax, imm32`.
const HASH_LEN: usize = 5;

/// True if `symbol` names the hash of a procedure's type and the padding around it.
pub(super) fn is_type_hash(image: &Image, symbol: &Symbol) -> bool {
    let is_named = symbol.is_func && !symbol.is_undefined && symbol.name.starts_with(PREFIX);
    is_named
        && image
            .bytes_at(symbol.address, symbol.size as usize)
            .and_then(|bytes| after_padding(bytes).strip_prefix(&[opcode::MOV_R_IMM]))
            .and_then(|rest| rest.get(HASH_LEN - 1..))
            .is_some_and(|rest| after_padding(rest).is_empty())
}

/// What follows padding at the start of `bytes`.
fn after_padding(mut bytes: &[u8]) -> &[u8] {
    while let Some(rest) = padding_len(bytes).and_then(|len| bytes.get(len..)) {
        bytes = rest;
    }
    bytes
}
