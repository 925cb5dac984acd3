//! Errors as the source declares them: enums and structs with `#[error("…")]`.

use super::hints::Steps;
use super::words;
use anyhow::{Context, Result};
use std::path::Path;
use syn::punctuated::Punctuated;
use syn::{Attribute, Expr, Fields, Item, ItemEnum, ItemStruct, Lit, Meta, Token, Type};

/// A file of a crate, without what only tests see.
pub(super) struct Source {
    pub(super) items: Vec<Item>,
}

/// An error as a user meets it.
#[derive(Debug)]
pub(super) struct Entry {
    /// Its enum, or itself if it is a struct.
    pub(super) of: String,
    pub(super) variant: String,
    pub(super) message: String,
    pub(super) cause: String,
    pub(super) steps: Vec<String>,
}

/// The sources below a folder, in the order of their paths.
pub(super) fn sources(folder: &Path) -> Result<Vec<Source>> {
    let mut paths = vec![];
    collect(folder, &mut paths)?;
    paths.sort();
    let parse = |path: &std::path::PathBuf| {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        let file = syn::parse_file(&text).with_context(|| path.display().to_string())?;
        let items = file.items.into_iter().flat_map(flat).collect();
        Ok(Source { items })
    };
    paths.iter().map(parse).collect()
}

fn collect(folder: &Path, paths: &mut Vec<std::path::PathBuf>) -> Result<()> {
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    for entry in entries {
        let path = entry?.path();
        let name = path
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default();
        if path.is_dir() && name != "tests" {
            collect(&path, paths)?;
        } else if name.ends_with(".rs") && name != "tests.rs" {
            paths.push(path);
        }
    }
    Ok(())
}

/// An item, or those of a module that is written out and no test.
fn flat(item: Item) -> Vec<Item> {
    match item {
        Item::Mod(module) if !is_test(&module.attrs) => {
            let items = module.content.map(|(_, items)| items).unwrap_or_default();
            items.into_iter().flat_map(flat).collect()
        }
        Item::Mod(_) => vec![],
        other => vec![other],
    }
}

fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        matches!(&attribute.meta, Meta::List(list)
            if list.path.is_ident("cfg") && list.tokens.to_string().contains("test"))
    })
}

/// The errors of a file. Transparent ones are those that they wrap.
pub(super) fn entries(source: &Source, steps: &Steps) -> Vec<Entry> {
    let of = |item: &Item| match item {
        Item::Enum(item) => of_enum(item, steps),
        Item::Struct(item) => of_struct(item, steps).into_iter().collect(),
        _ => vec![],
    };
    source.items.iter().flat_map(of).collect()
}

fn of_enum(item: &ItemEnum, steps: &Steps) -> Vec<Entry> {
    let of = item.ident.to_string();
    let variants = item.variants.iter().filter_map(|variant| {
        let name = variant.ident.to_string();
        // What only tests ask for.
        if name == "Injected" {
            return None;
        }
        entry((&of, &name), &variant.attrs, &variant.fields, steps)
    });
    variants.collect()
}

fn of_struct(item: &ItemStruct, steps: &Steps) -> Option<Entry> {
    let name = item.ident.to_string();
    entry((&name, &name), &item.attrs, &item.fields, steps)
}

fn entry(
    (of, variant): (&str, &str),
    attributes: &[Attribute],
    fields: &Fields,
    steps: &Steps,
) -> Option<Entry> {
    Some(Entry {
        of: of.to_owned(),
        variant: variant.to_owned(),
        message: message(attributes, fields)?,
        cause: cause(attributes),
        steps: steps.of(of, variant),
    })
}

/// The format string of `#[error("…", …)]`.
fn message(attributes: &[Attribute], fields: &Fields) -> Option<String> {
    let error = attributes
        .iter()
        .find(|attribute| attribute.path().is_ident("error"))?;
    let parse = Punctuated::<Expr, Token![,]>::parse_terminated;
    let mut parts = error.parse_args_with(parse).ok()?.into_iter();
    let format = literal(&parts.next()?)?;
    let mut names: Vec<String> = parts.map(|part| first_name(&part)).collect();
    if names.is_empty() {
        names = fields
            .iter()
            .map(|field| type_name(&field.ty).to_lowercase())
            .collect();
    }
    let message = words::message(&format, &names);
    // A message that is all its cause's stands with that.
    let is_placeholder = message.starts_with('<') && message.find('>') == Some(message.len() - 1);
    (!is_placeholder).then_some(message)
}

/// A string that is written out.
pub(super) fn literal(expression: &Expr) -> Option<String> {
    match expression {
        Expr::Lit(found) => match &found.lit {
            Lit::Str(text) => Some(text.value()),
            _ => None,
        },
        _ => None,
    }
}

/// `path` of `path.display()`, `names` of `list(names)`.
fn first_name(expression: &Expr) -> String {
    match expression {
        Expr::MethodCall(call) => first_name(&call.receiver),
        Expr::Call(call) => call.args.first().map(first_name).unwrap_or_default(),
        Expr::Reference(inner) => first_name(&inner.expr),
        Expr::Field(field) => match &field.member {
            syn::Member::Named(name) => name.to_string(),
            syn::Member::Unnamed(_) => first_name(&field.base),
        },
        Expr::Path(path) => {
            let last = path.path.segments.last();
            last.map(|segment| segment.ident.to_string())
                .unwrap_or_default()
        }
        _ => "…".into(),
    }
}

/// The last word of a type; of its content for a box.
pub(super) fn type_name(ty: &Type) -> String {
    let Type::Path(path) = ty else {
        return "…".into();
    };
    let Some(last) = path.path.segments.last() else {
        return "…".into();
    };
    if last.ident == "Box"
        && let syn::PathArguments::AngleBracketed(inner) = &last.arguments
        && let Some(syn::GenericArgument::Type(inner)) = inner.args.first()
    {
        return type_name(inner);
    }
    last.ident.to_string()
}

/// The doc comment.
fn cause(attributes: &[Attribute]) -> String {
    let lines = attributes
        .iter()
        .filter_map(|attribute| match &attribute.meta {
            Meta::NameValue(pair) if pair.path.is_ident("doc") => literal(&pair.value),
            _ => None,
        });
    let lines: Vec<String> = lines.map(|line| line.trim().to_owned()).collect();
    // What follows the first paragraph is for who reads the source.
    let first = lines.split(String::is_empty).next().unwrap_or_default();
    first.join(" ")
}
