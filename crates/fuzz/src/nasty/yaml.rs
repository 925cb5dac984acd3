//! Configurations that nobody writes.

use super::{Nasty, nasty, row, with};
use std::fmt::Write as _;

pub(crate) fn yaml() -> Vec<Nasty> {
    let mut all = shapes_and_values();
    all.extend(lists());
    with(all)
}

fn shapes_and_values() -> Vec<Nasty> {
    let mut laughs = "a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n".to_owned();
    for n in 1..12 {
        let alias = format!("*a{}, ", n - 1).repeat(9);
        _ = writeln!(laughs, "a{n}: &a{n} [{alias}]");
    }
    vec![
        nasty("a billion laughs", laughs),
        nasty("deep sequences", format!("a: {}1", "- ".repeat(10_000))),
        nasty(
            "deep mappings",
            row(2000, |n| format!("{}a:\n", " ".repeat(n.min(500)))),
        ),
        nasty("anchors", row(50_000, |n| format!("a{n}: &x{n} 1\n"))),
        nasty("many unknown fields", row(60_000, |n| format!("f{n}: 1\n"))),
        nasty(
            "a long unknown field",
            format!("\"{}\\e[2J\": 1\n", "a".repeat(100_000)),
        ),
        nasty(
            "a long wrong value",
            format!("rails: {{shares: [{}]}}\n", "1, ".repeat(100_000)),
        ),
        nasty(
            "a control character in a value",
            "rails: {shares: \"\\e[2J\", mtu: {\"\\e\": 1}}\n",
        ),
        nasty(
            "a wrong value",
            format!(
                "rails: {{drivers: {{}}, mtu: \"{}\"}}\n",
                "a".repeat(100_000)
            ),
        ),
    ]
}

fn lists() -> Vec<Nasty> {
    let list =
        |field: &str, count, text: fn(usize) -> String| format!("{field}:\n{}", row(count, text));
    let network = |n| format!("- {{name: a{n}, rail: 1}}\n");
    vec![
        nasty("many networks", list("networks", 40_000, network)),
        nasty(
            "one network many times",
            list("networks", 40_000, |_| "- {name: a, rail: 1}\n".into()),
        ),
        nasty(
            "wrong networks",
            list("networks", 60_000, |_| "- 1\n".into()),
        ),
        nasty(
            "many exclusions",
            format!(
                "pool: {{subnets: [10.0.0.0/8]}}\n{}",
                list("x", 1, |_| "- 1\n".into())
            ),
        ),
        nasty(
            "many ranges",
            format!(
                "pool:\n  subnets: [10.0.0.0/8]\n  exclude:\n{}",
                row(40_000, |n| format!("  - 10.{}.{}.1\n", n / 256, n % 256))
            ),
        ),
        nasty(
            "many patterns",
            format!(
                "rails:\n  netdevs:\n{}",
                row(60_000, |_| "  - \"[\"\n".into())
            ),
        ),
        nasty(
            "a subnet of everything",
            "pool: {subnets: [\"::/0\", 0.0.0.0/0], blockSize: 4294967295, block: 4294967295}\n",
        ),
        nasty("tags", "!!binary |\n aGVsbG8=\n"),
        nasty("documents", "---\na: 1\n".repeat(1000)),
    ]
}
