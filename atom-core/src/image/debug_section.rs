//! Sections of debug information, which may be compressed.

use std::borrow::Cow;
use std::io::Read;

use object::{CompressionFormat, Object, ObjectSection};

use super::Image;

/// Largest size in bytes of a decompressed section; larger sections are ignored.
const MAX_SECTION: u64 = 2 << 30;

/// The contents of a section of an object's file; `None` if there is none.
pub(crate) fn contents(image: &Image, name: &str) -> Option<Vec<u8>> {
    let file = object::File::parse(&image.file[..]).ok()?;
    Some(section(&file, name)?.into_owned())
}

/// Contents of a debug section, decompressed.
pub(crate) fn section<'d>(file: &object::File<'d>, name: &str) -> Option<Cow<'d, [u8]>> {
    // Older GNU tools mark a compressed section by its name.
    let section = file
        .section_by_name(name)
        .or_else(|| file.section_by_name(&name.replace(".debug", ".zdebug")))?;
    let contents = section.compressed_data().ok()?;
    // One byte more than announced, so that a liar is noticed.
    let limit = contents.uncompressed_size.min(MAX_SECTION) + 1;
    let mut out = Vec::new();
    match contents.format {
        CompressionFormat::None => return Some(Cow::Borrowed(contents.data)),
        CompressionFormat::Zlib => {
            flate2::read::ZlibDecoder::new(contents.data)
                .take(limit)
                .read_to_end(&mut out)
                .ok()?;
        }
        CompressionFormat::Zstandard => {
            let decoder = ruzstd::decoding::StreamingDecoder::new(contents.data).ok()?;
            decoder.take(limit).read_to_end(&mut out).ok()?;
        }
        _ => return None,
    }
    (out.len() as u64 == contents.uncompressed_size).then_some(Cow::Owned(out))
}
