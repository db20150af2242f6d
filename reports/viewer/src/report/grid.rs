//! Tables of a profile as rows of cells: what is sorted, filtered, regrouped and printed.

use profile::{Column, Follows, Profile, Role, Sum, Table, Type, Value};

/// A column of a grid.
#[derive(Clone, Debug)]
pub struct Head {
    pub name: String,
    pub kind: Type,
    pub unit: Option<String>,
    pub role: Role,
    pub sum: Sum,
    /// Of a derived column: the part, and the whole if it is a column.
    pub quotient: Option<(String, Option<String>)>,
    /// True if the numbers are sizes of sets, such as the executed lines: there more is no cost.
    pub is_of_set: bool,
}

/// A cell.
#[derive(Clone, PartialEq, Debug)]
pub enum Cell {
    /// A number, or not known.
    Number(Value),
    /// A text.
    Text(String),
    /// The number of an object and an address in its file.
    Address(usize, u64),
    /// A source file, a line, and the number of the object.
    Place(String, u64, usize),
}

/// A table.
#[derive(Clone, Debug)]
pub struct Grid {
    pub name: String,
    pub heads: Vec<Head>,
    pub rows: Vec<Vec<Cell>>,
}

impl Head {
    fn of(column: &Column) -> Self {
        let quotient = column.part.clone().map(|part| (part, column.whole.clone()));
        Self {
            name: column.name.clone(),
            kind: column.kind,
            unit: column.unit.clone(),
            role: column.role,
            sum: column.sum,
            quotient,
            is_of_set: column
                .from
                .as_ref()
                .is_some_and(|from| from.by == Follows::Rows),
        }
    }

    /// A column that identifies rows.
    pub fn key(name: &str, kind: Type) -> Self {
        Self {
            name: name.into(),
            kind,
            unit: None,
            role: Role::Key,
            sum: Sum::None,
            quotient: None,
            is_of_set: false,
        }
    }

    /// A column of texts that describe rows.
    pub fn label(name: &str) -> Self {
        Self {
            role: Role::Label,
            ..Self::key(name, Type::Text)
        }
    }

    /// True for texts, addresses and places.
    pub fn is_name(&self) -> bool {
        matches!(self.kind, Type::Text | Type::Place | Type::Address)
    }
}

impl Cell {
    /// Its number, if it is known.
    pub fn number(&self) -> Option<f64> {
        match self {
            Self::Number(value) => value.float(),
            _ => None,
        }
    }

    /// A text without groups of digits, for programs. Empty if the value is not known.
    pub fn plain(&self, profile: &Profile) -> String {
        match self {
            Self::Number(Value::Unknown) => String::new(),
            Self::Number(Value::Integer(n)) => n.to_string(),
            Self::Number(Value::Float(x)) => format!("{x}"),
            Self::Text(text) => text.clone(),
            Self::Address(object, at) => match (object, profile.objects.get(*object)) {
                (1.., Some(object)) => format!("{}+{at:#x}", object.name),
                _ => format!("{at:#x}"),
            },
            Self::Place(_, 0, _) => String::new(),
            Self::Place(file, line, _) => format!("{file}:{line}"),
        }
    }

    /// A text for people; `kind` is the type of its column. Seconds have microseconds, whole counts no decimals.
    pub fn shown_as(&self, profile: &Profile, kind: Type) -> String {
        match (self, kind) {
            (Self::Number(Value::Float(x)), Type::Seconds) => tables::grouped_decimal(*x, 6),
            (Self::Number(Value::Float(x)), Type::Count | Type::Bytes) if x.fract() == 0.0 => {
                tables::grouped_decimal(*x, 0)
            }
            _ => self.shown(profile),
        }
    }

    /// A text for people.
    pub fn shown(&self, profile: &Profile) -> String {
        match self {
            Self::Number(Value::Integer(n)) => tables::grouped(*n),
            Self::Number(Value::Float(x)) => tables::grouped_decimal(*x, 2),
            other => other.plain(profile),
        }
    }
}

impl Grid {
    /// A table of a profile.
    pub fn of(profile: &Profile, table: &Table) -> Self {
        let mut rows = vec![Vec::with_capacity(table.columns.len()); table.rows];
        for column in &table.columns {
            let values = profile.values(table, column);
            for (i, (row, value)) in rows.iter_mut().zip(values).enumerate() {
                row.push(match column.kind {
                    Type::Text => Cell::Text(profile.text(value).unwrap_or_default().into()),
                    Type::Address => match value.integer() {
                        Some(at) => Cell::Address(column.object(i), at),
                        None => Cell::Number(Value::Unknown),
                    },
                    Type::Place => {
                        let file = column.file(i).and_then(|f| profile.strings.get(f));
                        let line = value.integer().unwrap_or(0);
                        let object = if column.objects.is_empty() {
                            object_of(table, i)
                        } else {
                            column.object(i)
                        };
                        Cell::Place(file.cloned().unwrap_or_default(), line, object)
                    }
                    _ => Cell::Number(value),
                });
            }
        }
        Self {
            name: table.name.clone(),
            heads: table.columns.iter().map(Head::of).collect(),
            rows,
        }
    }

    /// The number of a column.
    pub fn find(&self, name: &str) -> Option<usize> {
        self.heads.iter().position(|head| head.name == name)
    }

    /// The number of the first measure that is added up, else of the first measure.
    pub fn measure(&self) -> Option<usize> {
        let measure = |h: &Head| h.role == Role::Measure;
        let added = |h: &Head| measure(h) && h.sum == Sum::Add;
        let first = self.heads.iter().position(added);
        first.or_else(|| self.heads.iter().position(measure))
    }

    /// Sorts by a column: numbers with the largest first, names in their order.
    pub fn sort(&mut self, column: usize) {
        self.rows.sort_by(|a, b| match (&a[column], &b[column]) {
            (Cell::Number(a), Cell::Number(b)) => {
                let number = |v: &Value| v.float().unwrap_or(f64::NEG_INFINITY);
                number(b).total_cmp(&number(a))
            }
            (Cell::Text(a), Cell::Text(b)) => a.cmp(b),
            (Cell::Address(a, x), Cell::Address(b, y)) => (a, x).cmp(&(b, y)),
            (Cell::Place(a, x, _), Cell::Place(b, y, _)) => (a, x).cmp(&(b, y)),
            _ => std::cmp::Ordering::Equal,
        });
    }

    /// Keeps rows with a name, an object or a file that the pattern covers.
    pub fn filter(&mut self, profile: &Profile, pattern: &str) {
        let fits = |text: &str| covers(pattern, text);
        let object = |n: usize| profile.objects.get(n).is_some_and(|o| fits(&o.name));
        self.rows.retain(|row| {
            row.iter().any(|cell| match cell {
                Cell::Text(text) => fits(text),
                Cell::Address(n, _) => object(*n) || fits(&cell.plain(profile)),
                Cell::Place(file, _, n) => object(*n) || fits(file),
                Cell::Number(_) => false,
            })
        });
    }
}

/// The object of a row by its address; the program if it has none.
fn object_of(table: &Table, row: usize) -> usize {
    table.first(Type::Address).map_or(0, |c| c.object(row))
}

/// True if a pattern covers a text: with `*` or `?` the whole of it, else a part.
pub fn covers(pattern: &str, text: &str) -> bool {
    if !pattern.contains(['*', '?']) {
        return text.contains(pattern);
    }
    let (pattern, text): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), text.chars().collect());
    let (mut p, mut t) = (0, 0);
    // Where the last star is, and the text that it covers so far.
    let mut star: Option<(usize, usize)> = None;
    while t < text.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, t));
                p += 1;
            }
            Some(c) if *c == '?' || *c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => {
                let Some((at, covered)) = star else {
                    return false;
                };
                star = Some((at, covered + 1));
                p = at + 1;
                t = covered + 1;
            }
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::covers;

    #[test]
    fn patterns() {
        assert!(covers("sort", "std::sort<int>"));
        assert!(!covers("sort*", "std::sort<int>"));
        assert!(covers("std::*<?nt>", "std::sort<int>"));
        assert!(covers("*", ""));
        assert!(!covers("a?", "a"));
        assert!(covers("a*b*c", "aXbbYbc"));
    }
}
