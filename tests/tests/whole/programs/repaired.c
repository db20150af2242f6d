// Handlers that repair what their signal interrupted: they change registers of the frame, go past an instruction, and permit
// an access.
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <ucontext.h>

static volatile int illegal, divided, trapped, faulted, elsewhere;
static char *page;

static void handle(int number, siginfo_t *info, void *frame)
{
    greg_t *registers = ((ucontext_t *)frame)->uc_mcontext.gregs;
    const unsigned char *code = (const unsigned char *)registers[REG_RIP];
    switch (number) {
    case SIGILL:
        illegal++;
        elsewhere += code[0] != 0x0f || code[1] != 0x0b;
        registers[REG_RIP] += 2;
        registers[REG_RAX] += 5;
        break;
    case SIGFPE:
        divided++;
        registers[REG_RCX] = 7;
        break;
    case SIGTRAP:
        trapped++;
        elsewhere += code[-1] != 0xcc;
        break;
    case SIGSEGV:
        faulted++;
        elsewhere += (char *)info->si_addr < page || (char *)info->si_addr >= page + 4096;
        mprotect(page, 4096, PROT_READ | PROT_WRITE);
        break;
    }
}

__attribute__((noinline)) static long skip(long x)
{
    __asm__ volatile("ud2" : "+a"(x));
    return x;
}

__attribute__((noinline)) static long divide(long x)
{
    long quotient = x, rest = 0, by = 0;
    __asm__ volatile("idivq %%rcx" : "+a"(quotient), "+d"(rest), "+c"(by));
    return quotient * 100 + rest * 10 + by;
}

int main(void)
{
    struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO};
    int numbers[] = {SIGILL, SIGFPE, SIGTRAP, SIGSEGV};
    for (int i = 0; i < 4; i++) sigaction(numbers[i], &action, 0);
    unsigned long sum = 0;
    for (int i = 0; i < 50; i++) sum = sum * 3 + skip(i);
    for (int i = 0; i < 50; i++) sum = sum * 3 + divide(i * 31);
    for (int i = 0; i < 20; i++) __asm__ volatile("int3");
    page = mmap(0, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    for (int i = 0; i < 30; i++) {
        mprotect(page, 4096, PROT_NONE);
        page[i] = (char)i;
        sum += page[i];
    }
    printf("%d %d %d %d, %d elsewhere, %lu\n", illegal, divided, trapped, faulted, elsewhere, sum);
    return 0;
}
