// As pristine.c, for C++: member functions, vtables, type_info, new.
// variants: gcc-O0 gcc-O2 gcc-O2-nopie gcc-O2-static gcc-O2-staticpie clang-O2 gcc-O2-strip
// pristine: yes
// counts: no
#include <cstdio>
#include <string>
#include <typeinfo>
#include <unistd.h>
#include <vector>
struct Base { virtual ~Base() = default; virtual int f() { return 1; } };
struct Derived : Base { int f() override { return 2; } };
static std::vector<int> global(1000, 3);
static std::string text(100, 'x');
int main()
{
    Base *b = new Derived;
    void **table = *reinterpret_cast<void ***>(b);
    int (Base::*m)() = &Base::f;
    std::printf("object %p table %p entries %p %p %p\n", (void *)b, (void *)table, table[0], table[1], table[2]);
    std::printf("type %p member %zu global %p text %p\n", (const void *)&typeid(*b), sizeof m, (void *)global.data(), (void *)text.data());
    try { throw 5; } catch (int &v) { std::printf("exception %p %d\n", (void *)&v, v); }
    std::printf("after %p sbrk %p stack %p\n", (void *)new char[50], sbrk(0), (void *)&b);
    return (b->*m)() - 2;
}
