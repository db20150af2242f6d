//! Energy by a linear model, with a number of joules for each second, call and event.
//!
//! The file has one coefficient a line, `NAME VALUE`, where NAME is `second`, `call` or an
//! event of the set as it was named, and VALUE a number of joules. `#` begins a comment.

/// The coefficients, in joules.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Energy {
    second: f64,
    call: f64,
    events: Vec<f64>,
}

impl Energy {
    /// Reads a file's text, given the names of the set's events.
    pub fn parse(text: &str, names: &[&str]) -> Result<Self, String> {
        let mut energy = Self {
            events: vec![0.0; names.len()],
            ..Self::default()
        };
        let mut seen: Vec<&str> = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.split('#').next().unwrap_or("").trim();
            if line.is_empty() {
                continue;
            }
            let fail = |reason: String| Err(format!("line {number}: {reason}"));
            let Some((name, value)) = line.rsplit_once(char::is_whitespace) else {
                return fail(format!("`{line}` is not a name and a number"));
            };
            let name = name.trim();
            let Some(value) = value.parse::<f64>().ok().filter(|v| v.is_finite()) else {
                return fail(format!("`{value}` is not a number of joules"));
            };
            if seen.contains(&name) {
                return fail(format!("`{name}` is there twice"));
            }
            seen.push(name);
            match name {
                "second" => energy.second = value,
                "call" => energy.call = value,
                _ => match names.iter().position(|known| *known == name) {
                    Some(i) => energy.events[i] = value,
                    None => {
                        return fail(format!(
                            "`{name}` is neither `second`, `call` nor one of the events"
                        ));
                    }
                },
            }
        }
        if seen.is_empty() {
            Err("there are no coefficients".into())
        } else {
            Ok(energy)
        }
    }

    /// Joules of this time and these numbers of calls and events. An event without a value adds
    /// nothing.
    pub fn joules(&self, nanos: f64, calls: u64, values: &[Option<u64>]) -> f64 {
        let events = self.events.iter().zip(values);
        let events: f64 = events.map(|(c, n)| c * n.unwrap_or(0) as f64).sum();
        self.second * nanos / 1e9 + self.call * calls as f64 + events
    }

    /// The events that it uses, by number.
    pub fn uses(&self) -> impl Iterator<Item = usize> {
        let used = self.events.iter().enumerate().filter(|(_, c)| **c != 0.0);
        used.map(|(i, _)| i)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_model_is_read_and_applied() {
        let text = "# a small processor\nsecond 1.5\n\nexact:loads\t2e-9 # each\ncall -1e-9\n";
        let energy = Energy::parse(text, &["exact:loads", "exact:stores"]).unwrap();
        let joules = energy.joules(2e9, 10, &[Some(1_000_000_000), Some(7)]);
        assert!((joules - (3.0 + 2.0 - 1e-8)).abs() < 1e-12);
        assert_eq!(energy.uses().collect::<Vec<_>>(), [0]);
    }

    #[test]
    fn an_error_names_the_line() {
        for (text, part) in [
            ("second 1\nfoo 2\n", "line 2: `foo`"),
            ("\n\nsecond x", "line 3: `x`"),
            ("second", "line 1: `second`"),
            ("call 1\ncall 2", "line 2: `call` is there twice"),
            ("call inf", "line 1"),
            ("# nothing", "no coefficients"),
        ] {
            let error = Energy::parse(text, &["exact:loads"]).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }
}
