//! Names of symbols that the dynamic loader binds, by the slot that receives the address.

use std::collections::HashMap;

use object::elf;

use super::Image;

/// Slots of a program that are bound to symbols of other objects.
#[derive(Default)]
pub struct Imports<'i> {
    by_slot: HashMap<u64, &'i str>,
}

impl<'i> Imports<'i> {
    /// Reads the dynamic relocations once.
    pub fn new(image: &'i Image) -> Self {
        let binds = |kind| {
            matches!(
                kind,
                elf::R_X86_64_JUMP_SLOT | elf::R_X86_64_GLOB_DAT | elf::R_X86_64_64
            )
        };
        let by_slot = image
            .relocs
            .iter()
            .filter(|r| binds(r.kind))
            .filter_map(|r| {
                let symbol = image.dynamic_symbols.get(r.symbol as usize)?;
                (!symbol.name.is_empty()).then_some((r.address, symbol.name.as_str()))
            })
            .collect();
        Self { by_slot }
    }

    /// The symbol whose address the slot receives.
    pub fn name(&self, slot: u64) -> Option<&'i str> {
        self.by_slot.get(&slot).copied()
    }
}
