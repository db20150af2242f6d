//! Each form of the encoder, read back by a decoder.

use crate::x86::{Formatter, NasmFormatter};

use crate::plan::code::{Asm, Target};
use crate::tool::value::Element;
use crate::x86::asm::{Cond, Gpr, Mem};

/// The instructions in words, separated by semicolons.
fn text(emit: impl FnOnce(&mut Asm)) -> String {
    let mut asm = Asm::default();
    emit(&mut asm);
    let mut formatter = NasmFormatter::new();
    formatter.options_mut().set_rip_relative_addresses(true);
    formatter
        .options_mut()
        .set_space_after_operand_separator(false);
    let mut words = Vec::new();
    let mut decoder = crate::x86::Decoder::new(64, &asm.code, 0);
    while decoder.can_decode() {
        let mut word = String::new();
        formatter.format(&decoder.decode(), &mut word);
        words.push(word);
    }
    words.join("; ")
}

#[test]
fn registers_above_seven_get_their_prefix() {
    assert_eq!(text(|a| a.push(Gpr(11))), "push r11");
    assert_eq!(text(|a| a.pop(Gpr::RDI)), "pop rdi");
    assert_eq!(text(|a| a.mov(Gpr(10), Gpr::RSP)), "mov r10,rsp");
    assert_eq!(text(|a| a.mov(Gpr::RCX, Gpr::RCX)), "");
    assert_eq!(text(|a| a.zero(Gpr::R9)), "xor r9d,r9d");
    assert_eq!(text(|a| a.set(Cond::NE, Gpr::RDI)), "setne dil");
    assert_eq!(text(|a| a.zero_extend8(Gpr::R8, Gpr::RSI)), "movzx r8d,sil");
}

#[test]
fn constants_take_the_shortest_form() {
    assert_eq!(text(|a| a.mov_imm(Gpr::RDI, 7)), "mov edi,7");
    assert_eq!(
        text(|a| a.mov_imm(Gpr::R8, u64::MAX)),
        "mov r8,0FFFFFFFFFFFFFFFFh"
    );
    assert_eq!(
        text(|a| a.mov_imm(Gpr::RDX, 1 << 40)),
        "mov rdx,10000000000h"
    );
    assert_eq!(text(|a| a.push_imm(-3)), "push 0FFFFFFFFFFFFFFFDh");
    assert_eq!(text(|a| a.push_imm(300)), "push 12Ch");
}

#[test]
fn every_base_and_index_encodes() {
    for base in (0..16).map(Gpr) {
        for index in (0..16).map(Gpr).filter(|i| *i != Gpr::RSP) {
            for (scale, disp) in [(1, 0), (2, 1), (4, -128), (8, 128)] {
                let mut asm = Asm::default();
                asm.lea(
                    Gpr(13),
                    Mem {
                        base: Some(base),
                        index: Some((index, scale)),
                        disp,
                    },
                );
                asm.lea(Gpr(3), Mem::at(base, disp));
                let mut decoder = crate::x86::Decoder::new(64, &asm.code, 0);
                let both = decoder.decode();
                assert_eq!(both.memory_base().number(), usize::from(base.0));
                assert_eq!(both.memory_index().number(), usize::from(index.0));
                assert_eq!(both.memory_index_scale(), u32::from(scale));
                assert_eq!(both.memory_displacement64() as i64, i64::from(disp));
                let plain = decoder.decode();
                assert_eq!(plain.memory_base().number(), usize::from(base.0));
                assert_eq!(plain.memory_index(), crate::x86::Register::None);
                assert_eq!(plain.memory_displacement64() as i64, i64::from(disp));
                assert!(!decoder.can_decode());
            }
        }
    }
}

#[test]
fn memory_without_a_base_is_absolute() {
    let scaled = Mem {
        base: None,
        index: Some((Gpr::R9, 8)),
        disp: 16,
    };
    assert_eq!(text(|a| a.lea(Gpr::RAX, scaled)), "lea rax,[r9*8+10h]");
    assert_eq!(text(|a| a.load_self_pointer(Gpr::R8)), "mov r8,[fs:0]");
}

#[test]
fn the_rest() {
    let top = Mem::at(Gpr::RSP, 8);
    assert_eq!(text(|a| a.store(top, Gpr::R9)), "mov [rsp+8],r9");
    assert_eq!(text(|a| a.load(Gpr::RAX, top)), "mov rax,[rsp+8]");
    assert_eq!(text(|a| a.store32(top, Gpr::RDX)), "mov [rsp+8],edx");
    assert_eq!(
        text(|a| a.store32_imm(top, 0x1f80)),
        "mov dword [rsp+8],1F80h"
    );
    assert_eq!(text(|a| a.load8(Gpr::RDI, top)), "movzx edi,byte [rsp+8]");
    assert_eq!(text(|a| a.push_mem(top)), "push qword [rsp+8]");
    assert_eq!(text(|a| a.lea32(Gpr::RAX, top)), "lea eax,[rsp+8]");
    assert_eq!(text(|a| a.store_xmm(top, 9)), "movups [rsp+8],xmm9");
    assert_eq!(text(|a| a.load_xmm(1, top)), "movups xmm1,[rsp+8]");
    assert_eq!(text(|a| a.store_mxcsr(top)), "stmxcsr [rsp+8]");
    assert_eq!(text(|a| a.load_mxcsr(top)), "ldmxcsr [rsp+8]");
    assert_eq!(text(|a| a.align_stack()), "and rsp,0FFFFFFFFFFFFFFF0h");
    assert_eq!(text(|a| a.flags_to_ax(true)), "lahf; seto al");
    assert_eq!(text(|a| a.flags_to_ax(false)), "lahf");
    assert_eq!(text(|a| a.flags_from_ax(false)), "sahf");
    assert_eq!(text(|a| a.flags_from_ax(true)), "add al,7Fh; sahf");
    assert_eq!(text(|a| a.compare_eax(231)), "cmp eax,0E7h");
    assert_eq!(text(|a| a.read_base(Gpr(11), true)), "rdgsbase r11");
    assert_eq!(text(|a| a.read_base(Gpr::RAX, false)), "rdfsbase rax");
    assert_eq!(text(|a| a.move_stack(-128)), "lea rsp,[rsp-80h]");
    assert_eq!(text(|a| a.move_stack(0)), "");
}

#[test]
fn parts_and_vectors() {
    let top = Mem::at(Gpr::RSP, 8);
    assert_eq!(
        text(|a| [1, 2, 4, 8]
            .iter()
            .for_each(|n| a.load_sized(Gpr(9), top, *n))),
        "movzx r9d,byte [rsp+8]; movzx r9d,word [rsp+8]; mov r9d,[rsp+8]; mov r9,[rsp+8]"
    );
    assert_eq!(
        text(|a| [1, 2, 4, 8]
            .iter()
            .for_each(|n| a.extend(Gpr::RDI, Gpr(12), *n))),
        "movzx edi,r12b; movzx edi,r12w; mov edi,r12d; mov rdi,r12"
    );
    assert_eq!(text(|a| a.load32_signed(Gpr::R8, top)), "movsxd r8,[rsp+8]");
    assert_eq!(text(|a| a.shift_left(Gpr(10), 32)), "shl r10,20h");
    assert_eq!(text(|a| a.shift_right_signed(Gpr::RAX, 37)), "sar rax,25h");
    assert_eq!(text(|a| a.test(Gpr(11))), "test r11,r11");
    assert_eq!(text(|a| a.test_eax(0x80)), "test eax,80h");
    assert_eq!(text(|a| a.test_low(Gpr::R10, 0x10)), "test r10d,10h");
    assert_eq!(text(|a| a.test_low(Gpr::RSI, 0x203)), "test esi,203h");
    assert_eq!(
        text(|a| a.move_if(Cond::NE, Gpr::R9, Gpr::RAX)),
        "cmovne r9,rax"
    );
    assert_eq!(text(|a| a.low_of_xmm(Gpr::RDI, 9, true)), "movq rdi,xmm9");
    assert_eq!(text(|a| a.low_of_xmm(Gpr(11), 3, false)), "movd r11d,xmm3");
    assert_eq!(text(|a| a.low_of_xmm(Gpr(11), 25, true)), "vmovq r11,xmm25");
    assert_eq!(
        text(|a| a.low_of_xmm(Gpr::RDI, 16, false)),
        "vmovd edi,xmm16"
    );
    assert_eq!(text(|a| a.mask_to(Gpr(11), 5)), "kmovw r11d,k5");
    let store = |register, width, evex| {
        text(|a| {
            let element = Element {
                register,
                width,
                evex,
                size: 4,
                number: 0,
            };
            a.store_vector(Mem::at(Gpr::RSP, 64), &element)
        })
    };
    assert_eq!(store(9, 16, false), "movups [rsp+40h],xmm9");
    assert_eq!(store(9, 32, false), "vmovdqu [rsp+40h],ymm9");
    assert_eq!(store(2, 32, true), "vmovdqu64 [rsp+40h],ymm2");
    assert_eq!(store(31, 64, true), "vmovdqu64 [rsp+40h],zmm31");
    assert_eq!(store(17, 16, true), "vmovdqu64 [rsp+40h],xmm17");
}

#[test]
fn fixups_name_the_field() {
    let mut asm = Asm::default();
    asm.lea_target(Gpr::R8, Target::Data(3));
    asm.call(Target::analysis(9));
    let at: Vec<(u32, Target)> = asm.fixups.iter().map(|f| (f.at, f.target)).collect();
    assert_eq!(at, [(3, Target::Data(3)), (8, Target::analysis(9))]);
    assert_eq!(asm.code.len(), 12);
}
