//! Reading the table of compilers, and the cases that it describes.

use std::path::{Path, PathBuf};

use crate::corpus::drawn;
use crate::error::{Error, Result};
use crate::source::Source;

/// A compiler of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Compiler {
    /// Its name in the table.
    pub name: String,
    /// `here`, or the release of Debian that has it.
    pub root: String,
    /// Debian's packages that are needed.
    pub packages: Vec<String>,
    /// The package of PyPI that has it instead.
    pub wheel: Option<String>,
    /// Extensions of the sources that it compiles.
    pub sources: Vec<String>,
    /// Name of its group of options.
    pub options: String,
    /// The compiler by whose name sources of `sources/` state their builds.
    pub family: Option<String>,
    /// Whether it belongs to the quick part.
    pub quick: bool,
    /// Shell commands that make `$OUT` of `$SOURCE` with `$OPTIONS`.
    pub commands: String,
}

/// The table.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// Compilers in the table's order.
    pub compilers: Vec<Compiler>,
    /// Groups of options by name; an empty line stands for no options.
    groups: Vec<(String, Vec<String>)>,
}

/// A source, a compiler and a line of options.
#[derive(Clone, Debug)]
pub struct Case {
    /// The three in one word each, by which `--only` finds the case.
    pub name: String,
    /// The compiler.
    pub compiler: Compiler,
    /// The source's file.
    pub source: PathBuf,
    /// Options, and what changes the build after a semicolon.
    pub options: String,
    /// Options that the source asks for.
    pub flags: String,
    /// Arguments of each run.
    pub runs: Vec<Vec<String>>,
    /// Whether it prints addresses, which libraries do not keep in a whole process.
    pub prints_addresses: bool,
}

impl Table {
    /// Reads the table of the crate.
    ///
    /// # Errors
    /// A line has not the form that the table's head describes.
    pub fn read() -> Result<Table> {
        Self::parse(include_str!("../../compilers.txt"))
    }

    fn parse(text: &str) -> Result<Table> {
        let mut table = Table::default();
        // True if the lines that follow belong to a group of options.
        let mut in_group = false;
        let mut lines = text.lines().zip(1..).peekable();
        while let Some((line, number)) = lines.next() {
            let fail = |what: &str| {
                let reason = format!("line {number}: {what}");
                Err(Error::new("reading the table of compilers", reason))
            };
            if line.starts_with('#') {
                continue;
            }
            if let Some(head) = line.strip_prefix('[') {
                let Some((name, words)) = head.split_once(']') else {
                    return fail("no ]");
                };
                let Some(compiler) = compiler(name, words) else {
                    return fail("an unknown word");
                };
                table.compilers.push(compiler);
                in_group = false;
            } else if let Some(name) = line.strip_prefix('{').and_then(|l| l.strip_suffix('}')) {
                table.groups.push((name.to_owned(), Vec::new()));
                in_group = true;
            } else if in_group {
                // The empty line in front of the next head separates.
                let is_last = lines.peek().is_none_or(|(next, _)| next.starts_with('{'));
                if let Some((_, options)) = table.groups.last_mut()
                    && !(line.is_empty() && is_last)
                {
                    options.push(line.to_owned());
                }
            } else if let Some(compiler) = table.compilers.last_mut() {
                compiler.commands.push_str(line);
                compiler.commands.push('\n');
            }
        }
        let lacks = |c: &&Compiler| table.options(c).is_none() || c.commands.trim().is_empty();
        match table.compilers.iter().find(lacks) {
            Some(compiler) => Err(Error::new(
                "reading the table of compilers",
                format!("{} has no commands or no options", compiler.name),
            )),
            None => Ok(table),
        }
    }

    fn options(&self, compiler: &Compiler) -> Option<&[String]> {
        let group = self
            .groups
            .iter()
            .find(|(name, _)| *name == compiler.options);
        group.map(|(_, options)| options.as_slice())
    }

    /// All cases, with sources of this folder.
    ///
    /// # Errors
    /// A source cannot be read.
    pub fn cases(&self, folder: &Path) -> Result<Vec<Case>> {
        let sources = sources(folder)?;
        let mut cases = Vec::new();
        for compiler in &self.compilers {
            for (source, header) in &sources {
                let Some((flags, runs)) = asked(compiler, source, header.as_ref()) else {
                    continue;
                };
                let file = source.file_name().unwrap_or_default().to_string_lossy();
                for options in self.options(compiler).unwrap_or_default() {
                    let (plain, steps) = options.split_once(';').unwrap_or((options, ""));
                    let words: Vec<&str> = plain.split_whitespace().collect();
                    let steps = if steps.is_empty() { "" } else { "+" };
                    let name = format!("{}/{file}/{}{steps}", compiler.name, words.join("_"));
                    cases.push(Case {
                        name,
                        compiler: compiler.clone(),
                        source: source.clone(),
                        options: options.clone(),
                        flags: flags.clone(),
                        runs: runs.clone(),
                        prints_addresses: header.as_ref().is_some_and(|h| h.pristine),
                    });
                }
            }
        }
        Ok(cases)
    }
}

/// `count` of the cases, drawn by their names, with as many of each compiler as of the others. If there are more
/// compilers than that, the compilers are drawn.
pub fn spread(seed: u64, cases: Vec<Case>, count: usize) -> Vec<Case> {
    let mut names: Vec<String> = cases.iter().map(|c| c.compiler.name.clone()).collect();
    names.dedup();
    let names = drawn::sample(seed, names, count, |name| name);
    let (each, rest) = (count / names.len().max(1), count % names.len().max(1));
    let mut found = Vec::new();
    for (i, name) in names.iter().enumerate() {
        let own = cases.iter().filter(|c| c.compiler.name == *name);
        let count = each + usize::from(i < rest);
        found.extend(drawn::sample(seed, own.cloned().collect(), count, |c| {
            &c.name
        }));
    }
    found
}

fn compiler(name: &str, words: &str) -> Option<Compiler> {
    let mut compiler = Compiler {
        name: name.to_owned(),
        ..Compiler::default()
    };
    for word in words.split_whitespace() {
        let list = |text: &str| -> Vec<String> {
            let items = text.split(',').filter(|item| !item.is_empty());
            items.map(str::to_owned).collect()
        };
        match word.split_once('=') {
            None if word == "quick" => compiler.quick = true,
            Some(("in", value)) => compiler.root = value.to_owned(),
            Some(("packages", value)) => compiler.packages = list(value),
            Some(("wheel", value)) => compiler.wheel = Some(value.to_owned()),
            Some(("sources", value)) => compiler.sources = list(value),
            Some(("options", value)) => compiler.options = value.to_owned(),
            Some(("family", value)) => compiler.family = Some(value.to_owned()),
            _ => return None,
        }
    }
    Some(compiler)
}

/// Options and runs of a source with a compiler; none if it is not for the compiler.
fn asked(
    compiler: &Compiler,
    source: &Path,
    header: Option<&Source>,
) -> Option<(String, Vec<Vec<String>>)> {
    let extension = source.extension()?.to_str()?;
    if !compiler.sources.iter().any(|e| e == extension) {
        return None;
    }
    let Some(header) = header else {
        // What only clang has is in a file that says so.
        let is_clang = source.file_stem()?.to_str()?.ends_with("-clang");
        let fits = !is_clang || compiler.family.as_deref() == Some("clang");
        return fits.then(|| (String::new(), vec![Vec::new()]));
    };
    let family = compiler.family.as_deref()?;
    let is_by = |variant: &str| variant.split('-').next() == Some(family);
    let fits = header.runs_here() && header.variants.iter().any(|v| is_by(&v.0));
    let runs = header.runs.iter().map(|run| run.args.clone());
    fits.then(|| (header.cflags.join(" "), runs.collect()))
}

/// Sources of a folder and of its folder `languages`. Those of the folder itself have a header.
///
/// # Errors
/// A folder or a source cannot be read.
pub fn sources(folder: &Path) -> Result<Vec<(PathBuf, Option<Source>)>> {
    let mut found = Vec::new();
    for path in files(folder)? {
        let source = Source::read(&path)?;
        found.push((path, Some(source)));
    }
    let more = files(&folder.join("languages"))?;
    found.extend(more.into_iter().map(|path| (path, None)));
    Ok(found)
}

/// The files of a folder, in order.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let fail = |e: std::io::Error| Error::new("listing the test programs", e).file(folder);
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(fail)? {
        paths.push(entry.map_err(fail)?.path());
    }
    paths.retain(|path| path.is_file());
    paths.sort();
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn heads_commands_and_options_are_told_apart() {
        let text = "# words\n[a] in=here packages=p,q sources=c,cc options=o family=gcc quick\nmake it\n\n\
                    [b] in=sid wheel=w sources=d options=e\ndo\n\n{o}\n-O1\n-O2 ; strip\n\n{e}\n\n-x\n";
        let table = Table::parse(text).unwrap();
        let [a, b] = &table.compilers[..] else {
            panic!("two compilers");
        };
        assert_eq!((a.packages.len(), a.quick, b.quick), (2, true, false));
        assert_eq!(a.commands.trim(), "make it");
        assert_eq!(table.options(a).unwrap(), ["-O1", "-O2 ; strip"]);
        assert_eq!(table.options(b).unwrap(), ["", "-x"]);
        assert!(Table::parse("[a] in=here sources=c options=none\nmake\n").is_err());
        assert!(Table::parse("[a] wheels=x\n").is_err());
    }

    #[test]
    fn each_compiler_of_the_table_has_cases() {
        let table = Table::read().unwrap();
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("sources");
        let cases = table.cases(&folder).unwrap();
        for compiler in &table.compilers {
            let own = cases.iter().filter(|c| c.compiler.name == compiler.name);
            assert!(own.count() > 0, "{}", compiler.name);
        }
        let names: BTreeSet<&str> = cases.iter().map(|c| c.name.as_str()).collect();
        assert_eq!(names.len(), cases.len());
        let number = table.compilers.len();
        let few = spread(1, cases.clone(), 2 * number);
        let compilers: BTreeSet<&str> = few.iter().map(|c| c.compiler.name.as_str()).collect();
        assert_eq!((few.len(), compilers.len()), (2 * number, number));
        assert_eq!(spread(1, cases, 5).len(), 5);
    }
}
