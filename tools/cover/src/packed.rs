//! What the report has to know of each block, in groups ([`atom_tool::packed`]), which begin with the facts of [`Head`].
//! The flag of a block says that it ends in a conditional branch. After such a block there are:
//!
//! - the length of the branch in bytes, and where its ways are seen;
//! - in a group with lines the differences of its file and line from those of the branch before, or of the head.
//!
//! The lines of blocks are elsewhere ([`crate::lines`]).
//!
//! The rules of marks are packed, too: for each procedure its number of blocks, the number of its first block as the
//! difference from the procedure before, the length of the rest in bytes, and for each rule its block as the
//! difference from the rule before, the number of its blocks, and for each of these the difference from the rule's block.
//!
//! All numbers are LEB128; differences have their sign in the lowest bit.

use atom_tool::packed::{Code, Group, push_group};
use leb128::next;

use atom_cover::marks::{Rule, Seen};

/// A line: key of the file's name, and number.
pub type Line = (u32, u32);

/// Facts about a procedure.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Head {
    /// Address of its first block.
    pub pc: u64,
    /// Key of its name.
    pub name: u32,
    /// Its first line; the number 0 stands for no line.
    pub line: Line,
    /// Its blocks have lines.
    pub has_lines: bool,
}

/// Facts about a block.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct BlockFacts {
    /// Its code.
    pub code: Code,
    /// Its conditional branch.
    pub branch: Option<Branch>,
}

/// A conditional branch at the end of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Branch {
    /// Its address.
    pub pc: u64,
    /// Where it is seen that it was taken, and that it was not.
    pub ways: [Seen; 2],
    /// Its line; the number 0 stands for no line.
    pub line: Line,
}

/// Appends the blocks of a procedure. `first` is the number of the first one.
pub fn push(to: &mut Vec<u8>, head: Head, first: u32, blocks: &[BlockFacts]) {
    let mut group = Vec::new();
    for number in [
        head.pc,
        head.name.into(),
        head.line.0.into(),
        head.line.1.into(),
        head.has_lines.into(),
    ] {
        leb128::push(&mut group, number);
    }
    let (mut end, mut line) = (head.pc, head.line);
    for block in blocks {
        block.code.push(&mut group, end, block.branch.is_some());
        end = block.code.end();
        if let Some(branch) = block.branch {
            leb128::push(&mut group, end - branch.pc);
            for way in branch.ways {
                let number = match way {
                    Seen::Nowhere => 0,
                    Seen::Mark(mark) => u64::from(mark) << 1 | 1,
                    Seen::Block(b) => (leb128::zigzag(i64::from(b) - i64::from(first)) + 1) << 1,
                };
                leb128::push(&mut group, number);
            }
            if head.has_lines {
                let next = branch.line;
                for (new, old) in [(next.0, line.0), (next.1, line.1)] {
                    leb128::push(&mut group, difference(new, old));
                }
                line = next;
            }
        }
    }
    push_group(to, blocks.len(), [], &group);
}

/// Appends bytes, with their number in front.
pub fn push_piece(to: &mut Vec<u8>, bytes: &[u8]) {
    leb128::push(to, bytes.len() as u64);
    to.extend_from_slice(bytes);
}

/// Takes what [`push_piece`] has appended.
pub fn next_piece<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = next(bytes)? as usize;
    let (piece, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(piece)
}

/// Leaves out a procedure with `blocks` blocks.
pub fn leave_out(to: &mut Vec<u8>, blocks: usize) {
    push_group(to, blocks, [], &[]);
}

/// The difference of two numbers, as it is packed.
pub fn difference(new: u32, old: u32) -> u64 {
    leb128::zigzag(i64::from(new) - i64::from(old))
}

/// A number, given another one and its difference from that.
pub fn behind(old: u32, difference: u64) -> u32 {
    (i64::from(old) + leb128::unzigzag(difference)) as u32
}

/// Appends the rules of a procedure with `blocks` blocks, of which `first` is the first one; `last` is the first one of the
/// procedure before. Rules are about blocks of the procedure only.
pub fn push_rules(to: &mut Vec<u8>, (last, first): (u32, u32), blocks: usize, rules: &[Rule]) {
    let mut own = Vec::new();
    let mut before = first;
    for (block, of) in rules {
        leb128::push(&mut own, difference(*block, before));
        leb128::push(&mut own, of.len() as u64);
        of.iter()
            .for_each(|other| leb128::push(&mut own, difference(*other, *block)));
        before = *block;
    }
    leb128::push(to, blocks as u64);
    leb128::push(to, u64::from(first - last));
    push_piece(to, &own);
}

/// Sets the marks that follow from the rules; 1 stands for a block that was executed. Where nothing was executed, nothing
/// follows.
pub fn apply_rules(mut bytes: &[u8], marks: &mut [u8]) {
    let mut first = 0;
    while let Some((blocks, own)) = (|| {
        let blocks = next(&mut bytes)? as usize;
        first += next(&mut bytes)? as usize;
        Some((blocks, next_piece(&mut bytes)?))
    })() {
        let is_executed = marks
            .get(first..first + blocks)
            .is_some_and(|marks| marks.iter().any(|mark| *mark != 0));
        if is_executed {
            apply_some(own, first as u32, marks);
        }
    }
}

/// As [`apply_rules`], with the rules of one procedure.
fn apply_some(mut bytes: &[u8], mut block: u32, marks: &mut [u8]) -> Option<()> {
    while !bytes.is_empty() {
        block = behind(block, next(&mut bytes)?);
        let mut is_reached = 0;
        for _ in 0..next(&mut bytes)? {
            let other = behind(block, next(&mut bytes)?);
            is_reached |= marks.get(other as usize).copied().unwrap_or(0);
        }
        *marks.get_mut(block as usize)? = is_reached;
    }
    Some(())
}

/// The facts about a procedure; none if it was left out.
pub fn head(bytes: &mut &[u8]) -> Option<Head> {
    let mut take = || next(bytes);
    Some(Head {
        pc: take()?,
        name: take()? as u32,
        line: (take()? as u32, take()? as u32),
        has_lines: take()? != 0,
    })
}

/// Gives each block of a procedure, with its place there, to `each`.
pub fn each(group: &Group<'_>, mut each: impl FnMut(usize, &BlockFacts)) -> Option<()> {
    let mut bytes = group.bytes;
    let head = head(&mut bytes)?;
    let (mut end, mut line) = (head.pc, head.line);
    for i in 0..group.len {
        let (code, has_branch) = Code::next(&mut bytes, end)?;
        end = code.end();
        let branch = if has_branch {
            Some(branch(&mut bytes, group.first, head, end, &mut line)?)
        } else {
            None
        };
        each(i, &BlockFacts { code, branch });
    }
    Some(())
}

/// Reads the branch that ends at the address `end`. `line` is the line of the previous branch, and is set to the line of this
/// one.
fn branch(
    bytes: &mut &[u8],
    first: usize,
    head: Head,
    end: u64,
    line: &mut Line,
) -> Option<Branch> {
    let mut take = || next(bytes);
    let pc = end.wrapping_sub(take()?);
    let mut way = || {
        Some(match take()? {
            0 => Seen::Nowhere,
            mark if mark & 1 != 0 => Seen::Mark((mark >> 1) as u32),
            block => {
                let distance: i64 = leb128::unzigzag((block >> 1) - 1);
                Seen::Block((first as i64 + distance) as u32)
            }
        })
    };
    let ways = [way()?, way()?];
    if head.has_lines {
        *line = (behind(line.0, take()?), behind(line.1, take()?));
    }
    let line = *line;
    Some(Branch { pc, ways, line })
}

#[cfg(test)]
mod tests {
    use super::*;
    use atom_tool::packed::groups;

    #[test]
    fn rules_are_applied_in_their_order() {
        let mut bytes = Vec::new();
        push_rules(&mut bytes, (0, 0), 4, &[(2, vec![3, 0]), (1, vec![2])]);
        push_rules(&mut bytes, (0, 4), 1, &[]);
        push_rules(
            &mut bytes,
            (4, 5),
            897,
            &[(900, vec![5, 6]), (6, vec![901])],
        );
        push_rules(&mut bytes, (5, 902), 3, &[(903, vec![902, 904])]);
        let mut marks = vec![0; 905];
        (marks[3], marks[901]) = (1, 1);
        apply_rules(&bytes, &mut marks);
        let set = (0..905).filter(|i| marks[*i] != 0);
        assert_eq!(set.collect::<Vec<_>>(), [1, 2, 3, 6, 901]);
    }

    #[test]
    fn what_is_packed_is_unpacked() {
        let block = |pc, bytes, insts, branch| BlockFacts {
            code: Code { pc, bytes, insts },
            branch,
        };
        let branch = |pc, ways, line| Some(Branch { pc, ways, line });
        let ways = [Seen::Block(2), Seen::Mark(700)];
        let blocks = [
            block(0x1000, 9, 3, branch(0x1007, ways, (0, 4))),
            block(0x0f00, 300, 100, None),
            block(
                2 << 32,
                2,
                1,
                branch(2 << 32, [Seen::Nowhere, Seen::Block(9)], (40, 2)),
            ),
        ];
        let head = Head {
            pc: 0x1000,
            name: 17,
            line: (40, 3),
            has_lines: true,
        };
        let mut bytes = Vec::new();
        push(&mut bytes, Head::default(), 0, &[BlockFacts::default()]);
        leave_out(&mut bytes, 5);
        push(&mut bytes, head, 6, &blocks);
        let all: Vec<Group<'_>> = groups(&bytes).collect();
        assert_eq!((all.len(), all[2].first, all[2].len), (3, 6, 3));
        assert_eq!(super::head(&mut { all[1].bytes }), None);
        assert_eq!(super::head(&mut { all[2].bytes }), Some(head));
        let mut found = Vec::new();
        each(&all[2], |i, block| {
            assert_eq!(i, found.len());
            found.push(*block);
        });
        assert_eq!(found, blocks);
        each(&all[0], |_, block| {
            assert_eq!(*block, BlockFacts::default())
        });
    }
}
