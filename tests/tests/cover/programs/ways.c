/* Lines that gcov and cover count in the same way without optimisation. */
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static jmp_buf back;
static volatile sig_atomic_t signals;

static void on_signal(int number) {
    signals += number != 0;
}

static int branches(int n) {
    int sum = 0;
    for (int i = 0; i < n; i++) {
        if (i % 3 == 0)
            sum += i;
        else if (i % 7 == 1 && i > 10)
            sum -= i;
        else
            continue;
        if (sum > 1000)
            break;
    }
    return sum;
}

static void never(void) {
    puts("never");
}

static int recursive(int n) {
    if (n < 2)
        return n;
    return recursive(n - 1) + recursive(n - 2);
}

static int choose(int what) {
    switch (what) {
    case 0: return 1;
    case 1:
    case 2: what += 5; /* falls through */
    case 3: what *= 2; break;
    case 4: what -= 1; break;
    case 5: never(); break;
    default: what = 0;
    }
    return what;
}

static void jump(int depth) {
    if (depth == 0)
        longjmp(back, 1);
    jump(depth - 1);
}

int main(int argc, char **argv) {
    int sum = branches(argc * 40);
    int k = 5;
    signal(SIGUSR1, on_signal);
    while (k--)
        sum += choose(k);
    do {
        sum ^= k++;
    } while (k < 3);
    for (int i = 0; i < 4; i++)
        for (int j = i; j < 4; j++)
            sum += recursive(j);
    if (setjmp(back) == 0)
        jump(3);
    else
        sum++;
    for (int i = 0; i < 3; i++)
        raise(SIGUSR1);
    int *memory = malloc(sizeof *memory);
    if (!memory)
        return 1;
    *memory = sum > 3 ? branches(3) : branches(4);
    printf("%d %d %d\n", sum, *memory, (int)signals);
    free(memory);
    if (argc > 1)
        puts(argv[1]);
    return 0;
}
