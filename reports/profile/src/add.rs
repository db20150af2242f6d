//! Several profiles of one program as one: facts and rows are added up, each by the rule of its column.

use rustc_hash::FxHashMap;
use tables::schema::{Role, Sum, Type};

use crate::column::{Column, Table};
use crate::value::Value;
use crate::{Error, Fact, FactValue, Object, Profile, Result};

/// The fact that names what cannot be added up.
pub const LEFT_OUT: &str = "not added up";

/// What identifies a row: words of its key columns.
type Key = Box<[u64]>;

/// Adds profiles up.
///
/// Facts and measures that cannot be added up are left out as soon as there are two profiles, and named in the fact
/// [`LEFT_OUT`]. Labels are those of the
/// first profile that has the row.
#[derive(Debug)]
pub struct Adder {
    sum: Profile,
    strings: FxHashMap<String, u64>,
    /// For each table of the sum the number of the row of each key.
    rows: Vec<FxHashMap<Key, usize>>,
    files: usize,
    /// Profiles of other programs are added too.
    any_program: bool,
    /// Names of facts and columns that cannot be added up.
    left_out: Vec<String>,
}

impl Adder {
    /// The sum of one profile.
    pub fn new(first: Profile) -> Self {
        // A text may be there twice: its first index stands for it.
        let mut strings = FxHashMap::default();
        for (text, index) in first.strings.iter().zip(0..) {
            strings.entry(text.clone()).or_insert(index);
        }
        Self {
            sum: first,
            strings,
            rows: Vec::new(),
            files: 1,
            any_program: false,
            left_out: Vec::new(),
        }
    }

    /// The sum of one profile, to which profiles of other programs may be added: those of all processes of a run.
    /// The sum's program is the first one's.
    pub fn of_programs(first: Profile) -> Self {
        Self {
            any_program: true,
            ..Self::new(first)
        }
    }

    /// Number of profiles in the sum.
    pub fn files(&self) -> usize {
        self.files
    }

    /// The sum.
    pub fn finish(mut self) -> Profile {
        if self.files > 1 {
            self.sum.follow();
            self.sum.derive_facts();
        }
        if !self.left_out.is_empty() {
            self.sum.facts.push(Fact {
                name: LEFT_OUT.to_owned(),
                kind: Type::Text,
                unit: None,
                sum: Sum::None,
                from: None,
                part: None,
                whole: None,
                value: FactValue::Text(self.left_out.join(", ")),
            });
        }
        self.sum
    }

    /// Adds a profile.
    ///
    /// # Errors
    /// It is of another tool, or of another program unless those are wanted, or it measures something else.
    pub fn add(&mut self, other: &Profile) -> Result<()> {
        if self.sum.tool != other.tool {
            return Err(differ("tools", &self.sum.tool, &other.tool));
        }
        self.check_program(other)?;
        self.check_measures(other)?;
        if self.files == 1 {
            self.begin();
        }
        self.files += 1;
        self.sum.time.seconds += other.time.seconds;
        self.facts(&other.facts);
        self.add_tables(other);
        Ok(())
    }

    fn add_tables(&mut self, other: &Profile) {
        let objects: Vec<u32> = other.objects.iter().map(|o| self.object(o)).collect();
        let strings: Vec<u64> = other.strings.iter().map(|s| self.string(s)).collect();
        for table in &other.tables {
            let known = self.sum.tables.iter().position(|t| is_same(t, table));
            let at = known.unwrap_or_else(|| {
                let mut empty = table.clone();
                empty.rows = 0;
                empty.columns.retain(can_be_added);
                for column in &mut empty.columns {
                    (column.objects, column.files, column.values) = Default::default();
                }
                self.sum.tables.push(empty);
                self.rows.push(FxHashMap::default());
                self.sum.tables.len() - 1
            });
            let maps = Maps {
                objects: &objects,
                strings: &strings,
            };
            add_rows(&mut self.sum.tables[at], &mut self.rows[at], table, &maps);
        }
    }

    fn check_program(&self, other: &Profile) -> Result<()> {
        let sum = &self.sum;
        if self.any_program {
            return Ok(());
        }
        let (a, b) = (sum.objects.first(), other.objects.first());
        let id = |o: Option<&Object>| o.and_then(|o| o.build_id.clone());
        let (a_path, b_path) = (&sum.program.path, &other.program.path);
        match (id(a), id(b)) {
            (Some(a), Some(b)) if a == b => Ok(()),
            (Some(_), Some(_)) if a_path == b_path => {
                Err(differ("builds of one program", a_path, b_path))
            }
            (None, None) if a_path == b_path => Ok(()),
            _ => Err(differ("programs", a_path, b_path)),
        }
    }

    /// A table of both must have the same measures: options of a tool may be about what it measures, and a share
    /// of what only one profile has measured would be wrong.
    fn check_measures(&self, other: &Profile) -> Result<()> {
        for table in &other.tables {
            let Some(known) = self.sum.tables.iter().find(|t| is_same(t, table)) else {
                continue;
            };
            let names = |t: &Table| -> Vec<String> {
                let measures = t.measures().filter(|c| c.sum != Sum::None);
                let mut names: Vec<_> = measures.map(|c| c.name.clone()).collect();
                names.sort_unstable();
                names
            };
            let (ours, theirs) = (names(known), names(table));
            if ours != theirs {
                return Err(differ("measures", &ours.join(", "), &theirs.join(", ")));
            }
        }
        Ok(())
    }

    /// Prepares the first profile for the second.
    fn begin(&mut self) {
        let can = |f: &Fact| {
            f.sum != Sum::None || f.from.is_some() || f.part.is_some() || f.kind == Type::Text
        };
        let lost = self.sum.facts.iter().filter(|f| !can(f));
        self.left_out.extend(lost.map(|f| f.name.clone()));
        for table in &self.sum.tables {
            let lost = table.columns.iter().filter(|c| !can_be_added(c));
            let name = |c: &Column| format!("{} of {}", c.name, table.name);
            self.left_out.extend(lost.map(name));
        }
        self.sum.facts.retain(can);
        let objects: Vec<u32> = (0..self.sum.objects.len() as u32).collect();
        let strings: Vec<u64> = self.sum.strings.iter().map(|s| self.strings[s]).collect();
        let maps = Maps {
            objects: &objects,
            strings: &strings,
        };
        for table in &mut self.sum.tables {
            table.columns.retain(can_be_added);
            let keys = KeyColumns::of(table);
            let mut words = Vec::new();
            let rows = (0..table.rows).map(|row| {
                keys.read(row, &maps, &mut words);
                (words.as_slice().into(), row)
            });
            self.rows.push(rows.collect());
        }
    }

    fn object(&mut self, other: &Object) -> u32 {
        // Without build-ids only the paths tell programs of one name apart.
        let has_place =
            |o: &Object| !self.any_program || o.build_id.is_some() || o.path == other.path;
        let is = |o: &Object| o.name == other.name && o.build_id == other.build_id && has_place(o);
        let objects = &mut self.sum.objects;
        let at = objects.iter().position(is).unwrap_or_else(|| {
            objects.push(other.clone());
            objects.len() - 1
        });
        at as u32
    }

    fn string(&mut self, text: &str) -> u64 {
        if let Some(index) = self.strings.get(text) {
            return *index;
        }
        let index = self.sum.strings.len() as u64;
        self.sum.strings.push(text.to_owned());
        self.strings.insert(text.to_owned(), index);
        index
    }

    fn facts(&mut self, others: &[Fact]) {
        let find = |name: &str| others.iter().find(|f| f.name == name);
        self.sum.facts.retain_mut(|fact| {
            let Some(other) = find(&fact.name) else {
                return true;
            };
            if fact.part.is_some() || fact.from.is_some() {
                return true;
            }
            if fact.kind == Type::Text {
                return fact.value == other.value;
            }
            fact.value = FactValue::Number(added(fact.sum, fact.number(), other.number()));
            true
        });
        for other in (others.iter()).filter(|f| f.sum != Sum::None || f.from.is_some()) {
            if self.sum.fact(&other.name).is_none() {
                self.sum.facts.push(other.clone());
            }
        }
    }
}

fn differ(what: &'static str, first: &str, second: &str) -> Error {
    Error::Different {
        what,
        first: first.to_owned(),
        second: second.to_owned(),
    }
}

/// Puts profiles of several tools for one program together: one profile with the tables of all, in their order. A table
/// whose name an earlier one has gets its tool's name in front (`prof: procedures`). Facts are those of the first.
///
/// # Errors
/// They are of different programs.
pub fn join(profiles: Vec<Profile>) -> Result<Option<Profile>> {
    let mut profiles = profiles.into_iter();
    let Some(first) = profiles.next() else {
        return Ok(None);
    };
    let mut adder = Adder::new(first);
    adder.rows = vec![FxHashMap::default(); adder.sum.tables.len()];
    for mut other in profiles {
        adder.check_program(&other)?;
        for table in &mut other.tables {
            if adder.sum.tables.iter().any(|t| t.name == table.name) {
                table.name = format!("{}: {}", other.tool, table.name);
            }
        }
        adder.add_tables(&other);
        adder.sum.tool = format!("{}, {}", adder.sum.tool, other.tool);
    }
    Ok(Some(adder.finish()))
}

/// Where the objects and strings of one profile are in the sum.
struct Maps<'a> {
    objects: &'a [u32],
    strings: &'a [u64],
}

fn is_same(a: &Table, b: &Table) -> bool {
    a.name == b.name && a.by == b.by
}

fn can_be_added(column: &Column) -> bool {
    column.role != Role::Measure || column.sum != Sum::None || column.from.is_some()
}

/// The sum of two values by a rule. A value that is not known does not count.
pub fn added(rule: Sum, a: Value, b: Value) -> Value {
    let (x, y) = match (a, b) {
        (Value::Unknown, other) | (other, Value::Unknown) => return other,
        (Value::Integer(a), Value::Integer(b)) => {
            return match rule {
                Sum::Add => Value::Integer(a.saturating_add(b)),
                Sum::Max => Value::Integer(a.max(b)),
                Sum::Min => Value::Integer(a.min(b)),
                Sum::None => Value::Unknown,
            };
        }
        (a, b) => (a.float().unwrap_or(0.0), b.float().unwrap_or(0.0)),
    };
    match rule {
        Sum::Add => Value::Float(x + y),
        Sum::Max => Value::Float(x.max(y)),
        Sum::Min => Value::Float(x.min(y)),
        Sum::None => Value::Unknown,
    }
}

/// The columns that identify the rows of a table.
struct KeyColumns<'a>(Vec<&'a Column>);

impl<'a> KeyColumns<'a> {
    fn of(table: &'a Table) -> Self {
        let keys = table.columns.iter().filter(|c| c.role == Role::Key);
        Self(keys.collect())
    }

    /// What identifies a row. Rows of a table without keys are told by their numbers.
    fn read(&self, row: usize, maps: &Maps<'_>, words: &mut Vec<u64>) {
        let object = |n: usize| maps.objects.get(n).copied().unwrap_or(0).into();
        let string = |n: u64| maps.strings.get(n as usize).copied().unwrap_or(n);
        words.clear();
        for column in &self.0 {
            let value = column.values.get(row).copied().unwrap_or_default();
            match column.kind {
                Type::Address | Type::Place => {
                    words.push(object(column.object(row)));
                    if column.kind == Type::Place {
                        let file = column.file(row).map(|file| string(file as u64));
                        words.push(file.unwrap_or(u64::MAX));
                    }
                    words.push(value.integer().unwrap_or(u64::MAX));
                }
                Type::Text => words.push(value.integer().map_or(u64::MAX, string)),
                _ => words.push(match value {
                    Value::Unknown => u64::MAX,
                    Value::Integer(n) => n,
                    Value::Float(x) => x.to_bits(),
                }),
            }
        }
        if words.is_empty() {
            words.push(row as u64);
        }
    }
}

fn add_rows(sum: &mut Table, known: &mut FxHashMap<Key, usize>, table: &Table, maps: &Maps<'_>) {
    let columns: Vec<Option<&Column>> = (sum.columns.iter())
        .map(|column| table.column(&column.name))
        .collect();
    // Most rows are known, and in them only measures change.
    let measures = sum.columns.iter().zip(&columns).enumerate();
    let measures = measures.filter(|(_, (into, _))| into.role == Role::Measure);
    let measures: Vec<(usize, &[Value])> = measures
        .filter_map(|(i, (_, from))| Some((i, from.as_ref()?.values.as_slice())))
        .collect();
    let keys = KeyColumns::of(table);
    let mut words = Vec::new();
    for row in 0..table.rows {
        keys.read(row, maps, &mut words);
        if let Some(&at) = known.get(words.as_slice()) {
            for (i, values) in &measures {
                let into = &mut sum.columns[*i];
                let value = values.get(row).copied().unwrap_or_default();
                if let Some(old) = into.values.get_mut(at) {
                    *old = added(into.sum, *old, value);
                }
            }
            continue;
        }
        known.insert(words.as_slice().into(), sum.rows);
        let all = sum.columns.iter_mut().zip(&columns);
        for (into, from) in all.filter(|(into, _)| into.role != Role::Derived) {
            append(into, *from, row, maps);
        }
        sum.rows += 1;
    }
}

/// Appends the cell of a new row.
fn append(into: &mut Column, from: Option<&Column>, row: usize, maps: &Maps<'_>) {
    let before = into.values.len();
    let value = from.and_then(|c| c.values.get(row)).copied();
    let mut value = value.unwrap_or_default();
    if into.kind == Type::Text {
        let index = value.integer().and_then(|n| maps.strings.get(n as usize));
        value = index.copied().into();
    }
    into.values.push(value);
    if matches!(into.kind, Type::Address | Type::Place) {
        let object = from.map_or(0, |c| c.object(row));
        let object = maps.objects.get(object).copied().unwrap_or(0);
        if object != 0 || !into.objects.is_empty() {
            into.objects.resize(before, 0);
            into.objects.push(object);
        }
    }
    if into.kind == Type::Place {
        let file = from.and_then(|c| maps.strings.get(c.file(row)?));
        into.files.resize(before, -1);
        into.files.push(file.map_or(-1, |file| *file as i64));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profile(objects: &str, strings: &str, tables: &str) -> Profile {
        let text = format!(
            "{{\"format\":\"atom-profile\",\"version\":1,\"tool\":\"t\",\"program\":{{\"path\":\"/p\"}},
             \"objects\":[{objects}],\"strings\":[{strings}],
             \"facts\":[{{\"name\":\"n\",\"type\":\"count\",\"sum\":\"add\",\"value\":4}},
               {{\"name\":\"all\",\"type\":\"count\",\"sum\":\"max\",\"value\":8}},
               {{\"name\":\"median\",\"type\":\"count\",\"sum\":\"none\",\"value\":8}},
               {{\"name\":\"%\",\"type\":\"percent\",\"part\":\"n\",\"whole\":\"all\",\"value\":50}}],
             \"tables\":[{tables}]}}"
        );
        Profile::parse(text.as_bytes()).unwrap()
    }

    fn table(objects: &str, pcs: &str, names: &str, counts: &str, rows: usize) -> String {
        format!(
            "{{\"name\":\"x\",\"by\":\"procedure\",\"rows\":{rows},\"columns\":[
              {{\"name\":\"n\",\"type\":\"count\",\"role\":\"measure\",\"sum\":\"add\",\"values\":[{counts}]}},
              {{\"name\":\"mean\",\"type\":\"ratio\",\"role\":\"measure\",\"sum\":\"none\",\"values\":[{counts}]}},
              {{\"name\":\"%\",\"type\":\"percent\",\"role\":\"derived\",\"part\":\"n\"}},
              {{\"name\":\"pc\",\"type\":\"address\",\"role\":\"key\",\"objects\":[{objects}],\"values\":[{pcs}]}},
              {{\"name\":\"procedure\",\"type\":\"text\",\"role\":\"label\",\"values\":[{names}]}}]}}"
        )
    }

    const PROGRAM: &str = "{\"name\":\"p\",\"build_id\":\"aa\"}";
    const C: &str = "{\"name\":\"libc\",\"build_id\":\"bb\"}";
    const Z: &str = "{\"name\":\"libz\",\"build_id\":\"cc\"}";

    #[test]
    fn rows_are_matched_by_object_and_address() {
        let a = profile(
            &[PROGRAM, C].join(","),
            "\"main\",\"read\"",
            &table("0,1", "16,16", "0,1", "5,7", 2),
        );
        let b = profile(
            &[PROGRAM, Z, C].join(","),
            "\"inflate\",\"read\",\"main\"",
            &table("2,1,0", "16,32,48", "1,0,2", "1,2,3", 3),
        );
        let mut adder = Adder::new(a);
        adder.add(&b).unwrap();
        assert_eq!(adder.files(), 2);
        let sum = adder.finish();
        let names: Vec<&str> = sum.objects.iter().map(|o| &*o.name).collect();
        assert_eq!(names, ["p", "libc", "libz"]);
        let table = &sum.tables[0];
        let column = |name: &str| table.column(name).unwrap();
        assert_eq!(column("n").values, [5, 8, 2, 3].map(Value::Integer));
        assert_eq!(column("pc").objects, [0, 1, 2, 0]);
        let name = |row: usize| sum.text(column("procedure").values[row]);
        assert_eq!(
            [0, 1, 2, 3].map(name),
            ["main", "read", "inflate", "main"].map(Some)
        );
        assert!(table.column("mean").is_none() && table.column("%").is_some());
        let fact = |name: &str| sum.fact(name).map(Fact::number);
        assert_eq!(fact("n"), Some(Value::Integer(8)));
        assert_eq!(fact("all"), Some(Value::Integer(8)));
        assert_eq!(fact("%"), Some(Value::Float(100.0)));
        assert_eq!(fact("median"), None);
    }

    /// Rows whose keys are texts and source lines, of a profile in which a text is there twice.
    #[test]
    fn a_text_may_be_there_twice() {
        let table = "{\"name\":\"x\",\"by\":\"line\",\"rows\":2,\"columns\":[
            {\"name\":\"n\",\"type\":\"count\",\"role\":\"measure\",\"sum\":\"add\",\"values\":[5,7]},
            {\"name\":\"line\",\"type\":\"place\",\"role\":\"key\",\"files\":[0,2],\"values\":[3,4]},
            {\"name\":\"of\",\"type\":\"text\",\"role\":\"key\",\"values\":[1,3]}]}";
        let one = || profile(PROGRAM, "\"a.c\",\"main\",\"a.c\",\"main\"", table);
        let mut adder = Adder::new(one());
        adder.add(&one()).unwrap();
        adder.add(&one()).unwrap();
        let sum = adder.finish();
        let table = &sum.tables[0];
        assert_eq!(table.rows, 2);
        assert_eq!(table.columns[0].values, [15, 21].map(Value::Integer));
    }

    #[test]
    fn other_measures_are_refused() {
        let one = |name: &str| {
            let text = table("0", "16", "0", "5", 1).replace("\"name\":\"n\"", name);
            profile(PROGRAM, "\"main\"", &text)
        };
        let mut adder = Adder::new(one("\"name\":\"executions\""));
        assert!(adder.add(&one("\"name\":\"executions\"")).is_ok());
        assert!(adder.add(&one("\"name\":\"executed\"")).is_err());
        let more = "\"name\":\"more\",\"type\":\"count\",\"role\":\"measure\",\"sum\":\"add\",\"values\":[5]},\
            {\"name\":\"executions\"";
        assert!(adder.add(&one(more)).is_err());
        assert_eq!(adder.files(), 2);
    }

    #[test]
    fn a_profile_twice_is_twice_as_much() {
        let one = || {
            profile(
                &[PROGRAM, C].join(","),
                "\"main\",\"read\"",
                &table("0,1", "16,16", "0,1", "5,7", 2),
            )
        };
        let mut adder = Adder::new(one());
        adder.add(&one()).unwrap();
        adder.add(&one()).unwrap();
        let sum = adder.finish();
        let values = &sum.tables[0].column("n").unwrap().values;
        assert_eq!(*values, [15, 21].map(Value::Integer));
        assert_eq!((sum.objects.len(), sum.strings.len()), (2, 2));
    }

    #[test]
    fn other_programs_are_refused() {
        let one = profile(PROGRAM, "", "");
        let message = |other: Profile| {
            let mut adder = Adder::new(one.clone());
            adder.add(&other).unwrap_err().to_string()
        };
        let mut other = one.clone();
        other.tool = "u".into();
        assert_eq!(message(other), "profiles of different tools: t and u");
        let mut other = one.clone();
        other.objects[0].build_id = Some("dd".into());
        assert!(message(other.clone()).contains("different builds of one program"));
        other.program.path = "/q".into();
        assert_eq!(message(other), "profiles of different programs: /p and /q");
    }

    #[test]
    fn programs_of_a_run_are_added() {
        let object =
            |name: &str, path: &str| format!("{{\"name\":\"{name}\",\"path\":\"{path}\"}}");
        let one = |name: &str, path: &str| {
            let objects = [object(name, path), C.to_owned()].join(",");
            profile(
                &objects,
                "\"main\",\"read\"",
                &table("0,1", "16,16", "0,1", "5,7", 2),
            )
        };
        let mut adder = Adder::of_programs(one("sh", "/bin/sh"));
        adder.add(&one("cc", "/bin/cc")).unwrap();
        adder.add(&one("sh", "/opt/sh")).unwrap();
        adder.add(&one("sh", "/bin/sh")).unwrap();
        let sum = adder.finish();
        let paths: Vec<&str> = sum.objects.iter().map(|o| &*o.path).collect();
        assert_eq!(paths, ["/bin/sh", "", "/bin/cc", "/opt/sh"]);
        let values = &sum.tables[0].column("n").unwrap().values;
        assert_eq!(*values, [10, 28, 5, 5].map(Value::Integer));
    }

    #[test]
    fn rules() {
        let int = Value::Integer;
        assert_eq!(added(Sum::Add, int(u64::MAX), int(1)), int(u64::MAX));
        assert_eq!(added(Sum::Min, int(3), int(2)), int(2));
        assert_eq!(added(Sum::Max, Value::Unknown, int(2)), int(2));
        assert_eq!(
            added(Sum::Add, Value::Float(0.5), int(2)),
            Value::Float(2.5)
        );
        assert_eq!(added(Sum::None, int(1), int(2)), Value::Unknown);
    }

    /// Two runs that executed other lines: the union is counted, shares follow, and what cannot be added up is named.
    #[test]
    fn sizes_of_sets_are_counted_in_the_union() {
        let run = |first: u64, second: u64| {
            let text = format!(
                r#"{{"format":"atom-profile","version":1,"tool":"t","program":{{"path":"/p"}},
                "objects":[{{"name":"p"}}],"strings":["a.c","b.c"],
                "facts":[
                  {{"name":"some","type":"count","sum":"none","from":{{"table":"lines","column":"executed","by":"rows"}},"value":1}},
                  {{"name":"all","type":"count","sum":"none","from":{{"table":"lines","by":"rows"}},"value":2}},
                  {{"name":"blocks","type":"count","sum":"none","from":{{"table":"procedures","column":"blocks","by":"total"}},"value":7}},
                  {{"name":"%","type":"percent","part":"some","whole":"all","value":50}},
                  {{"name":"entered","type":"count","sum":"none","from":{{"table":"procedures","column":"reached","by":"rows"}},"value":1}},
                  {{"name":"mean","type":"ratio","sum":"none","value":2.5}}],
                "tables":[
                  {{"name":"files","by":"file","rows":2,"columns":[
                    {{"name":"some","type":"count","role":"measure","sum":"none","from":{{"table":"lines","column":"executed","by":"rows"}},"values":[{first},{second}]}},
                    {{"name":"odd","type":"count","role":"measure","sum":"none","values":[1,2]}},
                    {{"name":"file","type":"text","role":"key","values":[0,1]}}]}},
                  {{"name":"lines","by":"line","rows":2,"columns":[
                    {{"name":"executed","type":"count","role":"measure","sum":"max","values":[{first},{second}]}},
                    {{"name":"line","type":"place","role":"key","files":[0,1],"values":[3,4]}}]}},
                  {{"name":"procedures","by":"procedure","rows":2,"columns":[
                    {{"name":"blocks","type":"count","role":"measure","sum":"max","values":[3,4]}},
                    {{"name":"reached","type":"count","role":"measure","sum":"none","from":{{"table":"blocks","by":"rows"}},"values":[0,0]}},
                    {{"name":"pc","type":"address","role":"key","values":[16,64]}}]}},
                  {{"name":"blocks","by":"block","rows":1,"columns":[
                    {{"name":"pc","type":"address","role":"key","values":[{}]}}]}}]}}"#,
                16 + 50 * second,
            );
            Profile::parse(text.as_bytes()).unwrap()
        };
        let mut adder = Adder::new(run(1, 0));
        adder.add(&run(0, 1)).unwrap();
        let sum = adder.finish();
        let fact = |name: &str| sum.fact(name).unwrap().number().float().unwrap();
        assert_eq!([fact("some"), fact("all"), fact("blocks")], [2.0, 2.0, 7.0]);
        assert_eq!([fact("%"), fact("entered")], [100.0, 2.0]);
        let values = |table: &str, column: &str| {
            let table = sum.table(table).unwrap();
            table.column(column).unwrap().values.clone()
        };
        assert_eq!(values("files", "some"), [Value::Integer(1); 2]);
        assert_eq!(values("procedures", "reached"), [Value::Integer(1); 2]);
        let lost = FactValue::Text("mean, odd of files".to_owned());
        assert_eq!(sum.fact(LEFT_OUT).unwrap().value, lost);
    }
}
