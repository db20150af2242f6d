//! C's mathematics, for tools that compute means and logarithms.
//!
//! The compiler calls these by name for methods of `f64` and `f32`. Single
//! precision is computed in double and rounded once, except where that is not
//! the same function (`fmaf`).

macro_rules! unary {
    ($($f64:ident $f32:ident = $of:path;)*) => { $(
        pub(crate) extern "C" fn $f64(x: f64) -> f64 { $of(x) }
        pub(crate) extern "C" fn $f32(x: f32) -> f32 { $of(f64::from(x)) as f32 }
    )* };
}

macro_rules! binary {
    ($($f64:ident $f32:ident = $of:path;)*) => { $(
        pub(crate) extern "C" fn $f64(x: f64, y: f64) -> f64 { $of(x, y) }
        pub(crate) extern "C" fn $f32(x: f32, y: f32) -> f32 { $of(f64::from(x), f64::from(y)) as f32 }
    )* };
}

unary! {
    sin sinf = libm::sin;
    cos cosf = libm::cos;
    tan tanf = libm::tan;
    asin asinf = libm::asin;
    acos acosf = libm::acos;
    atan atanf = libm::atan;
    sinh sinhf = libm::sinh;
    cosh coshf = libm::cosh;
    tanh tanhf = libm::tanh;
    exp expf = libm::exp;
    exp2 exp2f = libm::exp2;
    expm1 expm1f = libm::expm1;
    log logf = libm::log;
    log2 log2f = libm::log2;
    log10 log10f = libm::log10;
    log1p log1pf = libm::log1p;
    cbrt cbrtf = libm::cbrt;
    sqrt sqrtf = libm::sqrt;
    floor floorf = libm::floor;
    ceil ceilf = libm::ceil;
    trunc truncf = libm::trunc;
    round roundf = libm::round;
    rint rintf = libm::rint;
    roundeven roundevenf = libm::roundeven;
}

binary! {
    pow powf = libm::pow;
    fmod fmodf = libm::fmod;
    atan2 atan2f = libm::atan2;
    hypot hypotf = libm::hypot;
    fdim fdimf = libm::fdim;
    fmin fminf = libm::fmin;
    fmax fmaxf = libm::fmax;
}

pub(crate) extern "C" fn fma(x: f64, y: f64, z: f64) -> f64 {
    libm::fma(x, y, z)
}

pub(crate) extern "C" fn fmaf(x: f32, y: f32, z: f32) -> f32 {
    libm::fmaf(x, y, z)
}
