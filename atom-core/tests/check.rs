//! The checker accepts what is right and finds what is not.

#[path = "poison/poisoner.rs"]
#[allow(dead_code)]
mod poisoner;

use std::path::PathBuf;
use std::process::Command;

use atom_core::cfg::{Cfg, Object};
use atom_core::check::{Checked, Scope, Subject, check};
use atom_core::image::Image;
use atom_core::layout::{Area, Extra, Options, Placed};
use atom_core::live::{Live, RegSet};
use atom_core::plan::{Clobbers, Insertion, Plan, Position, Snippet};
use atom_core::{Result, pipeline};

const PROGRAM: &str = r#"
#include <stdio.h>
#include <stdlib.h>
static int choose(int n, int m) {
    switch (n % 9) {
    case 0: return m + 1; case 1: return m * 5; case 2: return m - 7;
    case 3: return m | 64; case 4: return m / 3; case 5: return m ^ 99;
    case 6: return choose(n + 1, m - 1); case 7: return m << 2; default: return -m;
    }
}
/* Keeps its argument below rsp. */
long keep(long);
__asm__(".text\n.type keep, @function\nkeep: movq %rdi, -8(%rsp)\nmovq -8(%rsp), %rax\nret\n.size keep, .-keep");
/* Reads a word by rsp. */
__asm__(".type pops, @function\npops: movq %rsp, %r8\nmovq %rdi, %rsp\npopq %rcx\nleaq 1(%rcx), %rax\nmovq %r8, %rsp\nret\n.size pops, .-pops");
/* One byte in front of it, to which a pointer leads. */
long lone(long);
__asm__(".type lone, @function\nlone: nop\n.size lone, .-lone\n.globl behind\n.type behind, @function\nbehind: leaq 1(%rdi), %rax\nret\n.size behind, .-behind");
/* A table in the text, and a procedure that goes to a computed address. */
__asm__(".type table, @object\ntable: .quad 0x1122334455667788, 0x99aabbccddeeff00\n.size table, .-table\n.globl strange\n.type strange, @function\nstrange: leaq 1f(%rip), %rax\nleaq (%rax,%rdi,4), %rax\njmp *%rax\n1: leaq 2(%rdi), %rax\n ret\n.size strange, .-strange\n.globl locked\n.type locked, @function\nlocked: testl %edi, %edi\nje 1f\n.byte 0xf0\n1: incl (%rsi)\nret\n.size locked, .-locked");
#ifdef MUCH_CODE
__asm__(".type filler, @function\nfiller: .skip 17000, 0x90\nret\n.size filler, .-filler");
#endif
long behind(long);
long (*volatile pointers[])(long) = { lone, behind };
static int compare(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
int main(int argc, char **argv) {
    int table[64], m = argc;
    for (int i = 0; i < 64; i++) table[i] = m = choose(i, m) & 0xffff;
    qsort(table, 64, sizeof *table, compare);
    double sum = 0;
    for (int i = 0; i < 64; i++) { sum += table[i] * 0.5; printf("%d ", table[i]); }
    return sum > keep(1000) + pointers[0](0) + pointers[1](0);
}
"#;

const POISON: poisoner::Choice = poisoner::Choice {
    one_in: 2,
    seed: 7,
    blocks: (0, u32::MAX),
};

/// Without frame descriptions of `main`: code that a test inserts has no rows for what it does to rsp.
const NO_FRAMES: &str = "-fno-asynchronous-unwind-tables";

/// With more code without frame descriptions than the assembly of a language's runtime has.
const MUCH_CODE: &str = "-DMUCH_CODE";

fn program(name: &str, flags: &[&str]) -> PathBuf {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let (source, file) = (
        folder.join(format!("check-{name}.c")),
        folder.join(format!("check-{name}")),
    );
    std::fs::write(&source, PROGRAM).unwrap();
    let status = Command::new("gcc")
        .args(flags)
        .arg("-o")
        .arg(&file)
        .arg(&source)
        .status();
    assert!(status.expect("gcc runs").success());
    file
}

/// A rewritten program with all that the checker wants to know.
struct Rewritten {
    placed: Placed<'static>,
    output: Vec<u8>,
}

impl Rewritten {
    /// The program and its plan live as long as the test process.
    fn new(file: &std::path::Path, plan_of: &dyn Fn(&Image, &Cfg) -> Plan) -> Result<Self> {
        Self::in_process(file, plan_of, None)
    }

    /// As an object of a process with this area.
    fn in_process(
        file: &std::path::Path,
        plan_of: &dyn Fn(&Image, &Cfg) -> Plan,
        area: Option<&'static Area>,
    ) -> Result<Self> {
        Self::misunderstood(file, plan_of, area, &|_| {})
    }

    /// With errors in the graph.
    fn misunderstood(
        file: &std::path::Path,
        plan_of: &dyn Fn(&Image, &Cfg) -> Plan,
        area: Option<&'static Area>,
        spoil: &dyn Fn(&mut Cfg),
    ) -> Result<Self> {
        let image: &Image = Box::leak(Box::new(Image::open(file)?));
        let (mut object, sites) = pipeline::understand(image)?;
        spoil(&mut object.cfg);
        let object: &Object<'_> = Box::leak(Box::new(object));
        let plan = Box::leak(Box::new(plan_of(image, &object.cfg)));
        let options = Options {
            strict: true,
            extra: Extra::All,
            area,
            ..Options::default()
        };
        let placed = Placed::new(object, plan, None, sites, &options)?;
        let output = pipeline::output(&placed, false)?;
        Ok(Self { placed, output })
    }

    fn image(&self) -> &Image {
        self.placed.object.image
    }

    fn cfg(&self) -> &Cfg {
        &self.placed.object.cfg
    }

    fn check(&self, output: &[u8]) -> Result<Checked> {
        check(&Subject {
            placed: &self.placed,
            live: &Live::compute(self.image(), self.cfg()),
            clobbers: &|_| Clobbers::EVERYTHING,
            output,
            scope: Scope::All,
        })
    }

    /// Offset in the file of an address in the new text.
    fn offset(&self, address: u64) -> usize {
        use object::read::elf::{FileHeader, ProgramHeader};
        let header =
            object::elf::FileHeader64::<object::LittleEndian>::parse(&*self.output).unwrap();
        let endian = object::LittleEndian;
        let segments = header.program_headers(endian, &*self.output).unwrap();
        let address = address.wrapping_add(self.placed.layout.region.shift);
        let of = |s: &&object::elf::ProgramHeader64<_>| {
            s.p_type(endian) == object::elf::PT_LOAD
                && address.wrapping_sub(s.p_vaddr(endian)) < s.p_filesz(endian)
        };
        let segment = segments.iter().find(of).unwrap();
        (address - segment.p_vaddr(endian) + segment.p_offset(endian)) as usize
    }
}

fn nothing(_: &Image, _: &Cfg) -> Plan {
    Plan::default()
}

/// Inserts this code in `main`, before an instruction at which these are live.
fn inserted(code: &'static [u8], live: RegSet) -> impl Fn(&Image, &Cfg) -> Plan {
    inserted_in("main", code, live)
}

fn inserted_in(
    proc: &'static str,
    code: &'static [u8],
    live: RegSet,
) -> impl Fn(&Image, &Cfg) -> Plan {
    move |image, cfg| {
        let liveness = Live::compute(image, cfg);
        let inst = (0..cfg.procs.len())
            .map(atom_core::ProcId::from_index)
            .filter(|p| cfg.proc(*p).name.as_deref() == Some(proc))
            .flat_map(|p| cfg.proc(p).blocks())
            .flat_map(|b| {
                cfg.block(b)
                    .insts()
                    .zip(liveness.block(b))
                    .collect::<Vec<_>>()
            })
            .find(|(_, set)| set.contains(live))
            .expect("something is live somewhere")
            .0;
        Plan {
            code: code.to_vec(),
            snippets: vec![Snippet {
                code: 0..code.len() as u32,
                fixups: 0..0,
                cold_part: 0,
                cold_frame_changes: 0,
            }],
            insertions: vec![Insertion {
                inst,
                position: Position::Before,
                snippet: 0,
            }],
            has_private_stack: true,
            ..Plan::default()
        }
    }
}

#[test]
fn accepts_right_programs() {
    for (name, flags) in [
        ("pie", &["-O2", "-g"][..]),
        ("fixed", &["-O1", "-no-pie"]),
        ("static", &["-O2", "-static"]),
        ("static-pie", &["-O3", "-static-pie"]),
    ] {
        let file = program(name, flags);
        let rewritten = Rewritten::new(&file, &nothing).unwrap();
        let checked = rewritten.check(&rewritten.output).unwrap();
        assert!(checked.instructions > 50 && checked.pads > 2, "{checked:?}");
    }
}

/// Every changed bit of a moved instruction is another instruction.
#[test]
fn finds_changed_instructions() {
    let file = program("changed", &["-O2"]);
    let rewritten = Rewritten::new(&file, &nothing).unwrap();
    let mut missed = Vec::new();
    let mut tried = 0;
    for range in rewritten.placed.layout.moved_ranges(rewritten.cfg()) {
        for address in (range.new_start..range.new_end).step_by(3) {
            let at = rewritten.offset(address);
            if rewritten.output[at] == 0xcc {
                continue;
            }
            let mut output = rewritten.output.clone();
            output[at] ^= 1 << (address % 8);
            tried += 1;
            if rewritten.check(&output).is_ok() {
                missed.push(address);
            }
        }
    }
    assert!(tried > 100);
    // Bits without a meaning: the upper ones of REX prefixes, hints, nops.
    assert!(
        missed.len() * 25 < tried,
        "{} of {tried}: {missed:x?}",
        missed.len()
    );
}

/// A changed bit of the frame descriptions of moved code leads to another frame, or to other registers.
#[test]
fn finds_changed_frames() {
    let file = program("frames", &["-O2"]);
    let plan = |image: &Image, cfg: &Cfg| poisoner::plan(image, cfg, POISON);
    let rewritten = Rewritten::new(&file, &plan).unwrap();
    let blobs = rewritten.placed.placement.unwind.as_ref().unwrap();
    let start = rewritten.offset(blobs.eh_frame.address);
    let (mut tried, mut found) = (0, 0);
    for at in start..start + blobs.eh_frame.bytes.len() {
        let mut output = rewritten.output.clone();
        output[at] ^= 1 << (at % 8);
        tried += 1;
        found += usize::from(rewritten.check(&output).is_err());
    }
    // Descriptions of the old text, padding and most of the common parts do not matter.
    assert!(found * 4 > tried, "{found} of {tried}");
}

/// What is no moved code must not change: procedures that stay, tables, and what is between procedures.
#[test]
fn finds_overwritten_text() {
    let file = program("overwritten", &["-O2"]);
    let rewritten = Rewritten::new(&file, &nothing).unwrap();
    let address = |name: &str| {
        let symbols = rewritten.image().symbols.iter();
        let mut found = symbols.filter(|s| s.name == name);
        found.next().expect("a symbol").address
    };
    let reason = |address: u64| {
        let mut output = rewritten.output.clone();
        output[rewritten.offset(address)] ^= 0x10;
        rewritten.check(&output).unwrap_err().reason
    };
    for place in [
        address("table"),
        address("table") + 15,
        address("strange") + 9,
    ] {
        let reason = reason(place);
        assert!(reason.contains("overwritten"), "{place:#x}: {reason}");
    }
}

#[test]
fn finds_jump_tables_that_are_longer() {
    let file = program("tables", &["-O2"]);
    let shorten = |cfg: &mut Cfg| {
        let table = &mut cfg.jump_tables[0];
        assert!(table.targets.len() > 4, "{table:?}");
        table.entries -= 1;
    };
    let rewritten = Rewritten::misunderstood(&file, &nothing, None, &shorten).unwrap();
    let error = rewritten.check(&rewritten.output).unwrap_err();
    assert!(error.reason.contains("entries are known"), "{error}");
    let forget = |cfg: &mut Cfg| {
        let targets = &mut cfg.jump_tables[0].targets;
        targets.pop();
    };
    let rewritten = Rewritten::misunderstood(&file, &nothing, None, &forget).unwrap();
    let error = rewritten.check(&rewritten.output).unwrap_err();
    assert!(error.reason.contains("entries are known"), "{error}");
    // Its second entry is taken for the first of another table.
    let overlap = |cfg: &mut Cfg| {
        let mut other = cfg.jump_tables[0].clone();
        other.table += u64::from(other.entry_size);
        other.relative_to = Some(other.table);
        cfg.jump_tables.push(other);
    };
    let rewritten = Rewritten::misunderstood(&file, &nothing, None, &overlap).unwrap();
    let error = rewritten.check(&rewritten.output).unwrap_err();
    assert!(error.reason.contains("in the table at"), "{error}");
}

/// A jump over a prefix leads into the middle of an instruction, which is right. A pointer alone may not.
#[test]
fn finds_pads_in_instructions() {
    let file = program("middle", &["-O2"]);
    let inside = |cfg: &mut Cfg, keeps_jump: bool| {
        let is_locked = |p: &&atom_core::cfg::Proc| p.name.as_deref() == Some("locked");
        let proc = cfg
            .procs
            .iter()
            .find(is_locked)
            .expect("a procedure")
            .clone();
        let blocks: Vec<_> = proc.blocks().collect();
        let starts: Vec<u64> = blocks.iter().map(|b| cfg.block_pc(*b)).collect();
        let middle = starts.iter().position(|pc| *pc == proc.start + 5);
        cfg.blocks[blocks[middle.expect("a block")].index()].is_indirect_target = true;
        if !keeps_jump {
            let jump = cfg.inst_at(proc.start + 2).expect("a jump");
            cfg.insts[jump.index()].flow = atom_core::x86::ControlFlow::FallThrough;
        }
    };
    let check = |keeps_jump| {
        let spoil = |cfg: &mut Cfg| inside(cfg, keeps_jump);
        let spoiled = Rewritten::misunderstood(&file, &nothing, None, &spoil);
        let result = spoiled.and_then(|r| r.check(&r.output));
        result.map_or_else(|e| e.reason, |_| String::new())
    };
    assert!(!check(true).contains("in the middle of the instruction"));
    let reason = check(false);
    assert!(
        reason.contains("in the middle of the instruction"),
        "{reason}"
    );
}

#[test]
fn finds_code_that_disturbs() {
    let file = program("disturbed", &["-O2", NO_FRAMES]);
    let rbx = RegSet::gpr(3);
    let cases: &[(&[u8], RegSet, &str)] = &[
        (&[0x48, 0xff, 0xc3], rbx, "does not restore {rbx"),
        (&[0x31, 0xdb], rbx, "does not restore {rbx"),
        (&[0x48, 0x85, 0xe4], RegSet::ZF, "does not restore {"),
        (&[0x53], RegSet::EMPTY, "leaves rsp"),
        (&[0x48, 0x83, 0xc4, 0x08], RegSet::EMPTY, "rsp"),
        (
            &[0x48, 0x89, 0x1c, 0x24],
            RegSet::EMPTY,
            "writes to the program's stack",
        ),
        (
            &[0x48, 0x89, 0x1b],
            RegSet::EMPTY,
            "writes through the program's RBX",
        ),
        (&[0xfc], RegSet::EMPTY, ""),
        (&[0x0f, 0x0b], RegSet::EMPTY, "must not stand"),
        // lea rsp,[rsp-128]; push rbx; xor ebx,ebx; pop rbx; lea rsp,[rsp+128], with ebx for rbp
        (
            &[
                0x48, 0x8d, 0x64, 0x24, 0x80, 0x53, 0x5d, 0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0,
            ],
            RegSet::gpr(5),
            "does not restore {rbp",
        ),
        (
            &[
                0x48, 0x8d, 0x64, 0x24, 0x80, 0x53, 0x8d, 0x1b, 0x5b, 0x48, 0x8d, 0xa4, 0x24, 0x80,
                0, 0, 0,
            ],
            RegSet::EMPTY,
            "",
        ),
    ];
    for (code, live, complaint) in cases {
        let rewritten = Rewritten::new(&file, &inserted(code, *live)).unwrap();
        match rewritten.check(&rewritten.output) {
            Ok(_) => assert!(complaint.is_empty(), "{code:x?} is accepted"),
            Err(e) => assert!(
                !complaint.is_empty() && e.reason.contains(complaint),
                "{code:x?}: {e}"
            ),
        }
    }
}

/// Inserted code of an object of a process may write to the data that the objects share, and call the
/// routines whose addresses stand in the table there.
#[test]
fn knows_what_the_objects_of_a_process_share() {
    let file = program("shared", &["-O2"]);
    let area: &Area = Box::leak(Box::new(Area {
        file: PathBuf::new(),
        loader: PathBuf::new(),
        runtime: 0x7000_0010,
        start: 0x7000_0000,
        rw: 0x7001_0000,
        data: 0x7001_0000,
        slots: 0x7001_1000,
        routines: vec![0x10],
        info: 0x7001_1040,
        facts: 0x7001_1100,
        end: 0x7001_2000,
    }));
    // mov [address], rbx
    let store = |address: u32| (vec![0x48, 0x89, 0x1c, 0x25], address);
    // call [address]
    let call = |address: u32| (vec![0xff, 0x14, 0x25], address);
    let cases = [
        (store(0x7001_0008), ""),
        (store(0x7000_fff8), "writes to a table that is not its own"),
        (store(0x7001_2000), "writes to a table that is not its own"),
        (call(0x7001_1000), "calls with a stack that is not aligned"),
        (call(0x7001_1008), "calls what is not an analysis routine"),
        (call(0x7001_1001), "calls what is not an analysis routine"),
    ];
    for ((mut code, address), complaint) in cases {
        code.extend_from_slice(&address.to_le_bytes());
        let plan = inserted(code.leak(), RegSet::EMPTY);
        let rewritten = Rewritten::in_process(&file, &plan, Some(area)).unwrap();
        match rewritten.check(&rewritten.output) {
            Ok(_) => assert!(complaint.is_empty(), "{complaint}"),
            Err(e) => assert!(!complaint.is_empty() && e.reason.contains(complaint), "{e}"),
        }
    }
    // Alone it has no such data.
    let plan = inserted(
        &[0x48, 0x89, 0x1c, 0x25, 0x08, 0, 0x01, 0x70],
        RegSet::EMPTY,
    );
    let alone = Rewritten::new(&file, &plan).unwrap();
    assert!(alone.check(&alone.output).is_err());
}

/// `push rbx; pop rbx` writes below rsp.
#[test]
fn knows_who_keeps_something_below_rsp() {
    let file = program("below", &["-O2", NO_FRAMES, MUCH_CODE]);
    let check = |proc| {
        let plan = inserted_in(proc, &[0x53, 0x5b], RegSet::EMPTY);
        let rewritten = Rewritten::new(&file, &plan).unwrap();
        rewritten.check(&rewritten.output)
    };
    check("main").unwrap();
    let error = check("keep").unwrap_err();
    assert!(
        error.reason.contains("writes to the program's stack"),
        "{error}"
    );
}

/// A push below the red zone is right where rsp leads to a stack, and wrong where it may lead to data.
#[test]
fn knows_where_rsp_may_lead_to_data() {
    const PUSH: [u8; 15] = [
        0x48, 0x8d, 0x64, 0x24, 0x80, // lea rsp, [rsp - 128]
        0x53, 0x5b, // push rbx; pop rbx
        0x48, 0x8d, 0xa4, 0x24, 0x80, 0, 0, 0, // lea rsp, [rsp + 128]
    ];
    let check = |file: &std::path::Path, live| {
        let plan = inserted_in("pops", &PUSH, live);
        let rewritten = Rewritten::new(file, &plan).unwrap();
        rewritten.check(&rewritten.output)
    };
    let file = program("data", &["-O2", NO_FRAMES, MUCH_CODE]);
    check(&file, RegSet::EMPTY).unwrap();
    // In little code without frame descriptions that loads rsp, any stack may be one of a language's runtime.
    let unit = program("unit", &["-O2", NO_FRAMES]);
    // rcx holds the word after the `pop` alone.
    for (file, live) in [(&file, RegSet::gpr(1)), (&unit, RegSet::EMPTY)] {
        let error = check(file, live).unwrap_err();
        assert!(
            error.reason.contains("the program may keep data"),
            "{error}"
        );
    }
}

/// What is dead may be overwritten.
#[test]
fn accepts_overwritten_dead_registers() {
    let file = program("dead", &["-O2"]);
    let plan = |image: &Image, cfg: &Cfg| poisoner::plan(image, cfg, POISON);
    let rewritten = Rewritten::new(&file, &plan).unwrap();
    assert!(rewritten.placed.plan.insertions.len() > 50);
    rewritten.check(&rewritten.output).unwrap();
}
