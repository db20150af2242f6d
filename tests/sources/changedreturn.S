// Callees that return a few bytes behind their call: each finds and changes its
// return address in another way. The bytes between are traps.
// missed: add push store pointer frame exchange saved path steps length local drop jump
// missed: of_add of_push of_store of_pointer of_frame of_exchange of_saved of_path of_steps
// missed: of_length of_jump of_drop
// variants: gcc-O0 gcc-O0-static gcc-O0-nopie clang-O0-strip
// stdout: sum 104
// count: jump 1
// count: drop 1
        .text
        .globl main
        .type main, @function

        .macro callee name
        .p2align 4
        .type \name, @function
\name:  leal 1(%rdi), %eax
        .endm

        .macro caller name
        .size \name, .-\name
        .p2align 4
        .type of_\name, @function
of_\name:
        call \name
        .byte 3, 0xcc, 0xcc
        ret
        .size of_\name, .-of_\name
        .endm

        .macro try name
        movl %ebx, %edi
        call of_\name
        addl %eax, %ebp
        incl %ebx
        .endm

        callee add
        addq $3, (%rsp)
        ret
        caller add

        callee push
        popq %rcx
        leaq 3(%rcx), %rcx
        pushq %rcx
        ret
        caller push

        callee store
        movq (%rsp), %rsi
        subq $-3, %rsi
        movq %rsi, (%rsp)
        ret
        caller store

        callee pointer
        leaq 16(%rsp), %rdx
        addq $3, -16(%rdx)
        ret
        caller pointer

        callee frame
        pushq %rbp
        movq %rsp, %rbp
        addq $3, 8(%rbp)
        leave
        ret
        caller frame

        callee exchange
        movl $3, %edx
        xaddq %rdx, (%rsp)
        ret
        caller exchange

        callee jump
        popq %r8
        addq $3, %r8
        jmp *%r8
        caller jump

        callee drop
        movq (%rsp), %r9
        addq $8, %rsp
        leaq 3(%r9), %r9
        jmp *%r9
        caller drop

        callee saved
        pushq %r12
        movq 8(%rsp), %r12
        addq $3, %r12
        movq %r12, 8(%rsp)
        popq %r12
        ret
        caller saved

        callee path
        testb $1, %dil
        jz 1f
        nop
1:      addq $3, (%rsp)
        ret
        caller path

        callee steps
        incq (%rsp)
        incq (%rsp)
        incq (%rsp)
        ret
        caller steps

        callee length
        movq (%rsp), %rdx
        movzbl (%rdx), %ecx
        addq %rcx, (%rsp)
        ret
        caller length

        .p2align 4
        .type local, @function
local:  call 1f
        .byte 3, 0xcc, 0xcc
        ret
1:      leal 1(%rdi), %eax
        popq %rdx
        addq $3, %rdx
        pushq %rdx
        ret
        .size local, .-local

main:   pushq %rbx
        pushq %rbp
        subq $8, %rsp
        movl $1, %ebx
        xorl %ebp, %ebp
        try add
        try push
        try store
        try pointer
        try frame
        try exchange
        try jump
        try drop
        try saved
        try path
        try steps
        try length
        movl %ebx, %edi
        call local
        addl %eax, %ebp
        leaq text(%rip), %rdi
        movl %ebp, %esi
        xorl %eax, %eax
        call printf@PLT
        xorl %eax, %eax
        addq $8, %rsp
        popq %rbp
        popq %rbx
        ret
        .size main, .-main
        .section .rodata
text:   .string "sum %d\n"
        .section .note.GNU-stack,"",@progbits
