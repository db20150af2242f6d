//! The programs: some compiled here from the sources of well-known crates and linked
//! statically, so that all of their user time is spent in their own text; some installed, which do most of
//! their work in libraries.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Error, Result};

/// A program and its work.
pub struct Program {
    /// Name in the tables.
    pub name: &'static str,
    /// Where the program comes from.
    origin: Origin,
    /// Arguments; `$HERE` and `$IN` (inputs) are replaced.
    pub args: &'static [&'static str],
}

/// Where a program comes from.
enum Origin {
    /// Compiled from a crate's sources (none for our own) and linked statically. The shell command has
    /// the variables `$SRC`, the crate's folder, `$HERE`, our folder, `$FLAGS`, further options of the compiler, and
    /// `$OUT`, the result.
    Sources(Option<&'static str>, &'static str),
    /// Installed by the distribution; a whole process is measured. The pattern names libraries that the program
    /// loads while it runs.
    Installed(&'static str, Option<&'static str>),
}

/// Programs whose user time is spent in their own text.
pub const STATIC: [Program; 5] = [
    Program {
        name: "bzip2",
        origin: Origin::Sources(
            Some("bzip2-sys"),
            "cd $SRC/bzip2-1.0.8 && gcc -O2 $FLAGS -static -D_FILE_OFFSET_BITS=64 bzip2.c blocksort.c huffman.c \
             crctable.c randtable.c compress.c decompress.c bzlib.c -o $OUT",
        ),
        args: &["-9", "-k", "-c", "$IN/large"],
    },
    Program {
        name: "zstd",
        origin: Origin::Sources(
            Some("zstd-sys"),
            "gcc -O2 $FLAGS -static -DZSTD_DISABLE_ASM=1 -I$SRC/zstd/lib $HERE/zstd.c $SRC/zstd/lib/common/*.c \
             $SRC/zstd/lib/compress/*.c $SRC/zstd/lib/decompress/*.c -o $OUT",
        ),
        args: &["$IN/large"],
    },
    Program {
        name: "lua",
        origin: Origin::Sources(
            Some("lua-src"),
            "gcc -O2 $FLAGS -static -I$SRC/lua-5.4.8 $HERE/lua.c $SRC/lua-5.4.8/*.c -lm -o $OUT",
        ),
        args: &["$HERE/work.lua"],
    },
    Program {
        name: "sqlite3",
        origin: Origin::Sources(
            Some("libsqlite3-sys"),
            "gcc -O2 $FLAGS -static -DSQLITE_OMIT_LOAD_EXTENSION -DSQLITE_THREADSAFE=0 -I$SRC/sqlite3 \
             $HERE/sqlite.c $SRC/sqlite3/sqlite3.c -lm -o $OUT",
        ),
        args: &["$HERE/work.sql"],
    },
    Program {
        name: "c++ objects",
        origin: Origin::Sources(
            None,
            "g++ -O2 $FLAGS -static -std=c++17 $HERE/objects.cc -o $OUT",
        ),
        args: &["200000"],
    },
];

/// Builds the work in Go.
const GO: &str = "cd /tmp && GO111MODULE=off GOFLAGS= CGO_ENABLED=0 GOCACHE=$OUT.cache go build -o $OUT $HERE/work.go \
    && rm -rf $OUT.cache";

/// Programs of Go: what such programs do much of their time. They are one program with different arguments.
pub const GO_PROGRAMS: [Program; 6] = [
    go("json", &["json"]),
    go("regexp", &["regexp"]),
    go("compress", &["compress"]),
    go("map", &["map"]),
    go("channel", &["channel"]),
    go("collect", &["collect"]),
];

const fn go(name: &'static str, args: &'static [&'static str]) -> Program {
    Program {
        name,
        origin: Origin::Sources(None, GO),
        args,
    }
}

/// Dynamic programs as the distribution ships them, with all that they load.
pub const WHOLE: [Program; 11] = [
    Program {
        name: "bzip2",
        origin: Origin::Installed("/usr/bin/bzip2", None),
        args: &["-9", "-k", "-c", "$IN/large"],
    },
    Program {
        name: "xz",
        origin: Origin::Installed("/usr/bin/xz", None),
        args: &["-2", "-T1", "-k", "-c", "$IN/large"],
    },
    Program {
        name: "zstd",
        origin: Origin::Installed("/usr/bin/zstd", None),
        args: &["-9", "--single-thread", "-k", "-c", "$IN/large"],
    },
    Program {
        name: "sqlite3",
        origin: Origin::Installed("/usr/bin/sqlite3", None),
        args: &[":memory:", ".read $HERE/work.sql"],
    },
    Program {
        name: "python3 json",
        origin: Origin::Installed("/usr/bin/python3", Some(PYTHON_JSON)),
        args: &["-I", "$HERE/work.py", "json"],
    },
    Program {
        name: "python3 zlib",
        origin: Origin::Installed("/usr/bin/python3", None),
        args: &["-I", "$HERE/work.py", "zlib"],
    },
    Program {
        name: "openssl",
        origin: Origin::Installed("/usr/bin/openssl", None),
        args: &["dgst", "-sha512", "$IN/huge"],
    },
    Program {
        name: "perl",
        origin: Origin::Installed("/usr/bin/perl", None),
        args: &["$HERE/work.pl"],
    },
    Program {
        name: "git log",
        origin: Origin::Installed("/usr/bin/git", None),
        args: &["-C", "$IN/history", "--no-pager", "log", "--stat", "-p"],
    },
    Program {
        name: "z3 (C++)",
        origin: Origin::Installed("/usr/bin/z3", None),
        args: &["$HERE/work.smt2"],
    },
    Program {
        name: "groff (C++)",
        origin: Origin::Installed("/usr/bin/troff", None),
        args: &["-man", "-Tutf8", "$IN/page"],
    },
];

/// The compiled part of Python's module `json`.
const PYTHON_JSON: &str = "/usr/lib/python3*/lib-dynload/_json.*.so";

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
    /// The path of an installed program; `None` if the program is compiled here.
    pub(super) fn installed(&self) -> Option<&'static Path> {
        match self.origin {
            Origin::Installed(path, _) => Some(Path::new(path)),
            Origin::Sources(..) => None,
        }
    }

    /// True if the program is expected to be installed and is not.
    pub fn is_missing(&self) -> bool {
        self.installed().is_some_and(|file| !file.exists())
    }

    /// Libraries that the program loads while it runs.
    pub(super) fn loads(&self) -> Vec<PathBuf> {
        let Origin::Installed(_, Some(pattern)) = self.origin else {
            return Vec::new();
        };
        let listed = Command::new("sh")
            .args(["-c", &format!("ls {pattern}")])
            .output();
        let names = listed.map(|o| o.stdout).unwrap_or_default();
        let names = String::from_utf8_lossy(&names).into_owned();
        names.lines().map(PathBuf::from).collect()
    }

    /// Compiles the program as `out`, unless that file exists.
    pub(super) fn build(
        &self,
        here: &Path,
        sources: &Sources,
        flags: &str,
        out: &Path,
    ) -> Result<()> {
        let fail = |reason: &str| Error::new("building the benchmark", reason).file(self.name);
        let Origin::Sources(source, build) = self.origin else {
            return Ok(());
        };
        if out.exists() {
            return Ok(());
        }
        let mut command = Command::new("sh");
        if let Some(name) = source {
            let (_, folder) = sources
                .0
                .iter()
                .find(|(n, _)| n == name)
                .ok_or_else(|| fail("its crate is missing"))?;
            command.env("SRC", folder);
        }
        let partial = out.with_extension("partial");
        let output = command
            .args(["-c", build])
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
