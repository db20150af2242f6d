// Text relocations: the loader writes an address into an instruction.
// variants: gcc-O0 gcc-O0-strip
// counts: no
// cflags: -Wl,-z,notext
// stdout: relocated 77 moved 5
// missed: get
        .text
        .globl main
        .type main, @function
        .type get, @function
        .type add, @function
get:    movabsq $value, %rax
        movl (%rax), %eax
        ret
        .size get, .-get
add:    leal 2(%rdi), %eax
        ret
        .size add, .-add
main:   pushq %rbx
        movl $3, %edi
        call add
        movl %eax, %ebx
        call get
        movl %eax, %esi
        movl %ebx, %edx
        leaq fmt(%rip), %rdi
        xorl %eax, %eax
        call printf@PLT
        xorl %eax, %eax
        popq %rbx
        ret
        .size main, .-main
        .data
value:  .long 77
        .section .rodata
fmt:    .string "relocated %d moved %d\n"
        .section .note.GNU-stack,"",@progbits
