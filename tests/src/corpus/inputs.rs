//! The inputs: made here, the same every time, without anything from outside.

use std::path::Path;
use std::process::Command;

use crate::error::{Error, Result};

/// A small generator of numbers (xorshift), so that inputs never change.
pub struct Numbers(pub u64);

impl Numbers {
    /// Draws the next number.
    pub fn draw(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// The next number, below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        (self.draw() >> 11) % n
    }
}

const SYLLABLES: [&str; 24] = [
    "qu", "wa", "ab", "cd", "el", "or", "in", "the", "an", "o", "er", "st", "ti", "re", "on", "al",
    "is", "me", "lo", "ra", "e", "ko", "um", "zy",
];

fn word(n: &mut Numbers) -> String {
    let count = 1 + n.below(4);
    (0..count)
        .map(|_| SYLLABLES[(n.below(24) * n.below(24) / 23) as usize % 24])
        .collect()
}

fn text(n: &mut Numbers, size: usize) -> String {
    let mut text = String::new();
    while text.len() < size {
        for _ in 0..2 + n.below(12) {
            text += &word(n);
            text.push(' ');
        }
        text.push('\n');
    }
    text
}

/// Data that compresses a little: noise, runs and repetitions.
fn data(n: &mut Numbers, size: usize) -> Vec<u8> {
    let mut data: Vec<u8> = Vec::new();
    while data.len() < size {
        match n.below(3) {
            0 => data.extend(
                (0..n.below(400))
                    .map(|_| n.draw() as u8)
                    .collect::<Vec<_>>(),
            ),
            1 => data.extend(vec![n.draw() as u8; n.below(300) as usize]),
            _ => {
                let start = n.below(1 + data.len() as u64) as usize;
                let end = (start + n.below(500) as usize).min(data.len());
                data.extend_from_within(start..end);
            }
        }
    }
    data.truncate(size & !3);
    data
}

const FILES: [(&str, &str); 20] = [
    ("work.py", include_str!("../../inputs/work.py")),
    ("threads.py", include_str!("../../inputs/threads.py")),
    ("work.pl", include_str!("../../inputs/work.pl")),
    ("work.lua", include_str!("../../inputs/work.lua")),
    ("work.tcl", include_str!("../../inputs/work.tcl")),
    ("work.js", include_str!("../../inputs/work.js")),
    ("work.sql", include_str!("../../inputs/work.sql")),
    ("work.m4", include_str!("../../inputs/work.m4")),
    ("work.sh", include_str!("../../inputs/work.sh")),
    ("work.mk", include_str!("../../inputs/work.mk")),
    ("work.c", include_str!("../../inputs/work.c")),
    ("work.cc", include_str!("../../inputs/work.cc")),
    ("work.s", include_str!("../../inputs/work.s")),
    ("start.s", include_str!("../../inputs/start.s")),
    ("work.nasm", include_str!("../../inputs/work.nasm")),
    ("work.y", include_str!("../../inputs/work.y")),
    ("work.l", include_str!("../../inputs/work.l")),
    ("work.1", include_str!("../../inputs/work.1")),
    ("work.xsl", include_str!("../../inputs/work.xsl")),
    ("work.trf", include_str!("../../inputs/work.trf")),
];

/// Text and binary data in turns, of about this size, for longer runs.
pub fn sample(size: usize) -> Vec<u8> {
    let mut n = Numbers(0x9e37_79b9_7f4a_7c15);
    let mut sample = Vec::new();
    while sample.len() < size {
        sample.extend(text(&mut n, 60_000).into_bytes());
        sample.extend(data(&mut n, 20_000));
    }
    sample.truncate(size);
    sample
}

/// Writes all inputs to `folder`.
pub fn make(folder: &Path) -> Result<()> {
    let fail = |e: std::io::Error| Error::new("making the inputs", e).file(folder);
    let write = |name: &str, bytes: &[u8]| std::fs::write(folder.join(name), bytes).map_err(fail);
    std::fs::create_dir_all(folder.join("parts")).map_err(fail)?;
    let mut n = Numbers(0x2545_f491_4f6c_dd1d);
    let long = text(&mut n, 200_000);
    let small = text(&mut n, 2_000);
    let changed: String = small
        .lines()
        .enumerate()
        .filter(|(i, _)| i % 9 != 4)
        .map(|(i, l)| {
            if i % 7 == 3 {
                format!("{l}changed\n")
            } else {
                format!("{l}\n")
            }
        })
        .collect();
    let words: String = (0..300).map(|_| word(&mut n) + "\n").collect();
    let table: String = (0..500)
        .map(|i| format!("{},{},{i}\n", word(&mut n), n.below(1000)))
        .collect();
    write("text", long.as_bytes())?;
    write("small", small.as_bytes())?;
    write("small2", changed.as_bytes())?;
    write("words", words.as_bytes())?;
    write("table.csv", table.as_bytes())?;
    write("data", &data(&mut n, 200_000))?;
    for i in 0..12 {
        write(
            &format!("parts/p{i}"),
            text(&mut n, 300 + 400 * i).as_bytes(),
        )?;
    }
    let items: Vec<String> = (0..200)
        .map(|i| {
            format!(
                "{{\"n\": {i}, \"kind\": \"{}\", \"v\": {}.5}}",
                ["a", "b", "c"][i % 3],
                i * i
            )
        })
        .collect();
    write(
        "work.json",
        format!("{{\"items\": [{}]}}", items.join(",")).as_bytes(),
    )?;
    let items: String = (0..60)
        .map(|i| format!("<item n=\"{i}\">{} &amp; {}</item>", word(&mut n), i * 3))
        .collect();
    write(
        "work.xml",
        format!("<?xml version=\"1.0\"?><list>{items}</list>").as_bytes(),
    )?;
    for (name, text) in FILES {
        write(name, text.as_bytes())?;
    }
    write("image.png", &png(&mut n))?;
    let shell = "cd \"$1\" && sha256sum parts/* > sums && as start.s -o start.o \
        && gcc -E -P work.c -o work.i && g++ -E -P work.cc -o work.ii \
        && if command -v zip > /dev/null; then rm -f archive.zip && touch -d 2020-01-01 text small data \
        && zip -q -X archive.zip text small data; fi && find . -exec touch -h -d 2020-01-01T00:00:00Z {} +";
    let status = Command::new("sh")
        .args(["-c", shell, "sh"])
        .arg(folder)
        .status()
        .map_err(fail)?;
    if !status.success() {
        return Err(Error::new("making the inputs", "their shell commands failed").file(folder));
    }
    Ok(())
}

/// A small picture with uncompressed data blocks.
fn png(n: &mut Numbers) -> Vec<u8> {
    let (width, height) = (64u32, 48u32);
    let mut raw = Vec::new();
    for y in 0..height {
        raw.push(0);
        for x in 0..width {
            raw.extend([(x * 4) as u8, (y * 5) as u8, (n.below(8) * 32) as u8]);
        }
    }
    let mut zlib = vec![0x78, 0x01, 0x01];
    zlib.extend((raw.len() as u16).to_le_bytes());
    zlib.extend((!(raw.len() as u16)).to_le_bytes());
    zlib.extend(&raw);
    let (mut a, mut b) = (1u32, 0u32);
    for byte in &raw {
        a = (a + u32::from(*byte)) % 65521;
        b = (b + a) % 65521;
    }
    zlib.extend((b << 16 | a).to_be_bytes());
    let mut png = b"\x89PNG\r\n\x1a\n".to_vec();
    let mut header = Vec::new();
    header.extend(width.to_be_bytes());
    header.extend(height.to_be_bytes());
    header.extend([8, 2, 0, 0, 0]);
    for (kind, body) in [(b"IHDR", &header), (b"IDAT", &zlib), (b"IEND", &Vec::new())] {
        png.extend((body.len() as u32).to_be_bytes());
        let at = png.len();
        png.extend(kind);
        png.extend(body);
        let crc = crc(&png[at..]);
        png.extend(crc.to_be_bytes());
    }
    png
}

fn crc(bytes: &[u8]) -> u32 {
    let step = |c: u32| {
        if c & 1 != 0 {
            0xedb8_8320 ^ c >> 1
        } else {
            c >> 1
        }
    };
    !bytes.iter().fold(!0u32, |crc, b| {
        (0..8).fold(crc ^ u32::from(*b), |c, _| step(c))
    })
}
