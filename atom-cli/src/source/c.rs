//! Tools in C: an instrument file, and analysis files.
//!
//! The C compiler makes objects of the sources and links them with the archive `libatom_c.a` into a shared object, which is
//! a tool like any other. The symbols of the two halves are kept apart, since in ATOM they were two programs. What of C's library the
//! analysis routines do not have is found here, where the file that uses it is known.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use atom_core::tool::Tool;
use atom_core::{Error, Result};
use object::read::archive::ArchiveFile;
use object::{Object, ObjectSymbol, SymbolKind};

use super::{DOING, reason_of, wide};
use crate::find;
use crate::kept::identity::Identity;
use crate::kept::store::Store;
use crate::progress::Progress;

/// What the objects are linked with.
const ARCHIVE: &str = "libatom_c.a";

/// The user's instrument routine: of ATOM, and of its later versions, where it goes over the objects itself.
const ROUTINES: [&str; 2] = ["Instrument", "InstrumentAll"];

/// How sources are compiled. Tools of 1993 declare no result of `Instrument`, and no functions of C's library. Code that checks its
/// stack reads the program's thread-local storage.
const FLAGS: [&str; 13] = [
    "-std=gnu17",
    "-O2",
    "-g",
    "-fPIC",
    "-fno-semantic-interposition",
    "-fno-stack-protector",
    "-fcf-protection=none",
    "-U_FORTIFY_SOURCE",
    "-Wno-implicit-int",
    "-Wno-return-type",
    "-Wno-error=implicit-function-declaration",
    "-Wno-error=int-conversion",
    "-Wno-error=incompatible-pointer-types",
];

/// How the objects are linked.
const LINK: [&str; 8] = [
    "-shared",
    "-Wl,-u,atom_tool_header",
    "-Wl,--gc-sections",
    "-Wl,-Bsymbolic",
    "-Wl,-z,now",
    "-Wl,-z,relro",
    "-Wl,-z,separate-code",
    "-Wl,-z,defs",
];

/// Libraries of the instrument routine; the archive needs some of them.
const LIBRARIES: [&str; 5] = ["-lm", "-lpthread", "-ldl", "-lgcc_s", "-lc"];

/// True for a file that is a part of a tool in C by its name: a source, an object or an archive.
pub fn is_part(file: &Path) -> bool {
    let extension = file.extension().and_then(OsStr::to_str);
    matches!(extension, Some("c" | "o" | "a"))
}

fn is_c(file: &Path) -> bool {
    file.extension().is_some_and(|e| e == "c")
}

fn is_archive(file: &Path) -> bool {
    file.extension().is_some_and(|e| e == "a")
}

/// The parts of a tool in C.
struct Parts {
    /// The tool's name: `branch` for `branch.inst.c`.
    name: String,
    /// The instrument file, then the analysis files. One file alone is both.
    files: Vec<PathBuf>,
    /// Words that call the compiler.
    compiler: Vec<String>,
    /// Flags of the user's.
    flags: Vec<String>,
    /// The archive, and the folder of the header files.
    archive: PathBuf,
    headers: PathBuf,
}

/// The shared object of the tool with these parts, the instrument file first: found in the cache, or made.
pub fn compiled(files: &[PathBuf]) -> Result<PathBuf> {
    let parts = Parts::find(files)?;
    let store = Store::open()?;
    let mut identity = Identity::new(store.digests());
    identity.add_command()?;
    identity.add_file(&parts.archive)?;
    identity.add_words("compiler", &parts.compiler);
    identity.add_words("flags", &parts.flags);
    for file in &parts.files {
        if is_c(file) {
            // With all that it includes.

            let text = parts.preprocessed(file)?;
            let name = file.display().to_string();
            identity.add_words("source", &[name, text]);
        } else {
            identity.add_file(file)?
        }
    }
    let name = identity.name();
    let label = format!("the tool {}", parts.files[0].display());
    let library = format!("lib{}.so", parts.name);
    let entry = store.get_or_make(&name, &label, |folder| parts.make(folder, &library))?;
    let tool = entry.folder.join(&library);
    // The lock is held to the end of the process, so that the tool stays.
    std::mem::forget(entry);
    Ok(tool)
}

/// The words of a variable, or others.
fn words_of(variable: &str, default: &str) -> Vec<String> {
    let words = std::env::var(variable)
        .ok()
        .filter(|w| !w.trim().is_empty());
    let words = words.unwrap_or_else(|| default.to_owned());
    words.split_whitespace().map(str::to_owned).collect()
}

/// The archive and the folder of the headers: in an installation, or where the command was built.
fn support() -> Result<(PathBuf, PathBuf)> {
    let folders = find::tool_folders();
    let archives = folders.iter().flat_map(|folder| {
        let installed = folder.parent().map(|lib| lib.join(ARCHIVE));
        [Some(folder.join(ARCHIVE)), installed]
            .into_iter()
            .flatten()
    });
    let command = Identity::command()?;
    let roots = command.ancestors().skip(1);
    let headers = roots.flat_map(|root| [root.join("include/atom"), root.join("include")]);
    let archive = archives.into_iter().find(|file| file.is_file());
    let headers = headers
        .into_iter()
        .find(|f| f.join("instrument.h").is_file());
    match (archive, headers) {
        (Some(archive), Some(headers)) => Ok((archive, headers)),
        (archive, _) => {
            let missing = match archive {
                None => ARCHIVE,
                Some(_) => "instrument.h",
            };
            let error = Error::new(
                DOING,
                format!("the part of atom for tools in C is not there: {missing}"),
            );
            Err(error.advice(
                "install atom with ./install, or build the archive with `cargo build --release -p c-tool`",
            ))
        }
    }
}

impl Parts {
    fn find(files: &[PathBuf]) -> Result<Self> {
        let mut full = Vec::new();
        for file in files {
            let fail = |reason: String| Error::new(DOING, reason).file(file);
            if !is_part(file) {
                let error = fail("it is no part of a tool in C".into());
                return Err(
                    error.advice("such parts are sources (.c), objects (.o) and archives (.a)")
                );
            }
            full.push(fs::canonicalize(file).map_err(|e| fail(reason_of(&e)))?);
        }
        let stem = files[0].file_stem().unwrap_or_default().to_string_lossy();
        let name = stem.strip_suffix(".inst").unwrap_or(&stem).to_owned();
        let (archive, headers) = support()?;
        Ok(Self {
            name,
            files: full,
            compiler: words_of("CC", "cc"),
            flags: words_of("CFLAGS", ""),
            archive,
            headers,
        })
    }

    /// Runs the compiler.
    fn run(&self, arguments: &[&OsStr]) -> Result<Output> {
        let name = self.compiler[0].as_str();
        let mut command = Command::new(name);
        command.args(&self.compiler[1..]).args(arguments);
        let color = if std::io::IsTerminal::is_terminal(&std::io::stderr()) {
            "-fdiagnostics-color=always"
        } else {
            "-fdiagnostics-color=never"
        };
        command.arg(color);
        command.output().map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => {
                Error::new(DOING, format!("there is no C compiler `{name}`")).advice(
                    "a tool in C is compiled by cc: install gcc or clang, or name a compiler in the variable CC",
                )
            }
            _ => Error::new(DOING, format!("{name}: {e}")),
        })
    }

    /// Compiles one source, with further words. The compiler's messages are shown as they are.
    fn compile(&self, source: &Path, words: &[&OsStr]) -> Result<Output> {
        let mut arguments: Vec<&OsStr> = FLAGS.iter().map(OsStr::new).collect();
        arguments.extend([OsStr::new("-I"), self.headers.as_os_str()]);
        arguments.extend(self.flags.iter().map(OsStr::new));
        arguments.extend(words);
        arguments.push(source.as_os_str());
        let output = self.run(&arguments)?;
        if output.status.success() {
            Ok(output)
        } else {
            let messages = String::from_utf8_lossy(&output.stderr);
            eprint!("{messages}");
            let error = Error::new(DOING, "it does not compile").file(source);
            Err(match self.header_of(&messages) {
                Some(advice) => error.advice(advice),
                None => error,
            })
        }
    }

    /// For the first name that a compiler does not know, the header file of ours that declares it.
    fn header_of(&self, messages: &str) -> Option<String> {
        const KNOWN: [&str; 4] = ["instrument.h", "atom.h", "atom.report.h", "atom.paths.h"];
        // gcc: 'X' undeclared, unknown type name 'X'; clang: use of undeclared identifier 'X'.
        let is_unknown = |line: &&str| line.contains("undeclared") || line.contains("unknown type");
        let line = messages.lines().find(is_unknown)?;
        let quotes = ['\u{2018}', '\u{2019}', '\''];
        let name = line.split(quotes).nth(1)?;
        let has_name = |header: &&&str| {
            let text = fs::read_to_string(self.headers.join(header)).unwrap_or_default();
            let is_letter = |c: char| c.is_ascii_alphanumeric() || c == '_';
            text.split(|c| !is_letter(c)).any(|word| word == name)
        };
        let header = KNOWN.iter().find(has_name)?;
        Some(format!("`{name}` is declared in <{header}>"))
    }

    /// The text of a source with all that it includes.
    fn preprocessed(&self, source: &Path) -> Result<String> {
        let output = self.compile(source, &[OsStr::new("-E")])?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Makes the object of a source in a folder.
    fn object_of(&self, source: &Path, object: &Path) -> Result<()> {
        let words = [OsStr::new("-c"), OsStr::new("-o"), object.as_os_str()];
        let output = self.compile(source, &words)?;
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }

    /// Makes the tool in a folder.
    fn make(&self, folder: &Path, library: &str) -> Result<()> {
        let doing = |e: std::io::Error| Error::new(DOING, e);
        let _waiting = Progress::start("compiling the tool");
        let work = folder.join("work");
        fs::create_dir_all(&work).map_err(doing)?;
        let mut objects = Vec::new();
        for (i, file) in self.files.iter().enumerate() {
            let object = work.join(format!("{i}.o"));
            match is_c(file) {
                true => self.object_of(file, &object)?,
                false if i == 0 => _ = fs::copy(file, &object).map_err(doing)?,
                false => {
                    objects.push(file.clone());
                    continue;
                }
            }
            objects.push(object);
        }
        let routine = self.routine(&objects[0])?;
        if objects.len() > 1 {
            hide(&objects[0]);
        }
        let start = work.join("start.c");
        fs::write(&start, start_of(routine)).map_err(doing)?;
        let start_object = work.join("start.o");
        self.object_of(&start, &start_object)?;
        let exported = exported(&objects)?;
        let map = work.join("exports");
        fs::write(&map, map_of(&exported)).map_err(doing)?;
        let library = folder.join(library);
        objects.push(start_object);
        self.link(&objects, &map, &library)?;
        self.check(&objects, &library)?;
        fs::remove_dir_all(&work).map_err(doing)
    }

    /// The instrument routine that the instrument file defines.
    fn routine(&self, object: &Path) -> Result<&'static str> {
        let symbols = Symbols::of(object)?;
        let found = ROUTINES
            .iter()
            .find(|name| symbols.functions.contains(**name));
        found.copied().ok_or_else(|| {
            Error::new(DOING, "it has no function Instrument")
                .file(&self.files[0])
                .advice("the instrument file comes first, then the analysis files")
        })
    }

    fn link(&self, objects: &[PathBuf], map: &Path, library: &Path) -> Result<()> {
        let mut arguments: Vec<OsString> = LINK.iter().map(OsString::from).collect();
        let mut version = OsString::from("-Wl,--version-script=");
        version.push(map);
        arguments.extend([version, "-o".into(), library.into()]);
        // Archives alone are linked as a whole, since nothing else names what is in them.
        let is_whole = objects.iter().skip(1).filter(|o| !is_archive(o)).count() <= 1;
        let whole = |word: &str| is_whole.then(|| OsString::from(word));
        arguments.extend(whole("-Wl,--whole-archive"));
        arguments.extend(objects.iter().map(OsString::from));
        arguments.extend(whole("-Wl,--no-whole-archive"));
        arguments.push(self.archive.clone().into());
        arguments.extend(LIBRARIES.iter().map(OsString::from));
        let arguments: Vec<&OsStr> = arguments.iter().map(OsString::as_os_str).collect();
        let output = self.run(&arguments)?;
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
        if output.status.success() {
            Ok(())
        } else {
            Err(Error::new(DOING, "it cannot be linked").file(&self.files[0]))
        }
    }

    /// Refuses analysis files that use functions of C's library that analysis routines do not have, or registers that
    /// calls do not save.
    fn check(&self, objects: &[PathBuf], library: &Path) -> Result<()> {
        let facts = Tool::load(library)?.facts();
        let known: HashSet<&str> = facts
            .exports
            .iter()
            .map(|(name, _)| name.as_str())
            .collect();
        let bytes = read(library)?;
        let linked = object::File::parse(&bytes[..]).map_err(|e| damaged(library, e))?;
        let imports = linked
            .dynamic_symbols()
            .filter(|s| s.is_undefined() && !s.is_weak());
        let missing: HashSet<String> = imports
            .filter_map(|symbol| Some(symbol.name().ok()?.to_owned()))
            .filter(|name| !known.contains(&name[..]))
            .collect();
        let is_both = self.files.len() == 1;
        let halves = objects.iter().zip(&self.files).skip(usize::from(!is_both));
        for (object, file) in halves.filter(|_| !is_both) {
            refuse_x87(object, file)?;
            let symbols = Symbols::of(object)?;
            let mut found: Vec<&String> = symbols.undefined.intersection(&missing).collect();
            found.sort();
            if let Some(name) = found.first() {
                let reason = "analysis routines do not have this function of C's library";
                return Err(Error::new(DOING, reason).file(file).symbol(name.as_str()).advice(
                    "do without it in analysis files; the instrument file may use it. docs/tools-in-c.md lists what there is",
                ));
            }
        }
        Ok(())
    }
}

/// Refuses an object of an analysis file with code for the x87 unit. Archives may have such code that nothing calls.
fn refuse_x87(object: &Path, file: &Path) -> Result<()> {
    if is_archive(object) {
        return Ok(());
    }
    let found = wide::user_of_x87(&read(object)?).map_err(|e| damaged(object, e))?;
    let Some(function) = found else {
        return Ok(());
    };
    let reason = "it uses registers of the x87 unit, which calls do not save";
    let error = Error::new(DOING, reason).file(file).symbol(function);
    Err(error.advice("compute with double instead of long double"))
}

/// The function that calls the user's one.
fn start_of(routine: &str) -> String {
    let call = match routine {
        "InstrumentAll" => "return InstrumentAll(argc, argv);",
        _ => "Instrument(argc, argv, program); return 0;",
    };
    format!(
        "extern int {routine}();\n\
         int atom_c_instrument(int argc, char **argv, void *program) {{ {call} }}\n"
    )
}

/// Makes all symbols of an object its own but for the instrument routine, so that the analysis files may use the same
/// names. Without binutils they must not.
fn hide(object: &Path) {
    let mut command = Command::new("objcopy");
    for routine in ROUTINES {
        command.arg("--keep-global-symbol").arg(routine);
    }
    let _ = command.arg(object).output();
}

/// The names that the tool exports: what `atom` looks for, and all functions of the analysis files.
fn exported(objects: &[PathBuf]) -> Result<Vec<String>> {
    let mut names: Vec<String> = vec!["atom_tool_header".into(), "atom_tool_instrument".into()];
    let analysis = &objects[usize::from(objects.len() > 1)..];
    for object in analysis {
        names.extend(Symbols::of(object)?.functions);
    }
    names.retain(|name| !ROUTINES.contains(&&name[..]));
    names.sort();
    Ok(names)
}

fn map_of(exported: &[String]) -> String {
    let names: String = exported
        .iter()
        .map(|name| format!("\"{name}\"; "))
        .collect();
    format!("{{ global: {names}local: *; }};\n")
}

/// The global symbols of an object or of all objects in an archive.
#[derive(Default)]
struct Symbols {
    /// Functions that it defines.
    functions: HashSet<String>,
    /// Names that it needs.
    undefined: HashSet<String>,
}

fn read(file: &Path) -> Result<Vec<u8>> {
    fs::read(file).map_err(|e| Error::new(DOING, reason_of(&e)).file(file))
}

fn damaged(file: &Path, error: object::Error) -> Error {
    Error::new(DOING, format!("it is damaged: {error}")).file(file)
}

impl Symbols {
    fn of(file: &Path) -> Result<Self> {
        let bytes = read(file)?;
        let fail = |e: object::Error| damaged(file, e);
        let mut symbols = Self::default();
        if !is_archive(file) {
            symbols.add(&bytes).map_err(fail)?;
            return Ok(symbols);
        }
        let archive = ArchiveFile::parse(&bytes[..]).map_err(fail)?;
        for member in archive.members() {
            let data = member.and_then(|member| member.data(&bytes[..]));
            symbols.add(data.map_err(fail)?).map_err(fail)?;
        }
        Ok(symbols)
    }

    fn add(&mut self, bytes: &[u8]) -> object::Result<()> {
        let file = object::File::parse(bytes)?;
        for symbol in file.symbols().filter(|s| s.is_global()) {
            let name = symbol.name()?.to_owned();
            if symbol.is_undefined() && !name.is_empty() {
                self.undefined.insert(name);
            } else if symbol.kind() == SymbolKind::Text {
                self.functions.insert(name);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_known_by_their_names() {
        for (file, is) in [
            ("branch.inst.c", true),
            ("x.o", true),
            ("x.a", true),
            ("x.rs", false),
            ("c", false),
            ("x.so", false),
        ] {
            assert_eq!(is_part(Path::new(file)), is, "{file}");
        }
        assert!(start_of("InstrumentAll").contains("return InstrumentAll("));
        let names = ["f".to_owned(), "g".to_owned()];
        assert_eq!(map_of(&names), "{ global: \"f\"; \"g\"; local: *; };\n");
    }
}
