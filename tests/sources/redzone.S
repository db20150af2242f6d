// Leaf code that keeps live data below rsp, in loops and across branches.
// variants: gcc-O0 gcc-O0-static gcc-O0-nopie gcc-O0-strip clang-O0
// stdout: 1275 5050
// count: leaf_red 1
// count: deep_red 1
        .text
        .globl main, leaf_red, deep_red
        .type main, @function
        .type leaf_red, @function
        .type deep_red, @function
leaf_red:
        movq $0, -8(%rsp)
        movq $50, -16(%rsp)
1:      movq -16(%rsp), %rax
        addq %rax, -8(%rsp)
        decq -16(%rsp)
        jnz 1b
        movq -8(%rsp), %rax
        ret
        .size leaf_red, .-leaf_red
deep_red:
        movq %rdi, -128(%rsp)
        movq $0, -120(%rsp)
2:      cmpq $0, -128(%rsp)
        je 3f
        movq -128(%rsp), %rcx
        addq %rcx, -120(%rsp)
        decq -128(%rsp)
        jmp 2b
3:      movq -120(%rsp), %rax
        ret
        .size deep_red, .-deep_red
main:   pushq %rbx
        call leaf_red
        movq %rax, %rbx
        movl $100, %edi
        call deep_red
        movq %rax, %rdx
        movq %rbx, %rsi
        leaq fmt(%rip), %rdi
        xorl %eax, %eax
        call printf@PLT
        xorl %eax, %eax
        popq %rbx
        ret
        .size main, .-main
        .section .rodata
fmt:    .string "%ld %ld\n"
        .section .note.GNU-stack,"",@progbits
