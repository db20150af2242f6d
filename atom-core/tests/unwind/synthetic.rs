//! Tables made by hand, for what compilers seldom or never emit.

use atom_core::unwind::write::{
    AddressMap, Inserted, MovedRange, StackAdjustment, UnwindBlobs, build, check,
};
use atom_core::unwind::{self, CfaRule, Memory, TypeEntry, UnwindInput, UnwindTable};
use atom_core::x86::asm::Frame;

use crate::oracle::{Frames, direct, landing};

const TABLE: u64 = 0x1000;
const AREA: u64 = 0x8000;
const TEXT: u64 = 0x10000;
const NEW: u64 = 0x200000;

/// `.eh_frame` under construction.
#[derive(Default)]
struct Maker {
    bytes: Vec<u8>,
}

impl Maker {
    fn record(&mut self, id: u32, body: &[u8]) -> usize {
        let start = self.bytes.len();
        let length = (4 + body.len()).next_multiple_of(4);
        self.bytes.extend((length as u32).to_le_bytes());
        self.bytes.extend(id.to_le_bytes());
        self.bytes.extend(body);
        self.bytes.resize(start + 4 + length, 0);
        start
    }

    /// A CIE with data alignment -8, return column 16, CFA = rsp + 8.
    fn cie(&mut self, version: u8, augmentation: &str, data: &[u8], code_align: u8) -> usize {
        let mut body = vec![version];
        body.extend(augmentation.as_bytes());
        body.extend([0, code_align, 0x78, 16]);
        if augmentation.starts_with('z') {
            body.push(data.len() as u8);
            body.extend(data);
        }
        body.extend([0x0c, 7, 8, 0x90, 1]);
        self.record(0, &body)
    }

    /// An FDE with full absolute addresses.
    fn fde(&mut self, cie: usize, start: u64, size: u64, data: &[u8], cfi: &[u8]) {
        let mut body = start.to_le_bytes().to_vec();
        body.extend(size.to_le_bytes());
        body.push(data.len() as u8);
        body.extend(data);
        body.extend(cfi);
        let back = self.bytes.len() + 4 - cie;
        self.record(back as u32, &body);
    }

    fn table<'a>(&'a self, memory: &[(u64, &'a [u8])]) -> UnwindTable<'a> {
        static CODE: [u8; 0x4000] = [0x90; 0x4000];
        let code = (TEXT, &CODE[..]);
        let memory = Memory::new(memory.iter().copied().chain([code]));
        unwind::parse(&UnwindInput::from_section(&self.bytes, TABLE, memory)).expect("a table")
    }
}

/// Each byte of the text takes two.
fn doubled(old: u64) -> Option<u64> {
    (TEXT..TEXT + 0x1000)
        .contains(&old)
        .then(|| NEW + 2 * (old - TEXT))
}

fn range(old_start: u64, old_end: u64) -> MovedRange {
    let new = |old| NEW + 2 * (old - TEXT);
    MovedRange {
        old_start,
        old_end,
        new_start: new(old_start),
        new_end: new(old_end),
    }
}

fn frames(blobs: &UnwindBlobs) -> Frames<'_> {
    let header = &blobs.eh_frame_hdr;
    let header = Some((&header.bytes[..], header.address));
    Frames::new(&blobs.eh_frame.bytes, blobs.eh_frame.address, header)
}

/// Compares all rows of one FDE at `TEXT` with their copies.
fn same_rows(maker: &Maker, size: u64) {
    let table = maker.table(&[]);
    let moved = [range(TEXT, TEXT + size)];
    let blobs = build(&table, &moved, &doubled, NEW + 0x10000).expect("tables");
    assert_eq!(blobs.undescribed, []);
    let new = frames(&blobs);
    let old = Frames::new(&maker.bytes, TABLE, None);
    let mut rows = std::collections::HashSet::new();
    for address in TEXT..TEXT + size {
        let fde = old.first_with(address);
        let expected = old.row(&fde, address, address).expect("a row");
        rows.insert(expected.cfa.clone());
        for (at, what) in [(address, "original"), (doubled(address).unwrap(), "copy")] {
            let fde = new.indexed(at);
            assert_eq!(
                new.row(&fde, at, address).as_ref(),
                Ok(&expected),
                "{what} {address:#x}"
            );
        }
    }
    assert!(rows.len() > 1, "the rows differ");
}

#[test]
fn scaled_advances_and_version_3_and_signal_frames() {
    let mut maker = Maker::default();
    let cie = maker.cie(3, "zRS", &[0], 4);
    // 4 bytes on: CFA +16; 252 more: +24; 256 more: +32.
    let cfi = [0x41, 0x0e, 16, 0x7f, 0x0e, 24, 0x03, 64, 0, 0x0e, 32];
    maker.fde(cie, TEXT, 0x300, &[], &cfi);
    same_rows(&maker, 0x300);
}

#[test]
fn absolute_locations() {
    let mut maker = Maker::default();
    let cie = maker.cie(1, "zR", &[0], 1);
    let mut cfi = vec![0x42, 0x0e, 16, 0x01];
    cfi.extend((TEXT + 0x80).to_le_bytes());
    cfi.extend([0x0a, 0x0e, 24, 0x41, 0x0b]);
    maker.fde(cie, TEXT, 0x100, &[], &cfi);
    same_rows(&maker, 0x100);
}

#[test]
fn frame_that_depends_on_the_program_counter() {
    let mut maker = Maker::default();
    let cie = maker.cie(1, "zR", &[0], 1);
    // As linkers describe a linkage table: rsp + 8 + ((rip & 15) >= 11) * 8, after
    // a row of its own for the first entry.
    let plt = [0x77, 8, 0x80, 0, 0x3f, 0x1a, 0x3b, 0x2a, 0x33, 0x24, 0x22];
    let mut cfi = vec![0x0e, 16, 0x46, 0x0e, 24, 0x4a, 0x0f, plt.len() as u8];
    cfi.extend(plt);
    maker.fde(cie, TEXT, 0x60, &[], &cfi);
    same_rows(&maker, 0x60);
}

#[test]
fn location_without_new_address_stands_for_the_next() {
    let mut maker = Maker::default();
    let cie = maker.cie(1, "zR", &[0], 1);
    maker.fde(cie, TEXT, 0x20, &[], &[0x45, 0x0e, 16]);
    let table = maker.table(&[]);
    let map = |old: u64| doubled(old).filter(|_| old.is_multiple_of(8));
    let moved = [range(TEXT, TEXT + 0x20)];
    let blobs = build(&table, &moved, &map, NEW + 0x10000).expect("tables");
    let new = frames(&blobs);
    let cfa = |at| new.row(&new.indexed(at), at, at).expect("a row").cfa;
    assert_eq!(cfa(NEW + 15), "r7+8");
    assert_eq!(cfa(NEW + 16), "r7+16");
}

/// An LSDA and a table with one FDE of 0x40 bytes that refers to it.
fn with_area(area: &[u8]) -> (Maker, Vec<u8>) {
    let mut maker = Maker::default();
    let cie = maker.cie(1, "zRL", &[0, 0], 1);
    maker.fde(cie, TEXT, 0x40, &AREA.to_le_bytes(), &[]);
    (maker, area.to_vec())
}

#[test]
fn landing_pad_at_the_start_of_its_piece() {
    // One call site, 0x18..0x20, which lands at 0x10.
    let (maker, area) = with_area(&[0xff, 0xff, 0x01, 4, 0x18, 8, 0x10, 0]);
    let memory = [(AREA, &area[..])];
    let table = maker.table(&memory);
    let moved = [range(TEXT, TEXT + 0x10), range(TEXT + 0x10, TEXT + 0x40)];
    let blobs = build(&table, &moved, &doubled, NEW + 0x10000).expect("tables");
    let new = frames(&blobs);
    let at = NEW + 0x32;
    let fde = new.indexed(at);
    assert_eq!(fde.initial_address(), NEW + 0x20);
    let lsda = fde.lsda().map(direct).expect("it has one");
    let bytes = &blobs.except_table.bytes[(lsda - blobs.except_table.address) as usize..];
    let found = landing(bytes, lsda, fde.initial_address(), at).expect("a call site");
    assert_eq!(found.pad, Some(NEW + 0x20));
}

#[test]
fn areas_of_pieces_without_instructions_end_the_call_sites_before_them() {
    // Three areas that end at the same place and state the same base of landing pads (TEXT + 0x30), eight
    // bytes relative to their place. The second is the area of a piece without instructions, which has no FDE.
    let header = |at: u64, rest: u8| {
        let base = (TEXT + 0x30).wrapping_sub(AREA + at + 1);
        [&[0x10][..], &base.to_le_bytes(), &[0xff, 0x01, rest]].concat()
    };
    let size = 12;
    let sites: [&[u8]; 3] = [&[0, 8, 4, 0, 0, 0], &[0, 0, 0], &[0, 0x10, 0, 0]];
    let total: usize = sites.iter().map(|s| size + s.len()).sum();
    let mut area = Vec::new();
    for own in sites {
        let rest = total - area.len() - size;
        area.extend(header(area.len() as u64, rest as u8));
        area.extend(own);
    }
    let (maker, area) = with_area(&area);
    let memory = [(AREA, &area[..])];
    let table = maker.table(&memory);
    let pads: Vec<_> = table.landing_pads().collect();
    assert_eq!(pads, [(0, TEXT + 0x34)]);
    let lsda = table.lsda(&table.fdes[0]);
    let lsda = lsda.expect("it parses").expect("it is there");
    assert_eq!(lsda.call_sites.len(), 1);
}

#[test]
fn absolute_types_are_reached_through_their_slots() {
    // Two types in eight bytes each, filled in by the dynamic loader; a chain of
    // two actions (type 1, then type 2), and a specification of type 2.
    let mut area = vec![0xff, 0x00, 4 + 2 + 6 + 16, 0x01, 4];
    area.extend([0, 8, 0x20, 1]);
    area.extend([1, 1, 2, 1, 0x7f, 0]);
    area.extend([0; 16 + 2]);
    let base = area.len();
    area.extend([2, 0]);
    area[2] = (base - 3) as u8;
    let (maker, area) = with_area(&area);
    let memory = [(AREA, &area[..])];
    let table = maker.table(&memory);
    let lsda = table
        .lsda(&table.fdes[0])
        .expect("it parses")
        .expect("it is there");
    let types = lsda.types.expect("it has types");
    let slot = |n: u64| TypeEntry::Indirect(AREA + base as u64 - 8 * n);
    assert_eq!(types.entries, [slot(1), slot(2)]);
    assert_eq!(types.specification(-1), Some(vec![2]));
    let moved = [range(TEXT, TEXT + 0x40)];
    let blobs = build(&table, &moved, &doubled, NEW + 0x10000).expect("tables");
    assert_eq!(blobs.except_table.bytes[1], 0x9b);
    let fde = frames(&blobs).indexed(NEW);
    let lsda = fde.lsda().map(direct).expect("it has one");
    let bytes = &blobs.except_table.bytes[(lsda - blobs.except_table.address) as usize..];
    let found = landing(bytes, lsda, NEW, NEW + 3).expect("a call site");
    let slot = |n: u64| AREA + base as u64 - 8 * n;
    let expected = vec![vec![slot(1)], vec![slot(2)], vec![u64::MAX, slot(2)]];
    assert_eq!(found.actions, Some(expected));
}

#[test]
fn actions_in_a_circle_end() {
    let (maker, area) = with_area(&[0xff, 0xff, 0x01, 4, 0, 8, 0x20, 1, 0, 0x7f]);
    let memory = [(AREA, &area[..])];
    let table = maker.table(&memory);
    let lsda = table
        .lsda(&table.fdes[0])
        .expect("it parses")
        .expect("it is there");
    assert_eq!(lsda.actions, [0, 0x7f]);
}

#[test]
fn what_is_not_understood_stays_where_it_is() {
    let mut maker = Maker::default();
    let strange = maker.cie(1, "zRX", &[0, 1], 1);
    maker.fde(strange, TEXT, 0x10, &[], &[]);
    let cie = maker.cie(1, "zR", &[0], 1);
    maker.fde(cie, TEXT + 0x20, 0x10, &[], &[0x41, 0x3e, 0x0e, 16]);
    let table = maker.table(&[]);
    assert_eq!(table.skipped.len(), 2);
    assert_eq!(table.fdes.len(), 1);
    assert!(check(&table, &table.fdes[0]).is_err());
    let moved = [range(TEXT, TEXT + 0x40)];
    let blobs = build(&table, &moved, &doubled, NEW + 0x10000).expect("tables");
    assert_eq!(blobs.undescribed.len(), 1);
    assert_eq!(blobs.undescribed[0].fde_start, TEXT + 0x20);
    assert_eq!(frames(&blobs).ranges(), [(TEXT + 0x20, 0x10, None)]);
}

#[test]
fn frame_at_start() {
    let mut maker = Maker::default();
    let cie = maker.cie(1, "zR", &[0], 1);
    maker.fde(cie, TEXT, 0x10, &[], &[0x41, 0x0e, 16]);
    maker.fde(
        cie,
        TEXT + 0x10,
        0x10,
        &[],
        &[0x0a, 0x0e, 32, 0x0b, 0x0d, 6, 0x40, 0x0e, 48, 0x41, 0x0e, 8],
    );
    maker.fde(cie, TEXT + 0x20, 0x10, &[], &[0x0f, 1, 0x77]);
    let table = maker.table(&[]);
    let found: Vec<_> = table.fdes.iter().map(|f| f.cfa_at_start).collect();
    let rule = |register, offset| CfaRule::Register { register, offset };
    assert_eq!(
        found,
        [unwind::CFA_AT_ENTRY, rule(6, 48), CfaRule::Expression]
    );
}

#[test]
fn huge_ranges_take_no_time() {
    let mut maker = Maker::default();
    let cie = maker.cie(1, "zR", &[0], 1);
    let sum = [0x0f, 5, 0x77, 8, 0x80, 0, 0x22];
    maker.fde(cie, TEXT, 1 << 60, &[], &sum);
    maker.fde(cie, TEXT, u64::MAX, &[], &sum);
    maker.fde(cie, TEXT + 0x10000, 1, &[], &sum);
    assert_eq!(maker.table(&[]).skipped.len(), 3);
    // Within the program, what is tried address by address is limited in total.
    let code = vec![0; 8 << 20];
    let mut maker = Maker::default();
    let cie = maker.cie(1, "zR", &[0], 1);
    for _ in 0..1000 {
        maker.fde(cie, TEXT, code.len() as u64, &[], &sum);
    }
    let memory = Memory::new([(TEXT, &code[..])]);
    let input = UnwindInput::from_section(&maker.bytes, TABLE, memory);
    let table = unwind::parse(&input).expect("a table");
    assert_eq!(table.fdes.len(), 1000);
    let whole = range(TEXT, TEXT + code.len() as u64);
    let blobs = build(&table, &[whole], &|_| None, NEW + (16 << 20)).expect("tables");
    assert!(blobs.undescribed.len() > 900);
}

#[test]
fn many_ranges_that_overlap_take_no_memory() {
    let mut maker = Maker::default();
    let cie = maker.cie(1, "zR", &[0], 1);
    for _ in 0..3000 {
        maker.fde(cie, TEXT, 0x1000, &[], &[]);
    }
    let table = maker.table(&[]);
    let moved: Vec<_> = (0..3000).map(|i| range(TEXT + i, TEXT + i + 1)).collect();
    let error = build(&table, &moved, &doubled, NEW + 0x10000).expect_err("refused");
    assert!(error.to_string().contains("overlap"), "{error}");
}

/// [`doubled`], with code inserted in the gap behind one instruction.
struct Insertion {
    behind: u64,
    keeps_below: bool,
    /// The code calls something and does not move rsp by itself.
    calls: bool,
}

impl AddressMap for Insertion {
    fn new_address(&self, old: u64) -> Option<u64> {
        doubled(old)
    }

    fn keeps_below(&self, _: u64) -> bool {
        self.keeps_below
    }

    fn inserted(&self, _: &MovedRange) -> Inserted {
        let at = NEW + 2 * (self.behind - TEXT) + 1;
        let mut adjustments = vec![
            StackAdjustment::new(at, Frame::Below(8)),
            StackAdjustment::new(at + 1, Frame::Below(0)),
        ];
        if self.calls {
            adjustments = vec![StackAdjustment {
                at,
                frame: Frame::Below(0),
                writes: true,
            }];
        }
        Inserted {
            adjustments,
            out_of_line: Vec::new(),
        }
    }
}

/// Two registers are pushed, and popped by an epilogue in the middle that remembers nothing.
const EPILOGUE: [u8; 19] = [
    0x41, 0x0e, 16, 0x41, 0x0e, 24, 0x83, 2, 0x8e, 3, // pushed: rbx at -16, r14 at -24
    0x58, 0x0e, 16, 0x42, 0x0e, 8, 0x42, 0x0e, 24, // popped at 0x1a and 0x1c, back at 0x1e
];

fn rule(register: usize, insertion: &Insertion, old: u64) -> String {
    rule_of(&EPILOGUE, register, insertion, old)
}

fn rule_of(cfi: &[u8], register: usize, insertion: &Insertion, old: u64) -> String {
    let mut maker = Maker::default();
    let cie = maker.cie(1, "zR", &[0], 1);
    maker.fde(cie, TEXT, 0x40, &[], cfi);
    let table = maker.table(&[]);
    let blobs = build(
        &table,
        &[range(TEXT, TEXT + 0x40)],
        insertion,
        NEW + 0x10000,
    );
    let blobs = blobs.expect("tables");
    assert_eq!(blobs.undescribed, []);
    let new = frames(&blobs);
    let at = doubled(TEXT + old).expect("it moved");
    let row = new.row(&new.indexed(at), at, TEXT + old).expect("a row");
    row.registers[register].clone()
}

#[test]
fn rules_hold_again_behind_an_epilogue_in_the_middle() {
    for calls in [false, true] {
        let insertion = Insertion {
            behind: TEXT + 0x1b,
            keeps_below: false,
            calls,
        };
        // Only r14 was popped. Its place was written; rbx is still in the frame.
        assert_eq!(rule(14, &insertion, 0x1b), "Offset(-24)");
        assert_eq!(rule(14, &insertion, 0x1c), "SameValue");
        assert_eq!(rule(3, &insertion, 0x1c), "Offset(-16)");
        for register in [3, 14] {
            let place = ["Offset(-16)", "Offset(-24)"][usize::from(register == 14)];
            for old in [0x1e, 0x1f, 0x3f] {
                assert_eq!(
                    rule(register, &insertion, old),
                    place,
                    "{register} {old:#x}"
                );
            }
        }
    }
}

#[test]
fn rules_stay_where_inserted_code_leaves_the_red_zone_alone() {
    let insertion = Insertion {
        behind: TEXT + 0x1d,
        keeps_below: true,
        calls: false,
    };
    for old in [0x1c, 0x1d, 0x1e] {
        assert_eq!(rule(3, &insertion, old), "Offset(-16)");
        assert_eq!(rule(14, &insertion, old), "Offset(-24)");
    }
}

#[test]
fn registers_that_a_first_row_places_below_rsp_have_their_values() {
    // rbx at -16 from the start on, pushed by the first instruction of one byte.
    let cfi = [0x83, 2, 0x41, 0x0e, 16];
    let mut insertion = Insertion {
        behind: TEXT + 0x10,
        keeps_below: false,
        calls: false,
    };
    assert_eq!(rule_of(&cfi, 3, &insertion, 0), "SameValue");
    assert_eq!(rule_of(&cfi, 3, &insertion, 1), "Offset(-16)");
    insertion.keeps_below = true;
    assert_eq!(rule_of(&cfi, 3, &insertion, 0), "Offset(-16)");
}
