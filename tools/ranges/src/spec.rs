//! The user's words for data and code, and their meaning in the program.

use atom_tool::prelude::*;
use atom_tool::{ProgramInfo, Variable, VariablePlace, names};

/// A data range.
#[derive(Clone, PartialEq, Debug)]
pub struct Data {
    /// Its name in the report.
    pub name: String,
    pub place: DataPlace,
}

/// The place of a data range.
#[derive(Clone, PartialEq, Debug)]
pub enum DataPlace {
    /// At an address of the program's file.
    Image { address: u64, size: u64 },
    /// At an address at run time.
    Absolute { address: u64, size: u64 },
    /// Blocks of the heap.
    Heap(Heap),
    /// A variable of the procedure at this address; the offset in bytes is from rsp before its call.
    Frame { proc: u64, offset: i64, size: u64 },
}

/// A choice of blocks of the heap; a block must meet all conditions.
#[derive(Clone, PartialEq, Debug)]
pub struct Heap {
    /// Pattern of the procedure that allocates the block.
    pub proc: Option<String>,
    /// File, first line and last line of the code that allocates the block.
    pub lines: Option<(String, u32, u32)>,
    /// Smallest and largest size in bytes.
    pub sizes: [u64; 2],
    /// First and last number among the blocks that meet the other conditions, counted from 1.
    pub numbers: [u64; 2],
}

/// A range of code.
#[derive(Clone, PartialEq, Debug)]
pub struct Code {
    pub name: String,
    pub place: CodePlace,
}

/// The place of a range of code.
#[derive(Clone, PartialEq, Debug)]
pub enum CodePlace {
    /// Procedures whose names fit a pattern.
    Procs(String),
    /// File, first line and last line.
    Lines(String, u32, u32),
    /// Addresses of the program's file: the first, and the one after the last.
    Addresses(u64, u64),
}

impl Code {
    pub fn parse(text: &str) -> Result<Self> {
        let (label, spec) = label(text);
        let name = label.unwrap_or(spec).to_owned();
        let place = if let Some((start, end)) = interval(spec)? {
            CodePlace::Addresses(start, end)
        } else if let Some((file, first, last)) = lines(spec) {
            CodePlace::Lines(file.to_owned(), first, last)
        } else {
            CodePlace::Procs(spec.to_owned())
        };
        Ok(Self { name, place })
    }

    pub fn contains(&self, inst: Inst<'_>) -> bool {
        match &self.place {
            CodePlace::Procs(pattern) => is_proc(pattern, inst.proc()),
            CodePlace::Lines(file, first, last) => inst.line().is_some_and(|(name, line)| {
                is_file(name, file) && (*first..=*last).contains(&line)
            }),
            CodePlace::Addresses(start, end) => (*start..*end).contains(&inst.pc()),
        }
    }
}

impl Heap {
    fn parse(spec: &str) -> Result<Self> {
        let mut heap = Self {
            proc: None,
            lines: None,
            sizes: [0, u64::MAX],
            numbers: [1, u64::MAX],
        };
        for part in spec.split(',').filter(|part| !part.is_empty()) {
            let wrong = || {
                format!(
                    "`{part}` does not choose blocks of the heap: say proc=NAME, at=FILE:LINE, size=N, \
                     size=N..M, n=N or n=N..M"
                )
            };
            let (what, value) = part.split_once('=').ok_or_else(wrong)?;
            let both = || -> Option<[u64; 2]> {
                let (first, last) = value.split_once("..").unwrap_or((value, value));
                let last = if last.is_empty() {
                    u64::MAX
                } else {
                    number(last)?
                };
                Some([number(first)?, last])
            };
            match what {
                "proc" => heap.proc = Some(value.to_owned()),
                "at" => {
                    let (file, first, last) = lines(value).ok_or_else(wrong)?;
                    heap.lines = Some((file.to_owned(), first, last));
                }
                "size" => heap.sizes = both().ok_or_else(wrong)?,
                "n" => heap.numbers = both().ok_or_else(wrong)?,
                _ => return Err(wrong().into()),
            }
        }
        Ok(heap)
    }

    /// True if there are no conditions on the code.
    pub fn is_anywhere(&self) -> bool {
        self.proc.is_none() && self.lines.is_none()
    }

    /// Whether a call of the allocator by this instruction meets the conditions on the code.
    pub fn fits(&self, inst: Inst<'_>) -> bool {
        let proc = self.proc.as_ref();
        let proc = proc.is_none_or(|pattern| is_proc(pattern, inst.proc()));
        let lines = self.lines.as_ref().is_none_or(|(file, first, last)| {
            inst.line()
                .is_some_and(|(name, line)| is_file(name, file) && (*first..=*last).contains(&line))
        });
        proc && lines
    }
}

/// The data ranges that a text names, at least one.
pub fn data(program: &Program<'_>, text: &str) -> Result<Vec<Data>> {
    let (label, spec) = label(text);
    let name = label.unwrap_or(spec).to_owned();
    if spec == "heap" || spec.starts_with("heap:") {
        let heap = Heap::parse(spec.strip_prefix("heap:").unwrap_or_default())?;
        let place = DataPlace::Heap(heap);
        return Ok(vec![Data { name, place }]);
    }
    if let Some((address, end)) = interval(spec)? {
        let size = end - address;
        let place = if in_image(program, address) {
            DataPlace::Image { address, size }
        } else {
            DataPlace::Absolute { address, size }
        };
        return Ok(vec![Data { name, place }]);
    }
    let is_path = spec.contains(['.', '[']);
    let scope_end = scope(spec);
    if !is_path && scope_end.is_none() {
        let symbols = symbols(program, spec, &name);
        if !symbols.is_empty() {
            return Ok(symbols);
        }
    }
    let (scope, path) = match scope_end {
        Some(at) => (Some(&spec[..at]), &spec[at + 1..]),
        None => (None, spec),
    };
    variables(program, spec, &name, scope, path)
}

/// Data symbols by name or pattern.
fn symbols(program: &Program<'_>, spec: &str, name: &str) -> Vec<Data> {
    let all = program.data_symbols();
    let found: Vec<_> = all
        .iter()
        .filter(|s| s.size != 0 && (names::matches(spec, s.name) || names::matches(spec, s.symbol)))
        .collect();
    let mut ranges: Vec<Data> = Vec::new();
    for symbol in &found {
        let place = DataPlace::Image {
            address: symbol.address,
            size: symbol.size,
        };
        if ranges.iter().any(|r| r.place == place) {
            continue;
        }
        let name = match (spec.contains(['*', '?']), found.len()) {
            (true, _) => symbol.name.to_owned(),
            (false, 1) => name.to_owned(),
            // Several files have a symbol of that name; the address tells them apart.
            (false, _) => format!("{name} at {}", program.address_text(symbol.address)),
        };
        ranges.push(Data { name, place });
    }
    if let [only] = ranges.as_mut_slice()
        && !spec.contains(['*', '?'])
    {
        only.name = name.to_owned();
    }
    ranges
}

/// Variables by debug information, global or, with a scope, of a function or file.
fn variables(
    program: &Program<'_>,
    spec: &str,
    name: &str,
    scope: Option<&str>,
    path: &str,
) -> Result<Vec<Data>> {
    let all = program.variables(path);
    let mine = |v: &&Variable<'_>| match scope {
        None => v.function.is_none(),
        Some(scope) => {
            let proc = v.function_address.and_then(|at| program.proc_at(at));
            let function = v.function.is_some_and(|f| names::matches(scope, f));
            function
                || proc.is_some_and(|proc| is_proc(scope, proc))
                || v.unit.is_some_and(|unit| is_file(unit, scope))
        }
    };
    let found: Vec<&Variable<'_>> = all.iter().filter(mine).collect();
    let mut ranges = Vec::new();
    let mut why = None;
    for variable in &found {
        let place = match variable.place {
            _ if variable.size == 0 => {
                why = Some("its size is not in the debug information");
                continue;
            }
            VariablePlace::Static(address) => DataPlace::Image {
                address,
                size: variable.size,
            },
            VariablePlace::Frame(offset) => match variable.function_address {
                Some(proc) => DataPlace::Frame {
                    proc,
                    offset,
                    size: variable.size,
                },
                None => {
                    why = Some("its function exists only inlined into others");
                    continue;
                }
            },
            VariablePlace::ThreadLocal => {
                why = Some("each thread has its own, at an address that is not known beforehand");
                continue;
            }
            VariablePlace::Bits => {
                why = Some("it is a bit-field, and not made of whole bytes");
                continue;
            }
            VariablePlace::Moving => {
                why = Some("it lies in registers, or in different places at different times");
                continue;
            }
        };
        let known = |r: &Data| r.place == place;
        if !ranges.iter().any(known) {
            ranges.push(Data {
                name: name.to_owned(),
                place,
            });
        }
    }
    if ranges.len() > 1 {
        for range in &mut ranges {
            let at = match range.place {
                DataPlace::Frame { proc, .. } => proc,
                DataPlace::Image { address, .. } => address,
                _ => continue,
            };
            range.name = format!("{name} at {}", program.address_text(at));
        }
    }
    if !ranges.is_empty() {
        return Ok(ranges);
    }
    Err(match why {
        Some(why) => format!("the data range `{spec}` has no place in memory: {why}"),
        None if !all.is_empty() => {
            let mut names: Vec<&str> = all.iter().filter_map(|v| v.function.or(v.unit)).collect();
            names.sort_unstable();
            names.dedup();
            names.truncate(5);
            format!(
                "there is no data range `{spec}`; there is such a variable in {}: say {}:{path}",
                names.join(", "),
                names.first().unwrap_or(&"FUNCTION")
            )
        }
        None => format!(
            "there is no data range `{spec}`: no symbol of that name, and no such variable in debug \
             information (compile with -g for members, local variables and variables of one file)"
        ),
    }
    .into())
}

/// True for addresses of the program's file.
fn in_image(program: &Program<'_>, address: u64) -> bool {
    let info = |what| program.info(what);
    let start = info(ProgramInfo::TextStartAddress).min(info(ProgramInfo::InitDataStartAddress));
    let end = info(ProgramInfo::UninitDataStartAddress) + info(ProgramInfo::UninitDataSize);
    let end = end.max(info(ProgramInfo::TextStartAddress) + info(ProgramInfo::TextSize));
    (start & !0xf_ffff..end).contains(&address)
}

/// Splits `LABEL=SPEC`; the label is optional.
fn label(text: &str) -> (Option<&str>, &str) {
    match text.split_once('=') {
        Some((label, spec))
            if !label.is_empty()
                && label
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-') =>
        {
            (Some(label), spec)
        }
        _ => (None, text),
    }
}

/// Index of the colon after a scope. The colons of `::` do not count.
fn scope(spec: &str) -> Option<usize> {
    let bytes = spec.as_bytes();
    (0..bytes.len()).rev().find(|i| {
        bytes[*i] == b':' && bytes.get(i + 1) != Some(&b':') && (*i == 0 || bytes[i - 1] != b':')
    })
}

/// Parses `A..B` (without B) or `A+SIZE` into the first address and the one after the last. `None` if the text does
/// not begin with a number.
fn interval(spec: &str) -> Result<Option<(u64, u64)>> {
    let is_number = |text: &str| text.starts_with(|c: char| c.is_ascii_digit());
    let found = match (spec.split_once(".."), spec.split_once('+')) {
        (Some((a, b)), _) if is_number(a) => (number(a), number(b)),
        (None, Some((a, b))) if is_number(a) => {
            let (a, size) = (number(a), number(b));
            (a, a.zip(size).and_then(|(a, size)| a.checked_add(size)))
        }
        _ => return Ok(None),
    };
    match found {
        (Some(a), Some(b)) if a < b && b < 1 << 62 => Ok(Some((a, b))),
        _ => Err(
            format!("`{spec}` is no interval of addresses: say START..END or START+SIZE").into(),
        ),
    }
}

/// Parses `FILE:LINE` or `FILE:FIRST-LAST` into file, first and last line.
fn lines(spec: &str) -> Option<(&str, u32, u32)> {
    let (file, lines) = spec.rsplit_once(':')?;
    let (first, last) = lines.split_once('-').unwrap_or((lines, lines));
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (!file.is_empty() && first <= last).then_some((file, first, last))
}

/// Parses a hexadecimal number, or a decimal number with an optional `k` (1024) or `m` (1024²).
fn number(text: &str) -> Option<u64> {
    if let Some(hex) = text.strip_prefix("0x").or(text.strip_prefix("0X")) {
        return u64::from_str_radix(hex, 16).ok();
    }
    let (digits, factor) = match text.strip_suffix(['k', 'K']) {
        Some(digits) => (digits, 1 << 10),
        None => match text.strip_suffix(['m', 'M']) {
            Some(digits) => (digits, 1 << 20),
            None => (text, 1),
        },
    };
    digits.parse::<u64>().ok()?.checked_mul(factor)
}

/// Whether a path names a file, which is given by its name or the end of its path.
fn is_file(path: &str, file: &str) -> bool {
    path.strip_suffix(file)
        .is_some_and(|rest| rest.is_empty() || rest.ends_with('/') || file.starts_with('/'))
}

/// Whether a pattern names a procedure: by its symbol, by its demangled name, or by that name without
/// parameters, also of a clone (`f(int) [clone .part.0]`). In front the name of its object may be
/// (`libz.so.1:deflate*`).
fn is_proc(pattern: &str, proc: Proc<'_>) -> bool {
    if let Some((object, own)) = pattern.split_once(':')
        && !own.starts_with(':')
        && names::matches(object, proc.object().name())
        && is_proc(own, proc)
    {
        return true;
    }
    let name = proc.name();
    let original = name
        .split_once(" [clone")
        .map_or(name, |(original, _)| original);
    names::matches(pattern, name)
        || names::matches(pattern, proc.symbol())
        || names::without_parameters(original).is_some_and(|name| names::matches(pattern, name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words() {
        assert_eq!(label("a=b"), (Some("a"), "b"));
        assert_eq!(label("heap:size=4"), (None, "heap:size=4"));
        assert_eq!(interval("0x10..0x20").unwrap(), Some((16, 32)));
        assert_eq!(interval("0x10+4k").unwrap(), Some((16, 16 + 4096)));
        assert_eq!(interval("table").unwrap(), None);
        for wrong in ["0x20..0x10", "0x10..", "1+x", "5..5"] {
            assert!(interval(wrong).is_err(), "{wrong}");
        }
        assert_eq!(lines("src/a.c:3-9"), Some(("src/a.c", 3, 9)));
        assert_eq!(lines("a.c:9-3"), None);
        assert_eq!(scope("f:x"), Some(1));
        assert_eq!(scope("a::b"), None);
        assert_eq!(scope("a::f:x.y"), Some(4));
        assert!(is_file("/usr/src/a.c", "a.c") && !is_file("/usr/src/ba.c", "a.c"));
        let heap = Heap::parse("proc=main,size=1k..,n=3").unwrap();
        assert_eq!((heap.sizes, heap.numbers), ([1024, u64::MAX], [3, 3]));
        assert!(Heap::parse("size").is_err());
        assert!(Heap::parse("x=1").is_err());
    }
}
