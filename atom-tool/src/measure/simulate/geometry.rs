//! Which caches are simulated: presets, options, and the geometry of this machine.
//!
//! The machine's caches are those of its first processor, by Linux, or by the processor itself (leaf 4 of `cpuid`;
//! AMD's 0x8000001d) where Linux does not tell, as in some containers.

use std::arch::x86_64::{__cpuid, __cpuid_count};
use std::fs;
use std::path::Path;

use super::cache::{MAX_LINES, Shape};
use crate::Result;
use crate::options::{Options, WrongOption};

/// Largest number of lines of the second level.
pub const MAX_SECOND: usize = 1 << 22;

/// Size in bytes, ways, size of a line in bytes: the parameters of ATOM's cache and of the preset `l1`.
const ATOM: [u64; 3] = [8 << 10, 1, 32];
const L1: [u64; 3] = [32 << 10, 8, 64];

/// Where Linux describes the first processor's caches.
const SYSTEM: &str = "/sys/devices/system/cpu/cpu0/cache";

/// Largest number of caches that are looked for.
const MOST: u32 = 16;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Preset {
    Machine,
    L1,
    Atom,
}

/// The caches to simulate.
pub struct Geometry {
    /// The first level.
    pub first: Shape,
    /// Description of the first level for reports.
    pub first_text: String,
    /// The second level, if one is wanted and known.
    pub second: Option<Shape>,
    /// Description of the second level, or why there is none; empty if none is wanted.
    pub second_text: String,
    /// What the geometry comes from, for reports.
    pub origin: String,
}

/// Sizes of caches for which a report has columns.
pub struct Sizes {
    /// In bytes, ascending, each once.
    pub bytes: Vec<u64>,
    /// What they come from, for reports.
    pub origin: String,
}

/// Largest number of [`Sizes`].
pub const MOST_SIZES: usize = 4;

impl Sizes {
    /// The sizes that the option `--caches` names, separated by commas; without it those of this machine's caches of data.
    ///
    /// # Errors
    /// The message says what is wrong with the option.
    pub fn from_options(options: &Options<'_>) -> Result<Self> {
        let of_machine = || match Machine::find() {
            Some(machine) => (machine.sizes(), machine.origin()),
            None => (
                vec![32 << 10, 1 << 20, 32 << 20],
                "usual ones, since neither Linux nor the processor tells this machine's".into(),
            ),
        };
        let (mut sizes, origin) = match options.value("--caches")? {
            Some(text) => (named_sizes(text)?, "--caches".into()),
            None => of_machine(),
        };
        sizes.sort_unstable();
        sizes.dedup();
        Ok(Self {
            bytes: sizes,
            origin,
        })
    }
}

/// The value of `--caches`.
fn named_sizes(text: &str) -> Result<Vec<u64>> {
    let sizes: Option<Vec<u64>> = text.split(',').map(bytes).collect();
    match sizes {
        Some(sizes) if sizes.len() <= MOST_SIZES => Ok(sizes),
        _ => {
            let message = format!(
                "--caches takes up to {MOST_SIZES} sizes, such as 48k,2m,32m, not `{text}`"
            );
            Err(WrongOption::new(message).into())
        }
    }
}

/// A size with the prefix of a power of 1,024: `48K`, `2M`.
pub fn short_size(bytes: u64) -> String {
    let units = [(30, "G"), (20, "M"), (10, "K")];
    let unit = units
        .iter()
        .find(|(power, _)| bytes.trailing_zeros() >= *power);
    unit.map_or(bytes.to_string(), |(power, unit)| {
        format!("{}{unit}", bytes >> power)
    })
}

/// What a preset means: size, ways and size of a line of each level, and what they come from.
struct Chosen {
    first: [u64; 3],
    second: Option<[u64; 3]>,
    origin: String,
    /// It is this machine's.
    is_machine: bool,
}

impl Chosen {
    fn from_options(options: &Options<'_>) -> Result<Self> {
        let presets = [
            ("machine", Preset::Machine),
            ("l1", Preset::L1),
            ("atom", Preset::Atom),
        ];
        let of = |first, origin: &str| Self {
            first,
            second: None,
            origin: origin.into(),
            is_machine: false,
        };
        Ok(match options.choice("--preset", &presets)? {
            Preset::Machine => match Machine::find() {
                Some(machine) => Self {
                    first: machine.first,
                    second: machine.second,
                    origin: machine.origin(),
                    is_machine: true,
                },
                None => of(
                    L1,
                    "preset l1, since neither Linux nor the processor tells this machine's caches",
                ),
            },
            Preset::L1 => of(L1, "preset l1"),
            Preset::Atom => of(ATOM, "preset atom"),
        })
    }
}

impl Geometry {
    /// The caches that `--preset`, `--size`, `--line`, `--ways` and `--l2` ask for. Without a preset they are this
    /// machine's. `wants_second` says whether the second level of a preset is wanted, too.
    ///
    /// # Errors
    /// The message says which option is wrong.
    pub fn from_options(options: &Options<'_>, wants_second: bool) -> Result<Self> {
        let chosen = Chosen::from_options(options)?;
        let known = chosen.second.filter(|_| wants_second);
        let is_missing = wants_second && chosen.is_machine && known.is_none();
        let mut all = Self::of(chosen, options)?;
        let wanted = options.value("--l2")?.map(parsed).transpose()?;
        if let Some([size, ways, line]) = wanted.or(known) {
            let (second, text) = Shape::of(size, ways, line, MAX_SECOND)
                .map_err(|e| WrongOption::new(format!("the second level: {e}")))?;
            if second.line() < all.first.line() {
                let (line, first) = (second.line(), all.first.line());
                let reason = format!("its lines have {line} bytes, those of the first {first}");
                let message = format!("the second level cannot have smaller lines: {reason}");
                return Err(WrongOption::new(message).into());
            }
            (all.second, all.second_text) = (Some(second), text);
        } else if is_missing {
            all.second_text = "not known, not simulated".into();
        }
        Ok(all)
    }

    /// As [`Geometry::from_options`] for a tool that simulates one level and has no option `--l2`.
    ///
    /// # Errors
    /// As [`Geometry::from_options`].
    pub fn first_level(options: &Options<'_>) -> Result<Self> {
        Self::of(Chosen::from_options(options)?, options)
    }

    /// One level: the chosen one, with the values that `--size`, `--line` and `--ways` replace.
    fn of(chosen: Chosen, options: &Options<'_>) -> Result<Self> {
        let [size, ways, line] = chosen.first;
        let size = options.given_size("--size")?.unwrap_or(size);
        let ways = options.given_size("--ways")?.unwrap_or(ways);
        let line = options.given_size("--line")?.unwrap_or(line);
        let origin = chosen.origin;
        let (first, first_text) = Shape::of(size, ways, line, MAX_LINES).map_err(|e| {
            let given = "with --size, --ways and --line as given";
            WrongOption::new(format!("the cache ({origin}, {given}): {e}"))
        })?;
        Ok(Self {
            first,
            first_text,
            second: None,
            second_text: String::new(),
            origin,
        })
    }
}

/// The value of `--l2`.
fn parsed(text: &str) -> Result<[u64; 3]> {
    let parts: Vec<Option<u64>> = text.split(',').map(bytes).collect();
    match parts[..] {
        [Some(size), Some(ways), Some(line)] => Ok([size, ways, line]),
        _ => {
            let message = format!("--l2 takes SIZE,WAYS,LINE, such as 256k,8,64, not `{text}`");
            Err(WrongOption::new(message).into())
        }
    }
}

/// A number, perhaps with `k` or `m` after it.
fn bytes(text: &str) -> Option<u64> {
    let lower = text.trim().to_ascii_lowercase();
    let digits = lower.trim_end_matches(['k', 'm']);
    let factor = match &lower[digits.len()..] {
        "" => 1,
        "k" => 1 << 10,
        "m" => 1 << 20,
        _ => return None,
    };
    let number = digits.parse::<u64>().ok()?.checked_mul(factor)?;
    (number != 0).then_some(number)
}

/// A cache of the machine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Level {
    level: u64,
    /// Whether it has data; else only instructions.
    has_data: bool,
    /// Size, ways, line.
    shape: [u64; 3],
}

/// The caches of this machine.
struct Machine {
    first: [u64; 3],
    second: Option<[u64; 3]>,
    third: Option<[u64; 3]>,
    by: &'static str,
}

impl Machine {
    fn find() -> Option<Self> {
        Self::of(&system(Path::new(SYSTEM)), SYSTEM).or_else(|| Self::of(&processor(), "cpuid"))
    }

    fn of(levels: &[Level], by: &'static str) -> Option<Self> {
        let at = |level: u64| {
            let found = levels.iter().find(|l| l.level == level && l.has_data);
            found.map(|l| l.shape)
        };
        Some(Self {
            first: at(1)?,
            second: at(2),
            third: at(3),
            by,
        })
    }

    /// Sizes in bytes of all levels.
    fn sizes(&self) -> Vec<u64> {
        let further = [self.second, self.third].into_iter().flatten();
        [self.first]
            .into_iter()
            .chain(further)
            .map(|c| c[0])
            .collect()
    }

    fn origin(&self) -> String {
        let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let line = info.lines().find(|line| line.starts_with("model name"));
        let name = line.and_then(|line| line.split_once(": "));
        let name = name.map_or("model not known", |(_, name)| name.trim());
        format!("this machine ({name}), by {}", self.by)
    }
}

/// The caches that Linux describes in a folder.
fn system(folder: &Path) -> Vec<Level> {
    let cache = |number: u32| {
        let read = |name: &str| {
            let text = fs::read_to_string(folder.join(format!("index{number}/{name}")));
            text.ok().map(|text| text.trim().to_owned())
        };
        Some(Level {
            level: read("level")?.parse().ok()?,
            has_data: read("type")? != "Instruction",
            shape: [
                bytes(&read("size")?)?,
                bytes(&read("ways_of_associativity")?)?,
                bytes(&read("coherency_line_size")?)?,
            ],
        })
    };
    (0..MOST).filter_map(cache).collect()
}

/// The caches that the processor describes.
fn processor() -> Vec<Level> {
    const INTEL: u32 = 4;
    const AMD: u32 = 0x8000_001d;
    let leaf = |leaf: u32| {
        let largest = __cpuid(leaf & 0x8000_0000).eax;
        let caches = (0..MOST).map(|n| __cpuid_count(leaf, n));
        let caches = caches.map(|r| level([r.eax, r.ebx, r.ecx]));
        let caches: Vec<Level> = caches.map_while(|level| level).collect();
        if largest < leaf { Vec::new() } else { caches }
    };
    let found = leaf(INTEL);
    if found.is_empty() { leaf(AMD) } else { found }
}

/// A cache by the registers eax, ebx, ecx of its leaf; `None` after the last one.
fn level([eax, ebx, ecx]: [u32; 3]) -> Option<Level> {
    const INSTRUCTIONS: u32 = 2;
    let kind = eax & 0x1f;
    let field = |value: u32, shift: u32, mask: u32| u64::from(value >> shift & mask) + 1;
    let (line, parts, ways) = (
        field(ebx, 0, 0xfff),
        field(ebx, 12, 0x3ff),
        field(ebx, 22, 0x3ff),
    );
    let sets = u64::from(ecx) + 1;
    (kind != 0).then_some(Level {
        level: u64::from(eax >> 5 & 7),
        has_data: kind != INSTRUCTIONS,
        shape: [line * parts * ways * sets, ways, line],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_with_units() {
        assert_eq!(bytes("256k"), Some(256 << 10));
        assert_eq!(bytes("48K\n"), Some(48 << 10));
        assert_eq!(bytes("2M"), Some(2 << 20));
        assert_eq!(bytes("64"), Some(64));
        assert_eq!((bytes("0"), bytes("k"), bytes("1kk")), (None, None, None));
        assert_eq!(parsed("1m,16,64").unwrap(), [1 << 20, 16, 64]);
        assert!(parsed("1m,16").is_err());
        assert_eq!(named_sizes("48k,2M,100").unwrap(), [48 << 10, 2 << 20, 100]);
        assert!(
            ["", "1x", "1,2,3,4,5"]
                .iter()
                .all(|t| named_sizes(t).is_err())
        );
        let short = [48 << 10, 1280 << 10, 32 << 20, 3 << 30, 100].map(short_size);
        assert_eq!(short, ["48K", "1280K", "32M", "3G", "100"]);
    }

    #[test]
    fn registers_of_the_processor() {
        // 48 KiB of data in 12 ways and 64 sets, as an Ice Lake says; then nothing.
        let data = level([0x0400_4121, 0x02c0_003f, 0x3f]).unwrap();
        assert_eq!((data.level, data.has_data), (1, true));
        assert_eq!(data.shape, [48 << 10, 12, 64]);
        let code = level([0x0400_4122, 0x01c0_003f, 0x3f]).unwrap();
        assert_eq!((code.has_data, code.shape), (false, [32 << 10, 8, 64]));
        assert_eq!(level([0, 0, 0]), None);
    }

    #[test]
    fn folders_of_linux() {
        let folder = std::env::temp_dir().join(format!("atom-caches-{}", std::process::id()));
        let caches = [
            ["1", "Data", "32K", "8", "64"],
            ["1", "Instruction", "64K", "4", "64"],
            ["2", "Unified", "512K", "8", "64"],
            ["3", "Unified", "32768K", "16", "64"],
        ];
        let names = [
            "level",
            "type",
            "size",
            "ways_of_associativity",
            "coherency_line_size",
        ];
        for (number, values) in caches.iter().enumerate() {
            let index = folder.join(format!("index{number}"));
            fs::create_dir_all(&index).unwrap();
            for (name, value) in names.iter().zip(values) {
                fs::write(index.join(name), format!("{value}\n")).unwrap();
            }
        }
        let levels = system(&folder);
        fs::remove_dir_all(&folder).unwrap();
        let machine = Machine::of(&levels, "test").unwrap();
        assert_eq!(machine.first, [32 << 10, 8, 64]);
        assert_eq!(machine.second, Some([512 << 10, 8, 64]));
        assert_eq!(machine.sizes(), [32 << 10, 512 << 10, 32 << 20]);
        assert!(Machine::of(&levels[1..], "test").is_none());
    }
}
