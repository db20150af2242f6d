//! Base64 (RFC 4648), which a browser decodes by `atob`.

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Encodes bytes, with padding.
pub fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let byte = |i: usize| u32::from(chunk.get(i).copied().unwrap_or(0));
        let group = byte(0) << 16 | byte(1) << 8 | byte(2);
        for digit in 0..4 {
            // A group of n bytes has n + 1 digits.
            let value = (group >> (18 - 6 * digit)) as usize & 63;
            text.push(if digit <= chunk.len() {
                char::from(DIGITS[value])
            } else {
                '='
            });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::encode;

    #[test]
    fn vectors_of_the_standard() {
        let vectors = ["", "f", "fo", "foo", "foob", "fooba", "foobar"];
        let want = [
            "", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy",
        ];
        assert_eq!(vectors.map(|v| encode(v.as_bytes())), want);
        assert_eq!(encode(&[0xfb, 0xff, 0xfe]), "+//+");
    }
}
