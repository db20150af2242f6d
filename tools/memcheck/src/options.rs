//! The options.

use atom_tool::prelude::*;

use crate::check::Partly;
use crate::errors::Limits;
use crate::heap::{Fill, NO_FILL};
use crate::leaks::Detail;
use crate::out::Manner;
use crate::told::Leak;

plain_data! {
    /// What the start is told.
    pub struct Settings {
        /// Bytes of freed blocks that wait.
        pub quarantine: u64,
        pub manner: Manner,
        /// Largest number of calls of a stack.
        pub callers: u16,
        pub limits: Limits,
        pub fill: Fill,
        /// See [`Partly`].
        pub partly: u64,
    }
}

/// The options of one use.
pub struct Options {
    pub settings: Settings,
    /// What [`crate::given::Given`] reads.
    pub names: StringList,
    pub detail: Detail,
    pub exit_code: i32,
    /// The program is told that it runs under Valgrind.
    pub is_told: bool,
}

/// Kinds of leaks as bits.
fn kinds(text: &str) -> Result<u8> {
    let mut bits = 0;
    for word in text.split(',') {
        let leak = Leak::ALL.into_iter().find(|leak| leak.word() == word);
        bits |= match (word, leak) {
            ("all", _) => 15,
            ("none", _) => 0,
            (_, Some(leak)) => 1 << leak as u8,
            (word, None) => {
                return Err(WrongOption::new(format!("`{word}` is no kind of leaks")).into());
            }
        };
    }
    Ok(bits)
}

/// How much is told of leaks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Check {
    Summary,
    Full,
    No,
}

/// A byte to fill with, as a hexadecimal number.
fn byte(options: &atom_tool::Options<'_>, name: &str) -> Result<u16> {
    let Some(text) = options.value(name)? else {
        return Ok(NO_FILL);
    };
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let wrong = |_| {
        WrongOption::new(format!(
            "the option {name} takes a hexadecimal byte, not `{text}`"
        ))
    };
    Ok(u8::from_str_radix(digits, 16).map_err(wrong)?.into())
}

/// Reads the options.
///
/// # Errors
/// If one is not known or has a wrong value.
pub fn read(args: &Args) -> Result<Options> {
    let options = args.options();
    let checks = [
        ("summary", Check::Summary),
        ("full", Check::Full),
        ("yes", Check::Full),
        ("no", Check::No),
    ];
    let check = options.choice("--leak-check", &checks)?;
    let text = |name: &str| options.value(name).map(Option::unwrap_or_default);
    let shown = kinds(text("--show-leak-kinds")?)?;
    let errors = kinds(text("--errors-for-leak-kinds")?)?;
    let exit_code: i32 = options.number("--error-exitcode")?;
    let quarantine = options.size("--freelist-vol")?;
    let callers = options.number("--num-callers")?;
    let yes = |name: &str| options.choice(name, &[("no", 0), ("yes", 1)]);
    let no = |name: &str| options.choice(name, &[("yes", 0), ("no", 1)]);
    let resolutions = [("high", 0), ("med", 4), ("low", 2)];
    let resolution = options.choice("--leak-resolution", &resolutions)?;
    let limits = Limits {
        has_none: no("--error-limit")?,
        hides_mismatches: no("--show-mismatched-frees")?,
    };
    let fill = Fill {
        allocated: byte(&options, "--malloc-fill")?,
        freed: byte(&options, "--free-fill")?,
    };
    let loads = [
        ("vectors", Partly::Vectors),
        ("yes", Partly::All),
        ("no", Partly::None),
    ];
    let partly = options.choice("--partial-loads-ok", &loads)?;
    let log = text("--log-file")?;
    let xml = options.value("--xml-file")?;
    let generates = [("no", 0), ("yes", 1), ("all", 1)];
    let manner = Manner {
        log_fd: options.number("--log-fd")?,
        xml_fd: options.number("--xml-fd")?,
        first_error_code: if yes("--exit-on-first-error")? == 1 {
            exit_code
        } else {
            0
        },
        is_xml: yes("--xml")? | u8::from(xml.is_some()),
        is_quiet: u8::from(options.flag("--quiet") | options.flag("-q")),
        with_suppressions: options.choice("--gen-suppressions", &generates)?,
        is_silent_in_child: yes("--child-silent-after-fork")?,
    };
    let is_told = yes("--running-on-valgrind")? == 1;
    let suppressions = options.values("--suppressions")?;
    let run = text("--run-file")?;
    options.finish()?;

    let mut names = StringList::new();
    for name in [run, log, xml.unwrap_or_default(), &suppressions.join("\n")] {
        names.push(name);
    }
    Ok(Options {
        settings: Settings {
            quarantine,
            manner,
            callers,
            limits,
            fill,
            partly: partly as u64,
        },
        names,
        detail: Detail {
            is_off: u8::from(check == Check::No),
            is_full: u8::from(check == Check::Full),
            shown,
            errors,
            resolution,
        },
        exit_code,
        is_told,
    })
}
