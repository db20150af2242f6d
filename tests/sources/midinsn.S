// A jump into the middle of an instruction: over a lock prefix (as libc does)
// into the immediate of a move, so that two decodings overlap, and where another frame description begins
// in the middle of the instruction.
// missed: overlap
// variants: gcc-O0 gcc-O0-static gcc-O0-nopie-strip clang-O0
// stdout: locked 3 plain 4 hidden 42 outer 1 frames 21
        .text
        .globl main, add_maybe_lock, overlap
        .type main, @function
        .type add_maybe_lock, @function
        .type overlap, @function
add_maybe_lock:
        cmpl $0, single(%rip)
        je 1f
        jmp 2f
1:      .byte 0xf0                       // lock
2:      addl %edi, value(%rip)
        movl value(%rip), %eax
        ret
        .size add_maybe_lock, .-add_maybe_lock
overlap:
        xorl %eax, %eax
        testl %edi, %edi
        jnz 3f+1
3:      .byte 0x3d                       // cmpl $imm32, %eax hides: movb $42, %al; jmp +1
        .byte 0xb0, 42, 0xeb, 0x05
        movl $1, %eax                    // 5 bytes, skipped by the hidden jump
        ret
        .size overlap, .-overlap
        .type frames, @function
frames: .cfi_startproc                   // yields edi + 1
        pushq %rbp
        .cfi_def_cfa_offset 16
        .cfi_offset %rbp, -16
        movq %rsp, %rbp
        testl %edi, %edi
        jnz 3f+1
3:      .byte 0xb8, 0x90, 0x90, 0x90     // movl $imm32, %eax hides: nop; nop; nop
        .cfi_def_cfa %rbp, 16
        .byte 0x48                       // and the prefix of movq %rdi, %rax
        movl %edi, %eax
        incl %eax
        popq %rbp
        .cfi_def_cfa %rsp, 8
        ret
        .cfi_endproc
        .size frames, .-frames
main:   pushq %rbx
        pushq %r12
        pushq %r13
        movl $3, %edi
        call add_maybe_lock
        movl %eax, %ebx
        movl $1, single(%rip)
        movl $1, %edi
        call add_maybe_lock
        movl %eax, %r12d
        movl $1, %edi
        call overlap
        movl %eax, %r13d
        xorl %edi, %edi
        call overlap
        movl %eax, both(%rip)
        movl $1, %edi
        call frames
        imull $10, %eax, %eax
        movl %eax, number(%rip)
        xorl %edi, %edi
        call frames
        addl number(%rip), %eax
        movl %eax, %r9d
        movl both(%rip), %r8d
        movl %r13d, %ecx
        movl %r12d, %edx
        movl %ebx, %esi
        leaq fmt(%rip), %rdi
        xorl %eax, %eax
        call printf@PLT
        xorl %eax, %eax
        popq %r13
        popq %r12
        popq %rbx
        ret
        .size main, .-main
        .section .rodata
fmt:    .string "locked %d plain %d hidden %d outer %d frames %d\n"
        .data
single: .long 0
value:  .long 0
both:   .long 0
number: .long 0
        .section .note.GNU-stack,"",@progbits
