// Exceptions that signal handlers throw out of single instructions (`-fnon-call-exceptions`).
#include <csignal>
#include <cstdio>

struct Counted {
    int &n;
    ~Counted() { n++; }
};

static void raise_it(int number)
{
    sigset_t mask;
    sigemptyset(&mask);
    sigaddset(&mask, number);
    sigprocmask(SIG_UNBLOCK, &mask, nullptr);
    throw number;
}

__attribute__((noinline)) static int load(volatile int *from, int &n)
{
    Counted counted{n};
    int found = *from;
    n += 100;
    return found;
}

__attribute__((noinline)) static int divide(volatile int a, volatile int b, int &n)
{
    Counted counted{n};
    return a / b;
}

int main()
{
    std::signal(SIGSEGV, raise_it);
    std::signal(SIGFPE, raise_it);
    int n = 0, sum = 0;
    for (int i = 0; i < 200; i++) {
        try { sum += load(i % 2 ? nullptr : &i, n); } catch (int number) { sum += number; }
        try { sum += divide(i, i % 3, n); } catch (int number) { sum += number * 3; }
    }
    std::printf("%d %d\n", n, sum);
}
