//! JSON and comma-separated values for other programs, with all digits and all data.

use std::io::{Result, Write};
use std::path::Path;

use ::arp::analyse::{Analysis, Figures, Label, Number};
use ::arp::{Format, Histogram, Section};
use serde_json::{Map, Value, json};
use tables::csv_field;

use super::rows::walk;
use super::text::quantile_name;
use super::{Damage, View};

/// A number as JSON; a text if JSON cannot express the number.
pub fn value(n: Number) -> Value {
    match n {
        Number::Integer(n) => match (i64::try_from(n), u64::try_from(n)) {
            (Ok(n), _) => n.into(),
            (_, Ok(n)) => n.into(),
            _ => float(n as f64),
        },
        Number::Float(x) => float(x),
    }
}

/// A floating-point number as JSON; a text for infinities and not-a-number.
pub fn float(x: f64) -> Value {
    match serde_json::Number::from_f64(x) {
        Some(n) => n.into(),
        None if x.is_nan() => "nan".into(),
        None => format!("{x}").into(),
    }
}

fn figures(figures: &Figures) -> Map<String, Value> {
    let mut map = Map::new();
    map.insert("total".into(), value(figures.total));
    map.insert("self".into(), value(figures.self_value));
    let range = figures.range();
    map.insert("mean".into(), figures.mean().map_or(Value::Null, float));
    map.insert("min".into(), range.map_or(Value::Null, |r| value(r.0)));
    map.insert("max".into(), range.map_or(Value::Null, |r| value(r.1)));
    map
}

fn buckets(histogram: &Histogram) -> Value {
    let buckets = histogram.buckets();
    let buckets = buckets.map(|b| json!([float(b.low), float(b.high), b.count]));
    buckets.collect::<Vec<_>>().into()
}

fn text_or_null(text: &str) -> Value {
    match text {
        "" => Value::Null,
        text => text.into(),
    }
}

fn line_or_null(line: u32) -> Value {
    match line {
        0 => Value::Null,
        line => line.into(),
    }
}

/// Inserts kind, name and source lines of a section; null where the file does not have them.
pub fn section(map: &mut Map<String, Value>, section: Option<&Section>) {
    let text = |f: fn(&Section) -> &str| section.map_or(Value::Null, |s| text_or_null(f(s)));
    let line = |f: fn(&Section) -> u32| section.map_or(Value::Null, |s| line_or_null(f(s)));
    let kind = section.map_or(Value::Null, |s| s.kind.to_string().into());
    map.insert("kind".into(), kind);
    map.insert("name".into(), text(|s| &s.name));
    map.insert("file".into(), text(|s| &s.file));
    map.insert("line".into(), line(|s| s.line));
    map.insert("end_line".into(), line(|s| s.end_line));
}

/// Writes all of a file as JSON: head, sections, contexts.
pub fn json(
    out: &mut dyn Write,
    file: &Path,
    analysis: &Analysis,
    damage: &Damage,
    args: &View,
    sets: &[usize],
) -> Result<()> {
    let mut rows = analysis.sections();
    args.sort.sort(analysis, &mut rows, sets[0]);
    let unrecorded = analysis.unrecorded();
    let sections = rows
        .iter()
        .take(args.limit.unwrap_or(usize::MAX))
        .map(|row| {
            let mut map = Map::new();
            map.insert("id".into(), row.sid.0.into());
            section(&mut map, analysis.section(row.sid));
            map.insert(
                "count".into(),
                row.count.map_or(Value::Null, |c| c.0.into()),
            );
            map.insert(
                "count_is_exact".into(),
                row.count.is_some_and(|c| c.1).into(),
            );
            let left_out = unrecorded.get(&row.sid).copied().unwrap_or_default();
            map.insert("folded".into(), left_out.folded.into());
            map.insert("nested".into(), left_out.nested.into());
            let values = sets.iter().map(|&set| {
                let mut values = figures(&row.figures[set]);
                let quantiles = args.quantiles.iter().filter_map(|q| {
                    let found = row.quantile(set, *q)?;
                    Some((q.to_string(), float(found)))
                });
                values.insert("quantiles".into(), Value::Object(quantiles.collect()));
                let histogram = row.histograms.get(set);
                values.insert("buckets".into(), histogram.map_or(Value::Null, buckets));
                Value::Object(values)
            });
            map.insert("values".into(), values.collect::<Vec<_>>().into());
            Value::Object(map)
        });
    let threads = analysis.threads().iter();
    let threads = threads.map(|(tid, n)| json!({ "id": tid.map(|t| t.0), "records": n }));
    let head = json!({
        "file": file.display().to_string(),
        "mode": analysis.mode().to_string(),
        "format": match analysis.format() { Format::Ascii => "ascii", Format::Binary => "binary" },
        "gzip": analysis.is_gzip(),
        "records": analysis.records(),
        "damage": damage.texts(),
        "info": analysis.info().iter().map(|(k, v)| json!([k, v])).collect::<Vec<_>>(),
        "threads": threads.collect::<Vec<_>>(),
        "sets": sets.iter().map(|&set| json!({
            "set": set,
            "name": text_or_null(&analysis.sets()[set].name),
            "type": analysis.sets()[set].data_type.to_string(),
            "total": value(analysis.total(set)),
        })).collect::<Vec<_>>(),
    });
    // There may be millions of contexts, so they are written one by one.
    write!(out, "{{\n{}", members(&head))?;
    list(out, "sections", sections)?;
    let contexts = 0..analysis.contexts().len();
    let contexts = contexts.map(|index| context(analysis, index, sets));
    list(out, "contexts", contexts)?;
    writeln!(out, "\n}}")
}

/// The members of an object as text, one a line.
pub fn members(object: &Value) -> String {
    let members = object.as_object().into_iter().flatten();
    let members = members.map(|(key, value)| format!("{}: {value}", Value::from(key.as_str())));
    members.collect::<Vec<_>>().join(",\n")
}

/// Writes one more member of an object: a list, one element a line.
pub fn list(out: &mut dyn Write, key: &str, elements: impl Iterator<Item = Value>) -> Result<()> {
    write!(out, ",\n\"{key}\": [")?;
    for (n, element) in elements.enumerate() {
        let comma = if n > 0 { "," } else { "" };
        write!(out, "{comma}\n  {element}")?;
    }
    write!(out, "\n]")
}

fn context(analysis: &Analysis, index: usize, sets: &[usize]) -> Value {
    let context = &analysis.contexts()[index];
    let mut map = Map::new();
    map.insert("id".into(), index.into());
    map.insert("parent".into(), context.parent.into());
    match context.label {
        Label::Thread(tid) => {
            map.insert("thread".into(), tid.map(|t| t.0).into());
        }
        label => {
            map.insert("section".into(), label.sid().map(|s| s.0).into());
        }
    }
    match context.label {
        Label::Execution(step) => {
            map.insert("counter".into(), step.counter.into());
        }
        Label::Rest(_) => {
            map.insert("counter".into(), "*".into());
        }
        _ => {}
    }
    let count = analysis.count(index);
    map.insert("count".into(), count.map(|c| c.0).into());
    map.insert("count_is_exact".into(), count.is_some_and(|c| c.1).into());
    let values = sets
        .iter()
        .map(|set| figures(&analysis.figures(index, *set)).into());
    map.insert("values".into(), values.collect::<Vec<Value>>().into());
    Value::Object(map)
}

fn csv_figures(figures: &Figures) -> Vec<String> {
    let range = figures.range();
    vec![
        figures.total.to_string(),
        figures.self_value.to_string(),
        figures.mean().map_or(String::new(), |x| x.to_string()),
        range.map_or(String::new(), |r| r.0.to_string()),
        range.map_or(String::new(), |r| r.1.to_string()),
    ]
}

fn csv_section(section: Option<&Section>) -> Vec<String> {
    let number = |n: u32| if n == 0 { String::new() } else { n.to_string() };
    match section {
        None => vec![String::new(); 5],
        Some(s) => vec![
            s.kind.to_string(),
            csv_field(&s.name).into_owned(),
            csv_field(&s.file).into_owned(),
            number(s.line),
            number(s.end_line),
        ],
    }
}

/// Writes a line of fields.
pub fn line(out: &mut dyn Write, fields: &[String]) -> Result<()> {
    writeln!(out, "{}", fields.join(","))
}

fn csv_count(count: Option<(u64, bool)>) -> [String; 2] {
    match count {
        Some((n, exact)) => [n.to_string(), exact.to_string()],
        None => [String::new(), String::new()],
    }
}

/// Writes a line for each section and set.
pub fn csv(out: &mut dyn Write, analysis: &Analysis, args: &View, sets: &[usize]) -> Result<()> {
    let quantiles = args
        .quantiles
        .iter()
        .map(|q| quantile_name(*q).to_lowercase());
    let heads = "set,id,kind,name,file,line,end_line,count,count_is_exact,total,self,mean,min,max";
    let heads = heads.split(',').map(String::from).chain(quantiles);
    line(out, &heads.collect::<Vec<_>>())?;
    for &set in sets {
        let mut rows = analysis.sections();
        args.sort.sort(analysis, &mut rows, set);
        for row in rows.iter().take(args.limit.unwrap_or(usize::MAX)) {
            let mut fields = vec![set.to_string(), row.sid.to_string()];
            fields.extend(csv_section(analysis.section(row.sid)));
            fields.extend(csv_count(row.count));
            fields.extend(csv_figures(&row.figures[set]));
            let quantile = |q: &f64| {
                row.quantile(set, *q)
                    .map_or(String::new(), |x| x.to_string())
            };
            fields.extend(args.quantiles.iter().map(quantile));
            line(out, &fields)?;
        }
    }
    Ok(())
}

/// Writes a line for each context and set, outer contexts before inner ones.
pub fn tree_csv(
    out: &mut dyn Write,
    analysis: &Analysis,
    args: &View,
    sets: &[usize],
) -> Result<()> {
    let heads = "set,context,parent,depth,thread,id,counter,kind,name,file,line,end_line,count,\
        count_is_exact,total,self,mean,min,max";
    writeln!(out, "{heads}")?;
    for &set in sets {
        let children = args.sort.children(analysis, set);
        let mut result = Ok(());
        let mut left = args.limit.unwrap_or(usize::MAX);
        walk(&children, |index| {
            if left == 0 || result.is_err() {
                return false;
            }
            left -= 1;
            let context = &analysis.contexts()[index];
            let parent = context.parent.map_or(String::new(), |p| p.to_string());
            let (thread, id, counter) = match context.label {
                Label::Thread(tid) => (
                    tid.map_or("?".into(), |t| t.to_string()),
                    None,
                    String::new(),
                ),
                Label::Section(sid) => (String::new(), Some(sid), String::new()),
                Label::Execution(step) => (String::new(), Some(step.sid), step.counter.to_string()),
                Label::Rest(sid) => (String::new(), Some(sid), "*".into()),
            };
            let mut fields = vec![
                set.to_string(),
                index.to_string(),
                parent,
                context.depth.to_string(),
                thread,
                id.map_or(String::new(), |s| s.to_string()),
                counter,
            ];
            fields.extend(csv_section(id.and_then(|sid| analysis.section(sid))));
            fields.extend(csv_count(analysis.count(index)));
            fields.extend(csv_figures(&analysis.figures(index, set)));
            result = line(out, &fields);
            args.depth.is_none_or(|most| context.depth + 1 < most)
        });
        result?;
    }
    Ok(())
}
