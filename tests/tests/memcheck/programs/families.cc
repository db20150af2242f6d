// Blocks that another family frees than allocated them.
#include <cstdlib>
#include <string>
#include <vector>

#define APART __attribute__((noinline, noipa))

APART static int *array() { return new int[3]; }
APART static int *one() { return new int(3); }

APART static void drop(int *p)
{
    delete p; // error: Mismatched free() / delete / delete []
}
APART static void drop_array(int *p)
{
    delete[] p; // error: Mismatched free() / delete / delete []
}
APART static void release(int *p)
{
    free(p); // error: Mismatched free() / delete / delete []
}
APART static void sized(void *p)
{
    ::operator delete(p, std::size_t(12)); // error: Mismatched new/delete size value: 12
}
APART static void sized_array(void *p)
{
    ::operator delete[](p, std::size_t(24)); // error: Mismatched new/delete size value: 24
}

struct alignas(64) Line {
    char bytes[64];
};

int main()
{
    std::vector<std::string> strings;
    for (int i = 0; i < 100; i++)
        strings.push_back(std::string(i, 'x'));
    drop(one());
    drop_array(array());
    drop(array());
    drop_array(one());
    release(one());
    sized(::operator new(16));
    sized_array(::operator new[](16));
    ::operator delete(::operator new(16), std::size_t(16));
    delete new Line;
    delete[] new Line[3];
    delete[] new std::string[5];
}
