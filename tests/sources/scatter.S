// Gathers and scatters of AVX-512 with masks, and its upper vector registers.
// variants: gcc-O0 gcc-O0-nopie gcc-O0-static
// needs: avx512f
// stdout: done 42
        .text
        .globl main
        .type main, @function
main:   pushq %rbx
        leaq area(%rip), %rbx
        vmovdqu64 indices(%rip), %zmm17
        vmovdqu64 values(%rip), %zmm20
        movl $0xa5c3, %eax
        kmovw %eax, %k1
        vpscatterdd %zmm20, 64(%rbx,%zmm17,4){%k1}
        movl $0x00ff, %eax
        kmovw %eax, %k2
        vpxord %zmm21, %zmm21, %zmm21
        vpgatherdd 64(%rbx,%zmm17,4), %zmm21{%k2}
        vmovdqu64 quads(%rip), %zmm18
        movl $0x2d, %eax
        kmovw %eax, %k3
        vscatterqpd %zmm20, (%rbx,%zmm18,1){%k3}
        movl $0, %eax
        kmovw %eax, %k4
        vpgatherqq (%rbx,%zmm18,1), %zmm22{%k4}
        movl $0xff, %eax
        kmovw %eax, %k4
        vpgatherqd (%rbx,%zmm18,2), %ymm23{%k4}
        movl $3, %eax
        kmovw %eax, %k5
        vmovdqu32 %zmm20, (%rbx){%k5}
        vmovdqu32 (%rbx), %zmm24{%k5}{z}
        vpaddd (%rbx){1to16}, %zmm20, %zmm25
        vmovdqu64 %zmm25, 128(%rbx)
        vmovss %xmm20, (%rbx)
        vmovsd %xmm31, 8(%rbx)
        vmovd %xmm18, %ecx
        vzeroupper
        leaq format(%rip), %rdi
        movl $42, %esi
        xorl %eax, %eax
        call printf@PLT
        xorl %eax, %eax
        popq %rbx
        ret
        .size main, .-main
        .section .rodata
format: .string "done %d\n"
        .balign 64
indices: .long 0, 3, -2, 5, 1, 7, 2, -4, 8, 9, 10, 11, 12, 13, 14, 15
values: .long 100, 101, 102, 103, 104, 105, 106, 107, 108, 109, 110, 111, 112, 113, 114, 115
quads:  .quad 8, 16, 24, 32, 40, 48, 56, 64
        .data
        .balign 64
area:   .skip 512
        .section .note.GNU-stack,"",@progbits
