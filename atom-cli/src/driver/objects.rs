//! The objects of a process: the program, what its loader loads for it, and what the user adds.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use atom_core::image::{Image, LoaderFamily, MONO};
use atom_core::pipeline::Input;
use atom_core::{Error, Result};

use super::settings::{AREA, LATE, LINK};
use crate::closure;
use crate::message::note;
use crate::request::Request;

const DOING: &str = "instrumenting the program with its libraries";

/// Opens all objects. Their rewrites will be in `folder`.
pub(super) fn all(request: &Request, program: Image, folder: &Path) -> Result<Vec<Input>> {
    let fail = |reason: &str| Error::new(DOING, reason).file(request.app);
    let interpreter = program.interpreter.as_ref();
    if interpreter.is_some_and(|i| i.family == LoaderFamily::Other) {
        return Err(
            fail("its program interpreter is neither glibc's nor musl's")
                .advice("instrument the program alone"),
        );
    }
    let known = request.job.loads.iter().map(|w| w.path().to_path_buf());
    let mut paths: Vec<PathBuf> = known.collect();
    // A process that runs has all it has loaded among its objects, the interpreter too, perhaps by another path.
    if request.job.attach.is_none() {
        let interpreter = interpreter.ok_or_else(|| fail("it has no program interpreter"))?;
        let loader = PathBuf::from(&interpreter.path);
        if paths.is_empty() {
            let loaded = closure::libraries(&loader, request.app)?;
            paths.extend(loaded.into_iter().filter_map(|loaded| loaded.path));
        }
        paths.push(loader);
    }
    let with_program = paths.len();
    paths.extend(request.with.iter().cloned());
    let reserved = [AREA, LINK, LATE];
    let mut names = BTreeSet::from(reserved.map(OsString::from));
    let mut seen = BTreeSet::new();
    let mut inputs = vec![Input {
        path: request.app.to_path_buf(),
        output: request.output.clone(),
        ..Input::alone(program)
    }];
    let mut all_are_known = true;
    for (i, path) in paths.into_iter().enumerate() {
        let real = std::fs::canonicalize(&path).map_err(|e| Error::new(DOING, e).file(&path))?;
        if !seen.insert(real.clone()) {
            continue;
        }
        let is_global = i < with_program;
        let Some(image) = library(&real) else {
            all_are_known &= !is_global;
            continue;
        };
        let own = path.file_name().unwrap_or("object".as_ref()).to_os_string();
        let mut name = own.clone();
        let mut copies = 1;
        while !names.insert(name.clone()) {
            copies += 1;
            name = own.clone();
            name.push(format!(".{copies}"));
        }
        inputs.push(Input {
            path,
            output: folder.join(name),
            is_global,
            ..Input::alone(image)
        });
    }
    let count = inputs.len();
    for input in &mut inputs {
        input.is_global &= all_are_known;
        input.known = count;
        if let Some(running) = &request.job.attach {
            let mapped = running.objects.iter();
            let own = mapped.clone().find(|o| o.path.path() == input.path);
            input.place = own.map(|o| o.place[0]..o.place[1]);
        }
    }
    Ok(inputs)
}

/// A library or a loader, if it can be instrumented. One that cannot runs as it is, and the user is told.
pub(super) fn library(path: &Path) -> Option<Image> {
    let reason = match Image::read(path).and_then(readable) {
        Ok(image) if image.is_go() => "it was built by Go's tool chain".to_owned(),
        Ok(image) if image.is_mono() => MONO.to_owned(),
        Ok(image) if image.kind.is_program() => "it is no library".to_owned(),
        Ok(image) => return Some(image),
        Err(error) => error.reason,
    };
    note(&format!("{} is left as it is: {reason}", path.display()));
    None
}

/// The image, unless its exception tables cannot be read.
fn readable(image: Image) -> Result<Image> {
    image.unwind_table()?;
    Ok(image)
}
