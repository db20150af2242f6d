// Exceptions in all the ways that tables describe: by type, by base class, by
// pointer, catch-all, clean-up on the way, rethrown, nested, through recursion,
// from cold code, stopped by noexcept, through code that has no handler at all.
// Prints a trace; asserts what a correct unwinder must do.
#include <cassert>
#include <cstdio>
#include <cstdlib>
#include <csignal>
#include <exception>
#include <stdexcept>
#include <string>
#include <unistd.h>
#include <unwind.h>
#include <vector>

#define KEEP __attribute__((noinline))

static int live;
struct Guard {
    int id;
    explicit Guard(int i) : id(i) { ++live; }
    ~Guard() {
        --live;
        printf("~%d ", id);
    }
};

struct Base {
    virtual ~Base() = default;
    virtual int kind() const { return 1; }
};
struct Derived : Base {
    int kind() const override { return 2; }
};
struct Other {
    long pad[5];
};

__attribute__((noinline, cold)) static void raise_cold(int what) {
    Guard g(900 + what);
    switch (what) {
    case 0: throw 42;
    case 1: throw std::runtime_error("one");
    case 2: throw Derived();
    case 3: throw "text";
    case 4: throw Other();
    case 5: throw 2.5;
    }
}

KEEP static int inner(int what, int depth) {
    Guard g(depth);
    if (depth > 0)
        return inner(what, depth - 1) + 1;
    if (what >= 0)
        raise_cold(what);
    return 7;
}

KEEP static std::string middle(int what) {
    std::string s(static_cast<size_t>(40 + what), 'x');
    try {
        Guard g(100);
        s += std::to_string(inner(what, 3));
    } catch (const std::exception &e) {
        s += e.what();
    } catch (int n) {
        s += "int" + std::to_string(n);
        if (n == 42) {
            try {
                throw;
            } catch (int m) {
                s += "again" + std::to_string(m);
            }
        }
    } catch (const Base &b) {
        s += "base" + std::to_string(b.kind());
    } catch (const char *text) {
        s += text;
    }
    return s;
}

KEEP static int outer(int what) {
    Guard g(200);
    try {
        printf("%s ", middle(what).c_str());
        return 0;
    } catch (Other &) {
        printf("other ");
        return 1;
    } catch (...) {
        printf("any ");
        return 2;
    }
}

KEEP static void narrow(int n) noexcept(false) {
    std::vector<Guard *> v;
    struct Free {
        std::vector<Guard *> &v;
        ~Free() {
            for (Guard *g : v)
                delete g;
        }
    } free{v};
    for (int i = 0; i < n; i++) {
        v.push_back(new Guard(300 + i));
        if (i == 3)
            throw std::out_of_range("narrow");
    }
}

#if __cplusplus < 201703L
KEEP static void specified(int n) throw(int, std::bad_exception) {
    Guard g(400);
    if (n == 1)
        throw 1;
    if (n == 2)
        throw 2.0;
}
#endif

KEEP static void sealed() noexcept {
    Guard g(500);
    raise_cold(1);
}

static _Unwind_Reason_Code count_frame(_Unwind_Context *, void *data) {
    ++*static_cast<int *>(data);
    return _URC_NO_REASON;
}

KEEP static int depth_here() {
    int n = 0;
    assert(_Unwind_Backtrace(count_frame, &n) == _URC_END_OF_STACK);
    return n;
}

KEEP static int deeper(int n) {
    volatile int extra = n;
    int result = n == 0 ? depth_here() : deeper(n - 1);
    return result + extra - extra;
}

[[maybe_unused]] static void from_signal(int) {
    throw std::runtime_error("from a signal");
}

[[maybe_unused]] KEEP static int load(volatile int *p) {
    Guard g(600);
    return *p;
}

static void last_words() {
    printf("terminate\n");
    fflush(stdout);
    _exit(17);
}

int main() {
    setvbuf(stdout, nullptr, _IONBF, 0);
    for (int what = -1; what < 6; what++) {
        printf("=> %d\n", outer(what));
        assert(live == 0);
    }
    try {
        narrow(10);
        assert(false);
    } catch (const std::logic_error &e) {
        printf("%s\n", e.what());
    }
    assert(live == 0);
#if __cplusplus < 201703L
    std::set_unexpected([] { throw std::bad_exception(); });
    for (int n = 0; n < 3; n++) {
        try {
            specified(n);
            printf("nothing\n");
        } catch (int i) {
            printf("specified %d\n", i);
        } catch (std::bad_exception &) {
            printf("bad\n");
        }
    }
    assert(live == 0);
#endif
    int shallow = deeper(0), deep = deeper(9);
    printf("frames %d\n", deep - shallow);
    assert(deep - shallow == 9);
#ifdef NON_CALL_EXCEPTIONS
    signal(SIGSEGV, from_signal);
    try {
        printf("%d\n", load(nullptr));
    } catch (const std::exception &e) {
        printf("%s\n", e.what());
    }
    assert(live == 0);
#endif
    std::set_terminate(last_words);
    sealed();
    printf("not reached\n");
    return 1;
}
