//! An event as a user names it.
//!
//! `NAME`, `rNNN` for a code of the processor in hexadecimal digits, or `NAME:opcode=GLOB`
//! for an exact event, counted at instructions with that mnemonic only (`exact:loads:opcode=mov*`).

use std::fmt;

use atom_abi::names::matches;

use crate::perf::TYPE_RAW;
use crate::{Code, Event, Source, find};

/// Largest number of events in a set.
pub const MOST: usize = 8;

/// An event that was chosen.
#[derive(Clone, PartialEq, Debug)]
pub struct Choice {
    /// The user's words.
    pub name: String,
    /// The event.
    pub event: Event,
    /// Pattern of the mnemonics at whose instructions it is counted; `None` for all.
    pub opcode: Option<String>,
}

/// Message about a name that no event has, or about a set that cannot be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Unknown(String);

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Unknown {}

impl Choice {
    /// Reads one name.
    ///
    /// # Errors
    /// Says that there is no such event, and which ones have a similar name.
    pub fn parse(text: &str) -> Result<Self, Unknown> {
        let (name, opcode) = match text.split_once(":opcode=") {
            Some((name, glob)) => (name, Some(glob.to_owned())),
            None => (text, None),
        };
        let event = match (find(name), raw(name)) {
            (Some(event), _) | (None, Some(event)) => event,
            (None, None) => return Err(unknown(name)),
        };
        if opcode.is_some() && !event.restrictions().opcodes {
            return Err(Unknown(format!(
                "`{name}` cannot be restricted to opcodes; exact events can"
            )));
        }
        if opcode.as_deref() == Some("") {
            return Err(Unknown(format!("`{text}` has no opcode")));
        }
        Ok(Self {
            name: text.to_owned(),
            event,
            opcode,
        })
    }

    /// Reads a set: names separated by commas.
    ///
    /// # Errors
    /// Says that a name is unknown or given twice, or that there are more than [`MOST`].
    pub fn parse_set(text: &str) -> Result<Vec<Self>, Unknown> {
        let names = text.split(',').map(str::trim).filter(|n| !n.is_empty());
        let set: Vec<Self> = names.map(Self::parse).collect::<Result<_, _>>()?;
        if set.len() > MOST {
            let n = set.len();
            return Err(Unknown(format!("a set has at most {MOST} events, not {n}")));
        }
        for (i, choice) in set.iter().enumerate() {
            if set[..i].iter().any(|other| other.name == choice.name) {
                return Err(Unknown(format!("`{}` was named twice", choice.name)));
            }
        }
        Ok(set)
    }

    /// Whether it is to be counted at instructions with this mnemonic.
    pub fn takes(&self, mnemonic: &str) -> bool {
        let mnemonic = mnemonic.to_ascii_lowercase();
        let pattern = self.opcode.as_deref().map(str::to_ascii_lowercase);
        pattern.is_none_or(|pattern| matches(&pattern, &mnemonic))
    }

    /// True if instrumentation counts it.
    pub fn is_own(&self) -> bool {
        self.event.source >= Source::Exact
    }
}

/// The event of a raw code such as `r1c2`, which the processor's manual lists.
fn raw(name: &str) -> Option<Event> {
    let digits = name.strip_prefix('r')?;
    let is_code = (1..=16).contains(&digits.len());
    let config = u64::from_str_radix(digits, 16).ok().filter(|_| is_code)?;
    Some(Event {
        name: "raw",
        alias: None,
        what: "An event of the processor by its own code",
        source: Source::Hardware,
        code: Code::Perf {
            kind: TYPE_RAW,
            config,
            usage: None,
        },
        offer: None,
    })
}

/// Says that there is no such event, and names up to five with a similar name.
fn unknown(name: &str) -> Unknown {
    let lower = name.to_lowercase();
    let is_near = |e: &Event| {
        let known = e.name.to_lowercase();
        let tail = known.rsplit(':').next().unwrap_or(&known);
        lower.len() > 2 && (known.contains(&lower) || lower.contains(tail))
    };
    let mut near: Vec<Event> = crate::all().filter(is_near).collect();
    // Events that every machine has come first.
    near.sort_by_key(|e| std::cmp::Reverse(e.source));
    let near: Vec<String> = near
        .iter()
        .take(5)
        .map(|e| format!("`{}`", e.name))
        .collect();
    let hint = match near.as_slice() {
        [] => "`atom events` lists them".to_owned(),
        near => format!("there is {}", near.join(", ")),
    };
    Unknown(format!("there is no event `{name}`: {hint}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_read() {
        let set = Choice::parse_set("PAPI_TOT_INS, r01C2,exact:loads:opcode=mov*").unwrap();
        assert_eq!(set.len(), 3);
        let code = set[1].event.code;
        assert!(matches!(
            code,
            Code::Perf {
                kind: TYPE_RAW,
                config: 0x1c2,
                ..
            }
        ));
        assert_eq!(set[2].opcode.as_deref(), Some("mov*"));
        assert!(set[2].is_own() && !set[0].is_own());
        assert!(set[2].takes("movzx") && !set[2].takes("add") && set[0].takes("add"));
        assert!(Choice::parse_set("").unwrap().is_empty());
    }

    #[test]
    fn what_is_wrong_is_told() {
        let message = |text: &str| Choice::parse_set(text).unwrap_err().to_string();
        assert!(message("load").contains("`exact:loads`"));
        assert!(message("xyz").contains("atom events"));
        assert!(message("cycles:opcode=mov").contains("cannot be restricted"));
        assert!(message("cycles,cycles").contains("twice"));
        assert!(message("r12345678901234567").contains("no event"));
        assert!(message("r1,r2,r3,r4,r5,r6,r7,r8,r9").contains("at most 8"));
    }
}
