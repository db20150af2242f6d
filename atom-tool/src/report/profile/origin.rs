//! What the instrument routine knows of the run: the tool's options and the objects of the process. The profile
//! tells it.
//!
//! It is passed to the report as strings: the number of options, the options, and for each object its name, path,
//! build-id in hexadecimal, soname, kind, and number of opaque procedures.

use std::fmt::Write as _;

use crate::Program;
use crate::data::strings::{self, StringList};
use crate::navigation::object::Object;

use super::Json;
use crate::report::unseen::Unseen;

/// Number of strings for each object.
const FIELDS: usize = 6;

/// Instrument side: appends the strings.
pub(in crate::report) fn push(
    names: &mut StringList,
    options: &[&str],
    program: Option<Program<'_>>,
) {
    names.push(&options.len().to_string());
    for option in options {
        names.push(option);
    }
    for object in program.iter().flat_map(Program::objects) {
        push_object(names, &object);
    }
}

fn push_object(names: &mut StringList, object: &Object<'_>) {
    let mut build_id = String::new();
    for byte in object.build_id().unwrap_or_default() {
        // Writing to a string does not fail.
        let _ = write!(build_id, "{byte:02x}");
    }
    let kind = match () {
        () if object.is_program() => "program",
        () if object.is_interpreter() => "interpreter",
        () => "library",
    };
    let opaque = object.procs().filter(|proc| proc.is_opaque()).count();
    let path = std::path::absolute(object.path());
    let path = path.as_deref().map(|path| path.to_string_lossy());
    names.push(object.name());
    names.push(path.as_deref().unwrap_or(object.path()));
    names.push(&build_id);
    names.push(object.soname().unwrap_or_default());
    names.push(kind);
    names.push(&opaque.to_string());
}

/// Analysis side: the strings.
#[derive(Default)]
pub(in crate::report) struct Origin {
    pub options: Vec<&'static str>,
    pub objects: Vec<Known>,
}

/// An object of the process.
#[derive(Default)]
pub(in crate::report) struct Known {
    pub name: &'static str,
    pub path: &'static str,
    pub build_id: &'static str,
    pub soname: &'static str,
    pub kind: &'static str,
    /// Number of its procedures that are not understood.
    pub opaque: u64,
}

impl Origin {
    /// Reads the strings that [`push`] has written at an offset.
    pub fn read(bytes: &'static [u8], at: usize) -> Self {
        let mut at = at;
        let mut next = || {
            let (text, behind) = strings::read(bytes, at)?;
            at = behind;
            Some(text)
        };
        let options = next().and_then(|n| n.parse().ok()).unwrap_or(0);
        let options = (0..options).map_while(|_| next()).collect();
        let objects = std::iter::from_fn(|| {
            let fields: [Option<&'static str>; FIELDS] = std::array::from_fn(|_| next());
            Some(Known {
                name: fields[0]?,
                path: fields[1]?,
                build_id: fields[2]?,
                soname: fields[3]?,
                kind: fields[4]?,
                opaque: fields[5]?.parse().unwrap_or(0),
            })
        });
        Self {
            options,
            objects: objects.collect(),
        }
    }

    /// Writes the key `objects`: the instrumented ones, and those that are known and are not.
    pub fn write(&self, json: &mut Json, unseen: Option<&Unseen>) {
        json.key("objects").open('[');
        for object in &self.objects {
            json.open('{');
            json.key("name").text(object.name);
            json.key("path").text(object.path);
            json.key("build_id").text_or_null(object.build_id);
            json.key("soname").text_or_null(object.soname);
            json.key("kind").text(object.kind);
            json.key("instrumented").truth(true);
            json.key("opaque_procedures").number(object.opaque);
            json.close('}');
        }
        let named = unseen.iter().flat_map(|u| u.libraries.iter().copied());
        let loaded = unseen.iter().flat_map(|u| u.loaded.iter().map(|l| &**l));
        for name in named.chain(loaded) {
            json.open('{');
            json.key("name").text(name);
            json.key("kind").text("library");
            json.key("instrumented").truth(false);
            json.close('}');
        }
        json.close(']');
    }
}
