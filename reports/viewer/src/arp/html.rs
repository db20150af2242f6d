//! One page that shows all data in a browser, without network and libraries.
//!
//! The page has only as much data as the eye can see: light contexts are put
//! together, and histograms have a limited number of bars.

use atom_core::emit::Sink;
use std::path::Path;

use ::arp::analyse::{Analysis, Figures, Label};
use ::arp::{Histogram, Stats};
use atom_core::Result;
use page::Page;
use serde_json::{Map, Value, json};

use super::rows::count;
use super::text::quantile_name;
use super::{Damage, View, data, names, text};
use output::file::{AsWrite, PendingFile};

/// Number of contexts on a page at most.
const CONTEXTS: usize = 20_000;
/// Number of bars of a histogram at most.
const BARS: usize = 60;

const PAGE: &str = include_str!("page/page.html");
const STYLE: &str = include_str!("page/page.css");
const SCRIPT: &str = include_str!("page/page.js");

/// Writes the page.
pub fn write(
    out: &Path,
    file: &Path,
    analysis: &Analysis,
    damage: &Damage,
    args: &View,
    sets: &[usize],
) -> Result<()> {
    let mut heading = Vec::new();
    // Writing to memory does not fail.
    let _ = text::heading(&mut heading, file, analysis);
    let heading = String::from_utf8_lossy(&heading);
    let data = json!({
        "heading": heading.lines().collect::<Vec<_>>(),
        "damage": damage.texts(),
        "sets": sets.iter().map(|&set| json!({
            "name": names::of_set(analysis.sets(), set),
            "total": number(analysis.total(set).as_f64()),
        })).collect::<Vec<_>>(),
        "quantiles": args.quantiles.iter().map(|q| quantile_name(*q)).collect::<Vec<_>>(),
        "sections": sections(analysis, args, sets),
        "contexts": contexts(analysis, sets),
    });
    let title = file.display().to_string();
    let page = Page {
        title: &title,
        styles: &[STYLE],
        body: PAGE,
        data: &[("data", data.to_string())],
        scripts: &[SCRIPT],
    };
    let page = |to: &mut dyn Sink| page.write(&mut AsWrite(to));
    PendingFile::write(out, page, 0o644)?.commit()
}

/// A number for the page; null if JSON cannot express it.
fn number(x: f64) -> Value {
    serde_json::Number::from_f64(x).map_or(Value::Null, Value::Number)
}

/// `[total, self, mean, min, max]`
fn figures(figures: &Figures) -> Value {
    let range = figures.range();
    json!([
        data::value(figures.total),
        data::value(figures.self_value),
        figures.mean().map(number),
        range.map(|r| data::value(r.0)),
        range.map(|r| data::value(r.1)),
    ])
}

fn sections(analysis: &Analysis, args: &View, sets: &[usize]) -> Vec<Value> {
    let mut rows = analysis.sections();
    args.sort.sort(analysis, &mut rows, sets[0]);
    let rows = rows.iter().map(|row| {
        let section = analysis.section(row.sid);
        let mut map = Map::new();
        map.insert("id".into(), row.sid.0.into());
        map.insert("name".into(), names::of_section(section, row.sid).into());
        map.insert("kind".into(), names::kind(section).into());
        map.insert("source".into(), names::source(section).into());
        map.insert("count".into(), row.count.map(|c| c.0).into());
        map.insert("shown".into(), count(row.count).into());
        let values = sets.iter().map(|&set| {
            let quantiles = args.quantiles.iter();
            json!({
                "f": figures(&row.figures[set]),
                "q": quantiles.map(|q| row.quantile(set, *q).map(number)).collect::<Vec<_>>(),
                "bars": row.histograms.get(set).map(bars),
            })
        });
        map.insert("values".into(), values.collect::<Vec<_>>().into());
        Value::Object(map)
    });
    rows.collect()
}

/// `[from, to, count]` of each bar. Bars are equally wide, or become wider by a constant factor if the
/// values are positive and differ a lot. If there are few different integers, each has a bar.
fn bars(histogram: &Histogram) -> Vec<Value> {
    let (min, max) = (histogram.stats.min(), histogram.stats.max());
    let buckets: Vec<_> = histogram.buckets().collect();
    if buckets.is_empty() || !(max - min).is_finite() {
        return Vec::new();
    }
    let integers = matches!(histogram.stats, Stats::Integer { .. });
    if integers && max - min < BARS as f64 {
        let mut counts = vec![0u64; (max - min) as usize + 1];
        for bucket in buckets {
            let value = bucket.middle.clamp(min, max);
            counts[(value - min) as usize] += bucket.count;
        }
        let bars = counts.iter().enumerate();
        return bars
            .map(|(i, n)| json!([min + i as f64, min + i as f64, n]))
            .collect();
    }
    let grows = min > 0.0 && max / min > 50.0;
    let bars = if max > min { BARS } else { 1 };
    let mut edge: Vec<f64> = (0..=bars)
        .map(|i| {
            let part = i as f64 / bars as f64;
            if grows {
                min * (max / min).powf(part)
            } else {
                min + (max - min) * part
            }
        })
        .collect();
    edge[bars] = max;
    let mut counts = vec![0u64; bars];
    for bucket in buckets {
        let value = bucket.middle.clamp(min, max);
        let bar = edge[1..bars].partition_point(|edge| *edge <= value);
        counts[bar] += bucket.count;
    }
    let bars = counts.iter().enumerate();
    bars.map(|(i, n)| json!([number(edge[i]), number(edge[i + 1]), n]))
        .collect()
}

/// `[parent, section, name, count, figures of each set]` of each context, outer contexts first. If
/// there are too many, the lightest children of each context are put together.
fn contexts(analysis: &Analysis, sets: &[usize]) -> Vec<Value> {
    let all = analysis.contexts();
    let kept = heaviest(analysis, sets);
    let mut place = vec![None; all.len()];
    let mut out: Vec<Value> = Vec::new();
    // Children left out, for each parent: the parent, their number, their totals by set.
    let mut left: Vec<(Option<usize>, usize, Vec<f64>)> = Vec::new();
    let mut left_of = std::collections::HashMap::new();
    for (index, context) in all.iter().enumerate() {
        let parent = context.parent.map(|p| p as usize);
        if !kept[index] {
            if parent.is_none_or(|p| kept[p]) {
                let at = *left_of.entry(parent).or_insert_with(|| {
                    left.push((parent, 0, vec![0.0; sets.len()]));
                    left.len() - 1
                });
                left[at].1 += 1;
                for (sum, set) in left[at].2.iter_mut().zip(sets) {
                    *sum += analysis.figures(index, *set).total.as_f64();
                }
            }
            continue;
        }
        place[index] = Some(out.len());
        let values = sets
            .iter()
            .map(|&set| figures(&analysis.figures(index, set)));
        let sid = match context.label {
            Label::Thread(_) => None,
            label => label.sid().map(|sid| sid.0),
        };
        out.push(json!([
            parent.and_then(|p| place[p]),
            sid,
            names::of_context(analysis, context.label),
            count(analysis.count(index)),
            values.collect::<Vec<_>>(),
        ]));
    }
    for (parent, n, sums) in left {
        let values = sums
            .iter()
            .map(|sum| json!([number(*sum), 0, null, null, null]));
        out.push(json!([
            parent.and_then(|p| place[p]),
            null,
            format!("({n} more)"),
            super::numbers::NONE,
            values.collect::<Vec<_>>(),
        ]));
    }
    out
}

/// By context: true if it is on the page. The contexts with the largest part of the whole in any set
/// are, and all contexts around them.
fn heaviest(analysis: &Analysis, sets: &[usize]) -> Vec<bool> {
    let all = analysis.contexts();
    if all.len() <= CONTEXTS {
        return vec![true; all.len()];
    }
    let wholes: Vec<f64> = sets
        .iter()
        .map(|s| analysis.total(*s).as_f64().abs())
        .collect();
    let weight = |index: usize| {
        let parts = sets.iter().zip(&wholes);
        let parts = parts.map(|(set, whole)| {
            analysis.figures(index, *set).total.as_f64().abs() / whole.max(f64::MIN_POSITIVE)
        });
        parts.fold(0.0, f64::max)
    };
    let mut order: Vec<(f64, usize)> = (0..all.len()).map(|i| (weight(i), i)).collect();
    order.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let mut kept = vec![false; all.len()];
    let mut n = 0;
    for (_, index) in order {
        let mut way = Vec::new();
        let mut at = Some(index);
        while let Some(context) = at.filter(|at| !kept[*at]) {
            way.push(context);
            at = all[context].parent.map(|p| p as usize);
        }
        if n + way.len() > CONTEXTS {
            continue;
        }
        n += way.len();
        way.into_iter().for_each(|context| kept[context] = true);
        if n == CONTEXTS {
            break;
        }
    }
    kept
}
