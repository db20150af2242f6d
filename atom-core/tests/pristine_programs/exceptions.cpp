// Exceptions, and destructors on their way, through frames of moved code.
#include <cstdio>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

static thread_local int unwound;
struct Guard {
  ~Guard() { unwound++; }
};
struct Base {
  virtual int call(int x) = 0;
  virtual ~Base() {}
};
struct Thrower : Base {
  int call(int x) override {
    Guard guard;
    if (x % 3 == 0)
      throw std::runtime_error("number " + std::to_string(x));
    if (x % 5 == 0)
      throw x;
    return x;
  }
};
static int sum(Base &base, int n) {
  int sum = 0;
  for (int i = 0; i < n; i++) {
    try {
      Guard guard;
      sum += base.call(i);
    } catch (const std::exception &e) {
      sum += (int)std::string(e.what()).size();
    } catch (int x) {
      sum -= x;
    }
  }
  return sum + unwound;
}

int main() {
  Base *thrower = new Thrower;
  int *array = new int[1000];
  std::printf("%p %p %p %p\n", (void *)main, (void *)thrower, (void *)array, (void *)&thrower);
  std::printf("main %d\n", sum(*thrower, 1000));
  std::vector<int> results(4);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; i++)
    threads.emplace_back([&, i] { results[i] = sum(*thrower, 1000 + i); });
  for (auto &thread : threads)
    thread.join();
  for (int result : results)
    std::printf("thread %d\n", result);
  delete[] array;
  delete thrower;
}
