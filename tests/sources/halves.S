// A procedure with two frame descriptions, one for each half, as glibc's `clone` has: inserted code that stands apart
// belongs to the description of its point.
// variants: gcc-O0 gcc-O0-nopie clang-O0 gcc-O0-strip
// exit: 22
// count: halves 4
        .text
        .globl main
        .type leaf, @function
        .type halves, @function
        .type main, @function
leaf:   .cfi_startproc
        movl 8(%rsp), %eax
        leaq 1(%rdi), %rax
        testq $1, %rdi
        je 1f
        incq %rax
1:      ret
        .cfi_endproc
        .size leaf, .-leaf
halves: .cfi_startproc
        pushq %rbx
        .cfi_def_cfa_offset 16
        .cfi_offset %rbx, -16
        movq %rdi, %rbx
        call leaf
        addq %rbx, %rax
        pushq %rax
        .cfi_def_cfa_offset 24
        testq $1, (%rsp)
        je 1f
        movq (%rsp), %rcx
1:      popq %rax
        .cfi_def_cfa_offset 16
        popq %rbx
        .cfi_restore %rbx
        .cfi_def_cfa_offset 8
        .cfi_endproc
        .cfi_startproc
        movq (%rsp), %rcx
        incq %rax
        ret
        .cfi_endproc
        .size halves, .-halves
main:   .cfi_startproc
        pushq %rbx
        .cfi_def_cfa_offset 16
        .cfi_offset %rbx, -16
        pushq %r12
        .cfi_def_cfa_offset 24
        .cfi_offset %r12, -24
        xorl %ebx, %ebx
        xorl %r12d, %r12d
1:      movq %r12, %rdi
        pushq %rdi
        .cfi_def_cfa_offset 32
        call halves
        popq %rdi
        .cfi_def_cfa_offset 24
        addq %rax, %rbx
        incq %r12
        cmpq $4, %r12
        jne 1b
        movq %rbx, %rax
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
