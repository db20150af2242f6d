//! The options.

use atom_tool::prelude::*;

use crate::leaks::Detail;
use crate::out::Manner;
use crate::told::Leak;

plain_data! {
    /// What the start is told.
    pub struct Settings {
        /// Bytes of freed blocks that wait.
        pub quarantine: u64,
        /// Largest number of calls of a stack.
        pub callers: u32,
        pub manner: Manner,
    }
}

/// The options of one use.
pub struct Options {
    pub settings: Settings,
    /// Names of files: for lines, for XML, and of suppressions.
    pub names: StringList,
    pub detail: Detail,
    pub exit_code: i32,
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
            (word, None) => return Err(format!("`{word}` is no kind of leaks").into()),
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
    let exit_code = text("--error-exitcode")?.parse()?;
    let quarantine = options.size("--freelist-vol")?;
    let callers = text("--num-callers")?.parse()?;
    let log = text("--log-file")?;
    let xml = options.value("--xml-file")?;
    let is_xml = options.choice("--xml", &[("no", false), ("yes", true)])? || xml.is_some();
    let generates = [("no", false), ("yes", true), ("all", true)];
    let with_suppressions = options.choice("--gen-suppressions", &generates)?;
    let suppressions = options.values("--suppressions")?;
    let is_quiet = options.flag("--quiet") | options.flag("-q");
    options.finish()?;

    let mut names = StringList::new();
    for name in [log, xml.unwrap_or_default(), &suppressions.join("\n")] {
        names.push(name);
    }
    Ok(Options {
        settings: Settings {
            quarantine,
            callers,
            manner: Manner {
                is_xml: is_xml.into(),
                is_quiet: is_quiet.into(),
                with_suppressions: with_suppressions.into(),
                _unused: 0,
            },
        },
        names,
        detail: Detail {
            is_off: u8::from(check == Check::No),
            is_full: u8::from(check == Check::Full),
            shown,
            errors,
        },
        exit_code,
    })
}
