// Arithmetic flags and DF live across jumps, blocks, calls and returns.
// variants: gcc-O0 gcc-O0-static gcc-O0-nopie-strip clang-O0
// stdout: adc 1 2 carry 1 parity 1 zero 0 sign 1 overflow 1 df edcba loop 10 jrcxz 7 lahf 1
// count: ret_carry 1
// count: loop_body 10
        .text
        .globl main, ret_carry, ret_over, loop_body
        .type main, @function
        .type ret_carry, @function
        .type ret_over, @function
// Returns its result in the carry flag only.
ret_carry:
        cmpq $10, %rdi
        ret
        .size ret_carry, .-ret_carry
// Sets overflow, then branches twice without touching the flags.
ret_over:
        movb $127, %al
        addb $1, %al
        jmp 1f
        nop
1:      js 2f
        ud2
2:      jno 3f
        ret
3:      ud2
        .size ret_over, .-ret_over
main:   pushq %rbx
        pushq %r12
        pushq %r13
        pushq %r14
        pushq %r15
        // 128-bit additions in a loop whose counter spares the carry.
        leaq nums(%rip), %rsi
        leaq sums(%rip), %rdi
        movl $4, %ecx
        clc
1:      movq (%rsi), %rax
        adcq 32(%rsi), %rax
        movq %rax, (%rdi)
        leaq 8(%rsi), %rsi
        leaq 8(%rdi), %rdi
        decl %ecx
        jnz 1b
        setc %al
        movzbl %al, %eax
        movl %eax, %r12d                 // final carry: 0
        // Carry as a return value.
        movl $5, %edi
        call ret_carry
        jc 2f
        ud2
2:      setc %al
        movzbl %al, %r13d
        call ret_over
        seto %al
        movzbl %al, %r14d
        // DF set over jumps and a call.
        leaq text+4(%rip), %rsi
        leaq back(%rip), %rdi
        std
        movl $5, %ecx
3:      lodsb
        movb %al, (%rdi)
        leaq 1(%rdi), %rdi
        loop 3b
        cld
        // loop and jrcxz.
        movl $10, %ecx
        xorl %ebx, %ebx
loop_body:
        incl %ebx
        loop loop_body
        jrcxz 4f
        ud2
4:      movl $7, %r15d
        jrcxz 5f
        movl $8, %r15d
5:      // lahf after a jump: the low flags byte as a whole.
        xorl %eax, %eax
        cmpb $0, %al
        jmp 6f
6:      lahf
        shrl $14, %eax
        andl $1, %eax
        movl %eax, %ecx                  // ZF: 1
        // parity and sign through a chain of jumps
        movb $0x83, %dl
        testb %dl, %dl                   // sign, odd parity
        jns 7f
        jp 7f
        jmp 8f
7:      ud2
8:      setnz %dl
        sets %al
        movzbl %al, %eax
        pushq %rcx                       // lahf
        pushq %r15                       // jrcxz
        pushq %rbx                       // loop
        leaq back(%rip), %rbx
        pushq %rbx                       // df
        pushq %r14                       // overflow
        pushq %rax                       // sign
        pushq $0                         // alignment filler: zero
        movq sums(%rip), %rsi
        movq sums+8(%rip), %rdx
        movl %r13d, %ecx
        movl $1, %r8d
        popq %r9
        leaq fmt(%rip), %rdi
        xorl %eax, %eax
        call printf@PLT
        addq $48, %rsp
        xorl %eax, %eax
        popq %r15
        popq %r14
        popq %r13
        popq %r12
        popq %rbx
        ret
        .size main, .-main
        .section .rodata
fmt:    .string "adc %ld %ld carry %d parity %d zero %d sign %d overflow %d df %s loop %d jrcxz %d lahf %d\n"
text:   .ascii "abcde"
        .data
        .balign 8
nums:   .quad -1, 1, 2, 3, 2, 0, 0, 0
sums:   .quad 0, 0, 0, 0
back:   .skip 8
        .section .note.GNU-stack,"",@progbits
