// AVX-512 state (zmm, upper registers, masks) live over conditional branches
// and local calls that use only general registers.
// variants: gcc-O0 gcc-O0-static gcc-O0-nopie-strip
// needs: avx512f
// stdout: 3600 3600 255
// count: plain 100
        .text
        .globl main, plain
        .type main, @function
        .type plain, @function
plain:  addl $1, %eax
        testl $1, %eax
        jz 1f
        addl $2, %edx
1:      ret
        .size plain, .-plain
main:   pushq %rbx
        vmovdqu64 ones(%rip), %zmm17
        vpxorq %zmm1, %zmm1, %zmm1
        vpxorq %zmm31, %zmm31, %zmm31
        movl $100, %ecx
        movl $255, %ebx
        kmovw %ebx, %k3
        xorl %eax, %eax
2:      vpaddq %zmm17, %zmm1, %zmm1
        call plain
        vpaddq %zmm17, %zmm31, %zmm31{%k3}
        decl %ecx
        jnz 2b
        vmovdqu64 %zmm1, out(%rip)
        vmovdqu64 %zmm31, out+64(%rip)
        kmovw %k3, %ecx
        xorl %esi, %esi
        xorl %edx, %edx
        xorl %ebx, %ebx
        leaq out(%rip), %rdi
3:      addq (%rdi,%rbx,8), %rsi
        addq 64(%rdi,%rbx,8), %rdx
        incl %ebx
        cmpl $8, %ebx
        jne 3b
        vzeroupper
        leaq fmt(%rip), %rdi
        xorl %eax, %eax
        call printf@PLT
        xorl %eax, %eax
        popq %rbx
        ret
        .size main, .-main
        .section .rodata
fmt:    .string "%ld %ld %d\n"
        .balign 64
ones:   .quad 1, 2, 3, 4, 5, 6, 7, 8
        .bss
        .balign 64
out:    .skip 128
        .section .note.GNU-stack,"",@progbits
