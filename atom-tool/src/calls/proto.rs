//! Calls by name, declared by C prototypes as in ATOM.
//!
//! The compiler checks nothing of this, so everything is checked when the call is added: the arguments against the prototype, and the prototype against
//! the parameter list that `#[analysis]` exports beside the routine.

use std::ffi::c_char;

use atom_abi::host::{self, ArgKind, Reg};

use crate::calls::params::{ParamList, code};
use crate::calls::typed::{Computed, HighHalf, ImageAddress, array, computed, constant, string};
use crate::{Error, Result};

/// An argument of a call by name.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum NamedArg<'a> {
    /// For `char`, `int` and `long`.
    Int(i128),
    /// For `char*`.
    Str(&'a str),
    /// For `char[n]`.
    Chars(&'a [u8]),
    /// For `int[n]`.
    Ints(&'a [i32]),
    /// For `long[n]`.
    Longs(&'a [i64]),
    /// For `REGV`.
    Reg(Reg),
    /// For `REGV`.
    HighHalf(HighHalf),
    /// For `VALUE`: the kind and number of a [`Computed`] type.
    #[doc(hidden)]
    Value(ArgKind, u64),
    /// For `ADDRESS`, at ProgramBefore and ProgramAfter.
    Image(ImageAddress),
    /// For `COUNTER` and the other types of data that the instrument routine has placed.
    Placed(Placed),
    /// For `FILES`, `SITES` and `STRINGS`.
    #[doc(hidden)]
    Encoded(PlacedType, &'a [u8]),
}

/// Data that the instrument routine has placed in the program, as an argument of a routine that is not written
/// in Rust: counters, marks, state of threads. The routine gets its address.
#[derive(Clone, Copy, Debug)]
pub struct Placed {
    pub(crate) what: PlacedType,
    pub(crate) kind: ArgKind,
    pub(crate) offset: u64,
}

impl Placed {
    /// Data of a type, as the argument names it.
    pub(crate) fn new(what: PlacedType, arg: host::Arg) -> Self {
        Self {
            what,
            kind: arg.kind,
            offset: arg.value,
        }
    }

    pub(crate) fn of(what: PlacedType, arg: host::Arg) -> NamedArg<'static> {
        NamedArg::Placed(Self::new(what, arg))
    }
}

/// The types of parameters for [`Placed`] data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs)]
pub enum PlacedType {
    Counter,
    Counters,
    Mark,
    Marks,
    Thread,
    Threads,
    Path,
    Paths,
    Files,
    Sites,
    Strings,
}

impl PlacedType {
    const ALL: [(Self, &'static str); 11] = [
        (Self::Counter, "COUNTER"),
        (Self::Counters, "COUNTERS"),
        (Self::Mark, "MARK"),
        (Self::Marks, "MARKS"),
        (Self::Thread, "THREAD"),
        (Self::Threads, "THREADS"),
        (Self::Path, "PATH"),
        (Self::Paths, "PATHS"),
        (Self::Files, "FILES"),
        (Self::Sites, "SITES"),
        (Self::Strings, "STRINGS"),
    ];
}

macro_rules! from {
    ($($type:ty: $value:ident => $arg:expr;)*) => {$(
        impl<'a> From<$type> for NamedArg<'a> {
            fn from($value: $type) -> Self {
                $arg
            }
        }
    )*};
}
from! {
    i8: n => Self::Int(n.into());
    i16: n => Self::Int(n.into());
    i32: n => Self::Int(n.into());
    i64: n => Self::Int(n.into());
    isize: n => Self::Int(n as i128);
    u8: n => Self::Int(n.into());
    u16: n => Self::Int(n.into());
    u32: n => Self::Int(n.into());
    u64: n => Self::Int(n.into());
    usize: n => Self::Int(n as i128);
    &'a str: s => Self::Str(s);
    &'a [u8]: a => Self::Chars(a);
    &'a [i32]: a => Self::Ints(a);
    &'a [i64]: a => Self::Longs(a);
    Reg: r => Self::Reg(r);
    HighHalf: r => Self::HighHalf(r);
    ImageAddress: a => Self::Image(a);
    Placed: p => Self::Placed(p);
}

macro_rules! from_computed {
    ($($type:ident)*) => {$(
        impl From<crate::calls::typed::$type> for NamedArg<'_> {
            fn from(value: crate::calls::typed::$type) -> Self {
                let (kind, number) = value.kind();
                Self::Value(kind, number)
            }
        }
    )*};
}
from_computed!(
    BrCondValue EffAddrValue EffAddrOf AccessSize AccessSizeOf LoadedValue LoadedValueOf
    StoredValue StoredValueOf RepCount BranchTarget ReturnValue Direction RegSum OutcomeValue OutcomeFor
    ArgumentOf ReturnAddress SystemCallNumber SystemCallArgument SystemCallResult
);

/// A type of a prototype.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Type {
    /// `char`, `int`, `long`: size in bytes.
    Int(u8),
    /// `char*`.
    Str,
    /// `char[n]`, `int[n]`, `long[n]`: size of an element in bytes, number of elements.
    Array(u8, u64),
    /// `REGV`.
    Regv,
    /// `VALUE`.
    Value,
    /// `ADDRESS`.
    Address,
    /// Data that the instrument routine has placed.
    Placed(PlacedType),
}

/// A declared routine.
pub(crate) struct Prototype {
    text: String,
    pub(crate) address: *const (),
    /// For each parameter its type, how a string or an array is passed, and the routine's integer
    /// type.
    params: Vec<(Type, ArgKind, Int)>,
}

/// An integer parameter of a routine. ABI: compilers rely on the caller having
/// extended it by its sign, so 200 for a signed `char` must be passed as -56.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Int {
    /// Size in bytes.
    size: u8,
    signed: bool,
}

impl Int {
    const WIDE: Self = Self {
        size: 8,
        signed: false,
    };

    /// The integer with this code of a parameter type.
    fn of(code: u8) -> Self {
        Self {
            size: 1 << (code >> 4),
            signed: code & 15 == code::SIGNED,
        }
    }

    /// The number as this integer, extended to 64 bits.
    fn extend(self, n: i128) -> u64 {
        let unused = 64 - 8 * u32::from(self.size.min(8));
        let shifted = (n as u64) << unused;
        if self.signed {
            ((shifted as i64) >> unused) as u64
        } else {
            shifted >> unused
        }
    }
}

/// Advice at the end of the error of a routine that is missing, for tools in Rust.
pub const MARK_ROUTINE: &str = "; mark the function with #[analysis]";

/// Parses a prototype and finds its routine by `find`.
pub(crate) fn resolve(text: &str, find: impl Fn(&str) -> *const ()) -> Result<(String, Prototype)> {
    let (name, types) =
        parse(text).map_err(|reason| Error::from(format!("the prototype `{text}`: {reason}")))?;
    let address = find(&name);
    if address.is_null() {
        return Err(format!(
            "the prototype `{text}`: this tool has no analysis routine `{name}`{MARK_ROUTINE}"
        )
        .into());
    }
    let list = find(&format!("atom_params_{name}")).cast::<ParamList>();
    // SAFETY: null, or the static that `#[analysis]` exports under this name.
    let list = unsafe { list.as_ref() };
    let kinds = match list {
        Some(list) => match_list(&types, list)
            .map_err(|reason| Error::from(format!("the prototype `{text}`: {reason}")))?,
        // A routine that was exported by hand has C's representation.
        None => types.iter().map(|t| c_kind(*t)).collect(),
    };
    let ints: Vec<Int> = match list {
        Some(list) => list.codes.iter().map(|c| Int::of(*c)).collect(),
        // On x86-64 C's `char` is signed, as the other types are.
        None => types
            .iter()
            .map(|of| match *of {
                Type::Int(size) => Int { size, signed: true },
                _ => Int::WIDE,
            })
            .collect(),
    };
    let params = types
        .into_iter()
        .zip(kinds)
        .zip(ints)
        .map(|((of, kind), int)| (of, kind, int))
        .collect();
    Ok((
        name,
        Prototype {
            text: text.to_owned(),
            address,
            params,
        },
    ))
}

fn c_kind(of: Type) -> ArgKind {
    match of {
        Type::Int(_) => ArgKind::Const,
        Type::Str => ArgKind::CStr,
        Type::Array(..) => ArgKind::CArray,
        Type::Regv => ArgKind::Regv,
        Type::Value => ArgKind::EffAddrValue,
        Type::Address => ArgKind::ImageAddress,
        Type::Placed(_) => ArgKind::Data,
    }
}

/// Checks the types of a prototype against the routine's parameters; returns how each is passed.
fn match_list(types: &[Type], list: &ParamList) -> Result<Vec<ArgKind>, String> {
    if types.len() != list.count as usize {
        return Err(format!(
            "it has {} parameters, the routine has {}",
            types.len(),
            list.count
        ));
    }
    let mut kinds = Vec::new();
    for (i, (&of, &code)) in types.iter().zip(&list.codes).enumerate() {
        let size = 1u8 << (code >> 4);
        kinds.push(match (of, code & 15) {
            (Type::Int(n), code::INT | code::SIGNED) if n <= size => ArgKind::Const,
            (Type::Str, code::STR) => ArgKind::Str,
            (Type::Str, code::C_POINTER) if size == 1 => ArgKind::CStr,
            (Type::Array(n, _), code::ARRAY) if n == size => ArgKind::Array,
            (Type::Array(n, _), code::C_POINTER) if n == size => ArgKind::CArray,
            (Type::Regv, code::REGV) => ArgKind::Regv,
            (Type::Value, code::VALUE) => ArgKind::EffAddrValue,
            (Type::Regv, code::INT | code::SIGNED) if size == 8 => ArgKind::Regv,
            (Type::Value, code::INT | code::SIGNED) if size == 8 => ArgKind::EffAddrValue,
            _ => {
                return Err(format!(
                    "its parameter {} is `{}`, which the routine does not take there",
                    i + 1,
                    of.name()
                ));
            }
        });
    }
    Ok(kinds)
}

fn parse(text: &str) -> Result<(String, Vec<Type>), String> {
    let text = text.trim().trim_end_matches(';').trim_end();
    let text = text.strip_prefix("void ").unwrap_or(text);
    let (name, rest) = text.split_once('(').ok_or("it has no parameter list")?;
    let list = rest
        .strip_suffix(')')
        .ok_or("its parameter list has no end")?
        .trim();
    let name = name.trim();
    let is_word = |w: &str| {
        !w.is_empty()
            && !w.starts_with(|c: char| c.is_ascii_digit())
            && w.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    if !is_word(name) {
        return Err(format!("`{name}` is not a name"));
    }
    if list.is_empty() || list == "void" {
        return Ok((name.to_owned(), Vec::new()));
    }
    let types = list
        .split(',')
        .map(|p| Type::parse(p.trim(), is_word))
        .collect::<Result<_, _>>()?;
    Ok((name.to_owned(), types))
}

impl Type {
    /// Parses one parameter: a type, perhaps a name, perhaps the length of an array.
    fn parse(text: &str, is_word: impl Fn(&str) -> bool) -> Result<Self, String> {
        let unknown = || {
            format!(
                "`{text}` is not a parameter type; there are char, int, long, char*, char[n], int[n], long[n], REGV, VALUE, ADDRESS, COUNTER, COUNTERS, MARK, MARKS, THREAD, THREADS, PATH, PATHS, FILES, SITES and STRINGS"
            )
        };
        let (front, length) = match text.split_once('[') {
            Some((front, length)) => {
                let length = length.strip_suffix(']').ok_or_else(unknown)?.trim();
                (front, Some(length.parse::<u64>().map_err(|_| unknown())?))
            }
            None => (text, None),
        };
        let end = front
            .find(|c: char| !c.is_ascii_alphanumeric() && c != '_')
            .unwrap_or(front.len());
        let (word, rest) = front.split_at(end);
        let rest = rest.trim();
        let (stars, name) = match rest.strip_prefix('*') {
            Some(name) => (true, name.trim()),
            None => (false, rest),
        };
        if !name.is_empty() && !is_word(name) {
            return Err(unknown());
        }
        let size = match word {
            "char" => 1,
            "int" => 4,
            "long" => 8,
            "REGV" if length.is_none() && !stars => return Ok(Self::Regv),
            "VALUE" if length.is_none() && !stars => return Ok(Self::Value),
            "ADDRESS" if length.is_none() && !stars => return Ok(Self::Address),
            _ if length.is_none() && !stars && Self::placed(word).is_some() => {
                return Self::placed(word).ok_or_else(unknown);
            }
            _ => return Err(unknown()),
        };
        match (stars, length) {
            (false, None) => Ok(Self::Int(size)),
            (false, Some(length)) => Ok(Self::Array(size, length)),
            (true, None) if size == 1 => Ok(Self::Str),
            _ => Err(unknown()),
        }
    }

    /// True for `THREADS` and `PATHS`.
    pub fn is_of_all_threads(self) -> bool {
        matches!(self, Self::Placed(PlacedType::Threads | PlacedType::Paths))
    }

    /// The type of placed data with this name.
    fn placed(word: &str) -> Option<Self> {
        let found = PlacedType::ALL.iter().find(|(_, name)| *name == word)?;
        Some(Self::Placed(found.0))
    }

    /// The type as prototypes have it.
    pub fn name(self) -> String {
        let int = |size| match size {
            1 => "char",
            4 => "int",
            _ => "long",
        };
        match self {
            Self::Int(size) => int(size).to_owned(),
            Self::Str => "char*".to_owned(),
            Self::Array(size, n) => format!("{}[{n}]", int(size)),
            Self::Regv => "REGV".to_owned(),
            Self::Value => "VALUE".to_owned(),
            Self::Address => "ADDRESS".to_owned(),
            Self::Placed(what) => {
                let name = PlacedType::ALL.iter().find(|(of, _)| *of == what);
                name.map_or("", |(_, name)| name).to_owned()
            }
        }
    }
}

impl Prototype {
    /// The types of the parameters.
    pub(crate) fn types(&self) -> Vec<Type> {
        self.params.iter().map(|param| param.0).collect()
    }

    /// The arguments as they cross the border, if they fit.
    pub(crate) fn check(&self, args: &[NamedArg<'_>]) -> Result<Vec<host::Arg>> {
        let name = &self.text;
        if args.len() != self.params.len() {
            return Err(format!(
                "`{name}` takes {} arguments, but the call has {}",
                self.params.len(),
                args.len()
            )
            .into());
        }
        let mut checked = Vec::new();
        for (i, (&(of, kind, int), arg)) in self.params.iter().zip(args).enumerate() {
            let arg = fit(of, kind, int, arg).map_err(|reason| {
                Error::from(format!(
                    "argument {} of `{name}` is `{}`: {reason}",
                    i + 1,
                    of.name()
                ))
            })?;
            checked.push(arg);
        }
        Ok(checked)
    }
}

fn fit(of: Type, kind: ArgKind, int: Int, arg: &NamedArg<'_>) -> Result<host::Arg, String> {
    Ok(match (of, *arg) {
        (Type::Int(size), NamedArg::Int(n)) => {
            let bits = u32::from(size) * 8;
            // Both readings of the bits are accepted: `char` may be 200 or -56.
            if n < -(1i128 << (bits - 1)) || n >= 1i128 << bits {
                return Err(format!("{n} does not fit"));
            }
            constant(int.extend(n))
        }
        (Type::Str, NamedArg::Str(text)) => string(kind, text),
        (Type::Array(1, n), NamedArg::Chars(a)) if a.len() as u64 == n => array(kind, a),
        (Type::Array(4, n), NamedArg::Ints(a)) if a.len() as u64 == n => array(kind, a),
        (Type::Array(8, n), NamedArg::Longs(a)) if a.len() as u64 == n => array(kind, a),
        (Type::Array(..), NamedArg::Chars(_) | NamedArg::Ints(_) | NamedArg::Longs(_)) => {
            return Err("the array has another type or length".to_owned());
        }
        (Type::Regv, NamedArg::Reg(reg)) => computed(ArgKind::Regv, reg as u64),
        (Type::Regv, NamedArg::HighHalf(half)) => computed(ArgKind::RegvHigh, half.0 as u64),
        (Type::Value, NamedArg::Value(kind, number)) => computed(kind, number),
        (Type::Address, NamedArg::Image(address)) => computed(ArgKind::ImageAddress, address.0),
        (Type::Placed(what), NamedArg::Placed(data)) if what == data.what => {
            computed(data.kind, data.offset)
        }
        (Type::Placed(what), NamedArg::Encoded(of, bytes)) if what == of => {
            array(ArgKind::Array, bytes)
        }
        (Type::Placed(_), NamedArg::Placed(_) | NamedArg::Encoded(..)) => {
            return Err("data of another type was given".to_owned());
        }
        (_, given) => return Err(format!("{given:?} was given")),
    })
}

// Bytes of a string are `c_char` here, so a routine may take C's `char*`.
const _: () = assert!(size_of::<c_char>() == 1);

#[cfg(test)]
mod tests {
    use super::*;

    fn value(prototype: Type, int: Int, n: i128) -> Result<i64, String> {
        let arg = fit(prototype, ArgKind::Const, int, &NamedArg::Int(n))?;
        Ok(arg.value as i64)
    }

    #[test]
    fn constants_at_their_limits() {
        let int = |size, signed| Int { size, signed };
        let cases = [
            // A signed char holds 200 as -56; an unsigned one holds -1 as 255.
            (1, int(1, true), 200, Some(-56)),
            (1, int(1, true), -128, Some(-128)),
            (1, int(1, true), 127, Some(127)),
            (1, int(1, true), 128, Some(-128)),
            (1, int(1, false), 200, Some(200)),
            (1, int(1, false), -1, Some(255)),
            (1, int(1, true), 256, None),
            (1, int(1, true), -129, None),
            // A wider parameter takes the number as it is.
            (1, int(4, true), 200, Some(200)),
            (1, int(4, true), -56, Some(-56)),
            (
                4,
                int(4, true),
                i128::from(i32::MIN),
                Some(i64::from(i32::MIN)),
            ),
            (4, int(4, true), i128::from(u32::MAX), Some(-1)),
            (4, int(4, false), i128::from(u32::MAX), Some(0xffff_ffff)),
            (4, int(8, true), i128::from(i32::MAX), Some(0x7fff_ffff)),
            (4, int(4, true), 1 << 32, None),
            (8, int(8, true), i128::from(i64::MIN), Some(i64::MIN)),
            (8, int(8, false), i128::from(u64::MAX), Some(-1)),
            (8, int(8, true), 1 << 64, None),
        ];
        for (size, int, n, expected) in cases {
            let seen = value(Type::Int(size), int, n).ok();
            assert_eq!(seen, expected, "{n} for {size} bytes as {int:?}");
        }
    }

    #[test]
    fn prototypes_as_atom_spells_them() {
        let text = "f(char, int, long, char*, char[3], int[4], long[5], REGV, VALUE)";
        let (name, types) = parse(text).unwrap();
        assert_eq!(name, "f");
        let expected = [
            Type::Int(1),
            Type::Int(4),
            Type::Int(8),
            Type::Str,
            Type::Array(1, 3),
            Type::Array(4, 4),
            Type::Array(8, 5),
            Type::Regv,
            Type::Value,
        ];
        assert_eq!(types, expected);
        assert_eq!(parse("void g(void);").unwrap(), ("g".to_owned(), vec![]));
        assert_eq!(parse("h( int n , char *s )").unwrap().1.len(), 2);
        let placed = "p(COUNTER, MARKS m, THREADS, ADDRESS)";
        let expected = [
            Type::Placed(PlacedType::Counter),
            Type::Placed(PlacedType::Marks),
            Type::Placed(PlacedType::Threads),
            Type::Address,
        ];
        assert_eq!(parse(placed).unwrap().1, expected);
        for bad in [
            "f(COUNTER*)",
            "f(MARK[2])",
            "f",
            "f(",
            "f(double)",
            "f(int*)",
            "f(REGV[2])",
            "2(int)",
            "f(long[x])",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn values_and_registers_go_where_they_belong() {
        let of = |of, arg: NamedArg<'_>| fit(of, ArgKind::Const, Int::WIDE, &arg).map(|a| a.kind);
        let value = NamedArg::from(crate::LoadedValueOf(1));
        assert_eq!(of(Type::Value, value), Ok(ArgKind::LoadedValue));
        assert!(of(Type::Regv, value).is_err());
        assert_eq!(of(Type::Regv, Reg::Xmm3.into()), Ok(ArgKind::Regv));
        let high = NamedArg::from(HighHalf(Reg::Xmm3));
        assert_eq!(of(Type::Regv, high), Ok(ArgKind::RegvHigh));
        let long = Type::Array(8, 2);
        assert!(of(long, NamedArg::Longs(&[1, -1])).is_ok());
        assert!(of(long, NamedArg::Longs(&[1])).is_err());
        assert!(of(long, NamedArg::Ints(&[1, 2])).is_err());
    }
}
