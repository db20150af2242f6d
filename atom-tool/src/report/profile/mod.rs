//! The profile: the report for programs that look at the results of any tool.
//!
//! `docs/profile-format.md` describes the file. It is made in memory and written at once, since it may be
//! compressed. Nothing here waits for anything but the system, and an error of one part (a machine without a
//! name, say) leaves that part out.

mod json;
mod machine;
mod strings;
mod table;
mod time;

use std::io;
use std::io::Write;

use super::Report;
use super::origin::Origin;
use crate::output;
pub(super) use json::Json;
use strings::Texts;

pub(crate) use time::begin;

/// Size of the JSON in bytes above which the file is compressed.
const PLAIN: usize = 256 << 10;

/// Level of compression: the quickest, as the program's end waits for it.
const LEVEL: u8 = 1;

/// Writes the file. `name` is the template of its name.
pub(super) fn write(name: &str, report: &Report, origin: &Origin) -> io::Result<()> {
    let json = profile(report, origin);
    let bytes = match json.len() > PLAIN {
        true => compressed(&json),
        false => json,
    };
    if name == "-" {
        let mut to = output::stdout();
        return to.write_all(&bytes).and_then(|()| to.flush());
    }
    let mut file = output::create_profile(name)?;
    file.write_all(&bytes).map_err(|e| {
        let path = output::path(name);
        io::Error::new(e.kind(), format!("{}: {e}", path.display()))
    })
}

/// The JSON. The head comes first: readers look at its first keys.
fn profile(report: &Report, origin: &Origin) -> Vec<u8> {
    let mut json = Json::default();
    json.open('{');
    json.key("format").text("atom-profile");
    json.key("version").number(1);
    json.key("atom").text(env!("CARGO_PKG_VERSION"));
    json.key("tool").text(report.tool);
    json.key("options").texts(&origin.options);
    let scope = match origin.objects.len() {
        0 | 1 => "program",
        _ => "process",
    };
    json.key("scope").text(scope);
    json.key("program").open('{');
    let path = origin.objects.first().map_or(&*report.program, |o| o.path);
    json.key("path").text(path);
    json.key("arguments").texts(&machine::arguments());
    json.close('}');
    machine::write(&mut json);
    time::write(&mut json);
    origin.write(&mut json, report.unseen.as_ref());

    let mut texts = Texts::default();
    json.key("facts").open('[');
    for (column, cell) in &report.facts {
        table::fact(&mut json, column, cell);
    }
    json.close(']');
    json.key("tables").open('[');
    // Whoever looks for a table by block finds the one made for programs first.
    for of_programs in &report.column_tables {
        table::columns(&mut json, &mut texts, of_programs, origin.objects.len());
    }
    for of_people in &report.tables {
        if of_people.readers != super::Readers::People {
            table::rows(&mut json, &mut texts, of_people, origin.objects.len());
        }
    }
    json.close(']');
    json.key("strings").texts(&texts.all);
    json.close('}');
    json.end()
}

/// The bytes in the form of RFC 1952.
fn compressed(bytes: &[u8]) -> Vec<u8> {
    /// Deflated, without a name, a time and a system; made for speed.
    const HEAD: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 0xff];
    let deflated = miniz_oxide::deflate::compress_to_vec(bytes, LEVEL);
    let sum = crc32fast::hash(bytes).to_le_bytes();
    let size = (bytes.len() as u32).to_le_bytes();
    [&HEAD, &*deflated, &sum, &size].concat()
}

#[cfg(test)]
mod tests;
