//! What rows and columns of tables are: tools write these names into profiles, and the command reads them there.

/// An enumeration whose values have names in files. A name that is not known means the default value.
macro_rules! named {
    ($(#[$head:meta])* $name:ident { $($(#[$about:meta])* $value:ident $text:literal,)* }) => {
        $(#[$head])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
        pub enum $name {
            $($(#[$about])* $value,)*
        }

        impl $name {
            /// The name in files.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$value => $text,)*
                }
            }
        }

        impl From<&str> for $name {
            fn from(name: &str) -> Self {
                match name {
                    $($text => Self::$value,)*
                    _ => Self::default(),
                }
            }
        }

        impl From<$name> for &'static str {
            fn from(value: $name) -> Self {
                value.name()
            }
        }
    };
}

named! {
    /// What a row of a table stands for.
    By {
        /// A file of code.
        Object "object",
        /// A procedure.
        Procedure "procedure",
        /// A source file.
        File "file",
        /// A source line.
        Line "line",
        /// A basic block.
        Block "block",
        /// An instruction.
        Instruction "instruction",
        /// A conditional branch.
        Branch "branch",
        /// An edge of the call graph.
        Arc "arc",
        /// An object of the program's data.
        Data "data",
        /// A thread.
        Thread "thread",
        /// Anything else.
        #[default]
        Other "other",
    }
}

named! {
    /// The type of a column's values, or of a fact.
    Type {
        /// An integer.
        Count "count",
        /// The quotient of two numbers.
        Ratio "ratio",
        /// A hundredfold quotient.
        Percent "percent",
        /// A duration in seconds.
        Seconds "seconds",
        /// A number of bytes.
        Bytes "bytes",
        /// An address in the original file of an object.
        Address "address",
        /// A source file and a line in it.
        Place "place",
        /// A text.
        Text "text",
        /// A type that is not known here.
        #[default]
        Other "other",
    }
}

named! {
    /// What a column is for.
    Role {
        /// Identifies the row, when tables are added up or compared.
        Key "key",
        /// Describes the row.
        Label "label",
        /// A measured value.
        Measure "measure",
        /// Computed from other columns; a profile has no values of it.
        Derived "derived",
        /// A role that is not known here.
        #[default]
        Other "other",
    }
}

named! {
    /// How the values of several runs are added up.
    Sum {
        /// Their sum.
        Add "add",
        /// The largest.
        Max "max",
        /// The smallest.
        Min "min",
        /// They cannot be added up.
        #[default]
        None "none",
    }
}

named! {
    /// How a number follows from another table, in a sum of profiles.
    Follows {
        /// The number of rows.
        Rows "rows",
        /// The sum of a column.
        Total "total",
        /// A way that is not known here.
        #[default]
        Other "other",
    }
}
