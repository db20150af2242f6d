// Exceptions, threads, floating point and a switch in D.
import core.thread, std.algorithm, std.conv, std.math, std.stdio;

class Refused : Exception {
    int code;
    this(int code) { super("refused"); this.code = code; }
}

int act(int n) {
    switch (n % 8) {
    case 0: return n + 3;
    case 1: return n * 5;
    case 2: return n - 7;
    case 3: throw new Refused(n);
    case 4: return n ^ 0x55;
    case 5: return n << 2;
    case 6: return n / 3;
    default: return -n;
    }
}

string word(string key) {
    switch (key) {
    case "one": return "eins";
    case "two": return "zwei";
    case "three": return "drei";
    case "seven": return "sieben";
    default: return "viele";
    }
}

int guarded(int n) {
    int left;
    scope (exit) left++;
    try {
        return act(n) + left;
    } catch (Refused refused) {
        return refused.code * 100;
    } finally {
        left += 10;
    }
}

void main() {
    long sum;
    foreach (i; 0 .. 1000) sum += guarded(i);
    writeln("sum ", sum);
    writeln(word("two"), " ", word("seven"), " ", word("nine"));
    shared long total;
    Thread[] threads;
    foreach (i; 0 .. 4) {
        auto start = (int n) => new Thread({
            foreach (k; 0 .. 500) {
                import core.atomic : atomicOp;
                atomicOp!"+="(total, guarded(k + n));
            }
        }).start();
        threads ~= start(i);
    }
    foreach (thread; threads) thread.join();
    writeln("total ", total);
    auto fiber = new Fiber({ foreach (i; 0 .. 3) { writeln("fiber ", i); Fiber.yield(); } });
    while (fiber.state != Fiber.State.TERM) fiber.call();
    double wave = 0;
    foreach (i; 1 .. 100) wave += sin(i * 0.1) * sqrt(cast(double) i);
    writefln("wave %.6f %.3f", wave, cast(real) wave / 3);
    int[] few = [5, 3, 9, 1];
    few.sort();
    writeln(few, " ", few.map!(n => to!string(n)).joiner("+"));
    try {
        import core.exception : RangeError;
        if (few.length < sum) throw new RangeError();
    } catch (Error error) {
        writeln("range");
    }
}
