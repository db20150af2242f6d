// A library with code in front of its data and behind it, as BOLT writes them.
int steps(int n)
{
    static int many[100000];
    int sum = 0;
    for (int i = 0; i < n; i++)
        sum += many[i * 997 % 100000]++ + i;
    return sum;
}

__attribute__((section("behind"), noinline)) int twice(int n) { return 2 * steps(n); }
