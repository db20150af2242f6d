//! `atom arp diff`: compares two recordings.

use std::io::{Result as IoResult, Write};
use std::path::PathBuf;

use ::arp::analyse::{Analysis, Comparison, Difference, Number, Options, Side};
use ::arp::{Section, Sid};
use atom_core::{Error, Result};
use clap::{Args, ValueEnum};
use serde_json::{Map, Value, json};

use super::numbers::{NONE, float, number, signed};
use super::table::Table;
use super::{Choice, data, load, names, text};
use output::message;

/// Arguments of `atom arp diff`.
#[derive(Args)]
pub struct Diff {
    /// The first data file
    a: PathBuf,
    /// The second data file
    b: PathBuf,
    #[command(flatten)]
    choice: Choice,
    /// Show contexts instead of sections
    #[arg(long)]
    tree: bool,
    /// Sort by the change of this
    #[arg(long, value_enum, default_value_t = By::Total, value_name = "COLUMN")]
    by: By,
    /// Show only the first N rows
    #[arg(long, value_name = "N")]
    limit: Option<usize>,
    /// Show also what did not change
    #[arg(long)]
    all: bool,
    /// Write comma-separated values
    #[arg(long, conflicts_with = "json")]
    csv: bool,
    /// Write JSON: all sections and contexts
    #[arg(long, conflicts_with = "tree")]
    json: bool,
}

/// The figure by whose change rows are sorted.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum By {
    /// Sum of the values
    Total,
    /// Sum of the values without measured sections within
    #[value(name = "self")]
    Own,
    /// Number of executions
    Count,
    /// Mean
    Mean,
}

impl By {
    fn figure(self, side: &Side) -> Number {
        match self {
            Self::Total => side.total,
            Self::Own => side.self_value,
            Self::Count => Number::Integer(side.count.unwrap_or(0).into()),
            Self::Mean => Number::Float(side.mean.unwrap_or(0.0)),
        }
    }
}

/// The two recordings that are compared.
struct Pair<'a> {
    a: &'a Analysis,
    b: &'a Analysis,
}

impl Pair<'_> {
    fn section(&self, (sid, is_a): (Sid, bool)) -> Option<&Section> {
        if is_a {
            self.a.section(sid).or_else(|| self.b.section(sid))
        } else {
            self.b.section(sid)
        }
    }

    fn name(&self, section: (Sid, bool)) -> String {
        names::of_section(self.section(section), section.0)
    }

    fn path(&self, comparison: &Comparison, index: usize) -> Vec<String> {
        let path = comparison.path(index);
        path.into_iter().map(|section| self.name(section)).collect()
    }
}

/// Runs the command.
pub fn run(args: &Diff) -> Result<()> {
    let options = Options {
        threads: args.choice.threads(),
        ..Options::default()
    };
    let (a, mut damage) = load(&args.a, &options)?;
    let (b, more) = load(&args.b, &options)?;
    damage.0.extend(more.0);
    let mut sets = args.choice.sets(&a)?;
    let common = a.sets().len().min(b.sets().len());
    if a.sets().len() != b.sets().len() {
        message::note(
            "the files have different numbers of sets of values; only common ones are shown",
        );
        sets.retain(|set| *set < common);
    }
    if let Some(set) = sets.iter().find(|set| {
        let (a, b) = (&a.sets()[**set].name, &b.sets()[**set].name);
        !a.is_empty() && !b.is_empty() && a != b
    }) {
        let (mine, other) = (names::of_set(a.sets(), *set), names::of_set(b.sets(), *set));
        let reason = format!("the values of set {set} are {mine} there, but {other} here");
        return Err(Error::new("comparing", reason).file(&args.b));
    }
    let pair = Pair { a: &a, b: &b };
    output::print_with(|out| {
        if args.json {
            return json_diff(out, args, &pair, &sets, &damage.texts());
        }
        if args.csv {
            return csv_diff(out, args, &pair, &sets);
        }
        write!(out, "A: ")?;
        text::heading(out, &args.a, &a)?;
        write!(out, "B: ")?;
        text::heading(out, &args.b, &b)?;
        for &set in &sets {
            writeln!(out, "\n{}", names::of_set(a.sets(), set))?;
            table(out, args, &pair, set)?;
        }
        Ok(())
    })?;
    damage.tell()
}

/// Indices into `list` in the order of the rows.
fn sorted(list: &[Difference], args: &Diff) -> Vec<usize> {
    let change = |d: &Difference| d.change(|side| args.by.figure(side)).abs();
    let mut order: Vec<usize> = (0..list.len()).collect();
    // Rows with equal changes are ordered by id, outer contexts first.
    order.sort_by(|a, b| {
        let changes = change(&list[*b]).order(change(&list[*a]));
        changes
            .then(list[*a].section.0.cmp(&list[*b].section.0))
            .then(a.cmp(b))
    });
    if !args.all {
        order.retain(|at| list[*at].a != list[*at].b);
    }
    order
}

/// The change of a figure in percent of its value in the first recording.
fn percent(difference: &Difference, figure: impl Fn(&Side) -> Number) -> String {
    match (&difference.a, &difference.b) {
        (None, _) => "new".into(),
        (_, None) => "gone".into(),
        (Some(a), Some(_)) => {
            let was = figure(a).as_f64().abs();
            let change = difference.change(&figure).as_f64();
            if change == 0.0 {
                return "0".into();
            }
            let percent = 100.0 * change / was;
            if percent.is_finite() {
                signed(format!("{percent:.1}"))
            } else {
                NONE.into()
            }
        }
    }
}

fn table(out: &mut dyn Write, args: &Diff, pair: &Pair<'_>, set: usize) -> IoResult<()> {
    let comparison = Comparison::new(pair.a, pair.b, set);
    let list = if args.tree {
        &comparison.contexts
    } else {
        &comparison.sections
    };
    let heads = [
        "TOTAL A", "TOTAL B", "CHANGE", "%", "SELF A", "SELF B", "COUNT A", "COUNT B", "CHANGE",
        "MEAN A", "MEAN B", "%", "ID", "SECTION", "SOURCE",
    ];
    let mut table = Table::new(heads, 2);
    let order = sorted(list, args);
    let limit = args.limit.unwrap_or(usize::MAX);
    for &at in order.iter().take(limit) {
        let difference = &list[at];
        let sides = [&difference.a, &difference.b];
        let cells = |f: &dyn Fn(&Side) -> Option<String>| {
            sides.map(|s| s.as_ref().and_then(f).unwrap_or(NONE.into()))
        };
        let totals = cells(&|s| Some(number(s.total)));
        let selves = cells(&|s| Some(number(s.self_value)));
        let counts = cells(&|s| s.count.map(message::number));
        let means = cells(&|s| s.mean.map(float));
        let knows = |s: &Option<Side>| s.as_ref().is_none_or(|s| s.count.is_some());
        let counted = sides.into_iter().all(knows);
        let measured = sides
            .iter()
            .any(|s| s.as_ref().is_some_and(|s| s.mean.is_some()));
        let mut row = Vec::from(totals);
        row.push(signed(number(difference.change(|s| s.total))));
        row.push(percent(difference, |s| s.total));
        row.extend(selves);
        row.extend(counts);
        row.push(if counted {
            signed(number(difference.change(|s| By::Count.figure(s))))
        } else {
            NONE.into()
        });
        row.extend(means);
        row.push(if measured {
            percent(difference, |s| By::Mean.figure(s))
        } else {
            NONE.into()
        });
        row.push(difference.section.0.to_string());
        row.push(if args.tree {
            names::joined(&pair.path(&comparison, at))
        } else {
            pair.name(difference.section)
        });
        row.push(names::source(pair.section(difference.section)));
        table.row(row);
    }
    if order.is_empty() {
        writeln!(out, "No difference.")?;
    } else {
        table.write(out)?;
    }
    let noun = if args.tree { "context" } else { "section" };
    text::end(out, order.len(), limit, noun)?;
    let same = list.len() - order.len();
    if same > 0 && !order.is_empty() {
        let same = message::count(same, noun);
        writeln!(out, "{same} the same (--all shows them)")?;
    }
    let (a, b) = (pair.a.total(set), pair.b.total(set));
    writeln!(
        out,
        "All: {} -> {} ({})",
        number(a),
        number(b),
        signed(number(b - a))
    )
}

fn side(side: &Option<Side>) -> Value {
    side.as_ref().map_or(Value::Null, |side| {
        json!({
            "count": side.count,
            "total": data::value(side.total),
            "self": data::value(side.self_value),
            "mean": side.mean.map(data::float),
        })
    })
}

fn json_diff(
    out: &mut dyn Write,
    args: &Diff,
    pair: &Pair<'_>,
    sets: &[usize],
    damage: &[String],
) -> IoResult<()> {
    let head = json!({
        "a": args.a.display().to_string(),
        "b": args.b.display().to_string(),
        "damage": damage,
    });
    write!(out, "{{\n{},\n\"sets\": [", data::members(&head))?;
    for (n, &set) in sets.iter().enumerate() {
        let comparison = Comparison::new(pair.a, pair.b, set);
        let comma = if n > 0 { "," } else { "" };
        let head = json!({ "set": set, "name": pair.a.sets()[set].name });
        write!(out, "{comma}\n{{{}", data::members(&head))?;
        for (key, list) in [
            ("sections", &comparison.sections),
            ("contexts", &comparison.contexts),
        ] {
            let order = sorted(list, args);
            let rows = order.iter().take(args.limit.unwrap_or(usize::MAX));
            let rows = rows.map(|&at| {
                let difference = &list[at];
                let mut map = Map::new();
                map.insert("id".into(), difference.section.0.0.into());
                data::section(&mut map, pair.section(difference.section));
                if key == "contexts" {
                    let path = comparison.path(at);
                    let path = path.iter().map(|s| s.0.0).collect::<Vec<_>>();
                    map.insert("path".into(), path.into());
                }
                map.insert("a".into(), side(&difference.a));
                map.insert("b".into(), side(&difference.b));
                let change = difference.change(|s| s.total);
                map.insert("change".into(), data::value(change));
                Value::Object(map)
            });
            data::list(out, key, rows)?;
        }
        write!(out, "}}")?;
    }
    writeln!(out, "\n]\n}}")
}

fn csv_diff(out: &mut dyn Write, args: &Diff, pair: &Pair<'_>, sets: &[usize]) -> IoResult<()> {
    writeln!(
        out,
        "set,id,name,path,total_a,total_b,change,self_a,self_b,count_a,count_b,mean_a,mean_b"
    )?;
    for &set in sets {
        let comparison = Comparison::new(pair.a, pair.b, set);
        let list = if args.tree {
            &comparison.contexts
        } else {
            &comparison.sections
        };
        let order = sorted(list, args);
        for &at in order.iter().take(args.limit.unwrap_or(usize::MAX)) {
            let difference = &list[at];
            let both = |f: &dyn Fn(&Side) -> Option<String>| {
                [&difference.a, &difference.b].map(|s| s.as_ref().and_then(f).unwrap_or_default())
            };
            let path = if args.tree {
                pair.path(&comparison, at).join(" > ")
            } else {
                String::new()
            };
            let mut fields = vec![
                set.to_string(),
                difference.section.0.to_string(),
                tables::csv_field(&pair.name(difference.section)).into_owned(),
                tables::csv_field(&path).into_owned(),
            ];
            fields.extend(both(&|s| Some(s.total.to_string())));
            fields.push(difference.change(|s| s.total).to_string());
            fields.extend(both(&|s| Some(s.self_value.to_string())));
            fields.extend(both(&|s| s.count.map(|n| n.to_string())));
            fields.extend(both(&|s| s.mean.map(|x| x.to_string())));
            data::line(out, &fields)?;
        }
    }
    Ok(())
}
