//! Names and versions under which an object defines and refers to dynamic symbols.
//!
//! A library can define a name several times, with another version each time (`memcpy@GLIBC_2.2.5`,
//! `memcpy@@GLIBC_2.14`), and a reference asks for one of them. The numbers are in `.gnu.version`, one for
//! each dynamic symbol; `.gnu.version_d` and `.gnu.version_r` have the names.

use object::LittleEndian;
use object::elf::{DT_SONAME, DT_VERSYM, FileHeader64};
use object::read::elf::{ElfFile64, VersionTable};
use object::read::{Object, SymbolIndex};

use super::Image;

/// The version of a dynamic symbol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SymbolVersion<'i> {
    /// Its name; `None` for a symbol without a version.
    pub name: Option<&'i [u8]>,
    /// True for a definition that only references with its version find.
    pub is_hidden: bool,
}

/// The versions of an object's dynamic symbols.
#[derive(Debug)]
pub struct SymbolVersions<'i>(Option<VersionTable<'i, FileHeader64<LittleEndian>>>);

impl<'i> SymbolVersions<'i> {
    /// Reads the tables; `None` if the object has versions that cannot be read.
    pub fn read(image: &'i Image) -> Option<Self> {
        if image.dynamic_value(DT_VERSYM).is_none() {
            return Some(Self(None));
        }
        let bytes: &'i [u8] = &image.file;
        let file = ElfFile64::<LittleEndian>::parse(bytes).ok()?;
        let table = file.elf_section_table().versions(LittleEndian, bytes);
        table.ok()?.map(|table| Self(Some(table)))
    }

    /// True if the object's definitions have no versions at all.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The version of the dynamic symbol with this number; `None` if the tables are damaged.
    pub fn of(&self, symbol: u32) -> Option<SymbolVersion<'i>> {
        let Some(table) = &self.0 else {
            return Some(SymbolVersion {
                name: None,
                is_hidden: false,
            });
        };
        let index = table.version_index(LittleEndian, SymbolIndex(symbol as usize));
        Some(SymbolVersion {
            name: table
                .version(index.index())
                .ok()?
                .map(|version| version.name()),
            is_hidden: index.is_hidden(),
        })
    }
}

impl Image {
    /// The name by which other objects name it as their library (`DT_SONAME`).
    pub fn soname(&self) -> Option<&str> {
        let offset = usize::try_from(self.dynamic_value(DT_SONAME)?).ok()?;
        let name = self
            .string_table()?
            .get(offset..)?
            .split(|b| *b == 0)
            .next()?;
        std::str::from_utf8(name).ok()
    }

    /// The build-id that the linker wrote, which identifies the build.
    pub fn build_id(&self) -> Option<&[u8]> {
        let file = object::File::parse(&self.file[..]).ok()?;
        file.build_id().ok()?
    }
}
