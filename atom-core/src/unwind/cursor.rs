//! A bounds-checked reader that knows the address of what it reads.
//!
//! Exception tables are full of self-relative pointers: an encoded pointer's
//! value depends on where it is. So the cursor carries the virtual address
//! of its bytes. Failures are plain reasons; callers add the place.

/// Result of a primitive read: the reason is put into a full error by callers.
pub(crate) type Read<T> = std::result::Result<T, &'static str>;

/// `DW_EH_PE_omit`: the value is absent.
pub(crate) const OMIT: u8 = 0xff;
/// `DW_EH_PE_pcrel | DW_EH_PE_sdata4`.
pub(crate) const PCREL_SDATA4: u8 = 0x1b;
/// `DW_EH_PE_indirect`.
pub(crate) const INDIRECT: u8 = 0x80;

/// An encoded pointer as found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pointer {
    /// Target of the pointer; if `indirect`, the address of the slot that holds the target.
    pub value: u64,
    /// True if the target's address is stored at `value`.
    pub indirect: bool,
    /// True if the raw bits are zero, which readers of these tables take for "none".
    pub null: bool,
    /// Address of the encoded bytes themselves.
    pub at: u64,
}

/// A position in bytes at a known virtual address.
#[derive(Clone, Copy)]
pub(crate) struct Cursor<'a> {
    bytes: &'a [u8],
    pos: usize,
    vaddr: u64,
}

impl<'a> Cursor<'a> {
    /// Starts at `pos` of `bytes`, whose first byte is at `vaddr`.
    pub fn new(bytes: &'a [u8], pos: usize, vaddr: u64) -> Self {
        Self { bytes, pos, vaddr }
    }

    /// Offset of the next byte.
    pub fn pos(&self) -> usize {
        self.pos
    }

    /// Virtual address of the next byte.
    pub fn address(&self) -> u64 {
        self.vaddr.wrapping_add(self.pos as u64)
    }

    /// True if all bytes have been read.
    pub fn at_end(&self) -> bool {
        self.pos >= self.bytes.len()
    }

    /// The next `n` bytes.
    pub fn take(&mut self, n: usize) -> Read<&'a [u8]> {
        let end = self.pos.checked_add(n).ok_or("a length overflows")?;
        let taken = self.bytes.get(self.pos..end).ok_or("the data ends early")?;
        self.pos = end;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Read<[u8; N]> {
        let mut out = [0; N];
        out.copy_from_slice(self.take(N)?);
        Ok(out)
    }

    /// One byte.
    pub fn u8(&mut self) -> Read<u8> {
        Ok(self.array::<1>()?[0])
    }

    /// Two bytes.
    pub fn u16(&mut self) -> Read<u16> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    /// Four bytes.
    pub fn u32(&mut self) -> Read<u32> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// Eight bytes.
    pub fn u64(&mut self) -> Read<u64> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    /// An unsigned LEB128 number of at most 64 bits.
    pub fn uleb(&mut self) -> Read<u64> {
        leb128::read(|| self.u8().ok()).map_err(reason)
    }

    /// A signed LEB128 number of at most 64 bits.
    pub fn sleb(&mut self) -> Read<i64> {
        leb128::read_signed(|| self.u8().ok()).map_err(reason)
    }

    /// Bytes up to a zero, which is consumed.
    pub fn c_string(&mut self) -> Read<&'a [u8]> {
        let rest = self.bytes.get(self.pos..).unwrap_or_default();
        let len = rest
            .iter()
            .position(|&b| b == 0)
            .ok_or("a string does not end")?;
        self.pos += len + 1;
        Ok(&rest[..len])
    }

    /// A pointer in one of the `DW_EH_PE` encodings: absolute or relative to itself.
    pub fn encoded(&mut self, encoding: u8) -> Read<Pointer> {
        let at = self.address();
        let raw = match encoding & 0x0f {
            0x00 | 0x04 | 0x0c => self.u64()?,
            0x01 => self.uleb()?,
            0x02 => self.u16()?.into(),
            0x03 => self.u32()?.into(),
            0x09 => self.sleb()? as u64,
            0x0a => self.u16()? as i16 as u64,
            0x0b => self.u32()? as i32 as u64,
            _ => return Err("a pointer has an unknown format"),
        };
        let value = match encoding & 0x70 {
            0x00 => raw,
            0x10 => raw.wrapping_add(at),
            _ => return Err("a pointer is relative to an unknown base"),
        };
        Ok(Pointer {
            value,
            indirect: encoding & INDIRECT != 0,
            null: raw == 0,
            at,
        })
    }
}

/// Reason for a LEB128 number that cannot be read.
fn reason(error: leb128::Error) -> &'static str {
    match error {
        leb128::Error::Truncated => "the data ends early",
        leb128::Error::Overflow => "a LEB128 number exceeds 64 bits",
    }
}

/// Size in bytes of a pointer in this encoding; `None` if it varies.
pub(crate) fn encoded_size(encoding: u8) -> Option<usize> {
    match encoding & 0x0f {
        0x00 | 0x04 | 0x0c => Some(8),
        0x02 | 0x0a => Some(2),
        0x03 | 0x0b => Some(4),
        _ => None,
    }
}
