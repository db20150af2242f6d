//! Stacks: folded ones, and speedscope's.
//!
//! A profile has measures by procedure, not by stack. The stack of a procedure is its object and itself: what people
//! see is the share of each.

use std::collections::{BTreeMap, HashMap};

use atom_core::{Error, Result};
use profile::Profile;
use serde_json::json;

use super::super::group::{self, Unit};

/// The name of the measure, its value for each stack with the outermost frame first, and what could not be found
/// out.
struct Stacks {
    measure: String,
    values: BTreeMap<[String; 2], u64>,
    notes: Vec<String>,
}

fn stacks(profile: &Profile) -> Result<Stacks> {
    let spots = group::spots(profile, Unit::Procedure, None)?;
    let Some(measure) = spots.heads.first() else {
        return Err(Error::new(
            "exporting",
            "the profile has no measure that is added up",
        ));
    };
    let mut all: BTreeMap<[String; 2], u64> = BTreeMap::new();
    for spot in &spots.all {
        let object = profile.objects.get(spot.object).map_or("", |o| &*o.name);
        let value = spot.values[0].float().unwrap_or(0.0).round() as u64;
        let name = match &*spot.procedure {
            "" => format!("{:#x}", spot.at),
            name => name.to_owned(),
        };
        *all.entry([object.to_owned(), name]).or_default() += value;
    }
    all.retain(|_, value| *value != 0);
    Ok(Stacks {
        measure: measure.name.clone(),
        values: all,
        notes: spots.notes,
    })
}

/// One line for each stack, with semicolons between its frames, and its value.
pub fn folded(profile: &Profile) -> Result<(Vec<u8>, Vec<String>)> {
    let Stacks { values, notes, .. } = stacks(profile)?;
    let mut text = String::new();
    for (frames, value) in values {
        let frames = frames.map(|frame| frame.replace([';', '\n'], ":"));
        text.push_str(&format!("{} {value}\n", frames.join(";")));
    }
    Ok((text.into_bytes(), notes))
}

/// The format of speedscope.
pub fn speedscope(profile: &Profile) -> Result<(Vec<u8>, Vec<String>)> {
    let Stacks {
        measure,
        values,
        notes,
    } = stacks(profile)?;
    let mut frames: Vec<String> = Vec::new();
    let mut numbers: HashMap<String, usize> = HashMap::new();
    let (mut samples, mut weights) = (Vec::new(), Vec::new());
    for (stack, value) in values {
        let [object, procedure] = stack;
        let names = [object.clone(), format!("{object}\0{procedure}")];
        let sample = names.map(|name| {
            *numbers.entry(name.clone()).or_insert_with(|| {
                frames.push(name);
                frames.len() - 1
            })
        });
        samples.push(sample);
        weights.push(value);
    }
    let frame = |name: &String| match name.split_once('\0') {
        Some((object, name)) => json!({ "name": name, "file": object }),
        None => json!({ "name": name }),
    };
    let end: u64 = weights.iter().sum();
    let file = json!({
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "exporter": "atom",
        "name": format!("{} of {}", profile.tool, profile.program.path),
        "shared": { "frames": frames.iter().map(frame).collect::<Vec<_>>() },
        "profiles": [{
            "type": "sampled", "name": measure, "unit": "none", "startValue": 0, "endValue": end,
            "samples": samples, "weights": weights,
        }],
    });
    Ok((file.to_string().into_bytes(), notes))
}
