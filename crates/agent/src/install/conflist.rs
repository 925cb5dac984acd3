//! A network configuration as libcni reads it, and our copy of it. Values are kept as the text
//! they came as, so that a copy differs in nothing but our entry.

use podrail_node::{CNI_VERSIONS, Places};
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;
use std::fmt;

/// Type, and so file name, of our plugin.
pub const PLUGIN: &str = "podrail-cni";
/// Field of a copy that names its original; libcni skips fields that it does not know.
pub(super) const MARKER: &str = "podrail.io/copy-of";
/// Fields of an object in their order. The same key twice: the last counts, as in Go.
#[derive(Debug)]
struct Fields(Vec<(String, Box<RawValue>)>);

impl Fields {
    fn raw(&self, key: &str) -> Option<&RawValue> {
        let found = self.0.iter().rev().find(|(name, _)| name == key);
        found.map(|(_, value)| value.as_ref())
    }

    fn read<'a, T: Deserialize<'a>>(&'a self, key: &str) -> Result<Option<T>, String> {
        let read = |raw: &'a RawValue| serde_json::from_str(raw.get());
        let value: Option<Result<T, _>> = self.raw(key).map(read);
        value.transpose().map_err(|error| format!("{key}: {error}"))
    }
}

impl<'de> Deserialize<'de> for Fields {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Fields;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a JSON object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields, A::Error> {
                let mut fields = Vec::new();
                while let Some(field) = map.next_entry()? {
                    fields.push(field);
                }
                Ok(Fields(fields))
            }
        }
        from.deserialize_map(Object)
    }
}

/// A usable configuration.
#[derive(Debug)]
pub(super) struct Network {
    fields: Fields,
    /// The plugins, as text; of a single configuration the whole of it.
    plugins: Vec<Box<RawValue>>,
    /// Their types.
    types: Vec<String>,
    is_list: bool,
}

#[derive(Deserialize)]
struct Typed {
    #[serde(rename = "type", default)]
    kind: String,
}

impl Network {
    /// Reads a file: a list if its name ends with `.conflist`, else a single plugin.
    pub(super) fn parse(file: &str, text: &[u8]) -> Result<Self, String> {
        let read = serde_json::from_slice(text);
        let fields: Fields = read.map_err(|error| format!("no JSON object: {error}"))?;
        let is_list = file.ends_with(".conflist");
        let plugins = if is_list {
            fields.read("plugins")?.unwrap_or_default()
        } else {
            let whole: &RawValue = serde_json::from_slice(text).map_err(|e| e.to_string())?;
            vec![whole.to_owned()]
        };
        let types = types(&plugins)?;
        let name: String = fields.read("name")?.unwrap_or_default();
        if name.is_empty() {
            return Err("it has no name".into());
        }
        Ok(Self {
            fields,
            plugins,
            types,
            is_list,
        })
    }

    /// Whether our plugin is in the list.
    pub(super) fn has_ours(&self) -> bool {
        self.types.iter().any(|kind| kind == PLUGIN)
    }

    /// Whether Multus is what the runtime calls.
    pub(super) fn is_multus(&self) -> bool {
        self.types.iter().any(|kind| kind.starts_with("multus"))
    }

    /// The original, if this is a copy of ours.
    pub(super) fn copy_of(&self) -> Option<String> {
        self.fields.read(MARKER).ok().flatten()
    }

    /// Why our plugin could not be called with this configuration.
    ///
    /// A list may name several versions (`cniVersions`, CNI 1.1.0), of which the runtime takes
    /// the highest that it knows.
    pub(super) fn unspoken_version(&self) -> Result<(), String> {
        let one: Option<String> = self.fields.read("cniVersion")?;
        let more: Option<Vec<String>> = self.fields.read("cniVersions")?;
        let all: Vec<String> = one.into_iter().chain(more.unwrap_or_default()).collect();
        let spoken = CNI_VERSIONS.join(", ");
        match all.iter().find(|v| !CNI_VERSIONS.contains(&v.as_str())) {
            Some(other) => Err(format!("cniVersion {other} is not one of {spoken}")),
            None if all.is_empty() => Err(format!("it has no cniVersion (one of {spoken})")),
            None => Ok(()),
        }
    }

    /// The list with `ours` at its end, marked as a copy of `original`. Without `ours` it is the
    /// plain list.
    pub(super) fn copy(&self, original: &str, ours: Option<&str>) -> String {
        let plugins = self.plugins.iter().map(|raw| raw.get()).chain(ours);
        let plugins: Vec<String> = plugins.map(|text| format!("\n    {text}")).collect();
        let plugins = format!("[{}\n  ]", plugins.join(","));
        let kept = self.fields.0.iter().filter(|(key, _)| self.keeps(key));
        let kept = kept.map(|(key, value)| (key.as_str(), value.get().to_owned()));
        let added = [(MARKER, json(&original)), ("plugins", plugins)];
        let fields: Vec<String> = kept
            .chain(added)
            .map(|(key, value)| format!("\n  {}: {value}", json(&key)))
            .collect();
        format!("{{{}\n}}\n", fields.join(","))
    }

    /// Of a single configuration, only what names the network belongs to the list as well.
    fn keeps(&self, key: &str) -> bool {
        match self.is_list {
            true => key != "plugins" && key != MARKER,
            false => key == "name" || key == "cniVersion",
        }
    }
}

fn types(plugins: &[Box<RawValue>]) -> Result<Vec<String>, String> {
    if plugins.is_empty() {
        return Err("it lists no plugins".into());
    }
    plugins
        .iter()
        .enumerate()
        .map(|(at, raw)| match serde_json::from_str::<Typed>(raw.get()) {
            Ok(typed) if !typed.kind.is_empty() => Ok(typed.kind),
            Ok(_) => Err(format!("plugin {at} has no type")),
            Err(error) => Err(format!("plugin {at}: {error}")),
        })
        .collect()
}

/// Our entry of the list.
pub(super) fn entry(places: &Places) -> String {
    let mut text = format!(
        "{{\"type\": {}, \"capabilities\": {{\"io.kubernetes.cri.pod-annotations\": true}}",
        json(&PLUGIN)
    );
    for (field, path) in places.unusual() {
        let path = path.to_string_lossy();
        text.push_str(&format!(", {}: {}", json(&field), json(&path)));
    }
    text.push('}');
    text
}

/// A text as JSON, which cannot fail.
fn json<T: Serialize + ?Sized>(text: &T) -> String {
    serde_json::to_string(text).unwrap_or_default()
}

/// Whether Multus' configuration calls our plugin or refers to a file with one of `names`.
pub(super) fn refers_to_ours(text: &[u8], names: &[&str]) -> Option<Reference> {
    let whole: serde_json::Value = serde_json::from_slice(text).ok()?;
    search(&whole, names)
}

/// How Multus came to our plugin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reference {
    /// It has a copy of our list.
    Embedded,
    /// It names our file (`clusterNetwork`).
    File(String),
}

/// Values are at most 128 levels deep, or they would not have been read.
fn search(value: &serde_json::Value, names: &[&str]) -> Option<Reference> {
    use serde_json::Value;
    match value {
        Value::String(text) => {
            let file = text.rsplit('/').next().unwrap_or(text);
            let ours = names.contains(&file);
            ours.then(|| Reference::File(file.to_owned()))
        }
        Value::Array(items) => items.iter().find_map(|item| search(item, names)),
        Value::Object(fields) if fields.get("type").is_some_and(|kind| kind == PLUGIN) => {
            Some(Reference::Embedded)
        }
        // The marker of an embedded copy names a file that is not ours.
        Value::Object(fields) => fields.values().find_map(|item| search(item, names)),
        _ => None,
    }
}
