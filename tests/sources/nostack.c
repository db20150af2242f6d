// Hooked system calls where rsp leads to no stack.
// variants: gcc-O0-static clang-O0-static
// cflags: -nostdlib
// exit: 7
// stdout: end
__asm__(".globl _start\n.type _start,@function\n_start: movl $1000,%ecx\n1: decl %ecx\njnz 1b\n"
        "movl $1,%eax\nmovl $1,%edi\nlea text(%rip),%rsi\nmovl $4,%edx\nsyscall\n"
        "xorl %esp,%esp\n"
        /* readlink, to which the runtime looks: EFAULT. The flags stay. */
        "movl $89,%eax\nmovl $8,%edi\nmovl $8,%esi\nmovl $8,%edx\nstc\nsyscall\njnc 2f\n"
        "cmpq $-14,%rax\njne 2f\nmovl $7,%edi\njmp 4f\n2: movl $9,%edi\n"
        "4: testq %rsp,%rsp\nje 3f\nmovl $8,%edi\n3: movl $231,%eax\nsyscall\nhlt\n"
        ".size _start,.-_start\n.data\ntext: .ascii \"end\\n\"\n");
