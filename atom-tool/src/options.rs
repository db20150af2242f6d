//! The options of a tool: the words after `--` on the command line of `atom`.

use std::cell::RefCell;
use std::fmt;
use std::str::FromStr;

use atom_abi::help::{Declared, Form, declared};

use crate::navigation::program::{Program, Session};
use crate::{Error, Result};

/// An option that a tool does not have, or a value that an option does not take. `atom` then ends with exit code 2.
#[derive(Debug)]
pub struct WrongOption(String);

impl WrongOption {
    /// The message names the option and says what it takes.
    pub fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

impl fmt::Display for WrongOption {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for WrongOption {}

/// The arguments of a tool.
#[derive(Clone, Copy, Debug)]
pub struct Args<'a> {
    all: &'a [&'a str],
    help: &'a str,
    session: Option<&'a Session<'a>>,
}

impl<'a> Args<'a> {
    /// `help` declares the options.
    pub(crate) fn new(all: &'a [&'a str], help: &'a str, session: Option<&'a Session<'a>>) -> Self {
        Self { all, help, session }
    }

    /// The arguments as they were given.
    pub fn as_slice(&self) -> &'a [&'a str] {
        self.all
    }

    /// Starts reading them as options.
    pub fn options(&self) -> Options<'a> {
        self.options_of(self.all.to_vec(), Vec::new())
    }

    /// Goes on reading options: the words that are left, and the options that were asked for.
    #[doc(hidden)]
    pub fn options_of(&self, rest: Vec<&'a str>, known: Vec<String>) -> Options<'a> {
        Options {
            rest: RefCell::new(rest),
            known: RefCell::new(known),
            args: *self,
        }
    }
}

/// Reads options one by one: `--name VALUE` or `--name=VALUE`, or `--name` alone.
///
/// Ask for each option that the tool knows, then call [`Options::finish`].
#[derive(Debug)]
pub struct Options<'a> {
    rest: RefCell<Vec<&'a str>>,
    known: RefCell<Vec<String>>,
    args: Args<'a>,
}

impl<'a> Options<'a> {
    /// The program that the options are for.
    pub(crate) fn program(&self) -> Option<Program<'a>> {
        self.args.session.map(|session| Program { session })
    }

    /// All arguments of the tool, as they were given.
    pub(crate) fn all(&self) -> &'a [&'a str] {
        self.args.all
    }

    /// How the tool's help declares an option.
    fn declared(&self, name: &str) -> Option<(Declared<'a>, Form<'a>)> {
        declared(self.args.help)
            .find_map(|option| Some((option, option.forms().find(|form| form.name == name)?)))
    }

    /// The value that is declared for an option that is not given.
    pub(crate) fn default(&self, name: &str) -> Option<&'a str> {
        self.declared(name)?.0.default()
    }

    /// Notes that a tool knows an option with a value.
    fn ask(&self, name: &str) {
        let declared = self.declared(name).map(|(_, form)| form.text.to_owned());
        let form = declared.unwrap_or_else(|| format!("{name} VALUE"));
        self.known.borrow_mut().push(form);
    }

    /// The words that are left, and the options that were asked for.
    #[doc(hidden)]
    pub fn parts(&self) -> (Vec<&'a str>, Vec<String>) {
        (self.rest.borrow().clone(), self.known.borrow().clone())
    }

    /// The value of an option: the given one, or else the default that the tool's help declares.
    pub fn value(&self, name: &str) -> Result<Option<&'a str>> {
        Ok(self.given(name)?.or_else(|| self.default(name)))
    }

    /// The value of an option, if it was given.
    pub(crate) fn given(&self, name: &str) -> Result<Option<&'a str>> {
        self.ask(name);
        let mut rest = self.rest.borrow_mut();
        let mut found = None;
        let mut i = 0;
        while i < rest.len() {
            let value = if rest[i] == name {
                if i + 1 == rest.len() {
                    return Err(needs_value(name));
                }
                rest.remove(i);
                rest.remove(i)
            } else if let Some(value) = rest[i].strip_prefix(name).and_then(|v| v.strip_prefix('='))
            {
                rest.remove(i);
                value
            } else {
                i += 1;
                continue;
            };
            if found.replace(value).is_some() {
                let message = format!("the option {name} was given twice");
                return Err(WrongOption::new(message).into());
            }
        }
        Ok(found)
    }

    /// The values of an option that may be given several times.
    pub fn values(&self, name: &str) -> Result<Vec<&'a str>> {
        let mut found = Vec::new();
        let mut first = Vec::new();
        {
            // Each option is looked for after the one that was found before it.
            let mut rest = self.rest.borrow_mut();
            while let Some(i) = rest.iter().position(|arg| {
                *arg == name || arg.strip_prefix(name).is_some_and(|v| v.starts_with('='))
            }) {
                first.extend(rest.drain(..i));
                let arg = rest.remove(0);
                match arg.strip_prefix(name).and_then(|v| v.strip_prefix('=')) {
                    Some(value) => found.push(value),
                    None if rest.is_empty() => {
                        return Err(needs_value(name));
                    }
                    None => found.push(rest.remove(0)),
                }
            }
            first.append(&mut rest);
            *rest = first;
        }
        self.ask(name);
        Ok(found)
    }

    /// The value of an option that is one of a few words; the first is the default.
    pub fn choice<T: Copy>(&self, name: &str, words: &[(&str, T)]) -> Result<T> {
        let list = words
            .iter()
            .map(|(word, _)| *word)
            .collect::<Vec<_>>()
            .join("|");
        let given = self.given(name)?;
        if let Some(known) = self.known.borrow_mut().last_mut() {
            *known = format!("{name} {list}");
        }
        match given {
            None => words.first().map(|(_, value)| *value),
            Some(given) => words
                .iter()
                .find(|(word, _)| *word == given)
                .map(|(_, value)| *value),
        }
        .ok_or_else(|| {
            let given = given.unwrap_or("");
            let message = format!("the option {name} takes {list}, not `{given}`");
            WrongOption::new(message).into()
        })
    }

    /// The value of an option that is a number, perhaps with `k` or `m` for 1024 or 1024². 0 is refused. The tool's help
    /// declares a default; [`Options::given_size`] is for options without one.
    pub fn size(&self, name: &str) -> Result<u64> {
        let lacks = || format!("the tool's help declares no default for its option {name}");
        self.given_size(name)?.ok_or_else(|| lacks().into())
    }

    /// As [`Options::size`]; `None` if the option was not given and the tool's help declares no default.
    pub fn given_size(&self, name: &str) -> Result<Option<u64>> {
        let Some(text) = self.value(name)? else {
            return Ok(None);
        };
        let lower = text.to_ascii_lowercase();
        let (digits, factor) = match lower.strip_suffix(['k', 'm']) {
            Some(digits) if lower.ends_with('k') => (digits, 1 << 10),
            Some(digits) => (digits, 1 << 20),
            None => (lower.as_str(), 1),
        };
        let number = digits.parse::<u64>().ok();
        let number = number
            .and_then(|n| n.checked_mul(factor))
            .filter(|n| *n > 0);
        number.map(Some).ok_or_else(|| takes_number(name, text))
    }

    /// The value of an option that is a number, without a unit. The tool's help declares a default;
    /// [`Options::given_number`] is for options without one.
    pub fn number<T: FromStr>(&self, name: &str) -> Result<T> {
        let lacks = || format!("the tool's help declares no default for its option {name}");
        self.given_number(name)?.ok_or_else(|| lacks().into())
    }

    /// As [`Options::number`]; `None` if the option was not given and the tool's help declares no default.
    pub fn given_number<T: FromStr>(&self, name: &str) -> Result<Option<T>> {
        let Some(text) = self.value(name)? else {
            return Ok(None);
        };
        let number = text.parse().map_err(|_| takes_number(name, text));
        number.map(Some)
    }

    /// True if an option without a value was given.
    pub fn flag(&self, name: &str) -> bool {
        self.known.borrow_mut().push(name.to_owned());
        let mut rest = self.rest.borrow_mut();
        let before = rest.len();
        rest.retain(|arg| *arg != name);
        rest.len() != before
    }

    /// Refuses words that are left, with a message that names the options that were asked for.
    pub fn finish(self) -> Result {
        self.check()
    }

    /// As [`Options::finish`].
    #[doc(hidden)]
    pub fn check(&self) -> Result {
        let rest = self.rest.borrow();
        let Some(first) = rest.first() else {
            return Ok(());
        };
        let known = self.known.borrow();
        let known = match known.as_slice() {
            [] => "none".to_owned(),
            known => known.join(", "),
        };
        let message = format!("unknown option `{first}`: this tool takes {known}");
        Err(WrongOption::new(message).into())
    }
}

fn needs_value(name: &str) -> Error {
    WrongOption::new(format!("the option {name} needs a value")).into()
}

fn takes_number(name: &str, text: &str) -> Error {
    WrongOption::new(format!("the option {name} takes a number, not `{text}`")).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options<'a>(args: &'a [&'a str]) -> Options<'a> {
        let help = "Test\n\n  --page N  bytes (default: 4k)\n  --per a|b, -p\n            unit\n";
        Args::new(args, help, None).options()
    }

    #[test]
    fn values_flags_and_choices() {
        let o = options(&["--output", "x.out", "--per=block", "--quiet"]);
        assert_eq!(o.value("--output").unwrap(), Some("x.out"));
        assert_eq!(
            o.choice("--per", &[("program", 1), ("block", 2)]).unwrap(),
            2
        );
        assert_eq!(o.choice("--depth", &[("all", 7)]).unwrap(), 7);
        assert!(o.flag("--quiet"));
        assert!(!o.flag("--loud"));
        o.finish().unwrap();
    }

    #[test]
    fn values_that_are_repeated() {
        let o = options(&[
            "--x", "1", "--only", "a", "--y=2", "--only=b", "--only", "--z",
        ]);
        assert_eq!(o.values("--only").unwrap(), ["a", "b", "--z"]);
        assert_eq!(o.values("--none").unwrap(), [""; 0]);
        assert_eq!(o.value("--x").unwrap(), Some("1"));
        assert_eq!(o.value("--y").unwrap(), Some("2"));
        o.finish().unwrap();
        assert!(options(&["--only"]).values("--only").is_err());
    }

    #[test]
    fn sizes() {
        let o = options(&[
            "--size",
            "8k",
            "--line=32",
            "--ways",
            "0",
            "--most",
            "99999999999999m",
        ]);
        assert_eq!(o.size("--size").unwrap(), 8192);
        assert_eq!(o.size("--line").unwrap(), 32);
        assert_eq!(o.size("--page").unwrap(), 4096);
        assert_eq!(o.given_size("--none").unwrap(), None);
        assert!(o.size("--none").is_err());
        assert!(o.size("--ways").is_err());
        assert!(o.size("--most").is_err());
    }

    #[test]
    fn mistakes_are_named() {
        let text = |r: Result| r.unwrap_err().to_string();
        assert!(text(options(&["--output"]).value("--output").map(drop)).contains("needs a value"));
        let twice = ["--n", "1", "--n=2"];
        assert!(text(options(&twice).value("--n").map(drop)).contains("twice"));
        let wrong = options(&["--per", "line"]).choice("--per", &[("program", ()), ("block", ())]);
        assert!(text(wrong).contains("program|block, not `line`"));
        let o = options(&["--ouput", "x"]);
        o.value("--output").unwrap();
        assert_eq!(
            text(o.finish()),
            "unknown option `--ouput`: this tool takes --output VALUE"
        );
        assert!(text(options(&["x"]).finish()).contains("takes none"));
        let o = options(&["x"]);
        assert_eq!(o.value("--per").unwrap(), None);
        o.size("--page").unwrap();
        assert!(text(o.finish()).ends_with("takes --per a|b, --page N"));
    }
}
