// A procedure that is not understood jumps into the middle of one that is.
// missed: computed shared victim
// variants: gcc-O0 gcc-O0-static gcc-O0-nopie clang-O0 gcc-O0-strip
// stdout: 12 22 7
        .text
        .globl main, computed, victim
        .type main, @function
        .type computed, @function
        .type victim, @function
victim: movl $5, %eax
        addl $2, %eax
        ret
shared: addl $1, %eax
        imull $2, %eax
        ret
        .size victim, .-victim
computed:
        leaq steps(%rip), %rax
        leaq (%rax,%rdi,8), %rax
        jmp *%rax
        .p2align 3
steps:  movl $5, %eax
        jmp shared
        .p2align 3
        movl $10, %eax
        jmp shared
        .size computed, .-computed
main:   pushq %rbx
        pushq %r12
        pushq %r13
        xorl %edi, %edi
        call computed
        movl %eax, %ebx
        movl $1, %edi
        call computed
        movl %eax, %r12d
        call victim
        movl %eax, %ecx
        movl %r12d, %edx
        movl %ebx, %esi
        leaq format(%rip), %rdi
        xorl %eax, %eax
        call printf@plt
        xorl %eax, %eax
        popq %r13
        popq %r12
        popq %rbx
        ret
        .size main, .-main
        .section .rodata
format: .string "%d %d %d\n"
        .section .note.GNU-stack,"",@progbits
