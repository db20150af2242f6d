/** Work for a compiler of C++. */
#include <algorithm>
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>
/** A shape. */
struct Shape { virtual ~Shape() = default; virtual double area() const = 0; };
/** A box. */
template <typename T> struct Box : Shape { T w, h; Box(T a, T b) : w(a), h(b) {} double area() const override { return double(w * h); } };
template <int N> struct Fib { static constexpr int value = Fib<N - 1>::value + Fib<N - 2>::value; };
template <> struct Fib<0> { static constexpr int value = 0; };
template <> struct Fib<1> { static constexpr int value = 1; };
int main()
{
    std::vector<std::unique_ptr<Shape>> shapes;
    for (int i = 0; i < 10; i++) { shapes.push_back(std::make_unique<Box<int>>(i, i + 1)); shapes.push_back(std::make_unique<Box<double>>(i, .5)); }
    std::map<std::string, double> sums;
    for (auto &s : shapes) sums[s->area() > 10 ? "big" : "small"] += s->area();
    try { if (sums.size() > 1) throw std::string("thrown"); } catch (const std::string &e) { std::cout << e << '\n'; }
    std::vector<int> v{ 3, 1, 2 };
    std::sort(v.begin(), v.end(), [](auto a, auto b) { return a > b; });
    for (auto &[k, x] : sums) std::cout << k << ' ' << x << ' ' << Fib<20>::value << ' ' << v[0] << '\n';
}
