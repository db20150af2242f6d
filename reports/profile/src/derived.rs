//! Derived columns: shares and ratios, which are computed whenever they are needed. So they are right for sums
//! of several runs, too.

use tables::schema::{Role, Type};

use crate::column::{Column, Table};
use crate::value::Value;
use crate::{Fact, FactValue, Profile};

/// The quotient of two numbers as a value of a type: in per cent for [`Type::Percent`]. Not known
/// if a number is not known or the second one is 0.
pub fn fraction(kind: Type, part: Value, whole: Value) -> Value {
    let (Some(part), Some(whole)) = (part.float(), whole.float()) else {
        return Value::Unknown;
    };
    if whole == 0.0 {
        return Value::Unknown;
    }
    Value::Float(match kind {
        Type::Percent => part * 100.0 / whole,
        _ => part / whole,
    })
}

/// Sum of the known values.
fn sum(values: &[Value]) -> Value {
    let integers = values.iter().try_fold(0u64, |sum, value| match value {
        Value::Unknown => Some(sum),
        Value::Integer(n) => sum.checked_add(*n),
        Value::Float(_) => None,
    });
    integers.map_or_else(
        || Value::Float(values.iter().filter_map(|v| v.float()).sum()),
        Value::Integer,
    )
}

impl Profile {
    /// The values of a column for all rows of its table. Derived ones are computed.
    pub fn values(&self, table: &Table, column: &Column) -> Vec<Value> {
        if column.role != Role::Derived {
            return column.values.clone();
        }
        let stored = |name: &Option<String>| table.column(name.as_deref()?);
        let Some(part) = stored(&column.part) else {
            return vec![Value::Unknown; table.rows];
        };
        let whole: Box<dyn Fn(usize) -> Value> = match (&column.whole, &column.whole_fact) {
            (Some(_), _) => match stored(&column.whole) {
                Some(whole) => Box::new(|row| whole.values.get(row).copied().unwrap_or_default()),
                None => Box::new(|_| Value::Unknown),
            },
            (None, Some(name)) => {
                let fact = self.fact(name).map_or(Value::Unknown, Fact::number);
                Box::new(move |_| fact)
            }
            (None, None) => {
                let all = sum(&part.values);
                Box::new(move |_| all)
            }
        };
        let of = |(row, part): (usize, &Value)| fraction(column.kind, *part, whole(row));
        part.values.iter().enumerate().map(of).collect()
    }

    /// Computes the derived facts again.
    pub fn derive_facts(&mut self) {
        for i in 0..self.facts.len() {
            let fact = &self.facts[i];
            if let (Some(part), Some(whole)) = (&fact.part, &fact.whole) {
                let number = |name: &str| self.fact(name).map_or(Value::Unknown, Fact::number);
                let value = fraction(fact.kind, number(part), number(whole));
                self.facts[i].value = FactValue::Number(value);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_of_a_sum_of_a_column_and_of_a_fact() {
        let text = r#"{"format":"atom-profile","version":1,"tool":"t","program":{},
            "facts":[{"name":"all","type":"count","sum":"add","value":16},
                     {"name":"quarter","type":"percent","part":"a","whole":"all","value":0},
                     {"name":"a","type":"count","sum":"add","value":4}],
            "tables":[{"name":"x","by":"other","rows":3,"columns":[
              {"name":"a","type":"count","role":"measure","values":[1,3,null]},
              {"name":"b","type":"count","role":"measure","values":[2,0,5]},
              {"name":"%","type":"percent","role":"derived","part":"a","whole":null},
              {"name":"a/b","type":"ratio","role":"derived","part":"a","whole":"b"},
              {"name":"of all","type":"percent","role":"derived","part":"a","whole_fact":"all"}]}]}"#;
        let mut profile = Profile::parse(text.as_bytes()).unwrap();
        let table = &profile.tables[0];
        let values = |i: usize| profile.values(table, &table.columns[i]);
        let float = |x: f64| Value::Float(x);
        assert_eq!(values(2), [float(25.0), float(75.0), Value::Unknown]);
        assert_eq!(values(3), [float(0.5), Value::Unknown, Value::Unknown]);
        assert_eq!(values(4), [float(6.25), float(18.75), Value::Unknown]);
        profile.derive_facts();
        assert_eq!(profile.facts[1].number(), float(25.0));
    }
}
