//! Files of suppressions, in Valgrind's form: which errors are not told.

use std::fmt::Write as _;
use std::sync::OnceLock;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::told::{Frame, Kind, Told};

/// A line of a suppression about the call stack.
#[derive(Debug)]
enum Place {
    Function(String),
    Object(String),
    /// Source file, and perhaps a line.
    Source(String),
    /// Any number of calls.
    Any,
}

/// A suppression.
#[derive(Debug)]
struct Suppression {
    name: String,
    /// The kind: `Addr4`, `Leak`.
    kind: String,
    /// A line that belongs to the kind: the argument of a system call, or the kinds of leaks.
    extra: Option<String>,
    places: Vec<Place>,
    count: AtomicU64,
}

static ALL: OnceLock<Vec<Suppression>> = OnceLock::new();

/// Reads the files.
///
/// # Errors
/// If a file cannot be read or understood.
pub fn begin(files: &[String]) -> Result<(), String> {
    let mut all = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(file).map_err(|error| format!("{file}: {error}"))?;
        read(&text, &mut all).map_err(|error| format!("{file}: {error}"))?;
    }
    let _ = ALL.set(all);
    Ok(())
}

fn read(text: &str, all: &mut Vec<Suppression>) -> Result<(), String> {
    let lines = text.lines().map(str::trim);
    let mut lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    while let Some(line) = lines.next() {
        if line != "{" {
            return Err(format!("a suppression does not begin with `{line}`"));
        }
        let body: Vec<&str> = lines.by_ref().take_while(|line| *line != "}").collect();
        let [name, kind, rest @ ..] = body.as_slice() else {
            return Err("a suppression needs a name and a kind".into());
        };
        let Some((tools, kind)) = kind.split_once(':') else {
            return Err(format!("`{kind}` is no kind of errors"));
        };
        if !tools
            .split(',')
            .any(|tool| tool.trim().eq_ignore_ascii_case("memcheck"))
        {
            continue;
        }
        let mut suppression = Suppression {
            name: (*name).to_owned(),
            kind: kind.trim().to_owned(),
            extra: None,
            places: Vec::new(),
            count: AtomicU64::new(0),
        };
        for line in rest {
            match line.split_once(':') {
                _ if *line == "..." => suppression.places.push(Place::Any),
                Some(("fun", name)) => suppression.places.push(Place::Function(name.into())),
                Some(("obj", name)) => suppression.places.push(Place::Object(name.into())),
                Some(("src", name)) => suppression.places.push(Place::Source(name.into())),
                Some(("match-leak-kinds", kinds)) => suppression.extra = Some(kinds.into()),
                _ if suppression.places.is_empty() => suppression.extra = Some((*line).into()),
                _ => return Err(format!("`{line}` is not understood")),
            }
        }
        all.push(suppression);
    }
    Ok(())
}

/// True if text is as a pattern with `*` and `?` says.
fn is_like(pattern: &[u8], text: &[u8]) -> bool {
    // The place after the last star, and the text's byte there.
    let mut again: Option<[usize; 2]> = None;
    let (mut p, mut t) = (0, 0);
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                again = Some([p + 1, t]);
                p += 1;
            }
            Some(c) if *c == b'?' || *c == text[t] => {
                p += 1;
                t += 1;
            }
            _ => match &mut again {
                Some([after, from]) => {
                    *from += 1;
                    (p, t) = (*after, *from);
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == b'*')
}

impl Place {
    fn is_of(&self, frame: &Frame) -> bool {
        let like = |pattern: &String, text: &str| is_like(pattern.as_bytes(), text.as_bytes());
        match self {
            Self::Function(name) => like(name, &frame.symbol) || like(name, &frame.function),
            // A function of the allocator is in a library; which one does not matter.
            Self::Object(name) => frame.address.is_none() || like(name, frame.object_path()),
            Self::Source(name) => {
                let file = frame.short_file();
                like(name, file) || like(name, &format!("{file}:{}", frame.line))
            }
            Self::Any => true,
        }
    }
}

/// True if the places are of the beginning of a stack.
fn fits(places: &[Place], frames: &[Frame]) -> bool {
    match (places, frames) {
        ([], _) => true,
        ([Place::Any, rest @ ..], _) => (0..=frames.len()).any(|i| fits(rest, &frames[i..])),
        ([first, rest @ ..], [frame, frames @ ..]) => first.is_of(frame) && fits(rest, frames),
        (_, []) => false,
    }
}

impl Suppression {
    fn is_of(&self, told: &Told) -> bool {
        let is_kind = match told.kind {
            Kind::Leak(leak) => {
                let kinds = self.extra.as_deref().unwrap_or("all");
                let is_all = kinds.trim() == "all";
                self.kind == "Leak" && (is_all || kinds.split(',').any(|k| k.trim() == leak.word()))
            }
            Kind::Param(what) => {
                let pattern = self.extra.as_deref().unwrap_or("*");
                self.kind == "Param" && is_like(pattern.as_bytes(), what.as_bytes())
            }
            kind => self.kind == kind.suppression(),
        };
        is_kind && fits(&self.places, &told.stack)
    }
}

/// True if an error is not to be told.
pub fn suppresses(told: &Told) -> bool {
    let mut all = ALL.get().into_iter().flatten();
    let found = all.find(|suppression| suppression.is_of(told));
    if let Some(found) = found {
        found.count.fetch_add(1, Relaxed);
    }
    found.is_some()
}

/// The names of suppressions that were used, and how often.
pub fn counts() -> Vec<(String, u64)> {
    let all = ALL.get().into_iter().flatten();
    all.map(|s| (s.name.clone(), s.count.load(Relaxed)))
        .filter(|(_, count)| *count != 0)
        .collect()
}

/// A suppression for an error.
pub fn write(told: &Told) -> String {
    let mut text = format!(
        "{{\n   <insert_a_suppression_name_here>\n   Memcheck:{}\n",
        told.kind.suppression()
    );
    let _ = match told.kind {
        Kind::Param(what) => writeln!(text, "   {what}"),
        Kind::Leak(leak) => writeln!(text, "   match-leak-kinds: {}", leak.word()),
        _ => Ok(()),
    };
    for frame in &told.stack {
        let _ = writeln!(text, "   fun:{}", frame.symbol);
    }
    text.push_str("}\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_have_stars_and_question_marks() {
        let is = |pattern: &str, text: &str| is_like(pattern.as_bytes(), text.as_bytes());
        assert!(is("*", "") && is("a*c", "abbc") && is("a*b*c", "a12b12bc") && is("a?c", "abc"));
        assert!(!is("a*c", "ab") && !is("", "a") && !is("a?c", "ac") && is("_Z*new*", "_Znew"));
    }

    fn told(kind: Kind, functions: &[&str]) -> Told {
        let frames = functions.iter();
        Told {
            kind,
            what: String::new(),
            stack: frames.map(|f| Frame::of_function(f, f, None)).collect(),
            parts: Vec::new(),
            leaked: None,
        }
    }

    #[test]
    fn suppressions_are_of_kinds_and_stacks() {
        let mut all = Vec::new();
        let text = "# a comment\n{\n one\n Memcheck:Addr4\n fun:a*\n ...\n fun:main\n}\n\
                    {\n two\n Memcheck:Leak\n match-leak-kinds: definite,possible\n fun:malloc\n}\n\
                    {\n three\n Helgrind:Race\n fun:x\n}\n";
        read(text, &mut all).expect("they are understood");
        assert_eq!(all.len(), 2);
        assert!(all[0].is_of(&told(Kind::Read(4), &["abc", "x", "y", "main"])));
        assert!(all[0].is_of(&told(Kind::Write(4), &["abc", "main"])));
        assert!(!all[0].is_of(&told(Kind::Read(8), &["abc", "main"])));
        assert!(!all[0].is_of(&told(Kind::Read(4), &["main"])));
        let leak = |leak| told(Kind::Leak(leak), &["malloc", "main"]);
        assert!(all[1].is_of(&leak(crate::told::Leak::Definite)));
        assert!(!all[1].is_of(&leak(crate::told::Leak::Reachable)));
    }
}
