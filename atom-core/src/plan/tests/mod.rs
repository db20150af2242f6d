//! Inserted code is run on the processor and everything compared.

mod encoder;
mod inlined;
mod machine;
mod random;
mod routine;
mod values;
mod whole;
