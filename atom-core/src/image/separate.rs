//! Separate files with a program's debug information and symbols.
//!
//! Distributions strip programs and keep the rest elsewhere. The places, in the order in which they are looked at:
//!
//! 1. a file named by the build id, below `/usr/lib/debug/.build-id`;
//! 2. the file that `.gnu_debuglink` names, beside the program, in `.debug` there, or below `/usr/lib/debug`;
//! 3. the cache of debuginfod's client. It is only read here: to ask a server is for those who have a user.
//!
//! A file counts if it has the program's build id, or the checksum of the link. Fedora's and others' programs have
//! a table of function symbols inside (`.gnu_debugdata`, *MiniDebugInfo*): an ELF file, compressed by xz.
//!
//! Symbols from elsewhere are used only if that file's executable sections have the program's addresses and sizes: a
//! program that was rewritten after its debug information had been taken away may still have its old build id.

use std::io::Read;
use std::path::{Path, PathBuf};

use object::{Object, ObjectSection};

use super::symtab::read_symtab;
use super::{Image, Symbol};

/// Folder in which distributions keep separate debug files.
pub(super) const DEBUG_ROOT: &str = "/usr/lib/debug";
/// Section with MiniDebugInfo.
const MINI: &str = ".gnu_debugdata";
/// Largest size in bytes of decompressed MiniDebugInfo; a larger one is ignored.
const MAX_MINI: u64 = 256 << 20;
/// Most memory in KiB that decompressing it may take.
const MAX_MEMORY: u32 = 128 << 10;

/// The file with a program's debug information: its own or a separate one.
pub(crate) struct DebugFile<'i> {
    image: &'i Image,
    separate: Option<(PathBuf, memmap2::Mmap)>,
}

impl<'i> DebugFile<'i> {
    /// `None` if there is no debug information.
    pub fn of(image: &'i Image) -> Option<Self> {
        let names = [".debug_info", ".zdebug_info"];
        if image.sections.iter().any(|s| names.contains(&&*s.name)) {
            return Some(Self {
                image,
                separate: None,
            });
        }
        let separate = Some(separate_file(image)?);
        Some(Self { image, separate })
    }

    /// Its contents.
    pub fn bytes(&self) -> &[u8] {
        match &self.separate {
            Some((_, map)) => map,
            None => &self.image.file,
        }
    }

    /// Its `.gnu_debugaltlink`, with a path that holds wherever the section
    /// is; `None` if it has none or the file that it names is not there.
    pub fn altlink(&self) -> Option<Vec<u8>> {
        let file = object::File::parse(self.bytes()).ok()?;
        let (name, id) = file.gnu_debugaltlink().ok().flatten()?;
        let path = match &self.separate {
            Some((path, _)) => path,
            None => &self.image.path,
        };
        let folder = path.canonicalize().ok()?.parent()?.to_path_buf();
        let name = Path::new(std::str::from_utf8(name).ok()?);
        let target = folder.join(name).canonicalize().ok()?;
        let mut out = target.into_os_string().into_encoded_bytes();
        out.push(0);
        out.extend(id);
        Some(out)
    }
}

/// The file that holds the debug information of a stripped program.
pub(super) fn separate_file(image: &Image) -> Option<(PathBuf, memmap2::Mmap)> {
    let file = object::File::parse(&image.file[..]).ok()?;
    let id = build_id(&file);
    let checksum = file.gnu_debuglink().ok().flatten().map(|(_, crc)| crc);
    let matches = |data: &[u8]| {
        has_build_id(data, id) || checksum.is_some_and(|crc| crc32fast::hash(data) == crc)
    };
    places(&file, &image.path)
        .into_iter()
        .filter_map(|path| map(&path).map(|m| (path, m)))
        .find(|(_, m)| matches(m))
}

/// Files that may hold the debug information of the object at `path`, best first. Whether a file is there and belongs
/// to the object is not examined. None if the object has no build id and no link, or cannot be read.
pub fn candidates(path: &Path) -> Vec<PathBuf> {
    let data = map(path);
    let file = data.as_ref().and_then(|m| object::File::parse(&m[..]).ok());
    file.map_or(Vec::new(), |file| places(&file, path))
}

/// The build id of the object at `path` in hexadecimal digits, if debug information of the object is in no
/// separate file and not in the object itself.
pub fn missing(path: &Path) -> Option<String> {
    let data = map(path)?;
    let file = object::File::parse(&data[..]).ok()?;
    let is_whole = file.section_by_name(".symtab").is_some();
    let is_there = || places(&file, path).iter().any(|place| place.is_file());
    let id = build_id(&file)?;
    (!is_whole && !is_there()).then(|| hexadecimal(id))
}

fn places(file: &object::File<'_>, path: &Path) -> Vec<PathBuf> {
    let mut places = Vec::new();
    let id = build_id(file).map(hexadecimal);
    if let Some(id) = &id {
        let (first, rest) = id.split_at(2);
        places.push(format!("{DEBUG_ROOT}/.build-id/{first}/{rest}.debug").into());
    }
    let linked = || {
        let (name, _) = file.gnu_debuglink().ok().flatten()?;
        let name = Path::new(std::str::from_utf8(name).ok()?).file_name()?;
        let folder = path.canonicalize().ok()?.parent()?.to_path_buf();
        let below_root = Path::new(DEBUG_ROOT).join(folder.strip_prefix("/").ok()?);
        let folders = [folder.join(".debug"), below_root];
        Some(
            [folder.join(name)]
                .into_iter()
                .chain(folders.map(|f| f.join(name))),
        )
    };
    places.extend(linked().into_iter().flatten());
    let downloads = downloads();
    places.extend(
        id.zip(downloads)
            .map(|(id, f)| f.join(id).join("debuginfo")),
    );
    places
}

/// The folder in which debuginfod's client keeps what it has downloaded: debuginfod_find_debuginfo(3).
fn downloads() -> Option<PathBuf> {
    let folder = |name: &str| {
        let value = std::env::var_os(name).filter(|value| !value.is_empty());
        value.map(PathBuf::from)
    };
    let of_user = || folder("XDG_CACHE_HOME").or_else(|| Some(folder("HOME")?.join(".cache")));
    folder("DEBUGINFOD_CACHE_PATH").or_else(|| Some(of_user()?.join("debuginfod_client")))
}

/// A build id that is long enough to tell programs apart.
fn build_id<'d>(file: &object::File<'d>) -> Option<&'d [u8]> {
    file.build_id().ok().flatten().filter(|id| id.len() > 1)
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// Symbols of a program that has no table of its own: of its separate file, else of its MiniDebugInfo.
pub(super) fn symbols(image: &Image) -> Vec<Symbol> {
    let separate = separate_file(image).filter(|(_, map)| has_same_code(image, map));
    if let Some((_, map)) = separate {
        let symbols = read_symtab(&map);
        if !symbols.is_empty() {
            return symbols;
        }
    }
    let mini = mini(image).filter(|data| has_same_code(image, data));
    mini.map_or(Vec::new(), |data| read_symtab(&data))
}

/// The program's MiniDebugInfo, decompressed.
fn mini(image: &Image) -> Option<Vec<u8>> {
    let section = image.sections.iter().find(|s| s.name == MINI)?;
    let start = usize::try_from(section.offset).ok()?;
    let bytes = image
        .file
        .get(start..start.checked_add(usize::try_from(section.size).ok()?)?)?;
    let mut data = Vec::new();
    let reader = lzma_rust2::XzReader::new_mem_limit(bytes, false, MAX_MEMORY);
    reader.take(MAX_MINI + 1).read_to_end(&mut data).ok()?;
    (data.len() as u64 <= MAX_MINI).then_some(data)
}

/// True if each executable section of the program is in the other file at the same address, with the same size.
fn has_same_code(image: &Image, other: &[u8]) -> bool {
    let Ok(other) = object::File::parse(other) else {
        return false;
    };
    let code = |s: &&super::Section| s.has_code();
    let is_there = |s: &super::Section| {
        let found = other.section_by_name(&s.name);
        // Its contents are usually left out.
        found.is_some_and(|f| (f.address(), f.size()) == (s.address, s.size))
    };
    image.sections.iter().filter(code).all(is_there)
}

pub(super) fn map(path: &Path) -> Option<memmap2::Mmap> {
    let file = std::fs::File::open(path).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    // SAFETY: private and read-only; only a file that shrinks while it is read could make a read fail.
    unsafe { memmap2::Mmap::map(&file) }.ok()
}

fn has_build_id(data: &[u8], wanted: Option<&[u8]>) -> bool {
    let found = object::File::parse(data)
        .ok()
        .and_then(|f| f.build_id().ok().flatten());
    wanted.is_some() && found == wanted
}
