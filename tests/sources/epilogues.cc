// Exceptions thrown from code that stands behind an epilogue. LLVM ends an epilogue in the middle of a
// procedure by shrinking the frame in the tables and growing it again behind the return. The callers keep
// values in all registers that a callee must restore. gold folds their exception tables into one.
// variants: gcc-O2 gcc-Os gcc-O2-cold clang-O1 clang-O2 clang-O3 clang-Os clang-O2-fp clang-O2-nopie clang-O2-large clang-O2-static clang-O2-strip clang-O2-cet clang-O2-clash clang-O2-noasync gcc-O2-noasync clang-O2-lto-lld clang-O2-sections gcc-O2-gold-icf
// stdout: early 2338 merged 1920 wrapped 1262 variable 5980 aligned 2266 tail 1510
// counts-not: clang-O2-static
#include <cstdio>
#include <cstring>
#include <stdexcept>
#define APART __attribute__((noinline))

APART int step(int x) { asm volatile("" : "+r"(x)); return x * 7 + 3; }
APART void refuse(int x) { if (x % 4 == 1) throw x; }

// Returns early; the way to the exception follows the return.
APART int early(int x)
{
    int a = step(x), b = step(a), c = step(b);
    if ((a ^ b ^ c) % 3 != 0) return (a + b + c + x) & 63;
    throw std::runtime_error("early");
}

// Several ways end in one tail.
APART int merged(int x)
{
    int a = step(x);
    switch (x % 6) {
    case 0: return (a + step(a)) & 31;
    case 1: throw a;
    case 2: return (step(a) ^ x) & 31;
    case 3: throw std::logic_error("three");
    case 4: step(a); return (a ^ step(x + 1)) & 31;
    default: refuse(x); return a & 31;
    }
}

// Saves registers on one way only.
APART int wrapped(int x)
{
    if (x % 5 == 0) return x & 15;
    int a = step(x), b = step(a);
    refuse(x);
    int c = step(a + b), d = step(b + c);
    if (x % 7 == 3) throw std::runtime_error("wrapped");
    return (a + b + c + d) & 31;
}

// A frame of variable size, which is found by rbp.
APART int variable(int x)
{
    char *room = static_cast<char *>(__builtin_alloca(16 + x % 100 * 8));
    std::memset(room, x, 16);
    int a = step(x), b = step(a);
    if (x % 3 == 0) return (room[3] + a + b) & 127;
    refuse(x);
    if (x % 11 == 2) throw room[2] + a;
    return (room[1] ^ b) & 127;
}

// A realigned frame.
APART int aligned(int x)
{
    alignas(64) volatile int room[32];
    room[x & 31] = x;
    int a = step(x), b = step(a);
    if (room[x & 31] % 2 == 0) return (a + b) & 31;
    refuse(a);
    if (b % 5 == 0) throw std::runtime_error("aligned");
    return (room[x & 31] + b) & 31;
}

// Ends in a call by a jump, after its own epilogue.
APART int tail(int x)
{
    int a = step(x), b = step(a);
    if ((a + b) % 3 == 0) return wrapped(x + (b & 1));
    refuse(b);
    return early(a & 63);
}

template <int (*f)(int)> APART long caller(int n)
{
    long s = 0, t = 1, u = 2, v = 3, w = 5;
    for (int i = 0; i < n; i++) {
        try { s += f(i); t += s & 7; u ^= t & 15; v += u & 3; w ^= v & 31; }
        catch (std::exception &) { s += 2; t += 3; u += 1; v ^= 5; w += 7; }
        catch (int x) { s += x & 3; t ^= 1; u += 3; v += 2; w ^= 9; }
    }
    return (s + t + u + v + w) * 2;
}

int main()
{
    std::printf("early %ld merged %ld wrapped %ld ", caller<early>(40), caller<merged>(60), caller<wrapped>(40));
    std::printf("variable %ld aligned %ld tail %ld\n", caller<variable>(50), caller<aligned>(50), caller<tail>(40));
}
