// The end of a process where the procedure has set rsp to 0, instrumented alone.
// variants: gcc-O0 gcc-O0-nopie clang-O0
// cflags: -nostdlib
// exit: 7
__asm__(".globl _start\n.type _start,@function\n_start: movl $1000,%ecx\n1: decl %ecx\njnz 1b\n"
        "xorl %esp,%esp\nmovl $7,%edi\nmovl $231,%eax\nsyscall\nhlt\n.size _start,.-_start\n");
