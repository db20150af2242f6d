//! What a tool did not see, which each report says in its head.

use crate::output::is_object;

/// Code of the process that is not instrumented.
#[derive(Clone, Debug)]
pub(super) struct Unseen {
    /// Names of the libraries that the program names.
    pub libraries: Vec<&'static str>,
    /// File names of libraries that were loaded while the program ran and are not instrumented.
    pub loaded: Vec<String>,
    /// Number of procedures that are not understood.
    pub opaque: u64,
}

impl Unseen {
    /// What `atom` wrote into the program; `None` if it wrote nothing.
    pub fn of_program() -> Option<Self> {
        let names = analysis_rt::unseen().unwrap_or("").split(", ");
        let mut loaded = Vec::new();
        analysis_rt::unknown_objects(&mut |path| {
            let name = path.rsplit(|b| *b == b'/').next().unwrap_or(path);
            let name = String::from_utf8_lossy(name).into_owned();
            if is_object(path) && !loaded.contains(&name) {
                loaded.push(name);
            }
        });
        Some(Self {
            loaded,
            libraries: names.filter(|name| !name.is_empty()).collect(),
            opaque: analysis_rt::opaque()?,
        })
    }

    /// One line for people; `None` if nothing was left out.
    pub fn line(&self) -> Option<String> {
        let mut parts = Vec::new();
        if !self.libraries.is_empty() {
            let names = self.libraries.join(", ");
            parts.push(format!("{names} and what they load (atom run sees them)"));
        }
        if !self.loaded.is_empty() {
            let names = self.loaded.join(", ");
            parts.push(format!(
                "{names}, loaded later (--with FILE, or atom run once more)"
            ));
        }
        match self.opaque {
            0 => {}
            1 => parts.push("1 opaque procedure (atom show lists it)".into()),
            n => parts.push(format!("{n} opaque procedures (atom show lists them)")),
        }
        (!parts.is_empty()).then(|| format!("not instrumented: {}", parts.join("; ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_names_what_was_left_out() {
        let line = |libraries: &[&'static str], opaque| {
            let libraries = libraries.to_vec();
            let loaded = Vec::new();
            Unseen {
                libraries,
                loaded,
                opaque,
            }
            .line()
        };
        assert_eq!(line(&[], 0), None);
        assert_eq!(
            line(&["liba.so", "libc.so.6"], 0).unwrap(),
            "not instrumented: liba.so, libc.so.6 and what they load (atom run sees them)"
        );
        assert_eq!(
            line(&[], 1).unwrap(),
            "not instrumented: 1 opaque procedure (atom show lists it)"
        );
        assert!(
            line(&["a"], 2)
                .unwrap()
                .ends_with("; 2 opaque procedures (atom show lists them)")
        );
    }
}
