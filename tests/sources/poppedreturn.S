// Procedures that take their return address for data and that look like parts of others: one with
// a frame description that is wrong, one that is only jumped to and has no description.
// missed: described jumping
// variants: gcc-O0 gcc-O0-static gcc-O0-nopie clang-O0
// stdout: 17 here 1
// count: number_behind 1
// count: taken 1
        .text
        .globl main
        .type main, @function
        .type number_behind, @function
        .type described, @function
        .type taken, @function
        .type jumping, @function
        .type through, @function
// Gives the number behind the call. The description says that the caller pushed something.
number_behind:
        .cfi_startproc
        .cfi_def_cfa_offset 16
        popq %rdx
        .cfi_def_cfa_offset 8
        movslq (%rdx), %rax
        addq $4, %rdx
        jmp *%rdx
        .cfi_endproc
        .size number_behind, .-number_behind
described:
        call number_behind
        .long 17
        ret
        .size described, .-described
// Gives its return address.
taken:  popq %rax
        jmp *%rax
        .size taken, .-taken
through:
        jmp taken
        .size through, .-through
jumping:
        call through
1:      leaq 1b(%rip), %rcx
        xorl %edx, %edx
        cmpq %rax, %rcx
        sete %dl
        movl %edx, %eax
        ret
        .size jumping, .-jumping
main:   pushq %rbx
        call described
        movq %rax, %rbx
        call jumping
        movl %eax, %edx
        movq %rbx, %rsi
        leaq fmt(%rip), %rdi
        xorl %eax, %eax
        call printf@PLT
        xorl %eax, %eax
        popq %rbx
        ret
        .size main, .-main
        .section .rodata
fmt:    .string "%ld here %d\n"
        .section .note.GNU-stack,"",@progbits
