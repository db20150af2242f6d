// Live data below rsp that is easy to overlook: a leaf whose rarely executed part lies elsewhere and
// looks like a procedure by itself (own symbol or none, own FDE, nothing on the stack), and a leaf that
// reaches below rsp through copies of it that are moved by arithmetic.
// variants: gcc-O0 gcc-O0-static gcc-O0-nopie gcc-O0-strip clang-O0
// stdout: 1040 136
// count: parted 1
// count: walker 1
        .text
        .globl main, parted, walker
        .type main, @function
        .type parted, @function
        .type walker, @function
parted:
        .cfi_startproc
        movq $0, -8(%rsp)
        movl $20, %ecx
1:      testl $1, %ecx
        jnz rare
        addq $4, -8(%rsp)
        jmp 2f
back:   addq %rax, -8(%rsp)
2:      decl %ecx
        jnz 1b
        movq -8(%rsp), %rax
        ret
        .cfi_endproc
        .size parted, .-parted

walker:
        .cfi_startproc
        movq %rsp, %rdx
        movq %rsp, %rsi
        subq $128, %rsi
        movl $16, %ecx
3:      subq $8, %rdx
        movq %rcx, (%rdx)
        decl %ecx
        jnz 3b
        xorl %eax, %eax
4:      addq (%rsi), %rax
        addq $8, %rsi
        cmpq %rsp, %rsi
        jb 4b
        ret
        .cfi_endproc
        .size walker, .-walker

main:   .cfi_startproc
        pushq %rbx
        .cfi_adjust_cfa_offset 8
        movl $1, %edi
        call parted
        movq %rax, %rbx
        call walker
        movq %rax, %rdx
        movq %rbx, %rsi
        leaq fmt(%rip), %rdi
        xorl %eax, %eax
        call printf@PLT
        xorl %eax, %eax
        popq %rbx
        .cfi_adjust_cfa_offset -8
        ret
        .cfi_endproc
        .size main, .-main

        .section .text.unlikely,"ax",@progbits
        .type rare, @function
rare:   .cfi_startproc
        movl $100, %eax
        cmpl $50, %ecx
        ja 5f
        leaq table(%rip), %r8
        movq (%r8), %rax
5:      addq $0, table(%rip)
        nop
        jmp back
        .cfi_endproc
        .size rare, .-rare

        .data
table:  .quad 100
        .section .rodata
fmt:    .string "%ld %ld\n"
        .section .note.GNU-stack,"",@progbits
