//! Which addresses the new segments get.
//!
//! They must not make anything of the original move. What that takes depends on what chooses the
//! addresses at run time:
//!
//! - A program at fixed addresses, and a position-independent one with a
//!   program interpreter, is placed by its lowest segment. The new segments
//!   are above it, after a gap in which the heap keeps its place.
//! - A static position-independent program is placed by the kernel like a
//!   `mmap` of all of its segments: as high as possible, so that the *end* of
//!   the highest one is what stays. The new segments are below it, after a gap
//!   in which the program's own maps and the vDSO keep their places; the
//!   heap is elsewhere (the kernel keeps it out of the way of such maps).
//!
//! In a static program at unusually high fixed addresses the new segments are below the image, too:
//! code above the image could not reach address 0, to which undefined weak symbols resolve. They are near to the image
//! if they fit there: such a program may keep low addresses free for another that it loads (Valgrind).
//!
//! Addresses below a position-independent image are negative, that is, they
//! wrap around. All arithmetic that mixes them with the image's own addresses
//! wraps too. The kernel refuses such addresses in a program header, so in the
//! file's program headers every address is shifted up by [`Region::shift`];
//! relocations, the dynamic section and the headers that libc gets to see
//! (`emit::libc_view`) are not: startup code computes the load address from
//! them, so it finds the image's own.

use std::ops::Range;

use crate::PAGE;
use crate::error::{Error, Result};
use crate::image::{Image, ObjectKind};

use super::GAP;

/// Usable reach in bytes of a relative operand, a little less than 2 GiB.
const REACH: u64 = 0x7fff_0000;

/// Lowest address of a high image. Above a high image, after the gap, little space is left from
/// which code reaches address 0.
const HIGH: u64 = 0x1000_0000;

/// Lowest address for new segments; below it the kernel may refuse mappings.
const LOWEST: u64 = 0x10_0000;

/// Distance in bytes below a high image at which the new segments start, if they fit there.
const NEAR_BELOW: u64 = 0x1000_0000;

/// Size of a huge page in bytes. Some file systems align large maps of files to huge pages: the
/// address is then congruent to the file offset modulo this size.
const HUGE_PAGE: u64 = 2 << 20;

/// Address from which maps grow down without randomisation, at the stack's usual limit. With
/// randomisation the addresses of two runs differ anyway.
const MAPS_TOP: u64 = 0x7fff_f7ff_f000;

/// The addresses and the file offset for the new segments.
#[derive(Clone, Copy, Debug)]
pub struct Region {
    /// First link-time address.
    pub start: u64,
    /// Largest size in bytes.
    pub size: u64,
    /// True if the region is below the image.
    pub is_below: bool,
    /// Value that is added to every address in the file's program headers.
    pub shift: u64,
    /// Offset in the file of the first new segment.
    pub file_offset: u64,
    /// Start of the tool's writable data, if the user wants it at an address.
    pub data: Option<u64>,
}

/// Distances in bytes from the image, each for new segments that do not fit after the one before it. After the second the
/// heap has less space to grow. The third is within the range of the heap's random start, so the heap starts after the
/// segments, where the kernel puts it.
const GAPS: [u64; 3] = [GAP, 0x4400_0000, 0x400_0000];

/// Addresses that the user wants.
#[derive(Clone, Copy, Debug, Default)]
pub struct RequestedAddresses {
    /// Start of the new text, a link-time address.
    pub text: Option<u64>,
    /// Start of the tool's writable data, a link-time address.
    pub data: Option<u64>,
    /// All addresses below 4 GiB.
    pub low: bool,
}

/// End of the addresses above the image that new segments may have. Code there reaches all of the
/// image and, in a static program at fixed addresses, address 0.
fn limit(image: &Image) -> u64 {
    let lowest = match image.kind {
        ObjectKind::StaticExecutable => 0,
        _ => image.base,
    };
    lowest + REACH
}

/// True for a program at such high fixed addresses that the new segments are below it.
fn is_high(image: &Image) -> bool {
    image.kind == ObjectKind::StaticExecutable && image.base >= HIGH
}

impl Region {
    /// Chooses the region for a program.
    pub fn of(image: &Image) -> Self {
        let align = image
            .program_headers
            .iter()
            .filter(|p| p.kind == object::elf::PT_LOAD && p.align.is_power_of_two())
            .map(|p| p.align)
            .fold(PAGE, u64::max);
        let length = image.file.len() as u64;
        let fits = align <= HUGE_PAGE && image.base < GAP && image.base.is_multiple_of(align);
        if image.kind == ObjectKind::StaticPie && fits {
            return Self::below(image, align, length.next_multiple_of(align));
        }
        let file_offset = length.next_multiple_of(PAGE);
        if !image.kind.is_program() {
            // No heap follows an object that a loader, or the kernel for a program, maps.
            let start = image.end.next_multiple_of(PAGE);
            return Self {
                start,
                size: limit(image).saturating_sub(start),
                is_below: false,
                shift: 0,
                file_offset,
                data: None,
            };
        }
        if is_high(image) {
            return Self::below_high(image, NEAR_BELOW, file_offset);
        }
        let start = (image.end + GAP).next_multiple_of(PAGE);
        Self {
            start,
            size: limit(image).saturating_sub(start),
            is_below: false,
            shift: 0,
            file_offset,
            data: None,
        }
    }

    /// The region at these addresses above the image, as in its file. Fails if code there does not reach all of the image.
    pub fn placed(image: &Image, place: &Range<u64>) -> Result<Self> {
        let end = place.end.min(limit(image));
        if place.start < image.end || end <= place.start {
            let reason = "the free addresses are too far from it";
            return Err(Error::new("choosing addresses for the new text", reason).file(&image.path));
        }
        Ok(Self {
            start: place.start,
            size: end - place.start,
            is_below: false,
            shift: 0,
            file_offset: (image.file.len() as u64).next_multiple_of(PAGE),
            data: None,
        })
    }

    /// The region that the user wants. Fails if the addresses are not possible.
    pub fn wanted(image: &Image, requested: &RequestedAddresses) -> Result<Self> {
        let mut region = Self::of(image);
        let refuse = |reason: &str, advice: String| {
            Err(Error::new("choosing addresses for the new text", reason)
                .file(&image.path)
                .advice(advice))
        };
        if requested.low && image.kind.is_position_independent() {
            return refuse(
                "a position-independent program is placed by the kernel, far above 4 GiB",
                "link the program with -no-pie to have 32-bit addresses".into(),
            );
        }
        if (requested.text.is_some() || requested.data.is_some()) && region.shift != 0 {
            return refuse(
                "a static position-independent program is placed by its end, \
                 so the distance to its new text is not free",
                "leave the address out".into(),
            );
        }
        if let Some(text) = requested.text {
            let first = image.end.next_multiple_of(PAGE);
            let last = limit(image);
            if !text.is_multiple_of(PAGE) {
                return refuse(
                    &format!("{text:#x} is not the start of a page"),
                    format!(
                        "the nearest pages start at {:#x} and {:#x}",
                        text / PAGE * PAGE,
                        text.saturating_add(PAGE) / PAGE * PAGE
                    ),
                );
            }
            if region.is_below {
                if !(LOWEST..image.base).contains(&text) {
                    return refuse(
                        &format!("{text:#x} is outside of what this program's code reaches"),
                        format!(
                            "it may be from {LOWEST:#x} up to the image at {:#x}",
                            image.base
                        ),
                    );
                }
                region.size = image.base - text;
            } else {
                if !(first..last).contains(&text) {
                    return refuse(
                        &format!("{text:#x} is outside of what this program's code reaches"),
                        format!("it may be from {first:#x}, the image's end, up to {last:#x}"),
                    );
                }
                region.size = last - text;
            }
            region.start = text;
        }
        if requested.low {
            region.size = region.size.min((1 << 32) - region.start.min(1 << 32));
        }
        if let Some(data) = requested.data {
            if !data.is_multiple_of(PAGE)
                || data <= region.start
                || data - region.start >= region.size
            {
                let last = region.start + region.size;
                return refuse(
                    &format!("new data cannot start at {data:#x}"),
                    format!(
                        "it may be the start of a page behind the new text, which starts at {:#x}, up to {last:#x}",
                        region.start
                    ),
                );
            }
            region.data = Some(data);
        }
        Ok(region)
    }

    /// Bytes of the region of a program that certainly are below 2 GiB.
    pub fn low_space(&self, image: &Image) -> u64 {
        let is_fixed = !image.kind.is_position_independent() && self.data.is_none();
        let low = (1u64 << 31).saturating_sub(self.start);
        if is_fixed { low.min(self.size) } else { 0 }
    }

    /// The region that starts at this distance below a high image, or at the lowest address.
    fn below_high(image: &Image, distance: u64, file_offset: u64) -> Self {
        let distance = distance.min(image.base - LOWEST);
        Self {
            start: image.base - distance,
            size: distance,
            is_below: true,
            shift: 0,
            file_offset,
            data: None,
        }
    }

    /// The next region, which has more space: nearer to the program if it is above, farther from it if it is below a high
    /// image. `None` if there is none, or if `self` is not one of the usual ones.
    pub fn larger(&self, image: &Image) -> Option<Self> {
        if is_high(image) {
            let next = Self::below_high(image, GAP, self.file_offset);
            let is_first = self.start == image.base.saturating_sub(NEAR_BELOW);
            let is_usual = is_first && self.data.is_none();
            return (is_usual && next.size > self.size).then_some(next);
        }
        let start_after = |gap: u64| (image.end + gap).next_multiple_of(PAGE);
        let is_usual = image.kind.is_program() && !self.is_below && self.shift == 0;
        let number = GAPS.iter().position(|gap| start_after(*gap) == self.start);
        let gap = GAPS.get(number.filter(|_| is_usual)? + 1)?;
        let start = start_after(*gap);
        Some(Self {
            start,
            size: (self.size + (self.start - start)).min(limit(image).saturating_sub(start)),
            ..*self
        })
    }

    /// True if the heap has less space than usual before it meets the new segments.
    pub fn is_near(&self, image: &Image) -> bool {
        image.kind.is_program() && !self.is_below && self.start < image.end + GAP
    }

    /// True if there is space for the heap's random start before the new segments.
    pub fn has_heap_before(&self, image: &Image) -> bool {
        !self.is_below && self.start >= image.end + GAPS[1]
    }

    /// The region such that the kernel, whether or not it aligns to huge pages,
    /// puts the image where the original is.
    fn below(image: &Image, align: u64, file_offset: u64) -> Self {
        let span = image.end.next_multiple_of(PAGE) - image.base;
        let mut home = MAPS_TOP - span;
        if span >= HUGE_PAGE {
            let first = image.segments[0].offset & !(PAGE - 1);
            // This is for file systems that align maps; for others any distance serves.
            home -= home.wrapping_sub(first) & (HUGE_PAGE - 1);
        }
        home -= home % align;
        let distance = GAP + (home.wrapping_sub(file_offset) & (HUGE_PAGE - 1));
        let start = image.base.wrapping_sub(distance);
        Self {
            start,
            size: GAP,
            is_below: true,
            shift: start.wrapping_neg(),
            file_offset,
            data: None,
        }
    }
}
