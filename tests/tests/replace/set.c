/* Calls each procedure of set.S four times. */
#include <stdio.h>
#include <unistd.h>

#define REGISTERS(X) \
    X(rax) X(rcx) X(rdx) X(rbx) X(rbp) X(rsi) X(rdi) X(r8) X(r9) X(r10) X(r11) X(r12) X(r13) X(r14) X(r15)
#define OTHERS(X) X(before_rax) X(set_rdx_foreign) X(call_rax) X(entry_rdi)

#define DECLARE(name) long set_##name(long);
#define DECLARE_OTHER(name) long name(long);
REGISTERS(DECLARE)
OTHERS(DECLARE_OTHER)
long syscall_rax(long);

static void show(const char *name, long (*call)(long))
{
    printf("%s", name);
    for (long i = 1; i <= 4; i++)
        printf(" %lx", call(i));
    printf("\n");
}

int main(void)
{
#define SHOW(name) show("set_" #name, set_##name);
#define SHOW_OTHER(name) show(#name, name);
    REGISTERS(SHOW)
    OTHERS(SHOW_OTHER)
    long pid = getpid();
    printf("syscall_rax");
    for (int i = 0; i < 4; i++)
        printf(" %lx", syscall_rax(0) - pid);
    printf("\n");
    return 0;
}
