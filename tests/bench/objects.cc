// Virtual calls and exceptions: an interpreter of expression trees that throws
// on division by zero, plus containers and strings.
#include <cstdio>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>
struct Node {
    virtual ~Node() = default;
    virtual long value(const std::vector<long> &v) const = 0;
};
using Tree = std::unique_ptr<Node>;
struct Leaf : Node {
    size_t at;
    explicit Leaf(size_t a) : at(a) {}
    long value(const std::vector<long> &v) const override { return v[at]; }
};
struct Pair : Node {
    Tree l, r;
    Pair(Tree a, Tree b) : l(std::move(a)), r(std::move(b)) {}
};
struct Sum : Pair {
    using Pair::Pair;
    long value(const std::vector<long> &v) const override { return l->value(v) + r->value(v); }
};
struct Product : Pair {
    using Pair::Pair;
    long value(const std::vector<long> &v) const override { return l->value(v) * r->value(v) % 10007; }
};
struct Quotient : Pair {
    using Pair::Pair;
    long value(const std::vector<long> &v) const override
    {
        long d = r->value(v) % 41;
        if (d == 0) throw std::domain_error("division by zero");
        return l->value(v) / d;
    }
};
static unsigned long seed = 12345;
static unsigned next() { return (seed = seed * 6364136223846793005ul + 1442695040888963407ul) >> 33; }
static Tree grow(int depth)
{
    if (depth == 0) return std::make_unique<Leaf>(next() % 16);
    Tree l = grow(depth - 1), r = grow(depth - 1);
    switch (next() % 16) {
    case 0: return std::make_unique<Quotient>(std::move(l), std::move(r));
    case 1: case 2: case 3: case 4: case 5: return std::make_unique<Product>(std::move(l), std::move(r));
    default: return std::make_unique<Sum>(std::move(l), std::move(r));
    }
}
int main(int argc, char **argv)
{
    int rounds = argc > 1 ? std::stoi(argv[1]) : 1000;
    std::vector<Tree> trees;
    for (int i = 0; i < 50; i++) trees.push_back(grow(8));
    std::vector<long> v(16);
    std::map<std::string, long> results;
    long thrown = 0;
    for (int i = 0; i < rounds; i++) {
        for (auto &x : v) x = next() % 1000;
        try {
            results["k" + std::to_string(i % 97)] += trees[i % trees.size()]->value(v);
        } catch (const std::domain_error &) {
            thrown++;
        }
    }
    long total = 0;
    for (auto &[k, x] : results) total += x * (long)k.size();
    std::printf("%zu %ld %ld\n", results.size(), total, thrown);
}
