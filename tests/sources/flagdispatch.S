// Jumps through tables of pointers with flags live: to labels of the same procedure that read
// what the comparison before the jump left, and, in a tail call, to a procedure that takes
// the carry as its argument. A loop around one that leaves no flag live counts as well.
// missed: main
// variants: gcc-O0 gcc-O0-static gcc-O0-nopie clang-O0-strip
// stdout: equal 50 below 50 above 100 carry 100 plain 302
        .text
        .type adder, @function
// rdi and the carry.
adder:  adcq $0, %rdi
        movq %rdi, %rax
        ret
        .size adder, .-adder
        .type subtracter, @function
subtracter:
        sbbq $0, %rdi
        movq %rdi, %rax
        ret
        .size subtracter, .-subtracter

// rdi + 1 for an even number of turns, rdi - 1 for an odd one, by a carry that is always set.
        .type tail, @function
tail:   leaq procs(%rip), %rdx
        andl $1, %esi
        stc
        jmp *(%rdx,%rsi,8)
        .size tail, .-tail

// How rdi compares with 2: r12 counts equal, r13 below, r14 above.
        .type compare, @function
compare:
        leaq labels(%rip), %rdx
        movl %edi, %ecx
        andl $1, %ecx
        cmpq $2, %rdi
        movq (%rdx,%rcx,8), %rax
        jmp *%rax
even:   je 1f
        jb 2f
        incl %r14d
        ret
odd:    jb 2f
        incl %r14d
        ret
1:      incl %r12d
        ret
2:      incl %r13d
        ret
        .size compare, .-compare

// An interpreter that leaves no flag live: adds 1 or 2 by the bits of rsi.
        .type plain, @function
plain:  leaq codes(%rip), %rdx
        xorl %eax, %eax
0:      movl %esi, %ecx
        andl $1, %ecx
        shrl %esi
        jmp *(%rdx,%rcx,8)
zero:   incl %eax
        testl %esi, %esi
        jne 0b
        ret
one:    addl $2, %eax
        testl %esi, %esi
        jne 0b
        ret
        .size plain, .-plain

        .globl main
        .type main, @function
main:   pushq %rbx
        pushq %r12
        pushq %r13
        pushq %r14
        pushq %r15
        xorl %ebx, %ebx
        xorl %r12d, %r12d
        xorl %r13d, %r13d
        xorl %r14d, %r14d
        xorl %r15d, %r15d
0:      movl %ebx, %edi
        andl $3, %edi
        // 0, 2, 3 and 4 in turn
        cmpl $1, %edi
        sbbl $-1, %edi
        call compare
        // 1 forward, 1 back, and 1 more at every second turn
        xorl %edi, %edi
        movl %ebx, %esi
        call tail
        imulq %rax, %rax
        addq %rax, %r15
        incl %ebx
        cmpl $200, %ebx
        jne 0b
        shrl %r15d
        movl $0x55555555, %esi
        call plain
        leal (%rax,%rax,1), %ebx
        movl $0x2aaaaaaa, %esi
        call plain
        leal (%rbx,%rax,2), %ebx
        subq $16, %rsp
        addl $118, %ebx
        movl %ebx, (%rsp)
        leaq text(%rip), %rdi
        movl %r12d, %esi
        movl %r13d, %edx
        movl %r14d, %ecx
        movl %r15d, %r8d
        movl %ebx, %r9d
        xorl %eax, %eax
        call printf@plt
        addq $16, %rsp
        xorl %eax, %eax
        popq %r15
        popq %r14
        popq %r13
        popq %r12
        popq %rbx
        ret
        .size main, .-main

        .section .data.rel.ro, "aw"
        .p2align 3
procs:  .quad adder, subtracter
labels: .quad even, odd
codes:  .quad zero, one
        .section .rodata
text:   .asciz "equal %d below %d above %d carry %d plain %d\n"
        .section .note.GNU-stack, "", @progbits
