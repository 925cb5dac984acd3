//! The JSON grammar of the annotation: a list of objects.

use super::{Element, NetworksError, check_count, place};
use serde_json::{Map, Value};

/// Reads the list.
pub(super) fn parse(text: &str) -> Result<Vec<Element>, NetworksError> {
    let not_json = |error: serde_json::Error| NetworksError::NotJson {
        source: error.into(),
    };
    let list: Vec<Value> = serde_json::from_str(text).map_err(not_json)?;
    check_count(list.len())?;
    let elements = list.into_iter().zip(1..);
    elements
        .map(|(value, position)| object(value, position))
        .collect()
}

fn object(value: Value, position: usize) -> Result<Element, NetworksError> {
    let unreadable = |name: &str, reason| NetworksError::Unreadable {
        place: place(position, name),
        reason,
    };
    let Value::Object(mut fields) = value else {
        return Err(unreadable("", "it is not an object".to_owned()));
    };
    let mut text = |key| take(&mut fields, key);
    let name = text("name").map_err(|reason| unreadable("", reason))?;
    let Some(name) = name else {
        return Err(unreadable("", "it has no name".to_owned()));
    };
    let bad = |reason| unreadable(&name, reason);
    let namespace = text("namespace").map_err(bad)?;
    // Multus called it so before 3.2 and takes both up to now.
    let old = text("interfaceRequest").map_err(bad)?;
    let interface = text("interface").map_err(bad)?.or(old);
    let asks = |(key, value): (String, Value)| (!is_empty(&value)).then_some(key);
    let other_fields = fields.into_iter().filter_map(asks).collect();
    Ok(Element {
        position,
        namespace,
        name,
        interface,
        other_fields,
    })
}

/// Takes a text out; an empty one counts as absent. Go, and so Multus, matches keys in any case.
fn take(fields: &mut Map<String, Value>, key: &str) -> Result<Option<String>, String> {
    let mut found = None;
    let spellings: Vec<String> = fields
        .keys()
        .filter(|given| given.eq_ignore_ascii_case(key))
        .cloned()
        .collect();
    for spelling in spellings {
        match fields.remove(&spelling) {
            None | Some(Value::Null) => {}
            Some(Value::String(text)) if text.is_empty() => {}
            Some(Value::String(_)) if found.is_some() => {
                return Err(format!("field {key} is given twice"));
            }
            Some(Value::String(text)) => found = Some(text),
            Some(_) => return Err(format!("field {key} is no text")),
        }
    }
    Ok(found)
}

/// `null`, `""`, `[]` and `{}` ask for nothing.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(values) => values.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        Value::Bool(_) | Value::Number(_) => false,
    }
}
