// Errors, threads, floating point, vectors and a switch in Zig.
const std = @import("std");

const Refused = error{ Odd, Large };

fn act(n: i64) Refused!i64 {
    return switch (@mod(n, 8)) {
        0 => n + 3,
        1 => n * 5,
        2 => n - 7,
        3 => error.Odd,
        4 => n ^ 0x55,
        5 => n << 2,
        6 => if (n > 900) error.Large else @divTrunc(n, 3),
        else => -n,
    };
}

fn guarded(n: i64) i64 {
    return act(n) catch |e| switch (e) {
        error.Odd => n * 100,
        error.Large => 1,
    };
}

fn work(first: i64, sum: *i64) void {
    var i: i64 = first;
    while (i < first + 300) : (i += 1) sum.* += guarded(i);
}

extern fn printf(format: [*:0]const u8, ...) c_int;

pub fn main() !u8 {
    var sum: i64 = 0;
    var i: i64 = 0;
    while (i < 1000) : (i += 1) sum += guarded(i);
    _ = printf("sum %ld\n", sum);
    var parts: [4]i64 = @splat(0);
    var threads: [4]std.Thread = undefined;
    for (&threads, 0..) |*t, k| t.* = try std.Thread.spawn(.{}, work, .{ @as(i64, @intCast(k)), &parts[k] });
    for (threads) |t| t.join();
    _ = printf("total %ld %ld %ld %ld\n", parts[0], parts[1], parts[2], parts[3]);
    var wave: f64 = 0;
    var lanes: @Vector(8, f32) = @splat(0.5);
    var k: u32 = 1;
    while (k < 100) : (k += 1) {
        const x: f64 = @floatFromInt(k);
        wave += @sin(x * 0.1) * @sqrt(x);
        lanes = lanes * @as(@Vector(8, f32), @splat(0.75)) + @as(@Vector(8, f32), @splat(1.0));
    }
    _ = printf("wave %.6f %.4f\n", wave, @as(f64, @reduce(.Add, lanes)));
    return 3;
}
