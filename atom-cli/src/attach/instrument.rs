//! The rewritten files for a process that runs, in the cache or made now. The process runs meanwhile.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use atom_core::image::separate;
use atom_core::pipeline::{Entered, Entrance};
use atom_core::{Error, Result};

use super::Arguments;
use super::objects::Object;
use super::places::Places;
use crate::driver::{self, AREA, ENTRANCE};
use crate::job::{self, Job, Mapped, Running};
use crate::kept::identity::{Identity, stamp};
use crate::kept::records;
use crate::kept::store::{Entry, Store};
use crate::source;

const DOING: &str = "instrumenting the process";

/// The rewritten files.
pub struct Files {
    /// The area's file.
    pub area: PathBuf,
    /// The rewritten objects, in the order of the entrance.
    pub objects: Vec<PathBuf>,
    /// Where everything goes.
    pub entrance: Entrance,
    _entry: Entry,
}

/// The files for these objects, whose new segments get these places; from an earlier time if they are there.
pub fn files(
    arguments: &Arguments,
    tool: &Path,
    (objects, places): (&[Object], &Places),
    store: &Store,
) -> Result<Files> {
    let running = running(objects, places);
    let name = name(arguments, tool, objects, &running, store)?;
    if arguments.fresh {
        store.remove(&name)?;
    }
    let program = file_name(&objects[0].path);
    let label = format!(
        "{} with {}, to attach to",
        objects[0].path.display(),
        arguments.words.tool()
    );
    let mut is_new = false;
    let entry = store.get_or_make(&name, &label, |folder| {
        is_new = true;
        let job = Job {
            placed_at: Some(store.folder_of(&name).join(&program).into()),
            named: Some((&objects[0].path).into()),
            tool_source: source::source_of(tool).map(job::Word::from),
            record: Some(records::stem(store.folder()).into()),
            loads: objects[1..].iter().map(|o| (&o.path).into()).collect(),
            quiet: arguments.quiet,
            attach: Some(running.clone()),
            ..Job::default()
        };
        let mut command = Command::new(Identity::command()?);
        command
            .arg(&objects[0].path)
            .arg(tool)
            .arg("-q")
            .arg("-o")
            .arg(folder.join(&program));
        command.args(arguments.choices.words()).arg("--libs");
        command.arg(job::OPTION).arg(job.to_word());
        command.arg("--").args(arguments.words.options());
        let status = command.status().map_err(|e| Error::new(DOING, e))?;
        if status.success() {
            return Ok(());
        }
        Err(
            Error::new(DOING, "that failed; nothing was changed in the process")
                .file(&objects[0].path),
        )
    })?;
    if is_new {
        store.trim(Store::limit()?)?;
    }
    let folder = driver::beside(&entry.folder.join(&program));
    let file = folder.join(ENTRANCE);
    let fail = |e: std::io::Error| Error::new(DOING, e).file(&file);
    let entrance: Entrance =
        serde_json::from_slice(&fs::read(&file).map_err(fail)?).map_err(|e| fail(e.into()))?;
    let own = |(i, entered): (usize, &Entered)| match i {
        0 => entry.folder.join(&program),
        _ => folder.join(&entered.name),
    };
    Ok(Files {
        area: folder.join(AREA),
        objects: entrance.objects.iter().enumerate().map(own).collect(),
        entrance,
        _entry: entry,
    })
}

fn file_name(path: &Path) -> PathBuf {
    path.file_name().unwrap_or("program".as_ref()).into()
}

/// Addresses as in the objects' files.
fn running(objects: &[Object], places: &Places) -> Running {
    let each = objects.iter().zip(&places.objects);
    let mapped = each.map(|(object, place)| Mapped {
        path: (&object.path).into(),
        place: place.map(|address| address.wrapping_sub(object.bias)),
    });
    Running {
        area: places.area,
        objects: mapped.collect(),
    }
}

/// The name of the entry.
fn name(
    arguments: &Arguments,
    tool: &Path,
    objects: &[Object],
    running: &Running,
    store: &Store,
) -> Result<String> {
    let mut identity = Identity::new(store.digests());
    identity.add_command()?;
    identity.add_file(tool)?;
    for object in objects {
        let fail = |e| Error::new(DOING, e).file(&object.path);
        identity.add_file(&object.path)?;
        let metadata = object.file.metadata().map_err(fail)?;
        identity.add_words("file", &[stamp(&metadata)]);
        identity.add_separate(&separate::candidates(&object.path));
    }
    let places = serde_json::to_string(running).expect("plain fields always serialise");
    identity.add_words("attach", &[places]);
    let mut words = arguments.choices.words();
    words.push("--".into());
    words.extend(arguments.words.options().iter().cloned());
    identity.add_words("options", &words);
    Ok(identity.name())
}
