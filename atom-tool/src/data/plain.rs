//! Plain structures of the tool's own as arguments.
//!
//! The instrument half often has to tell the analysis half several numbers that belong
//! together: an address with its size, a set of options. [`plain_data!`](crate::plain_data)
//! defines a structure that crosses as a whole, so that both halves name its fields.
//!
//! ABI: the bytes of the value are copied into the tool's data in the instrumented program, like
//! the bytes of an array, and the routine gets a pointer to them. Both halves come from one
//! shared object, so they agree on the layout. As bytes are copied, there must be no padding,
//! whose contents would be arbitrary, and no pointer, which would lead into `atom`.

use std::ops::Deref;

use atom_abi::host::{self, ArgKind};

use crate::calls::params::{Element, Param, code};
use crate::calls::typed::{Arg, array};

/// Analysis side: a structure that the instrument routine filled in; use it as a `&'static T`.
/// An argument for it is a reference to a value of a type that
/// [`plain_data!`](crate::plain_data) defines.
#[repr(transparent)]
pub struct Record<T: 'static>(&'static T);

impl<T> Clone for Record<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Record<T> {}

// SAFETY: transparent over a pointer.
unsafe impl<T: Element> Param for Record<T> {
    const CODE: u8 = code::OTHER;
}

impl<T: Element> Record<T> {
    /// The structure, which lives as long as the program runs.
    pub fn get(self) -> &'static T {
        self.0
    }
}

impl<T: Element> Deref for Record<T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.0
    }
}

impl<T: Element> Arg<Record<T>> for &T {
    fn to_host(&self) -> host::Arg {
        array(ArgKind::CArray, std::slice::from_ref(*self))
    }
}

/// Defines a structure, or an enumeration without fields, that may be an argument: by itself
/// for a parameter [`Record<T>`](crate::Record), in a slice for an [`Array<T>`](crate::Array).
/// It gets `Clone` and `Copy`; an enumeration is represented as a `u32`.
///
/// ```
/// use atom_tool::prelude::*;
///
/// plain_data! {
///     /// How a range of addresses is found.
///     enum Found {
///         InImage,
///         Absolute,
///     }
///
///     /// A range of addresses.
///     struct Range {
///         start: u64,
///         /// In bytes.
///         size: u32,
///         found: Found,
///     }
///
///     struct Settings {
///         innermost: bool,
///         ways: u8,
///         line: u16,
///     }
/// }
///
/// #[analysis]
/// fn begin(settings: Record<Settings>, ranges: Array<Range>) {
///     let bytes: u64 = ranges.iter().map(|range| u64::from(range.size)).sum();
///     println!("{bytes} bytes, {} ways", settings.ways);
/// }
///
/// fn instrument(program: &Program, _args: &Args) -> Result {
///     let settings = Settings { innermost: true, ways: 4, line: 64 };
///     let ranges = [Range { start: 0x1000, size: 64, found: Found::InImage }];
///     program.add_call(Before, begin, (&settings, &ranges));
///     Ok(())
/// }
/// # fn main() {}
/// ```
///
/// Fields are integers, floating-point numbers, `bool`, arrays of these, and what this macro
/// defines. Text has no place in such a structure: pass a [`StringList`](crate::StringList), and
/// its keys in the structure. Whatever is a pointer does not compile:
///
/// ```compile_fail,E0277
/// # use atom_tool::plain_data;
/// plain_data! { struct Name { text: &'static str } }
/// ```
///
/// Nor does a structure with padding. Put the fields in the order of their sizes, or give
/// the padding a name:
///
/// ```compile_fail,E0080
/// # use atom_tool::plain_data;
/// plain_data! { struct Padded { size: u32, address: u64 } }
/// ```
/// ```
/// # use atom_tool::plain_data;
/// plain_data! { struct Whole { size: u32, _unused: u32, address: u64 } }
/// ```
#[macro_export]
macro_rules! plain_data {
    () => {};
    (
        $(#[$meta:meta])* $vis:vis struct $name:ident {
            $($(#[$field_meta:meta])* $field_vis:vis $field:ident: $type:ty),* $(,)?
        }
        $($rest:tt)*
    ) => {
        $(#[$meta])*
        #[repr(C)]
        #[derive(Clone, Copy)]
        $vis struct $name {
            $($(#[$field_meta])* $field_vis $field: $type),*
        }
        // SAFETY: all its fields are, which is checked here, and nothing is between them.
        unsafe impl $crate::Element for $name
        where
            $($type: $crate::Element),*
        {}
        const _: () = {
            const FIELDS: usize = 0 $(+ ::core::mem::size_of::<$type>())*;
            assert!(
                ::core::mem::size_of::<$name>() == FIELDS,
                "the structure has padding: order its fields by size, or add one in place of the padding"
            );
        };
        $crate::plain_data! { $($rest)* }
    };
    (
        $(#[$meta:meta])* $vis:vis enum $name:ident {
            $($(#[$variant_meta:meta])* $variant:ident $(= $value:expr)?),+ $(,)?
        }
        $($rest:tt)*
    ) => {
        $(#[$meta])*
        #[repr(u32)]
        #[derive(Clone, Copy)]
        $vis enum $name {
            $($(#[$variant_meta])* $variant $(= $value)?),+
        }
        // SAFETY: an integer, of which only the values of variants are ever copied.
        unsafe impl $crate::Element for $name {}
        $crate::plain_data! { $($rest)* }
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    plain_data! {
        #[derive(Debug, PartialEq)]
        enum Kind {
            First,
            Third = 3,
        }

        #[derive(Debug, PartialEq)]
        struct Inner {
            kind: Kind,
            flags: [bool; 4],
        }

        #[derive(Debug, PartialEq)]
        struct Outer {
            number: i64,
            inner: Inner,
        }
    }

    #[test]
    fn a_structure_crosses_as_its_bytes() {
        let value = Outer {
            number: -2,
            inner: Inner {
                kind: Kind::Third,
                flags: [true, false, false, true],
            },
        };
        let arg = Arg::<Record<Outer>>::to_host(&&value);
        assert_eq!(
            (arg.kind, arg.elem_size, arg.value),
            (ArgKind::CArray, 16, 1)
        );
        // SAFETY: the 16 bytes of `value`.
        let bytes = unsafe { std::slice::from_raw_parts(arg.ptr, 16) };
        let expected = [
            0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 3, 0, 0, 0, 1, 0, 0, 1,
        ];
        assert_eq!(bytes, expected);
        // SAFETY: as on the other side, a pointer to such bytes.
        let seen: Record<Outer> = unsafe { std::mem::transmute(arg.ptr) };
        assert_eq!(*seen.get(), value);
        assert_eq!((seen.number, Kind::First as u32), (-2, 0));
    }
}
