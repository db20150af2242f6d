//! The reader against gimli, on real programs.

use atom_core::unwind::{self, Lsda, UnwindInput};

use crate::corpus::{Program, programs};
use crate::oracle::Frames;

#[test]
fn ranges_are_those_that_gimli_finds() {
    let mut fdes = 0;
    for program in programs(1) {
        let table = program.table();
        assert_eq!(table.skipped, [], "{}", program.path.display());
        let mut expected = Frames::new(&program.eh_frame, program.vaddr, None).ranges();
        expected.retain(|&(start, size, _)| size != 0 && start != 0);
        expected.sort_by_key(|&(start, ..)| start);
        let found: Vec<_> = table
            .fdes
            .iter()
            .map(|f| (f.start, f.size, f.lsda))
            .collect();
        assert_eq!(found, expected, "{}", program.path.display());
        fdes += found.len();
    }
    assert!(fdes > 1000, "only {fdes} FDEs");
}

#[test]
fn header_leads_to_the_same_table() {
    for program in programs(7) {
        let Some(header) = program.header else {
            continue;
        };
        let by_header = UnwindInput::from_header(header, program.memory()).expect("a header");
        let by_header = unwind::parse(&by_header).expect("a table");
        let by_section = program.table();
        let starts = |t: &unwind::UnwindTable| t.fdes.iter().map(|f| f.start).collect::<Vec<_>>();
        assert_eq!(
            starts(&by_header),
            starts(&by_section),
            "{}",
            program.path.display()
        );
    }
}

/// Where an LSDA ends, as an offset from its start.
fn extent(lsda: &Lsda<'_>, program: &Program) -> u64 {
    let memory = program.memory();
    let start = memory.at(lsda.vaddr).expect("it was read").as_ptr() as u64;
    let last = match &lsda.types {
        Some(types) => types.specifications,
        None => lsda.actions,
    };
    last.as_ptr() as u64 + last.len() as u64 - start
}

/// Most specifications of one area that no call site leads to.
const UNSEEN: usize = 2;

/// Whether an area starts after `end`, where the code of the one that ended there continues or
/// was dropped by the linker. Areas are aligned to 4 bytes and begin with 0xff, as they have no
/// base of their own for landing pads. Exception specifications, which end an area, may be
/// longer than its call sites tell: compilers keep the specification of a filter to which no
/// call site leads any more. Each is a list of numbers that ends with 0.
fn starts_behind(end: u64, next: u64, program: &Program) -> bool {
    let memory = program.memory();
    let byte = |at: u64| memory.at(at).map(|bytes| bytes[0]);
    let starts = |at: u64| at <= next && byte(at) == Some(0xff);
    let behind_list = |start: u64| {
        let is_end = |at: &u64| byte(*at).is_none_or(|byte| byte == 0);
        (start..next).find(is_end).map(|at| at + 1)
    };
    let ends = std::iter::successors(Some(end), |end| behind_list(*end));
    let mut ends = ends.take(1 + UNSEEN);
    ends.any(|end| starts(end) || starts(end.next_multiple_of(4)))
}

/// No LSDA says how long it is; if what follows from its contents is right,
/// each ends where the next one starts.
#[test]
fn areas_fill_their_section_without_overlap() {
    let (mut areas, mut gaps) = (0, 0);
    for program in programs(3) {
        let table = program.table();
        let mut extents = Vec::new();
        for fde in &table.fdes {
            let lsda = table
                .lsda(fde)
                .unwrap_or_else(|e| panic!("{}: {e}", program.path.display()));
            let Some(lsda) = lsda else { continue };
            extents.push((lsda.vaddr, lsda.vaddr + extent(&lsda, &program)));
            let mut last = fde.start;
            for site in &lsda.call_sites {
                assert!(site.start >= last, "{}: {site:x?}", program.path.display());
                last = site.start + site.size;
            }
            assert!(last <= fde.end(), "{}: {fde:x?}", program.path.display());
            for pad in lsda.call_sites.iter().filter_map(|s| s.landing_pad) {
                assert!(
                    table.find(pad).is_some(),
                    "{}: {pad:#x}",
                    program.path.display()
                );
            }
        }
        extents.sort();
        extents.dedup();
        areas += extents.len();
        for pair in extents.windows(2) {
            let gap = pair[1].0.checked_sub(pair[0].1);
            let gap = gap.unwrap_or_else(|| panic!("{}: {pair:x?}", program.path.display()));
            if gap >= 16 {
                // The linker dropped the code that had an area here.
                gaps += 1;
                assert!(
                    starts_behind(pair[0].1, pair[1].0, &program),
                    "{}: {pair:x?}",
                    program.path.display()
                );
            }
        }
    }
    assert!(gaps * 20 < areas, "{gaps} gaps between {areas} areas");
    assert!(areas > 100, "only {areas} areas");
}

#[test]
fn landing_pads_are_those_of_the_call_sites() {
    for program in programs(11) {
        let table = program.table();
        let mut expected = Vec::new();
        for (i, fde) in table.fdes.iter().enumerate() {
            let lsda = table.lsda(fde).expect("read before");
            let sites = lsda.iter().flat_map(|l| &l.call_sites);
            expected.extend(sites.filter_map(|s| Some((i, s.landing_pad?))));
        }
        let found: Vec<_> = table.landing_pads().collect();
        assert_eq!(found, expected, "{}", program.path.display());
    }
}
