//! The modules of a crate and the paths between them, read from its source files.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use proc_macro2::{Delimiter, TokenStream, TokenTree};

/// Names of a path, from the first to the last.
type Names = Vec<String>;

/// A source file.
pub struct File {
    /// Path below the source folder.
    pub name: String,
    /// Path of the file's module, without `crate`; empty for the root.
    pub module: Vec<String>,
}

/// A use of one file by another.
pub struct Arrow {
    /// Number of the file that names the other.
    pub from: usize,
    /// Line there, from 1.
    pub line: usize,
    /// Number of the file that has what is named.
    pub to: usize,
    /// The path as written, or as imported.
    pub path: String,
}

/// A path in the source.
struct Mention {
    file: usize,
    module: Names,
    line: usize,
    path: Names,
    /// The name that a `use` gives it, `*` for all names, `None` outside of `use`.
    alias: Option<String>,
    is_public_use: bool,
}

/// What a name stands for that `use` brings into a module.
struct Import {
    path: Names,
    is_public: bool,
}

/// All source files of a crate.
#[derive(Default)]
pub struct Sources {
    /// The files, in order of their names.
    pub files: Vec<File>,
    /// The uses of one file by another.
    pub arrows: Vec<Arrow>,
    /// The file of each module.
    modules: BTreeMap<Names, usize>,
    /// Names that `use` brings into a module.
    imports: BTreeMap<(Names, String), Import>,
}

impl Sources {
    /// Reads all files below a source folder.
    pub fn read(folder: &Path) -> Self {
        let mut sources = Self::default();
        let mut mentions = Vec::new();
        let mut names = Vec::new();
        files_below(folder, folder, &mut names);
        names.sort();
        let mut of_tests = BTreeSet::new();
        let mut parsed = Vec::new();
        for name in names {
            let text = std::fs::read_to_string(folder.join(&name)).unwrap();
            let tokens: TokenStream = text.parse().unwrap_or_else(|e| panic!("{name}: {e}"));
            let module = module_of(&name);
            parsed.push((name, module, tokens));
        }
        for (name, module, tokens) in parsed {
            let file = sources.files.len();
            sources.modules.insert(module.clone(), file);
            let mut reader = Reader {
                file,
                mentions: &mut mentions,
                modules: &mut sources.modules,
                of_tests: &mut of_tests,
            };
            reader.read(tokens, &module);
            sources.files.push(File { name, module });
        }
        mentions.retain(|m| !of_tests.iter().any(|t| m.module.starts_with(t)));
        for mention in &mentions {
            if let Some(alias) = &mention.alias {
                let key = (mention.module.clone(), alias.clone());
                let import = Import {
                    path: mention.path.clone(),
                    is_public: mention.is_public_use,
                };
                sources.imports.insert(key, import);
            }
        }
        sources.arrows = sources.arrows_of(&mentions);
        sources
    }

    /// The first part of a file's module path; `None` for the root.
    pub fn part(&self, file: usize) -> Option<&str> {
        self.files[file].module.first().map(String::as_str)
    }

    fn arrows_of(&self, mentions: &[Mention]) -> Vec<Arrow> {
        let mut arrows = Vec::new();
        for mention in mentions {
            if mention.alias.is_none() && mention.path.len() == 1 && !self.is_handed_on(mention) {
                continue;
            }
            let Some(to) = self.file_of(&mention.module, &mention.path, 0) else {
                continue;
            };
            if to != mention.file {
                arrows.push(Arrow {
                    from: mention.file,
                    line: mention.line,
                    to,
                    path: mention.path.join("::"),
                });
            }
        }
        arrows
    }

    /// Whether a single name is one that a `pub use` of the same module has. Other names either
    /// belong to the module, or the `use` line that brings them in is an arrow already.
    fn is_handed_on(&self, mention: &Mention) -> bool {
        let key = (mention.module.clone(), mention.path[0].clone());
        self.imports.get(&key).is_some_and(|i| i.is_public)
    }

    /// The file with what a path names, as seen from a module; `None` if that is outside of the crate.
    fn file_of(&self, module: &[String], path: &[String], depth: usize) -> Option<usize> {
        // A name that is imported under itself would lead in a circle.
        if depth > 20 {
            return None;
        }
        let mut at = module.to_vec();
        let mut rest = path;
        match path[0].as_str() {
            "crate" => {
                at.clear();
                rest = &path[1..];
            }
            "self" => rest = &path[1..],
            "super" => {
                while rest.first().is_some_and(|s| s == "super") {
                    at.pop();
                    rest = &rest[1..];
                }
            }
            first => {
                at.push(first.to_string());
                let is_child = self.modules.contains_key(&at);
                at.pop();
                let is_imported = self.imports.contains_key(&(at.clone(), first.to_string()));
                if !is_child && !is_imported {
                    return None;
                }
            }
        }
        for (i, name) in rest.iter().enumerate() {
            at.push(name.clone());
            if self.modules.contains_key(&at) {
                continue;
            }
            at.pop();
            if let Some(import) = self.imports.get(&(at.clone(), name.clone())) {
                let whole = [&import.path, &rest[i + 1..]].concat();
                return self.file_of(&at, &whole, depth + 1);
            }
            break;
        }
        self.modules.get(&at).copied()
    }
}

/// Paths of all source files below a folder, relative to `root`.
fn files_below(root: &Path, folder: &Path, names: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files_below(root, &path, names);
        } else if path.extension().is_some_and(|e| e == "rs") {
            let name = path.strip_prefix(root).unwrap();
            names.push(name.to_str().unwrap().to_string());
        }
    }
}

/// The module path of a source file.
fn module_of(name: &str) -> Names {
    let mut module: Names = name
        .trim_end_matches(".rs")
        .split('/')
        .map(str::to_string)
        .collect();
    if matches!(module.last().unwrap().as_str(), "mod" | "lib" | "main") {
        module.pop();
    }
    module
}

/// Reads one file's tokens.
struct Reader<'a> {
    file: usize,
    mentions: &'a mut Vec<Mention>,
    modules: &'a mut BTreeMap<Names, usize>,
    /// Modules that are compiled for tests only.
    of_tests: &'a mut BTreeSet<Names>,
}

impl Reader<'_> {
    fn read(&mut self, tokens: TokenStream, module: &[String]) {
        let tokens: Vec<TokenTree> = tokens.into_iter().collect();
        let mut i = 0;
        while i < tokens.len() {
            let rest = &tokens[i..];
            i += if is_test_attribute(rest) {
                self.skip_item(rest, module)
            } else if is_use(rest) {
                self.read_use(&tokens[..i], rest, module)
            } else if let Some(name) = ident(rest, 0) {
                self.read_path_or_module(name, rest, module)
            } else {
                if let TokenTree::Group(group) = &tokens[i] {
                    self.read(group.stream(), module);
                }
                1
            };
        }
    }

    /// Skips an item for tests only; returns the number of its tokens.
    fn skip_item(&mut self, rest: &[TokenTree], module: &[String]) -> usize {
        let is_end = |t: &TokenTree| match t {
            TokenTree::Punct(p) => p.as_char() == ';',
            TokenTree::Group(g) => g.delimiter() == Delimiter::Brace,
            _ => false,
        };
        let end = rest.iter().position(is_end).map_or(rest.len(), |e| e + 1);
        let is_mod = (0..end).find(|i| ident(rest, *i).as_deref() == Some("mod"));
        if let Some(name) = is_mod.and_then(|i| ident(rest, i + 1)) {
            self.of_tests.insert([module, &[name]].concat());
        }
        end
    }

    /// Reads a `use` item; returns the number of its tokens.
    fn read_use(&mut self, before: &[TokenTree], rest: &[TokenTree], module: &[String]) -> usize {
        let end = rest.iter().position(|t| is_punct(t, ';'));
        let end = end.expect("a `use` ends with a semicolon");
        let is_public = match before {
            [.., TokenTree::Group(_)] => ident(before, before.len().wrapping_sub(2)),
            _ => ident(before, before.len().wrapping_sub(1)),
        };
        let is_public = is_public.as_deref() == Some("pub");
        self.read_use_tree(&rest[1..end], &[], module, is_public);
        end + 1
    }

    fn read_use_tree(
        &mut self,
        tree: &[TokenTree],
        prefix: &[String],
        module: &[String],
        is_public: bool,
    ) {
        for branch in tree.split(|t| is_punct(t, ',')).filter(|b| !b.is_empty()) {
            let mut path = prefix.to_vec();
            let mut alias = None;
            let mut tokens = branch.iter();
            while let Some(token) = tokens.next() {
                match token {
                    TokenTree::Ident(name) if name == "as" => {
                        alias = tokens.next().map(ToString::to_string);
                    }
                    TokenTree::Ident(name) => path.push(name.to_string()),
                    TokenTree::Group(group) => {
                        let inner: Vec<_> = group.stream().into_iter().collect();
                        self.read_use_tree(&inner, &path, module, is_public);
                        path.clear();
                    }
                    TokenTree::Punct(p) if p.as_char() == '*' => alias = Some("*".to_string()),
                    _ => {}
                }
            }
            if path.last().is_some_and(|l| l == "self") && path.len() > 1 {
                path.pop();
            }
            if let Some(last) = path.last() {
                self.mentions.push(Mention {
                    file: self.file,
                    module: module.to_vec(),
                    line: branch[0].span().start().line,
                    alias: Some(alias.unwrap_or_else(|| last.clone())),
                    path,
                    is_public_use: is_public,
                });
            }
        }
    }

    /// Reads a path, or the start of a module in the same file; returns the number of tokens.
    fn read_path_or_module(
        &mut self,
        name: String,
        rest: &[TokenTree],
        module: &[String],
    ) -> usize {
        if name == "pub"
            && matches!(rest.get(1), Some(TokenTree::Group(g)) if g.delimiter() == Delimiter::Parenthesis)
        {
            return 2;
        }
        if name == "mod" && rest.get(2).is_some_and(|t| is_punct(t, ';')) {
            return 3;
        }
        if name == "mod"
            && let (Some(name), Some(TokenTree::Group(group))) = (ident(rest, 1), rest.get(2))
        {
            let inner = [module, &[name]].concat();
            self.modules.insert(inner.clone(), self.file);
            self.read(group.stream(), &inner);
            return 3;
        }
        let mut path = vec![name];
        let mut used = 1;
        while rest.get(used).is_some_and(|t| is_punct(t, ':'))
            && rest.get(used + 1).is_some_and(|t| is_punct(t, ':'))
            && let Some(name) = ident(rest, used + 2)
        {
            path.push(name);
            used += 3;
        }
        self.mentions.push(Mention {
            file: self.file,
            module: module.to_vec(),
            line: rest[0].span().start().line,
            path,
            alias: None,
            is_public_use: false,
        });
        used
    }
}

/// Whether a `use` item is at the start, not a list of captures (`use<'a>`).
fn is_use(rest: &[TokenTree]) -> bool {
    ident(rest, 0).as_deref() == Some("use") && !rest.get(1).is_some_and(|t| is_punct(t, '<'))
}

/// Whether `#[cfg(test)]` is at the start.
fn is_test_attribute(rest: &[TokenTree]) -> bool {
    match rest {
        [hash, TokenTree::Group(group), ..] if is_punct(hash, '#') => {
            group.stream().to_string().replace(' ', "") == "cfg(test)"
        }
        _ => false,
    }
}

fn is_punct(token: &TokenTree, wanted: char) -> bool {
    matches!(token, TokenTree::Punct(p) if p.as_char() == wanted)
}

/// The identifier with a number.
fn ident(tokens: &[TokenTree], at: usize) -> Option<String> {
    match tokens.get(at)? {
        TokenTree::Ident(name) => Some(name.to_string()),
        _ => None,
    }
}
