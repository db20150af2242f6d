// Coroutines of C++20: generators, tasks that throw, symmetric transfer.
#include <coroutine>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <utility>

struct Generator {
    struct promise_type {
        int value;
        std::exception_ptr error;
        Generator get_return_object() { return Generator{std::coroutine_handle<promise_type>::from_promise(*this)}; }
        std::suspend_always initial_suspend() noexcept { return {}; }
        std::suspend_always final_suspend() noexcept { return {}; }
        std::suspend_always yield_value(int v) { value = v; return {}; }
        void return_void() {}
        void unhandled_exception() { error = std::current_exception(); }
    };
    std::coroutine_handle<promise_type> handle;
    explicit Generator(std::coroutine_handle<promise_type> h) : handle(h) {}
    Generator(Generator &&o) noexcept : handle(std::exchange(o.handle, {})) {}
    ~Generator() { if (handle) handle.destroy(); }
    bool next() {
        handle.resume();
        if (handle.promise().error) std::rethrow_exception(handle.promise().error);
        return !handle.done();
    }
};

struct Task {
    struct promise_type;
    struct Final {
        bool await_ready() noexcept { return false; }
        std::coroutine_handle<> await_suspend(std::coroutine_handle<promise_type> h) noexcept {
            auto next = h.promise().waiting;
            return next ? next : std::noop_coroutine();
        }
        void await_resume() noexcept {}
    };
    struct promise_type {
        std::coroutine_handle<> waiting;
        int value = 0;
        std::exception_ptr error;
        Task get_return_object() { return Task{std::coroutine_handle<promise_type>::from_promise(*this)}; }
        std::suspend_always initial_suspend() noexcept { return {}; }
        Final final_suspend() noexcept { return {}; }
        void return_value(int v) { value = v; }
        void unhandled_exception() { error = std::current_exception(); }
    };
    std::coroutine_handle<promise_type> handle;
    explicit Task(std::coroutine_handle<promise_type> h) : handle(h) {}
    Task(Task &&o) noexcept : handle(std::exchange(o.handle, {})) {}
    ~Task() { if (handle) handle.destroy(); }
    bool await_ready() { return false; }
    std::coroutine_handle<> await_suspend(std::coroutine_handle<> w) {
        handle.promise().waiting = w;
        return handle;
    }
    int await_resume() {
        if (handle.promise().error) std::rethrow_exception(handle.promise().error);
        return handle.promise().value;
    }
};

static Generator numbers(int most) {
    for (int i = 0; i < most; i++) {
        if (i == 700) throw std::runtime_error("too many");
        co_yield i * i;
    }
}

static Task leaf(int n) {
    if (n % 5 == 3) throw n;
    co_return n * 2;
}

static Task sum(int n) {
    int total = 0;
    for (int i = 0; i < n; i++) {
        try {
            total += co_await leaf(i);
        } catch (int refused) {
            total -= refused;
        }
    }
    co_return total;
}

static Task deep(int n) {
    if (n == 0) co_return 1;
    co_return co_await deep(n - 1) + co_await leaf(n * 5);
}

int main() {
    long squares = 0;
    auto few = numbers(100);
    while (few.next()) squares += few.handle.promise().value;
    std::printf("squares %ld\n", squares);
    try {
        auto many = numbers(1000);
        while (many.next()) squares += many.handle.promise().value;
    } catch (const std::exception &e) {
        std::printf("%s %ld\n", e.what(), squares);
    }
    auto all = sum(50);
    all.handle.resume();
    std::printf("sum %d\n", all.handle.promise().value);
    auto down = deep(300);
    down.handle.resume();
    std::printf("deep %d\n", down.handle.promise().value);
}
