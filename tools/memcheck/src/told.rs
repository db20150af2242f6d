//! An error as it is told, in whichever form.

use std::fmt::Write as _;

use atom_tool::Site;
use atom_tool::prelude::*;

/// What is wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// With the size of the access.
    Read(u64),
    Write(u64),
    Overlap,
    /// With the system call and its argument.
    Param(&'static str),
    Free,
    Mismatch,
    Pool,
    Check,
    Fishy,
    Leak(Leak),
}

/// How a block that was not freed is led to, in the order of the tables of leaks.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Leak {
    Definite,
    Indirect,
    Possible,
    Reachable,
}

impl Leak {
    pub const ALL: [Self; 4] = [
        Self::Definite,
        Self::Indirect,
        Self::Possible,
        Self::Reachable,
    ];

    /// The word of options and of files of suppressions.
    pub fn word(self) -> &'static str {
        ["definite", "indirect", "possible", "reachable"][self as usize]
    }

    /// What is said of such blocks.
    pub fn text(self) -> &'static str {
        [
            "definitely lost",
            "indirectly lost",
            "possibly lost",
            "still reachable",
        ][self as usize]
    }
}

impl Kind {
    /// The word of Valgrind's XML.
    pub fn xml(self) -> &'static str {
        match self {
            Self::Read(_) => "InvalidRead",
            Self::Write(_) => "InvalidWrite",
            Self::Overlap => "Overlap",
            Self::Param(_) => "SyscallParam",
            Self::Free => "InvalidFree",
            Self::Mismatch => "MismatchedFree",
            Self::Pool => "InvalidMemPool",
            Self::Check => "ClientCheck",
            Self::Fishy => "FishyValue",
            Self::Leak(Leak::Definite) => "Leak_DefinitelyLost",
            Self::Leak(Leak::Indirect) => "Leak_IndirectlyLost",
            Self::Leak(Leak::Possible) => "Leak_PossiblyLost",
            Self::Leak(Leak::Reachable) => "Leak_StillReachable",
        }
    }

    /// The word of files of suppressions.
    pub fn suppression(self) -> String {
        match self {
            Self::Read(size) | Self::Write(size) => format!("Addr{size}"),
            Self::Overlap => "Overlap".into(),
            Self::Param(_) => "Param".into(),
            Self::Free | Self::Mismatch => "Free".into(),
            Self::Pool => "Mempool".into(),
            Self::Check => "User".into(),
            Self::Fishy => "FishyValue".into(),
            Self::Leak(_) => "Leak".into(),
        }
    }
}

/// A call or an instruction.
#[derive(Clone, Debug)]
pub struct Frame {
    /// The original address; `None` for a function that the tool's routine is in place of.
    pub address: Option<Address>,
    /// Its address in this process.
    pub ip: u64,
    pub function: String,
    /// The function's symbol.
    pub symbol: String,
    /// File and line of the source; an empty name if that is not known.
    pub file: &'static str,
    pub line: u32,
    /// Bytes that the function means.
    pub len: Option<u64>,
}

impl Frame {
    pub fn of_site(site: &Site) -> Self {
        let address = Address(site.pc);
        Self {
            address: Some(address),
            ip: address.at_run_time().unwrap_or(site.pc),
            function: site.proc.to_owned(),
            symbol: crate::symbols::of(site).to_owned(),
            file: if site.line == 0 { "" } else { site.file },
            line: site.line,
            len: None,
        }
    }

    /// Code of which nothing but its address is known.
    pub fn of_address(address: Address) -> Self {
        Self {
            address: Some(address),
            ip: address.at_run_time().unwrap_or(address.0),
            ..Self::of_function("???", "???", None)
        }
    }

    pub fn of_function(name: &str, symbol: &str, len: Option<u64>) -> Self {
        Self {
            address: None,
            ip: 0,
            function: name.to_owned(),
            symbol: symbol.to_owned(),
            file: "",
            line: 0,
            len,
        }
    }

    /// True for the program's `main`.
    pub fn is_main(&self) -> bool {
        self.function == "main" && self.address.is_some() && self.object().is_none()
    }

    /// The object that the code is in.
    pub fn object(&self) -> Option<&'static str> {
        self.address?.object()
    }

    /// The path of the object, or its name if that is all that is known.
    pub fn object_path(&self) -> &'static str {
        let Some(address) = self.address else {
            return "";
        };
        let path = crate::symbols::path_of(address.object_number());
        path.or(self.object()).unwrap_or_default()
    }

    /// The source file without its folder.
    pub fn short_file(&self) -> &'static str {
        self.file.rsplit('/').next().unwrap_or(self.file)
    }

    fn write(&self, word: &str, text: &mut String) {
        let _ = match (self.address, self.len) {
            (None, None) => write!(text, "   {word} {}", self.function),
            (None, Some(len)) => write!(text, "   {word} {} of {len} bytes", self.function),
            (Some(address), _) => write!(text, "   {word} {address}: {}", self.function),
        };
        let _ = match self.object() {
            _ if self.line != 0 => writeln!(text, " ({}:{})", self.short_file(), self.line),
            Some(object) => writeln!(text, " (in {object})"),
            None => writeln!(text),
        };
    }
}

/// More about an error, with a call stack.
#[derive(Clone, Debug)]
pub struct Part {
    pub text: String,
    pub stack: Vec<Frame>,
}

/// An error in words.
#[derive(Clone, Debug)]
pub struct Told {
    pub kind: Kind,
    pub what: String,
    pub stack: Vec<Frame>,
    pub parts: Vec<Part>,
    /// Bytes and blocks of a leak.
    pub leaked: Option<(u64, u64)>,
}

/// Writes the calls of a stack, the innermost first.
pub fn write_stack(stack: &[Frame], text: &mut String) {
    let mut word = "at";
    for frame in stack {
        frame.write(word, text);
        word = "by";
    }
}

impl Told {
    /// As lines for people.
    pub fn text(&self) -> String {
        let mut text = format!("{}\n", self.what);
        write_stack(&self.stack, &mut text);
        for part in &self.parts {
            let _ = writeln!(text, " {}", part.text);
            write_stack(&part.stack, &mut text);
        }
        text.push('\n');
        text
    }
}
