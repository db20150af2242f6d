//! The programs: compiled here from the sources of well-known crates and linked
//! statically, so that all of their user time is spent in their own text.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Error, Result};

/// How a program is compiled and run.
pub struct Program {
    /// Name in the tables.
    pub name: &'static str,
    /// The crate whose sources it is made of; none for our own.
    source: Option<&'static str>,
    /// Shell command: `$SRC` is the crate's folder, `$HERE` ours, `$FLAGS` further
    /// options of the compiler, `$OUT` the result.
    build: &'static str,
    /// Arguments; `$HERE` and `$IN` (inputs) are replaced.
    pub args: &'static [&'static str],
}

/// The programs that are measured.
pub const PROGRAMS: [Program; 5] = [
    Program {
        name: "bzip2",
        source: Some("bzip2-sys"),
        build: "cd $SRC/bzip2-1.0.8 && gcc -O2 $FLAGS -static -D_FILE_OFFSET_BITS=64 bzip2.c blocksort.c huffman.c \
                crctable.c randtable.c compress.c decompress.c bzlib.c -o $OUT",
        args: &["-9", "-k", "-c", "$IN/large"],
    },
    Program {
        name: "zstd",
        source: Some("zstd-sys"),
        build: "gcc -O2 $FLAGS -static -DZSTD_DISABLE_ASM=1 -I$SRC/zstd/lib $HERE/zstd.c $SRC/zstd/lib/common/*.c \
                $SRC/zstd/lib/compress/*.c $SRC/zstd/lib/decompress/*.c -o $OUT",
        args: &["$IN/large"],
    },
    Program {
        name: "lua",
        source: Some("lua-src"),
        build: "gcc -O2 $FLAGS -static -I$SRC/lua-5.4.8 $HERE/lua.c $SRC/lua-5.4.8/*.c -lm -o $OUT",
        args: &["$HERE/work.lua"],
    },
    Program {
        name: "sqlite3",
        source: Some("libsqlite3-sys"),
        build: "gcc -O2 $FLAGS -static -DSQLITE_OMIT_LOAD_EXTENSION -DSQLITE_THREADSAFE=0 -I$SRC/sqlite3 \
                $HERE/sqlite.c $SRC/sqlite3/sqlite3.c -lm -o $OUT",
        args: &["$HERE/work.sql"],
    },
    Program {
        name: "c++ objects",
        source: None,
        build: "g++ -O2 $FLAGS -static -std=c++17 $HERE/objects.cc -o $OUT",
        args: &["200000"],
    },
];

/// Folders of the crates' sources by crate name.
pub struct Sources(Vec<(String, PathBuf)>);

impl Sources {
    /// Asks cargo for them; `here` is the folder of the crate that depends on them.
    pub(super) fn find(here: &Path) -> Result<Self> {
        let fail = |reason: String| Error::new("finding the programs' sources", reason);
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let output = Command::new(cargo)
            .args(["metadata", "--format-version", "1", "--manifest-path"])
            .arg(here.join("Cargo.toml"))
            .output()
            .map_err(|e| fail(e.to_string()))?;
        if !output.status.success() {
            return Err(fail(String::from_utf8_lossy(&output.stderr).into_owned()));
        }
        let json: serde_json::Value =
            serde_json::from_slice(&output.stdout).map_err(|e| fail(e.to_string()))?;
        let packages = json["packages"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        let folder = |p: &serde_json::Value| {
            let manifest = Path::new(p["manifest_path"].as_str()?).parent()?;
            Some((p["name"].as_str()?.to_string(), manifest.to_path_buf()))
        };
        Ok(Self(packages.iter().filter_map(folder).collect()))
    }
}

impl Program {
    /// Compiles the program as `out`, unless that file exists.
    pub(super) fn build(
        &self,
        here: &Path,
        sources: &Sources,
        flags: &str,
        out: &Path,
    ) -> Result<()> {
        let fail = |reason: &str| Error::new("building the benchmark", reason).file(self.name);
        if out.exists() {
            return Ok(());
        }
        let mut command = Command::new("sh");
        if let Some(name) = self.source {
            let (_, folder) = sources
                .0
                .iter()
                .find(|(n, _)| n == name)
                .ok_or_else(|| fail("its crate is missing"))?;
            command.env("SRC", folder);
        }
        let partial = out.with_extension("partial");
        let output = command
            .args(["-c", self.build])
            .env("HERE", here)
            .env("FLAGS", flags)
            .env("OUT", &partial)
            .output();
        let output = output.map_err(|e| fail(&e.to_string()))?;
        if !output.status.success() {
            return Err(fail(&String::from_utf8_lossy(&output.stderr)));
        }
        std::fs::rename(&partial, out).map_err(|e| fail(&e.to_string()))
    }
}
