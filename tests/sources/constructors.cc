// Order of static constructors and destructors, priorities, local statics,
// atexit between them, virtual calls during construction.
// variants: gcc-O0 gcc-O2 gcc-O2-static clang-O2 gcc-O2-nopie-strip
// stdout: p101 p102 global-a global-b base derived main local main-end ~local exit-fn ~derived ~base ~global-b ~global-a d102
#include <cstdio>
#include <cstdlib>
static void say(const char *s) { std::printf("%s ", s); }
__attribute__((constructor(101))) static void p101() { say("p101"); }
__attribute__((constructor(102))) static void p102() { say("p102"); }
__attribute__((destructor(102))) static void d102() { std::printf("d102\n"); }
struct Named {
    const char *name;
    Named(const char *n) : name(n) { say(n); }
    ~Named() { std::printf("~%s ", name); }
};
static Named a("global-a"), b("global-b");
struct Base {
    Base() { id(); }
    virtual ~Base() { say("~base"); }
    virtual void id() { say("base"); }
};
struct Derived : Base {
    Derived() { id(); }
    ~Derived() override { say("~derived"); }
    void id() override { say("derived"); }
};
static Derived d;
static Named &local() { static Named n("local"); return n; }
static void at_exit() { say("exit-fn"); }
int main()
{
    std::atexit(at_exit);
    say("main");
    local();
    local();
    say("main-end");
    return 0;
}
