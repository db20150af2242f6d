//! `$ORIGIN` in what a program tells the dynamic loader.
//!
//! A program may name folders of libraries relative to its own file: `$ORIGIN/../lib` in
//! `DT_RUNPATH` or `DT_RPATH`, and in other strings of the dynamic section. The loader puts the
//! folder of the running file there, as `/proc/self/exe` leads to it, without symbolic links. An
//! output in another folder would find other libraries, or none.
//!
//! So the output gets a copy of the string table after whose strings the expanded ones are.
//! Offsets of the other strings stay as they are: symbols, versions and names of libraries are
//! found by them.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use object::elf;

use super::Image;

/// Tags whose strings the loader expands.
const EXPANDED: [elf::DynamicTag; 7] = [
    elf::DT_RUNPATH,
    elf::DT_RPATH,
    elf::DT_NEEDED,
    elf::DT_AUXILIARY,
    elf::DT_FILTER,
    elf::DT_AUDIT,
    elf::DT_DEPAUDIT,
];

/// The two spellings; loaders take what follows the first one for the rest of the path.
const SPELLINGS: [&[u8]; 2] = [b"$ORIGIN", b"${ORIGIN}"];

/// A string table that replaces the program's own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Strings {
    /// The program's strings, and new ones after them.
    pub bytes: Vec<u8>,
    /// Entries of [`Image::dynamic`] whose strings are new: index, and offset of the string.
    pub changed: Vec<(usize, u64)>,
}

impl Image {
    /// The strings in which the loader puts the folder of the program's file.
    fn strings_with_origin(&self) -> impl Iterator<Item = (usize, &[u8])> {
        let table = self.string_table().unwrap_or_default();
        let entries = self.dynamic.iter().enumerate();
        entries.filter_map(move |(i, (tag, offset))| {
            let rest = EXPANDED
                .contains(tag)
                .then(|| table.get(usize::try_from(*offset).ok()?..));
            let string = rest.flatten()?.split(|b| *b == 0).next()?;
            let has_origin = SPELLINGS.iter().any(|s| find(string, s).is_some());
            has_origin.then_some((i, string))
        })
    }

    /// Names of the libraries that the object names, in its order.
    pub fn needed(&self) -> Vec<String> {
        let table = self.string_table().unwrap_or_default();
        let needed = (self.dynamic.iter()).filter(|(tag, _)| *tag == elf::DT_NEEDED);
        needed
            .filter_map(|(_, offset)| table.get(usize::try_from(*offset).ok()?..))
            .filter_map(|rest| rest.split(|b| *b == 0).next())
            .map(|name| String::from_utf8_lossy(name).into_owned())
            .collect()
    }

    /// The string table of the dynamic section.
    pub(super) fn string_table(&self) -> Option<&[u8]> {
        let size = usize::try_from(self.dynamic_value(elf::DT_STRSZ)?).ok()?;
        self.bytes_at(self.dynamic_value(elf::DT_STRTAB)?, size)
    }

    /// True if the program finds libraries by the folder of its own file.
    pub fn uses_origin(&self) -> bool {
        self.strings_with_origin().next().is_some()
    }

    /// Lets the output of a dynamic program look for libraries where the program does, whose file
    /// is in `folder`: an absolute path without symbolic links.
    ///
    /// # Errors
    /// The reason if the folder's name cannot be in a search path.
    pub fn expand_origin(&mut self, folder: &Path) -> Result<(), &'static str> {
        let folder = folder.as_os_str();
        let expanded: Vec<(usize, Vec<u8>)> = self
            .strings_with_origin()
            .map(|(i, string)| (i, expand(string, folder)))
            .collect();
        if expanded.is_empty() {
            return Ok(());
        }
        // A colon or a line break ends a folder, and there is no way to write one that does not. A
        // dollar may begin a word that the loader replaces.
        if folder.as_bytes().iter().any(|b| b":\n$".contains(b)) {
            return Err("the name of its folder has a colon, a dollar or a line break");
        }
        let mut bytes = self.string_table().unwrap_or_default().to_vec();
        let mut changed = Vec::new();
        for (i, string) in expanded {
            changed.push((i, bytes.len() as u64));
            bytes.extend(string);
            bytes.push(0);
        }
        self.strings = Some(Strings { bytes, changed });
        Ok(())
    }
}

/// A string with a folder in place of `$ORIGIN`.
fn expand(string: &[u8], folder: &OsStr) -> Vec<u8> {
    let mut expanded = Vec::new();
    let mut rest = string;
    while let Some(first) = rest.first() {
        match SPELLINGS.iter().find(|s| rest.starts_with(s)) {
            Some(spelling) => {
                // Of the root folder, `/` and what follows would be a name with two slashes.
                let is_root = folder.as_bytes() == b"/" && rest.get(spelling.len()) == Some(&b'/');
                expanded.extend(folder.as_bytes().iter().filter(|_| !is_root));
                rest = &rest[spelling.len()..];
            }
            None => {
                expanded.push(*first);
                rest = &rest[1..];
            }
        }
    }
    expanded
}

fn find(text: &[u8], what: &[u8]) -> Option<usize> {
    text.windows(what.len()).position(|w| w == what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_are_expanded() {
        let at = |folder: &str, text: &str| {
            String::from_utf8(expand(text.as_bytes(), OsStr::new(folder))).unwrap()
        };
        assert_eq!(at("/opt/x", "$ORIGIN/lib"), "/opt/x/lib");
        assert_eq!(
            at("/opt/x", "/a:${ORIGIN}/../lib:$ORIGIN:$LIB/y"),
            "/a:/opt/x/../lib:/opt/x:$LIB/y"
        );
        assert_eq!(at("/", "$ORIGIN/lib:$ORIGIN"), "/lib:/");
        assert_eq!(at("/opt/x", "$ORIGI:${ORIGIN:$"), "$ORIGI:${ORIGIN:$");
    }
}
