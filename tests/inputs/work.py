"""Work for an interpreter: classes, generators, exceptions, text, numbers."""
import collections, functools, itertools, re, sys, zlib


class Node:
    def __init__(self, value, left=None, right=None):
        self.value, self.left, self.right = value, left, right

    def __iter__(self):
        if self.left:
            yield from self.left
        yield self.value
        if self.right:
            yield from self.right


def tree(lo, hi):
    if lo >= hi:
        return None
    mid = (lo + hi) // 2
    return Node(mid, tree(lo, mid), tree(mid + 1, hi))


@functools.lru_cache(None)
def ways(n, k):
    return 1 if n == 0 else 0 if n < 0 or k == 0 else ways(n - k, k) + ways(n, k - 1)


def failing(n):
    try:
        return 10 // (n % 3)
    except ZeroDivisionError as e:
        raise ValueError(f"bad {n}") from e
    finally:
        failing.calls += 1


failing.calls = 0
print(sum(tree(0, 2000)), ways(100, 100), 3 ** 500 % 1000007)
caught = 0
for i in range(300):
    try:
        failing(i)
    except ValueError:
        caught += 1
print(caught, failing.calls)
words = re.findall(r"\w+", __doc__ * 50)
print(collections.Counter(words).most_common(3), sorted(set(words))[:4])
print("%.12g %.3e" % (sum(1 / n for n in range(1, 2000)), 2 ** 0.5 * 1e10))
print(list(itertools.islice(itertools.permutations("abcd"), 5)))
print(zlib.crc32(b"x" * 1000), hex(zlib.adler32(bytes(range(256)))))
print("{:>10}|{:^10}|{!r}".format("right", "mid", "é\n"), file=sys.stderr)
