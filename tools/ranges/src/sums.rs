//! Sums of the references to ranges.

use std::collections::BTreeMap;

use atom_tool::prelude::*;

/// Counts of the references to a range.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Sum {
    pub loads: u64,
    pub stores: u64,
    pub bytes: u64,
    pub misses: u64,
}

impl Sum {
    /// Adds the counts of another sum.
    pub fn add(&mut self, other: Self) {
        self.loads += other.loads;
        self.stores += other.stores;
        self.bytes += other.bytes;
        self.misses += other.misses;
    }

    /// Loads and stores.
    pub fn references(self) -> u64 {
        self.loads + self.stores
    }

    /// The counts as cells of a table.
    pub fn cells(self) -> [Cell; 4] {
        [self.loads, self.stores, self.bytes, self.misses].map(Cell::from)
    }
}

/// The sums of each range at each instruction.
pub type Sums = BTreeMap<(u32, u32), Sum>;

/// Sums by range and by a key of the instruction; of each range the most references come first.
pub fn grouped<K: Ord + Clone>(
    sums: &Sums,
    sites: Sites,
    key: impl Fn(&Site) -> Option<K>,
) -> Vec<(u32, K, Site, Sum)> {
    let mut groups: BTreeMap<(u32, K), (Site, Sum)> = BTreeMap::new();
    for ((range, site), sum) in sums {
        let Some(site) = sites.get(*site as usize) else {
            continue;
        };
        if let Some(key) = key(&site) {
            let entry = groups.entry((*range, key));
            entry.or_insert((site, Sum::default())).1.add(*sum);
        }
    }
    let rows = groups
        .into_iter()
        .map(|((r, k), (site, sum))| (r, k, site, sum));
    let mut rows: Vec<_> = rows.collect();
    rows.sort_by_key(|row| (row.0, std::cmp::Reverse(row.3.references())));
    rows
}
