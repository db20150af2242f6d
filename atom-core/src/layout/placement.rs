//! Addresses of the parts of the new segments after the new text.

use atom_abi::StartInfo;
use object::elf;

use crate::PAGE;
use crate::analysis::AnalysisImage;
use crate::cfg::Object;
use crate::error::{Error, Result};
use crate::image::Image;
use crate::plan::Plan;
use crate::unwind::go::{self, write::GoBlob};
use crate::unwind::write::{self, Additions, AddressMap, MovedRange, UnwindBlobs};

use super::text_table::{self, TextBlob};
use super::{Area, Frames, Layout, start_size};

/// Addresses of the parts of the new segments, all link-time.
#[derive(Debug, Default)]
pub struct Placement {
    /// Exception tables for old and new text; `None` if the program has none
    /// or nothing moved.
    pub unwind: Option<UnwindBlobs>,
    /// Go's tables for old and new text; `None` if the program has none or nothing moved.
    pub go: Option<GoBlob>,
    /// What lets moved procedures run in place again; `None` if nothing moved or there is no tool.
    pub text: Option<TextBlob>,
    /// Copy of the program's `DT_RELA` table with new relocations; `None` if not needed.
    pub rela: Option<u64>,
    /// The strings of the dynamic section; `None` if they stay where they are.
    pub strings: Option<u64>,
    /// Table of the writable slots that need the load bias.
    pub relocs: u64,
    /// Space for a moved program header table.
    pub headers: u64,
    /// Space for the path of the process's own program interpreter; `None` if it is not another one.
    pub interpreter: Option<u64>,
    /// The program headers that a static program's libc sees; `None` if it sees
    /// those of the file.
    pub libc_headers: Option<u64>,
    /// Address of the analysis image: the address at which the tool's address 0 is.
    pub analysis: u64,
    /// End of the read-execute segment.
    pub rx_end: u64,
    /// Start of the read-write segment.
    pub rw: u64,
    /// The plan's data.
    pub data: u64,
    /// A slot in the plan's data that the dynamic loader relocates before the program's own slots, if
    /// there is one.
    pub early: Option<u64>,
    /// The `StartInfo`; 0 without a tool.
    pub info: u64,
    /// The preinit array; 0 if there is none.
    pub preinit: u64,
    /// Number of entries of the preinit array.
    pub preinit_count: u64,
    /// The start-up code's flag.
    pub flag: u64,
    /// A moved dynamic section; `None` if it stays.
    pub dynamic: Option<u64>,
    /// Size in bytes of the moved dynamic section.
    pub dynamic_size: u64,
    /// End of the read-write segment.
    pub end: u64,
    /// Upper bound of the number of slots in the table at `relocs`.
    pub reloc_capacity: u64,
}

/// Addresses outside the new text to which inserted code refers.
#[derive(Clone, Copy, Debug, Default)]
pub struct BaseAddresses<'a> {
    /// Address of the analysis image, see [`Placement::analysis`].
    pub analysis: u64,
    /// Address of the plan's data.
    pub data: u64,
    /// The area of the process, if the tool is there.
    pub area: Option<&'a Area>,
}

/// Hands out addresses in ascending order.
struct Cursor(u64);

impl Cursor {
    fn take(&mut self, align: u64, size: u64) -> u64 {
        let at = self.0.next_multiple_of(align);
        self.0 = at + size;
        at
    }
}

impl Placement {
    /// Places everything after the text of `layout`.
    pub fn new(
        object: &Object<'_>,
        plan: &Plan,
        analysis: Option<&AnalysisImage>,
        area: Option<&Area>,
        (layout, light): (&Layout, Option<&Layout>),
    ) -> Result<Self> {
        let image = object.image;
        let mut p = Self::default();
        let mut cursor = Cursor(layout.end);
        p.tables(
            object,
            plan,
            analysis,
            (layout, light, area.is_some()),
            &mut cursor,
        )?;
        p.headers = cursor.take(64, 56 * (image.program_headers.len() as u64 + 4));
        if let Some(area) = area
            && image.kind.is_dynamic_program()
        {
            p.interpreter = Some(cursor.take(8, area.loader.as_os_str().len() as u64 + 1));
        }
        if image.kind.is_static() {
            p.libc_headers = Some(cursor.take(64, 56 * (image.program_headers.len() as u64 + 2)));
        }
        let hook_preinit = image.kind.is_dynamic_program();
        if hook_preinit {
            p.preinit_count = 1 + image.dynamic_value(elf::DT_PREINIT_ARRAYSZ).unwrap_or(0) / 8;
            let mut ours = preinit_relocs(image).count() as u64;
            if image.kind.is_position_independent() {
                ours = p.preinit_count + u64::from(plan.early_reloc.is_some());
            }
            if image.kind.is_position_independent() || ours != 0 {
                let size = image.dynamic_value(elf::DT_RELASZ).unwrap_or(0);
                p.rela = Some(cursor.take(16, size + 24 * ours));
            }
        }
        if let (true, Some(strings)) = (image.is_started_by_loader(), &image.strings) {
            p.strings = Some(cursor.take(8, strings.bytes.len() as u64));
        }
        p.reloc_capacity = if image.kind.is_position_independent() {
            analysis.map_or(0, |a| a.relocations.len() as u64 + 16) + plan.data_relocs.len() as u64
        } else {
            0
        };
        p.relocs = cursor.take(16, 4 * p.reloc_capacity);
        if let Some(data) = layout.region.data {
            cursor.0 = before_data(image, cursor.0, data, analysis)?;
        }
        if let Some(a) = analysis {
            p.analysis = cursor.take(PAGE, a.text.len() as u64);
            if let Some(blobs) = &mut p.unwind {
                blobs.place_tool(p.analysis)?;
            }
            p.rx_end = cursor.0;
            p.rw = p.analysis + a.data_start;
            cursor.0 = p.analysis + a.end();
        } else {
            p.rx_end = cursor.0;
            cursor.0 = cursor.0.next_multiple_of(PAGE);
            p.rw = cursor.0;
        }
        // A tool may map other memory over a table (`program.marks`), and memory is mapped by pages.
        p.data = cursor.take(PAGE, plan.data.len() as u64);
        if hook_preinit && image.kind.is_position_independent() {
            p.early = plan.early_reloc.map(|slot| p.data + u64::from(slot));
        }
        if analysis.is_some() {
            p.info = cursor.take(64, size_of::<StartInfo>() as u64);
        }
        if analysis.is_some() {
            // The flag, and the slot of `StartFacts::exit_return`.
            p.flag = cursor.take(8, 16);
        }
        if hook_preinit {
            p.preinit = cursor.take(8, 8 * p.preinit_count);
        }
        if needs_new_dynamic(image, analysis.is_some()) {
            // With all new tags, and the null that ends it.
            p.dynamic_size = 16 * (image.dynamic.len() as u64 + NEW_TAGS + 1);
            p.dynamic = Some(cursor.take(16, p.dynamic_size));
        }
        // The segment goes to the end of the page: musl's loader gives the rest of a writable
        // segment's last page to malloc, which would change its results.
        p.end = cursor.0.next_multiple_of(PAGE);
        if p.end.wrapping_sub(layout.start) > layout.region.size {
            return Err(Error::too_large("placing the new segments", "they do").file(&image.path));
        }
        Ok(p)
    }

    /// Writes the tables by which return addresses are looked up, and places them.
    fn tables(
        &mut self,
        object: &Object<'_>,
        plan: &Plan,
        analysis: Option<&AnalysisImage>,
        (layout, light, is_whole): (&Layout, Option<&Layout>, bool),
        cursor: &mut Cursor,
    ) -> Result<()> {
        let (image, cfg, table) = (object.image, &object.cfg, &object.unwind);
        let frames_of = |layout| Frames {
            image,
            cfg,
            plan,
            layout,
            unwind: table,
        };
        let moved = layout.moved_ranges(cfg);
        let tool_table = analysis.and_then(AnalysisImage::unwind_table);
        if !table.fdes.is_empty() && (!moved.is_empty() || analysis.is_some()) {
            let frames = frames_of(layout);
            let light = light.map(frames_of);
            let (own, mut entries) = rayon::join(|| frames.own(), || frames.entries());
            let described = frames.ranges();
            let mut copies: Vec<(Vec<MovedRange>, &dyn AddressMap)> = vec![(described, &frames)];
            if let Some(light) = &light {
                entries.extend(light.entries());
                copies.push((light.ranges(), light));
            }
            let additions = Additions {
                own: &own,
                entries: &entries,
                start: Some((layout.start, layout.start + start_size(image.kind))),
                tool: tool_table.as_ref(),
            };
            let blobs = write::build_with(table, &copies, &additions, layout.end)?;
            cursor.0 = blobs.eh_frame_hdr.end();
            self.unwind = Some(blobs);
        }
        if let Some(go) = table.go.as_ref().filter(|_| !moved.is_empty()) {
            let frames = frames_of(layout);
            let blob = go::write::build(go, &frames.moved_procedures(), &frames, cursor.0)?;
            cursor.0 = blob.end();
            self.go = Some(blob);
        }
        if !moved.is_empty() && (analysis.is_some() || is_whole) {
            let address = cursor.0.next_multiple_of(8);
            let blob = text_table::build(object, plan, (layout, light), address);
            cursor.0 = blob.end();
            self.text = Some(blob);
        }
        Ok(())
    }

    /// The addresses to which inserted code refers.
    pub fn bases<'a>(&self, area: Option<&'a Area>) -> BaseAddresses<'a> {
        BaseAddresses {
            analysis: area.map_or(self.analysis, |a| a.start),
            data: area.map_or(self.data, |a| a.data),
            area,
        }
    }

    /// True if the read-write segment is not empty.
    pub fn has_rw(&self) -> bool {
        self.end > self.rw
    }
}

/// Largest number of unused bytes in front of data at a wanted address.
const MAX_UNUSED: u64 = 64 << 20;

/// Relocations of the program's own preinit array that the loader has to look
/// up (a function of a library, as AddressSanitizer's is): its copy needs them too.
pub(crate) fn preinit_relocs(image: &Image) -> impl Iterator<Item = &crate::image::Reloc> {
    let start = image.dynamic_value(elf::DT_PREINIT_ARRAY).unwrap_or(0);
    let size = image.dynamic_value(elf::DT_PREINIT_ARRAYSZ).unwrap_or(0);
    let range = start..start.saturating_add(size);
    image
        .relocs
        .iter()
        .filter(move |r| range.contains(&r.address) && r.kind != elf::R_X86_64_RELATIVE)
}

/// Address after `cursor` at which the tool's code goes, so that the writable data starts at `data`.
/// A tool's code reaches its data by fixed distances, so both move together.
fn before_data(
    image: &Image,
    cursor: u64,
    data: u64,
    analysis: Option<&AnalysisImage>,
) -> Result<u64> {
    let code = analysis.map_or(0, |a| a.data_start);
    let first = cursor.next_multiple_of(PAGE) + code;
    if data < first || (analysis.is_some() && data - first > MAX_UNUSED) {
        let last = first + MAX_UNUSED;
        return Err(Error::new(
            "choosing addresses for the new text",
            format!("new data cannot start at {data:#x}"),
        )
        .file(&image.path)
        .advice(format!(
            "with this tool it may start from {first:#x} to {last:#x}: \
             the new text and the tool's code lie in front of it"
        )));
    }
    Ok(data - code)
}

/// Largest number of tags that the output has and the original lacks: those of the preinit array, of relocations, and `DT_FINI`.
const NEW_TAGS: u64 = 6;

/// Tags that the output needs and the original lacks, against the spare ones.
fn needs_new_dynamic(image: &Image, has_tool: bool) -> bool {
    if !image.is_started_by_loader() {
        return false;
    }
    let lacks = |tag: elf::DynamicTag| usize::from(image.dynamic_value(tag).is_none());
    let mut wanted = 0;
    if image.is_lone {
        wanted += lacks(elf::DT_INIT);
    } else if image.dynamic_value(elf::DT_PREINIT_ARRAY).is_none() {
        wanted += 2;
    }
    if !image.is_lone
        && image.kind.is_position_independent()
        && image.dynamic_value(elf::DT_RELA).is_none()
    {
        wanted += 3;
    }
    if has_tool {
        wanted += lacks(elf::DT_FINI);
    }
    let size = image
        .program_headers
        .iter()
        .find(|p| p.kind == elf::PT_DYNAMIC)
        .map_or(0, |p| p.file_size as usize / 16);
    // One DT_NULL must remain.
    image.dynamic.len() + wanted + 1 > size
}
