//! What the tables say, read without the code under test.

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, EndianSlice, LittleEndian, Pointer, Register,
    RegisterRule, UnwindContext, UnwindSection,
};

pub type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// `.eh_frame` and, if there is one, its index.
pub struct Frames<'a> {
    pub section: EhFrame<Slice<'a>>,
    pub bases: BaseAddresses,
    header: Option<(&'a [u8], u64)>,
}

/// How to unwind from one address.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// Register and offset, after evaluation at the original address.
    pub cfa: String,
    pub registers: Vec<String>,
    pub args_size: u64,
    pub signal: bool,
    pub personality: Option<Pointer>,
}

impl<'a> Frames<'a> {
    pub fn new(bytes: &'a [u8], vaddr: u64, header: Option<(&'a [u8], u64)>) -> Self {
        let mut section = EhFrame::new(bytes, LittleEndian);
        section.set_address_size(8);
        let mut bases = BaseAddresses::default().set_eh_frame(vaddr);
        if let Some((_, vaddr)) = header {
            bases = bases.set_eh_frame_hdr(vaddr);
        }
        Self {
            section,
            bases,
            header,
        }
    }

    /// All FDEs: start, size, LSDA.
    pub fn ranges(&self) -> Vec<(u64, u64, Option<u64>)> {
        let mut out = Vec::new();
        let mut entries = self.section.entries(&self.bases);
        while let Some(entry) = entries.next().expect("gimli reads the table") {
            if let gimli::CieOrFde::Fde(partial) = entry {
                let fde = partial
                    .parse(EhFrame::cie_from_offset)
                    .expect("gimli reads the FDE");
                let lsda = fde.lsda().map(direct);
                out.push((fde.initial_address(), fde.len(), lsda));
            }
        }
        out
    }

    /// The FDE that covers an address.
    pub fn first_with(&self, address: u64) -> gimli::FrameDescriptionEntry<Slice<'a>> {
        self.section
            .fde_for_address(&self.bases, address, EhFrame::cie_from_offset)
            .unwrap_or_else(|e| panic!("no FDE for {address:#x}: {e}"))
    }

    /// The FDE that the index gives for an address.
    pub fn indexed(&self, address: u64) -> gimli::FrameDescriptionEntry<Slice<'a>> {
        let (bytes, _) = self.header.expect("there is an index");
        let header = EhFrameHdr::new(bytes, LittleEndian)
            .parse(&self.bases, 8)
            .expect("gimli reads the index");
        header
            .table()
            .expect("the index has a table")
            .fde_for_address(
                &self.section,
                &self.bases,
                address,
                EhFrame::cie_from_offset,
            )
            .unwrap_or_else(|e| panic!("no FDE for {address:#x}: {e}"))
    }

    /// The row for an address by an FDE. Expressions that depend on the program
    /// counter are evaluated for `rip`.
    pub fn row(
        &self,
        fde: &gimli::FrameDescriptionEntry<Slice<'a>>,
        address: u64,
        rip: u64,
    ) -> Result<Row, gimli::Error> {
        let mut context = UnwindContext::new();
        let row = fde.unwind_info_for_address(&self.section, &self.bases, &mut context, address)?;
        let bytes = |e: &gimli::UnwindExpression<usize>| e.get(&self.section).unwrap().0;
        let cfa = match row.cfa() {
            CfaRule::RegisterAndOffset { register, offset } => format!("r{}{offset:+}", register.0),
            CfaRule::Expression(e) => match evaluate(bytes(e), fde.cie().encoding(), rip) {
                Some(offset) => format!("r7{offset:+}"),
                None => format!("{:x?}", bytes(e).slice()),
            },
        };
        let registers =
            (0..34).map(
                |n| match row.register(Register(n)).unwrap_or(RegisterRule::Undefined) {
                    RegisterRule::Expression(e) => format!("at {:x?}", bytes(&e).slice()),
                    RegisterRule::ValExpression(e) => format!("is {:x?}", bytes(&e).slice()),
                    rule => format!("{rule:?}"),
                },
            );
        Ok(Row {
            cfa,
            registers: registers.collect(),
            args_size: row.saved_args_size(),
            signal: fde.is_signal_trampoline(),
            personality: fde.personality(),
        })
    }
}

pub fn direct(pointer: Pointer) -> u64 {
    match pointer {
        Pointer::Direct(address) | Pointer::Indirect(address) => address,
    }
}

/// The value as an offset from rsp, found by evaluating at two stack pointers.
/// `None` for expressions that do not depend on the program counter.
fn evaluate(expression: Slice<'_>, encoding: gimli::Encoding, rip: u64) -> Option<i64> {
    let run = |rsp: u64| {
        let mut uses_rip = false;
        let mut evaluation = gimli::Expression(expression).evaluation(encoding);
        let mut state = evaluation.evaluate().ok()?;
        loop {
            state = match state {
                gimli::EvaluationResult::RequiresRegister { register, .. } => {
                    uses_rip |= register.0 == 16;
                    let value = match register.0 {
                        7 => rsp,
                        16 => rip,
                        _ => return None,
                    };
                    evaluation
                        .resume_with_register(gimli::Value::Generic(value))
                        .ok()?
                }
                gimli::EvaluationResult::Complete => break,
                _ => return None,
            }
        }
        match evaluation.result().first()?.location {
            gimli::Location::Address { address } if uses_rip => {
                Some(address.wrapping_sub(rsp) as i64)
            }
            _ => None,
        }
    };
    let offset = run(0x1000)?;
    (run(0x7_0000) == Some(offset)).then_some(offset)
}

/// What a personality routine finds for an instruction pointer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Landing {
    pub pad: Option<u64>,
    /// For each action in order: the types by address (0 = catch all), negative
    /// filters as lists.
    pub actions: Option<Vec<Vec<u64>>>,
}

/// Looks an address up in the LSDA of a procedure, as a personality routine
/// does; `None` if no call site covers it.
pub fn landing(lsda: &[u8], vaddr: u64, region: u64, address: u64) -> Option<Landing> {
    let mut at = 0;
    let base_encoding = lsda[at];
    at += 1;
    let base = match base_encoding {
        0xff => region,
        encoding => pointer(lsda, vaddr, &mut at, encoding),
    };
    let type_encoding = lsda[at];
    at += 1;
    let mut types = 0;
    if type_encoding != 0xff {
        let distance = uleb(lsda, &mut at);
        types = at + distance as usize;
    }
    let encoding = lsda[at];
    at += 1;
    let length = uleb(lsda, &mut at) as usize;
    let actions = at + length;
    while at < actions {
        let start = region + pointer(lsda, 0, &mut at, encoding);
        let size = pointer(lsda, 0, &mut at, encoding);
        let pad = pointer(lsda, 0, &mut at, encoding);
        let action = uleb(lsda, &mut at) as usize;
        if address < start {
            return None;
        }
        if address < start + size {
            let pad = (pad != 0).then(|| base + pad);
            let chain = (action != 0).then(|| {
                let mut chain = Vec::new();
                let mut at = actions + action - 1;
                loop {
                    let filter = sleb(lsda, &mut at);
                    chain.push(filter_types(lsda, vaddr, type_encoding, types, filter));
                    let mut field = at;
                    let next = sleb(lsda, &mut field);
                    if next == 0 {
                        break chain;
                    }
                    at = (at as i64 + next) as usize;
                }
            });
            return Some(Landing {
                pad,
                actions: chain,
            });
        }
    }
    None
}

fn filter_types(lsda: &[u8], vaddr: u64, encoding: u8, types: usize, filter: i64) -> Vec<u64> {
    let size = match encoding & 7 {
        2 => 2,
        3 => 4,
        _ => 8,
    };
    let entry = |n: usize| pointer(lsda, vaddr, &mut (types - n * size), encoding & 0x7f);
    match filter {
        0 => Vec::new(),
        1.. => vec![entry(filter as usize)],
        _ => {
            let mut list = vec![u64::MAX];
            let mut at = types + (-filter - 1) as usize;
            loop {
                match uleb(lsda, &mut at) {
                    0 => return list,
                    n => list.push(entry(n as usize)),
                }
            }
        }
    }
}

fn pointer(bytes: &[u8], vaddr: u64, at: &mut usize, encoding: u8) -> u64 {
    let from = vaddr + *at as u64;
    let mut fixed = |n: usize| {
        let mut value = [0; 8];
        value[..n].copy_from_slice(&bytes[*at..*at + n]);
        *at += n;
        u64::from_le_bytes(value)
    };
    let raw = match encoding & 0xf {
        0x0 | 0x4 | 0xc => fixed(8),
        0x2 => fixed(2),
        0x3 => fixed(4),
        0xb => fixed(4) as i32 as u64,
        0x1 => uleb(bytes, at),
        other => panic!("encoding {other}"),
    };
    match encoding & 0x70 {
        _ if raw == 0 => 0,
        0x10 => raw.wrapping_add(from),
        _ => raw,
    }
}

fn uleb(bytes: &[u8], at: &mut usize) -> u64 {
    let (mut value, mut shift) = (0, 0);
    loop {
        let byte = bytes[*at];
        *at += 1;
        value |= u64::from(byte & 0x7f) << shift;
        shift += 7;
        if byte < 0x80 {
            return value;
        }
    }
}

fn sleb(bytes: &[u8], at: &mut usize) -> i64 {
    let first = *at;
    let value = uleb(bytes, at);
    let bits = 7 * (*at - first) as u32;
    if bits < 64 {
        (value << (64 - bits)) as i64 >> (64 - bits)
    } else {
        value as i64
    }
}
