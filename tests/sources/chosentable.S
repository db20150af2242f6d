// Two constants in the text without symbols, between procedures. A conditional move chooses the one that is
// read. Their bytes are the beginnings of procedures.
// variants: gcc-O0 gcc-O0-static gcc-O0-nopie clang-O0 gcc-O0-strip gcc-O0-static-strip
// stdout: e5894855fa1e0ff3 4141414141c35541
// count: get 2
        .text
        .globl main
        .type main, @function
        .type get, @function
get:    leaq one(%rip), %rax
        leaq other(%rip), %rcx
        testb $1, %dil
        cmovnzq %rcx, %rax
        movq (%rax), %rax
        ret
        .size get, .-get
one:    .quad 0x4141414141c35541
other:  .quad 0xe5894855fa1e0ff3        // endbr64; push rbp; mov rbp, rsp
main:   pushq %rbx
        movl $1, %edi
        call get
        movq %rax, %rbx
        movl $2, %edi
        call get
        movq %rbx, %rsi
        movq %rax, %rdx
        leaq fmt(%rip), %rdi
        xorl %eax, %eax
        call printf@PLT
        xorl %eax, %eax
        popq %rbx
        ret
        .size main, .-main
        .section .rodata
fmt:    .string "%lx %lx\n"
        .section .note.GNU-stack, "", @progbits
