//! The source of tools in Rust.

use std::fmt::Write;

use super::block::BlockWriter;
use super::routine::{Argument, Routine};
use super::{Language, ROUTINES};

const LANGUAGE: Language = Language::Rust;

/// What all tools share.
const HEAD: &str = r#"// Made by a generator.
#![allow(warnings)]
use std::cell::Cell;
use std::io::Write;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use atom_tool::prelude::*;
use atom_tool::*;

thread_state! {
    struct State {
        sum: ThreadCell<u64>,
        a: ThreadCell<u64>,
        b: ThreadCell<u64>,
        c: ThreadCell<u64>,
        at: ThreadCell<u64>,
    }
}
struct Line { read: Cell<u64> }
unsafe impl Sync for Line {}
static LINES: [Line; 4] = [const { Line { read: Cell::new(0) } }; 4];
static SHARED: [AtomicU64; 8] = [const { AtomicU64::new(0) }; 8];
static TABLE: [u64; 16] = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 93, 1 << 40];

fn picked(number: usize, every: usize) -> bool {
    (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) % every == 0
}
"#;

/// The instrument routine; each tool has a function of its own.
const TAIL: &str = r#"
fn instrument(program: &Program, args: &Args) -> Result {
    let [tool, every, sums] = *args.as_slice() else { return Err("three arguments".into()) };
    let every: usize = every.parse().unwrap();
    match tool.parse::<usize>().unwrap() {
"#;

/// The source of several tools.
pub fn source(tools: &[Vec<Routine>]) -> String {
    let mut text = HEAD.to_owned();
    for (t, tool) in tools.iter().enumerate() {
        for (k, routine) in tool.iter().enumerate() {
            write_routine(&mut text, t, k, routine);
        }
        write_tool(&mut text, t, tool);
    }
    text += TAIL;
    for t in 0..tools.len() {
        let _ = writeln!(text, "        {t} => tool{t}(program, every, sums),");
    }
    text += "        _ => return Err(\"no such tool\".into()),\n    }\n    Ok(())\n}\natom_tool::tool!(instrument);\n";
    text
}

fn write_routine(text: &mut String, t: usize, k: usize, routine: &Routine) {
    for (n, (parameters, body)) in routine.cold.iter().enumerate() {
        let list: String = (0..*parameters).map(|i| format!(", v{i}: u64")).collect();
        let _ = writeln!(
            text,
            "#[cold] #[inline(never)] fn cold{t}_{k}_{n}(s: PerThread<State>{list}) {{"
        );
        BlockWriter::new(LANGUAGE, (t, k), None).write(text, body, *parameters);
        text.push_str("}\n");
    }
    let mut parameters = Vec::new();
    let mut variables = String::new();
    let (mut known, mut counter) = (0, None);
    for (i, argument) in routine.arguments.iter().enumerate() {
        let (kind, value) = match argument {
            Argument::Point => ("u32", format!("u64::from(p{i})")),
            Argument::Wide | Argument::Constant(_) => ("u64", format!("p{i}")),
            Argument::Flag => ("bool", format!("u64::from(p{i})")),
            Argument::Counter => ("Counter", String::new()),
            Argument::Value(_) | Argument::Sum { .. } => ("Value", format!("p{i}.0")),
            Argument::Register(..) => ("RegV", format!("p{i}.0")),
        };
        parameters.push(format!("p{i}: {kind}"));
        if argument.is_counter() {
            counter = Some(format!("p{i}"));
        } else {
            let _ = write!(variables, "let v{known} = {value}; ");
            known += 1;
        }
    }
    parameters.insert(routine.state, "s: PerThread<State>".into());
    let _ = writeln!(
        text,
        "#[analysis] fn r{t}_{k}({}) {{ {variables}",
        parameters.join(", ")
    );
    BlockWriter::new(LANGUAGE, (t, k), counter.as_deref()).write(text, &routine.body, known);
    text.push_str("}\n");
}

/// An argument of a call at the point number `n` by routine `k`.
fn argument(argument: &Argument, k: usize) -> String {
    match argument {
        Argument::Point => "n as u32".into(),
        Argument::Wide => "(n as u64).wrapping_mul(0x1_0000_0101)".into(),
        Argument::Flag => "n & 64 != 0".into(),
        Argument::Constant(c) => format!("{c}u64"),
        Argument::Counter => format!("counters.at({k})"),
        Argument::Value(text) => (*text).into(),
        Argument::Register(name, _) => format!("Reg::{name}"),
        Argument::Sum {
            registers: [base, index],
            scale,
            displacement,
        } => format!(
            "RegSum {{ base: Some(Reg::{}), index: Some((Reg::{}, {scale})), displacement: {displacement} }}",
            base.0, index.0
        ),
    }
}

fn write_tool(text: &mut String, t: usize, tool: &[Routine]) {
    let states: String = (0..ROUTINES)
        .map(|k| format!(", s{k}: AllThreads<State>"))
        .collect();
    let all: Vec<String> = (0..ROUTINES).map(|k| format!("s{k}")).collect();
    let all = all.join(", ");
    let _ = writeln!(
        text,
        "#[analysis] fn report{t}(sums: Str, counters: Counters{states}) {{
    let Ok(mut file) = std::fs::File::create(&*sums) else {{ return }};
    for (s, [count]) in [{all}].into_iter().zip(counters.rows()) {{
        for s in s.iter() {{
            let _ = writeln!(file, \"{{:x}} {{:x}} {{:x}} {{:x}} {{count:x}}\", s.sum.get(), s.a.get(), s.b.get(), s.c.get());
        }}
    }}
    for shared in &SHARED {{ let _ = writeln!(file, \"{{:x}}\", shared.load(Relaxed)); }}
}}
fn tool{t}(program: &Program, every: usize, sums: &str) {{
    let counters = program.counters({ROUTINES});
    let [{all}] = [(); {ROUTINES}].map(|()| program.thread_data(State::zero()));
    let mut n = 0;
    for block in program.procs().flat_map(|p| p.blocks()) {{
        let count = block.insts().len();
        for (i, inst) in block.insts().enumerate() {{
            n += 1;
            if !picked(n, every) {{ continue; }}
            let is_last = i + 1 == count;
            let mut calls = 0;
            for k in 0..{ROUTINES} {{
                match (n + k) % {ROUTINES} {{"
    );
    for (k, routine) in tool.iter().enumerate() {
        let place = if routine.after { "After" } else { "Before" };
        let mut demands = Vec::new();
        for a in &routine.arguments {
            if matches!(
                a,
                Argument::Value(_) | Argument::Register(..) | Argument::Sum { .. }
            ) {
                demands.push(format!("inst.offers({place}, {})", argument(a, k)));
            }
        }
        if routine.after {
            demands.push("!is_last".into());
        }
        demands.push("calls < 2".into());
        let mut list: Vec<String> = routine.arguments.iter().map(|a| argument(a, k)).collect();
        list.insert(routine.state, format!("s{k}"));
        let _ = writeln!(
            text,
            "{k} if {} => {{ calls += 1; inst.add_call({place}, r{t}_{k}, ({},)); }}",
            demands.join(" && "),
            list.join(", ")
        );
    }
    let _ = writeln!(
        text,
        "_ => {{}}
                }}
            }}
        }}
    }}
    program.add_call(After, report{t}, (sums, counters, {all}));
}}"
    );
}
