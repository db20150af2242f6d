//! Expected sets for small programs.

use std::process::Command;

use super::{EffectsOf, Live, RegSet};
use crate::cfg::{Cfg, seeds::FrameFacts};
use crate::image::Image;
use crate::x86::decode_at;

const RAX: RegSet = RegSet::gpr(0);
const RCX: RegSet = RegSet::gpr(1);
const RDX: RegSet = RegSet::gpr(2);
const RSI: RegSet = RegSet::gpr(6);
const RDI: RegSet = RegSet::gpr(7);
const R8: RegSet = RegSet::gpr(8);
const R11: RegSet = RegSet::gpr(11);

/// Links assembly as a program and hands over its liveness.
fn with_live(name: &str, assembly: &str, check: impl FnOnce(&Cfg, &Live)) {
    let stem = std::env::temp_dir().join(format!("atom-live-{}-{name}", std::process::id()));
    let source = stem.with_extension("s");
    std::fs::write(
        &source,
        format!(".intel_syntax noprefix\n.text\n{assembly}\n"),
    )
    .unwrap();
    let status = Command::new("gcc")
        .args(["-nostdlib", "-static", "-no-pie", "-o"])
        .arg(&stem)
        .arg(&source)
        .status();
    std::fs::remove_file(&source).unwrap();
    assert!(status.expect("gcc runs").success());
    let image = Image::open(&stem).unwrap();
    std::fs::remove_file(&stem).unwrap();
    let table = image.unwind_table().unwrap();
    let cfg = Cfg::build(&image, &FrameFacts::new(&table)).unwrap();
    check(&cfg, &Live::compute(&image, &cfg));
}

/// What is live before the n-th instruction of a procedure.
fn before(cfg: &Cfg, live: &Live, name: &str, n: usize) -> RegSet {
    let p = cfg
        .procs
        .iter()
        .position(|p| p.name.as_deref() == Some(name))
        .expect("it is there");
    assert!(cfg.procs[p].is_movable());
    let first = cfg.block(cfg.procs[p].first_block).first;
    live.before(crate::InstId(first.0 + n as u32), &mut EffectsOf::new())
}

fn procedure(name: &str, body: &str) -> String {
    format!(".type {name},@function\n{name}:\n{body}\n.size {name},.-{name}\n")
}

fn start(body: &str) -> String {
    format!(".globl _start\n{}", procedure("_start", body))
}

#[test]
fn a_value_kept_over_a_call_that_leaves_it_alone() {
    let program =
        start("mov ecx,5\nmov r8d,6\ncall f\nadd rax,rcx\nmov edi,eax\nmov eax,60\nsyscall\nud2")
            + &procedure("f", "mov eax,1\nmov r8d,2\nret");
    with_live("kept", &program, |cfg, live| {
        let inside = before(cfg, live, "f", 1);
        assert!(inside.contains(RCX | RAX), "{inside:?}");
        assert!(!inside.intersects(R8 | R11 | RDI), "{inside:?}");
        let call = before(cfg, live, "_start", 2);
        assert!(call.contains(RCX), "{call:?}");
        assert!(
            !call.intersects(R8 | RAX | RegSet::FLAGS | RegSet::XMMS),
            "{call:?}"
        );
    });
}

/// Under `-mcmodel=large` the compiler calls a function that it knows through a register.
#[test]
fn a_value_kept_over_a_call_through_a_register() {
    let callee = procedure("f", "mov eax,1\nmov r8d,2\nret");
    let rest = "add rax,rcx\nmov edi,eax\nmov eax,60\nsyscall\nud2";
    let far = [
        "movabs rax,offset f\nmov rdx,rax",
        "lea rdx,f[rip]\nmovabs rax,7\nadd rdx,rax",
    ];
    for load in far {
        let program = start(&format!("mov ecx,5\n{load}\ncall rdx\n{rest}")) + &callee;
        with_live("far", &program, |cfg, live| {
            let call = before(cfg, live, "_start", load.lines().count() + 1);
            assert!(call.contains(RCX), "{load}: {call:?}");
            let inside = before(cfg, live, "f", 1);
            assert!(inside.contains(RCX | RAX | R11), "{load}: {inside:?}");
        });
    }
    // A pointer that was loaded may lead to any function, so no register is kept over the call.
    let program = start(&format!("mov ecx,5\nmov rdx,[rsp]\ncall rdx\n{rest}")) + &callee;
    with_live("near", &program, |cfg, live| {
        let inside = before(cfg, live, "f", 1);
        assert!(!inside.intersects(R11), "{inside:?}");
    });
}

#[test]
fn a_result_in_the_carry_flag() {
    let program = start("mov edi,5\ncall odd\nadc eax,0\nmov edi,eax\nmov eax,60\nsyscall\nud2")
        + &procedure("odd", "test edi,1\nstc\njnz 1f\nclc\n1: ret")
        + &procedure("even", "test edi,1\nmov eax,edi\nret");
    with_live("carry", &program, |cfg, live| {
        assert!(before(cfg, live, "odd", 2).contains(RegSet::CF));
        assert!(before(cfg, live, "odd", 4).contains(RegSet::CF));
        assert!(!before(cfg, live, "odd", 0).intersects(RegSet::CF));
        assert!(!before(cfg, live, "even", 2).intersects(RegSet::FLAGS));
    });
}

#[test]
fn what_returns_flows_through_tail_calls() {
    let program = start("call f\nmov rdi,r11\nadd rdi,rsi\nmov eax,60\nsyscall\nud2")
        + &procedure("f", "mov esi,4\njmp g")
        + &procedure("g", "mov r11d,7\nnop\nret");
    with_live("tail", &program, |cfg, live| {
        assert!(before(cfg, live, "g", 2).contains(R11 | RSI));
        let entry = before(cfg, live, "g", 0);
        assert!(entry.contains(RSI) && !entry.intersects(R11), "{entry:?}");
        assert!(!before(cfg, live, "f", 0).intersects(RSI | R11));
    });
}

#[test]
fn a_saved_register_is_live_through_its_callee() {
    let program = start("mov ecx,1\ncall f\nmov edi,ecx\nmov eax,60\nsyscall\nud2")
        + &procedure("f", "push rcx\nmov ecx,2\nmov eax,ecx\npop rcx\nret");
    with_live("saved", &program, |cfg, live| {
        assert!(before(cfg, live, "f", 0).contains(RCX));
        assert!(!before(cfg, live, "f", 1).intersects(RCX));
        assert!(before(cfg, live, "f", 4).contains(RCX));
    });
}

#[test]
fn pointers_keep_arguments_alive_and_returns_in_disguise_everything() {
    let program = start("mov rbx,rdi\ncall rbx\nxor edi,edi\nmov eax,60\nsyscall\nud2")
        + &procedure("enter", "push rdi\nmov edi,1\nret")
        + &procedure(
            "start",
            "mov rsp,rdi\npush rsi\npush rdx\npush rcx\nmov ecx,0\npop rdi\nret",
        )
        + &procedure(
            "saves",
            "push rbx\npush rcx\nmov ebx,1\npop rcx\npop rbx\nret",
        )
        + &procedure("through", "jmp [rdi+8]");
    with_live("pointers", &program, |cfg, live| {
        let call = before(cfg, live, "_start", 1);
        assert!(call.contains(RegSet::POINTER_ARGUMENTS | RegSet::CALLEE_SAVED));
        assert!(!call.intersects(RegSet::FLAGS | RegSet::xmm(8)));
        assert_eq!(before(cfg, live, "enter", 2), RegSet::ALL);
        assert_eq!(before(cfg, live, "start", 6), RegSet::ALL);
        assert_ne!(before(cfg, live, "saves", 5), RegSet::ALL);
        assert!(!before(cfg, live, "through", 0).intersects(RegSet::FLAGS));
    });
}

/// A procedure whose address is taken, and a call through a pointer after which `rest` runs.
fn pointed(callee: &str, rest: &str) -> String {
    start(&format!(
        "lea rbx,f[rip]\nmov [rsp-8],rbx\ncall rbx\n{rest}\nmov eax,60\nud2"
    )) + &procedure("f", callee)
}

#[test]
fn what_is_read_after_a_call_through_a_pointer_is_live_at_returns() {
    let callee = "mov r9d,3\nmov r8d,r9d\nlea rax,[r8+r9]\nmov r8d,0\nmov ecx,r8d\nret";
    with_live("read", &pointed(callee, "add rdi,r9"), |cfg, live| {
        let at_return = before(cfg, live, "f", 5);
        assert!(at_return.contains(RegSet::gpr(9) | RDI), "{at_return:?}");
        assert!(!at_return.intersects(R8), "{at_return:?}");
        let call = before(cfg, live, "_start", 2);
        assert!(call.contains(RegSet::gpr(9) | RDI));
    });
    with_live("unread", &pointed(callee, "nop"), |cfg, live| {
        let at_return = before(cfg, live, "f", 5);
        assert!(!at_return.intersects(R8 | RegSet::gpr(9)), "{at_return:?}");
    });
}

#[test]
fn what_a_procedure_leaves_alone_or_restores_is_live_at_returns_to_unknown_callers() {
    let callee = "push r8\nmov r8d,1\nmov eax,r8d\npop r8\nret";
    with_live("kept-by-pointer", &pointed(callee, "nop"), |cfg, live| {
        assert!(before(cfg, live, "f", 0).contains(R8 | R11 | RSI));
        assert!(!before(cfg, live, "f", 1).intersects(R8));
        assert!(before(cfg, live, "f", 4).contains(R8 | R11 | RSI));
        assert!(!before(cfg, live, "f", 4).intersects(RegSet::FLAGS));
    });
    let carry = "mov eax,1\nstc\nret";
    with_live("carry-by-pointer", &pointed(carry, "nop"), |cfg, live| {
        assert!(before(cfg, live, "f", 2).contains(RegSet::CF));
    });
}

#[test]
fn what_is_set_and_not_read_is_for_the_callee() {
    let program = start("mov rbx,[rsp]\nmovq xmm9,rbx\nnop\ncall rbx\nmov eax,60\nud2");
    with_live("for-callee", &program, |cfg, live| {
        assert!(before(cfg, live, "_start", 2).contains(RegSet::xmm(9)));
    });
}

#[test]
fn a_system_call_reads_its_arguments_and_changes_two_registers() {
    let program = start("mov eax,39\nsyscall\nmov edi,eax\nmov eax,60\nsyscall\nud2");
    with_live("syscall", &program, |cfg, live| {
        let set = before(cfg, live, "_start", 1);
        assert!(set.contains(RAX | RDI | RSI | RDX | R8 | RegSet::gpr(9) | RegSet::gpr(10)));
        assert!(!set.intersects(RCX | R11));
    });
}

#[test]
fn callees_of_code_that_sets_the_direction_flag() {
    let program = start("std\ncall f\ncall d\ncld\ncall g\nmov eax,60\nsyscall\nud2")
        + &procedure("f", "ret")
        + &procedure("d", "add rsp,8\nret")
        + &procedure("h", "nop\nret")
        + &procedure("g", "mov eax,1\nret");
    with_live("df", &program, |cfg, live| {
        let may = |name: &str| {
            let p = cfg
                .procs
                .iter()
                .position(|p| p.name.as_deref() == Some(name))
                .unwrap();
            live.may_set_df(crate::ProcId::from_index(p))
        };
        assert!(may("_start") && may("f"));
        // It drops its return address, so what is live after its calls is not known.
        assert!(may("d"));
        assert!(!may("h"));
    });
}

#[test]
fn only_whole_and_certain_writes_kill() {
    let dead = |bytes: &[u8]| {
        !EffectsOf::new()
            .of(&decode_at(bytes, 0x1000).unwrap())
            .before(RegSet::ALL)
    };
    let xmm0 = RegSet::xmm(0);
    assert!(dead(&[0xb8, 1, 0, 0, 0]).contains(RAX)); // mov eax,1
    assert!(!dead(&[0xb0, 1]).intersects(RAX)); // mov al,1
    assert!(!dead(&[0x66, 0xb8, 1, 0]).intersects(RAX)); // mov ax,1
    assert!(!dead(&[0x0f, 0x44, 0xc1]).intersects(RAX)); // cmove eax,ecx
    assert!(!dead(&[0x0f, 0xbc, 0xc1]).intersects(RAX)); // bsf eax,ecx
    assert!(!dead(&[0xf3, 0x48, 0x0f, 0x1e, 0xc8]).intersects(RAX)); // rdsspq rax
    assert!(!dead(&[0xd3, 0xe0]).intersects(RegSet::FLAGS)); // shl eax,cl
    assert!(dead(&[0xc1, 0xe0, 3]).contains(RegSet::CF)); // shl eax,3
    assert!(!dead(&[0xf3, 0xa6]).intersects(RegSet::FLAGS | RCX | RSI | RDI)); // repe cmpsb
    assert!(dead(&[0x0f, 0x28, 0xc1]).contains(xmm0)); // movaps xmm0,xmm1
    assert!(!dead(&[0xf3, 0x0f, 0x10, 0xc1]).intersects(xmm0)); // movss xmm0,xmm1
    assert!(dead(&[0xf3, 0x0f, 0x10, 0x07]).contains(xmm0)); // movss xmm0,[rdi]
    assert!(!dead(&[0xf2, 0x0f, 0x2a, 0xc1]).intersects(xmm0)); // cvtsi2sd xmm0,ecx
    assert!(!dead(&[0xf2, 0x0f, 0x51, 0xc1]).intersects(xmm0)); // sqrtsd xmm0,xmm1
    assert!(!dead(&[0x66, 0x0f, 0x12, 0x07]).intersects(xmm0)); // movlpd xmm0,[rdi]
    assert!(dead(&[0xc5, 0xf8, 0x28, 0xc1]).contains(xmm0)); // vmovaps xmm0,xmm1
    assert!(!dead(&[0xc5, 0xf8, 0x77]).intersects(RegSet::XMMS)); // vzeroupper
    assert!(dead(&[0x31, 0xc0]).contains(RAX | RegSet::CF)); // xor eax,eax
    let uses = |bytes: &[u8]| EffectsOf::new().of(&decode_at(bytes, 0x1000).unwrap()).uses;
    assert!(!uses(&[0x31, 0xc0]).intersects(RAX));
    assert!(uses(&[0xc5, 0xfc, 0x58, 0xc1]).contains(xmm0 | RegSet::xmm(1))); // vaddps ymm0,ymm0,ymm1
    assert!(uses(&[0x9c]).contains(RegSet::FLAGS)); // pushfq
    assert!(uses(&[0x0f, 0xae, 0x07]).contains(RegSet::XMMS)); // fxsave [rdi]
}
