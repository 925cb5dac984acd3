//! Texts of the source as texts of a table.

/// A format string as its reader sees it: `cannot open {path}` -> `cannot open <path>`. `names` are
/// those of its arguments, for `{}` and `{0}`.
pub(super) fn message(format: &str, names: &[String]) -> String {
    let mut text = String::new();
    let mut next = 0;
    let mut rest = format;
    while let Some((before, after)) = rest.split_once('{') {
        text.push_str(before);
        if let Some(escaped) = after.strip_prefix('{') {
            text.push('{');
            rest = escaped;
            continue;
        }
        let (inside, behind) = after.split_once('}').unwrap_or((after, ""));
        let name = inside.split(':').next().unwrap_or_default();
        let shown = match name.parse::<usize>() {
            Ok(number) => names.get(number).cloned(),
            Err(_) if name.is_empty() => {
                next += 1;
                names.get(next - 1).cloned()
            }
            Err(_) => Some(name.to_owned()),
        };
        text.push('<');
        text.push_str(shown.as_deref().unwrap_or("…"));
        text.push('>');
        rest = behind;
    }
    text.push_str(rest);
    text.replace("}}", "}")
}

/// For a cell of a table.
pub(super) fn cell(text: &str) -> String {
    text.replace('|', "\\|")
        .replace('<', "&lt;")
        .replace('\n', " ")
}

/// As code in a cell.
pub(super) fn code(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    format!("`{}`", line.replace('|', "\\|").replace('`', "'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_named() {
        let names = ["path".to_owned(), "count".to_owned()];
        for (format, shown) in [
            ("plain", "plain"),
            ("{} of {1:>3}: {reason:?}", "<path> of <count>: <reason>"),
            ("{{literal}} {2}", "{literal} <…>"),
            ("open {", "open <path>"),
        ] {
            assert_eq!(message(format, &names), shown);
        }
    }

    #[test]
    fn cells_keep_the_table_whole() {
        assert_eq!(cell("a|b <c>"), "a\\|b &lt;c>");
        assert_eq!(code("a|`b`\n c"), "`a\\|'b' c`");
    }
}
