//! Damaged tables: an error or a part, never a panic, a hang or much memory.

use atom_core::unwind::write::{MovedRange, build, check};
use atom_core::unwind::{self, Memory, UnwindInput};

use crate::corpus::{Program, Random, programs};
use crate::running::{Folder, compile, source};

/// Keeps a program's first exception records and everything they refer to.
fn sample(program: &Program) -> (Vec<u8>, Vec<(u64, Vec<u8>)>) {
    let eh_frame = program.eh_frame[..program.eh_frame.len().min(20_000)].to_vec();
    let segments = program.segments.clone();
    (eh_frame, segments)
}

fn damage(bytes: &mut [u8], random: &mut Random) {
    for _ in 0..1 + random.below(12) {
        let at = random.below(bytes.len() as u64) as usize;
        bytes[at] = match random.below(4) {
            0 => 0xff,
            1 => 0,
            2 => bytes[at] ^ (1 << random.below(8)),
            _ => random.next() as u8,
        };
    }
}

#[test]
fn damaged_tables_do_no_harm() {
    let mut random = Random(0xdead_beef_1234_5678);
    for program in programs(400).take(6) {
        let (clean, segments) = sample(&program);
        if clean.len() < 64 {
            continue;
        }
        let memory = Memory::new(segments.iter().map(|(a, b)| (*a, &b[..])));
        for _ in 0..700 {
            let mut bytes = clean.clone();
            damage(&mut bytes, &mut random);
            let mut input = UnwindInput::from_section(&bytes, program.vaddr, memory.clone());
            input.ends_at_zero = random.below(2) == 0;
            exercise(&input);
        }
    }
}

#[test]
fn damaged_areas_do_no_harm() {
    let mut random = Random(0x0123_4567_89ab_cdef);
    let areas_of =
        |p: &Program| -> Vec<u64> { p.table().fdes.iter().filter_map(|f| f.lsda).collect() };
    let folder = Folder::new("damage");
    let file = folder.0.join("areas");
    let flags = ["-O0", "-std=c++14", "-w"];
    compile("g++", &flags, &source("exceptions.cc"), &file);
    let program = Program::open(file).expect("the compiler makes programs");
    let areas = areas_of(&program);
    assert!(areas.len() > 10, "{} areas", areas.len());
    let (clean, mut segments) = (program.eh_frame.clone(), program.segments.clone());
    let holds = |s: &(u64, Vec<u8>)| (s.0..s.0 + s.1.len() as u64).contains(&areas[0]);
    let segment = segments.iter().position(holds).expect("areas are loaded");
    for _ in 0..1500 {
        let mut undo = Vec::new();
        for _ in 0..20 {
            let area = areas[random.below(areas.len() as u64) as usize];
            let at = (area - segments[segment].0 + random.below(40)) as usize;
            if let Some(byte) = segments[segment].1.get_mut(at) {
                undo.push((at, *byte));
                *byte = [0xff, 0, 0x7f, random.next() as u8][random.below(4) as usize];
            }
        }
        let memory = Memory::new(segments.iter().map(|(a, b)| (*a, &b[..])));
        exercise(&UnwindInput::from_section(&clean, program.vaddr, memory));
        for (at, byte) in undo.into_iter().rev() {
            segments[segment].1[at] = byte;
        }
    }
}

/// Every operation on a table that may be damaged.
fn exercise(input: &UnwindInput<'_>) {
    let Ok(table) = unwind::parse(input) else {
        return;
    };
    std::hint::black_box(table.landing_pads().count());
    let mut moved: Vec<MovedRange> = Vec::new();
    for fde in &table.fdes {
        let _ = table.lsda(fde);
        let _ = check(&table, fde);
        let (old_start, old_end) = (fde.start, fde.end().min(fde.start.saturating_add(1 << 12)));
        moved.push(MovedRange {
            old_start,
            old_end,
            new_start: old_start.wrapping_add(1 << 30) & !(1 << 63),
            new_end: (old_start.wrapping_add(1 << 30) & !(1 << 63)).saturating_add(0x2000),
        });
    }
    let map = |old: u64| Some(old.wrapping_add(1 << 30) & !(1 << 63));
    let _ = build(&table, &moved, &map, input.vaddr + (1 << 30));
}
