//! Names of D, by the language's specification of its binary interface ("Name mangling").
//!
//! A name is a list of identifiers, and of parameters where an identifier is a function's. What is after the last
//! one, the type of a variable or of a function's result, is not shown. An identifier or a type that occurred before is a
//! back reference: the letter Q and the distance to it, in letters.

/// Depth of types and template arguments in each other. Deeper ones are refused.
const DEEPEST: u32 = 100;
/// Parts that are read in all, those at back references each time.
const MOST: u32 = 10_000;
/// Bytes of a name for people. Back references may make it much longer than the symbol.
const LONGEST: usize = 100_000;

/// The name for people; `None` if the symbol is not D's.
pub fn demangle(symbol: &str) -> Option<String> {
    let mut reader = Reader {
        bytes: symbol.strip_prefix("_D")?.as_bytes(),
        at: 0,
        depth: 0,
        parts: 0,
    };
    let mut name = String::new();
    reader.qualified(&mut name)?;
    match reader.next() {
        // Symbols that the compiler makes have no type.
        Some(b'Z') => reader.at += 1,
        _ => reader.type_of(&mut String::new())?,
    }
    (reader.at == reader.bytes.len()).then_some(name)
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    depth: u32,
    parts: u32,
}

impl Reader<'_> {
    fn next(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn take(&mut self) -> Option<u8> {
        let byte = self.next()?;
        self.at += 1;
        Some(byte)
    }

    /// Goes past a text if it is here.
    fn skip(&mut self, text: &[u8]) -> bool {
        let is_here = self.bytes[self.at..].starts_with(text);
        self.at += if is_here { text.len() } else { 0 };
        is_here
    }

    fn number(&mut self) -> Option<usize> {
        let start = self.at;
        while self.next().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        std::str::from_utf8(&self.bytes[start..self.at])
            .ok()?
            .parse()
            .ok()
    }

    /// The place to which the back reference here leads. Digits are letters: capitals, and a small one at the end.
    fn reference(&mut self) -> Option<usize> {
        let start = self.at;
        self.skip(b"Q").then_some(())?;
        let mut distance: usize = 0;
        loop {
            let byte = self.take()?;
            let (digit, is_last) = match byte {
                b'A'..=b'Z' => (byte - b'A', false),
                b'a'..=b'z' => (byte - b'a', true),
                _ => return None,
            };
            distance = distance.checked_mul(26)?.checked_add(digit.into())?;
            if is_last {
                return start.checked_sub(distance).filter(|to| *to < start);
            }
        }
    }

    /// Reads something at another place with `read`.
    fn elsewhere(&mut self, at: usize, read: impl FnOnce(&mut Self) -> Option<()>) -> Option<()> {
        let back = std::mem::replace(&mut self.at, at);
        let done = read(self);
        self.at = back;
        done
    }

    /// Reads a part that may contain parts of its kind.
    fn inner(
        &mut self,
        to: &mut String,
        read: impl FnOnce(&mut Self, &mut String) -> Option<()>,
    ) -> Option<()> {
        if self.depth == DEEPEST || self.parts == MOST || to.len() > LONGEST {
            return None;
        }
        self.depth += 1;
        self.parts += 1;
        let done = read(self, to);
        self.depth -= 1;
        done
    }

    /// True if an identifier is here.
    fn is_identifier(&self) -> bool {
        match self.next() {
            Some(b'0'..=b'9') => true,
            Some(b'_') => self.is_template(),
            Some(b'Q') => {
                let mut there = Reader { ..*self };
                let to = there.reference();
                to.is_some_and(|to| self.bytes[to].is_ascii_digit())
            }
            _ => false,
        }
    }

    fn is_template(&self) -> bool {
        let rest = &self.bytes[self.at..];
        rest.starts_with(b"__T") || rest.starts_with(b"__U")
    }

    fn qualified(&mut self, to: &mut String) -> Option<()> {
        let mut is_first = true;
        loop {
            if self.skip(b"0") {
                continue;
            }
            if !is_first {
                to.push('.');
            }
            is_first = false;
            self.identifier(to)?;
            self.parameters_of_name(to);
            if !self.is_identifier() {
                return Some(());
            }
        }
    }

    /// The parameters of a function, and the modifiers of a method's `this`, unless what is here is the type of something
    /// else.
    fn parameters_of_name(&mut self, to: &mut String) {
        let (start, written) = (self.at, to.len());
        let modifiers = if self.skip(b"M") {
            self.modifiers()
        } else {
            String::new()
        };
        let is_function = self.is_convention() && self.function(to).is_some();
        if is_function && self.next().is_some() {
            return to.push_str(&modifiers);
        }
        self.at = start;
        to.truncate(written);
    }

    fn identifier(&mut self, to: &mut String) -> Option<()> {
        self.inner(to, |reader, to| {
            if reader.next() == Some(b'Q') {
                let there = reader.reference()?;
                return reader.elsewhere(there, |reader| reader.identifier(to));
            }
            if reader.is_template() {
                return reader.template(to);
            }
            let length = reader.number()?;
            let end = reader.at.checked_add(length)?;
            if reader.is_template() {
                // Older compilers write the length of the instance, too.
                reader.template(to)?;
                return (reader.at == end).then_some(());
            }
            let name = std::str::from_utf8(reader.bytes.get(reader.at..end)?).ok()?;
            reader.at = end;
            to.push_str(match name {
                "" => return None,
                "__ctor" => "this",
                "__dtor" => "~this",
                "__postblit" => "this(this)",
                name => name,
            });
            Some(())
        })
    }

    /// An instance of a template: its name and its arguments.
    fn template(&mut self, to: &mut String) -> Option<()> {
        self.at += 3;
        self.identifier(to)?;
        to.push_str("!(");
        let mut separator = "";
        loop {
            match self.take()? {
                b'Z' => break,
                // A specialised argument is like others.
                b'H' => continue,
                kind => {
                    to.push_str(separator);
                    separator = ", ";
                    self.argument(kind, to)?;
                }
            }
        }
        to.push(')');
        Some(())
    }

    fn argument(&mut self, kind: u8, to: &mut String) -> Option<()> {
        match kind {
            b'T' => self.type_of(to),
            b'S' if self.skip(b"_D") => {
                self.qualified(to)?;
                if self.skip(b"Z") {
                    Some(())
                } else {
                    self.type_of(&mut String::new())
                }
            }
            b'S' => self.qualified(to),
            b'V' => {
                let mut of = String::new();
                // The type tells how a number is written.
                let first = match self.next()? {
                    b'Q' => {
                        let mut there = Reader { ..*self };
                        let at = there.reference()?;
                        self.bytes[at]
                    }
                    other => other,
                };
                self.type_of(&mut of)?;
                self.value(first, &of, to)
            }
            b'X' => {
                let length = self.number()?;
                let end = self.at.checked_add(length)?;
                to.push_str(std::str::from_utf8(self.bytes.get(self.at..end)?).ok()?);
                self.at = end;
                Some(())
            }
            _ => None,
        }
    }

    /// A value of the type whose first letter is `kind` and whose name is `of`.
    fn value(&mut self, kind: u8, of: &str, to: &mut String) -> Option<()> {
        self.inner(to, |reader, to| match reader.next()? {
            b'n' => {
                reader.at += 1;
                to.push_str("null");
                Some(())
            }
            b'i' | b'N' | b'0'..=b'9' => {
                match reader.next()? {
                    b'i' => reader.at += 1,
                    b'N' => {
                        reader.at += 1;
                        to.push('-');
                    }
                    _ => {}
                }
                let number = reader.number()?;
                let character = u32::try_from(number).ok().and_then(char::from_u32);
                match (kind, number) {
                    (b'b', 0) => to.push_str("false"),
                    (b'b', _) => to.push_str("true"),
                    (b'a' | b'u' | b'w', _) => {
                        let character = character?.escape_default();
                        to.push('\'');
                        to.extend(character);
                        to.push('\'');
                    }
                    _ => to.push_str(&number.to_string()),
                }
                Some(())
            }
            b'e' => {
                reader.at += 1;
                reader.real(to)
            }
            b'c' => {
                reader.at += 1;
                reader.real(to)?;
                to.push('+');
                reader.skip(b"c").then_some(())?;
                reader.real(to)?;
                to.push('i');
                Some(())
            }
            b'a' | b'w' | b'd' => reader.string(to),
            b'A' => {
                reader.at += 1;
                let count = reader.number()?;
                reader.list(["[", "]"], count, kind == b'H', to)
            }
            b'S' => {
                reader.at += 1;
                let count = reader.number()?;
                to.push_str(of);
                reader.list(["(", ")"], count, false, to)
            }
            b'f' => {
                reader.at += 1;
                reader.skip(b"_D").then_some(())?;
                reader.qualified(to)?;
                reader.type_of(&mut String::new())
            }
            _ => None,
        })
    }

    fn list(&mut self, ends: [&str; 2], count: usize, is_map: bool, to: &mut String) -> Option<()> {
        to.push_str(ends[0]);
        for n in 0..count {
            to.push_str(if n == 0 { "" } else { ", " });
            self.value(0, "", to)?;
            if is_map {
                to.push(':');
                self.value(0, "", to)?;
            }
        }
        to.push_str(ends[1]);
        Some(())
    }

    /// A number in hexadecimal digits, with an exponent of 2.
    fn real(&mut self, to: &mut String) -> Option<()> {
        for (text, what) in [("NAN", "NaN"), ("INF", "Inf"), ("NINF", "-Inf")] {
            if self.skip(text.as_bytes()) {
                to.push_str(what);
                return Some(());
            }
        }
        if self.skip(b"N") {
            to.push('-');
        }
        to.push_str("0x");
        let mut is_behind = false;
        while let Some(digit) = self
            .next()
            .filter(|b| b.is_ascii_hexdigit() && !b.is_ascii_lowercase())
        {
            self.at += 1;
            to.push(digit.into());
            if !std::mem::replace(&mut is_behind, true) {
                to.push('.');
            }
        }
        self.skip(b"P").then_some(())?;
        to.push('p');
        if self.skip(b"N") {
            to.push('-');
        }
        to.push_str(&self.number()?.to_string());
        Some(())
    }

    fn string(&mut self, to: &mut String) -> Option<()> {
        let kind = self.take()?;
        let length = self.number()?;
        self.skip(b"_").then_some(())?;
        to.push('"');
        for _ in 0..length {
            let digits = self.bytes.get(self.at..self.at + 2)?;
            let byte = u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?;
            self.at += 2;
            to.extend(char::from(byte).escape_default());
        }
        to.push('"');
        if kind != b'a' {
            to.push(kind.into());
        }
        Some(())
    }

    /// The modifiers of a method or of a delegate.
    fn modifiers(&mut self) -> String {
        const ALL: [(&[u8], &str); 4] = [
            (b"x", " const"),
            (b"y", " immutable"),
            (b"O", " shared"),
            (b"Ng", " inout"),
        ];
        let mut modifiers = String::new();
        while let Some((_, name)) = ALL.iter().find(|(text, _)| self.skip(text)) {
            modifiers.push_str(name);
        }
        modifiers
    }

    fn is_convention(&self) -> bool {
        matches!(self.next(), Some(b'F' | b'U' | b'W' | b'V' | b'R' | b'Y'))
    }

    /// A function's type without its result: convention, attributes and parameters, of which the last are shown.
    fn function(&mut self, to: &mut String) -> Option<()> {
        self.at += 1;
        while self.next() == Some(b'N') {
            match self.bytes.get(self.at + 1)? {
                // These belong to the first parameter.
                b'g' | b'h' | b'k' | b'n' => break,
                b'a'..=b'm' => self.at += 2,
                _ => return None,
            }
        }
        to.push('(');
        let mut is_first = true;
        loop {
            match self.next()? {
                b'X' => {
                    self.at += 1;
                    to.push_str("...");
                    break;
                }
                b'Y' => {
                    self.at += 1;
                    to.push_str(if is_first { "..." } else { ", ..." });
                    break;
                }
                b'Z' => {
                    self.at += 1;
                    break;
                }
                _ => {}
            }
            to.push_str(if is_first { "" } else { ", " });
            is_first = false;
            self.parameter(to)?;
        }
        to.push(')');
        Some(())
    }

    fn parameter(&mut self, to: &mut String) -> Option<()> {
        loop {
            let class = match (self.next()?, self.bytes.get(self.at + 1)) {
                (b'M', _) => "scope ",
                (b'J', _) => "out ",
                (b'I', _) => "in ",
                (b'K', _) => "ref ",
                (b'L', _) => "lazy ",
                (b'N', Some(b'k')) => "return ",
                _ => return self.type_of(to),
            };
            self.at += if class == "return " { 2 } else { 1 };
            to.push_str(class);
        }
    }

    fn type_of(&mut self, to: &mut String) -> Option<()> {
        self.inner(to, Self::type_here)
    }

    fn type_here(&mut self, to: &mut String) -> Option<()> {
        if self.next() == Some(b'Q') {
            let there = self.reference()?;
            return self.elsewhere(there, |reader| reader.type_of(to));
        }
        if self.is_convention() {
            return self.callable("function", to);
        }
        let mut around = |reader: &mut Self, before: &str, behind: &str| {
            to.push_str(before);
            reader.type_of(to)?;
            to.push_str(behind);
            Some(())
        };
        match self.take()? {
            b'x' => around(self, "const(", ")"),
            b'y' => around(self, "immutable(", ")"),
            b'O' => around(self, "shared(", ")"),
            b'A' => around(self, "", "[]"),
            b'P' if self.is_convention() => self.callable("function", to),
            b'P' => around(self, "", "*"),
            b'G' => {
                let length = self.number()?;
                around(self, "", &format!("[{length}]"))
            }
            b'H' => {
                let mut key = String::new();
                self.type_of(&mut key)?;
                self.type_of(to)?;
                to.push_str(&format!("[{key}]"));
                Some(())
            }
            b'D' => {
                self.modifiers();
                self.callable("delegate", to)
            }
            b'I' | b'C' | b'S' | b'E' | b'T' => self.qualified(to),
            b'B' => {
                to.push_str("Tuple!(");
                let count = self.number()?;
                for n in 0..count {
                    to.push_str(if n == 0 { "" } else { ", " });
                    self.type_of(to)?;
                }
                to.push(')');
                Some(())
            }
            b'N' => match self.take()? {
                b'g' => around(self, "inout(", ")"),
                b'h' => around(self, "__vector(", ")"),
                b'n' => {
                    to.push_str("noreturn");
                    Some(())
                }
                _ => None,
            },
            b'z' => {
                to.push_str(match self.take()? {
                    b'i' => "cent",
                    b'k' => "ucent",
                    _ => return None,
                });
                Some(())
            }
            basic => {
                to.push_str(basic_type(basic)?);
                Some(())
            }
        }
    }

    /// A pointer to a function, or a delegate.
    fn callable(&mut self, kind: &str, to: &mut String) -> Option<()> {
        if self.next() == Some(b'Q') {
            let there = self.reference()?;
            return self.elsewhere(there, |reader| reader.callable(kind, to));
        }
        let mut parameters = String::new();
        self.is_convention().then_some(())?;
        self.function(&mut parameters)?;
        self.type_of(to)?;
        to.push(' ');
        to.push_str(kind);
        to.push_str(&parameters);
        Some(())
    }
}

fn basic_type(letter: u8) -> Option<&'static str> {
    Some(match letter {
        b'v' => "void",
        b'g' => "byte",
        b'h' => "ubyte",
        b's' => "short",
        b't' => "ushort",
        b'i' => "int",
        b'k' => "uint",
        b'l' => "long",
        b'm' => "ulong",
        b'f' => "float",
        b'd' => "double",
        b'e' => "real",
        b'o' => "ifloat",
        b'p' => "idouble",
        b'j' => "ireal",
        b'q' => "cfloat",
        b'r' => "cdouble",
        b'c' => "creal",
        b'b' => "bool",
        b'a' => "char",
        b'u' => "wchar",
        b'w' => "dchar",
        b'n' => "typeof(null)",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::demangle;

    #[test]
    fn names_of_all_kinds() {
        for (symbol, name) in [
            (
                "_D2rt3aaA4Impl3dimMxFNaNbNdNiNfZm",
                "rt.aaA.Impl.dim() const",
            ),
            (
                "_D2rt3aaA4Impl14findSlotLookupMNgFmMxPvMxC8TypeInfoZPNgSQCcQCc6Bucket",
                "rt.aaA.Impl.findSlotLookup(ulong, scope const(void*), scope const(TypeInfo)) inout",
            ),
            (
                "_D4test3fooFiPvAyaZv",
                "test.foo(int, void*, immutable(char)[])",
            ),
            ("_D4test6__ctorMFKxiZv", "test.this(ref const(int))"),
            (
                "_D8demangle4testFDFNbiZvZv",
                "demangle.test(void delegate(int))",
            ),
            ("_D8demangle4testFHiAaZv", "demangle.test(char[][int])"),
            ("_D4test__T3mapTiVmi3ZQlFNaNbZi", "test.map!(int, 3).map()"),
            ("_D4test5outerFiZ5innerMFZv", "test.outer(int).inner()"),
            ("_D3std5stdio12__ModuleInfoZ", "std.stdio.__ModuleInfo"),
            ("_D4test5countk", "test.count"),
        ] {
            assert_eq!(demangle(symbol).as_deref(), Some(name), "{symbol}");
        }
        for other in [
            "_D",
            "_Data",
            "_D4tes",
            "_D4test",
            "_D9999999999999999999999a",
            "_D1aQa",
            "_DYNAMIC",
        ] {
            assert_eq!(demangle(other), None, "{other}");
        }
    }
}
