// Data between procedures of the text: tables that code reads, a string,
// bytes that decode as nonsense, a jump table in the text section.
// missed: pick
// variants: gcc-O0 gcc-O0-static gcc-O0-nopie clang-O0 gcc-O0-strip gcc-O0-static-strip
// stdout: sum 1028 word text in text case 30 case 10 case 99
// count: pick 3
        .text
        .globl main, pick, sum_table
        .type main, @function
        .type pick, @function
        .type sum_table, @function
table:  .quad 0x0f0b0f0b0f0b0f0b & 0xff, 0xff, 1, 2, 0x2ff
        .byte 0xff, 0xff, 0xc3, 0xe8, 0x0f, 0x04
sum_table:
        leaq table(%rip), %rsi
        xorl %eax, %eax
        movl $5, %ecx
1:      addq (%rsi), %rax
        addq $8, %rsi
        decl %ecx
        jnz 1b
        addq $-8, %rax
        ret
        .size sum_table, .-sum_table
word:   .string "text in text"
        .byte 0x62, 0x0f, 0xea
pick:   cmpl $3, %edi
        jae 9f
        leaq jumps(%rip), %rdx
        movslq (%rdx,%rdi,4), %rax
        addq %rdx, %rax
        jmp *%rax
        .balign 4
jumps:  .long 5f-jumps, 6f-jumps, 7f-jumps
5:      movl $10, %eax
        ret
6:      movl $20, %eax
        ret
7:      movl $30, %eax
        ret
9:      movl $99, %eax
        ret
        .size pick, .-pick
main:   pushq %rbx
        pushq %r12
        pushq %r13
        movl $2, %edi
        call pick
        movl %eax, %ebx
        xorl %edi, %edi
        call pick
        movl %eax, %r12d
        movl $3, %edi
        call pick
        movl %eax, %r13d
        call sum_table
        movq %rax, %rsi
        leaq word(%rip), %rdx
        movl %ebx, %ecx
        movl %r12d, %r8d
        movl %r13d, %r9d
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
fmt:    .string "sum %ld word %s case %d case %d case %d\n"
        .section .note.GNU-stack,"",@progbits
