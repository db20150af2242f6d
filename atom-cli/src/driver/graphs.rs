//! What was found out about objects of a process, kept beside its added libraries.
//!
//! Each library that is added is instrumented with all objects before it. Their graphs, and what they expect of each
//! other, are read from files then: one for each object, named by what the file system says of the object.

use std::fs;
use std::path::{Path, PathBuf};

use atom_core::cfg::stored::{Reader, Writer};
use atom_core::cfg::{Cfg, Object};
use atom_core::live::{Live, Settled};
use atom_core::pipeline::Input;

use crate::kept::identity::Identity;
use crate::output::PendingFile;

/// Name of the folder.
const FOLDER: &str = "graphs";

/// The files of some objects.
pub(super) struct Graphs {
    folder: PathBuf,
    /// By object: its file.
    files: Vec<PathBuf>,
}

impl Graphs {
    /// In the folder of added libraries. `stamps` has a word for the contents of each object.
    pub fn new(folder: &Path, inputs: &[Input], stamps: &[String]) -> Self {
        let folder = folder.join(FOLDER);
        let names = inputs.iter().zip(stamps).map(|(input, stamp)| {
            let path = input.path.to_string_lossy().into_owned();
            folder.join(Identity::of_words(&[path, stamp.clone()]))
        });
        Self {
            files: names.collect(),
            folder,
        }
    }

    /// What the files tell of the first objects.
    pub fn read(&self, inputs: &mut [Input]) {
        for (input, file) in inputs.iter_mut().zip(&self.files) {
            input.stored = read(file);
        }
    }

    /// Keeps what was found out. What cannot be written is found out again.
    pub fn keep(&self, objects: &[Object<'_>], lives: &[Live<'_>]) {
        let each = objects.iter().zip(lives).zip(&self.files);
        for ((object, live), file) in each.filter(|(_, file)| !file.exists()) {
            let mut to = Writer::default();
            object.cfg.store(&mut to);
            live.expectations().store(&mut to);
            let bytes = to.finish();
            fs::create_dir_all(&self.folder).unwrap_or_default();
            let written = PendingFile::write(file, |f| f.write_all(&bytes), 0o600);
            written.and_then(PendingFile::commit).unwrap_or_default();
        }
    }
}

/// What a file tells; `None` if it is not there or damaged.
fn read(file: &Path) -> Option<(Cfg, Settled)> {
    let bytes = fs::read(file).ok()?;
    let mut from = Reader::new(&bytes)?;
    Some((Cfg::restore(&mut from)?, Settled::restore(&mut from)?))
}
