//! What the fuzz targets share: programs made of fuzzed bytes.
#![deny(missing_docs)]

use std::path::PathBuf;
use std::sync::OnceLock;

use atom_core::Result;
use atom_core::check::Scope;
use atom_core::image::Image;
use atom_core::layout::Extra;
use atom_core::pipeline::{Found, Input, Options, Progress, Stage, instrument};

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

/// The stage that runs.
struct Running(Option<Stage>);

impl Progress for Running {
    fn begin(&mut self, stage: Stage) {
        self.0 = Some(stage);
    }

    fn end(&mut self, _: Found<'_>) {
        self.0 = None;
    }
}

/// Everything that `atom -g --check` does without a tool.
///
/// # Panics
/// If the checker finds a difference: that is a defect, as a panic is.
pub fn rewrite(image: Image) -> Result<Vec<u8>> {
    let options = Options {
        strict: true,
        extra: Extra::All,
        debug_info: true,
        check: Some(Scope::All),
        ..Options::default()
    };
    let mut running = Running(None);
    let program = vec![Input::alone(image)];
    let written = instrument(program, None, &options, &mut running, |made, _| {
        made.outputs[0].to_vec()
    });
    match written {
        Err(e) if running.0 == Some(Stage::Check) => panic!("{e}"),
        written => written,
    }
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
