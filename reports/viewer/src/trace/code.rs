//! The instructions that a trace names, decoded from the objects' files.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs;

use atom_core::{Error, Result};
use iced_x86::{Decoder, DecoderOptions, Instruction};
use mem_trace::Object;
use object::{Object as _, ObjectSegment as _};

/// Bits of an address below the number of its object.
const OBJECT_SHIFT: u32 = 32;

/// The code of a process's objects.
#[derive(Default)]
pub struct Code {
    objects: Vec<Object>,
    /// For each object that was used its segments: addresses and contents.
    segments: HashMap<usize, Vec<(u64, Vec<u8>)>>,
}

impl Code {
    /// Takes the objects that are not known yet. Their files are read when they are needed.
    pub fn know(&mut self, objects: &[Object]) {
        let new = objects.get(self.objects.len()..);
        self.objects.extend_from_slice(new.unwrap_or_default());
    }

    /// The instruction at an address, and its bytes.
    pub fn at(&mut self, pc: u64, size: u64) -> Result<(Instruction, Vec<u8>)> {
        let number = (pc >> OBJECT_SHIFT) as usize;
        let address = pc & ((1 << OBJECT_SHIFT) - 1);
        let object = self.objects.get(number);
        let object = object.ok_or_else(|| problem("the trace names an unknown object".into()))?;
        let used = match self.segments.entry(number) {
            Entry::Occupied(used) => used.into_mut(),
            Entry::Vacant(new) => new.insert(segments(object)?),
        };
        let bytes = used.iter().find_map(|(start, bytes)| {
            let at = usize::try_from(address.checked_sub(*start)?).ok()?;
            bytes.get(at..at.checked_add(size as usize)?)
        });
        let place = || format!("{} has no instruction at {address:#x}", object.path);
        let bytes = bytes.ok_or_else(|| problem(place()))?.to_vec();
        let mut decoder = Decoder::with_ip(64, &bytes, pc, DecoderOptions::NONE);
        let instruction = decoder.decode();
        if !instruction.is_invalid() && instruction.len() as u64 == size {
            Ok((instruction, bytes))
        } else {
            Err(problem(place()))
        }
    }
}

fn problem(reason: String) -> Error {
    Error::new("decoding the instructions of a trace", reason)
}

/// The segments of an object's file, which must be the one that was traced.
fn segments(object: &Object) -> Result<Vec<(u64, Vec<u8>)>> {
    let path = &object.path;
    let contents = fs::read(path).map_err(|error| problem(format!("{path}: {error}")))?;
    let file = object::File::parse(&*contents).map_err(|e| problem(format!("{path}: {e}")))?;
    let build_id = file.build_id().ok().flatten().unwrap_or_default();
    if build_id != object.build_id {
        let reason =
            format!("{path} has changed since the trace was made: its build-id is another one");
        return Err(problem(reason));
    }
    let segments = file.segments();
    let segments = segments.filter_map(|s| Some((s.address(), s.data().ok()?.to_vec())));
    Ok(segments.collect())
}
