// Each basic block is a section of its own: a procedure is in many pieces, each with exception
// tables that follow one another.
// variants: clang-O0 clang-O2
// cflags: -fbasic-block-sections=all
// stdout: 36 four caught 1042
#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

struct Guard {
    int &n;
    ~Guard() { n += 4; }
};
__attribute__((noinline)) static int step(int i, std::string &text)
{
    if (i == 9) throw std::runtime_error("four");
    text += i % 2 ? "odd" : "even";
    return i;
}
__attribute__((noinline)) static int run(int n, int &left)
{
    int sum = 0;
    std::string text;
    for (int i = 0; i < n; i++) {
        Guard guard{left};
        sum += step(i, text);
    }
    return sum;
}
int main()
{
    int left = 2, sum = run(9, left);
    std::printf("%d ", sum);
    left = 2;
    try {
        run(20, left);
    } catch (const std::exception &e) {
        std::printf("%s caught ", e.what());
    }
    std::printf("%d\n", 1000 + left);
}
