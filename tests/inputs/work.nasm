bits 64
%macro save 1-*
%rep %0
        push %1
%rotate 1
%endrep
%endmacro
section .text
global _start
_start: save rax, rbx, r12
%assign i 0
%rep 40
        mov eax, i
        lea rcx, [rax + rbx*4 + i]
        vaddpd ymm0, ymm1, [rsp + i*8]
%assign i i+3
%endrep
.loop:  dec ecx
        jnz .loop
        lock xadd [rel value], eax
        syscall
section .data
value:  dq 0x1234, table
table:  times 20 dw $-table
text:   db "text", 10, 0
