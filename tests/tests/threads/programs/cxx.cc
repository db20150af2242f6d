// std::thread, std::async, thread_local objects, exceptions thrown in threads, virtual calls.
// variants: gcc-O2 clang-O2 gcc-O2-static gcc-O2-strip
// cflags: -pthread
// count: visit 40000
// count: caught 2000
// stdout: 40000 2000
#include <atomic>
#include <cstdio>
#include <future>
#include <stdexcept>
#include <thread>
#include <vector>
static std::atomic<long> visits, catches;
extern "C" __attribute__((noinline)) void visit() { visits++; }
extern "C" __attribute__((noinline)) void caught() { catches++; }
struct Base { virtual void run() = 0; virtual ~Base() {} };
struct A : Base { void run() override { visit(); } };
struct B : Base { void run() override { visit(); if (++n % 10 == 0) throw std::runtime_error("tenth"); } int n = 0; };
static void job(int rounds)
{
    thread_local std::vector<int> seen;
    A a;
    B b;
    for (int i = 0; i < rounds; i++) {
        Base *base = i % 2 ? static_cast<Base *>(&a) : &b;
        try { base->run(); } catch (const std::exception &) { caught(); }
        seen.push_back(i);
    }
}
int main()
{
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++) threads.emplace_back(job, 2000);
    for (auto &t : threads) t.join();
    for (int i = 0; i < 16; i++) std::async(std::launch::async, job, 2000).get();
    std::printf("%ld %ld\n", visits.load(), catches.load());
    return 0;
}
