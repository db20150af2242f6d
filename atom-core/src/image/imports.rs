//! Names of symbols that the dynamic loader binds, by the slot that receives the address.

use std::collections::HashMap;

use object::elf;

use super::Image;
use crate::x86::abi::ARGUMENT_REGISTERS;

/// Slots of a program that are bound to symbols of other objects.
#[derive(Default)]
pub struct Imports<'i> {
    by_slot: HashMap<u64, &'i str>,
}

impl<'i> Imports<'i> {
    /// Reads the dynamic relocations once.
    pub fn new(image: &'i Image) -> Self {
        let binds = |kind: elf::RelocationType| {
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

/// Functions of the C library that call what they get as an argument, or let it be called, with the numbers of these
/// arguments.
const CALLERS: [(&str, &[u8]); 53] = [
    ("__libc_start_main", &[0, 3, 4]),
    ("__uClibc_main", &[0, 3, 4]),
    ("atexit", &[0]),
    ("at_quick_exit", &[0]),
    ("on_exit", &[0]),
    ("__cxa_atexit", &[0]),
    ("__cxa_at_quick_exit", &[0]),
    ("__cxa_thread_atexit", &[0]),
    ("__cxa_thread_atexit_impl", &[0]),
    ("pthread_create", &[2]),
    ("pthread_once", &[1]),
    ("pthread_key_create", &[1]),
    ("pthread_atfork", &[0, 1, 2]),
    ("__register_atfork", &[0, 1, 2]),
    ("thrd_create", &[1]),
    ("call_once", &[1]),
    ("tss_create", &[1]),
    ("signal", &[1]),
    ("bsd_signal", &[1]),
    ("sysv_signal", &[1]),
    ("__sysv_signal", &[1]),
    ("sigset", &[1]),
    ("qsort", &[3]),
    ("qsort_r", &[3]),
    ("bsearch", &[4]),
    ("lfind", &[4]),
    ("lsearch", &[4]),
    ("tsearch", &[2]),
    ("tfind", &[2]),
    ("tdelete", &[2]),
    ("twalk", &[1]),
    ("twalk_r", &[1]),
    ("tdestroy", &[1]),
    ("ftw", &[1]),
    ("ftw64", &[1]),
    ("nftw", &[1]),
    ("nftw64", &[1]),
    ("scandir", &[2, 3]),
    ("scandir64", &[2, 3]),
    ("scandirat", &[3, 4]),
    ("scandirat64", &[3, 4]),
    ("glob", &[2]),
    ("glob64", &[2]),
    ("fts_open", &[2]),
    ("fts64_open", &[2]),
    ("makecontext", &[1]),
    ("clone", &[0]),
    ("__clone", &[0]),
    ("dl_iterate_phdr", &[0]),
    ("register_printf_function", &[1, 2]),
    ("register_printf_specifier", &[1, 2]),
    ("_Unwind_Backtrace", &[0]),
    ("_Unwind_ForcedUnwind", &[1]),
];

/// Registers in which imported functions get addresses of functions.
#[derive(Debug, Default)]
pub struct CodeParameters {
    /// By slot: the registers, as bits by number.
    by_slot: HashMap<u64, u16>,
}

impl CodeParameters {
    /// Finds the slots of such functions.
    pub(super) fn new(image: &Image) -> Self {
        let imports = Imports::new(image);
        let mask = |name: &str| {
            let (_, parameters) = CALLERS.iter().find(|(caller, _)| *caller == name)?;
            let register = |n: &u8| 1 << ARGUMENT_REGISTERS[usize::from(*n)].0;
            Some(
                parameters
                    .iter()
                    .map(register)
                    .fold(0, std::ops::BitOr::bitor),
            )
        };
        let all = imports.by_slot.iter();
        Self {
            by_slot: all
                .filter_map(|(slot, name)| Some((*slot, mask(name)?)))
                .collect(),
        }
    }

    /// The registers for the function that is bound to a slot, as bits by number.
    pub fn of(&self, slot: u64) -> u16 {
        self.by_slot.get(&slot).copied().unwrap_or(0)
    }
}
