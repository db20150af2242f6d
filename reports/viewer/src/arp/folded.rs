//! Folded stacks: `outer;inner value`, one line a context, as flame graph programs read them.

use std::io::{Result, Write};

use ::arp::analyse::{Analysis, Number};
use exports::folded;

use super::names;
use output::message;

/// Writes the self values of set `set` that are greater than 0.
pub fn write(out: &mut dyn Write, analysis: &Analysis, set: usize) -> Result<()> {
    let mut below = 0;
    for (index, context) in analysis.contexts().iter().enumerate() {
        let value = analysis.figures(index, set).self_value;
        if value.as_f64().is_nan() || value.as_f64() <= 0.0 {
            below += usize::from(value.as_f64() != 0.0);
            continue;
        }
        let frames: Vec<String> = (names::path(analysis, index).iter())
            .map(|at| names::of_context(analysis, analysis.contexts()[*at as usize].label))
            .collect();
        debug_assert!(!frames.is_empty(), "context at depth {}", context.depth);
        let frames = frames.iter().map(String::as_str);
        match value {
            Number::Integer(n) => folded::write(frames, n, out)?,
            // Rust writes floating-point numbers without an exponent.
            Number::Float(x) => folded::write(frames, x, out)?,
        }
    }
    if below > 0 {
        let contexts = message::count(below, "context");
        message::note(&format!(
            "{contexts} left out: self values below 0, or not a number"
        ));
    }
    if analysis.sets().len() > 1 {
        let set = names::of_set(analysis.sets(), set);
        message::note(&format!(
            "the values are those of {set}; --set takes others"
        ));
    }
    Ok(())
}
