//! What a tool's file says about the tool.
//!
//! A tool exports a text, which is read from its file. The tool is not loaded, so no code of it runs.

use std::path::Path;

use object::{Object, ObjectSection, ObjectSymbol};

/// The name of the tool in a file: `icount` of `libicount.so`.
pub fn tool_name(file: &Path) -> Option<String> {
    let name = file.file_name()?.to_str()?;
    Some(name.strip_prefix("lib")?.strip_suffix(".so")?.to_owned())
}

/// The help that the tool in a file has, if any; `None` for a file that is no tool.
pub fn help_of(file: &Path) -> Option<Option<String>> {
    help_with(file, atom_abi::TOOL_HEADER_SYMBOL)
}

/// The help of a tool whose report reads options of the run, too.
pub fn help_with_report(file: &Path) -> Option<String> {
    help_with(file, atom_abi::TOOL_REPORT_SYMBOL).flatten()
}

/// The help, if any, of the tool in a file that exports a symbol.
fn help_with(file: &Path, needed: &str) -> Option<Option<String>> {
    let data = std::fs::read(file).ok()?;
    let elf = object::File::parse(&data[..]).ok()?;
    let symbol = |name: &str| {
        elf.dynamic_symbols()
            .find(|s| s.is_definition() && s.name() == Ok(name))
    };
    symbol(needed)?;
    let text = symbol(atom_abi::TOOL_HELP_SYMBOL).and_then(|s| {
        let section = elf.section_by_index(s.section_index()?).ok()?;
        let bytes = match s.size() {
            0 => &[],
            size => section.data_range(s.address(), size).ok()??,
        };
        String::from_utf8(bytes.to_vec()).ok()
    });
    Some(text)
}

/// True if the help of the tool in a file names this option.
pub fn has_option(file: &Path, option: &str) -> bool {
    let name = option.split('=').next().unwrap_or(option);
    let help = help_of(file).flatten().unwrap_or_default();
    help.split(|c: char| c.is_whitespace() || c == ',')
        .any(|word| word == name)
}
