//! Numbers as decimal digits, without memory from a heap.

/// Number of digits of the largest number of 64 bits.
const MOST_DIGITS: usize = 20;

/// The digits of a number.
pub struct Decimal {
    /// Digits at the end, then a null.
    bytes: [u8; MOST_DIGITS + 1],
    start: usize,
}

impl Decimal {
    /// The digits of this number.
    pub fn new(number: u64) -> Self {
        let mut bytes = [0; MOST_DIGITS + 1];
        let mut start = MOST_DIGITS;
        let mut rest = number;
        loop {
            start -= 1;
            bytes[start] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                return Self { bytes, start };
            }
        }
    }

    /// The digits.
    pub fn digits(&self) -> &[u8] {
        &self.bytes[self.start..MOST_DIGITS]
    }

    /// The digits with a null after them, as C wants a string.
    pub(crate) fn string(&self) -> *const u8 {
        self.bytes[self.start..].as_ptr()
    }
}

/// The number that a text of decimal digits starts with, and the number of its digits.
pub(crate) fn parse(text: &[u8]) -> (u64, usize) {
    let digits = text.iter().take_while(|b| b.is_ascii_digit());
    digits.fold((0, 0), |(value, count), digit| {
        let value = u64::wrapping_mul(value, 10).wrapping_add(u64::from(digit - b'0'));
        (value, count + 1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_become_digits_and_come_back() {
        for number in [0, 7, 10, 4_194_304, u64::MAX] {
            let decimal = Decimal::new(number);
            assert_eq!(decimal.digits(), number.to_string().as_bytes());
            assert_eq!(parse(decimal.digits()).0, number);
        }
        assert_eq!(parse(b"12/.."), (12, 2));
        assert_eq!(parse(b"x"), (0, 0));
    }
}
