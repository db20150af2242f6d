// A jump table of which one entry leads to code that belongs to no procedure, as where the
// end of a procedure is not known: what follows the entry counts all the same.
// counts: no
// missed: choose
// variants: gcc-O0 gcc-O0-nopie gcc-O0-static clang-O0
// stdout: 10 20 30 5 5
        .text
        .globl main
        .type main, @function
        .type choose, @function
choose: movl $5, %eax
        cmpl $3, %edi
        ja fourth
        leaq table(%rip), %rdx
        movl %edi, %ecx
        movslq (%rdx,%rcx,4), %rcx
        addq %rdx, %rcx
        jmp *%rcx
first:  movl $9, %eax
        incl %eax
        ret
third:  movl $29, %eax
        incl %eax
        ret
        nop
        nop
fourth: ret
        .size choose, .-choose
        .p2align 4
second: movl $20, %eax
        ret
        .p2align 4
main:   pushq %rbx
        xorl %ebx, %ebx
1:      movl %ebx, %edi
        call choose
        leaq format(%rip), %rdi
        movl %eax, %esi
        xorl %eax, %eax
        call printf@PLT
        incl %ebx
        cmpl $5, %ebx
        jne 1b
        leaq line(%rip), %rdi
        call puts@PLT
        xorl %eax, %eax
        popq %rbx
        ret
        .size main, .-main
        .section .rodata
        .p2align 2
table:  .long first - table, second - table, third - table, fourth - table
format: .string "%d "
line:   .string ""
        .section .note.GNU-stack, "", @progbits
