//! The functions of `<math.h>` that the runtime does not have.

use std::ffi::{c_int, c_long};

macro_rules! unary {
    ($($f64:ident $f32:ident = $of:path;)*) => {$(
        pub extern "C" fn $f64(x: f64) -> f64 { $of(x) }
        pub extern "C" fn $f32(x: f32) -> f32 { $of(f64::from(x)) as f32 }
    )*};
}

macro_rules! binary {
    ($($f64:ident $f32:ident = $of:path;)*) => {$(
        pub extern "C" fn $f64(x: f64, y: f64) -> f64 { $of(x, y) }
        pub extern "C" fn $f32(x: f32, y: f32) -> f32 { $of(f64::from(x), f64::from(y)) as f32 }
    )*};
}

unary! {
    asinh asinhf = libm::asinh;
    acosh acoshf = libm::acosh;
    atanh atanhf = libm::atanh;
    erf erff = libm::erf;
    erfc erfcf = libm::erfc;
    tgamma tgammaf = libm::tgamma;
    lgamma lgammaf = libm::lgamma;
    exp10 exp10f = libm::exp10;
    fabs fabsf = f64::abs;
}

binary! {
    copysign copysignf = f64::copysign;
    remainder remainderf = libm::remainder;
}

pub extern "C" fn ldexp(x: f64, n: c_int) -> f64 {
    libm::ldexp(x, n)
}

pub extern "C" fn ldexpf(x: f32, n: c_int) -> f32 {
    libm::ldexpf(x, n)
}

pub unsafe extern "C" fn frexp(x: f64, to: *mut c_int) -> f64 {
    let (fraction, exponent) = libm::frexp(x);
    // SAFETY: C's contract.
    unsafe { to.write(exponent) };
    fraction
}

pub unsafe extern "C" fn modf(x: f64, to: *mut f64) -> f64 {
    let (fraction, whole) = libm::modf(x);
    // SAFETY: C's contract.
    unsafe { to.write(whole) };
    fraction
}

/// The compiler makes one call of it for a sine and a cosine.
pub unsafe extern "C" fn sincos(x: f64, sine: *mut f64, cosine: *mut f64) {
    let (a, b) = libm::sincos(x);
    // SAFETY: C's contract.
    unsafe {
        sine.write(a);
        cosine.write(b);
    }
}

pub unsafe extern "C" fn sincosf(x: f32, sine: *mut f32, cosine: *mut f32) {
    let (a, b) = libm::sincosf(x);
    // SAFETY: C's contract.
    unsafe {
        sine.write(a);
        cosine.write(b);
    }
}

pub unsafe extern "C" fn frexpf(x: f32, to: *mut c_int) -> f32 {
    // SAFETY: C's contract.
    unsafe { frexp(x.into(), to) as f32 }
}

pub unsafe extern "C" fn modff(x: f32, to: *mut f32) -> f32 {
    let (fraction, whole) = libm::modff(x);
    // SAFETY: C's contract.
    unsafe { to.write(whole) };
    fraction
}

pub extern "C" fn lroundf(x: f32) -> c_long {
    lround(x.into())
}

pub extern "C" fn lrintf(x: f32) -> c_long {
    lrint(x.into())
}

pub extern "C" fn lround(x: f64) -> c_long {
    libm::round(x) as c_long
}

pub extern "C" fn lrint(x: f64) -> c_long {
    libm::rint(x) as c_long
}

pub extern "C" fn ilogb(x: f64) -> c_int {
    libm::ilogb(x)
}

pub extern "C" fn logb(x: f64) -> f64 {
    match x {
        0.0 => f64::NEG_INFINITY,
        _ if x.is_finite() => f64::from(libm::ilogb(x)),
        _ => x.abs(),
    }
}

pub extern "C" fn nextafter(x: f64, y: f64) -> f64 {
    libm::nextafter(x, y)
}
