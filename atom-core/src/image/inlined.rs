//! The functions that an address belongs to, by inlining.
//!
//! The optimised code of one procedure comes from many functions. The debug information has a tree
//! of these functions with the source position of each inlined call. Reading the tree is costly, so
//! it is read unit by unit, when an address of the unit is first asked for. For a tool that does
//! not ask, nothing is read.

use std::borrow::Cow;
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

use addr2line::Context;
use gimli::{CloneStableDeref, Dwarf, EndianReader, LittleEndian, SectionId, StableDeref};
use memmap2::Mmap;
use object::Object;
use rayon::prelude::*;

use super::Image;
use super::SourceFrame;
use super::debug_section::section;
use super::separate::{DEBUG_ROOT, map, separate_file};

/// Deepest nesting of entries that is read; entries of real programs stay below 100.
const MAX_DEPTH: isize = 1000;

type Reader = EndianReader<LittleEndian, Bytes>;

/// Contents of a section, in the mapped file or decompressed.
#[derive(Clone, Debug)]
enum Bytes {
    Mapped(Arc<Mmap>, usize, usize),
    Owned(Arc<[u8]>),
}

impl Deref for Bytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Mapped(map, start, len) => &map[*start..*start + *len],
            Self::Owned(bytes) => bytes,
        }
    }
}

// SAFETY: the bytes are in a mapping or in a slice after an `Arc`. They do not move with the
// value, and a clone refers to the same bytes.
unsafe impl StableDeref for Bytes {}
// SAFETY: as above.
unsafe impl CloneStableDeref for Bytes {}

/// The tree of functions of a program's debug information.
pub(super) struct Functions {
    context: Context<Reader>,
}

impl Functions {
    /// Finds the debug information; `None` if none can be read.
    pub fn load(image: &Image) -> Option<Self> {
        let dwarf = match dwarf(&image.file) {
            Some(own) => own,
            None => dwarf(&Arc::new(separate_file(image)?.1))?,
        };
        if !is_shallow(&dwarf) {
            return None;
        }
        let context = Context::from_dwarf(dwarf).ok()?;
        Some(Self { context })
    }

    /// The functions at an address, innermost first.
    pub fn at(&self, address: u64) -> Vec<SourceFrame> {
        let mut list = Vec::new();
        let Ok(mut frames) = self.context.find_frames(address).skip_all_loads() else {
            return list;
        };
        while let Ok(Some(frame)) = frames.next() {
            let name = frame.function.as_ref().and_then(|f| f.raw_name().ok());
            let place = frame.location.as_ref();
            list.push(SourceFrame {
                function: name.unwrap_or_default().into_owned(),
                file: place.and_then(|l| l.file).unwrap_or_default().to_owned(),
                line: place.and_then(|l| l.line).unwrap_or(0),
                column: place.and_then(|l| l.column).unwrap_or(0),
            });
        }
        list
    }
}

/// True if entries are not nested deeper than [`MAX_DEPTH`]. Inlined calls are read by recursion,
/// and a hostile file must not overflow the stack.
fn is_shallow(dwarf: &Dwarf<Reader>) -> bool {
    let mut headers = dwarf.units();
    let units = std::iter::from_fn(|| headers.next().ok().flatten());
    let units: Vec<_> = units.collect();
    units.par_iter().all(|unit| {
        let Ok(abbreviations) = unit.abbreviations(&dwarf.debug_abbrev) else {
            return true;
        };
        let Ok(mut entries) = unit.entries_raw(&abbreviations, None) else {
            return true;
        };
        while !entries.is_empty() {
            if entries.next_depth() > MAX_DEPTH {
                return false;
            }
            // An entry that cannot be read ends the unit for every reader.
            match entries.read_abbreviation() {
                Ok(Some(entry)) if entries.skip_attributes(entry.attributes()).is_ok() => {}
                Ok(None) => {}
                _ => return true,
            }
        }
        true
    })
}

/// The debug information in a file, with the file of common parts that it may refer to.
fn dwarf(file: &Arc<Mmap>) -> Option<Dwarf<Reader>> {
    let object = object::File::parse(&file[..]).ok()?;
    section(&object, ".debug_info")?;
    let mut dwarf = Dwarf::load(|id| Ok::<_, gimli::Error>(reader(file, &object, id))).ok()?;
    let common = object.gnu_debugaltlink().ok().flatten();
    if let Some((name, _)) = common
        && let Some(common) = common_file(name)
        && let Ok(object) = object::File::parse(&common[..])
    {
        let _ = dwarf.load_sup(|id| Ok::<_, gimli::Error>(reader(&common, &object, id)));
    }
    Some(dwarf)
}

/// The file of common parts: `dwz` moves parts that several files share into one. Its name is an
/// absolute path, or a path below the folder of debug files.
fn common_file(name: &[u8]) -> Option<Arc<Mmap>> {
    let name = std::str::from_utf8(name).ok()?;
    let path = match name.find(".dwz/") {
        Some(at) => Path::new(DEBUG_ROOT).join(&name[at..]),
        None => Path::new(name).to_path_buf(),
    };
    if !path.is_absolute() {
        return None;
    }
    Some(Arc::new(map(&path)?))
}

fn reader(file: &Arc<Mmap>, object: &object::File<'_>, id: SectionId) -> Reader {
    let bytes = match section(object, id.name()) {
        Some(Cow::Borrowed(bytes)) => {
            let start = bytes.as_ptr() as usize - file.as_ptr() as usize;
            Bytes::Mapped(file.clone(), start, bytes.len())
        }
        Some(Cow::Owned(bytes)) => Bytes::Owned(bytes.into()),
        None => Bytes::Owned(Arc::new([])),
    };
    EndianReader::new(bytes, LittleEndian)
}
