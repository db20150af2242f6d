//! Comparison of exception tables: a call of the new text must lead to the same landing pads, with the same actions and
//! types, as in the original.

use super::rows::{Description, Personality};
use crate::check::memory::Memory;
use crate::unwind::{Lsda, UnwindTable};

/// An exception table that was read.
type Area<'a> = Option<Lsda<'a>>;

/// Address of a table and of the first instruction that it is for: linkers that fold identical sections let
/// several descriptions share a table, whose distances count from each one's start.
type Key = (u64, u64);

/// Exception tables of the descriptions that were read last.
#[derive(Default)]
pub struct Areas<'a> {
    original: Option<(Key, Area<'a>)>,
    output: Option<(Key, Area<'a>)>,
    /// Addresses of two tables whose actions and types were found to agree.
    agree: Option<(u64, u64)>,
}

/// Where an exception goes.
type Landing = Option<(Option<u64>, u64)>;

fn landing(area: &Area<'_>, address: u64) -> Landing {
    let sites = &area.as_ref()?.call_sites;
    let after = sites.partition_point(|site| site.start <= address);
    let site = &sites[after.checked_sub(1)?];
    if address - site.start >= site.size {
        return None;
    }
    Some((site.landing_pad, site.action))
}

impl<'a> Areas<'a> {
    /// Compares the landing of an exception at the original address `old` and at `new`. `place_of` tells where moved
    /// code is.
    pub fn compare(
        &mut self,
        table: &UnwindTable<'a>,
        memory: &Memory<'a>,
        (old, new): (u64, u64),
        output: Description,
        mut place_of: impl FnMut(u64) -> u64,
    ) -> Result<(), String> {
        let Some(fde) = table.find(old).map(|i| &table.fdes[i]) else {
            return Ok(());
        };
        let Some(address) = fde.lsda else {
            return match output.area {
                Some(_) => Err("has an exception table, unlike the original".into()),
                None => Ok(()),
            };
        };
        let personality = table.cie(fde).personality.map(|p| Personality {
            address: p.vaddr,
            is_indirect: p.indirect,
        });
        if personality != output.personality {
            return Err("has another personality routine".into());
        }
        let original = match &self.original {
            Some((key, area)) if *key == (address, fde.start) => area,
            _ => {
                &self
                    .original
                    .insert(((address, fde.start), table.lsda(fde).ok().flatten()))
                    .1
            }
        };
        if original.is_none() {
            // Not understood, which has been reported.
            return Ok(());
        }
        let at = output.area.ok_or("has no exception table")?;
        if (at, new) == (address, old) {
            // The original's table, at a return address of the original.
            return Ok(());
        }
        let found = match &self.output {
            Some((key, area)) if *key == (at, output.start) => area,
            _ => {
                let bytes = memory.rest_at(at).ok_or("has no exception table")?;
                let area = Lsda::parse(bytes, at, output.start);
                &self.output.insert(((at, output.start), Some(area?))).1
            }
        };
        let (then, now) = (landing(original, old), landing(found, new));
        let moved = then.map(|(pad, action)| (pad.map(&mut place_of), action));
        if now != then && now != moved {
            return Err(format!("leads exceptions to {now:x?}, not to {moved:x?}"));
        }
        if self.agree == Some((address, at)) {
            return Ok(());
        }
        if let (Some(then), Some(now)) = (original, found)
            && !is_same(then, now)
        {
            return Err("has other actions or types of exceptions".into());
        }
        self.agree = Some((address, at));
        Ok(())
    }
}

/// True if the actions and types of a table are those of the original, as far as the table uses them.
fn is_same(then: &Lsda<'_>, now: &Lsda<'_>) -> bool {
    let types = |lsda: &Lsda<'_>| lsda.types.as_ref().map(|t| t.entries.clone());
    let types = [then, now].map(|lsda| types(lsda).unwrap_or_default());
    then.actions.starts_with(now.actions) && types[0].starts_with(&types[1])
}
