//! Loads that read a pad: the tool `textreads` looks at every load of a process. Libraries whose assembly has tables in
//! the text run with features of the processor hidden from them one by one, so that all of their routines run.

use std::path::{Path, PathBuf};
use std::process::Command;

use atom_tests::atom;
use atom_tests::counts::{Symbols, TextReads, text_reads};
use atom_tests::outcome::{Outcome, Setting, plain_environment, run};

/// A program and its instrumented process.
struct Watched {
    folder: PathBuf,
    program: PathBuf,
    bundle: PathBuf,
}

/// Arguments and variables of a run.
type Mask<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)]);

impl Watched {
    /// Compiles a source of this project and instruments the process.
    fn new(name: &str, source: &str, libraries: &[&str]) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("textreads-{name}"));
        std::fs::create_dir_all(&folder).unwrap();
        let (program, bundle) = (folder.join(name), folder.join(format!("{name}-watched")));
        let source = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests")
            .join(source);
        let mut compiler = Command::new("gcc");
        compiler.args(["-O2", "-o"]).args([&program, &source]);
        let made = compiler.args(libraries).status();
        assert!(made.expect("gcc runs").success());
        let mut command = Command::new(atom::command().unwrap());
        command.arg(&program).arg("-o").arg(&bundle);
        // Procedures without loads have pads, too.
        command.args(["-q", "--libs", "--move-all", "--tool", "textreads"]);
        command.args(["--", "--output"]);
        let made = command.arg(folder.join("reads-%p")).status();
        assert!(made.expect("atom runs").success());
        Self {
            folder,
            program,
            bundle,
        }
    }

    fn run(&self, file: &Path, (arguments, variables): Mask<'_>) -> Outcome {
        let mut command = Command::new(file);
        plain_environment(&mut command);
        command
            .args(arguments)
            .envs(variables.iter().copied())
            .current_dir(&self.folder);
        run(&mut command, &Setting::default()).unwrap()
    }

    /// Runs original and instrumented process; asserts that both do the same.
    fn reads(&self, mask: Mask<'_>) -> TextReads {
        let before = self.run(&self.program, mask);
        let after = self.run(&self.bundle, mask);
        assert_eq!(before.end, after.end, "{mask:?}");
        assert_eq!(
            String::from_utf8_lossy(&before.stdout),
            String::from_utf8_lossy(&after.stdout),
            "{mask:?}"
        );
        let file = self.folder.join(format!("reads-{}", after.pid));
        let reads = text_reads(&file).unwrap();
        std::fs::remove_file(file).unwrap();
        reads
    }

    /// Asserts that with no mask a load reads changed text. The number of loads from text in all runs together.
    fn all_right(&self, masks: &[Mask<'_>]) -> u64 {
        let runs = masks.iter().map(|mask| {
            let reads = self.reads(*mask);
            assert!(reads.loads > 1000, "{mask:?}: {reads:?}");
            assert!(reads.changed.is_empty(), "{mask:?}: {reads:?}");
            reads.from_text
        });
        runs.sum()
    }
}

/// A program that reads a pad on purpose, by an address that nobody can know beforehand: the judge sees it.
#[test]
fn a_load_of_a_pad_is_seen() {
    let watched = Watched::new("pads", "textreads/pads.c", &[]);
    let reads = watched.reads((&[], &[]));
    let victim = Symbols::read(&watched.program).address("victim").unwrap();
    assert!(!reads.changed.is_empty(), "{reads:?}");
    for [_, address] in &reads.changed {
        let address = u64::from_str_radix(address.trim_start_matches("0x"), 16).unwrap();
        assert!((victim..victim + 5).contains(&address), "{reads:?}");
    }
}

#[test]
fn libcrypto() {
    // SSSE3 with all that needs it; AES and carry-less multiplication; AVX; then AVX2, BMI2, ADX, SHA, AVX-512 and
    // its multiplication of integers, and AES of wide vectors.
    let masks = [
        "~0x0",
        "~0x1200020200000000:~0x0",
        "~0x200000200000000",
        "~0x1000000000000000",
        "~0x0:~0x20",
        "~0x0:~0x100",
        "~0x0:~0x80000",
        "~0x0:~0x20000000",
        "~0x0:~0xd0030000",
        "~0x0:~0x200000",
        "~0x0:~0x60000000000",
        "~0x0:~0x600d0230000",
    ];
    let variables = masks.map(|mask| [("OPENSSL_ia32cap", mask)]);
    let masks: Vec<Mask<'_>> = variables.iter().map(|v| (&[][..], &v[..])).collect();
    let watched = Watched::new("libcrypto", "crypto/libcrypto.c", &["-lcrypto"]);
    assert!(watched.all_right(&masks) > 1000);
}

#[test]
fn libgcrypt() {
    let masks: [&[&str]; 9] = [
        &[],
        &["intel-avx2", "intel-avx512", "intel-vaes-vpclmul"],
        &["intel-avx512", "intel-vaes-vpclmul"],
        &[
            "intel-avx",
            "intel-avx2",
            "intel-avx512",
            "intel-vaes-vpclmul",
        ],
        &["intel-aesni", "intel-vaes-vpclmul"],
        &["intel-shaext"],
        &["intel-bmi2", "intel-fast-shld"],
        &["intel-pclmul", "intel-sse4.1"],
        &["all"],
    ];
    let masks: Vec<Mask<'_>> = masks.iter().map(|features| (*features, &[][..])).collect();
    let watched = Watched::new("gcrypt", "textreads/gcrypt.c", &["-lgcrypt"]);
    assert!(watched.all_right(&masks) > 1000);
}

#[test]
fn nettle_and_gmp() {
    let choices = [
        "none",
        "vendor:intel,aesni,pclmul,sha_ni",
        "vendor:intel,aesni",
        "vendor:amd,pclmul",
    ];
    let choices = choices.map(|choice| [("NETTLE_FAT_OVERRIDE", choice)]);
    let masks = choices.iter().map(|v| (&[][..], &v[..]));
    let masks: Vec<Mask<'_>> = masks.chain([(&[][..], &[][..])]).collect();
    let watched = Watched::new("nettle", "textreads/nettle.c", &["-lnettle", "-lgmp"]);
    watched.all_right(&masks);
}

/// glibc chooses its routines for strings and memory by the processor.
#[test]
fn libc() {
    let features = [
        "-AVX2",
        "-AVX512F",
        "-AVX512VL",
        "-AVX2,-SSSE3",
        "-ERMS",
        "-AVX2,-SSE4_2,-SSE4_1",
        "-EVEX",
    ];
    let tunables = features.map(|f| {
        // Older versions have other names.
        let old = f.replace(',', "_Usable,");
        format!("glibc.cpu.hwcaps={f},{old}_Usable")
    });
    let variables: Vec<_> = (tunables.iter())
        .map(|t| [("GLIBC_TUNABLES", t.as_str())])
        .collect();
    let masks: Vec<Mask<'_>> = variables.iter().map(|v| (&[][..], &v[..])).collect();
    let watched = Watched::new("libc", "textreads/libc.c", &["-lm"]);
    watched.all_right(&masks);
}
