//! Counts attributes before a parser does what grows with their square.

/// The largest number of `=` outside of quotes in one tag. Sees tags where the parser does; in a
/// text that is no XML it may count anything.
pub(super) fn most_attributes(text: &str) -> usize {
    let mut most = 0;
    let mut rest = text;
    while let Some((_, tag)) = rest.split_once('<') {
        let closing = ["!--", "![CDATA[", "?"]
            .into_iter()
            .zip(["-->", "]]>", "?>"]);
        let special = closing.into_iter().find(|(open, _)| tag.starts_with(open));
        rest = match special {
            Some((_, close)) => tag.split_once(close).map_or("", |(_, after)| after),
            None => {
                let (count, length) = attributes(tag);
                most = most.max(count);
                tag.get(length..).unwrap_or_default()
            }
        };
    }
    most
}

/// Attributes of a tag, and its length up to the `>` that ends it.
fn attributes(tag: &str) -> (usize, usize) {
    let (mut count, mut quote) = (0, None);
    for (at, byte) in tag.bytes().enumerate() {
        match (quote, byte) {
            (None, b'>') => return (count, at),
            (None, b'=') => count += 1,
            (None, b'"' | b'\'') => quote = Some(byte),
            (Some(open), byte) if open == byte => quote = None,
            _ => {}
        }
    }
    (count, tag.len())
}

#[cfg(test)]
mod tests {
    //! What counts as an attribute of one tag.
    use super::most_attributes;

    #[test]
    fn tags_are_seen_as_a_parser_sees_them() {
        for (text, expected) in [
            ("", 0),
            ("<a b='c' d=\"e\"/><f g=''/>", 2),
            ("<a b='>=' c='<=' d='\"'/>", 3),
            ("<!-- a=1 b=2 '> --><a b=''/>", 1),
            ("<?xml version='1' x=''?><a/>", 0),
            ("<a><![CDATA[<b c= d= e=>]]></a>", 0),
            ("<a b='", 1),
            ("<é b='é'", 1),
        ] {
            assert_eq!(most_attributes(text), expected, "{text}");
        }
    }
}
