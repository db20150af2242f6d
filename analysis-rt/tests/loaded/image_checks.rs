//! Checks of the image and the summaries against the tool's machine code, and
//! of the summaries against what the processor really does.

use std::arch::asm;
use std::collections::HashSet;
use std::path::Path;

use atom_core::analysis::code::{Callee, Exit, Function};
use atom_core::analysis::{AnalysisImage, Summaries, Summary};
use iced_x86::{Decoder, DecoderOptions, EncodingKind, Register};

use crate::loader::{self, Loaded};

/// No `%fs`, no `%gs`, no AVX in anything that the routines reach.
pub fn code_is_neutral(loaded: &Loaded) {
    let image = &loaded.image;
    let routines = image.facts.routines.iter().map(|r| r.1);
    let mut work: Vec<u64> = routines
        .chain(image.header_functions())
        .chain(
            image
                .facts
                .exports
                .iter()
                .map(|e| e.1)
                .filter(|a| image.is_code(*a)),
        )
        .collect();
    let mut seen = HashSet::new();
    while let Some(at) = work.pop() {
        if !seen.insert(at) {
            continue;
        }
        for (at, inst) in Function::decode(image, at).insts {
            if inst.exit == Exit::Dead {
                continue;
            }
            let raw = &inst.raw;
            let segment = raw.segment_prefix();
            assert!(
                !matches!(segment, Register::FS | Register::GS),
                "{at:#x} {raw:?}"
            );
            assert_eq!(raw.encoding(), EncodingKind::Legacy, "{at:#x}");
            if let Exit::Call(Callee::Known(to)) | Exit::Tail(Callee::Known(to)) = inst.exit {
                work.push(to);
            }
        }
    }
    assert!(seen.len() > 300, "only {} functions seen", seen.len());
    // The same without any knowledge of functions: no segment prefix on a memory operand.
    for range in &image.code {
        let bytes = image
            .bytes_at(range.start, (range.end - range.start) as usize)
            .expect("code");
        for i in &mut Decoder::with_ip(64, bytes, range.start, DecoderOptions::NONE) {
            let prefixed = matches!(i.segment_prefix(), Register::FS | Register::GS);
            assert!(
                !prefixed || i.op_count() == 0 || i.mnemonic() == iced_x86::Mnemonic::Nop,
                "{:#x}",
                i.ip()
            );
        }
    }
}

/// The import that is missing is found where it is reached, and only there.
pub fn missing_import_is_found(loaded: &Loaded) {
    let image = &loaded.image;
    assert!(image.missing_imports().any(|n| n == "getlogin"));
    let of = |name: &str| {
        image
            .facts
            .routines
            .iter()
            .find(|r| r.0 == name)
            .expect("routine")
            .1
    };
    for (name, address) in &image.facts.routines {
        let result = image.check_reachable(&[*address]);
        assert_eq!(result.is_err(), name == "fx_missing", "{name}: {result:?}");
    }
    let error = image
        .check_reachable(&[of("fx_count"), of("fx_missing")])
        .expect_err("reaches getlogin");
    assert_eq!(error.symbol.as_deref(), Some("getlogin"));
    // Without symbols the function in between has no name, but is found all the same.
    let named = image
        .symbols
        .iter()
        .any(|s| s.name.contains("asks_for_login"));
    let path = if named {
        "fx_missing -> fixture::asks_for_login"
    } else {
        "fx_missing -> code at 0x"
    };
    assert!(error.reason.contains(path), "{error}");
}

/// Registers and flags after a call, with every register set to a known value before.
#[repr(C)]
#[derive(Default)]
struct State {
    gprs: [u64; 16],
    flags: u64,
    stack_low: u64,
    xmms: [[u64; 2]; 16],
}

/// Calls `routine` with all registers loaded from `state`, and stores them back.
///
/// # Safety
/// `routine` follows the C ABI.
#[unsafe(naked)]
unsafe extern "C" fn observe(_routine: usize, _state: *mut State) {
    std::arch::naked_asm!(
        "push rbx",
        "push rbp",
        "push r12",
        "push r13",
        "push r14",
        "push r15",
        "push rsi",
        "push rdi",
        "sub rsp, 8",
        "mov r15, rsi",
        ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
        "movups xmm\\n, [r15 + 144 + \\n*16]",
        ".endr",
        "push qword ptr [r15 + 128]",
        "popfq",
        "mov rax, [r15]",
        "mov rcx, [r15 + 8]",
        "mov rdx, [r15 + 16]",
        "mov rbx, [r15 + 24]",
        "mov rbp, [r15 + 40]",
        "mov rsi, [r15 + 48]",
        "mov rdi, [r15 + 56]",
        "mov r8, [r15 + 64]",
        "mov r9, [r15 + 72]",
        "mov r10, [r15 + 80]",
        "mov r11, [r15 + 88]",
        "mov r12, [r15 + 96]",
        "mov r13, [r15 + 104]",
        "mov r14, [r15 + 112]",
        "mov r15, [r15 + 120]",
        "call [rsp + 8]",
        "mov [rsp], r15",
        "mov r15, [rsp + 16]",
        "mov [r15], rax",
        "mov [r15 + 8], rcx",
        "mov [r15 + 16], rdx",
        "mov [r15 + 24], rbx",
        "mov [r15 + 40], rbp",
        "mov [r15 + 48], rsi",
        "mov [r15 + 56], rdi",
        "mov [r15 + 64], r8",
        "mov [r15 + 72], r9",
        "mov [r15 + 80], r10",
        "mov [r15 + 88], r11",
        "mov [r15 + 96], r12",
        "mov [r15 + 104], r13",
        "mov [r15 + 112], r14",
        "pushfq",
        "pop qword ptr [r15 + 128]",
        "mov rax, [rsp]",
        "mov [r15 + 120], rax",
        ".irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15",
        "movups [r15 + 144 + \\n*16], xmm\\n",
        ".endr",
        "add rsp, 24",
        "pop r15",
        "pop r14",
        "pop r13",
        "pop r12",
        "pop rbp",
        "pop rbx",
        "ret",
    )
}

/// For many arguments, a routine changes only registers and flags that its summary names.
pub fn summaries_are_sound(loaded: &Loaded) {
    const ARITHMETIC: u64 = 0x8D5;
    let image = &loaded.image;
    let summaries = Summaries::new(image, &[]);
    let names = [
        "fx_count",
        "fx_count_atomic",
        "fx_cache",
        "fx_checked",
        "fx_mean",
        "fx_switch",
        "fx_calls",
        "fx_recursive",
        "fx_thread_calls",
        "fx_shared",
        "fx_heap",
    ];
    let mut changed_at_all = 0;
    for name in names {
        let vaddr = image
            .facts
            .routines
            .iter()
            .find(|r| r.0 == name)
            .expect("routine")
            .1;
        let s = summaries.of(vaddr);
        assert!(s.returns && !s.avx && !s.x87, "{name}: {s:?}");
        for round in 0..400u64 {
            let mut state = State::default();
            let pattern = |i: u64| (i + 1 + round * 99).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            (0..16).for_each(|i| state.gprs[i as usize] = pattern(i));
            (0..16).for_each(|i| state.xmms[i as usize] = [pattern(20 + i), pattern(40 + i)]);
            state.flags = 2 | if round % 2 == 0 { ARITHMETIC } else { 0 };
            // The arguments: small numbers, as the routines expect.
            state.gprs[7] = round % 9;
            state.gprs[6] = round % 50 + 1;
            state.gprs[2] = 5000;
            let old = (state.gprs, state.xmms, state.flags);
            // SAFETY: the routine follows the C ABI.
            unsafe { observe(loaded.address(name), &mut state) };
            for i in (0..16).filter(|i| *i != 4) {
                if state.gprs[i] != old.0[i] {
                    changed_at_all += 1;
                    assert!(
                        s.gprs >> i & 1 != 0,
                        "{name} round {round}: general register {i}, {s:x?}"
                    );
                }
                let changed = state.xmms[i] != old.1[i];
                assert!(
                    !changed || s.xmms >> i & 1 != 0,
                    "{name} round {round}: xmm{i}, {s:x?}"
                );
            }
            let changed = (state.flags ^ old.2) & ARITHMETIC != 0;
            assert!(!changed || s.flags, "{name} round {round}: flags, {s:x?}");
        }
    }
    assert!(changed_at_all > 1000, "the observation sees changes");
    precise(&summaries, loaded);
    // SAFETY: clears the direction flag, as the ABI demands.
    unsafe { asm!("cld") };
}

/// A summary does not simply name everything.
fn precise(summaries: &Summaries, loaded: &Loaded) {
    let of = |name: &str| {
        summaries.of(loaded
            .image
            .facts
            .routines
            .iter()
            .find(|r| r.0 == name)
            .expect("routine")
            .1)
    };
    let count = of("fx_count");
    assert_eq!(
        count,
        Summary {
            gprs: count.gprs,
            leaf: true,
            flags: true,
            stack: Some(0),
            xmms: 0,
            fp: false,
            ..count
        }
    );
    assert!(
        count.gprs.count_ones() <= 1 && !count.calls && !count.aligned_stack,
        "{count:x?}"
    );
    let cache = of("fx_cache");
    assert!(
        cache.leaf && cache.xmms == 0 && cache.gprs.count_ones() <= 5,
        "{cache:x?}"
    );
    // A cold path that panics costs no registers, but is a call.
    let checked = of("fx_checked");
    assert!(
        !checked.leaf && !checked.calls && checked.xmms == 0,
        "{checked:x?}"
    );
    assert!(
        checked.gprs.count_ones() <= 4 && checked.aligned_stack,
        "{checked:x?}"
    );
    let mean = of("fx_mean");
    assert!(
        mean.fp && mean.leaf && mean.xmms != 0 && mean.xmms.count_ones() <= 3,
        "{mean:x?}"
    );
    let switch = of("fx_switch");
    assert!(
        switch.leaf && switch.fp && switch.gprs.count_ones() <= 6,
        "{switch:x?}"
    );
    let calls = of("fx_calls");
    assert!(
        calls.calls && calls.xmms == 0 && calls.stack.is_some_and(|s| s >= 16),
        "{calls:x?}"
    );
    assert!(of("fx_recursive").stack.is_none());
    assert!(!of("fx_count").fp && of("fx_shared").xmms == 0xFFFF);
}

/// A damaged tool is an error or an image, never a panic or endless work.
pub fn broken_tools(tool: &Path) {
    let facts = loader::facts(tool);
    let good = std::fs::read(tool).expect("the tool");
    let image = AnalysisImage::parse(tool, &good, facts.clone()).expect("an image");
    // Parts where a flipped bit matters most: headers, dynamic symbols, relocations, unwind tables
    // and the dynamic section.
    let headers = 0..64 + 56 * 11;
    let tables = 0..image.code[0].start as usize;
    // Zeros at the data's end are not in the file.
    let end = good.len().min(image.text.len() + image.data.len());
    let data = image.text.len() - 4096..end;
    let all = 0..good.len();
    let mut random = 0x0123_4567_89AB_CDEF_u64;
    let mut next = |below: usize| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random % below as u64) as usize
    };
    let (mut refused, mut accepted) = (0, 0);
    for round in 0..200 {
        let mut bad = good.clone();
        for _ in 0..1 + next(4) {
            let range = [&headers, &tables, &data, &all][next(4)];
            let at = range.start + next(range.len());
            bad[at] = [0, 0xFF, bad[at] ^ 1 << next(8), next(256) as u8][next(4)];
        }
        if round % 10 == 0 {
            bad.truncate(next(good.len()));
        }
        match AnalysisImage::parse(tool, &bad, facts.clone()) {
            Ok(image) => {
                accepted += 1;
                let _ = image.check_reachable(&[]);
                Summaries::new(&image, &[]);
                assert!(!image.name_at(facts.start).is_empty());
            }
            Err(e) => {
                refused += 1;
                assert!(e.file.is_some() && !e.reason.is_empty());
            }
        }
    }
    assert!(
        refused > 10 && accepted > 10,
        "{refused} refused, {accepted} accepted"
    );
}
