//! The statements of a routine as source text, in either language.

use std::fmt::Write;

use super::Language;
use super::routine::{Statement, fill};

/// Writes the statements of a routine.
pub struct BlockWriter<'a> {
    language: Language,
    numbers: (usize, usize),
    counter: Option<&'a str>,
}

impl<'a> BlockWriter<'a> {
    /// For routine `k` of tool `t`: the names of cold functions contain both numbers, `(t, k)`. Statements that count add
    /// to the parameter `counter`; without one they are left out.
    pub fn new(language: Language, numbers: (usize, usize), counter: Option<&'a str>) -> Self {
        Self {
            language,
            numbers,
            counter,
        }
    }

    /// Appends statements. `known` is the number of variables that they can name already.
    pub fn write(&self, text: &mut String, block: &[Statement], mut known: usize) {
        let language = self.language;
        let (t, k) = self.numbers;
        for statement in block {
            // Writing to a string cannot fail.
            let _ = match statement {
                Statement::Variable(value) => {
                    known += 1;
                    let declared = match language {
                        Language::Rust => "let",
                        Language::C => "u64",
                    };
                    let value = value.text(language);
                    writeln!(text, "{declared} v{} = {value};", known - 1)
                }
                Statement::Simple(template, operands) => {
                    writeln!(text, "{}", fill(template, operands, language))
                }
                Statement::Count(by) => match (self.counter, language) {
                    (None, _) => Ok(()),
                    (Some(counter), Language::Rust) => {
                        writeln!(text, "{counter}.add({});", by.text(language))
                    }
                    (Some(counter), Language::C) => {
                        writeln!(text, "*{counter} += {};", by.text(language))
                    }
                },
                Statement::Cold(n, operands) => {
                    let list: String = (operands.iter())
                        .map(|e| format!(", {}", e.text(language)))
                        .collect();
                    writeln!(text, "cold{t}_{k}_{n}(s{list});")
                }
                Statement::Return => writeln!(text, "return;"),
                Statement::If(condition, operands, yes, no) => {
                    let condition = fill(condition, operands, language);
                    let _ = match language {
                        Language::Rust => writeln!(text, "if {condition} {{"),
                        Language::C => writeln!(text, "if ({condition}) {{"),
                    };
                    self.write(text, yes, known);
                    let _ = writeln!(text, "}} else {{");
                    self.write(text, no, known);
                    writeln!(text, "}}")
                }
            };
        }
    }
}
