//! What was found out about objects of a process, kept beside its added libraries.
//!
//! Each library that is added is instrumented with all objects before it. Their graphs, and what they expect of each
//! other, are read from files then: one for each object, named by what the file system says of the object.

use std::fs;
use std::path::{Path, PathBuf};

use atom_core::Result;
use atom_core::cfg::stored::{Reader, Writer};
use atom_core::cfg::{Cfg, Object, Returns};
use atom_core::layout::{self, Sites};
use atom_core::live::{Live, Settled};
use atom_core::memory;

use super::process::File;
use crate::output::PendingFile;
use crate::run::identity::Identity;

/// Name of the folder.
const FOLDER: &str = "graphs";

/// The files of some objects.
pub(super) struct Graphs {
    folder: PathBuf,
    /// By object: its file.
    files: Vec<PathBuf>,
}

/// The objects of a process, of which some were found out about before.
pub(super) struct Known<'a> {
    /// All objects.
    pub objects: Vec<Object<'a>>,
    /// The places of pads, of the objects behind the first ones.
    pub sites: Vec<Sites>,
    /// By object: what is known of its expectations.
    pub settled: Vec<Option<Settled>>,
}

impl Graphs {
    /// In the folder of added libraries. `stamps` has what the file system says of each object.
    pub fn new(folder: &Path, files: &[File], stamps: &[String]) -> Self {
        let folder = folder.join(FOLDER);
        let names = files.iter().zip(stamps).map(|(file, stamp)| {
            let path = file.path.to_string_lossy().into_owned();
            folder.join(Identity::of_words(&[path, stamp.clone()]))
        });
        Self {
            files: names.collect(),
            folder,
        }
    }

    /// Finds the procedures of all objects, as far as the files of the first `there` ones do not tell.
    pub fn understand<'a>(
        &self,
        files: &'a [File],
        there: usize,
        returns: Returns,
    ) -> Result<Known<'a>> {
        let mut known = Known {
            objects: Vec::new(),
            sites: Vec::new(),
            settled: Vec::new(),
        };
        for (i, file) in files.iter().enumerate() {
            let unwind = file.image.unwind_table()?;
            let stored = (i < there).then(|| read(&self.files[i])).flatten();
            let (object, settled) = match stored {
                Some((cfg, settled)) => {
                    let image = &file.image;
                    (Object { image, unwind, cfg }, Some(settled))
                }
                None => {
                    let (object, sites) = layout::understand(&file.image, unwind, returns)?;
                    if i >= there {
                        known.sites.push(sites);
                    }
                    (object, None)
                }
            };
            file.image.release_pages();
            known.objects.push(object);
            known.settled.push(settled);
        }
        memory::give_back();
        Ok(known)
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
