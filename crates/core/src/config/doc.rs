//! Reads a configuration document field by field and keeps every fault, with its path.

use crate::words::brief;
use serde_json::{Map, Value};
use std::cell::RefCell;
use std::fmt::{self, Display};
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Most faults that are printed; a file of another kind has one in each line.
const MOST_SHOWN: usize = 50;

/// Something wrong with one field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// Path of the field: `pool.exclude[2]`.
    pub path: String,
    /// What is wrong, with what is allowed.
    pub text: String,
}

impl Fault {
    /// A fault; both texts may repeat what others wrote, and are cut.
    #[must_use]
    pub fn new(path: &str, text: impl Display) -> Self {
        Self {
            path: brief(path),
            text: brief(&text.to_string()),
        }
    }
}

impl Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.text)
    }
}

/// All faults of one document; never empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Faults(pub Vec<Fault>);

impl Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.0.iter().take(MOST_SHOWN).map(Fault::to_string);
        f.write_str(&shown.collect::<Vec<_>>().join("\n"))?;
        match self.0.len().saturating_sub(MOST_SHOWN) {
            0 => Ok(()),
            more => write!(f, "\n... and {more} more faults"),
        }
    }
}

impl std::error::Error for Faults {}

/// Where faults are gathered while a document is read.
#[derive(Debug, Default)]
pub(super) struct FaultList(RefCell<Vec<Fault>>);

impl FaultList {
    pub(super) fn add(&self, path: &str, text: impl Display) {
        self.0.borrow_mut().push(Fault::new(path, text));
    }

    /// The value if nothing was wrong, else all that was.
    pub(super) fn result<T>(self, value: T) -> Result<T, Faults> {
        let faults = self.0.into_inner();
        if faults.is_empty() {
            Ok(value)
        } else {
            Err(Faults(faults))
        }
    }
}

/// A mapping whose fields are taken one by one; what is left at the end is unknown.
pub(super) struct Section<'a> {
    path: String,
    fields: Map<String, Value>,
    known: Vec<&'static str>,
    faults: &'a FaultList,
}

impl<'a> Section<'a> {
    /// The section at `path`; `null` is an empty one.
    pub(super) fn new(path: &str, value: Value, faults: &'a FaultList) -> Self {
        let fields = match value {
            Value::Object(fields) => fields,
            Value::Null => Map::new(),
            other => {
                faults.add(
                    path_or_root(path),
                    format!("expected a mapping, found {}", kind(&other)),
                );
                Map::new()
            }
        };
        Self {
            path: path.to_owned(),
            fields,
            known: vec![],
            faults,
        }
    }

    /// Path of a field of this section.
    pub(super) fn path(&self, key: &str) -> String {
        if self.path.is_empty() {
            key.to_owned()
        } else {
            format!("{}.{key}", self.path)
        }
    }

    fn take(&mut self, key: &'static str) -> Option<Value> {
        self.known.push(key);
        self.fields.remove(key).filter(|value| !value.is_null())
    }

    /// Whether a field that nobody took yet is there.
    pub(super) fn has(&self, key: &str) -> bool {
        self.fields.get(key).is_some_and(|value| !value.is_null())
    }

    /// A section inside this one; absent is `None`.
    pub(super) fn section(&mut self, key: &'static str) -> Option<Section<'a>> {
        let value = self.take(key)?;
        Some(Section::new(&self.path(key), value, self.faults))
    }

    /// A truth value.
    pub(super) fn flag(&mut self, key: &'static str) -> Option<bool> {
        match self.take(key)? {
            Value::Bool(flag) => Some(flag),
            other => {
                let text = format!("expected true or false, found {}", kind(&other));
                self.faults.add(&self.path(key), text);
                None
            }
        }
    }

    /// A whole number inside a range.
    pub(super) fn number(&mut self, key: &'static str, range: RangeInclusive<u32>) -> Option<u32> {
        let value = self.take(key)?;
        let number = value.as_u64().and_then(|number| u32::try_from(number).ok());
        let fits = number.filter(|number| range.contains(number));
        if fits.is_none() {
            let (low, high) = (range.start(), range.end());
            let text = format!("{value} is not a whole number from {low} to {high}");
            self.faults.add(&self.path(key), text);
        }
        fits
    }

    /// A text, parsed.
    pub(super) fn parsed<T: FromStr<Err: Display>>(&mut self, key: &'static str) -> Option<T> {
        let value = self.take(key)?;
        parse_text(&self.path(key), &value, self.faults)
    }

    /// A text that has to be there, parsed.
    pub(super) fn required<T: FromStr<Err: Display>>(&mut self, key: &'static str) -> Option<T> {
        if !self.fields.contains_key(key) {
            self.missing(key);
        }
        self.parsed(key)
    }

    /// A list of texts, each parsed; absent is empty. A bad entry is a fault, never dropped.
    pub(super) fn list<T: FromStr<Err: Display>>(&mut self, key: &'static str) -> Vec<T> {
        let path = self.path(key);
        let each =
            |(at, value): (usize, Value)| parse_text(&format!("{path}[{at}]"), &value, self.faults);
        self.values(key)
            .into_iter()
            .enumerate()
            .filter_map(each)
            .collect()
    }

    /// A list of texts that look like numbers. One without quotes is a fault: YAML has read `0x15b3`
    /// as 5555 by now, which could be meant as well.
    pub(super) fn quoted_list<T: FromStr<Err: Display>>(&mut self, key: &'static str) -> Vec<T> {
        let path = self.path(key);
        let each = |(at, value): (usize, Value)| {
            let path = format!("{path}[{at}]");
            if value.is_number() {
                let text = format!("YAML reads this as the number {value}: write it in quotes");
                self.faults.add(&path, text);
                return None;
            }
            parse_text(&path, &value, self.faults)
        };
        self.values(key)
            .into_iter()
            .enumerate()
            .filter_map(each)
            .collect()
    }

    /// A list of sections; absent is empty.
    pub(super) fn sections(&mut self, key: &'static str) -> Vec<Section<'a>> {
        let path = self.path(key);
        let section = |(at, value)| Section::new(&format!("{path}[{at}]"), value, self.faults);
        self.values(key)
            .into_iter()
            .enumerate()
            .map(section)
            .collect()
    }

    fn values(&mut self, key: &'static str) -> Vec<Value> {
        match self.take(key) {
            None => vec![],
            Some(Value::Array(values)) => values,
            Some(other) => {
                let text = format!("expected a list, found {}", kind(&other));
                self.faults.add(&self.path(key), text);
                vec![]
            }
        }
    }

    /// Reports what is wrong with a field.
    pub(super) fn fault(&self, key: &str, text: &str) {
        self.faults.add(&self.path(key), text);
    }

    /// Reports that a field has to be there.
    pub(super) fn missing(&self, key: &str) {
        self.faults.add(&self.path(key), "is required");
    }

    /// Every field that nobody took is a fault.
    pub(super) fn finish(self) {
        let known = self.known.join(", ");
        for key in self.fields.keys() {
            let text = format!("unknown field; known here: {known}");
            self.faults.add(&self.path(key), text);
        }
    }
}

fn parse_text<T: FromStr<Err: Display>>(
    path: &str,
    value: &Value,
    faults: &FaultList,
) -> Option<T> {
    let text = match value {
        Value::String(text) => text.clone(),
        // YAML reads an unquoted `15` as a number where a text was meant.
        Value::Number(number) => number.to_string(),
        other => {
            faults.add(path, format!("expected a text, found {}", kind(other)));
            return None;
        }
    };
    text.parse()
        .map_err(|error: T::Err| faults.add(path, error))
        .ok()
}

fn path_or_root(path: &str) -> &str {
    if path.is_empty() { "(document)" } else { path }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping",
    }
}
