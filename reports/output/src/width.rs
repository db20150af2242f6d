//! The width of printed tables: of the terminal, or what the user says.

use clap::Args;

/// The width without a terminal: of a pipe or a file.
const DEFAULT: usize = 120;

/// Options of the commands that print tables.
#[derive(Args, Clone, Default)]
pub struct Width {
    /// Shorten names until a table has at most this width [default: the terminal's, else 120]
    #[arg(long, value_name = "COLUMNS", value_parser = clap::value_parser!(u16).range(1..))]
    pub width: Option<u16>,
    /// Do not shorten names
    #[arg(long, conflicts_with = "width")]
    pub full_names: bool,
}

impl Width {
    /// Columns of the terminal that a table may take; `None` for full names.
    pub fn columns(&self) -> Option<usize> {
        if self.full_names {
            return None;
        }
        let terminal = || {
            console::Term::stdout()
                .size_checked()
                .map(|(_, columns)| columns)
        };
        let columns = self.width.or_else(terminal).map(usize::from);
        Some(columns.filter(|n| *n > 0).unwrap_or(DEFAULT))
    }
}
