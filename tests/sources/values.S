// Memory operands of every kind, so that what analysis is told of them can be
// compared with the processor: implicit ones, segments, bit strings, string
// instructions with and without repetition, gathers, masks, partial registers.
// variants: gcc-O0 gcc-O0-nopie gcc-O0-static
// needs: avx2
// stdout: done 42
        .text
        .globl main, callee, popper, target
        .type main, @function
        .type callee, @function
        .type popper, @function
// Removes its stack argument.
popper: movq 8(%rsp), %rax
        ret $8
        .size popper, .-popper
callee: endbr64
        enter $32, $0
        movq %rdi, -8(%rbp)
        leave
        ret
        .size callee, .-callee
main:   pushq %rbx
        pushq %r12
        pushq %r13
        leaq area(%rip), %rbx
// Partial registers and constants to memory.
        movabsq $0x1122334455667788, %rax
        movb %al, (%rbx)
        movb %ah, 1(%rbx)
        movw %ax, 2(%rbx)
        movl %eax, 4(%rbx)
        movq %rax, 8(%rbx)
        movb $-3, 16(%rbx)
        movw $-3, 18(%rbx)
        movl $-3, 20(%rbx)
        movq $-3, 24(%rbx)
        movl %esp, 32(%rbx)
        movq %rsp, 40(%rbx)
// Loads that extend.
        movzbl 1(%rbx), %ecx
        movsbq 16(%rbx), %rcx
        movswl 18(%rbx), %ecx
        movslq 20(%rbx), %rcx
        movb 1(%rbx), %ch
        movq 8(%rbx), %rbx
        leaq area(%rip), %rbx
// Read, change, write.
        addq %rax, 8(%rbx)
        lock xaddl %ecx, 4(%rbx)
        xchgq %rax, 24(%rbx)
        lock cmpxchgq %rcx, 8(%rbx)
        notb 16(%rbx)
        cmpq $0, (%rbx)
        setne 17(%rbx)
        sete 17(%rbx)
// The stack.
        pushq 8(%rbx)
        popq 8(%rbx)
        pushq %rsp
        popq %rcx
        pushq $-5
        popq 16(%rbx)
        pushw $7
        popw %cx
        pushq $9
        pushq 8(%rsp)
        popq 8(%rsp)
        popq %rcx
        pushfq
        popq %rcx
        pushq $33
        call popper
        movl $5, %edi
        call callee
        leaq callee(%rip), %rax
        call *%rax
        movq %rax, 48(%rbx)
        leaq 48(%rbx), %r12
        call *(%r12)
        leaq target(%rip), %rax
        movq %rax, 56(%rbx)
        jmp *8(%r12)
        ud2
target: endbr64
// Segments, rip-relative with one, absolute and 32-bit addresses.
        movq %fs:0, %rax
        xorl %ecx, %ecx
        movq %fs:(%rcx), %rdx
        movq %fs:0(,%rcx,8), %rdx
        leaq area(%rip), %rbx
        movq %rsp, %r12
        movq $-8, %rcx
        movq 24(%rbx,%rcx,2), %rdx
// A table look-up.
        leaq area(%rip), %rbx
        movl $0x1205, %eax
        xlatb
// Bit strings: the register reaches beyond the operand, both ways.
        movl $200, %ecx
        btl %ecx, (%rbx)
        movq $-70, %rcx
        btsq %rcx, 64(%rbx)
        movl $-20, %ecx
        btcw %cx, 64(%rbx)
        btrl $3, 8(%rbx)
// Strings, one by one and repeated, also not at all.
        leaq area(%rip), %rsi
        leaq other(%rip), %rdi
        movsb
        movsw
        movsl
        movsq
        lodsb
        lodsq
        stosb
        stosl
        leaq area(%rip), %rsi
        leaq other(%rip), %rdi
        cmpsb
        scasl
        movl $6, %ecx
        rep movsb
        xorl %ecx, %ecx
        rep stosq
        movl $3, %ecx
        rep stosw
        movl $20, %ecx
        repne scasb
        leaq area(%rip), %rsi
        leaq area(%rip), %rdi
        movl $4, %ecx
        repe cmpsq
        std
        leaq 8+other(%rip), %rdi
        stosb
        lodsb
        movl $2, %ecx
        rep movsb
        cld
// Vector loads and stores of all widths, and x87.
        movups area(%rip), %xmm1
        movaps %xmm1, other(%rip)
        movss (%rbx), %xmm2
        movsd 8(%rbx), %xmm3
        movss %xmm2, 64(%rbx)
        movsd %xmm3, 72(%rbx)
        movhps 8(%rbx), %xmm2
        movhps %xmm2, 80(%rbx)
        movlps %xmm2, 88(%rbx)
        movd %xmm2, 96(%rbx)
        movq %xmm2, 104(%rbx)
        movdqu %xmm1, 1+other(%rip)
        vmovdqu (%rbx), %ymm4
        vmovups %ymm4, 32+other(%rip)
        addpd (%rbx), %xmm1
        fldl (%rbx)
        fstpt 112(%rbx)
        fldt 112(%rbx)
        fstps 112(%rbx)
        fnstcw 128(%rbx)
        fldcw 128(%rbx)
        stmxcsr 132(%rbx)
        ldmxcsr 132(%rbx)
// Masks, and gathers with some and no elements.
        leaq other(%rip), %rdi
        pcmpeqb %xmm5, %xmm5
        pslldq $9, %xmm5
        maskmovdqu %xmm5, %xmm1
        vmaskmovps (%rbx), %xmm5, %xmm6
        vmaskmovps %xmm6, %xmm5, 32(%rbx)
        vmovdqu indices(%rip), %ymm7
        vmovdqu mask(%rip), %ymm8
        vpgatherdd %ymm8, 16(%rbx,%ymm7,4), %ymm9
        vpgatherdd %ymm8, 16(%rbx,%ymm7,4), %ymm9
        vmovdqu indices(%rip), %ymm7
        vpcmpeqd %ymm8, %ymm8, %ymm8
        vpgatherdq %ymm8, (%rbx,%xmm7,8), %ymm10
        vmovdqu quads(%rip), %ymm11
        vpcmpeqd %ymm8, %ymm8, %ymm8
        vgatherqpd %ymm8, (%rbx,%ymm11,2), %ymm10
        vpcmpeqd %xmm8, %xmm8, %xmm8
        vgatherqps %xmm8, (%rbx,%ymm11,1), %xmm10
        vpcmpeqd %xmm8, %xmm8, %xmm8
        vzeroupper
// Counted branches.
        movl $3, %ecx
1:      loop 1b
        jrcxz 2f
        ud2
2:      movl $4, %ecx
        xorl %eax, %eax
3:      loope 3b
        leaq format(%rip), %rdi
        movl $42, %esi
        xorl %eax, %eax
        call printf@PLT
        xorl %eax, %eax
        popq %r13
        popq %r12
        popq %rbx
        ret
        .size main, .-main
        .section .rodata
format: .string "done %d\n"
        .balign 32
indices: .long 0, 3, -2, 5, 1, 7, 2, -4
mask:   .long -1, 0, -1, -1, 0, 0, 1, -5
quads:  .quad 8, -4, 16, 0
        .data
        .balign 64
        .skip 64
area:   .quad 1, 2, 3, 4, 5, 6, 7, 8
        .skip 256
        .balign 64
other:  .skip 256
        .section .note.GNU-stack,"",@progbits
