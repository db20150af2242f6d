//! The profile: the report for programs that look at the results of any tool.
//!
//! `docs/profile-format.md` describes the file. It is made in memory and written at once, since it may be
//! compressed. Nothing here waits for anything but the system, and an error of one part (a machine without a
//! name, say) leaves that part out.

mod fixed;
mod json;
mod machine;
pub(super) mod origin;
mod strings;
mod table;
mod time;

use std::io;
use std::io::Write;

use super::{Report, Values};
use crate::report::output;
use fixed::{Deflater, End};
pub use machine::arguments;

pub use fixed::{FixedColumn, FixedColumns, FixedValues, fixed_columns};
use json::{Fragment, Json};
use origin::Origin;
use strings::Texts;

pub(crate) use time::begin;

/// Size of the JSON in bytes above which the file is compressed.
const PLAIN: usize = 256 << 10;

/// Level of compression: the quickest, as the program's end waits for it.
const LEVEL: u8 = 1;

/// Writes the file. `name` is the template of its name.
pub(super) fn write(name: &str, report: &Report, origin: &Origin) -> io::Result<()> {
    let bytes = profile(report, origin);
    if name == "-" {
        let mut to = output::stdout();
        return to.write_all(&bytes).and_then(|()| to.flush());
    }
    output::write_profile(name, &bytes)
}

/// The JSON, compressed if it is long. The head comes first: readers look at its first keys.
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

    let columns = report.column_tables.iter().flat_map(|table| &table.columns);
    let fixed = columns.clone().find_map(|(_, values)| match values {
        Values::Fixed(column, _) => Some(column.columns),
        _ => None,
    });
    let mut texts = Texts::behind(fixed.map_or(0, FixedColumns::strings));
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
    json.key("strings").open('[');
    if let Some(texts) = fixed.and_then(FixedColumns::texts) {
        json.fragment(texts);
    }
    texts.all.iter().for_each(|text| json.text(text));
    json.close(']');
    json.close('}');
    let fragments = json.take_fragments();
    let json = json.end();
    if json.len() > PLAIN || !fragments.is_empty() {
        compressed(&json, &fragments)
    } else {
        json
    }
}

/// The bytes with the fragments between them, in the form of RFC 1952.
fn compressed(bytes: &[u8], fragments: &[(usize, Fragment)]) -> Vec<u8> {
    /// Deflated, without a name, a time and a system; made for speed.
    const HEAD: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 0xff];
    let mut file = HEAD.to_vec();
    let mut deflater = Deflater::new(LEVEL);
    let mut sum = crc32fast::Hasher::new();
    let mut size = bytes.len();
    let mut done = 0;
    for (at, fragment) in fragments {
        let own = &bytes[done..*at];
        deflater.append(own, End::OfPart, &mut file);
        sum.update(own);
        file.extend_from_slice(fragment.packed);
        sum.combine(&fragment.sum());
        size += fragment.len as usize;
        done = *at;
    }
    let rest = &bytes[done..];
    deflater.append(rest, End::OfFile, &mut file);
    sum.update(rest);
    file.extend(sum.finalize().to_le_bytes());
    file.extend((size as u32).to_le_bytes());
    file
}

#[cfg(test)]
mod tests;
