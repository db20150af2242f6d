//! Code of analysis files that uses the x87 unit or MMX, which calls do not save.
//!
//! `atom` refuses a routine that certainly reaches such code. Code that is reached through a pointer, such as a comparison for
//! `qsort`, is not seen there; so it is looked for in the objects.

use atom_core::x86::{Decoder, DecoderOptions, Instruction, InstructionInfoFactory};
use object::{Object, ObjectSection, ObjectSymbol, SectionKind, SymbolKind};

/// The function with the first such instruction of an object; its section if no symbol names it.
pub fn user_of_x87(bytes: &[u8]) -> object::Result<Option<String>> {
    let file = object::File::parse(bytes)?;
    let mut info = InstructionInfoFactory::new();
    for section in file.sections().filter(|s| s.kind() == SectionKind::Text) {
        let code = section.data()?;
        let mut decoder = Decoder::with_ip(64, code, section.address(), DecoderOptions::NONE);
        for instruction in &mut decoder {
            if is_x87(&instruction, &mut info) {
                let at = instruction.ip();
                let functions = file.symbols().filter(|s| s.kind() == SymbolKind::Text);
                let inside = functions
                    .filter(|s| s.section_index() == Some(section.index()))
                    .filter(|s| s.address() <= at);
                let found = inside.max_by_key(|s| s.address());
                let name = found.and_then(|s| s.name().ok());
                return Ok(Some(name.or(section.name().ok()).unwrap_or("").to_owned()));
            }
        }
    }
    Ok(None)
}

fn is_x87(instruction: &Instruction, info: &mut InstructionInfoFactory) -> bool {
    if instruction.is_invalid() {
        return false;
    }
    let used = info.info(instruction).used_registers();
    let mut registers = used.iter().map(|used| used.register());
    registers.any(|r| r.is_st() || r.is_mm()) || instruction.fpu_stack_increment_info().writes_top()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn x87_and_mmx_are_known() {
        let mut info = InstructionInfoFactory::new();
        let mut is = |bytes: &[u8]| {
            let mut decoder = Decoder::with_ip(64, bytes, 0, DecoderOptions::NONE);
            is_x87(&decoder.decode(), &mut info)
        };
        assert!(is(&[0xd9, 0xee]), "fldz");
        assert!(is(&[0xdb, 0x2f]), "fld tword [rdi]");
        assert!(is(&[0x0f, 0x6f, 0x07]), "movq mm0, [rdi]");
        assert!(!is(&[0xf2, 0x0f, 0x58, 0xc1]), "addsd xmm0, xmm1");
        assert!(!is(&[0x48, 0x89, 0xc8]), "mov rax, rcx");
    }
}
