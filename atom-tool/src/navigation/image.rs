//! Locations of data: symbols, variables of the source.

use atom_abi::StrRef;
use atom_abi::query::{SymbolRecord, VariablePlace as PlaceNumber, VariableRecord};

use crate::navigation::handle::Inst;
use crate::navigation::program::Program;
use crate::navigation::program::each;

/// A data object of a symbol table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DataSymbol<'a> {
    /// Its name as in the table.
    pub symbol: &'a str,
    /// Its name for people.
    pub name: &'a str,
    /// Its address in the program's file.
    pub address: u64,
    /// Its size in bytes; 0 if the table does not say.
    pub size: u64,
}

/// Location of a variable.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum VariablePlace {
    /// At this address in the program's file.
    Static(u64),
    /// At this offset in bytes from the value that rsp had before the call that entered the function.
    Frame(i64),
    /// In each thread's own storage.
    ThreadLocal,
    /// Not at one address: in registers, in several places, or nowhere.
    Moving,
    /// A part that does not consist of whole bytes (a bit-field).
    Bits,
}

/// A variable of the source, or a part of one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Variable<'a> {
    /// Name of the function that the variable is local to, as in the debug information.
    pub function: Option<&'a str>,
    /// That function's address, where it has one.
    pub function_address: Option<u64>,
    /// Its location.
    pub place: VariablePlace,
    /// Its size in bytes; 0 if the debug information does not say.
    pub size: u64,
    /// The source file that was compiled.
    pub unit: Option<&'a str>,
    /// The line of its declaration.
    pub line: Option<u32>,
}

impl<'a> Program<'a> {
    /// The data objects that the symbol tables define.
    pub fn data_symbols(&self) -> Vec<DataSymbol<'a>> {
        let host = self.session.host;
        let mut found = Vec::new();
        each(
            |arg, sink| (host.data_symbols)(host.context, arg, sink),
            |s: &SymbolRecord| {
                found.push(DataSymbol {
                    symbol: self.session.text(s.name),
                    name: self.session.text(s.plain_name),
                    address: s.address,
                    size: s.size,
                });
            },
        );
        found
    }

    /// The variables of the source, or parts of variables, that a path names, such as
    /// `table.head[3].next` or `names::space::variable`, from debug information. There may be several: local ones of
    /// different functions, static ones of different files.
    pub fn variables(&self, path: &str) -> Vec<Variable<'a>> {
        let host = self.session.host;
        let mut found = Vec::new();
        let text = |text: StrRef| Some(self.session.text(text)).filter(|t| !t.is_empty());
        each(
            |arg, sink| (host.variables)(host.context, StrRef::new(path), arg, sink),
            |v: &VariableRecord| {
                let is = |place: PlaceNumber| v.place == place as u32;
                let place = match () {
                    () if is(PlaceNumber::Static) => VariablePlace::Static(v.at),
                    () if is(PlaceNumber::Frame) => VariablePlace::Frame(v.at as i64),
                    () if is(PlaceNumber::ThreadLocal) => VariablePlace::ThreadLocal,
                    () if is(PlaceNumber::Bits) => VariablePlace::Bits,
                    () => VariablePlace::Moving,
                };
                found.push(Variable {
                    function: text(v.function),
                    function_address: (v.function_address != 0).then_some(v.function_address),
                    place,
                    size: v.size,
                    unit: text(v.unit),
                    line: (v.line != 0).then_some(v.line),
                });
            },
        );
        found
    }
}

impl<'a> Inst<'a> {
    /// Name, as in the symbol table, of the imported function that a call, or a jump to another
    /// procedure, leads to: directly, through its slot in the global offset table or through the
    /// procedure linkage table. None if it leads elsewhere, or if the function is not known.
    pub fn entered_import(&self) -> Option<&'a str> {
        let host = self.session.host;
        let name = self
            .session
            .text((host.entered_import)(host.context, self.id));
        (!name.is_empty()).then_some(name)
    }
}
