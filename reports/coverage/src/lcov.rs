//! The format of lcov's tracefiles, which genhtml and editors read: one record for each source file.

use std::io::{self, Write};

use crate::Coverage;

impl Coverage {
    /// Writes the source files in lcov's format.
    ///
    /// # Errors
    /// Those of the writer.
    pub fn write_lcov(&self, to: &mut dyn Write) -> io::Result<()> {
        writeln!(to, "TN:")?;
        for (path, file) in &self.files {
            writeln!(to, "SF:{path}")?;
            let functions = file.functions(self);
            for function in &functions {
                writeln!(to, "FN:{},{}", function.line, function.name)?;
            }
            for function in &functions {
                writeln!(to, "FNDA:{},{}", function.entries, function.name)?;
            }
            let entered = functions.iter().filter(|f| f.entries != 0).count();
            writeln!(to, "FNF:{}\nFNH:{entered}", functions.len())?;
            for (line, branches) in file.branches() {
                for (number, ways) in branches.into_iter().enumerate() {
                    let is_reached = ways != [0, 0];
                    for (way, count) in ways.into_iter().enumerate() {
                        // A dash says that the branch itself was not reached.
                        if is_reached {
                            writeln!(to, "BRDA:{line},{number},{way},{count}")?
                        } else {
                            writeln!(to, "BRDA:{line},{number},{way},-")?
                        }
                    }
                }
            }
            let (gone, ways) = file.executed_ways();
            if ways != 0 {
                writeln!(to, "BRF:{ways}\nBRH:{gone}")?;
            }
            for (line, count) in &file.lines {
                writeln!(to, "DA:{line},{count}")?;
            }
            let executed = file.executed_lines();
            writeln!(to, "LF:{}\nLH:{executed}\nend_of_record", file.lines.len())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_record_has_functions_branches_and_lines() {
        let mut text = Vec::new();
        crate::example().write_lcov(&mut text).unwrap();
        let expected = "TN:\nSF:/src/a.c\nFN:3,a\nFN:5,b<int>\nFNDA:1,a\nFNDA:0,b<int>\nFNF:2\nFNH:1\n\
            BRDA:4,0,0,9\nBRDA:4,0,1,0\nBRF:2\nBRH:1\nDA:3,1\nDA:4,10\nDA:5,0\nLF:3\nLH:2\nend_of_record\n";
        assert_eq!(String::from_utf8(text).unwrap(), expected);
    }
}
