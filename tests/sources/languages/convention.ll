; GHC's convention (ghccc), in which no register is preserved and calls are jumps.
@format = private constant [8 x i8] c"%lu %f\0A\00"
declare i32 @printf(ptr, ...)
declare void @exit(i32)

define ghccc void @loop(i64 %base, i64 %sp, i64 %hp, i64 %n, i64 %a, i64 %b, i64 %c, float %f, float %g, float %h, float %i, double %x, double %y) noinline {
  %done = icmp eq i64 %n, 0
  br i1 %done, label %end, label %more
more:
  %m = sub i64 %n, 1
  %a2 = add i64 %a, %b
  %b2 = xor i64 %b, %c
  %c2 = add i64 %c, %hp
  %x2 = fmul double %x, 5.000000e-01
  %x3 = fadd double %x2, %y
  %bit = and i64 %a2, 1
  %odd = icmp eq i64 %bit, 1
  br i1 %odd, label %one, label %two
one:
  tail call ghccc void @loop(i64 %base, i64 %sp, i64 %hp, i64 %m, i64 %a2, i64 %b2, i64 %c2, float %f, float %g, float %h, float %i, double %x3, double %y)
  ret void
two:
  tail call ghccc void @other(i64 %base, i64 %sp, i64 %hp, i64 %m, i64 %a2, i64 %b2, i64 %c2, float %f, float %g, float %h, float %i, double %x3, double %y)
  ret void
end:
  %r = call i32 (ptr, ...) @printf(ptr @format, i64 %a, double %x)
  call void @exit(i32 3)
  unreachable
}

define ghccc void @other(i64 %base, i64 %sp, i64 %hp, i64 %n, i64 %a, i64 %b, i64 %c, float %f, float %g, float %h, float %i, double %x, double %y) noinline {
  %b2 = add i64 %b, %sp
  tail call ghccc void @loop(i64 %base, i64 %sp, i64 %hp, i64 %n, i64 %a, i64 %b2, i64 %c, float %f, float %g, float %h, float %i, double %x, double %y)
  ret void
}

define i32 @main() {
  call ghccc void @loop(i64 1, i64 2, i64 3, i64 100000, i64 5, i64 6, i64 7, float 0.0, float 0.0, float 0.0, float 0.0, double 1.0, double 2.0)
  ret i32 0
}
