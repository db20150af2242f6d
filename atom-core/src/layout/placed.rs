//! An object with its plan and every new address of it.

use atom_abi::boundaries::{MARK, MARK_KEPT};

use crate::analysis::AnalysisImage;
use crate::cfg::Object;
use crate::error::{ErrorKind, Result};
use crate::ids::BlockId;
use crate::memory;
use crate::plan::Plan;

use super::{Area, Layout, MovedSet, Options, Placement, Sites, accesses, boundaries, return_map};

/// An object, what is inserted into it, and where all of that is: everything that the
/// later stages need to write the output. No address changes any more.
pub struct Placed<'a> {
    /// The original.
    pub object: &'a Object<'a>,
    /// The inserted code.
    pub plan: &'a Plan,
    /// The tool's code and data, if there is a tool.
    pub analysis: Option<&'a AnalysisImage>,
    /// The area of the process, if the tool is there and not in this object.
    pub area: Option<&'a Area>,
    /// The new text.
    pub layout: Layout,
    /// The light version of its procedures, if there is one.
    pub light: Option<Layout>,
    /// The addresses after the new text.
    pub placement: Placement,
}

impl<'a> Placed<'a> {
    /// Places everything. `sites` are the places of pads if everything moves. If the parts do not
    /// fit into the wanted region, they are placed in a region nearer to the original, if there is
    /// one; `layout.region` is the region in use.
    pub fn new(
        object: &'a Object<'a>,
        plan: &'a Plan,
        analysis: Option<&'a AnalysisImage>,
        sites: Sites,
        options: &Options<'a>,
    ) -> Result<Self> {
        let (image, cfg) = (object.image, &object.cfg);
        let region = options.region_of(image);
        let place = |sites, options: &Options<'a>| -> Result<Self> {
            let mut layout = Layout::new(object, plan, sites, options)?;
            let light = finish(&mut layout, object, plan)?;
            image.release_pages();
            memory::give_back();
            let versions = (&layout, light.as_ref());
            let placement = Placement::new(object, plan, analysis, options.area, versions)?;
            Ok(Self {
                object,
                plan,
                analysis,
                area: options.area,
                layout,
                light,
                placement,
            })
        };
        // In a program at fixed addresses the area, if there is one, is below the usual region.
        let is_free = image.kind.is_position_independent() || options.area.is_none();
        let mut larger = region.larger(image).filter(|_| is_free);
        let mut placed = place(sites, options);
        while let (Err(error), Some(region)) = (&placed, larger)
            && error.kind == ErrorKind::TooLarge
        {
            larger = region.larger(image);
            let options = Options {
                region: Some(region),
                ..*options
            };
            placed = place(Sites::new(image, cfg, &MovedSet::all(cfg)), &options);
        }
        placed
    }

    /// The version to which control comes from outside, but for blocks of which [`Self::front_at`] says otherwise.
    pub fn front(&self) -> &Layout {
        self.light.as_ref().unwrap_or(&self.layout)
    }

    /// The version to which a block's pad leads, and all other control that comes to it from outside: one that tests there.
    pub fn front_at(&self, block: BlockId) -> &Layout {
        match self.plan.full_fronts.binary_search(&block) {
            Ok(_) => &self.layout,
            Err(_) => self.front(),
        }
    }

    /// The versions of the new text, in the order of their addresses.
    pub fn versions(&self) -> impl Iterator<Item = &Layout> {
        std::iter::once(&self.layout).chain(&self.light)
    }
}

/// Lays out what is after the code of the full version: the light version, if the plan has one, and the tables by which addresses
/// of the new text are looked up.
fn finish(layout: &mut Layout, object: &Object<'_>, plan: &Plan) -> Result<Option<Layout>> {
    let cfg = &object.cfg;
    let light = plan.light.as_ref().map(|_| layout.light(object, plan));
    let light = light.transpose()?;
    let mut cursor = light.as_ref().map_or(layout.end, |light| light.end);
    let versions = 1 + u64::from(light.is_some());
    if plan.original_return.is_some() || plan.maps_returns {
        let map = cursor.next_multiple_of(8);
        layout.return_map = Some(map);
        let size = return_map::size(cfg, &layout.moved, &layout.sites, versions);
        cursor = map.wrapping_add(size);
    }
    if plan.maps_boundaries {
        let all: Vec<&Layout> = std::iter::once(&*layout).chain(&light).collect();
        let moved = accesses::Moved {
            cfg,
            plan,
            versions: &all,
            // Go's own tables describe the new text.
            mark: if object.unwind.go.is_none() {
                MARK
            } else {
                MARK_KEPT
            },
        };
        let address = cursor.next_multiple_of(8);
        let table = boundaries::table(&moved, address);
        cursor = address.wrapping_add(table.len() as u64);
        layout.boundaries = Some((address, table));
    }
    layout.end = cursor;
    layout.fits(object)?;
    Ok(light)
}
