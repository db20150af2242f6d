//! What kind of object a file is: a program, a shared object or a program interpreter.
//!
//! The ELF header cannot tell: `ET_DYN` is the type of position-independent programs, of
//! shared objects and of the dynamic loader. A static position-independent program has no
//! `PT_INTERP` either, and libc.so.6 has both a `PT_INTERP` and an entry point. Everything
//! that depends on the kind asks [`ObjectKind`], which is decided once, when the file is opened.
//!
//! The rules, in the order in which they are tried:
//!
//! 1. `ET_EXEC` is a program: nothing maps such a file but the kernel's `exec`. It is dynamic
//!    if it has a `PT_INTERP`, else static.
//! 2. Without a dynamic section, `ET_DYN` is a static program, as no loader could link it.
//! 3. `DF_1_PIE` in `DT_FLAGS_1`, or `DT_DEBUG`, mark a program: linkers write them for
//!    programs only. Not all linkers write the first (Go's and older ones of GNU do not), but
//!    all write the second. With a `PT_INTERP` the program is dynamic. Without one it is
//!    static, unless it has a name for others to link with (`DT_SONAME`) or libraries of its
//!    own (`DT_NEEDED`), which nothing would load for it.
//! 4. `PT_INTERP` and no `DT_SONAME` is a dynamic program, linked by something unusual.
//! 5. An entry point, no `PT_INTERP`, no `DT_NEEDED`, and an export of what debuggers look for
//!    in a dynamic loader (`_r_debug`, `_dl_debug_state`, `_dl_debug_addr`) make a program
//!    interpreter. musl's has no `DT_SONAME`.
//! 6. All else is a shared object, whether or not it has an entry point: older linkers put the
//!    start of the text there, and libc.so.6 prints its version when it is run.

use object::elf;

use super::Image;

/// What kind of object a file is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ObjectKind {
    /// A program at fixed addresses that is linked completely.
    StaticExecutable,
    /// A position-independent program that is linked completely and relocates itself.
    StaticPie,
    /// A program at fixed addresses that a program interpreter links with its libraries.
    DynamicExecutable,
    /// A position-independent program that a program interpreter links with its libraries.
    DynamicPie,
    /// A library that a program interpreter maps and links.
    SharedObject,
    /// The dynamic loader itself: the kernel starts it for a program that names it.
    Interpreter,
}

impl ObjectKind {
    /// True if the load bias is chosen at run time.
    pub fn is_position_independent(self) -> bool {
        !matches!(self, Self::StaticExecutable | Self::DynamicExecutable)
    }

    /// True for a program that is linked completely: it brings its own libc, and no other
    /// object's code runs in its process.
    pub fn is_static(self) -> bool {
        matches!(self, Self::StaticExecutable | Self::StaticPie)
    }

    /// True for a program that a program interpreter links with its libraries, and for which
    /// it runs `DT_PREINIT_ARRAY`.
    pub fn is_dynamic_program(self) -> bool {
        matches!(self, Self::DynamicExecutable | Self::DynamicPie)
    }

    /// True for what `exec` is called with to run it: neither a library nor a loader.
    pub fn is_program(self) -> bool {
        self.is_static() || self.is_dynamic_program()
    }
}

/// Whose program interpreter a program names. They differ in what they do before the
/// program's own code runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoaderFamily {
    /// glibc's `ld-linux-x86-64.so.2`: it runs `DT_PREINIT_ARRAY` and leaves the heap alone.
    Glibc,
    /// musl's `ld-musl-x86_64.so.1`: it does not run `DT_PREINIT_ARRAY` and allocates from the heap.
    Musl,
    /// Some other, about which nothing is assumed.
    Other,
}

/// The program interpreter that a program names in `PT_INTERP`.
#[derive(Clone, Debug)]
pub struct Interpreter {
    /// Path of its file.
    pub path: String,
    /// Whose it is.
    pub family: LoaderFamily,
}

impl Interpreter {
    /// Knows the family by the file's usual name.
    pub(super) fn new(path: String) -> Self {
        let family = if path.contains("ld-linux") {
            LoaderFamily::Glibc
        } else if path.contains("ld-musl") {
            LoaderFamily::Musl
        } else {
            LoaderFamily::Other
        };
        Self { path, family }
    }
}

/// Symbols that a dynamic loader exports for debuggers.
const LOADER_SYMBOLS: [&str; 3] = ["_r_debug", "_dl_debug_state", "_dl_debug_addr"];

/// What the decision depends on.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Marks {
    /// `ET_DYN`, not `ET_EXEC`.
    is_dyn: bool,
    /// `PT_INTERP`.
    has_interpreter: bool,
    /// An entry point other than 0.
    has_entry: bool,
    /// A dynamic section with entries.
    has_dynamic: bool,
    /// `DF_1_PIE` or `DT_DEBUG`.
    is_marked_program: bool,
    /// `DT_SONAME`.
    has_name: bool,
    /// `DT_NEEDED`.
    has_libraries: bool,
    /// One of [`LOADER_SYMBOLS`] is defined in the dynamic symbol table.
    exports_loader: bool,
}

impl Marks {
    /// The marks of a file whose tables have been read.
    pub(super) fn of(image: &Image, is_dyn: bool) -> Self {
        let has = |tag: elf::DynamicTag| image.dynamic_value(tag).is_some();
        let flags = elf::DynamicFlags1(image.dynamic_value(elf::DT_FLAGS_1).unwrap_or(0));
        let loader = |s: &super::Symbol| s.is_exported && LOADER_SYMBOLS.contains(&s.name.as_str());
        Self {
            is_dyn,
            has_interpreter: image.interpreter.is_some(),
            has_entry: image.entry.is_some(),
            has_dynamic: !image.dynamic.is_empty(),
            is_marked_program: flags.contains(elf::DF_1_PIE) || has(elf::DT_DEBUG),
            has_name: has(elf::DT_SONAME),
            has_libraries: has(elf::DT_NEEDED),
            exports_loader: image.dynamic_symbols.iter().any(loader),
        }
    }

    /// The kind by the rules in the module's head.
    pub(super) fn kind(self) -> ObjectKind {
        match self.has_interpreter {
            true if !self.is_dyn => ObjectKind::DynamicExecutable,
            false if !self.is_dyn => ObjectKind::StaticExecutable,
            true if self.is_marked_program || !self.has_name => ObjectKind::DynamicPie,
            false if !self.has_dynamic => ObjectKind::StaticPie,
            false if self.is_marked_program && !self.has_name && !self.has_libraries => {
                ObjectKind::StaticPie
            }
            false if self.has_entry && !self.has_libraries && self.exports_loader => {
                ObjectKind::Interpreter
            }
            _ => ObjectKind::SharedObject,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const DYN: Marks = Marks {
        is_dyn: true,
        has_interpreter: false,
        has_entry: false,
        has_dynamic: true,
        is_marked_program: false,
        has_name: false,
        has_libraries: false,
        exports_loader: false,
    };

    #[test]
    fn programs() {
        let fixed = Marks {
            has_entry: true,
            ..Marks::default()
        };
        assert_eq!(fixed.kind(), ObjectKind::StaticExecutable);
        let dynamic = Marks {
            has_interpreter: true,
            has_dynamic: true,
            is_marked_program: true,
            has_libraries: true,
            ..fixed
        };
        assert_eq!(dynamic.kind(), ObjectKind::DynamicExecutable);
        let pie = Marks {
            is_dyn: true,
            ..dynamic
        };
        assert_eq!(pie.kind(), ObjectKind::DynamicPie);
        let named = Marks {
            has_name: true,
            ..pie
        };
        assert_eq!(named.kind(), ObjectKind::DynamicPie);
        let unmarked = Marks {
            is_marked_program: false,
            ..pie
        };
        assert_eq!(unmarked.kind(), ObjectKind::DynamicPie);
        let alone = Marks {
            has_entry: true,
            is_marked_program: true,
            ..DYN
        };
        assert_eq!(alone.kind(), ObjectKind::StaticPie);
        let bare = Marks {
            has_dynamic: false,
            has_entry: true,
            ..DYN
        };
        assert_eq!(bare.kind(), ObjectKind::StaticPie);
    }

    #[test]
    fn shared_objects_are_no_static_programs() {
        for has_name in [false, true] {
            for has_entry in [false, true] {
                for has_libraries in [false, true] {
                    let library = Marks {
                        has_name,
                        has_entry,
                        has_libraries,
                        ..DYN
                    };
                    assert_eq!(library.kind(), ObjectKind::SharedObject, "{library:?}");
                }
            }
        }
        // libc.so.6 names an interpreter and starts somewhere.
        let libc = Marks {
            has_interpreter: true,
            has_entry: true,
            has_name: true,
            has_libraries: true,
            ..DYN
        };
        assert_eq!(libc.kind(), ObjectKind::SharedObject);
        // The vDSO, with the entry point that some kernels give it.
        let vdso = Marks {
            has_entry: true,
            has_name: true,
            ..DYN
        };
        assert_eq!(vdso.kind(), ObjectKind::SharedObject);
    }

    #[test]
    fn loaders() {
        for has_name in [false, true] {
            let loader = Marks {
                has_entry: true,
                has_name,
                exports_loader: true,
                ..DYN
            };
            assert_eq!(loader.kind(), ObjectKind::Interpreter);
        }
    }

    #[test]
    fn installed_files() {
        let kind = |path: &str| {
            let path = Path::new(path);
            let image = path.exists().then(|| Image::read(path).expect("is sound"));
            image.map(|image| image.kind)
        };
        let is = |path, expected| {
            let found = kind(path);
            assert!(found.is_none_or(|k| k == expected), "{path}: {found:?}");
        };
        is("/proc/self/exe", ObjectKind::DynamicPie);
        is("/lib64/ld-linux-x86-64.so.2", ObjectKind::Interpreter);
        is("/lib/ld-musl-x86_64.so.1", ObjectKind::Interpreter);
        is("/lib/x86_64-linux-gnu/libc.so.6", ObjectKind::SharedObject);
        is("/lib/x86_64-linux-gnu/libm.so.6", ObjectKind::SharedObject);
    }

    #[test]
    fn families() {
        let family = |path: &str| Interpreter::new(path.to_owned()).family;
        assert_eq!(family("/lib64/ld-linux-x86-64.so.2"), LoaderFamily::Glibc);
        assert_eq!(family("/lib/ld-musl-x86_64.so.1"), LoaderFamily::Musl);
        assert_eq!(family("/libexec/ld-elf.so.1"), LoaderFamily::Other);
    }
}
