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

macro_rules! plain {
    ($($(#[$about:meta])* $name:ident($($arg:ident: $type:ty),*) -> $result:ty = $value:expr;)*) => {$(
        $(#[$about])*
        pub extern "C" fn $name($($arg: $type),*) -> $result { $value }
    )*};
}

plain! {
    ldexp(x: f64, n: c_int) -> f64 = libm::ldexp(x, n);
    ldexpf(x: f32, n: c_int) -> f32 = libm::ldexpf(x, n);
    lroundf(x: f32) -> c_long = lround(x.into());
    lrintf(x: f32) -> c_long = lrint(x.into());
    lround(x: f64) -> c_long = libm::round(x) as c_long;
    lrint(x: f64) -> c_long = libm::rint(x) as c_long;
    ilogb(x: f64) -> c_int = libm::ilogb(x);
    nextafter(x: f64, y: f64) -> f64 = libm::nextafter(x, y);
    /// Not a number; there is one of them.
    nan(_tag: *const c_char) -> f64 = f64::NAN;
    nanf(_tag: *const c_char) -> f32 = f32::NAN;
    nextafterf(x: f32, y: f32) -> f32 = libm::nextafterf(x, y);
    ilogbf(x: f32) -> c_int = libm::ilogbf(x);
    logbf(x: f32) -> f32 = logb(x.into()) as f32;
    scalbln(x: f64, n: c_long) -> f64 = libm::scalbn(x, n.clamp(-10000, 10000) as c_int);
    scalblnf(x: f32, n: c_long) -> f32 = libm::scalbnf(x, n.clamp(-10000, 10000) as c_int);
    is_nan(x: f64) -> c_int = x.is_nan().into();
    is_nanf(x: f32) -> c_int = x.is_nan().into();
    is_infinitef(x: f32) -> c_int = is_infinite(x.into());
    is_finite(x: f64) -> c_int = x.is_finite().into();
    is_finitef(x: f32) -> c_int = x.is_finite().into();
    sign_bit(x: f64) -> c_int = x.is_sign_negative().into();
    sign_bitf(x: f32) -> c_int = x.is_sign_negative().into();
    class(x: f64) -> c_int = class_number(x.classify());
    classf(x: f32) -> c_int = class_number(x.classify());
    j0(x: f64) -> f64 = libm::j0(x);
    j1(x: f64) -> f64 = libm::j1(x);
    jn(n: c_int, x: f64) -> f64 = libm::jn(n, x);
    y0(x: f64) -> f64 = libm::y0(x);
    y1(x: f64) -> f64 = libm::y1(x);
    yn(n: c_int, x: f64) -> f64 = libm::yn(n, x);
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

pub extern "C" fn logb(x: f64) -> f64 {
    match x {
        0.0 => f64::NEG_INFINITY,
        _ if x.is_finite() => f64::from(libm::ilogb(x)),
        _ => x.abs(),
    }
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

pub extern "C" fn is_infinite(x: f64) -> c_int {
    match x {
        f64::INFINITY => 1,
        f64::NEG_INFINITY => -1,
        _ => 0,
    }
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
