//! Holders look different, and text on their colours can be read.

use super::*;
use std::collections::HashSet;

#[test]
fn the_first_32_holders_look_different() {
    let looks = (0..32).map(look).map(|look| (look.class, look.pattern));
    assert_eq!(looks.collect::<HashSet<_>>().len(), 32);
    assert_eq!(look(0).pattern, None);
    assert_eq!((look(32).class, look(32).pattern), (look(0).class, None));
}

#[test]
fn every_colour_has_a_rule_and_every_rule_stays_in_the_picture() {
    let rules: Vec<_> = SHEET.lines().filter(|line| line.contains('{')).collect();
    assert!(
        rules
            .iter()
            .all(|rule| rule.starts_with(".podrail") || rule.starts_with("@media"))
    );
    assert_eq!(colors().len(), COLORS);
}

/// WCAG AA asks for 4.5 for text of this size.
#[test]
fn text_on_a_holders_colour_has_contrast() {
    for color in colors() {
        for text in ["1f2328", "5c000e"] {
            let contrast = (luminance(&color) + 0.05) / (luminance(text) + 0.05);
            assert!(contrast >= 4.5, "{text} on {color}: {contrast:.2}");
        }
    }
}

fn colors() -> Vec<String> {
    let rules = SHEET
        .lines()
        .filter_map(|line| line.strip_prefix(".podrail .color-"));
    rules
        .map(|rule| rule.split_once('#').unwrap().1[..6].to_owned())
        .collect()
}

fn luminance(color: &str) -> f64 {
    let channel = |at: usize| {
        let value = f64::from(u8::from_str_radix(&color[at..at + 2], 16).unwrap()) / 255.0;
        if value <= 0.04045 {
            value / 12.92
        } else {
            ((value + 0.055) / 1.055).powf(2.4)
        }
    };
    0.2126 * channel(0) + 0.7152 * channel(2) + 0.0722 * channel(4)
}
