//! The widths of a table's columns.

/// No column becomes narrower than this to make a table fit.
const LEAST: usize = 12;

/// What a column of a table needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Need {
    /// Columns of the terminal that its widest cell takes.
    pub natural: usize,
    /// Columns that it must have: the title.
    pub least: usize,
    /// True if its cells can be shortened.
    pub is_flexible: bool,
}

/// The widths of all columns so that the table takes at most `width` columns of the terminal with `gap` in front of
/// each, if that is possible without cutting numbers. Of the columns that can be shortened the widest ones give
/// first.
pub fn column_widths(columns: &[Need], gap: usize, width: usize) -> Vec<usize> {
    let natural = |c: &Need| c.natural.max(c.least);
    let fixed: usize = columns.iter().filter(|c| !c.is_flexible).map(natural).sum();
    let room = width.saturating_sub(fixed + gap * columns.len());
    let at = |cap: usize, c: &Need| {
        if c.is_flexible {
            natural(c).min(cap.max(LEAST).max(c.least))
        } else {
            natural(c)
        }
    };
    let flexible = || columns.iter().filter(|c| c.is_flexible);
    let used = |cap: usize| flexible().map(|c| at(cap, c)).sum::<usize>();
    // The largest cap with which the flexible columns fit.
    let (mut low, mut high) = (0, flexible().map(natural).max().unwrap_or(0));
    if used(high) <= room {
        low = high;
    }
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if used(middle) <= room {
            low = middle
        } else {
            high = middle - 1
        }
    }
    let mut widths: Vec<usize> = columns.iter().map(|c| at(low, c)).collect();
    // One column of the terminal may be left for some of them.
    let mut left = room.saturating_sub(used(low));
    for (width, column) in widths.iter_mut().zip(columns) {
        if left > 0 && column.is_flexible && *width < natural(column) {
            *width += 1;
            left -= 1;
        }
    }
    widths
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(natural: usize, is_flexible: bool) -> Need {
        Need {
            natural,
            least: 4,
            is_flexible,
        }
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
