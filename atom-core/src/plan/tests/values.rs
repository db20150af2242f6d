//! Random values other than whole registers, and a model of them.

use super::machine::{CODE, Machine, State};
use super::random::{Random, fs_base, is_taken, random_address, sum};
use crate::tool::value::{Address, Element, Segment, Taken, Value};
use crate::x86::asm::{Cond, Gpr};

/// Where the table of return addresses is in the data.
pub const RETURN_MAP: u64 = 0x4000;
/// The base of the image in the machine's numbering.
pub const BASE: u64 = 0x100;
/// Memory to load from: offset in the data, and size.
const CONTENTS: (u64, u64) = (0x5000, 256);

/// Distances of return addresses from the table, and originals from the base.
fn returns() -> Vec<(i32, u32)> {
    let one = |i: i32| (-60_000 + 7 * i * i, 0x40 + 5 * i as u32);
    (0..37).map(one).collect()
}

/// The table and its address.
pub fn return_map(machine: &Machine) -> (u64, Vec<u8>) {
    let entries = returns();
    let mut bytes = (entries.len() as u64).to_le_bytes().to_vec();
    for (new, old) in entries {
        bytes.extend(new.to_le_bytes());
        bytes.extend(old.to_le_bytes());
    }
    (machine.data_at() + RETURN_MAP, bytes)
}

/// Memory to load from, filled at random.
pub fn contents(machine: &Machine, r: &mut Random) -> (u64, Vec<u8>) {
    let bytes = (0..CONTENTS.1).map(|_| r.next() as u8).collect();
    (machine.data_at() + CONTENTS.0, bytes)
}

/// Makes the word at rsp a return address, one time in two.
pub fn return_address(machine: &Machine, r: &mut Random, word: &mut [u8]) {
    if r.chance(2) {
        let entries = returns();
        let (new, _) = entries[r.below(entries.len() as u64) as usize];
        // Or one beside it, which is not in the table.
        let miss = u64::from(r.chance(4));
        let map = machine.data_at() + RETURN_MAP;
        let address = map.wrapping_add_signed(i64::from(new)) + miss;
        word.copy_from_slice(&address.to_le_bytes());
    }
}

fn any_gpr(r: &mut Random) -> Gpr {
    Gpr(r.below(16) as u8)
}

fn not_rsp(r: &mut Random) -> Gpr {
    match any_gpr(r) {
        Gpr::RSP => Gpr::RDX,
        other => other,
    }
}

fn element(r: &mut Random) -> Element {
    let size = [4, 8][r.below(2) as usize];
    Element {
        register: r.below(16) as u8,
        width: 16,
        evex: false,
        size,
        number: r.below(u64::from(16 / size)) as u8,
    }
}

fn rare_address(r: &mut Random) -> Address {
    let mut address = random_address(r);
    match r.below(3) {
        0 => {
            address.index = None;
            address.index_is_byte = false;
            address.element = Some((element(r), 1 << r.below(4)));
        }
        1 => address.bits = Some((not_rsp(r), [2, 4, 8][r.below(3) as usize])),
        _ => {
            let segment = address.segment;
            address = Address {
                base: None,
                image: Some(r.below(1 << 20)),
                narrow: r.chance(2),
                segment,
                ..Address::at(Gpr::RAX, 0)
            };
        }
    }
    address
}

/// A random value.
pub fn random(r: &mut Random) -> Value {
    let size = [1, 2, 4, 8][r.below(4) as usize];
    match r.below(10) {
        0 => Value::Part(any_gpr(r), 0, [1, 2, 4][r.below(3) as usize]),
        1 => Value::Part(Gpr([0, 1, 2, 3][r.below(4) as usize]), 1, 1),
        2 => Value::Xmm(r.below(16) as u8),
        3 => Value::XmmHigh(r.below(16) as u8),
        4 => Value::XmmSingle(r.below(16) as u8),
        5 => Value::Element(element(r)),
        6 => Value::Return,
        7 => {
            let taken = match r.below(3) {
                0 => Taken::Flags(Cond(r.below(16) as u8)),
                1 => Taken::CountZero {
                    narrow: r.chance(2),
                },
                _ => Taken::Loop {
                    narrow: r.chance(2),
                    zero: [None, Some(true), Some(false)][r.below(3) as usize],
                },
            };
            Value::Next(taken, r.below(1 << 20), r.below(1 << 20))
        }
        8 => {
            let address = if r.chance(2) {
                Address::at(Gpr::RSP, r.below(256) as i64 - 128)
            } else {
                Address {
                    base: None,
                    image: Some(CODE as u64 + CONTENTS.0 + r.below(CONTENTS.1 - 8)),
                    ..Address::at(Gpr::RAX, 0)
                }
            };
            Value::Load(address, size)
        }
        _ => Value::Address(rare_address(r)),
    }
}

fn low(value: u64, size: u8) -> u64 {
    match size {
        8 => value,
        _ => value & ((1 << (8 * size)) - 1),
    }
}

fn element_of(e: &Element, state: &State) -> u64 {
    let words = state.xmms[usize::from(e.register)];
    let bytes = [words[0].to_le_bytes(), words[1].to_le_bytes()].concat();
    let at = usize::from(e.size) * usize::from(e.number);
    let part = &bytes[at..at + usize::from(e.size)];
    part.iter().rev().fold(0, |v, b| v << 8 | u64::from(*b))
}

/// What an address must be.
pub fn address(a: &Address, state: &State, machine: &Machine) -> u64 {
    let mut at = sum(a, state);
    if let Some((e, scale)) = &a.element {
        let index = match (e.size, element_of(e, state)) {
            (4, value) => i64::from(value as i32),
            (_, value) => value as i64,
        };
        at = at.wrapping_add_signed(index.wrapping_mul(i64::from(*scale)));
    }
    if let Some((reg, size)) = a.bits {
        let value = state.gprs[usize::from(reg.0)];
        let signed = match size {
            2 => i64::from(value as i16),
            4 => i64::from(value as i32),
            _ => value as i64,
        };
        let operands = signed.div_euclid(8 * i64::from(size));
        at = at.wrapping_add_signed(operands * i64::from(size));
    }
    if let Some(image) = a.image {
        at = at.wrapping_add(machine.code_at() + image);
    }
    if a.narrow {
        at &= 0xffff_ffff;
    }
    match a.segment {
        Segment::Fs => at.wrapping_add(fs_base()),
        _ => at,
    }
}

/// What an argument must be.
pub fn expected(value: &Value, state: &State, machine: &Machine) -> Option<u64> {
    Some(match *value {
        Value::Part(reg, first, size) => low(state.gprs[usize::from(reg.0)] >> (8 * first), size),
        Value::Xmm(n) => state.xmms[usize::from(n)][0],
        Value::XmmHigh(n) => state.xmms[usize::from(n)][1],
        Value::XmmSingle(n) => low(state.xmms[usize::from(n)][0], 4),
        Value::Element(e) => element_of(&e, state),
        Value::Return => {
            let word = machine.read_u64(state.gprs[4]);
            let map = machine.data_at() + RETURN_MAP;
            let entries = returns();
            let known = entries
                .iter()
                .find(|e| map.wrapping_add_signed(i64::from(e.0)) == word);
            known.map_or(word, |e| machine.code_at() + BASE + u64::from(e.1))
        }
        Value::Next(taken, target, next) => {
            let to = if is_taken(taken, state) { target } else { next };
            machine.code_at() + to
        }
        Value::Load(ref a, size) => low(machine.read_u64(address(a, state, machine)), size),
        _ => return None,
    })
}
