// Hand-written frame descriptions, exact at each instruction, of forms that compilers seldom write: a frame found by an
// expression, registers kept in other registers, as expressions and below rsp, an epilogue in the middle
// without remembering, one that remembers twice, and a frame found by a register that is no frame pointer.
// variants: gcc-O0 gcc-O0-nopie clang-O0 gcc-O0-strip
// exit: 72
// count: byexpression 4
// count: inregister 4
// count: middle 2
        .text
        .globl main
        .type leaf, @function
        .type byexpression, @function
        .type inregister, @function
        .type middle, @function
        .type twice, @function
        .type byother, @function
        .type valued, @function
        .type main, @function
// Keeps rbx below rsp, without moving rsp.
leaf:   .cfi_startproc
        movq %rbx, -8(%rsp)
        .cfi_offset %rbx, -16
        leaq 1(%rdi), %rbx
        testq $1, %rdi
        je 1f
        incq %rbx
1:      movq %rbx, %rax
        movq -8(%rsp), %rbx
        .cfi_restore %rbx
        ret
        .cfi_endproc
        .size leaf, .-leaf
// The old rsp lies at the top of the stack.
byexpression:
        .cfi_startproc
        movq %rsp, %rax
        pushq %rbx
        .cfi_def_cfa_offset 16
        .cfi_offset %rbx, -16
        andq $-64, %rsp
        .cfi_def_cfa %rax, 8
        subq $16, %rsp
        movq %rax, (%rsp)
        // CFA: the word at rsp, plus 8.
        .cfi_escape 0x0f, 5, 0x77, 0, 0x06, 0x23, 8
        movq %rdi, %rbx
        call leaf
        addq %rbx, %rax
        testq $2, %rbx
        je 1f
        movq (%rsp), %rcx
        .cfi_def_cfa %rcx, 8
        movq -8(%rcx), %rbx
        .cfi_restore %rbx
        movq %rcx, %rsp
        .cfi_def_cfa %rsp, 8
        ret
1:      .cfi_escape 0x0f, 5, 0x77, 0, 0x06, 0x23, 8
        .cfi_offset %rbx, -16
        movq (%rsp), %rcx
        .cfi_def_cfa %rcx, 8
        movq -8(%rcx), %rbx
        .cfi_restore %rbx
        movq %rcx, %rsp
        .cfi_def_cfa %rsp, 8
        incq %rax
        ret
        .cfi_endproc
        .size byexpression, .-byexpression
// The caller's rbx and r12 are kept in registers that nothing here changes.
inregister:
        .cfi_startproc
        movq %rbx, %r10
        .cfi_register %rbx, %r10
        movq %r12, %r11
        .cfi_register %r12, %r11
        movq %rdi, %rbx
        leaq 3(%rbx), %r12
        testq $1, %rbx
        je 1f
        addq %rbx, %r12
1:      leaq (%r12,%rbx), %rax
        movq %r10, %rbx
        .cfi_restore %rbx
        movq %r11, %r12
        .cfi_restore %r12
        ret
        .cfi_endproc
        .size inregister, .-inregister
// An epilogue in the middle: the frame shrinks and grows, and the rules of registers stay.
middle: .cfi_startproc
        pushq %rbx
        .cfi_def_cfa_offset 16
        pushq %r12
        .cfi_def_cfa_offset 24
        pushq %r13
        .cfi_def_cfa_offset 32
        .cfi_offset %rbx, -16
        .cfi_offset %r12, -24
        .cfi_offset %r13, -32
        movq %rdi, %rbx
        leaq 7(%rdi), %r12
        call inregister
        leaq (%rax,%r12), %r13
        testq $1, %rbx
        je 2f
        movq %r13, %rax
1:      popq %r13
        .cfi_def_cfa_offset 24
        popq %r12
        .cfi_def_cfa_offset 16
        testq $1, %rax
        popq %rbx
        .cfi_def_cfa_offset 8
        jne 3f
        ret
2:      .cfi_def_cfa_offset 32
        movq %rbx, %rdi
        movq $5, %r12
        movq $6, %rbx
        movq $7, %r13
        call leaf
        testq %rax, %rax
        jns 1b
        ud2
        .cfi_def_cfa_offset 8
        .cfi_same_value %rbx
        .cfi_same_value %r12
        .cfi_same_value %r13
3:      incq %rax
        ret
        .cfi_endproc
        .size middle, .-middle
// Remembers its state within a remembered one.
twice:  .cfi_startproc
        pushq %rbx
        .cfi_def_cfa_offset 16
        .cfi_offset %rbx, -16
        movq %rdi, %rbx
        .cfi_remember_state
        testq $2, %rdi
        jne 2f
        pushq %r12
        .cfi_def_cfa_offset 24
        .cfi_offset %r12, -24
        leaq 9(%rdi), %r12
        .cfi_remember_state
        call middle
        testq $1, %rbx
        jne 1f
        addq %r12, %rax
        popq %r12
        .cfi_restore %r12
        .cfi_def_cfa_offset 16
        popq %rbx
        .cfi_restore %rbx
        .cfi_def_cfa_offset 8
        ret
1:      .cfi_restore_state
        popq %r12
        .cfi_restore %r12
        .cfi_def_cfa_offset 16
        popq %rbx
        .cfi_restore %rbx
        .cfi_def_cfa_offset 8
        ret
2:      .cfi_restore_state
        call inregister
        popq %rbx
        .cfi_restore %rbx
        .cfi_def_cfa_offset 8
        ret
        .cfi_endproc
        .size twice, .-twice
// A frame that r13 finds, while rsp moves.
byother:
        .cfi_startproc
        pushq %r13
        .cfi_def_cfa_offset 16
        .cfi_offset %r13, -16
        movq %rsp, %r13
        .cfi_def_cfa_register %r13
        leaq 15(%rdi), %rax
        andq $-16, %rax
        subq %rax, %rsp
        andq $-16, %rsp
        call twice
        movq %r13, %rsp
        .cfi_def_cfa_register %rsp
        popq %r13
        .cfi_restore %r13
        .cfi_def_cfa_offset 8
        ret
        .cfi_endproc
        .size byother, .-byother
// The caller's r14 is one less than ours, and its r15 lies where r14's copy points.
valued: .cfi_startproc
        incq %r14
        // r14: the value r14 - 1.
        .cfi_escape 0x16, 14, 2, 0x7e, 0x7f
        pushq %r15
        .cfi_def_cfa_offset 16
        // r15: the word at rsp.
        .cfi_escape 0x10, 15, 2, 0x77, 0
        movq %rdi, %r15
        pushq %rdi
        .cfi_def_cfa_offset 24
        .cfi_escape 0x10, 15, 2, 0x77, 8
        testq $1, %rdi
        je 1f
        incq %r15
1:      popq %rdi
        .cfi_def_cfa_offset 16
        .cfi_escape 0x10, 15, 2, 0x77, 0
        movq %r15, %rax
        popq %r15
        .cfi_def_cfa_offset 8
        .cfi_restore %r15
        decq %r14
        .cfi_restore %r14
        ret
        .cfi_endproc
        .size valued, .-valued
main:   .cfi_startproc
        pushq %rbx
        .cfi_def_cfa_offset 16
        .cfi_offset %rbx, -16
        pushq %r12
        .cfi_def_cfa_offset 24
        .cfi_offset %r12, -24
        pushq %rax
        .cfi_def_cfa_offset 32
        xorl %ebx, %ebx
        xorl %r12d, %r12d
1:      movq %r12, %rdi
        call byexpression
        addq %rax, %rbx
        movq %r12, %rdi
        call byother
        addq %rax, %rbx
        movq %r12, %rdi
        call valued
        addq %rax, %rbx
        incq %r12
        cmpq $4, %r12
        jne 1b
        movq %rbx, %rax
        andl $127, %eax
        popq %rcx
        .cfi_def_cfa_offset 24
        popq %r12
        .cfi_restore %r12
        .cfi_def_cfa_offset 16
        popq %rbx
        .cfi_restore %rbx
        .cfi_def_cfa_offset 8
        ret
        .cfi_endproc
        .size main, .-main
        .section .note.GNU-stack,"",@progbits
