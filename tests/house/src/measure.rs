//! Sizes of files and functions.

use std::path::Path;

use proc_macro2::Span;
use syn::visit::{self, Visit};

/// A function of the workspace.
pub struct Function {
    /// Its name; `Type::name` for a method.
    pub name: String,
    /// Line at which its signature starts, from 1.
    pub line: usize,
    /// Lines from the signature to the closing brace.
    pub length: usize,
    /// Number of its parameters, `self` included.
    pub parameters: usize,
    /// True if something else fixes the parameters: the C interface, a trait, or the calls of an
    /// analysis routine, each of whose arguments is data placed by itself.
    pub is_fixed: bool,
}

/// What is measured of a source file.
pub struct Measured {
    /// Path from the workspace's root.
    pub file: String,
    /// Number of its lines.
    pub lines: usize,
    /// Its functions with bodies, those inside of functions and test modules included.
    pub functions: Vec<Function>,
    /// Lines at which a lint against too many arguments is switched off.
    pub allowances: Vec<usize>,
}

/// Measures all source files of the workspace.
pub fn measure(root: &Path) -> Vec<Measured> {
    source_files(root)
        .into_iter()
        .map(|file| {
            let text = std::fs::read_to_string(root.join(&file)).unwrap();
            let parsed = syn::parse_file(&text).unwrap_or_else(|e| panic!("{file}: {e}"));
            let mut functions = Functions::default();
            functions.visit_file(&parsed);
            let is_allowance = |l: &str| {
                l.trim_start().starts_with("#") && l.contains("clippy::too_many_arguments")
            };
            let lines = text.lines().enumerate();
            Measured {
                file,
                lines: text.lines().count(),
                functions: functions.found,
                allowances: lines
                    .filter(|(_, l)| is_allowance(l))
                    .map(|(i, _)| i + 1)
                    .collect(),
            }
        })
        .collect()
}

/// The source files of the workspace by their paths from its root, without what is built.
pub fn source_files(root: &Path) -> Vec<String> {
    let mut files = Vec::new();
    below(root, root, &mut files);
    files.sort();
    files
}

/// Adds the source files below a folder.
fn below(root: &Path, folder: &Path, files: &mut Vec<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_dir() {
            if name != "target" && !name.starts_with('.') {
                below(root, &path, files);
            }
        } else if name.ends_with(".rs") {
            let name = path.strip_prefix(root).unwrap();
            files.push(name.to_str().unwrap().to_string());
        }
    }
}

/// Collects functions.
#[derive(Default)]
struct Functions {
    found: Vec<Function>,
    /// Name of the type whose methods are visited, and whether they belong to a trait.
    owner: Option<(String, bool)>,
}

impl Functions {
    fn add(
        &mut self,
        attributes: &[syn::Attribute],
        signature: &syn::Signature,
        block: &syn::Block,
    ) {
        let start = signature.fn_token.span.start().line;
        let end = end_of(block.brace_token.span.close());
        let owner = self.owner.as_ref();
        let name = signature.ident.to_string();
        self.found.push(Function {
            name: owner.map_or(name.clone(), |(owner, _)| format!("{owner}::{name}")),
            line: start,
            length: end - start + 1,
            parameters: signature.inputs.len(),
            is_fixed: signature.abi.is_some()
                || owner.is_some_and(|o| o.1)
                || attributes.iter().any(|a| a.path().is_ident("analysis")),
        });
    }
}

fn end_of(span: Span) -> usize {
    span.end().line
}

impl<'ast> Visit<'ast> for Functions {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.add(&item.attrs, &item.sig, &item.block);
        visit::visit_item_fn(self, item);
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.add(&item.attrs, &item.sig, &item.block);
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.add(&item.attrs, &item.sig, block);
        }
        visit::visit_trait_item_fn(self, item);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let name = match &*item.self_ty {
            syn::Type::Path(path) => path.path.segments.last().map(|s| s.ident.to_string()),
            _ => None,
        };
        let outer = self
            .owner
            .replace((name.unwrap_or_default(), item.trait_.is_some()));
        visit::visit_item_impl(self, item);
        self.owner = outer;
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        let outer = self.owner.take();
        visit::visit_item_mod(self, item);
        self.owner = outer;
    }
}
