//! The page from given samples.

use super::*;

/// Every command of the guest's script, with times that tell it apart.
fn samples() -> String {
    let mut text = String::new();
    for (round, plus) in [(0, 900), (1, 0), (2, 40), (3, 20)] {
        for rails in [1, 16] {
            for (command, millis) in [
                ("detach-podrail", 90),
                ("detach-singles", 300),
                ("detach-group", 30),
                ("attach-podrail", 250),
                ("attach-ip", 200),
            ] {
                let micros = (millis + plus) * 1000;
                text.push_str(&format!("sample {command} {rails} {round} {micros}\n"));
            }
        }
        text.push_str(&format!("sample start-podrail 0 {round} 1234\n"));
        text.push_str(&format!("sample start-ip 0 {round} 2468\n"));
    }
    text
}

#[test]
fn tables_are_markdown_and_aligned() {
    let tables = tables(&Samples::parse(&samples()).unwrap(), &[1, 16]).unwrap();
    let first = "\
## Detach, whole command

A: `podrail detach`  
B: `ip -n POD -batch`, one `link del` per child

| rails |               A, ms |               B, ms |              A/B |
|------:|--------------------:|--------------------:|-----------------:|
|     1 | 110.0 (100.0-120.0) | 320.0 (310.0-330.0) | 0.34 (0.32-0.36) |
|    16 | 110.0 (100.0-120.0) | 320.0 (310.0-330.0) | 0.34 (0.32-0.36) |
";
    assert!(tables.starts_with(first), "{tables}");
    let last = "\
| rails |         A, ms |         B, ms |              A/B |
|------:|--------------:|--------------:|-----------------:|
|     - | 1.2 (1.2-1.2) | 2.5 (2.5-2.5) | 0.50 (0.50-0.50) |
";
    assert!(tables.ends_with(last), "{tables}");
}

#[test]
fn the_page_says_where_and_how() {
    let machine = Machine {
        facts: vec![
            ("CPU", "a CPU, 2 cores".into()),
            ("date", "2026-01-02".into()),
        ],
    };
    let samples = Samples::parse(&samples()).unwrap();
    let page = page(&machine, &samples, &[1]).unwrap();
    let start = "# Benchmarks\n\nWritten by `make bench`; do not edit.\n\n\
                 - CPU: a CPU, 2 cores\n- date: 2026-01-02\n\n## Detach, whole command\n";
    assert!(page.starts_with(start), "{page}");
    for comparison in &COMPARISONS {
        assert!(page.contains(&format!("## {}\n", comparison.title)));
    }
    assert!(page.ends_with(READING));
}

#[test]
fn a_missing_command_is_no_page() {
    let text = samples().replace("detach-group", "other");
    let error = tables(&Samples::parse(&text).unwrap(), &[1]).unwrap_err();
    assert_eq!(error.to_string(), "no sample of detach-group with 1 rails");
}

#[test]
fn every_name_is_one_of_the_script() {
    let script = include_str!("../guest.sh");
    for comparison in &COMPARISONS {
        for (_, name) in [comparison.a, comparison.b] {
            assert!(script.contains(&format!(" {name} ")), "{name}");
        }
    }
}
