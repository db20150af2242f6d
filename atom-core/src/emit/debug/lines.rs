//! Line programs: read row by row, mapped, and written with the original header.

use gimli::constants::{DW_FORM_line_strp, DW_FORM_strp};
use gimli::{DebugLine, DebugLineOffset, LineRow, LittleEndian};
use rayon::prelude::*;

use super::bytes::Cursor;
use super::form::{form, skip_form};
use super::input::Input;
use super::map::CodeMap;

/// The new line programs of a file.
pub(super) struct Lines {
    /// The section.
    pub bytes: Vec<u8>,
    /// Original and new offset of each unit, ascending.
    offsets: Vec<(usize, usize)>,
    /// Offset of these bytes in the output's section, which is added to offsets.
    pub base: usize,
}

impl Lines {
    /// Maps all units.
    pub fn convert(input: &Input<'_>, map: &dyn CodeMap, base: usize, str_base: [u64; 2]) -> Self {
        let data: &[u8] = &input.line;
        let mut units = Vec::new();
        let mut at = 0;
        while let Some((len, _)) = Cursor::new(data, at).unit_length() {
            let header = if data[at..].starts_with(&[0xff; 4]) {
                12
            } else {
                4
            };
            let Some(end) = (at + header).checked_add(len).filter(|e| *e <= data.len()) else {
                break;
            };
            units.push(at..end);
            at = end;
        }
        let converted: Vec<Option<Vec<u8>>> = units
            .par_iter()
            .map(|unit| convert_unit(data, unit.start, unit.end, map, str_base))
            .collect();
        let mut lines = Self {
            bytes: Vec::with_capacity(data.len()),
            offsets: Vec::new(),
            base,
        };
        for (unit, bytes) in units.iter().zip(converted) {
            if let Some(bytes) = bytes {
                lines.offsets.push((unit.start, lines.bytes.len()));
                lines.bytes.extend(bytes);
            }
        }
        lines
    }

    /// The new offset of a unit.
    pub fn offset(&self, old: u64) -> Option<u64> {
        let old = usize::try_from(old).ok()?;
        let i = self.offsets.binary_search_by_key(&old, |o| o.0).ok()?;
        Some((self.base + self.offsets[i].1) as u64)
    }
}

fn convert_unit(
    data: &[u8],
    start: usize,
    end: usize,
    map: &dyn CodeMap,
    str_base: [u64; 2],
) -> Option<Vec<u8>> {
    let mut cursor = Cursor::new(data, start);
    let (_, offset_size) = cursor.unit_length()?;
    let body = cursor.at;
    let version = cursor.u16()?;
    if version >= 5 {
        cursor.take(2)?;
    }
    let length = usize::try_from(cursor.uint(offset_size)?).ok()?;
    let program_start = cursor.at.checked_add(length).filter(|p| *p <= end)?;

    let section = DebugLine::new(data, LittleEndian);
    let program = section
        .program(DebugLineOffset(start), 8, None, None)
        .ok()?;
    let header = program.header();
    let mut encoder = Encoder {
        opcode_base: header.opcode_base(),
        line_base: i64::from(header.line_base()),
        line_range: i64::from(header.line_range()),
        default_is_stmt: header.default_is_stmt(),
        out: data[start..program_start].to_vec(),
        state: State::default(),
    };
    if encoder.line_range == 0
        || header.minimum_instruction_length() != 1
        || encoder.opcode_base < 10
    {
        return None;
    }
    if version >= 5 && str_base != [0, 0] {
        // minimum_instruction_length, maximum_operations_per_instruction, default_is_stmt, line_base, line_range
        let names = Cursor::new(data, cursor.at + 5);
        relocate_names(&mut encoder.out, names, offset_size, start, str_base)?;
    }
    encoder.reset();
    let mut sequence: Vec<LineRow> = Vec::new();
    let mut rows = program.rows();
    while let Ok(Some((_, row))) = rows.next_row() {
        sequence.push(*row);
        if row.end_sequence() {
            write_sequence(&sequence, map, &mut encoder);
            sequence.clear();
        }
    }
    let mut out = encoder.out;
    let length = (out.len() - (body - start)) as u64;
    super::bytes::patch(&mut out, body - start - offset_size, offset_size, length);
    Some(out)
}

/// Adds the starts of the string sections in the output to the names of a DWARF 5 header. `cursor` is at
/// the header's `opcode_base`; the header starts at `start` and has offsets of `offset_size` bytes.
fn relocate_names(
    out: &mut [u8],
    mut cursor: Cursor<'_>,
    offset_size: usize,
    start: usize,
    str_base: [u64; 2],
) -> Option<()> {
    let opcode_base = cursor.u8()?;
    cursor.take(usize::from(opcode_base).checked_sub(1)?)?;
    for _ in 0..2 {
        let count = cursor.u8()?;
        let mut forms = Vec::new();
        for _ in 0..count {
            cursor.uleb()?;
            forms.push(form(&mut cursor)?);
        }
        for _ in 0..cursor.uleb()? {
            for form in &forms {
                let base = match *form {
                    DW_FORM_strp => str_base[0],
                    DW_FORM_line_strp => str_base[1],
                    _ => {
                        skip_form(&mut cursor, *form, offset_size, 5)?;
                        continue;
                    }
                };
                let place = cursor.at - start;
                let value = cursor.uint(offset_size)? + base;
                super::bytes::patch(out, place, offset_size, value);
            }
        }
    }
    Some(())
}

/// Writes one sequence, as several sequences if its code is apart.
fn write_sequence(rows: &[LineRow], map: &dyn CodeMap, encoder: &mut Encoder) {
    // End address of the open sequence.
    let mut open: Option<u64> = None;
    let mut pieces = Vec::new();
    for pair in rows.windows(2) {
        let (row, next) = (&pair[0], &pair[1]);
        pieces.clear();
        if row.address() < next.address() {
            map.pieces(row.address(), next.address(), &mut pieces);
        } else if let Some(end) = open
            && row.address() == next.address()
        {
            // A row that the next row replaces may still mark the end of the prologue.
            let at = map.start(row.address());
            if at == end {
                encoder.row(row, at);
            }
            continue;
        }
        for piece in &pieces {
            match open {
                Some(end) if piece.from >= end && piece.from - end <= 64 => {}
                Some(end) => encoder.end_sequence(end),
                None => {}
            }
            encoder.row(row, piece.from);
            open = Some(piece.to);
        }
    }
    if let Some(end) = open {
        encoder.end_sequence(end);
    }
}

/// The registers of the line machine that are written.
#[derive(Default)]
struct State {
    address: Option<u64>,
    file: u64,
    line: i64,
    column: u64,
    is_stmt: bool,
}

struct Encoder {
    opcode_base: u8,
    line_base: i64,
    line_range: i64,
    default_is_stmt: bool,
    out: Vec<u8>,
    state: State,
}

impl Encoder {
    fn reset(&mut self) {
        self.state = State {
            address: None,
            file: 1,
            line: 1,
            column: 0,
            is_stmt: self.default_is_stmt,
        };
    }

    fn set_address(&mut self, address: u64) {
        self.out.extend([0, 9, 2]);
        self.out.extend(address.to_le_bytes());
        self.state.address = Some(address);
    }

    fn advance(&mut self, to: u64) -> u64 {
        match self.state.address {
            Some(at) if at <= to => to - at,
            _ => {
                self.set_address(to);
                0
            }
        }
    }

    fn end_sequence(&mut self, end: u64) {
        let delta = self.advance(end);
        if delta > 0 {
            self.out.push(2);
            leb128::push(&mut self.out, delta);
        }
        self.out.extend([0, 1, 1]);
        self.reset();
    }

    fn row(&mut self, row: &LineRow, address: u64) {
        let mut delta = self.advance(address);
        if row.file_index() != self.state.file {
            self.state.file = row.file_index();
            self.out.push(4);
            leb128::push(&mut self.out, self.state.file);
        }
        let column = match row.column() {
            gimli::ColumnType::LeftEdge => 0,
            gimli::ColumnType::Column(column) => column.get(),
        };
        if column != self.state.column {
            self.state.column = column;
            self.out.push(5);
            leb128::push(&mut self.out, column);
        }
        if row.is_stmt() != self.state.is_stmt {
            self.state.is_stmt = row.is_stmt();
            self.out.push(6);
        }
        if row.discriminator() != 0 {
            let mut number = Vec::new();
            leb128::push(&mut number, row.discriminator());
            self.out.push(0);
            leb128::push(&mut self.out, 1 + number.len() as u64);
            self.out.push(4);
            self.out.extend(number);
        }
        if row.prologue_end() && self.opcode_base > 10 {
            self.out.push(10);
        }
        if row.epilogue_begin() && self.opcode_base > 11 {
            self.out.push(11);
        }
        let line = row.line().map_or(0, |l| l.get() as i64);
        let mut step = line.wrapping_sub(self.state.line);
        self.state.line = line;
        self.state.address = Some(address);
        if step < self.line_base || step >= self.line_base + self.line_range {
            self.out.push(3);
            leb128::push_signed(&mut self.out, step);
            step = 0;
        }
        if step < self.line_base || step >= self.line_base + self.line_range {
            // The header's special opcodes cannot keep the line.
            if delta > 0 {
                self.out.push(2);
                leb128::push(&mut self.out, delta);
            }
            self.out.push(1);
            return;
        }
        let base = i64::from(self.opcode_base) + step - self.line_base;
        let most = (255 - base) / self.line_range;
        if base > 255 || delta > most.max(0) as u64 {
            self.out.push(2);
            leb128::push(&mut self.out, delta);
            delta = 0;
        }
        if base > 255 {
            self.out.push(3);
            leb128::push_signed(&mut self.out, step);
            self.out.push(1);
            return;
        }
        self.out.push((base + delta as i64 * self.line_range) as u8);
    }
}
