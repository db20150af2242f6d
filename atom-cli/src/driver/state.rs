//! What has to be known of a process to add libraries to it: kept when the process begins, and after each library.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use atom_core::pipeline::{self, Input, Rewritten};
use atom_core::{Error, Result, memory};
use clap::Parser;
use serde::{Deserialize, Serialize};

use super::graphs::Graphs;
use super::objects;
use crate::choices::Run;
use crate::kept::identity::Identity;
use crate::kept::store::Store;
use crate::request::Request;
use crate::with;

/// Name of the file with the state.
pub const STATE: &str = "state";
/// Variables that say where debug information is, on which names depend.
const VARIABLES: [&str; 3] = ["HOME", "XDG_CACHE_HOME", "DEBUGINFOD_CACHE_PATH"];
/// What a command does that needs the state.
pub(super) const DOING: &str = "adding a library to a running process";

/// What has to be known of a process to add a library to it.
#[derive(Serialize, Deserialize, Clone)]
pub(super) struct State {
    /// The command line that instrumented the process.
    words: Vec<String>,
    /// The folder in which that command ran.
    folder: String,
    /// Its variables of [`VARIABLES`].
    variables: Vec<(String, String)>,
    /// Digests of the contents of the tool and of this command, whose files may get new names while the process runs. Then
    /// those of all objects' originals, with what the runtime knows these by.
    pub(super) stamps: Vec<String>,
    /// Libraries that were added: the original and the instrumented file, and the number of objects after that.
    added: Vec<(String, String, usize)>,
    /// What the stages have to know.
    pub(super) process: pipeline::State,
}

/// A path as text; others are refused.
pub(super) fn text(path: &Path) -> Result<String> {
    let text = path.to_str().map(str::to_owned);
    text.ok_or_else(|| Error::new(DOING, "its path is no text").file(path))
}

impl State {
    /// The state of a process that begins.
    pub(super) fn of_process(
        process: &pipeline::State,
        request: &Request,
        inputs: &[Input],
    ) -> Result<Self> {
        let words = std::env::args_os().map(|word| text(Path::new(&word)));
        let folder = std::env::current_dir().map_err(|e| Error::new(DOING, e))?;
        let variables = VARIABLES
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), std::env::var(name).ok()?)));
        Ok(Self {
            words: words.collect::<Result<_>>()?,
            folder: text(&folder)?,
            variables: variables.collect(),
            stamps: stamps(request, inputs)?,
            added: Vec::new(),
            process: process.clone(),
        })
    }

    /// Writes it into a folder, which is made.
    pub(super) fn write(&self, folder: &Path) -> Result<()> {
        let file = folder.join(STATE);
        let fail = |e: std::io::Error| Error::new(DOING, e).file(&file);
        fs::create_dir_all(folder).map_err(fail)?;
        let json = serde_json::to_vec(self).map_err(|e| fail(e.into()))?;
        fs::write(&file, json).map_err(fail)
    }

    /// Keeps the graphs of the process's objects in the same folder, so that adding a library does not build them again.
    pub(super) fn keep_graphs(&self, folder: &Path, made: &Rewritten<'_>) {
        let of_objects = &self.stamps[self.stamps.len() - made.inputs.len()..];
        Graphs::new(folder, made.inputs, of_objects).keep(made.objects, made.lives);
    }

    pub(super) fn read(file: &Path) -> Result<Self> {
        let fail = |e: std::io::Error| Error::new(DOING, e).file(file);
        let json = fs::read(file).map_err(fail)?;
        serde_json::from_slice(&json).map_err(|e| fail(e.into()))
    }

    /// The command line that instrumented the process, in the folder and with the variables of that time.
    pub(super) fn command_line(&self) -> Result<Run> {
        std::env::set_current_dir(&self.folder).map_err(|e| Error::new(DOING, e))?;
        for (name, value) in &self.variables {
            // SAFETY: the process has one thread.
            unsafe { std::env::set_var(name, value) };
        }
        memory::set_allocator();
        let mut run =
            Run::try_parse_from(&self.words).map_err(|e| Error::new(DOING, e.to_string()))?;
        with::add_folders(&mut run.choices)?;
        // The file under its temporary name is gone.
        let placed_at = run.job.as_ref().and_then(|job| job.placed_at.as_ref());
        let placed_at = placed_at.map(|path| path.path().to_path_buf());
        run.output = placed_at.or(run.output);
        Ok(run)
    }

    /// The state after the last of the process's objects, `added`, have come to it.
    pub(super) fn with_libraries(
        &self,
        stamps: Vec<String>,
        process: &pipeline::State,
        added: &[Input],
    ) -> Result<Self> {
        let mut after = Self {
            stamps,
            process: process.clone(),
            ..self.clone()
        };
        for input in added {
            let files = (text(&input.path)?, text(&input.output)?, process.objects());
            after.added.push(files);
        }
        Ok(after)
    }

    /// Adds the libraries that were added to the process.
    pub(super) fn add_libraries(&self, inputs: &mut Vec<Input>) -> Result<()> {
        for (path, output, known) in &self.added {
            let path = PathBuf::from(path);
            let fail = |e: &str| Error::new(DOING, e).file(&path);
            let real = fs::canonicalize(&path).map_err(|e| fail(&e.to_string()))?;
            let image = objects::library(&real);
            let image = image.ok_or_else(|| fail("it is another file now"))?;
            inputs.push(Input {
                output: output.into(),
                is_global: false,
                known: *known,
                path: path.clone(),
                ..Input::alone(image)
            });
        }
        Ok(())
    }
}

/// See [`State::stamps`].
pub(super) fn stamps(request: &Request, inputs: &[Input]) -> Result<Vec<String>> {
    // Without the cache each file is read anew.
    let digests = Store::open().map(|store| store.digests());
    let identity = Identity::new(digests.ok());
    let contents = |path: &Path| {
        let digest = identity.contents(path);
        digest.map_err(|e| Error::new(DOING, e).file(path))
    };
    let command = Identity::command()?;
    let tool = request.tool.as_deref();
    let own = tool.into_iter().chain([command.as_path()]).map(contents);
    let objects = inputs.iter().map(|input| {
        let m = fs::metadata(&input.path);
        let m = m.map_err(|e| Error::new(DOING, e).file(&input.path))?;
        let known = (m.dev(), m.ino(), m.mtime(), m.mtime_nsec());
        Ok(format!("{} {known:?}", contents(&input.path)?))
    });
    own.chain(objects).collect()
}
