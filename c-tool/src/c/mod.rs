//! C's library for analysis routines in C: what the runtime lacks, because Rust's standard library does not call it.
//!
//! The table at the end says which C symbol is which function. The functions use the runtime by C's names, as all code of
//! a tool does.

// All functions here keep C's contracts, which their names tell.
#![allow(clippy::missing_safety_doc, clippy::undocumented_unsafe_blocks)]

mod ctype;
mod file;
mod float;
mod format;
mod math;
mod positions;
mod scan;
mod stdio;
mod stdlib;
mod string;

use std::ffi::c_int;

use atom_tool::private::{Export, StrRef};

unsafe extern "C" {
    fn __errno_location() -> *mut c_int;
}

fn errno() -> c_int {
    // SAFETY: the running thread's own word.
    unsafe { *__errno_location() }
}

fn set_errno(number: c_int) {
    // SAFETY: as above.
    unsafe { *__errno_location() = number };
}

/// Makes the standard streams. Called before any other function of this module.
pub fn begin() {
    file::begin();
}

/// Runs the functions of `atexit` and writes what waits in buffers.
pub fn at_end() {
    stdlib::run_at_exit();
    file::for_each(|file| _ = file.flush());
}

macro_rules! exports {
    ($($name:literal => $function:expr,)*) => {
        /// Number of [`EXPORTS`].
        pub const EXPORT_COUNT: usize = [$($name),*].len();

        /// All functions and variables by their C symbols.
        pub static EXPORTS: [Export; EXPORT_COUNT] = [$(
            Export { name: StrRef::new($name), address: $function as *const () },
        )*];
    };
}

exports! {
    // Formatted output and input.
    "printf" => stdio::printf,
    "fprintf" => stdio::fprintf,
    "dprintf" => stdio::dprintf,
    "sprintf" => stdio::sprintf,
    "snprintf" => stdio::snprintf,
    "asprintf" => stdio::asprintf,
    "vprintf" => stdio::vprintf,
    "vfprintf" => stdio::vfprintf,
    "vdprintf" => stdio::vdprintf,
    "vsprintf" => stdio::vsprintf,
    "vsnprintf" => stdio::vsnprintf,
    "vasprintf" => stdio::vasprintf,
    "scanf" => stdio::scanf,
    "fscanf" => stdio::fscanf,
    "sscanf" => stdio::sscanf,
    "vscanf" => stdio::vscanf,
    "vfscanf" => stdio::vfscanf,
    "vsscanf" => stdio::vsscanf,
    "__isoc99_scanf" => stdio::scanf,
    "__isoc99_fscanf" => stdio::fscanf,
    "__isoc99_sscanf" => stdio::sscanf,
    "__isoc99_vscanf" => stdio::vscanf,
    "__isoc99_vfscanf" => stdio::vfscanf,
    "__isoc99_vsscanf" => stdio::vsscanf,
    "__isoc23_scanf" => stdio::scanf,
    "__isoc23_fscanf" => stdio::fscanf,
    "__isoc23_sscanf" => stdio::sscanf,
    "__isoc23_vscanf" => stdio::vscanf,
    "__isoc23_vfscanf" => stdio::vfscanf,
    "__isoc23_vsscanf" => stdio::vsscanf,
    "__printf_chk" => stdio::printf_checked,
    "__fprintf_chk" => stdio::fprintf_checked,
    "__sprintf_chk" => stdio::sprintf_checked,
    "__snprintf_chk" => stdio::snprintf_checked,
    "__vprintf_chk" => stdio::vprintf_checked,
    "__vfprintf_chk" => stdio::vfprintf_checked,
    "__vsprintf_chk" => stdio::vsprintf_checked,
    "__vsnprintf_chk" => stdio::vsnprintf_checked,

    // Files.
    "stdin" => &raw const file::STDIN,
    "stdout" => &raw const file::STDOUT,
    "stderr" => &raw const file::STDERR,
    "fopen" => stdio::fopen,
    "fopen64" => stdio::fopen,
    "fdopen" => stdio::fdopen,
    "fclose" => stdio::fclose,
    "fflush" => stdio::fflush,
    "fflush_unlocked" => stdio::fflush,
    "fputs" => stdio::fputs,
    "fputs_unlocked" => stdio::fputs,
    "puts" => stdio::puts,
    "fputc" => stdio::fputc,
    "putc" => stdio::fputc,
    "_IO_putc" => stdio::fputc,
    "fputc_unlocked" => stdio::fputc,
    "putc_unlocked" => stdio::fputc,
    "putchar" => stdio::putchar,
    "putchar_unlocked" => stdio::putchar,
    "__overflow" => stdio::overflow,
    "fwrite" => stdio::fwrite,
    "fwrite_unlocked" => stdio::fwrite,
    "fread" => stdio::fread,
    "fread_unlocked" => stdio::fread,
    "fgetc" => stdio::fgetc,
    "getc" => stdio::fgetc,
    "_IO_getc" => stdio::fgetc,
    "fgetc_unlocked" => stdio::fgetc,
    "getc_unlocked" => stdio::fgetc,
    "__uflow" => stdio::fgetc,
    "getchar" => stdio::getchar,
    "getchar_unlocked" => stdio::getchar,
    "ungetc" => stdio::ungetc,
    "fgets" => stdio::fgets,
    "getline" => stdio::getline,
    "getdelim" => stdio::getdelim,
    "__getdelim" => stdio::getdelim,
    "fseek" => stdio::fseek,
    "fseeko" => stdio::fseek,
    "fseeko64" => stdio::fseek,
    "rewind" => stdio::rewind,
    "ftell" => stdio::ftell,
    "ftello" => stdio::ftell,
    "ftello64" => stdio::ftell,
    "feof" => stdio::feof,
    "feof_unlocked" => stdio::feof,
    "ferror" => stdio::ferror,
    "ferror_unlocked" => stdio::ferror,
    "clearerr" => stdio::clearerr,
    "fileno" => stdio::fileno,
    "fileno_unlocked" => stdio::fileno,
    "setvbuf" => stdio::setvbuf,
    "setbuf" => stdio::setbuf,
    "setlinebuf" => stdio::setlinebuf,
    "perror" => stdio::perror,
    "remove" => stdio::remove,

    // Strings.
    "strcpy" => string::strcpy,
    "stpcpy" => string::stpcpy,
    "strncpy" => string::strncpy,
    "strcat" => string::strcat,
    "strncat" => string::strncat,
    "mempcpy" => string::mempcpy,
    "__mempcpy" => string::mempcpy,
    "memccpy" => string::memccpy,
    "strchr" => string::strchr,
    "index" => string::strchr,
    "strchrnul" => string::strchrnul,
    "strrchr" => string::strrchr,
    "rindex" => string::strrchr,
    "strstr" => string::strstr,
    "strcasestr" => string::strcasestr,
    "memmem" => string::memmem,
    "strspn" => string::strspn,
    "strcspn" => string::strcspn,
    "strpbrk" => string::strpbrk,
    "strtok_r" => string::strtok_r,
    "__strtok_r" => string::strtok_r,
    "strtok" => string::strtok,
    "strsep" => string::strsep,
    "strdup" => string::strdup,
    "__strdup" => string::strdup,
    "strndup" => string::strndup,
    "__strndup" => string::strndup,
    "strcasecmp" => string::strcasecmp,
    "strncasecmp" => string::strncasecmp,
    "bzero" => string::bzero,
    "bcopy" => string::bcopy,
    "strerror" => string::strerror,

    // What `_FORTIFY_SOURCE` makes of them: the size of the destination is one more argument, which is not used.
    "__memcpy_chk" => string::memcpy_checked,
    "__memmove_chk" => string::memmove_checked,
    "__memset_chk" => string::memset_checked,
    "__mempcpy_chk" => string::mempcpy,
    "__strcpy_chk" => string::strcpy,
    "__stpcpy_chk" => string::stpcpy,
    "__strncpy_chk" => string::strncpy,
    "__strcat_chk" => string::strcat,
    "__strncat_chk" => string::strncat,
    "__fgets_chk" => stdio::fgets_checked,
    "__fread_chk" => stdio::fread_checked,

    // Characters.
    "isalpha" => ctype::isalpha,
    "isdigit" => ctype::isdigit,
    "isalnum" => ctype::isalnum,
    "isspace" => ctype::isspace,
    "isupper" => ctype::isupper,
    "islower" => ctype::islower,
    "isxdigit" => ctype::isxdigit,
    "ispunct" => ctype::ispunct,
    "iscntrl" => ctype::iscntrl,
    "isgraph" => ctype::isgraph,
    "isprint" => ctype::isprint,
    "isblank" => ctype::isblank,
    "isascii" => ctype::isascii,
    "toupper" => ctype::toupper,
    "tolower" => ctype::tolower,
    "__ctype_b_loc" => ctype::kinds,
    "__ctype_toupper_loc" => ctype::upper,
    "__ctype_tolower_loc" => ctype::lower,

    // Numbers, sorting, random numbers, the end, time.
    "strtol" => stdlib::strtol,
    "strtoll" => stdlib::strtol,
    "strtoimax" => stdlib::strtol,
    "__isoc23_strtol" => stdlib::strtol,
    "__isoc23_strtoll" => stdlib::strtol,
    "strtoul" => stdlib::strtoul,
    "strtoull" => stdlib::strtoul,
    "strtoumax" => stdlib::strtoul,
    "__isoc23_strtoul" => stdlib::strtoul,
    "__isoc23_strtoull" => stdlib::strtoul,
    "strtod" => stdlib::strtod,
    "strtof" => stdlib::strtof,
    "atoi" => stdlib::atoi,
    "atol" => stdlib::atol,
    "atoll" => stdlib::atol,
    "atof" => stdlib::atof,
    "qsort" => stdlib::qsort,
    "qsort_r" => stdlib::qsort_r,
    "bsearch" => stdlib::bsearch,
    "reallocarray" => stdlib::reallocarray,
    "abs" => stdlib::abs,
    "labs" => stdlib::labs,
    "llabs" => stdlib::labs,
    "imaxabs" => stdlib::labs,
    "div" => stdlib::div,
    "ldiv" => stdlib::ldiv,
    "lldiv" => stdlib::ldiv,
    "rand" => stdlib::rand,
    "random" => stdlib::random,
    "srand" => stdlib::srand,
    "srandom" => stdlib::srand,
    "rand_r" => stdlib::rand_r,
    "atexit" => stdlib::atexit,
    "quick_exit" => stdlib::quick_exit,
    "__assert_fail" => stdlib::assert_fail,
    "__stack_chk_fail" => stdlib::stack_check_fail,
    "clock" => stdlib::clock,
    "gettimeofday" => stdlib::gettimeofday,
    "difftime" => stdlib::difftime,

    // Mathematics.
    "asinh" => math::asinh,
    "asinhf" => math::asinhf,
    "acosh" => math::acosh,
    "acoshf" => math::acoshf,
    "atanh" => math::atanh,
    "atanhf" => math::atanhf,
    "erf" => math::erf,
    "erff" => math::erff,
    "erfc" => math::erfc,
    "erfcf" => math::erfcf,
    "tgamma" => math::tgamma,
    "tgammaf" => math::tgammaf,
    "lgamma" => math::lgamma,
    "lgammaf" => math::lgammaf,
    "exp10" => math::exp10,
    "exp10f" => math::exp10f,
    "fabs" => math::fabs,
    "fabsf" => math::fabsf,
    "copysign" => math::copysign,
    "copysignf" => math::copysignf,
    "remainder" => math::remainder,
    "remainderf" => math::remainderf,
    "ldexp" => math::ldexp,
    "ldexpf" => math::ldexpf,
    "scalbn" => math::ldexp,
    "scalbnf" => math::ldexpf,
    "frexp" => math::frexp,
    "modf" => math::modf,
    "sincos" => math::sincos,
    "sincosf" => math::sincosf,
    "frexpf" => math::frexpf,
    "modff" => math::modff,
    "lroundf" => math::lroundf,
    "llroundf" => math::lroundf,
    "lrintf" => math::lrintf,
    "llrintf" => math::lrintf,
    "lround" => math::lround,
    "llround" => math::lround,
    "lrint" => math::lrint,
    "llrint" => math::lrint,
    "ilogb" => math::ilogb,
    "logb" => math::logb,
    "nextafter" => math::nextafter,
}
