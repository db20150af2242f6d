//! The widths of a table's columns.

use std::cmp::Reverse;

/// No column becomes narrower than this to make a table fit.
const LEAST: usize = 12;

/// What a column of a table needs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Need {
    /// Columns of the terminal that each of its cells takes, in ascending order.
    cells: Vec<usize>,
    /// Columns that it must have: the title.
    least: usize,
    /// True if its cells can be shortened.
    is_flexible: bool,
}

impl Need {
    pub fn new(mut cells: Vec<usize>, least: usize, is_flexible: bool) -> Self {
        cells.sort_unstable();
        Self {
            cells,
            least,
            is_flexible,
        }
    }

    /// Columns that show all of it.
    pub fn natural(&self) -> usize {
        self.cells.last().copied().unwrap_or(0).max(self.least)
    }

    /// Number of cells that do not fit a width.
    fn cut(&self, width: usize) -> usize {
        self.cells.len() - self.cells.partition_point(|cell| *cell <= width)
    }
}

/// The widths of all columns so that the table takes at most `width` columns of the terminal with `gap` in front of
/// each, if that is possible without cutting numbers. Columns that can be shortened get space where most rows need it.
pub fn column_widths(columns: &[Need], gap: usize, width: usize) -> Vec<usize> {
    let least = |c: &Need| {
        if c.is_flexible {
            c.natural().min(LEAST.max(c.least))
        } else {
            c.natural()
        }
    };
    let mut widths: Vec<usize> = columns.iter().map(least).collect();
    let used = widths.iter().sum::<usize>() + gap * columns.len();
    for _ in used..width {
        let need = |i: &usize| (columns[*i].cut(widths[*i]), Reverse((widths[*i], *i)));
        let most = (0..columns.len()).max_by_key(need);
        match most.filter(|i| need(i).0 > 0) {
            Some(i) => widths[i] += 1,
            None => break,
        }
    }
    widths
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(natural: usize, is_flexible: bool) -> Need {
        Need::new(vec![natural], 4, is_flexible)
    }

    #[test]
    fn space_is_where_most_rows_need_it() {
        let one_long = Need::new([[13; 9].as_slice(), &[60]].concat(), 4, true);
        let all_long = Need::new(vec![30; 10], 4, true);
        assert_eq!(column_widths(&[one_long, all_long], 2, 60), [26, 30]);
    }

    #[test]
    fn the_widest_gives_first() {
        let columns = [column(10, false), column(30, true), column(900, true)];
        assert_eq!(column_widths(&columns, 2, 2000), [10, 30, 900]);
        assert_eq!(column_widths(&columns, 2, 100), [10, 30, 54]);
        assert_eq!(column_widths(&columns, 2, 65), [10, 25, 24]);
        assert_eq!(column_widths(&columns, 2, 1), [10, 12, 12]);
        assert_eq!(column_widths(&[], 2, 10), [0; 0]);
        assert_eq!(column_widths(&[column(0, true)], 2, 10), [4]);
    }
}
