//! What a tool did not see, which each report says in its head.

use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::report::output::is_object;

/// Code of the process that is not instrumented.
#[derive(Clone, Debug)]
pub(super) struct Unseen {
    /// Names of the libraries that the program names.
    pub libraries: Vec<&'static str>,
    /// File names of libraries that were loaded while the program ran and are not instrumented.
    pub loaded: Vec<String>,
    /// Number of procedures that are not understood.
    pub opaque: u64,
    /// Objects with procedures that run in place since the process wrote to its text, and their number.
    pub in_place: Vec<(String, usize)>,
    /// Size in bytes of all known code, and of the part that a tool can instrument.
    pub code: Option<[u64; 2]>,
}

impl Unseen {
    /// What `atom` wrote into the program; `None` if it wrote nothing.
    pub fn of_program() -> Option<Self> {
        let names = analysis_rt::unseen().unwrap_or("").split(", ");
        let mut loaded = Vec::new();
        let mut later = 0;
        analysis_rt::unknown_objects(&mut |path| {
            let name = path.rsplit(|b| *b == b'/').next().unwrap_or(path);
            let name = String::from_utf8_lossy(name).into_owned();
            if is_object(path) && !loaded.contains(&name) {
                loaded.push(name);
                later += code_size(path);
            }
        });
        Some(Self {
            loaded,
            libraries: names.filter(|name| !name.is_empty()).collect(),
            opaque: analysis_rt::opaque()?,
            in_place: in_place(),
            code: analysis_rt::code().map(|[all, understood]| [all + later, understood]),
        })
    }

    /// The share of the process's code that a tool can see, in a line for people. Code that is made at run time is
    /// not part of it.
    pub fn share(&self) -> Option<String> {
        let [all, understood] = self.code?;
        let percent = understood as f64 * 100.0 / all as f64;
        // Only all of it is 100 %.
        let percent = if understood == all {
            percent
        } else {
            percent.min(99.99)
        };
        let mega = |bytes: u64| bytes as f64 / 1e6;
        let (understood, all) = (mega(understood), mega(all));
        Some(format!(
            "instrumented: {percent:.2} % of the process's code ({understood:.2} of {all:.2} MB)"
        ))
    }

    /// One line for people; `None` if nothing was left out.
    pub fn line(&self) -> Option<String> {
        let mut parts = Vec::new();
        if !self.libraries.is_empty() {
            let names = self.libraries.join(", ");
            parts.push(format!("{names} and what they load (atom run sees them)"));
        }
        if !self.loaded.is_empty() {
            let names = self.loaded.join(", ");
            parts.push(format!(
                "{names}, loaded later (--with FILE, or atom run once more)"
            ));
        }
        match self.opaque {
            0 => {}
            1 => parts.push("1 opaque procedure (atom show lists it)".into()),
            n => parts.push(format!("{n} opaque procedures (atom show lists them)")),
        }
        parts.extend(self.in_place.iter().map(|(object, count)| {
            let what = match count {
                1 => "1 procedure".to_owned(),
                n => format!("{n} procedures"),
            };
            format!("{what} of {object} ran in place since the program wrote its text")
        }));
        (!parts.is_empty()).then(|| format!("not instrumented: {}", parts.join("; ")))
    }
}

/// See [`Unseen::in_place`].
fn in_place() -> Vec<(String, usize)> {
    let mut all = Vec::new();
    analysis_rt::each_in_place(&mut |object, count| {
        let name = analysis_rt::object_name(object).unwrap_or("the program");
        all.push((name.to_owned(), count));
    });
    all
}

/// Size in bytes of the executable segments of a library; 0 if the file cannot be read.
fn code_size(path: &[u8]) -> u64 {
    /// Offsets in the file header: `e_phoff`, `e_phnum`; size of a program header; offsets in it.
    const TABLE: usize = 32;
    const COUNT: usize = 56;
    const ENTRY: usize = 56;
    const FLAGS: usize = 4;
    const FILE_SIZE: usize = 32;
    const PT_LOAD: u64 = 1;
    const PF_X: u64 = 1;
    let size = || {
        let file = File::open(Path::new(std::ffi::OsStr::from_bytes(path))).ok()?;
        let mut header = [0; 64];
        file.read_exact_at(&mut header, 0).ok()?;
        let table = number(&header[TABLE..][..8]);
        let mut headers = vec![0; number(&header[COUNT..][..2]) as usize * ENTRY];
        file.read_exact_at(&mut headers, table).ok()?;
        let executable = headers
            .chunks_exact(ENTRY)
            .filter(|h| number(&h[..4]) == PT_LOAD && number(&h[FLAGS..][..4]) & PF_X != 0);
        Some(executable.map(|h| number(&h[FILE_SIZE..][..8])).sum())
    };
    size().unwrap_or(0)
}

/// A little-endian number of at most eight bytes.
fn number(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |n, b| n << 8 | u64::from(*b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_names_what_was_left_out() {
        let line = |libraries: &[&'static str], opaque| {
            let libraries = libraries.to_vec();
            let loaded = Vec::new();
            Unseen {
                libraries,
                loaded,
                opaque,
                in_place: Vec::new(),
                code: None,
            }
            .line()
        };
        assert_eq!(line(&[], 0), None);
        assert_eq!(
            line(&["liba.so", "libc.so.6"], 0).unwrap(),
            "not instrumented: liba.so, libc.so.6 and what they load (atom run sees them)"
        );
        assert_eq!(
            line(&[], 1).unwrap(),
            "not instrumented: 1 opaque procedure (atom show lists it)"
        );
        assert!(
            line(&["a"], 2)
                .unwrap()
                .ends_with("; 2 opaque procedures (atom show lists them)")
        );
    }

    #[test]
    fn the_share_is_100_percent_only_if_all_is_seen() {
        let share = |code| {
            let unseen = Unseen {
                libraries: Vec::new(),
                loaded: Vec::new(),
                opaque: 0,
                in_place: Vec::new(),
                code,
            };
            unseen.share()
        };
        assert_eq!(share(None), None);
        assert!(
            share(Some([10_000_000, 10_000_000]))
                .unwrap()
                .contains(" 100.00 %")
        );
        assert!(
            share(Some([10_000_000, 9_999_999]))
                .unwrap()
                .contains(" 99.99 %")
        );
        assert!(
            share(Some([2_000_000, 500_000]))
                .unwrap()
                .ends_with("25.00 % of the process's code (0.50 of 2.00 MB)")
        );
    }

    #[test]
    fn size_of_code_in_a_file() {
        let program = std::env::current_exe().unwrap();
        let size = code_size(program.as_os_str().as_bytes());
        assert!(size > 10_000 && size < program.metadata().unwrap().len());
        assert_eq!(code_size(b"/dev/null"), 0);
    }
}
