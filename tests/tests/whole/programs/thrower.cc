// Throws what its caller catches, and passes what its callback throws.
#include <stdexcept>
#include <string>

struct Guard {
    int &count;
    ~Guard() { count++; }
};

extern "C" int passed(int (*callback)(int), int n, int *count)
{
    Guard guard{*count};
    return callback(n) + 1;
}

extern "C" void throws(const char *text) { throw std::runtime_error(std::string("library ") + text); }
