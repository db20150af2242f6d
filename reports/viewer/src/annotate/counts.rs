//! What a profile says about code: counts by instruction, by block and by branch, of each object.
//!
//! A table by block has one count for a run of instructions, which all were executed equally often. A table by
//! instruction has one count for each. Readers ask for the count at an address and need not know which table it
//! comes from.

use std::collections::BTreeMap;

/// How often a conditional branch was taken and not taken.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Branch {
    /// Number of executions that went to the branch's target.
    pub taken: u64,
    /// Number of executions that continued after the branch.
    pub not_taken: u64,
}

/// A target of an indirect jump or call: object, address there, number of executions.
pub type Target = (usize, u64, u64);

/// A run of instructions with one count.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// Length in bytes.
    bytes: u64,
    count: u64,
}

/// Counts of one measure in one object, by address in the object's file.
#[derive(Clone, Default, Debug)]
pub struct Counts {
    runs: BTreeMap<u64, Run>,
    instructions: BTreeMap<u64, u64>,
}

impl Counts {
    /// Adds to the count of a run of instructions.
    pub fn add_run(&mut self, address: u64, bytes: u64, count: u64) {
        let run = Run { bytes, count: 0 };
        let run = self.runs.entry(address).or_insert(run);
        run.bytes = run.bytes.max(bytes);
        run.count = run.count.saturating_add(count);
    }

    /// Adds to the count of an instruction.
    pub fn add_instruction(&mut self, address: u64, count: u64) {
        let old = self.instructions.entry(address).or_default();
        *old = old.saturating_add(count);
    }

    /// Count of the instruction at an address; 0 if no table has the address.
    pub fn at(&self, address: u64) -> u64 {
        if let Some(count) = self.instructions.get(&address) {
            return *count;
        }
        match self.runs.range(..=address).next_back() {
            Some((start, run)) if address - start < run.bytes => run.count,
            _ => 0,
        }
    }
}

/// A measure that instructions have.
#[derive(Clone, Debug)]
pub struct Measure {
    /// Name of the column, such as `misses`.
    pub name: String,
    /// Unit of the values, such as `instructions`; may be empty.
    pub unit: String,
    /// Sum over the whole profile.
    pub total: u64,
    /// It counts executions of the instructions.
    pub is_executions: bool,
    /// Counts by object.
    pub objects: Vec<Counts>,
}

/// A procedure of a profile.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Row {
    /// Index of the object.
    pub object: usize,
    /// An address in the procedure, as a rule its first.
    pub address: u64,
    /// Name in the profile.
    pub name: String,
    /// Value by which procedures are ordered.
    pub weight: u64,
}

/// All that a profile says about code.
#[derive(Clone, Default, Debug)]
pub struct CodeCounts {
    /// The measures that instructions have; the first one is what heat shows.
    pub measures: Vec<Measure>,
    /// Conditional branches by object and address.
    pub branches: BTreeMap<(usize, u64), Branch>,
    /// Targets of indirect branches by object and address.
    pub targets: BTreeMap<(usize, u64), Vec<Target>>,
    /// Procedures with events, those with the largest weight first.
    pub procedures: Vec<Row>,
}

impl CodeCounts {
    /// The values of the instruction at an address, one for each measure.
    pub fn at(&self, object: usize, address: u64) -> Vec<u64> {
        let value = |measure: &Measure| measure.objects.get(object).map_or(0, |c| c.at(address));
        self.measures.iter().map(value).collect()
    }

    /// Executions of the block from `first` to the instruction `last`; `None` if the profile does not tell them.
    pub fn executions(&self, object: usize, first: u64, last: u64) -> Option<u64> {
        let mut measures = self.measures.iter();
        if let Some(measure) = measures.find(|measure| measure.is_executions) {
            return Some(measure.objects.get(object)?.at(first));
        }
        let branch = self.branches.get(&(object, last))?;
        Some(branch.taken.saturating_add(branch.not_taken))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn executions_are_not_taken_from_other_events() {
        let mut of_object = Counts::default();
        of_object.add_instruction(0x10, 7);
        let measure = |is_executions| Measure {
            name: "misses".into(),
            unit: String::new(),
            total: 7,
            is_executions,
            objects: vec![of_object.clone()],
        };
        let branch = Branch {
            taken: 2,
            not_taken: 3,
        };
        let mut counts = CodeCounts {
            measures: vec![measure(false)],
            branches: BTreeMap::from([((0, 0x14), branch)]),
            ..CodeCounts::default()
        };
        assert_eq!(counts.executions(0, 0x10, 0x14), Some(5));
        assert_eq!(counts.executions(0, 0x10, 0x12), None);
        counts.measures.push(measure(true));
        assert_eq!(counts.executions(0, 0x10, 0x14), Some(7));
    }

    #[test]
    fn runs_and_instructions_are_asked_alike() {
        let mut counts = Counts::default();
        counts.add_run(0x10, 6, 5);
        counts.add_run(0x10, 6, 2);
        counts.add_run(0x20, 1, 1);
        assert_eq!(
            [0xf, 0x10, 0x15, 0x16, 0x20, 0x21].map(|a| counts.at(a)),
            [0, 7, 7, 0, 1, 0]
        );
        counts.add_instruction(0x12, 40);
        counts.add_instruction(0x12, u64::MAX);
        assert_eq!([0x10, 0x12, 0x13].map(|a| counts.at(a)), [7, u64::MAX, 7]);
    }
}
