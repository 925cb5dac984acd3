//! Next steps: the texts in functions that are called `hint` or `…_hint`, by the variants that they
//! match.

use super::errors::{Source, type_name};
use std::collections::{BTreeMap, BTreeSet};
use syn::visit::{self, Visit};
use syn::{Block, Fields, ImplItem, Item, Lit, Pat, Type};

/// Steps that are found in no function: whoever wraps the error says them, or it is a part of another
/// one's text.
const BY_HAND: [((&str, &str), &str); 11] = [
    (
        ("NodeError", "Rebuild"),
        "follow the hint, which is that of the cause; the file that was there is kept beside it",
    ),
    (
        ("BadSetup", "Document"),
        "restart the agent: it writes its configuration again",
    ),
    (
        ("AllocateError", "AllocateError"),
        "follow the hint; the kubelet has refused this pod for good: delete it",
    ),
    (
        ("AttachError", "NotPossible"),
        "follow the hint, which is that of the cause",
    ),
    (
        ("UndoFailure", "Sysctl"),
        "run 'podrail detach' for this id, then attach again",
    ),
    (
        ("DecideError", "Addresses"),
        "follow the hint, which is that of the cause",
    ),
    (
        ("NodeError", "NotReady"),
        "follow the hint: it names what is missing on this node",
    ),
    (
        ("BadPattern", "BadPattern"),
        "correct the pattern: `*`, `?` and `[a-z]` are known",
    ),
    (
        ("BadAlias", "BadAlias"),
        "keep the state file for a report: names of sandboxes are checked before",
    ),
    (
        ("BadYaml", "BadYaml"),
        "correct the file at the line that is named",
    ),
    (
        ("Failure", "Check"),
        "follow the hints under each FAIL line",
    ),
];

/// What is known of the next steps.
#[derive(Debug, Default)]
pub(super) struct Steps {
    /// By type and variant; a variant of `*` is the whole type.
    known: BTreeMap<(String, String), BTreeSet<String>>,
    /// A type, and the variants that wrap it.
    wrapped: BTreeMap<String, BTreeSet<(String, String)>>,
}

impl Steps {
    /// Reads them all: a type and its hints may be in two files.
    pub(super) fn read(sources: &[&Source]) -> Self {
        let mut steps = Self::default();
        for source in sources {
            let functions = functions(source);
            for (of, block) in hints(source) {
                steps.of_block(&of, block, &functions);
            }
            for item in &source.items {
                steps.wrappers(item);
            }
        }
        steps
    }

    /// The steps of a variant; else those of its whole type; else of whoever wraps it.
    pub(super) fn of(&self, of: &str, variant: &str) -> Vec<String> {
        let own = self.known.get(&(of.to_owned(), variant.to_owned()));
        let whole = || self.known.get(&(of.to_owned(), "*".to_owned()));
        if let Some(steps) = own.or_else(whole) {
            return steps.iter().cloned().collect();
        }
        let by_hand = BY_HAND.iter().find(|(name, _)| *name == (of, variant));
        if let Some((_, step)) = by_hand {
            return vec![(*step).to_owned()];
        }
        let wrappers = self.wrapped.get(of).into_iter().flatten();
        let inherited = wrappers
            .filter(|(wrapper, _)| wrapper != of)
            .flat_map(|(wrapper, variant)| self.of(wrapper, variant));
        let inherited: BTreeSet<String> = inherited.collect();
        // Many are of many situations: the one that is printed knows which it is.
        match inherited.len() {
            0..=2 => inherited.into_iter().collect(),
            _ => vec!["follow the hint that is printed with it".to_owned()],
        }
    }

    fn of_block(&mut self, of: &str, block: &Block, functions: &BTreeMap<String, &Block>) {
        let mut arms = Arms::default();
        arms.visit_block(block);
        if arms.found.is_empty() {
            let texts = texts(|texts| texts.visit_block(block), functions);
            self.learn((of, "*"), texts);
        }
        for arm in arms.found {
            let texts = texts(|texts| texts.visit_expr(&arm.body), functions);
            for (named, variant) in variants(&arm.pat) {
                let named = if named == "Self" { of } else { &named };
                self.learn((named, &variant), texts.clone());
            }
        }
    }

    fn learn(&mut self, (of, variant): (&str, &str), texts: BTreeSet<String>) {
        if !texts.is_empty() {
            let key = (of.to_owned(), variant.to_owned());
            self.known.entry(key).or_default().extend(texts);
        }
    }

    fn wrappers(&mut self, item: &Item) {
        let Item::Enum(item) = item else { return };
        for variant in &item.variants {
            let inner = match &variant.fields {
                Fields::Unnamed(fields) => fields.unnamed.first(),
                Fields::Named(fields) => fields
                    .named
                    .iter()
                    .find(|field| field.ident.as_ref().is_some_and(|name| name == "source")),
                Fields::Unit => None,
            };
            if let Some(field) = inner {
                let wrapper = (item.ident.to_string(), variant.ident.to_string());
                let wrapped = self.wrapped.entry(type_name(&field.ty)).or_default();
                wrapped.insert(wrapper);
            }
        }
    }
}

/// The functions of a file that give hints, and of which type. A free one is of none.
fn hints(source: &Source) -> Vec<(String, &Block)> {
    let mut found = vec![];
    for item in &source.items {
        match item {
            Item::Impl(item) => {
                let Type::Path(_) = &*item.self_ty else {
                    continue;
                };
                let of = type_name(&item.self_ty);
                for inner in &item.items {
                    if let ImplItem::Fn(function) = inner
                        && is_hint(&function.sig.ident.to_string())
                    {
                        found.push((of.clone(), &function.block));
                    }
                }
            }
            Item::Fn(function) if is_hint(&function.sig.ident.to_string()) => {
                found.push((String::new(), &*function.block));
            }
            _ => {}
        }
    }
    found
}

fn is_hint(name: &str) -> bool {
    name == "hint" || name.ends_with("_hint")
}

/// All free functions of a file and the methods that give hints, by name.
fn functions(source: &Source) -> BTreeMap<String, &Block> {
    let free = source.items.iter().filter_map(|item| match item {
        Item::Fn(function) => Some((function.sig.ident.to_string(), &*function.block)),
        _ => None,
    });
    free.filter(|(name, _)| is_hint(name)).collect()
}

/// The outermost matches' arms.
#[derive(Default)]
struct Arms {
    found: Vec<syn::Arm>,
}

impl<'ast> Visit<'ast> for Arms {
    fn visit_arm(&mut self, arm: &'ast syn::Arm) {
        self.found.push(arm.clone());
    }
}

/// `(Type, Variant)` of all paths in a pattern.
fn variants(pattern: &Pat) -> BTreeSet<(String, String)> {
    #[derive(Default)]
    struct Paths(BTreeSet<(String, String)>);
    impl<'ast> Visit<'ast> for Paths {
        fn visit_path(&mut self, path: &'ast syn::Path) {
            let mut last = path.segments.iter().rev();
            if let (Some(variant), Some(of)) = (last.next(), last.next()) {
                self.0
                    .insert((of.ident.to_string(), variant.ident.to_string()));
            }
            visit::visit_path(self, path);
        }
    }
    let mut paths = Paths::default();
    paths.visit_pat(pattern);
    paths.0
}

/// The strings in a piece of code, and in the functions of the file that it calls.
struct Texts<'a> {
    functions: &'a BTreeMap<String, &'a Block>,
    /// Called already: functions may call each other.
    entered: BTreeSet<String>,
    found: BTreeSet<String>,
}

fn texts<'a>(
    visit: impl FnOnce(&mut Texts<'a>),
    functions: &'a BTreeMap<String, &'a Block>,
) -> BTreeSet<String> {
    let mut texts = Texts {
        functions,
        entered: BTreeSet::new(),
        found: BTreeSet::new(),
    };
    visit(&mut texts);
    texts.found
}

impl<'ast> Visit<'ast> for Texts<'_> {
    fn visit_lit(&mut self, literal: &'ast Lit) {
        if let Lit::Str(text) = literal {
            self.add(text.value());
        }
    }

    /// `format!("…", …)`: the first literal.
    fn visit_macro(&mut self, found: &'ast syn::Macro) {
        let first = found.tokens.clone().into_iter().next();
        let text = first.and_then(|token| syn::parse_str::<syn::LitStr>(&token.to_string()).ok());
        if let Some(text) = text {
            self.add(super::words::message(&text.value(), &[]));
        }
    }

    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        if let syn::Expr::Path(path) = &*call.func
            && let Some(name) = path.path.get_ident().map(ToString::to_string)
            && let Some(block) = self.functions.get(&name)
            && self.entered.insert(name)
        {
            self.visit_block(block);
        }
        visit::visit_expr_call(self, call);
    }
}

impl Texts<'_> {
    /// Words, not parts of them.
    fn add(&mut self, text: String) {
        if text.contains(' ') {
            self.found.insert(text);
        }
    }
}
