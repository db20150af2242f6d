// The order in which pages were used, wherever control has come from: each case uses page A last in
// one place, then B and C in another, which has few references before. In a buffer of three
// pages, one of them the stack's, C is a miss and takes the place of A; so B is none then.
// variants: gcc-O2 gcc-O2-nopie clang-O2
// stdout: 80
        .macro use page
        incb 8(%\page)
        .endm

        // A in many references, no two of which may be looked up together.
        .macro use_a
        .rept 40
        incb (%r12)
        incb 64(%r15)
        .endr
        .endm

        // What comes behind.
        .macro judge
        use r13
        use r14
        use r13
        .endm

        .macro procedure name
        .p2align 4
        .type \name, @function
\name:
        .endm

        .macro done name
        .size \name, .-\name
        .endm

        .text
        procedure nothing
        ret
        done nothing

        // Not a leaf, called.
        procedure late
        call nothing
        use_a
        ret
        done late

        procedure after_call
        use r13
        call late
        judge
        ret
        done after_call

        procedure after_pointer
        use r13
        leaq late(%rip), %rax
        call *%rax
        judge
        ret
        done after_pointer

        // By a jump to another procedure, and by one on a condition.
        procedure jumping
        call nothing
        use_a
        testl %ebx, %ebx
        js nothing
        jmp nothing
        done jumping

        procedure after_jump
        use r13
        call jumping
        judge
        ret
        done after_jump

        // Around a loop; the stack is used in between.
        procedure around
        movl $4, %ecx
1:      use r13
        testb $1, %cl
        jz 2f
        use r14
        use r13
2:      use_a
        pushq %rcx
        popq %rcx
        decl %ecx
        jnz 1b
        ret
        done around

        // In a part of the procedure that lies elsewhere.
        procedure parted
        .cfi_startproc
        pushq %rcx
        .cfi_def_cfa_offset 16
        use r13
        call nothing
        testl %ebx, %ebx
        jns parted.cold
1:      judge
        popq %rcx
        .cfi_def_cfa_offset 8
        ret
        .cfi_endproc
        done parted

        .section .text.unlikely, "ax", @progbits
        .type parted.cold, @function
parted.cold:
        .cfi_startproc
        .cfi_def_cfa_offset 16
        call nothing
        use_a
        pushq %rcx
        popq %rcx
        jmp 1b
        .cfi_endproc
        done parted.cold
        .text

        // A handler of a signal, which comes between two references.
        procedure handler
        call nothing
        use_a
        ret
        done handler

        procedure after_signal
        use r13
        movl $39, %eax
        syscall
        movl %eax, %edi
        movl $10, %esi
        movl $62, %eax
        syscall
        judge
        ret
        done after_signal

        // A jump out of the middle of a procedure.
        procedure leaving
        subq $8, %rsp
        use_a
        leaq place(%rip), %rdi
        movl $1, %esi
        call longjmp@PLT
        ud2
        done leaving

        procedure after_leaving
        subq $8, %rsp
        use r13
        leaq place(%rip), %rdi
        call _setjmp@PLT
        testl %eax, %eax
        jnz 1f
        call leaving
1:      judge
        addq $8, %rsp
        ret
        done after_leaving

        .globl main
        procedure main
        pushq %rbx
        pushq %r12
        pushq %r13
        pushq %r14
        pushq %r15
        movl $10, %edi
        leaq handler(%rip), %rsi
        call signal@PLT
        leaq a(%rip), %r12
        leaq b(%rip), %r13
        leaq c(%rip), %r14
        leaq 128(%r12), %r15
        movl $10, %ebx
1:      call after_call
        call after_pointer
        call after_jump
        call around
        call parted
        call after_signal
        call after_leaving
        decl %ebx
        jnz 1b
        movzbl 8(%r14), %esi
        leaq format(%rip), %rdi
        xorl %eax, %eax
        call printf@PLT
        popq %r15
        popq %r14
        popq %r13
        popq %r12
        popq %rbx
        xorl %eax, %eax
        ret
        done main

        .section .rodata
format: .string "%d\n"
        .bss
        .p2align 12
a:      .zero 4096
b:      .zero 4096
c:      .zero 4096
place:  .zero 4096
        .section .note.GNU-stack, "", @progbits
