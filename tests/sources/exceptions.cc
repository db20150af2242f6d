// Exceptions: through frames with and without clean-ups, rethrown, by base
// class, by pointer, catch-all, nested, from constructors and destructors'
// callers, exception_ptr across a thread, function try blocks, and noexcept.
// counts-not: gcc-O2-static gcc-O2-staticpie clang-O2-static
// variants: gcc-O0 gcc-O1 gcc-O2 gcc-O3 gcc-Os gcc-O2-static gcc-O2-staticpie gcc-O2-nopie clang-O0 clang-O2 clang-O2-static gcc-O2-strip gcc-O2-nofp clang-O2-nopie-strip gcc-O2-cold gcc-O2-lto
// cflags: -pthread
// run: -> exit 0 stdout int 3 unwound 12 base derived rethrow inner,outer pointer 9 any nested 2 ctor 1 ptr moved try 5 loop 20 filter ok
// run: noexcept -> signal 6 stdout terminate
// run: uncaught -> signal 6 stdout terminate
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <stdexcept>
#include <string>
#include <thread>
static int unwound;
struct Guard { ~Guard() { unwound++; } };
struct Base { virtual ~Base() = default; virtual const char *name() const { return "base"; } };
struct Derived : Base { const char *name() const override { return "derived"; } };
__attribute__((noinline)) int deep(int n)
{
    Guard g;
    if (n == 0) throw 3;
    std::string s(n + 20, 'x');
    return deep(n - 1) + (int)s.size();
}
__attribute__((noinline)) static void raise_derived() { throw Derived(); }
__attribute__((noinline)) static std::string rethrow()
{
    std::string log;
    try {
        try { throw std::runtime_error("inner"); }
        catch (std::exception &e) { log += e.what(); throw; }
    } catch (std::runtime_error &) { log += ",outer"; }
    return log;
}
struct Fails { Guard g; Fails() { throw 1; } };
__attribute__((noinline)) static int with_try(int x)
try { if (x) throw x; return 0; } catch (int v) { return v; }
__attribute__((noinline)) static void quiet() noexcept { raise_derived(); }
__attribute__((noinline)) static int nested()
{
    int n = 0;
    try { throw 1; } catch (int) { n++; try { throw 2L; } catch (long) { n++; } }
    return n;
}
__attribute__((noinline)) static int sometimes(int i) { if (i % 2) throw i; return i; }
static void terminated() { std::puts("terminate"); std::fflush(stdout); std::abort(); }
int main(int argc, char **argv)
{
    std::set_terminate(terminated);
    if (argc > 1 && argv[1][0] == 'n') quiet();
    if (argc > 1) throw 42;
    try { deep(11); } catch (int v) { std::printf("int %d unwound %d ", v, unwound); }
    Base plain;
    std::printf("%s ", plain.name());
    try { raise_derived(); } catch (const Base &e) { std::printf("%s ", e.name()); }
    std::printf("rethrow %s ", rethrow().c_str());
    static int nine = 9;
    try { throw &nine; } catch (int *p) { std::printf("pointer %d ", *p); }
    try { throw 'c'; } catch (int) { return 1; } catch (...) { std::printf("any "); }
    std::printf("nested %d ", nested());
    unwound = 0;
    try { Fails f; } catch (int) { std::printf("ctor %d ", unwound); }
    std::exception_ptr kept;
    std::thread t([&] { try { throw std::logic_error("moved"); } catch (...) { kept = std::current_exception(); } });
    t.join();
    try { std::rethrow_exception(kept); } catch (std::logic_error &e) { std::printf("ptr %s ", e.what()); }
    std::printf("try %d ", with_try(5));
    int caught = 0;
    for (int i = 0; i < 40; i++) try { sometimes(i); } catch (int) { caught++; }
    std::printf("loop %d ", caught);
    try { std::string().at(7); } catch (std::out_of_range &) { std::printf("filter ok\n"); }
    return 0;
}
