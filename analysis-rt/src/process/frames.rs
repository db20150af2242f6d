//! The stack of the tool's code, unwound by frame descriptions (`.eh_frame`): where a routine returns to inserted code, and who
//! called a function.
//!
//! Compilers describe rsp and rbp of the tool's functions at each instruction by the operations that are known here; other functions
//! have no frame for this module. `std`'s unwinder would need memory and locks.

use core::ptr::with_exposed_provenance as pointer;

use crate::process::info;

/// A frame of the tool's code.
#[derive(Clone, Copy)]
pub(crate) struct Frame {
    /// Address of an instruction; of a return address, or of an interrupted instruction.
    pub address: u64,
    /// rsp.
    pub stack_pointer: u64,
    /// rbp.
    pub base_pointer: u64,
}

/// Largest number of frames.
const MOST_FRAMES: usize = 100;

/// The word on the stack that holds the address of inserted code to which the outermost routine returns. `None` if that is
/// not known. `frame` is of an interrupted instruction.
pub(crate) fn return_slot(mut frame: Frame) -> Option<*mut u64> {
    let mut is_interrupted = true;
    for _ in 0..MOST_FRAMES {
        let description = of_tool(frame.address - u64::from(!is_interrupted))?;
        frame = caller(frame, is_interrupted, description)?;
        is_interrupted = false;
        if !is_tool(frame.address) {
            return Some(pointer::<u64>(frame.stack_pointer as usize - 8).cast_mut());
        }
    }
    None
}

/// The caller's frame, whose return address is below its rsp. `description` is of the function that runs in `frame`, at an
/// interrupted instruction or in a call.
pub(crate) fn caller(
    frame: Frame,
    is_interrupted: bool,
    description: Description,
) -> Option<Frame> {
    let rules = Rules::at(description.0, frame.address - u64::from(!is_interrupted))?;
    let register = match rules.register {
        RSP => frame.stack_pointer,
        RBP => frame.base_pointer,
        _ => return None,
    };
    let top = register.wrapping_add_signed(rules.offset);
    let word = |distance: i64| pointer::<u64>(top.wrapping_add_signed(distance) as usize);
    // SAFETY: the frame of the running function, by the compiler's description.
    unsafe {
        Some(Frame {
            address: *word(-8),
            stack_pointer: top,
            base_pointer: match rules.base {
                Some(saved) => *word(saved),
                None => frame.base_pointer,
            },
        })
    }
}

/// True for an address of the tool's code.
pub(crate) fn is_tool(address: u64) -> bool {
    info::get()
        .is_some_and(|info| address.wrapping_sub(info.code.addr() as u64) < info.code_size as u64)
}

/// Numbers of registers in frame descriptions.
const RBP: u64 = 6;
const RSP: u64 = 7;
/// Stands for a frame that no register tells.
const NO_REGISTER: u64 = u64::MAX;

/// A place in tables.
#[derive(Clone, Copy)]
struct Reader(*const u8);

impl Reader {
    fn at(address: u64) -> Self {
        Self(pointer(address as usize))
    }

    fn address(self) -> u64 {
        self.0.addr() as u64
    }

    fn take<T: Copy>(&mut self) -> T {
        // SAFETY: the tables are well formed, as `atom` has read them, and stay mapped.
        unsafe {
            let value = self.0.cast::<T>().read_unaligned();
            self.0 = self.0.add(size_of::<T>());
            value
        }
    }

    /// An LEB128 number without a sign.
    fn number(&mut self) -> Option<u64> {
        leb128::read(|| Some(self.take::<u8>())).ok()
    }

    /// An LEB128 number with a sign.
    fn signed(&mut self) -> Option<i64> {
        leb128::read_signed(|| Some(self.take::<u8>())).ok()
    }

    /// An address that is stored as a distance of 32 bits from its own place.
    fn relative(&mut self) -> u64 {
        let at = self.address();
        at.wrapping_add_signed(self.take::<i32>().into())
    }

    fn skip(&mut self, bytes: u64) {
        self.0 = self.0.wrapping_add(bytes as usize);
    }
}

/// The description of a function's frame.
#[derive(Clone, Copy)]
pub(crate) struct Description(Reader);

impl Description {
    /// The description at an address, if it is of the function at `function`.
    pub(crate) fn at(address: u64, function: u64) -> Option<Self> {
        let mut reader = Reader::at(address);
        reader.skip(8);
        let start = reader.relative();
        (function.wrapping_sub(start) < u64::from(reader.take::<u32>()))
            .then_some(Self(Reader::at(address)))
    }

    /// Address of the function.
    pub(crate) fn function(self) -> u64 {
        let mut reader = self.0;
        reader.skip(8);
        reader.relative()
    }
}

/// The description of the function at an address of the tool. Descriptions are few, and rarely looked for.
pub(crate) fn of_tool(address: u64) -> Option<Description> {
    let info = info::get()?;
    let start = info.frames.addr() as u64;
    let mut at = start;
    while at.wrapping_sub(start) < info.frames_size as u64 {
        let mut reader = Reader::at(at);
        let size: u32 = reader.take();
        let common: u32 = reader.take();
        at += 4 + u64::from(size);
        if size == 0 || common == 0 {
            continue;
        }
        // What form addresses have is checked when the description is read.
        let function = reader.relative();
        if address.wrapping_sub(function) < u64::from(reader.take::<u32>()) {
            return Some(Description(Reader::at(at - 4 - u64::from(size))));
        }
    }
    None
}

/// How the caller's registers are found.
#[derive(Clone, Copy)]
struct Rules {
    /// The address after the return address: a register, and a distance from it.
    register: u64,
    offset: i64,
    /// Distance from that address to the caller's rbp, if it was saved.
    base: Option<i64>,
}

/// What is in the common part of descriptions.
struct Common {
    code_unit: u64,
    data_unit: i64,
    /// First and last address of the operations.
    operations: (Reader, u64),
}

impl Common {
    fn read(mut reader: Reader) -> Option<Self> {
        let size: u32 = reader.take();
        let end = reader.address() + u64::from(size);
        reader.skip(4);
        let version: u8 = reader.take();
        let names = reader;
        while reader.take::<u8>() != 0 {}
        let code_unit = reader.number()?;
        let data_unit = reader.signed()?;
        let register: u8 = reader.take();
        // A letter for each piece of data in front of the operations: z first.
        const RIP: u8 = 16;
        let mut names = names;
        let is_known = version == 1 && register == RIP && names.take::<u8>() == b'z';
        if !is_known {
            return None;
        }
        let length = reader.number()?;
        let operations = reader.address() + length;
        loop {
            match names.take::<u8>() {
                0 => break,
                // Addresses of functions must be relative distances of 32 bits.
                b'R' if reader.take::<u8>() == 0x1b => {}
                b'L' => reader.skip(1),
                b'P' => {
                    // The low bits of the encoding say the size: 3 and 11 are 32 bits.
                    let is_short = reader.take::<u8>() & 7 == 3;
                    reader.skip(if is_short { 4 } else { 8 });
                }
                _ => return None,
            }
        }
        Some(Self {
            code_unit,
            data_unit,
            operations: (Reader::at(operations), end),
        })
    }
}

/// Nested `remember_state` operations.
const MOST_REMEMBERED: usize = 4;

impl Rules {
    /// The rules at an address that a description covers.
    fn at(mut entry: Reader, address: u64) -> Option<Self> {
        let size: u32 = entry.take();
        let end = entry.address() + u64::from(size);
        let field = entry.address();
        let distance: u32 = entry.take();
        let common = Common::read(Reader::at(field - u64::from(distance)))?;
        let start = entry.relative();
        let length: u32 = entry.take();
        debug_assert!(address.wrapping_sub(start) < u64::from(length));
        let skipped = entry.number()?;
        entry.skip(skipped);
        let mut run = Run {
            rules: Self {
                register: RSP,
                offset: 0,
                base: None,
            },
            initial: None,
            remembered: [None; MOST_REMEMBERED],
            left: address - start,
        };
        let (operations, common_end) = common.operations;
        run.all(operations, common_end, &common)?;
        run.initial = run.rules.base;
        run.all(entry, end, &common)?;
        Some(run.rules)
    }
}

/// The state of the operations of a description.
struct Run {
    rules: Rules,
    /// The place of rbp at the function's start.
    initial: Option<i64>,
    remembered: [Option<Rules>; MOST_REMEMBERED],
    /// Number of bytes of code up to the wanted address.
    left: u64,
}

impl Run {
    /// Executes operations until one is for code after the wanted address. `None`: one is not known.
    fn all(&mut self, mut reader: Reader, end: u64, common: &Common) -> Option<()> {
        while reader.address() < end {
            let code: u8 = reader.take();
            let (kind, low) = (code >> 6, u64::from(code & 0x3f));
            let advance = match (kind, code) {
                (1, _) => low,
                (_, 0x02) => reader.take::<u8>().into(),
                (_, 0x03) => reader.take::<u16>().into(),
                (_, 0x04) => reader.take::<u32>().into(),
                (2, _) => {
                    let offset = reader.number()? as i64;
                    self.saved(low, Some(offset * common.data_unit));
                    0
                }
                (3, _) => {
                    self.saved(low, self.initial);
                    0
                }
                _ => {
                    self.other(code, &mut reader, common)?;
                    0
                }
            } * common.code_unit;
            if advance > self.left {
                break;
            }
            self.left -= advance;
        }
        Some(())
    }

    fn saved(&mut self, register: u64, place: Option<i64>) {
        if register == RBP {
            self.rules.base = place;
        }
    }

    /// An operation without an operand in its first byte.
    fn other(&mut self, code: u8, reader: &mut Reader, common: &Common) -> Option<()> {
        match code {
            // Nothing; padding.
            0x00 => {}
            0x05 => {
                let (register, offset) = (reader.number()?, reader.number()? as i64);
                self.saved(register, Some(offset * common.data_unit));
            }
            // The initial rule; an undefined register; the same value.
            0x06 => {
                let register = reader.number()?;
                self.saved(register, self.initial);
            }
            0x07 | 0x08 => {
                let register = reader.number()?;
                self.saved(register, None);
            }
            0x0a => {
                *self.remembered.iter_mut().find(|r| r.is_none())? = Some(self.rules);
            }
            0x0b => {
                let last = self.remembered.iter_mut().rev().find(|r| r.is_some())?;
                self.rules = last.take()?;
            }
            0x0c => {
                self.rules.register = reader.number()?;
                self.rules.offset = reader.number()? as i64;
            }
            0x0d => self.rules.register = reader.number()?,
            0x0e => self.rules.offset = reader.number()? as i64,
            // The frame, or another register, by an expression.
            0x0f => {
                self.rules.register = NO_REGISTER;
                let size = reader.number()?;
                reader.skip(size);
            }
            0x10 | 0x16 => {
                (reader.number()? != RBP).then_some(())?;
                let size = reader.number()?;
                reader.skip(size);
            }
            // Size of arguments, which only landing pads need.
            0x2e => {
                reader.number()?;
            }
            _ => return None,
        }
        Some(())
    }
}
