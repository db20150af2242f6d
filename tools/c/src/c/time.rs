//! The calendar of `<time.h>`. There is one zone, UTC, for `localtime` too: the zones of the system are files, which a process
//! need not be allowed to read.
//!
//! SAFETY of all functions: C's contract.

use std::cell::UnsafeCell;
use std::ffi::{CStr, c_char, c_int, c_long, c_uint};
use std::ptr::null_mut;

use libc::{EOVERFLOW, tm};

use super::set_errno;
use crate::varargs::bytes;

unsafe extern "C" {
    fn clock_gettime(clock: c_int, to: *mut libc::timespec) -> c_int;
    fn nanosleep(time: *const libc::timespec, left: *mut libc::timespec) -> c_int;
}

/// The name of the zone of `localtime`, as glibc gives it where the system has no other.
const LOCAL: &CStr = c"UTC";

const DAY: i64 = 86400;
/// Days of 400 years.
const CYCLE: i64 = 146_097;
/// Days from March 1st of the year 0 to January 1st, 1970.
const EPOCH: i64 = 719_468;

const WEEKDAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// Days from January 1st, 1970 to a day. The month is counted from 0 and may be any number.
fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = (year + month.div_euclid(12), month.rem_euclid(12));
    // Years begin in March, so that leap days are last.
    let (year, month) = match month {
        0 | 1 => (year - 1, month + 10),
        _ => (year, month - 2),
    };
    let (cycle, in_cycle) = (year.div_euclid(400), year.rem_euclid(400));
    let in_year = (153 * month + 2) / 5 + day - 1;
    cycle * CYCLE + in_cycle * 365 + in_cycle / 4 - in_cycle / 100 + in_year - EPOCH
}

/// Year, month from 0 on and day of a day, which is counted from January 1st, 1970.
fn date_of(days: i64) -> (i64, i64, i64) {
    let days = days + EPOCH;
    let (cycle, in_cycle) = (days.div_euclid(CYCLE), days.rem_euclid(CYCLE));
    let year = (in_cycle - in_cycle / 1460 + in_cycle / 36524 - in_cycle / 146_096) / 365;
    let in_year = in_cycle - (365 * year + year / 4 - year / 100);
    let month = (5 * in_year + 2) / 153;
    let day = in_year - (153 * month + 2) / 5 + 1;
    let year = cycle * 400 + year;
    match month {
        10.. => (year + 1, month - 10, day),
        _ => (year, month + 2, day),
    }
}

/// The date and time of seconds since 1970; `None` if the year is too large.
fn split(time: i64) -> Option<tm> {
    let (days, seconds) = (time.div_euclid(DAY), time.rem_euclid(DAY));
    let (year, month, day) = date_of(days);
    Some(tm {
        tm_sec: (seconds % 60) as c_int,
        tm_min: (seconds / 60 % 60) as c_int,
        tm_hour: (seconds / 3600) as c_int,
        tm_mday: day as c_int,
        tm_mon: month as c_int,
        tm_year: c_int::try_from(year - 1900).ok()?,
        tm_wday: (days + 4).rem_euclid(7) as c_int,
        tm_yday: (days - days_of(year, 0, 1)) as c_int,
        tm_isdst: 0,
        tm_gmtoff: 0,
        tm_zone: c"GMT".as_ptr(),
    })
}

/// Seconds since 1970 of a date and time, whose fields may be any numbers.
fn join(of: &tm) -> i64 {
    let days = days_of(
        i64::from(of.tm_year) + 1900,
        of.tm_mon.into(),
        of.tm_mday.into(),
    );
    let [hours, minutes, seconds] = [of.tm_hour, of.tm_min, of.tm_sec].map(i64::from);
    days * DAY + hours * 3600 + minutes * 60 + seconds
}

/// What functions without a place for their result return: each thread has its own.
struct Own<T>(UnsafeCell<T>);

thread_local! {
    static DATE: Own<tm> = const { Own(UnsafeCell::new(unsafe { std::mem::zeroed() })) };
    static TEXT: Own<[c_char; 64]> = const { Own(UnsafeCell::new([0; 64])) };
}

pub unsafe extern "C" fn gmtime_r(time: *const c_long, to: *mut tm) -> *mut tm {
    unsafe {
        match split(*time) {
            Some(date) => {
                to.write(date);
                to
            }
            None => {
                set_errno(EOVERFLOW);
                null_mut()
            }
        }
    }
}

pub unsafe extern "C" fn gmtime(time: *const c_long) -> *mut tm {
    unsafe { gmtime_r(time, DATE.with(|date| date.0.get())) }
}

pub unsafe extern "C" fn localtime_r(time: *const c_long, to: *mut tm) -> *mut tm {
    unsafe {
        let date = gmtime_r(time, to);
        if let Some(date) = date.as_mut() {
            date.tm_zone = LOCAL.as_ptr();
        }
        date
    }
}

pub unsafe extern "C" fn localtime(time: *const c_long) -> *mut tm {
    unsafe { localtime_r(time, DATE.with(|date| date.0.get())) }
}

pub unsafe extern "C" fn timegm(of: *mut tm) -> c_long {
    unsafe {
        let time = join(&*of);
        if gmtime_r(&raw const time, of).is_null() {
            -1
        } else {
            time
        }
    }
}

pub unsafe extern "C" fn mktime(of: *mut tm) -> c_long {
    unsafe {
        let time = join(&*of);
        if localtime_r(&raw const time, of).is_null() {
            -1
        } else {
            time
        }
    }
}

pub extern "C" fn tzset() {}

pub unsafe extern "C" fn asctime_r(of: *const tm, to: *mut c_char) -> *mut c_char {
    unsafe {
        let text = text_of(&*of, b"%a %b %e %H:%M:%S %Y\n");
        copy(&text, to, 26);
        to
    }
}

pub unsafe extern "C" fn asctime(of: *const tm) -> *mut c_char {
    unsafe { asctime_r(of, TEXT.with(|text| text.0.get().cast())) }
}

pub unsafe extern "C" fn ctime_r(time: *const c_long, to: *mut c_char) -> *mut c_char {
    unsafe {
        match split(*time) {
            Some(date) => asctime_r(&raw const date, to),
            None => null_mut(),
        }
    }
}

pub unsafe extern "C" fn ctime(time: *const c_long) -> *mut c_char {
    unsafe { ctime_r(time, TEXT.with(|text| text.0.get().cast())) }
}

/// Copies a text and a null, if they fit. Returns the length of the text, or 0.
unsafe fn copy(text: &[u8], to: *mut c_char, size: usize) -> usize {
    if text.len() >= size {
        return 0;
    }
    unsafe {
        to.cast::<u8>()
            .copy_from_nonoverlapping(text.as_ptr(), text.len());
        to.add(text.len()).write(0);
    }
    text.len()
}

pub unsafe extern "C" fn strftime(
    to: *mut c_char,
    size: usize,
    format: *const c_char,
    of: *const tm,
) -> usize {
    unsafe { copy(&text_of(&*of, bytes(format)), to, size) }
}

/// The number of the week, of weeks that begin with a day of the week; days before the first are in week 0.
fn week(of: &tm, first: c_int) -> c_int {
    let since = (of.tm_wday - first).rem_euclid(7);
    (of.tm_yday + 7 - since) / 7
}

/// Year and week of ISO 8601.
fn iso_week(of: &tm) -> (i64, i64) {
    let year = i64::from(of.tm_year) + 1900;
    let weekday = i64::from((of.tm_wday + 6) % 7);
    // The week's Thursday decides.
    let thursday = days_of(year, 0, 1) + i64::from(of.tm_yday) + 3 - weekday;
    let (year, ..) = date_of(thursday);
    (year, (thursday - days_of(year, 0, 1)) / 7 + 1)
}

/// How a number or a name is written.
#[derive(Clone, Copy, Default)]
struct Form {
    /// `_`, `-` or `0`.
    fill: Option<u8>,
    is_upper: bool,
    width: Option<usize>,
}

impl Form {
    /// A number with at least `digits` digits, filled with `fill`.
    fn number(self, value: i64, digits: usize, fill: u8) -> String {
        let digits = self.width.unwrap_or(digits);
        let magnitude = value.unsigned_abs();
        let sign = if value < 0 { "-" } else { "" };
        let room = digits.saturating_sub(sign.len());
        match self.fill.unwrap_or(fill) {
            b'-' => format!("{sign}{magnitude}"),
            b'_' => format!("{:>digits$}", format!("{sign}{magnitude}")),
            _ => format!("{sign}{magnitude:0room$}"),
        }
    }

    fn text(self, text: &str) -> String {
        let text = if self.is_upper {
            text.to_uppercase()
        } else {
            text.to_owned()
        };
        let width = self.width.unwrap_or(0);
        match self.fill {
            Some(b'0') => format!("{}{text}", "0".repeat(width.saturating_sub(text.len()))),
            _ => format!("{text:>width$}"),
        }
    }
}

/// A date and time by a format of `strftime`.
fn text_of(of: &tm, format: &[u8]) -> Vec<u8> {
    let mut text = Vec::new();
    let mut rest = format;
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        if *first != b'%' {
            text.push(*first);
            continue;
        }
        let specification = rest;
        let mut form = Form::default();
        while let Some((flag, behind)) = rest.split_first() {
            match flag {
                b'_' | b'-' | b'0' => form.fill = Some(*flag),
                b'^' => form.is_upper = true,
                b'#' => {}
                _ => break,
            }
            rest = behind;
        }
        let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
        if digits > 0 {
            let width = super::stdlib::number(&rest[..digits], 10).magnitude;
            form.width = Some((width as usize).min(1024));
            rest = &rest[digits..];
        }
        if let [b'E' | b'O', behind @ ..] = rest {
            rest = behind;
        }
        let Some((letter, behind)) = rest.split_first() else {
            break;
        };
        rest = behind;
        match field(of, *letter, form) {
            Some(found) => text.extend(found.into_bytes()),
            // An unknown specification stands for itself.
            None => {
                text.push(b'%');
                text.extend(&specification[..specification.len() - rest.len()]);
            }
        }
    }
    text
}

/// A name of a list, as glibc gives it for a number outside of it.
fn name(list: &[&'static str], number: c_int) -> &'static str {
    let found = usize::try_from(number).ok();
    found.and_then(|i| list.get(i)).copied().unwrap_or("?")
}

fn field(of: &tm, letter: u8, form: Form) -> Option<String> {
    let year = i64::from(of.tm_year) + 1900;
    let hour = match of.tm_hour.rem_euclid(12) {
        0 => 12,
        hour => hour,
    };
    let two = |value: c_int| form.number(value.into(), 2, b'0');
    let short = |name: &'static str| form.text(&name[..name.len().min(3)]);
    let all = |format: &[u8]| form.text(&String::from_utf8_lossy(&text_of(of, format)));
    let half = match of.tm_hour {
        12.. => ["PM", "pm"],
        _ => ["AM", "am"],
    };
    Some(match letter {
        b'a' => short(name(&WEEKDAYS, of.tm_wday)),
        b'A' => form.text(name(&WEEKDAYS, of.tm_wday)),
        b'b' | b'h' => short(name(&MONTHS, of.tm_mon)),
        b'B' => form.text(name(&MONTHS, of.tm_mon)),
        b'c' => all(b"%a %b %e %H:%M:%S %Y"),
        b'C' => form.number(year.div_euclid(100), 1, b'0'),
        b'd' => two(of.tm_mday),
        b'D' | b'x' => all(b"%m/%d/%y"),
        b'e' => form.number(of.tm_mday.into(), 2, b'_'),
        b'F' => all(b"%Y-%m-%d"),
        b'g' => form.number(iso_week(of).0.rem_euclid(100), 2, b'0'),
        b'G' => form.number(iso_week(of).0, 1, b'0'),
        b'H' => two(of.tm_hour),
        b'I' => two(hour),
        b'j' => form.number(i64::from(of.tm_yday) + 1, 3, b'0'),
        b'k' => form.number(of.tm_hour.into(), 2, b'_'),
        b'l' => form.number(hour.into(), 2, b'_'),
        b'm' => two(of.tm_mon + 1),
        b'M' => two(of.tm_min),
        b'n' => "\n".to_owned(),
        b'p' => form.text(half[0]),
        b'P' => form.text(half[1]),
        b'r' => all(b"%I:%M:%S %p"),
        b'R' => all(b"%H:%M"),
        b's' => form.number(join(of), 1, b'0'),
        b'S' => two(of.tm_sec),
        b't' => "\t".to_owned(),
        b'T' | b'X' => all(b"%H:%M:%S"),
        b'u' => form.number(((of.tm_wday + 6).rem_euclid(7) + 1).into(), 1, b'0'),
        b'U' => two(week(of, 0)),
        b'V' => form.number(iso_week(of).1, 2, b'0'),
        b'w' => form.number(of.tm_wday.into(), 1, b'0'),
        b'W' => two(week(of, 1)),
        b'y' => form.number(year.rem_euclid(100), 2, b'0'),
        b'Y' => form.number(year, 1, b'0'),
        b'z' => {
            let minutes = of.tm_gmtoff / 60;
            let (hours, rest) = (minutes.abs() / 60, minutes.abs() % 60);
            let sign = if minutes < 0 { '-' } else { '+' };
            format!("{sign}{hours:02}{rest:02}")
        }
        b'Z' => {
            if of.tm_zone.is_null() {
                form.text("")
            } else {
                // SAFETY: a string of C, as in each `struct tm`.
                form.text(&String::from_utf8_lossy(unsafe { bytes(of.tm_zone) }))
            }
        }
        b'%' => "%".to_owned(),
        _ => return None,
    })
}

pub unsafe extern "C" fn timespec_get(to: *mut libc::timespec, base: c_int) -> c_int {
    const TIME_UTC: c_int = 1;
    unsafe {
        if base == TIME_UTC && clock_gettime(libc::CLOCK_REALTIME, to) == 0 {
            base
        } else {
            0
        }
    }
}

pub extern "C" fn usleep(microseconds: c_uint) -> c_int {
    let time = libc::timespec {
        tv_sec: (microseconds / 1_000_000).into(),
        tv_nsec: c_long::from(microseconds % 1_000_000) * 1000,
    };
    unsafe { nanosleep(&raw const time, null_mut()) }
}

pub extern "C" fn sleep(seconds: c_uint) -> c_uint {
    let mut left = libc::timespec {
        tv_sec: seconds.into(),
        tv_nsec: 0,
    };
    match unsafe { nanosleep(&raw const left, &raw mut left) } {
        0 => 0,
        _ => left.tv_sec as c_uint,
    }
}
