// Client requests.
// Four rotations of rdi and an exchange are a request; its number and arguments are at the address in rax.
#define ASK(...) \
    ({ \
        volatile unsigned long words[6] = {__VA_ARGS__}; \
        unsigned long answer = 0; \
        __asm__ volatile("rolq $3, %%rdi\n\trolq $13, %%rdi\n\trolq $61, %%rdi\n\trolq $51, %%rdi\n\txchgq %%rbx, %%rbx" \
                         : "+d"(answer) : "a"(words) : "cc", "memory"); \
        answer; \
    })
