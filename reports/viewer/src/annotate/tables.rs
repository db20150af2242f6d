//! Counts of code from the tables of a profile.
//!
//! Any tool's tables will do: by instruction, by block (columns `bytes` and `insts` give the block's length) and by
//! branch. A measure by block whose unit is `instructions` counts each instruction of the block, so that the number of
//! executions is its quotient by the number of instructions. The column `executions` beside such a measure says the same.

use std::collections::BTreeMap;

use profile::{By, Column, Profile, Role, Table, Type, Value};

use super::counts::{Branch, CodeCounts, Counts, Measure, Row};

/// Column with the length of a block in bytes.
const BYTES: &str = "bytes";
/// Column with the number of a block's instructions.
const INSTS: &str = "insts";
/// Column with the number of a block's executions.
const EXECUTIONS: &str = "executions";
/// Unit of measures that count each instruction of a block.
const INSTRUCTIONS: &str = "instructions";

/// All that a profile says about code.
pub fn read(profile: &Profile) -> CodeCounts {
    let mut counts = CodeCounts::default();
    // Tables by instruction come first: they are exact where a block was left early.
    for by in [By::Instruction, By::Block] {
        let mut known: Vec<String> = counts.measures.iter().map(|m| m.name.clone()).collect();
        for table in profile.tables.iter().filter(|t| t.by == by) {
            let Some(addresses) = address_column(table) else {
                continue;
            };
            let counts_each = measures(table).any(is_by_instruction);
            for column in measures(table) {
                let is_length = [BYTES, INSTS].contains(&&*column.name);
                if is_length || counts_each && column.name == EXECUTIONS {
                    continue;
                }
                if known.contains(&column.name) {
                    continue;
                }
                let objects = by_object(profile, table, addresses, column);
                let total = executed(table, column);
                known.push(column.name.clone());
                counts.measures.push(Measure {
                    name: column.name.clone(),
                    unit: column.unit.clone().unwrap_or_default(),
                    total,
                    is_executions: is_by_instruction(column) || column.name == EXECUTIONS,
                    objects,
                });
            }
        }
    }
    for table in profile.tables.iter().filter(|t| t.by == By::Branch) {
        branches(table, &mut counts);
    }
    counts.procedures = procedures(profile);
    first_what_people_see_first(profile, &mut counts);
    counts
}

/// The measures that are integers.
fn measures(table: &Table) -> impl Iterator<Item = &Column> {
    table
        .measures()
        .filter(|c| c.kind == Type::Count || c.kind == Type::Bytes)
}

/// The column with the addresses of the code that rows stand for.
fn address_column(table: &Table) -> Option<&Column> {
    let addresses = |c: &&Column| c.kind == Type::Address && c.role != Role::Measure;
    table
        .column("pc")
        .filter(addresses)
        .or_else(|| table.columns.iter().find(addresses))
}

fn by_object(profile: &Profile, table: &Table, addresses: &Column, column: &Column) -> Vec<Counts> {
    let mut objects = vec![Counts::default(); profile.objects.len().max(1)];
    let number = |name: &str, row: usize| table.column(name)?.values.get(row)?.integer();
    for row in 0..table.rows {
        let (Some(address), Some(count)) = (integer(addresses, row), integer(column, row)) else {
            continue;
        };
        let Some(object) = objects.get_mut(addresses.object(row)) else {
            continue;
        };
        if table.by == By::Instruction {
            object.add_instruction(address, count);
            continue;
        }
        let executions = match number(INSTS, row) {
            Some(insts) if is_by_instruction(column) && insts != 0 => count / insts,
            _ => count,
        };
        object.add_run(address, number(BYTES, row).unwrap_or(1), executions);
    }
    objects
}

fn is_by_instruction(column: &Column) -> bool {
    column.unit.as_deref() == Some(INSTRUCTIONS)
}

/// Sum of a measure over all instructions of all objects.
fn executed(table: &Table, column: &Column) -> u64 {
    let by_block = table.by == By::Block && !is_by_instruction(column);
    let insts = table.column(INSTS).filter(|_| by_block);
    let row = |row: usize| {
        let count = integer(column, row).unwrap_or(0);
        count.saturating_mul(insts.and_then(|c| integer(c, row)).unwrap_or(1))
    };
    (0..table.rows).map(row).fold(0, u64::saturating_add)
}

fn integer(column: &Column, row: usize) -> Option<u64> {
    column.values.get(row).copied().and_then(Value::integer)
}

fn branches(table: &Table, counts: &mut CodeCounts) {
    let Some(addresses) = address_column(table) else {
        return;
    };
    let targets = table.column("target").filter(|c| c.kind == Type::Address);
    let first = measures(table).next();
    for row in 0..table.rows {
        let Some(address) = integer(addresses, row) else {
            continue;
        };
        let key = (addresses.object(row), address);
        let number = |name: &str| integer(table.column(name)?, row);
        if let (Some(taken), Some(not_taken)) = (number("taken"), number("not taken")) {
            let branch = counts.branches.entry(key).or_default();
            *branch = Branch {
                taken: branch.taken.saturating_add(taken),
                not_taken: branch.not_taken.saturating_add(not_taken),
            };
        } else if let (Some(targets), Some(first)) = (targets, first)
            && let (Some(target), Some(count)) = (integer(targets, row), integer(first, row))
        {
            let list = counts.targets.entry(key).or_default();
            list.push((targets.object(row), target, count));
        }
    }
}

/// The procedures with events, by a table by procedure. Without one the rows of other tables are put together by
/// the procedure's name.
fn procedures(profile: &Profile) -> Vec<Row> {
    let by_address = |row: &Row| (row.object, format!("{:x}", row.address));
    let by_name = |row: &Row| (row.object, row.name.clone());
    let of = |by: By| {
        let mut tables = profile.tables.iter().filter(|t| t.by == by);
        let table = tables.find(|t| address_column(t).is_some() && measures(t).next().is_some())?;
        let rows = rows(profile, table);
        (!rows.is_empty()).then_some(rows)
    };
    let found = [By::Procedure, By::Block, By::Branch, By::Instruction]
        .into_iter()
        .find_map(|by| Some((by, of(by)?)));
    let Some((by, rows)) = found else {
        return Vec::new();
    };
    let mut merged: BTreeMap<(usize, String), Row> = BTreeMap::new();
    for row in rows {
        let key = if by == By::Procedure || row.name.is_empty() {
            by_address(&row)
        } else {
            by_name(&row)
        };
        let old = merged.entry(key);
        old.and_modify(|old| {
            old.weight = old.weight.saturating_add(row.weight);
            old.address = old.address.min(row.address);
        })
        .or_insert(row);
    }
    let mut all: Vec<Row> = merged.into_values().collect();
    all.sort_by(|a, b| b.weight.cmp(&a.weight).then(a.address.cmp(&b.address)));
    all
}

fn rows(profile: &Profile, table: &Table) -> Vec<Row> {
    let (Some(addresses), Some(weight)) = (address_column(table), measures(table).next()) else {
        return Vec::new();
    };
    let names = table.column("procedure").filter(|c| c.kind == Type::Text);
    let row = |row: usize| {
        let name = names.and_then(|c| profile.text(*c.values.get(row)?));
        Some(Row {
            object: addresses.object(row),
            address: integer(addresses, row)?,
            name: name.unwrap_or_default().to_owned(),
            weight: integer(weight, row).unwrap_or(0),
        })
    };
    (0..table.rows).filter_map(row).collect()
}

/// Puts the measure first by which the tool orders procedures: misses before references, for example.
fn first_what_people_see_first(profile: &Profile, counts: &mut CodeCounts) {
    let table = profile.tables.iter().find(|t| t.by == By::Procedure);
    let Some(first) = table.and_then(|t| measures(t).next()) else {
        return;
    };
    if let Some(at) = counts.measures.iter().position(|m| m.name == first.name) {
        let measure = counts.measures.remove(at);
        counts.measures.insert(0, measure);
    }
}
