//! Where variables of the source are, from debug information.
//!
//! A tool that counts accesses to a data structure needs the structure's address and size, and the
//! addresses and sizes of its parts: `table.head[3].next`. The symbol table has neither parts, nor
//! static variables of functions, nor variables on the stack. All entries are read once for each
//! question; an entry that cannot be read is left out.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use gimli::{
    AttributeValue, DebuggingInformationEntry, Dwarf, Operation, Unit, UnitHeader, UnitOffset,
};

use super::Image;
use super::debug::{Slice, with_dwarf};

/// Where a variable is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// At this virtual address.
    Static(u64),
    /// Distance in bytes from the virtual frame pointer, which is the value of rsp before the call
    /// that entered the function.
    Frame(i64),
    /// Distance in bytes from rbp in the function's body.
    Rbp(i64),
    /// Distance in bytes from rsp in the function's body.
    Rsp(i64),
    /// In each thread's own storage.
    ThreadLocal,
    /// In no one place of memory: in registers, in several places, nowhere.
    Moving,
    /// A part that does not consist of whole bytes.
    Bits,
}

/// A variable, or the part of a variable that was asked for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Variable {
    /// Linkage name, or else name, of the function in which the variable is local; empty for other
    /// variables.
    pub function: String,
    /// Address of `function`, or 0.
    pub function_address: u64,
    /// Place of the variable.
    pub place: Place,
    /// Size in bytes; 0 if unknown.
    pub size: u64,
    /// Name of the source file of the variable's unit.
    pub unit: String,
    /// Line of the declaration, or 0.
    pub line: u32,
}

type Entry<'d> = DebuggingInformationEntry<Slice<'d>>;

/// Largest number of references that are followed from one entry to the next.
const MAX_REFERENCES: usize = 64;
/// Deepest nesting of scopes that is followed.
const MAX_DEPTH: usize = 1000;
/// Largest number of steps in a path.
const MAX_STEPS: usize = 64;

/// One step from a whole to its part.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Step {
    Member(String),
    Index(u64),
}

/// A path such as `a::b.c[3].d`: the variable's name, and the steps from the variable to the part.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Wanted {
    scopes: Vec<String>,
    name: String,
    steps: Vec<Step>,
}

impl Wanted {
    fn parse(path: &str) -> Option<Self> {
        let end = path.find(['.', '[']).unwrap_or(path.len());
        let (whole, mut rest) = path.split_at(end);
        let mut scopes: Vec<String> = whole.split("::").map(str::to_owned).collect();
        let name = scopes
            .pop()
            .filter(|name| !name.is_empty() && !name.contains(']'))?;
        let mut steps = Vec::new();
        while !rest.is_empty() {
            if let Some(more) = rest.strip_prefix('.') {
                let end = more.find(['.', '[']).unwrap_or(more.len());
                steps.push(Step::Member(more.get(..end)?.to_owned()));
                rest = &more[end..];
            } else {
                let (number, more) = rest.strip_prefix('[')?.split_once(']')?;
                steps.push(Step::Index(number.parse().ok()?));
                rest = more;
            }
            if steps.len() > MAX_STEPS {
                return None;
            }
        }
        let named = |s: &Step| !matches!(s, Step::Member(name) if name.is_empty());
        steps.iter().all(named).then_some(Self {
            scopes,
            name,
            steps,
        })
    }
}

/// The variables, or parts of variables, that a path such as `table.head[3]` names. Several
/// variables may have the name: local variables of different functions, static variables of
/// different files.
pub fn variables(image: &Image, path: &str) -> Vec<Variable> {
    let Some(wanted) = Wanted::parse(path) else {
        return Vec::new();
    };
    let found = with_dwarf(image, |dwarf| {
        let reader = Reading::new(dwarf);
        let mut found = Vec::new();
        for number in 0..reader.headers.len() {
            if let Some(unit) = reader.fresh(number) {
                // A unit that cannot be read to its end leaves the rest of its variables out.
                let _ = reader.look(&unit, &wanted, &mut found);
            }
        }
        let mut unique: Vec<Variable> = Vec::new();
        for variable in found {
            if !unique.contains(&variable) {
                unique.push(variable);
            }
        }
        unique
    });
    found.unwrap_or_default()
}

/// A type: its entry, and the dimensions of an array that are already indexed.
#[derive(Clone)]
struct Type<'d> {
    unit: Rc<Unit<Slice<'d>>>,
    at: UnitOffset,
    indexed: usize,
}

/// A member or an element of a whole.
struct Part<'d> {
    offset: u64,
    ty: Type<'d>,
    /// True for a bit-field.
    is_bits: bool,
}

struct Reading<'a, 'd> {
    dwarf: &'a Dwarf<Slice<'d>>,
    headers: Vec<UnitHeader<Slice<'d>>>,
    /// Units to which other units refer.
    kept: RefCell<HashMap<usize, Rc<Unit<Slice<'d>>>>>,
}

/// A scope around an entry.
struct Scope {
    depth: isize,
    /// Name of the namespace or class, if the scope is one.
    name: Option<String>,
    /// Entry of the function, if the scope is one.
    function: Option<UnitOffset>,
}

impl<'a, 'd> Reading<'a, 'd> {
    fn new(dwarf: &'a Dwarf<Slice<'d>>) -> Self {
        let mut headers = Vec::new();
        let mut units = dwarf.units();
        while let Ok(Some(header)) = units.next() {
            headers.push(header);
        }
        Self {
            dwarf,
            headers,
            kept: RefCell::default(),
        }
    }

    fn fresh(&self, number: usize) -> Option<Rc<Unit<Slice<'d>>>> {
        Some(Rc::new(self.dwarf.unit(*self.headers.get(number)?).ok()?))
    }

    /// The unit around an offset in the section, and the offset within the unit.
    fn around(&self, place: gimli::DebugInfoOffset) -> Option<(Rc<Unit<Slice<'d>>>, UnitOffset)> {
        let start = |h: &UnitHeader<Slice<'d>>| h.offset().0;
        let number = self
            .headers
            .partition_point(|h| start(h) <= place.0)
            .checked_sub(1)?;
        let known = self.kept.borrow().get(&number).cloned();
        let unit = match known {
            Some(unit) => unit,
            None => {
                let unit = self.fresh(number)?;
                self.kept.borrow_mut().insert(number, unit.clone());
                unit
            }
        };
        let at = place.to_unit_offset(&unit.header)?;
        Some((unit, at))
    }

    fn referred(
        &self,
        unit: &Rc<Unit<Slice<'d>>>,
        value: AttributeValue<Slice<'d>>,
    ) -> Option<(Rc<Unit<Slice<'d>>>, UnitOffset)> {
        match value {
            AttributeValue::UnitRef(at) => Some((unit.clone(), at)),
            AttributeValue::DebugInfoRef(place) => self.around(place),
            _ => None,
        }
    }

    fn text(&self, unit: &Unit<Slice<'d>>, value: AttributeValue<Slice<'d>>) -> Option<String> {
        let text = self.dwarf.attr_string(unit, value).ok()?;
        Some(text.to_string_lossy().into_owned())
    }

    /// An attribute of an entry, or of the entries that it refers to as its origin.
    fn inherited(
        &self,
        unit: &Rc<Unit<Slice<'d>>>,
        at: UnitOffset,
        attribute: gimli::DwAt,
    ) -> Option<(Rc<Unit<Slice<'d>>>, AttributeValue<Slice<'d>>)> {
        let (mut unit, mut at) = (unit.clone(), at);
        for _ in 0..MAX_REFERENCES {
            let next = {
                let entry = unit.entry(at).ok()?;
                if let Some(value) = entry.attr_value(attribute) {
                    return Some((unit.clone(), value));
                }
                let origins = [gimli::DW_AT_abstract_origin, gimli::DW_AT_specification];
                let origin = origins.iter().find_map(|a| entry.attr_value(*a))?;
                self.referred(&unit, origin)?
            };
            (unit, at) = next;
        }
        None
    }

    fn look(
        &self,
        unit: &Rc<Unit<Slice<'d>>>,
        wanted: &Wanted,
        found: &mut Vec<Variable>,
    ) -> gimli::Result<()> {
        let mut entries = unit.entries();
        let mut scopes: Vec<Scope> = Vec::new();
        while let Some(entry) = entries.next_dfs()? {
            let depth = entry.depth();
            while scopes.last().is_some_and(|s| s.depth >= depth) {
                scopes.pop();
            }
            match entry.tag() {
                gimli::DW_TAG_subprogram if scopes.len() < MAX_DEPTH => scopes.push(Scope {
                    depth,
                    name: None,
                    function: Some(entry.offset()),
                }),
                gimli::DW_TAG_namespace
                | gimli::DW_TAG_class_type
                | gimli::DW_TAG_structure_type
                    if scopes.len() < MAX_DEPTH =>
                {
                    let name = entry.attr_value(gimli::DW_AT_name);
                    scopes.push(Scope {
                        depth,
                        name: name.and_then(|n| self.text(unit, n)),
                        function: None,
                    });
                }
                gimli::DW_TAG_variable | gimli::DW_TAG_formal_parameter => {
                    found.extend(self.variable(unit, entry, &scopes, wanted)?);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn variable(
        &self,
        unit: &Rc<Unit<Slice<'d>>>,
        entry: &Entry<'d>,
        scopes: &[Scope],
        wanted: &Wanted,
    ) -> gimli::Result<Option<Variable>> {
        let Some(location) = entry.attr_value(gimli::DW_AT_location) else {
            return Ok(None);
        };
        let name = self
            .inherited(unit, entry.offset(), gimli::DW_AT_name)
            .and_then(|(unit, value)| self.text(&unit, value));
        if name.as_deref() != Some(&wanted.name) {
            return Ok(None);
        }
        let names = scopes.iter().rev().filter_map(|s| s.name.as_ref());
        // A static member is defined outside of its class, so unknown scopes do not exclude it.
        let known: Vec<&String> = names.collect();
        let pairs = known.iter().zip(wanted.scopes.iter().rev());
        if pairs.into_iter().any(|(a, b)| *a != b) {
            return Ok(None);
        }
        let function = scopes.iter().rev().find_map(|s| s.function);
        let mut place = match location {
            AttributeValue::Exprloc(expression) => self.place(unit, expression, function),
            _ => Place::Moving,
        };
        let whole = self
            .inherited(unit, entry.offset(), gimli::DW_AT_type)
            .and_then(|(unit, value)| self.referred(&unit, value))
            .map(|(unit, at)| Type {
                unit,
                at,
                indexed: 0,
            });
        let Some(mut part) = whole else {
            return Ok(None);
        };
        for step in &wanted.steps {
            let Some(Part {
                offset,
                ty,
                is_bits,
            }) = self.step(&part, step)
            else {
                return Ok(None);
            };
            part = ty;
            match &mut place {
                _ if is_bits => place = Place::Bits,
                Place::Static(at) => *at = at.wrapping_add(offset),
                Place::Frame(at) | Place::Rbp(at) | Place::Rsp(at) => {
                    *at = at.wrapping_add(offset as i64);
                }
                _ => {}
            }
        }
        let line = self
            .inherited(unit, entry.offset(), gimli::DW_AT_decl_line)
            .and_then(|(_, value)| value.udata_value());
        let (mut function_name, mut function_address) = (String::new(), 0);
        if let Some(function) = function {
            let names = [gimli::DW_AT_linkage_name, gimli::DW_AT_name];
            function_name = names
                .iter()
                .find_map(|a| {
                    let (unit, value) = self.inherited(unit, function, *a)?;
                    self.text(&unit, value)
                })
                .unwrap_or_default();
            let low = unit.entry(function)?.attr_value(gimli::DW_AT_low_pc);
            if let Some(low) = low {
                function_address = self.dwarf.attr_address(unit, low)?.unwrap_or(0);
            }
        }
        let unit_name = unit.name.map(|n| n.to_string_lossy().into_owned());
        Ok(Some(Variable {
            function: function_name,
            function_address,
            place,
            size: self.size(&part, 0).unwrap_or(0),
            unit: unit_name.unwrap_or_default(),
            line: line.and_then(|l| u32::try_from(l).ok()).unwrap_or(0),
        }))
    }

    /// The place that a location expression describes. Only the forms that give one place for the
    /// variable's whole life are known.
    fn place(
        &self,
        unit: &Rc<Unit<Slice<'d>>>,
        expression: gimli::Expression<Slice<'d>>,
        function: Option<UnitOffset>,
    ) -> Place {
        let mut operations = expression.operations(unit.encoding());
        let mut place = None;
        while let Ok(Some(operation)) = operations.next() {
            place = Some(match (operation, place) {
                (Operation::Address { address }, None) => Place::Static(address),
                (Operation::AddressIndex { index }, None) => {
                    match self.dwarf.address(unit, index) {
                        Ok(address) => Place::Static(address),
                        Err(_) => Place::Moving,
                    }
                }
                (Operation::PlusConstant { value }, Some(Place::Static(at))) => {
                    Place::Static(at.wrapping_add(value))
                }
                (Operation::FrameOffset { offset }, None) => self.in_frame(unit, function, offset),
                (Operation::TLS, _) => Place::ThreadLocal,
                // An offset in the thread's storage is in front of the operation.
                (Operation::UnsignedConstant { .. } | Operation::SignedConstant { .. }, None) => {
                    Place::Moving
                }
                _ => return Place::Moving,
            });
        }
        place.unwrap_or(Place::Moving)
    }

    fn in_frame(
        &self,
        unit: &Rc<Unit<Slice<'d>>>,
        function: Option<UnitOffset>,
        offset: i64,
    ) -> Place {
        let base = function.and_then(|f| self.inherited(unit, f, gimli::DW_AT_frame_base));
        let Some((_, AttributeValue::Exprloc(base))) = base else {
            return Place::Moving;
        };
        let mut operations = base.operations(unit.encoding());
        let first = operations.next();
        if !matches!(operations.next(), Ok(None)) {
            return Place::Moving;
        }
        match first {
            Ok(Some(Operation::CallFrameCFA)) => Place::Frame(offset),
            Ok(Some(Operation::Register { register })) if register.0 == 6 => Place::Rbp(offset),
            Ok(Some(Operation::Register { register })) if register.0 == 7 => Place::Rsp(offset),
            Ok(Some(Operation::RegisterOffset {
                register,
                offset: more,
                ..
            })) => match register.0 {
                6 => Place::Rbp(offset.wrapping_add(more)),
                7 => Place::Rsp(offset.wrapping_add(more)),
                _ => Place::Moving,
            },
            _ => Place::Moving,
        }
    }

    /// A type without typedefs and qualifiers.
    fn plain(&self, of: &Type<'d>) -> Option<Type<'d>> {
        let mut of = of.clone();
        for _ in 0..MAX_REFERENCES {
            let next = {
                let entry = of.unit.entry(of.at).ok()?;
                match entry.tag() {
                    gimli::DW_TAG_typedef
                    | gimli::DW_TAG_const_type
                    | gimli::DW_TAG_volatile_type
                    | gimli::DW_TAG_restrict_type
                    | gimli::DW_TAG_atomic_type => {
                        let value = entry.attr_value(gimli::DW_AT_type)?;
                        self.referred(&of.unit, value)?
                    }
                    _ => return Some(of.clone()),
                }
            };
            (of.unit, of.at) = next;
        }
        None
    }

    fn next_type(&self, of: &Type<'d>) -> Option<Type<'d>> {
        let value = of.unit.entry(of.at).ok()?.attr_value(gimli::DW_AT_type);
        let (unit, at) = self.referred(&of.unit, value?)?;
        Some(Type {
            unit,
            at,
            indexed: 0,
        })
    }

    /// The dimensions of an array that are not indexed yet.
    fn dimensions(&self, of: &Type<'d>) -> Option<Vec<u64>> {
        let mut tree = of.unit.entries_tree(Some(of.at)).ok()?;
        let mut children = tree.root().ok()?.children();
        let mut all = Vec::new();
        while let Some(child) = children.next().ok()? {
            let entry = child.entry();
            if entry.tag() != gimli::DW_TAG_subrange_type {
                continue;
            }
            let number = |a| entry.attr_value(a).and_then(|v| v.udata_value());
            let count = number(gimli::DW_AT_count);
            let bound = number(gimli::DW_AT_upper_bound).map(|n: u64| n.wrapping_add(1));
            // A dimension of unknown size has neither attribute.
            all.push(count.or(bound).unwrap_or(0));
        }
        Some(all.split_off(of.indexed.min(all.len())))
    }

    fn size(&self, of: &Type<'d>, depth: usize) -> Option<u64> {
        if depth > MAX_STEPS {
            return None;
        }
        let of = self.plain(of)?;
        let (tag, bytes) = {
            let entry = of.unit.entry(of.at).ok()?;
            let bytes = entry.attr_value(gimli::DW_AT_byte_size);
            (entry.tag(), bytes.and_then(|v| v.udata_value()))
        };
        match tag {
            gimli::DW_TAG_array_type => {
                if let Some(bytes) = bytes.filter(|_| of.indexed == 0) {
                    return Some(bytes);
                }
                let element = self.size(&self.next_type(&of)?, depth + 1)?;
                let dimensions = self.dimensions(&of)?;
                dimensions
                    .iter()
                    .try_fold(element, |n, d| n.checked_mul(*d))
            }
            gimli::DW_TAG_pointer_type
            | gimli::DW_TAG_reference_type
            | gimli::DW_TAG_rvalue_reference_type => Some(bytes.unwrap_or(8)),
            _ => bytes,
        }
    }

    /// From a whole to a part.
    fn step(&self, of: &Type<'d>, step: &Step) -> Option<Part<'d>> {
        let of = self.plain(of)?;
        match step {
            Step::Member(name) => self.member(&of, name, 0),
            Step::Index(index) => {
                if of.unit.entry(of.at).ok()?.tag() != gimli::DW_TAG_array_type {
                    return None;
                }
                let dimensions = self.dimensions(&of)?;
                let element = self.next_type(&of)?;
                if *index >= *dimensions.first()? {
                    return None;
                }
                let size = self.size(&element, 0)?;
                let inner = &dimensions[1..];
                let size = inner.iter().try_fold(size, |n, d| n.checked_mul(*d))?;
                let ty = match inner {
                    [] => element,
                    _ => Type {
                        indexed: of.indexed + 1,
                        ..of
                    },
                };
                Some(Part {
                    offset: size.checked_mul(*index)?,
                    ty,
                    is_bits: false,
                })
            }
        }
    }

    /// A member by name. Members of unnamed parts and of base classes are found too.
    fn member(&self, of: &Type<'d>, name: &str, depth: usize) -> Option<Part<'d>> {
        if depth > MAX_STEPS {
            return None;
        }
        let mut inner = Vec::new();
        {
            let mut tree = of.unit.entries_tree(Some(of.at)).ok()?;
            let mut children = tree.root().ok()?.children();
            while let Some(child) = children.next().ok()? {
                let entry = child.entry();
                if ![gimli::DW_TAG_member, gimli::DW_TAG_inheritance].contains(&entry.tag()) {
                    continue;
                }
                let value = |a| entry.attr_value(a);
                let number = |a| value(a).and_then(|v: AttributeValue<Slice<'d>>| v.udata_value());
                let Some(target) = value(gimli::DW_AT_type) else {
                    continue;
                };
                let Some((unit, at)) = self.referred(&of.unit, target) else {
                    continue;
                };
                let part = Part {
                    offset: number(gimli::DW_AT_data_member_location).unwrap_or(0),
                    ty: Type {
                        unit,
                        at,
                        indexed: 0,
                    },
                    is_bits: number(gimli::DW_AT_bit_size).is_some(),
                };
                match value(gimli::DW_AT_name).and_then(|n| self.text(&of.unit, n)) {
                    Some(known) if known == name => return Some(part),
                    Some(_) => {}
                    None => inner.push(part),
                }
            }
        }
        inner.into_iter().find_map(|part| {
            let found = self.member(&self.plain(&part.ty)?, name, depth + 1)?;
            let offset = part.offset.checked_add(found.offset)?;
            Some(Part { offset, ..found })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        let wanted = Wanted::parse("a::b.c[3].d").unwrap();
        assert_eq!(wanted.scopes, ["a"]);
        assert_eq!(wanted.name, "b");
        let member = |s: &str| Step::Member(s.to_owned());
        assert_eq!(wanted.steps, [member("c"), Step::Index(3), member("d")]);
        for wrong in ["", ".a", "a.", "a[", "a[x]", "a[1", "a]", "a..b", "a[1]b"] {
            assert_eq!(Wanted::parse(wrong), None, "{wrong}");
        }
    }
}
