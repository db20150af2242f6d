// A library with initialisers, threads' calls and exceptions. Its functions are called a known number of times.
static int arguments;
__attribute__((constructor)) static void start(int argc, char **, char **) { arguments = argc; }
extern "C" {
__attribute__((noinline)) int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
int started() { return arguments; }
__attribute__((noinline)) void thrower(int n)
{
    if (n == 0) throw 42;
    thrower(n - 1);
    __asm__ volatile("");
}
int caught(int n)
{
    try {
        thrower(n);
    } catch (int value) {
        return value;
    }
    return 0;
}
}
