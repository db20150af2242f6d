//! What is the same in two builds: objects, source files, procedures.
//!
//! A new build may have another file name and be compiled in another folder, and the compiler numbers its copies of
//! procedures anew (`parse.constprop.0`, `parse.isra.1`). So objects, files and procedures get common names.

use std::collections::{BTreeMap, BTreeSet};

use profile::{Object, ObjectKind, Profile};

/// What compilers put after the name of a procedure that they have copied, split or made local to a file.
const COPIES: [&str; 9] = [
    "constprop",
    "isra",
    "part",
    "cold",
    "llvm",
    "lto_priv",
    "specialized",
    "warm",
    "resolved",
];

/// Objects and source files of a profile as the profile that it is compared with calls them.
pub struct Names {
    /// For each object its name in both profiles, and whether both have other builds of it.
    objects: Vec<(String, bool)>,
    /// Numbers of the objects by their names in the profile itself.
    numbers: BTreeMap<String, usize>,
    /// Source files with another name in the other profile.
    files: BTreeMap<String, String>,
}

/// The names of the objects and files of both profiles; those of the second prevail.
pub fn partners(before: &Profile, after: &Profile) -> [Names; 2] {
    let pairs = objects(before, after);
    let is_other = |a: usize, b: usize| before.objects[a].build_id != after.objects[b].build_id;
    let of_before = before.objects.iter().enumerate().map(|(a, object)| {
        let partner = pairs.iter().find(|pair| pair.0 == a);
        partner.map_or((object.name.clone(), false), |&(a, b)| {
            (after.objects[b].name.clone(), is_other(a, b))
        })
    });
    let of_after = after.objects.iter().enumerate().map(|(b, object)| {
        let partner = pairs.iter().find(|pair| pair.1 == b);
        (
            object.name.clone(),
            partner.is_some_and(|&(a, b)| is_other(a, b)),
        )
    });
    let numbers = |profile: &Profile| {
        let objects = profile.objects.iter().enumerate().rev();
        objects
            .map(|(n, object)| (object.name.clone(), n))
            .collect()
    };
    let first = Names {
        objects: of_before.collect(),
        numbers: numbers(before),
        files: files(before, after),
    };
    let second = Names {
        objects: of_after.collect(),
        numbers: numbers(after),
        files: BTreeMap::new(),
    };
    [first, second]
}

impl Names {
    /// The object of a number; `None` if there is none.
    pub fn object(&self, number: usize) -> Option<&(String, bool)> {
        self.objects.get(number)
    }

    /// The object of a name in the profile itself.
    pub fn of_name(&self, name: &str) -> Option<&(String, bool)> {
        self.object(*self.numbers.get(name)?)
    }

    /// The source file's name in both profiles.
    pub fn file<'n>(&'n self, file: &'n str) -> &'n str {
        self.files.get(file).map_or(file, String::as_str)
    }

    /// Names of the objects of which the profiles have other builds.
    pub fn other_builds(&self) -> impl Iterator<Item = &str> {
        let other = self.objects.iter().filter(|(_, is_other)| *is_other);
        other.map(|(name, _)| name.as_str())
    }
}

/// Pairs of objects: of one name; of one library in two versions; the programs, if there is one without a partner on
/// each side.
fn objects(before: &Profile, after: &Profile) -> Vec<(usize, usize)> {
    let mut pairs: Vec<(usize, usize)> = Vec::new();
    let same: [fn(&Object, &Object) -> bool; 3] = [
        |a, b| a.name == b.name,
        |a, b| {
            let stem = |o: &Object| o.name.split_once(".so").map(|(stem, _)| stem.to_owned());
            a.kind == b.kind && stem(a).is_some() && stem(a) == stem(b)
        },
        |a, b| a.kind == ObjectKind::Program && b.kind == ObjectKind::Program,
    ];
    for is_same in same {
        let free = |pairs: &[(usize, usize)]| {
            let all = (0..before.objects.len())
                .flat_map(|a| (0..after.objects.len()).map(move |b| (a, b)));
            all.filter(|(a, b)| !pairs.iter().any(|pair| pair.0 == *a || pair.1 == *b))
                .filter(|(a, b)| is_same(&before.objects[*a], &after.objects[*b]))
                .collect::<Vec<_>>()
        };
        let found = free(&pairs);
        let is_single = |pair: &&(usize, usize)| {
            let others = found
                .iter()
                .filter(|other| other.0 == pair.0 || other.1 == pair.1);
            others.count() == 1
        };
        pairs.extend(found.iter().filter(is_single));
    }
    pairs
}

/// For each source file that only the first profile has the only file of the second one alone that agrees with it in
/// most parts at the end of the path.
fn files(before: &Profile, after: &Profile) -> BTreeMap<String, String> {
    let [all_before, all_after] = [before, after].map(|profile| {
        let columns = profile.tables.iter().flat_map(|table| &table.columns);
        let numbers: BTreeSet<usize> = columns
            .flat_map(|column| column.files.iter())
            .filter_map(|n| usize::try_from(*n).ok())
            .collect();
        let names = numbers.into_iter().filter_map(|n| profile.strings.get(n));
        names.map(String::as_str).collect::<BTreeSet<&str>>()
    });
    let mut by_name: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for file in all_after.difference(&all_before) {
        by_name.entry(last(file)).or_default().push(file);
    }
    let partner = |file: &&str| {
        let agreeing = |other: &str| {
            let parts = file.rsplit('/').zip(other.rsplit('/'));
            parts.take_while(|(a, b)| a == b).count()
        };
        let others = by_name.get(last(file))?;
        let most = others.iter().map(|other| agreeing(other)).max()?;
        let mut best = others.iter().filter(|other| agreeing(other) == most);
        let only = best.next().filter(|_| best.next().is_none())?;
        Some(((*file).to_owned(), (*only).to_owned()))
    };
    all_before
        .difference(&all_after)
        .filter_map(partner)
        .collect()
}

fn last(file: &str) -> &str {
    file.rsplit('/').next().unwrap_or(file)
}

/// The name of a procedure without what compilers number anew in each build.
pub fn procedure(name: &str) -> &str {
    let mut name = name;
    loop {
        let without_number = match name.rsplit_once('.') {
            Some((rest, digits)) if digits.bytes().all(|b| b.is_ascii_digit()) => rest,
            _ => name,
        };
        let Some((rest, word)) = without_number.rsplit_once('.') else {
            return without_hash(name);
        };
        if !COPIES.contains(&word) || rest.is_empty() {
            return without_hash(name);
        }
        name = rest;
    }
}

/// A name of Rust without the hash of its build: `core::fmt::write::h0123456789abcdef`.
fn without_hash(name: &str) -> &str {
    let is_hash = |word: &str| {
        let digits = word.strip_prefix('h').unwrap_or("");
        digits.len() == 16 && digits.bytes().all(|b| b.is_ascii_hexdigit())
    };
    match name.rsplit_once("::") {
        Some((rest, word)) if is_hash(word) => rest,
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_have_the_name_of_the_procedure() {
        for (name, same) in [
            ("parse", "parse"),
            ("parse.constprop.0", "parse"),
            ("parse.isra.0.constprop.12", "parse"),
            ("parse.part.3.cold", "parse"),
            ("parse.llvm.1234567890", "parse"),
            ("parse.cold", "parse"),
            ("a.b.c", "a.b.c"),
            ("runtime.main.func1", "runtime.main.func1"),
            ("count.7", "count.7"),
            (".cold", ".cold"),
            ("a::b::h0123456789abcdef", "a::b"),
            ("a::b::h0123456789abcdef.llvm.77", "a::b"),
            ("a::b::hidden", "a::b::hidden"),
        ] {
            assert_eq!(procedure(name), same, "{name}");
        }
    }
}
