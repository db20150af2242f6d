//! Sums of the tool `counters` equal the figures of other tools and of a single-step trace.

use std::path::Path;
use std::process::Command;

use atom_tests::counts::Missed;
use atom_tests::outcome::plain_environment;
use atom_tests::programs;
use atom_tests::stepper::{self, Options, Step};
use iced_x86::{Decoder, DecoderOptions, FlowControl, InstructionInfoFactory, OpAccess};
use object::{Object, ObjectSection};

use super::{folder, in_all, json, ran, sums};

const SCRIPT: &str = "i=0; while [ $i -lt 30 ]; do i=$((i+1)); case $i in *7) x=$x.;; esac; done; \
                      echo ${#x}; (exit 3); echo $?";

#[test]
fn figures_are_those_of_other_tools() {
    let text = "The quick brown fox jumps over the lazy dog, again and again.\n".repeat(50);
    for (name, args) in [
        ("dash", &["-c", SCRIPT][..]),
        ("sed", &["-n", "s/o\\(.\\)/\\1/gp", "../text"]),
        (
            "sqlite3",
            &[":memory:", "select sum(1) from (values (1), (2));"],
        ),
        ("bzip2", &["-zkc", "../text"]),
    ] {
        let program = programs::needed(name);
        let folder = folder(name);
        std::fs::write(folder.join("text"), &text).unwrap();
        let ran = |tool: &str, options: &[&str]| ran(&folder, &program, tool, options, args);
        let events = "exact:instructions,exact:branches,exact:taken,exact:not-taken,\
                      model:L1-misses,model:L2-misses";
        // The default cache of the tool `cache`.
        let cache = ["--line", "32", "--l1", "8k:1"];
        let options = [&["--json", "o.json", "--events", events], &cache[..]].concat();
        let counters = ran("counters", &options);
        let report = json(&counters.place, "o.json");
        let all = |event: &str| in_all(&report, event);
        let own = sums(&report, "exact:instructions", "self");
        assert_eq!(
            own.values().sum::<u64>(),
            all("exact:instructions"),
            "{name}"
        );

        let other = ran("icount", &["--json", "o.json"]);
        assert_eq!(other.outcome.stdout, counters.outcome.stdout, "{name}");
        let other = json(&other.place, "o.json");
        assert_eq!(other["instructions"], all("exact:instructions"), "{name}");
        let other = json(&ran("branch", &["--json", "o.json"]).place, "o.json");
        assert_eq!(other["executed"], all("exact:branches"), "{name}");
        assert_eq!(other["taken"], all("exact:taken"), "{name}");
        assert_eq!(
            all("exact:taken") + all("exact:not-taken"),
            all("exact:branches")
        );
        let other = json(
            &ran("cache", &["--preset", "atom", "--json", "o.json"]).place,
            "o.json",
        );
        assert_eq!(other["misses"], all("model:L1-misses"), "{name}");
        assert!(all("model:L2-misses") <= all("model:L1-misses"));

        let other = json(
            &ran("prof", &["--json", "o.json", "--entries"]).place,
            "o.json",
        );
        let entries = sums(&other, "procedures", "entries");
        let calls = sums(&report, "procedures", "calls");
        assert!(calls.len() > 5, "{name}");
        for (proc, n) in &calls {
            assert_eq!(entries.get(proc).copied().unwrap_or(0), *n, "{name} {proc}");
        }
    }
}

/// Counts of a single-step trace.
#[derive(Debug, Default, PartialEq, Eq)]
struct Truth {
    loads: u64,
    stores: u64,
    bytes: u64,
    calls: u64,
    taken: u64,
}

#[test]
fn memory_is_that_of_a_trace() {
    for (name, args) in [
        ("dash", &["-c", SCRIPT][..]),
        ("sed", &["-n", "s/o\\(.\\)/\\1/gp", "../text"]),
    ] {
        let program = programs::needed(name);
        let folder = folder(&format!("trace-{name}"));
        std::fs::write(folder.join("text"), "The quick brown fox\n".repeat(3)).unwrap();
        let events = "exact:loads,exact:stores,exact:bytes,exact:calls,exact:taken,\
                      exact:references,exact:loads:opcode=mov*";
        let ran = ran(
            &folder,
            &program,
            "counters",
            &["--json=o.json", "--events", events],
            args,
        );
        let report = json(&ran.place, "o.json");
        let missed = Missed::from_report(&ran.report);
        let truth = trace(&program, &ran.place, args, &missed);
        let all = |event: &str| in_all(&report, event);
        let have = Truth {
            loads: all("exact:loads"),
            stores: all("exact:stores"),
            bytes: all("exact:bytes"),
            calls: all("exact:calls"),
            taken: all("exact:taken"),
        };
        assert_eq!(have, truth, "{name}");
        assert_eq!(all("exact:references"), truth.loads + truth.stores);
        let moves = all("exact:loads:opcode=mov*");
        assert!(0 < moves && moves < truth.loads);
    }
}

fn trace(program: &Path, place: &Path, args: &[&str], missed: &Missed) -> Truth {
    let bytes = std::fs::read(program).unwrap();
    let elf = object::File::parse(&*bytes).unwrap();
    let sections: Vec<(u64, &[u8])> = elf
        .sections()
        .filter(|s| s.kind() == object::SectionKind::Text)
        .map(|s| (s.address(), s.data().unwrap()))
        .collect();
    let mut factory = InstructionInfoFactory::new();
    let mut truth = Truth::default();
    let mut tell = |step: &Step<'_>| {
        let known = |s: &&(u64, &[u8])| (s.0..s.0 + s.1.len() as u64).contains(&step.pc);
        let Some((start, code)) = sections.iter().find(known) else {
            return;
        };
        if missed.around(step.pc).is_some() {
            return;
        }
        let code = &code[(step.pc - start) as usize..];
        let insn = Decoder::with_ip(64, code, step.pc, DecoderOptions::NONE).decode();
        if !step.repeated {
            match insn.flow_control() {
                FlowControl::Call | FlowControl::IndirectCall => truth.calls += 1,
                FlowControl::ConditionalBranch => {
                    truth.taken += u64::from(step.next != insn.next_ip());
                }
                _ => {}
            }
        }
        if step.references.is_empty() {
            return;
        }
        for memory in factory.info(&insn).used_memory() {
            // Size 0: a repeated instruction, whose number of elements is not known here.
            let size = match memory.memory_size().size() {
                0 => insn.memory_size().size(),
                size => size,
            } as u64;
            let (reads, writes) = match memory.access() {
                OpAccess::Read | OpAccess::CondRead => (1, 0),
                OpAccess::Write | OpAccess::CondWrite => (0, 1),
                OpAccess::ReadWrite | OpAccess::ReadCondWrite => (1, 1),
                OpAccess::None | OpAccess::NoMemAccess => (0, 0),
            };
            truth.loads += reads;
            truth.stores += writes;
            truth.bytes += (reads + writes) * size;
        }
    };
    let mut command = Command::new(program);
    plain_environment(&mut command);
    command.args(args).current_dir(place);
    command.stdout(std::process::Stdio::null());
    let options = Options {
        skip_libraries: true,
        capture: true,
        ..Options::default()
    };
    stepper::watch(program, &mut command, options, &mut tell).unwrap();
    truth
}
