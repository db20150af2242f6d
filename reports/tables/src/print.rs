//! Columns of text side by side.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{Result, Write};

use crate::places::{is_file, tails};
use crate::widths::{Need, column_widths};
use crate::{columns as columns_of, readable_all, shorten_all};

/// Spaces between two columns.
const GAP: usize = 2;

/// What the cells of a column are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Numbers, aligned at their right end.
    Number,
    /// Texts that are never shortened, such as addresses.
    Label,
    /// Names and call paths.
    Name,
    /// Source files and lines.
    Place,
}

/// The width of a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Width {
    /// All texts in full.
    Full,
    /// The width in a file or a pipe: nothing is cut. Long names lose the arguments of templates and closures, and places have
    /// only the folders that tell files apart.
    File,
    /// At most this many columns of a terminal.
    Columns(usize),
}

impl Width {
    /// Columns of lines of prose; 0 for one line.
    pub fn of_prose(self) -> usize {
        const READABLE: usize = 120;
        match self {
            Self::Full => 0,
            Self::File => READABLE,
            Self::Columns(columns) => columns,
        }
    }
}

/// A column of a printed table.
#[derive(Clone, Debug)]
pub struct Column<'a> {
    /// Its title.
    pub head: &'a str,
    /// One text for each row.
    pub cells: Vec<Cow<'a, str>>,
    /// What the texts are.
    pub kind: Kind,
}

impl Column<'_> {
    /// Makes texts of all cells out of all texts.
    fn change(&mut self, change: impl for<'t> FnOnce(&[&'t str]) -> Vec<Cow<'t, str>>) {
        let full: Vec<&str> = self.cells.iter().map(|cell| &**cell).collect();
        let changed = change(&full).into_iter().map(Cow::into_owned);
        let changed: Vec<String> = changed.collect();
        self.cells = changed.into_iter().map(Cow::Owned).collect();
    }

    fn need(&self) -> Need {
        let cells = self.cells.iter().map(|cell| columns_of(cell));
        let is_flexible = matches!(self.kind, Kind::Name | Kind::Place);
        let head = columns_of(self.head);
        let least = head.max(if is_flexible { self.longest_file() } else { 0 });
        Need::new(cells.collect(), least, is_flexible)
    }

    /// Columns of the longest source file without its folders, perhaps with a line.
    fn longest_file(&self) -> usize {
        const FOLDERS: usize = 2;
        const MOST: usize = 32;
        let files = self
            .cells
            .iter()
            .filter_map(|cell| match cell.rsplit_once('/') {
                Some((_, file)) if is_file(cell) => Some(columns_of(file) + FOLDERS),
                _ => None,
            });
        files.max().unwrap_or(0).min(MOST)
    }

    /// True if no row has anything.
    fn is_empty(&self) -> bool {
        !self.cells.is_empty() && self.cells.iter().all(|cell| cell.is_empty())
    }
}

/// Writes a table: a line of titles and a line for each row, with `indent` spaces in front. Names are shortened to
/// the width; names that differ stay different. Columns in which no row has anything are left out.
///
/// # Errors
/// The writer's.
pub fn write_columns(
    to: &mut dyn Write,
    mut columns: Vec<Column<'_>>,
    indent: usize,
    width: Width,
) -> Result<()> {
    columns.retain(|column| !column.is_empty());
    if width != Width::Full {
        for column in &mut columns {
            match column.kind {
                Kind::Place => {
                    column.change(|full| tails(full).into_iter().map(Cow::Borrowed).collect())
                }
                Kind::Name if width == Width::File => column.change(readable_all),
                _ => {}
            }
        }
    }
    let needs: Vec<Need> = columns.iter().map(Column::need).collect();
    let widths = match width {
        Width::Full | Width::File => needs.iter().map(Need::natural).collect(),
        Width::Columns(width) => {
            let room = width.saturating_sub(indent).saturating_add(GAP);
            column_widths(&needs, GAP, room)
        }
    };
    for ((column, need), width) in columns.iter_mut().zip(&needs).zip(&widths) {
        if need.natural() > *width {
            column.change(|full| shorten_all(full, *width));
        }
    }
    let mut line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut text = String::new();
        let mut space = indent;
        for ((cell, column), wide) in cells.zip(&columns).zip(&widths) {
            // Writing to a string does not fail.
            let _ = match column.kind {
                Kind::Number => write!(text, "{:space$}{cell:>wide$}", ""),
                _ => write!(text, "{:space$}{cell:<wide$}", ""),
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

#[cfg(test)]
mod tests {
    use super::*;

    fn column<'a>(head: &'a str, cells: &[&'a str], kind: Kind) -> Column<'a> {
        Column {
            head,
            cells: cells.iter().map(|cell| Cow::Borrowed(*cell)).collect(),
            kind,
        }
    }

    #[test]
    fn columns_are_aligned_and_fit() {
        let long = "std::vector<int, std::allocator<int> >::push_back(int const&)";
        let columns = vec![
            column("n", &["7", "1,000"], Kind::Number),
            column("procedure", &[long, "größe"], Kind::Name),
        ];
        let text = |indent, width| {
            let mut bytes = Vec::new();
            write_columns(&mut bytes, columns.clone(), indent, width).unwrap();
            String::from_utf8(bytes).unwrap()
        };
        assert_eq!(
            text(0, Width::Full),
            format!("    n  procedure\n    7  {long}\n1,000  größe\n")
        );
        let narrow = text(2, Width::Columns(40));
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

    #[test]
    fn places_keep_their_file() {
        let of = |t: &str| format!("std::vector<{t}, std::allocator<{t}> >::push_back({t} const&)");
        let names = ["std::pair<int, int>", "std::pair<int, char>"].map(of);
        let columns = vec![
            column("calls", &["7", "6", "5"], Kind::Number),
            column(
                "line",
                &["/usr/include/c++/14/bits/stl_vector.h:1234", "x.cc:1", ""],
                Kind::Place,
            ),
            column("procedure", &[&names[0], &names[1], "main"], Kind::Name),
        ];
        let mut bytes = Vec::new();
        write_columns(&mut bytes, columns, 2, Width::Columns(72)).unwrap();
        assert_eq!(
            String::from_utf8(bytes).unwrap(),
            "  calls  line                 procedure\n      \
             7  …/stl_vector.h:1234  std::vector<pair<int, int>>::push_back(…)\n      \
             6  x.cc:1               std::vector<pair<int, char>>::push_back(…)\n      \
             5                       main\n"
        );
    }

    #[test]
    fn files_have_whole_names_and_short_arguments() {
        let of = |t: &str| {
            format!(
                "std::map<std::string, {t}, std::less<std::string>, std::allocator<{t}> >::operator[](std::string&&)"
            )
        };
        let types = [
            "int",
            "a::very::long::name::of::a::type::in::many::namespaces<with, arguments>",
        ]
        .map(of);
        let columns = vec![
            column("n", &["1", "2"], Kind::Number),
            column("none", &["", ""], Kind::Place),
            column(
                "line",
                &["/home/user/app/src/map.h:1", "x/main.c:2"],
                Kind::Place,
            ),
            column("procedure", &[&types[0], &types[1]], Kind::Name),
        ];
        let mut bytes = Vec::new();
        write_columns(&mut bytes, columns, 0, Width::File).unwrap();
        assert_eq!(
            String::from_utf8(bytes).unwrap(),
            "n  line         procedure\n\
             1  src/map.h:1  std::map<std::string, int>::operator[](std::string&&)\n\
             2  x/main.c:2   std::map<string, namespaces<with, arguments>>::operator[](…)\n"
        );
    }
}
