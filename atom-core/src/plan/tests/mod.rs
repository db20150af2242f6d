//! Inserted code is run on the processor and everything compared.

mod encoder;
mod machine;
mod random;
mod values;
mod whole;
