// Blocks of each form of new, all of which are freed.
#include <cstdlib>
#include <new>

struct Plain { char bytes[24]; };
struct alignas(64) Wide { char bytes[64]; };
struct PlainThrower { char bytes[24]; PlainThrower() { throw 1; } };
struct alignas(64) WideThrower { char bytes[64]; WideThrower() { throw 1; } };

template <typename T> static T *volatile one;
template <typename T> static void forms() {
  one<T> = new T;
  delete one<T>;
  one<T> = new T[3];
  delete[] one<T>;
  one<T> = new (std::nothrow) T;
  delete one<T>;
  one<T> = new (std::nothrow) T[3];
  delete[] one<T>;
}
// The block is freed by the form of delete that belongs to that of new.
template <typename T> static void throwers() {
  try { one<T> = new T; } catch (int) {}
  try { one<T> = new T[3]; } catch (int) {}
  try { one<T> = new (std::nothrow) T; } catch (int) {}
  try { one<T> = new (std::nothrow) T[3]; } catch (int) {}
}

// Blocks in frames below that of an allocator that was left by an exception.
__attribute__((noinline)) static void below(int n) {
  volatile char room[512];
  room[0] = 1;
  one<char> = static_cast<char *>(malloc(11));
  free(one<char>);
  if (n > 1) below(n - 1);
  room[1] = 1;
}
static void too_large(size_t size) {
  try {
    one<char> = new char[size];
  } catch (std::bad_alloc &) {
    below(6);
  }
}

int main(int count, char **) {
  forms<Plain>();
  forms<Wide>();
  throwers<PlainThrower>();
  throwers<WideThrower>();
  too_large(count * (size_t(1) << 61));
  one<char> = new (std::nothrow) char[count * (size_t(1) << 61)];
  below(5);
  return 0;
}
