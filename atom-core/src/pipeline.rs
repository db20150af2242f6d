//! The stages in order, for callers that need no progress between them.
//!
//! Each stage is one function that takes the values of the stages before it:
//!
//! | stage | function | value |
//! | --- | --- | --- |
//! | image | [`Image::open`] | [`Image`] |
//! | unwind | [`Image::unwind_table`] | [`UnwindTable`](crate::unwind::UnwindTable) |
//! | cfg | [`layout::understand`] | [`Object`] (file, exception tables, code) and [`Sites`] |
//! | tool | [`Tool::instrument`](crate::tool::Tool::instrument) | [`Calls`](crate::tool::Calls) |
//! | analysis | [`AnalysisImage::read`](crate::analysis::AnalysisImage::read) | [`AnalysisImage`](crate::analysis::AnalysisImage) |
//! | live | [`Live::compute`](crate::live::Live::compute) | [`Live`](crate::live::Live) |
//! | plan | [`Plan::build`](crate::plan::Plan::build) | [`Plan`](crate::plan::Plan) |
//! | layout | [`Placed::new`] | [`Placed`] (the object, its plan and every new address) |
//! | rewrite | [`rewrite::code`] | [`Code`](rewrite::Code) |
//! | emit | [`emit::write`](crate::emit::write()) | [`Output`](crate::emit::Output) |
//!
//! The command calls them one by one, since it shows each with its time and runs *live* beside
//! *tool*. Several objects can go through the stages side by side: no value is shared.

use crate::cfg::{Object, Returns};
use crate::emit::{self, debug};
use crate::error::Result;
use crate::image::Image;
use crate::layout::{self, Placed, Sites};
use crate::rewrite;

/// The object in a file, and the places of its pads if everything moves.
pub fn understand(image: &Image) -> Result<(Object<'_>, Sites)> {
    layout::understand(image, image.unwind_table()?, Returns::New)
}

/// The contents of the output file. `with_debug`: with debug information for the new text.
pub fn output(placed: &Placed<'_>, with_debug: bool) -> Result<Vec<u8>> {
    let code = rewrite::code(placed)?;
    let debug = match with_debug {
        true => debug::build(placed),
        false => Vec::new(),
    };
    emit::write(placed, code, &debug)?.to_vec()
}
