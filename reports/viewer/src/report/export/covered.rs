//! Code coverage from profiles: those of the tool `cover`, perhaps added up, and blocks of any tool.

use atom_core::Error;
use coverage::{Block, Branch, Coverage, Function, Module};
use profile::{By, Column, Profile, Role, Sum, Table, Type};

use super::super::spots;
use super::{Format, Made, written};

/// True if the profile has lines with those that were not executed.
pub fn has_lines(profile: &Profile) -> bool {
    profile.tool == "cover" && lines(profile).is_some()
}

fn lines(profile: &Profile) -> Option<&Table> {
    profile.tables.iter().find(|table| table.by == By::Line)
}

/// A file of source lines.
pub fn files(profile: &Profile, format: Format) -> Made {
    let adds = |table: &Table| table.measures().next().is_some_and(|c| c.sum == Sum::Add);
    let mut coverage = Coverage {
        has_counts: lines(profile).is_some_and(adds),
        ..Coverage::default()
    };
    for table in &profile.tables {
        match table.by {
            By::Line => add_lines(&mut coverage, profile, table),
            By::Procedure => add_functions(&mut coverage, profile, table),
            By::Branch => add_branches(&mut coverage, profile, table),
            _ => {}
        }
    }
    Ok((of_lines(&coverage, format, profile), Vec::new()))
}

/// The bytes of a file of source lines.
pub fn of_lines(coverage: &Coverage, format: Format, profile: &Profile) -> Vec<u8> {
    written(|to| match format {
        Format::Cobertura => coverage.write_cobertura(to, &milliseconds(&profile.time.start)),
        _ => coverage.write_lcov(to),
    })
}

/// A time of a profile, such as `2026-11-22T22:41:58.123Z`, in milliseconds since 1970; 0 if it is not known.
fn milliseconds(time: &str) -> String {
    let digits = |range: std::ops::Range<usize>| time.get(range)?.parse::<u64>().ok();
    let known = || {
        let [year, month, day] = [digits(0..4)?, digits(5..7)?, digits(8..10)?];
        // Years begin in March, so that the day that leap years have is the last one.
        let year = if month < 3 {
            year.checked_sub(1)?
        } else {
            year
        };
        let days = 365 * year + year / 4 - year / 100
            + year / 400
            + (153 * ((month + 9) % 12) + 2) / 5
            + day;
        // The number of days from the first of March of the year 0 to 1970.
        let days = days.checked_sub(719_469)?;
        let seconds = (days * 24 + digits(11..13)?) * 3600 + digits(14..16)? * 60 + digits(17..19)?;
        Some(seconds * 1000 + digits(20..23).unwrap_or(0))
    };
    known().unwrap_or(0).to_string()
}

/// The file and the line of a row, if they are known.
fn place<'p>(profile: &'p Profile, table: &'p Table, row: usize) -> Option<(&'p str, u64)> {
    let column = table.first(Type::Place)?;
    let file = profile.strings.get(column.file(row)?)?;
    let line = column.values.get(row)?.integer()?;
    (line != 0).then_some((file, line))
}

fn number(column: Option<&Column>, row: usize) -> Option<u64> {
    column?.values.get(row)?.integer()
}

fn add_lines(coverage: &mut Coverage, profile: &Profile, table: &Table) {
    let counts = table.measures().next();
    for row in 0..table.rows {
        if let (Some((file, line)), Some(count)) = (place(profile, table, row), number(counts, row))
        {
            let known = coverage.files.get(file).and_then(|f| f.lines.get(&line));
            let count = coverage.sum(known.copied().unwrap_or(0), count);
            let file = coverage.files.entry(file.to_owned()).or_default();
            file.lines.insert(line, count);
        }
    }
}

fn add_functions(coverage: &mut Coverage, profile: &Profile, table: &Table) {
    let entries = ["entries", "entered"];
    let entries = entries.iter().find_map(|name| table.column(name));
    let names = table.first(Type::Text);
    for row in 0..table.rows {
        let name = names.and_then(|c| profile.text(*c.values.get(row)?));
        let (Some((file, line)), Some(name)) = (place(profile, table, row), name) else {
            continue;
        };
        let file = coverage.files.entry(file.to_owned()).or_default();
        file.functions.push(Function {
            name: name.to_owned(),
            line,
            entries: number(entries, row).unwrap_or(0),
        });
    }
}

fn add_branches(coverage: &mut Coverage, profile: &Profile, table: &Table) {
    let ways = ["taken", "not taken"].map(|name| table.column(name));
    for row in 0..table.rows {
        let [Some(taken), Some(not_taken)] = ways.map(|column| number(column, row)) else {
            continue;
        };
        if let Some((file, line)) = place(profile, table, row) {
            let file = coverage.files.entry(file.to_owned()).or_default();
            let ways = [taken, not_taken];
            file.branches.push(Branch { line, ways });
        }
    }
}

/// The executed blocks of all objects.
pub fn drcov(profile: &Profile) -> Made {
    let blocks = profile.tables.iter().find(|table| table.by == By::Block);
    let found = blocks.and_then(|table| {
        let is_key = |c: &&Column| c.kind == Type::Address && c.role == Role::Key;
        Some((
            table,
            table.columns.iter().find(is_key)?,
            table.column("bytes")?,
        ))
    });
    let Some((table, pc, bytes)) = found else {
        let reason = format!("{} has no blocks with their lengths", profile.tool);
        let error = Error::new("exporting", reason);
        return Err(error.advice("`cover` and `icount` have"));
    };
    let mut coverage = Coverage::default();
    let mut notes = Vec::new();
    for object in &profile.objects {
        let (base, end) = match spots::open(object) {
            Ok(image) => (image.base, image.end),
            Err(reason) => {
                notes.push(reason);
                (0, 0)
            }
        };
        let path = object.path.clone();
        coverage.modules.push(Module { path, base, end });
    }
    for row in 0..table.rows {
        let (Some(at), Some(size)) = (number(Some(pc), row), number(Some(bytes), row)) else {
            continue;
        };
        let module = pc.object(row);
        let base = coverage.modules.get(module).map_or(0, |m| m.base);
        let start = at.wrapping_sub(base);
        coverage.blocks.push(Block {
            module,
            start,
            size,
        });
    }
    Ok((written(|to| coverage.write_drcov(to)), notes))
}

#[cfg(test)]
mod tests {
    use super::milliseconds;

    #[test]
    fn times_are_milliseconds_since_1970() {
        for (time, expected) in [
            ("1970-01-01T00:00:00.000Z", "0"),
            ("2000-02-29T12:00:00.500Z", "951825600500"),
            ("2026-11-22T22:41:58.123Z", "1795387318123"),
            ("unknown", "0"),
        ] {
            assert_eq!(milliseconds(time), expected, "{time}");
        }
    }
}
