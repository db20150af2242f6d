// A call whose return address is popped and used as data; code that reads
// its own return address.
// variants: gcc-O0 gcc-O0-static gcc-O0-nopie clang-O0-strip
// stdout: here 1 return 1
// missed: main
// count: getpc 1
        .text
        .globl main, getpc
        .type main, @function
        .type getpc, @function
getpc:  movq (%rsp), %rax
        ret
        .size getpc, .-getpc
main:   pushq %rbx
        pushq %r12
        pushq %r13
        call 1f
1:      popq %rax
        leaq 1b(%rip), %rcx
        xorl %ebx, %ebx
        cmpq %rax, %rcx
        sete %bl
        call getpc
2:      leaq 2b(%rip), %rcx
        xorl %r12d, %r12d
        cmpq %rax, %rcx
        sete %r12b
        movl %r12d, %edx
        movl %ebx, %esi
        leaq fmt(%rip), %rdi
        xorl %eax, %eax
        call printf@PLT
        xorl %eax, %eax
        popq %r13
        popq %r12
        popq %rbx
        ret
        .size main, .-main
        .section .rodata
fmt:    .string "here %d return %d\n"
        .section .note.GNU-stack,"",@progbits
