// Callees that drop their return address: retpolines, return thunks, and one
// that returns to its caller's caller. What is live then is not what is live
// behind the call.
// variants: gcc-O0 gcc-O0-static-strip gcc-O0-nopie clang-O0-strip
// stdout: thunk 42 42 tail 7 outer 5
// count: outer 2
// count: give 3
        .text
        .globl main
        .type main, @function
        .type give, @function
        .type return_thunk, @function
        .type jump_thunk, @function
        .type outer, @function
        .type leave_outer, @function
give:   leal 2(%rdi,%rsi), %eax
        movl %eax, %edx
        jmp return_thunk
        .size give, .-give
// Calls over a trap for speculation and returns to the caller of what jumped here.
return_thunk:
        call 1f
2:      pause
        lfence
        jmp 2b
1:      leaq 8(%rsp), %rsp
        ret
        .size return_thunk, .-return_thunk
// Goes to where rax points, with arguments in rdi and rsi.
jump_thunk:
        call 1f
2:      pause
        lfence
        jmp 2b
1:      movq %rax, (%rsp)
        ret
        .size jump_thunk, .-jump_thunk
// What follows the call must not run; r8 is a result that only main expects.
outer:  movl $5, %r8d
        testl %edi, %edi
        jz 1f
        call leave_outer
        ud2
1:      ret
        .size outer, .-outer
leave_outer:
        movl $1, %eax
        addq $8, %rsp
        ret
        .size leave_outer, .-leave_outer
main:   pushq %rbx
        pushq %r12
        pushq %r13
        movl $30, %edi
        movl $10, %esi
        call give
        movl %eax, %ebx
        movl %edx, %r12d
        leaq give(%rip), %rax
        movl $3, %edi
        movl $2, %esi
        call jump_thunk
        movl %eax, %r13d
        xorl %edi, %edi
        call outer
        movl $1, %edi
        call outer
        movl %ebx, %esi
        movl %r12d, %edx
        movl %r13d, %ecx
        leaq fmt(%rip), %rdi
        xorl %eax, %eax
        call printf@PLT
        movl $1, %edi
        movl $1, %esi
        call give
        xorl %eax, %eax
        popq %r13
        popq %r12
        popq %rbx
        ret
        .size main, .-main
        .section .rodata
fmt:    .string "thunk %d %d tail %d outer %d\n"
        .section .note.GNU-stack,"",@progbits
