//! Budgets on the size of files and functions, tests left out.

use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

const MOST_LINES_OF_A_FILE: usize = 400;
const MOST_LINES_OF_A_FUNCTION: usize = 60;
/// The median must stay below this.
const MEDIAN_LIMIT: usize = 10;

/// Length of one function in lines, from its signature to its closing brace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Function {
    /// Where it stands.
    pub(crate) file: PathBuf,
    /// Its name.
    pub(crate) name: String,
    /// Its length.
    pub(crate) lines: usize,
}

/// Whether a file is part of the program, not of its tests.
pub(super) fn counts(file: &Path) -> bool {
    let parts: Vec<&str> = file.iter().filter_map(|part| part.to_str()).collect();
    let in_tests = parts
        .iter()
        .any(|part| ["tests", "tests.rs", "benches"].contains(part));
    !in_tests && !parts.iter().any(|part| part.ends_with("_tests.rs"))
}

/// A file that is too long; an inner test module at its end is not counted.
pub(crate) fn file_faults(file: &Path, text: &str) -> Option<String> {
    let lines = text
        .lines()
        .take_while(|line| *line != "#[cfg(test)]")
        .count();
    (counts(file) && lines > MOST_LINES_OF_A_FILE).then(|| {
        format!(
            "{}: {lines} lines, at most {MOST_LINES_OF_A_FILE} without tests",
            file.display()
        )
    })
}

/// All functions with a body, tests left out.
pub(crate) fn functions(file: &Path, text: &str) -> Result<Vec<Function>> {
    if !counts(file) {
        return Ok(vec![]);
    }
    let tree = syn::parse_file(text).with_context(|| format!("parse {}", file.display()))?;
    let mut finder = Finder {
        file,
        found: vec![],
    };
    finder.visit_file(&tree);
    Ok(finder.found)
}

/// Functions that are too long, and a median that is.
pub(crate) fn function_faults(functions: &mut [Function]) -> Vec<String> {
    functions.sort_by_key(|function| function.lines);
    let median = functions
        .get(functions.len() / 2)
        .map_or(0, |function| function.lines);
    let long = functions
        .iter()
        .filter(|f| f.lines > MOST_LINES_OF_A_FUNCTION);
    let mut faults: Vec<String> = long
        .map(|f| {
            let Function { file, name, lines } = f;
            format!(
                "{}: fn {name} has {lines} lines, at most {MOST_LINES_OF_A_FUNCTION}",
                file.display()
            )
        })
        .collect();
    if median >= MEDIAN_LIMIT {
        faults.push(format!(
            "the median function has {median} lines, must be below {MEDIAN_LIMIT}"
        ));
    }
    faults
}

struct Finder<'a> {
    file: &'a Path,
    found: Vec<Function>,
}

impl Finder<'_> {
    fn add(&mut self, name: &syn::Ident, start: proc_macro2::Span, block: &syn::Block) {
        let lines = block.span().end().line.saturating_sub(start.start().line) + 1;
        self.found.push(Function {
            file: self.file.to_owned(),
            name: name.to_string(),
            lines,
        });
    }
}

impl<'ast> Visit<'ast> for Finder<'_> {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.add(&function.sig.ident, function.sig.span(), &function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.add(&function.sig.ident, function.sig.span(), &function.block);
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_item_mod(&mut self, module: &'ast syn::ItemMod) {
        let is_test = module.attrs.iter().any(|attribute| {
            attribute.path().is_ident("cfg")
                && attribute
                    .parse_args::<syn::Path>()
                    .is_ok_and(|path| path.is_ident("test"))
        });
        if !is_test {
            visit::visit_item_mod(self, module);
        }
    }
}
