//! Decoding a program's instructions at any address.

use std::ops::Range;

use super::Image;
use crate::x86::{Decoder, DecoderOptions, Inst, Instruction};

/// Decodes instructions at any address of a program. One decoder serves all of them, since making a
/// decoder costs more than decoding an instruction.
pub struct ImageDecoder<'a> {
    image: &'a Image,
    decoder: Option<Decoder<'a>>,
    /// Addresses that the present decoder can decode.
    range: Range<u64>,
}

impl<'a> ImageDecoder<'a> {
    /// Makes a decoder for a program.
    pub fn new(image: &'a Image) -> Self {
        Self {
            image,
            decoder: None,
            range: 0..0,
        }
    }

    /// Decodes the instruction at `address`; false if there is no valid one.
    pub fn decode_into(&mut self, address: u64, instruction: &mut Instruction) -> bool {
        if !self.range.contains(&address) {
            let Some(bytes) = self.image.rest_at(address) else {
                return false;
            };
            self.decoder = Some(Decoder::with_ip(64, bytes, address, DecoderOptions::NONE));
            self.range = address..address + bytes.len() as u64;
        }
        let at = (address - self.range.start) as usize;
        let Some(decoder) = &mut self.decoder else {
            return false;
        };
        if decoder.set_position(at).is_err() {
            return false;
        }
        decoder.set_ip(address);
        decoder.decode_out(instruction);
        !instruction.is_invalid()
    }

    /// Decodes the instruction of the cfg at `address`.
    pub fn again(&mut self, address: u64) -> Instruction {
        let mut instruction = Instruction::default();
        let is_valid = self.decode_into(address, &mut instruction);
        assert!(
            is_valid,
            "an instruction of the cfg decodes as it did when the cfg was built"
        );
        instruction
    }
}

/// The instructions of the cfg decoded in full; an instruction that cannot be decoded is left out.
pub fn decoded<'a>(
    image: &'a Image,
    insts: impl Iterator<Item = &'a Inst>,
) -> impl Iterator<Item = Instruction> {
    let mut decoder = ImageDecoder::new(image);
    insts.filter_map(move |inst| {
        let mut instruction = Instruction::default();
        let pc = image.base + u64::from(inst.offset);
        (decoder.decode_into(pc, &mut instruction)).then_some(instruction)
    })
}
