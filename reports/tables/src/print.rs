//! Columns of text side by side.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{Result, Write};

use crate::widths::{Need, column_widths};
use crate::{columns as columns_of, shorten_all};

/// Spaces between two columns.
const GAP: usize = 2;

/// A column of a printed table.
#[derive(Clone, Debug)]
pub struct Column<'a> {
    /// Its title.
    pub head: &'a str,
    /// One text for each row.
    pub cells: Vec<Cow<'a, str>>,
    /// Texts are aligned at their left end, not at their right end.
    pub is_left: bool,
    /// Texts are names, which may be shortened.
    pub is_flexible: bool,
}

/// Writes a table: a line of titles and a line for each row, with `indent` spaces in front. Names are shortened
/// so that a line takes at most `width` columns of the terminal; names that differ stay different.
///
/// # Errors
/// The writer's.
pub fn write_columns(
    to: &mut dyn Write,
    mut columns: Vec<Column<'_>>,
    indent: usize,
    width: usize,
) -> Result<()> {
    let needs: Vec<Need> = columns.iter().map(need).collect();
    let room = width.saturating_sub(indent).saturating_add(GAP);
    let widths = column_widths(&needs, GAP, room);
    for ((column, need), width) in columns.iter_mut().zip(&needs).zip(&widths) {
        if need.natural > *width {
            let full: Vec<&str> = column.cells.iter().map(|cell| &**cell).collect();
            let short = shorten_all(&full, *width).into_iter();
            let short: Vec<String> = short.map(Cow::into_owned).collect();
            column.cells = short.into_iter().map(Cow::Owned).collect();
        }
    }
    let mut line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut text = String::new();
        let mut space = indent;
        for ((cell, column), wide) in cells.zip(&columns).zip(&widths) {
            // Writing to a string does not fail.
            let _ = if column.is_left {
                write!(text, "{:space$}{cell:<wide$}", "")
            } else {
                write!(text, "{:space$}{cell:>wide$}", "")
            };
            space = GAP;
        }
        writeln!(to, "{}", text.trim_end())
    };
    line(&mut columns.iter().map(|column| column.head))?;
    let rows = columns.iter().map(|column| column.cells.len()).max();
    for row in 0..rows.unwrap_or(0) {
        let cells = columns.iter().map(|column| column.cells.get(row));
        line(&mut cells.map(|cell| cell.map_or("", |cell| &**cell)))?;
    }
    Ok(())
}

fn need(column: &Column<'_>) -> Need {
    let cells = column.cells.iter();
    Need {
        natural: cells.map(|cell| columns_of(cell)).max().unwrap_or(0),
        least: columns_of(column.head),
        is_flexible: column.is_flexible,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column<'a>(head: &'a str, cells: &[&'a str], is_left: bool) -> Column<'a> {
        Column {
            head,
            cells: cells.iter().map(|cell| Cow::Borrowed(*cell)).collect(),
            is_left,
            is_flexible: is_left,
        }
    }

    #[test]
    fn columns_are_aligned_and_fit() {
        let long = "std::vector<int, std::allocator<int> >::push_back(int const&)";
        let columns = vec![
            column("n", &["7", "1,000"], false),
            column("procedure", &[long, "größe"], true),
        ];
        let text = |indent, width| {
            let mut bytes = Vec::new();
            write_columns(&mut bytes, columns.clone(), indent, width).unwrap();
            String::from_utf8(bytes).unwrap()
        };
        assert_eq!(
            text(0, usize::MAX),
            format!("    n  procedure\n    7  {long}\n1,000  größe\n")
        );
        let narrow = text(2, 40);
        assert!(
            narrow.starts_with("      n  procedure\n      7  "),
            "{narrow}"
        );
        assert!(
            narrow.lines().all(|line| columns_of(line) <= 40),
            "{narrow}"
        );
        assert!(narrow.ends_with("\n  1,000  größe\n"), "{narrow}");
    }
}
