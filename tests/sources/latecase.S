// A switch in a procedure whose end nothing states: one case is after the code that is known before the table is read, and
// the entries after that one count all the same. The bound is compared before the index is made anew, as by clang in V8.
// variants: gcc-O0-strip gcc-O0-nopie-strip clang-O0-strip
// stdout: 11 41 21 21 5
        .text
        .globl main
main:   .cfi_startproc
        pushq %rbx
        .cfi_adjust_cfa_offset 8
        leaq cases(%rip), %rbx
1:      movl (%rbx), %edi
        call choose
        leaq format(%rip), %rdi
        movl %eax, %esi
        xorl %eax, %eax
        call printf@PLT
        addq $4, %rbx
        leaq end(%rip), %rax
        cmpq %rax, %rbx
        jne 1b
        leaq line(%rip), %rdi
        call puts@PLT
        xorl %eax, %eax
        popq %rbx
        .cfi_adjust_cfa_offset -8
        ret
        .cfi_endproc
        .p2align 4, 0xcc
choose: movzwl %di, %eax
        cmpl $899, %eax
        ja default
        movzwl %di, %eax
        leaq table(%rip), %rcx
        movslq (%rcx,%rax,4), %rax
        addq %rcx, %rax
        jmp *%rax
first:  movl $10, %eax
        incl %eax
        ret
second: movl $20, %eax
        incl %eax
        ret
default:
        movl $5, %eax
        ret
        .p2align 4, 0xcc
        int3
late:   movl $40, %eax
        incl %eax
        ret
        .section .rodata
        .p2align 2
table:  .rept 300
        .long first - table
        .endr
        .long late - table
        .rept 599
        .long second - table
        .endr
cases:  .long 0, 300, 301, 899, 900
end:
format: .string "%d "
line:   .string ""
        .section .note.GNU-stack, "", @progbits
