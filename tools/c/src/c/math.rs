//! The functions of `<math.h>` that the runtime does not have.

use std::ffi::{c_char, c_int, c_long};
use std::num::FpCategory;

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

pub unsafe extern "C" fn remquo(x: f64, y: f64, to: *mut c_int) -> f64 {
    let (rest, quotient) = libm::remquo(x, y);
    // SAFETY: C's contract.
    unsafe { to.write(quotient) };
    rest
}

pub unsafe extern "C" fn remquof(x: f32, y: f32, to: *mut c_int) -> f32 {
    let (rest, quotient) = libm::remquof(x, y);
    // SAFETY: C's contract.
    unsafe { to.write(quotient) };
    rest
}

/// Not a number; there is one of them.
pub extern "C" fn nan(_tag: *const c_char) -> f64 {
    f64::NAN
}

pub extern "C" fn nanf(_tag: *const c_char) -> f32 {
    f32::NAN
}

pub extern "C" fn nextafterf(x: f32, y: f32) -> f32 {
    libm::nextafterf(x, y)
}

pub extern "C" fn ilogbf(x: f32) -> c_int {
    libm::ilogbf(x)
}

pub extern "C" fn logbf(x: f32) -> f32 {
    logb(x.into()) as f32
}

pub extern "C" fn scalbln(x: f64, n: c_long) -> f64 {
    libm::scalbn(x, n.clamp(-10000, 10000) as c_int)
}

pub extern "C" fn scalblnf(x: f32, n: c_long) -> f32 {
    libm::scalbnf(x, n.clamp(-10000, 10000) as c_int)
}

pub extern "C" fn is_nan(x: f64) -> c_int {
    x.is_nan().into()
}

pub extern "C" fn is_nanf(x: f32) -> c_int {
    x.is_nan().into()
}

pub extern "C" fn is_infinite(x: f64) -> c_int {
    match x {
        f64::INFINITY => 1,
        f64::NEG_INFINITY => -1,
        _ => 0,
    }
}

pub extern "C" fn is_infinitef(x: f32) -> c_int {
    is_infinite(x.into())
}

pub extern "C" fn is_finite(x: f64) -> c_int {
    x.is_finite().into()
}

pub extern "C" fn is_finitef(x: f32) -> c_int {
    x.is_finite().into()
}

pub extern "C" fn sign_bit(x: f64) -> c_int {
    x.is_sign_negative().into()
}

pub extern "C" fn sign_bitf(x: f32) -> c_int {
    x.is_sign_negative().into()
}

/// The numbers are those of glibc's `<math.h>`.
fn class_number(class: FpCategory) -> c_int {
    match class {
        FpCategory::Nan => 0,
        FpCategory::Infinite => 1,
        FpCategory::Zero => 2,
        FpCategory::Subnormal => 3,
        FpCategory::Normal => 4,
    }
}

pub extern "C" fn class(x: f64) -> c_int {
    class_number(x.classify())
}

pub extern "C" fn classf(x: f32) -> c_int {
    class_number(x.classify())
}

pub extern "C" fn j0(x: f64) -> f64 {
    libm::j0(x)
}

pub extern "C" fn j1(x: f64) -> f64 {
    libm::j1(x)
}

pub extern "C" fn jn(n: c_int, x: f64) -> f64 {
    libm::jn(n, x)
}

pub extern "C" fn y0(x: f64) -> f64 {
    libm::y0(x)
}

pub extern "C" fn y1(x: f64) -> f64 {
    libm::y1(x)
}

pub extern "C" fn yn(n: c_int, x: f64) -> f64 {
    libm::yn(n, x)
}
