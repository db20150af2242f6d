// Exceptions through frames whose return addresses are the original's.
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

struct Counter {
    static int alive;
    Counter() { alive++; }
    ~Counter() { alive--; }
};
int Counter::alive;

__attribute__((noinline)) static int fall(int n, std::vector<std::string> &seen) {
    Counter counter;
    std::string own(n, 'x');
    if (n == 0) throw std::runtime_error("bottom");
    try {
        return fall(n - 1, seen) + 1;
    } catch (const std::runtime_error &error) {
        seen.push_back(own);
        if (n % 3) throw;
        throw std::runtime_error(std::string(error.what()) + "!");
    }
}

int main() {
    size_t total = 0;
    for (int i = 0; i < 40; i++) {
        std::vector<std::string> seen;
        try {
            fall(i, seen);
        } catch (const std::exception &error) {
            total += seen.size() * 100 + std::string(error.what()).size();
        }
    }
    std::printf("%zu %d\n", total, Counter::alive);
}
