//! What the fuzz targets share: programs made of fuzzed bytes.
#![deny(missing_docs)]

use std::path::PathBuf;
use std::sync::OnceLock;

use atom_core::image::Image;
use atom_core::layout::{Extra, Options, Placed};
use atom_core::live::Live;
use atom_core::plan::{Clobbers, Plan};
use atom_core::{Result, check, pipeline};

/// Opens a program with these contents. The file is this process's own, in memory.
pub fn open(contents: &[u8]) -> Result<Image> {
    static FILE: OnceLock<PathBuf> = OnceLock::new();
    let file = FILE.get_or_init(|| {
        let name = format!("atom-fuzz-{}", std::process::id());
        PathBuf::from("/dev/shm").join(name)
    });
    std::fs::write(file, contents).expect("/dev/shm can be written");
    Image::open(file)
}

/// Everything that `atom -g --check` does without a tool.
///
/// # Panics
/// If the checker finds a difference: that is a defect, as a panic is.
pub fn rewrite(image: &Image) -> Result<Vec<u8>> {
    let (object, sites) = pipeline::understand(image)?;
    let plan = Plan::default();
    let options = Options {
        strict: true,
        extra: Extra::All,
        ..Options::default()
    };
    let placed = Placed::new(&object, &plan, None, sites, &options)?;
    let output = pipeline::output(&placed, true)?;
    let subject = check::Subject {
        scope: check::Scope::All,
        placed: &placed,
        live: &Live::compute(image, &object.cfg),
        clobbers: &|_| Clobbers::EVERYTHING,
        output: &output,
    };
    if let Err(e) = check::check(&subject) {
        panic!("{e}");
    }
    Ok(output)
}

/// A sound program, some of whose sections get other contents.
pub struct Base {
    contents: Vec<u8>,
    /// Name, offset in the file, size.
    sections: Vec<(String, usize, usize)>,
}

impl Base {
    /// The program that the environment variable `ATOM_FUZZ_BASE` names.
    pub fn from_environment() -> Self {
        let file = std::env::var_os("ATOM_FUZZ_BASE").expect("fuzz/run sets ATOM_FUZZ_BASE");
        let contents = std::fs::read(&file).expect("the base program can be read");
        let image = Image::open(file.as_ref()).expect("the base program is sound");
        let sections = image
            .sections
            .iter()
            .map(|s| (s.name.clone(), s.offset as usize, s.size as usize))
            .collect();
        Self { contents, sections }
    }

    /// The program with fuzzed sections. The data has for each section two bytes of size, then
    /// that number of bytes.
    pub fn with(&self, names: &[&str], mut data: &[u8]) -> Vec<u8> {
        let mut contents = self.contents.clone();
        for name in names {
            let Some((_, offset, size)) = self.sections.iter().find(|s| s.0 == *name) else {
                continue;
            };
            let Some((head, rest)) = data.split_at_checked(2) else {
                break;
            };
            let wanted = usize::from(u16::from_le_bytes([head[0], head[1]]));
            let taken = wanted.min(rest.len()).min(*size);
            contents[*offset..offset + taken].copy_from_slice(&rest[..taken]);
            data = &rest[taken..];
        }
        contents
    }

    /// Data that leaves the sections as they are: a seed.
    pub fn seed(&self, names: &[&str]) -> Vec<u8> {
        let mut data = Vec::new();
        for name in names {
            if let Some((_, offset, size)) = self.sections.iter().find(|s| s.0 == *name) {
                let size = (*size).min(usize::from(u16::MAX));
                data.extend((size as u16).to_le_bytes());
                data.extend(&self.contents[*offset..offset + size]);
            }
        }
        data
    }
}

/// Runs a target whose data are sections of the base program. With `--seed FILE`
/// as the process's arguments, writes the seed and ends.
pub fn base(names: &[&str]) -> &'static Base {
    static BASE: OnceLock<Base> = OnceLock::new();
    BASE.get_or_init(|| {
        let base = Base::from_environment();
        if let Some(file) = std::env::var_os("ATOM_FUZZ_SEED") {
            std::fs::write(file, base.seed(names)).expect("the seed can be written");
        }
        base
    })
}
