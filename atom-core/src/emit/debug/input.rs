//! The debug sections of one file.

use std::borrow::Cow;

use crate::image::debug_section::section;

macro_rules! sections {
    ($($field:ident $name:literal,)*) => {
        /// Contents of debug sections, empty where there is none.
        #[derive(Default)]
        pub(super) struct Input<'d> {
            $(pub $field: Cow<'d, [u8]>,)*
        }

        impl<'d> Input<'d> {
            /// Reads the sections of a file; `None` if it has no entries.
            pub fn read(data: &'d [u8]) -> Option<Self> {
                let file = object::File::parse(data).ok()?;
                let input = Self {
                    $($field: section(&file, $name).unwrap_or_default(),)*
                };
                (!input.info.is_empty()).then_some(input)
            }
        }
    };
}

sections! {
    abbrev ".debug_abbrev",
    addr ".debug_addr",
    info ".debug_info",
    line ".debug_line",
    line_str ".debug_line_str",
    loc ".debug_loc",
    loclists ".debug_loclists",
    macinfo ".debug_macinfo",
    macros ".debug_macro",
    ranges ".debug_ranges",
    rnglists ".debug_rnglists",
    str ".debug_str",
    str_offsets ".debug_str_offsets",
    types ".debug_types",
    altlink ".gnu_debugaltlink",
}
