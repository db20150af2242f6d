//! The words of `atom_abi::StartInfo`, in its order.

use std::mem::offset_of;

use atom_abi::StartInfo;

use crate::analysis::AnalysisImage;
use crate::plan::Totals;

/// What the structure tells.
pub(super) struct StartWords<'a> {
    /// The tool's code and data.
    pub analysis: &'a AnalysisImage,
    /// Address at which the tool's address 0 is.
    pub base: u64,
    /// Address of the plan's data.
    pub data: u64,
    /// Address of the function that makes the calls at the program's start.
    pub before: u64,
    /// Address of the function that makes the calls at the program's end.
    pub after: u64,
    /// Offset in the data of the `ThreadInfo`, if there may be several threads.
    pub threads: Option<u32>,
    /// Offset in the data of the `ThreadInfo`, if the tool has cells.
    pub cells: Option<u32>,
    /// Offset in the data of the table of counts, and its length.
    pub counts: (u32, usize),
    /// Offset in the data of the `RunInfo`.
    pub run: Option<u32>,
    /// Address of the structure itself.
    pub address: u64,
    /// Places of the counters of edges and of their table.
    pub totals: Option<Totals>,
    /// Address of the table of return addresses of a program alone.
    pub returns: Option<u64>,
    /// Address of the table of instruction boundaries of a program alone.
    pub boundaries: Option<u64>,
    /// Address of the image of a program alone.
    pub image: u64,
    /// Address of the table of moved code of a program alone, if there is one.
    pub text: Option<u64>,
    /// Offset in the data of the `Control`, if there are two versions.
    pub control: Option<u32>,
}

impl StartWords<'_> {
    /// All words: value, and true for an address.
    pub(super) fn words(&self) -> Vec<(u64, bool)> {
        let (base, analysis) = (self.base, self.analysis);
        let tls = analysis.tls;
        let mut words = vec![
            (base + tls.map_or(0, |t| t.address), true),
            (tls.map_or(0, |t| t.file_size), false),
            (tls.map_or(0, |t| t.mem_size), false),
            (tls.map_or(1, |t| t.align), false),
            (base + analysis.init_array, true),
            (analysis.init_functions.len() as u64, false),
            (self.before, true),
            (self.after, true),
            self.in_data(self.threads),
        ];
        if let Some(totals) = &self.totals {
            words.extend([
                (self.data + u64::from(totals.table), true),
                (u64::from(totals.table_size), false),
                (self.data + u64::from(totals.counters), true),
                (self.data + u64::from(totals.scratch), true),
                (self.data, true),
            ]);
        }
        words.resize(offset_of!(StartInfo, run) / 8, (0, false));
        words.push(self.in_data(self.run));
        words.extend([
            (self.address, false),
            self.in_data(self.cells),
            self.in_data(Some(self.counts.0)),
            (self.counts.1 as u64, false),
        ]);
        let table = |address: Option<u64>| (address.unwrap_or(0), address.is_some());
        words.extend([
            table(self.returns),
            (self.image, false),
            table(self.text),
            table(self.boundaries),
            (base, true),
            (analysis.text.len() as u64, false),
            (base + analysis.eh_frame.start, true),
            (analysis.eh_frame.end - analysis.eh_frame.start, false),
            self.in_data(self.control),
        ]);
        debug_assert_eq!(words.len() * 8, size_of::<StartInfo>());
        const { assert!(offset_of!(StartInfo, address) == offset_of!(StartInfo, run) + 8) };
        words
    }

    /// The word with the address of what is at an offset in the data.
    fn in_data(&self, offset: Option<u32>) -> (u64, bool) {
        match offset {
            Some(offset) => (self.data + u64::from(offset), true),
            None => (0, false),
        }
    }
}
