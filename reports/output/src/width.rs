//! The width of printed tables: of the terminal, or what the user says.

use clap::Args;

/// Options of the commands that print tables.
#[derive(Args, Clone, Default)]
pub struct Width {
    /// Shorten names until a table has at most this width [default: the terminal's; without a terminal nothing is cut]
    #[arg(long, value_name = "COLUMNS", value_parser = clap::value_parser!(u16).range(1..))]
    pub width: Option<u16>,
    /// Do not shorten names
    #[arg(long, conflicts_with = "width")]
    pub full_names: bool,
}

impl Width {
    /// The width of a table that is written to standard output.
    pub fn of_tables(&self) -> tables::Width {
        if self.full_names {
            return tables::Width::Full;
        }
        let terminal = || {
            console::Term::stdout()
                .size_checked()
                .map(|(_, columns)| columns)
        };
        let columns = self.width.or_else(terminal).map(usize::from);
        let columns = columns.filter(|n| *n > 0);
        columns.map_or(tables::Width::File, tables::Width::Columns)
    }

    /// Columns of the terminal that a line may take; `None` if nothing is cut.
    pub fn columns(&self) -> Option<usize> {
        match self.of_tables() {
            tables::Width::Columns(columns) => Some(columns),
            tables::Width::Full | tables::Width::File => None,
        }
    }
}
