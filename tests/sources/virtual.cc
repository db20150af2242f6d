// Virtual calls, multiple inheritance thunks, dynamic_cast, typeid, member
// pointers, std::function, templates, iostream and the standard containers.
// variants: gcc-O0 gcc-O2 gcc-O3 gcc-O2-static clang-O2 gcc-O2-nopie gcc-O2-strip gcc-O2-lto gcc-O2-sections
// stdout: area 60 thunk 7 8 cast 1 0 type 1 member 12 function 15 sort 1,2,3,5,8 map b=2 text 3.50|ff
#include <algorithm>
#include <functional>
#include <iomanip>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <typeinfo>
#include <vector>
struct Shape { virtual ~Shape() = default; virtual int area() const = 0; };
struct Square : Shape { int s; explicit Square(int n) : s(n) {} int area() const override { return s * s; } };
struct Rect : Shape { int a, b; Rect(int x, int y) : a(x), b(y) {} int area() const override { return a * b; } };
struct A { int x = 7; virtual int get() { return x; } virtual ~A() = default; };
struct B { int y = 8; virtual int read() { return y; } virtual ~B() = default; };
struct AB : A, B { int get() override { return x; } int read() override { return y; } };
struct V : virtual A { int get() override { return x + 1; } };
struct M { int k; int times(int n) const { return k * n; } };
int main()
{
    std::vector<std::unique_ptr<Shape>> shapes;
    for (int i = 1; i < 5; i++) { shapes.push_back(std::make_unique<Square>(i)); shapes.push_back(std::make_unique<Rect>(i, 3)); }
    int area = 0;
    for (auto &s : shapes) area += s->area();
    AB ab;
    B *b = &ab;
    V v;
    A *a = &v;
    int (M::*f)(int) const = &M::times;
    M m{ 4 };
    std::function<int(int)> plus = [&](int n) { return n + area - 50; };
    std::vector<int> list{ 5, 3, 8, 1, 2 };
    std::sort(list.begin(), list.end(), [](int l, int r) { return l < r; });
    std::map<std::string, int> map{ { "a", 1 }, { "b", 2 } };
    std::cout << "area " << area << " thunk " << ab.get() << ' ' << b->read() << " cast " << (dynamic_cast<A *>(b) != nullptr)
              << ' ' << (dynamic_cast<AB *>(a) != nullptr) << " type " << (typeid(*b) == typeid(AB)) << " member " << (m.*f)(3)
              << " function " << plus(5) << " sort ";
    for (size_t i = 0; i < list.size(); i++) std::cout << (i ? "," : "") << list[i];
    std::ostringstream text;
    text << std::fixed << std::setprecision(2) << 3.5 << '|' << std::hex << 255;
    std::cout << " map b=" << map["b"] << " text " << text.str() << std::endl;
    return a->get() - 8;
}
