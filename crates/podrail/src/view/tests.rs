//! Views of whole nodes, compared with kept text (`UPDATE_EXPECT=1` rewrites it).

mod nodes;
mod picture;
mod random;

use super::*;
use expect_test::expect_file;
use nodes::*;
use podrail_core::topology::Topology;

fn holder(name: &str, gpus: &[usize], rails: &[u16]) -> Holder {
    Holder {
        name: name.to_owned(),
        gpus: gpus.to_vec(),
        rails: rails.iter().copied().map(RailIndex).collect(),
    }
}

/// The two jobs of the post, as the kubelet's two device plugins placed them.
fn bad_jobs() -> Vec<Holder> {
    vec![
        holder("first", &[2, 3, 4, 5], &[1, 4, 5, 6, 12, 13, 14, 15]),
        holder("second", &[0, 1, 6, 7], &[0, 2, 3, 7, 8, 9, 10, 11]),
    ]
}

/// The same two jobs with the rails next to their GPUs.
fn good_jobs() -> Vec<Holder> {
    vec![
        holder("first", &[2, 3, 4, 5], &[4, 5, 6, 7, 8, 9, 10, 11]),
        holder("second", &[0, 1, 6, 7], &[0, 1, 2, 3, 12, 13, 14, 15]),
    ]
}

#[test]
fn tree_of_the_post() {
    let plain = |holders: &[Holder]| tree(&b4_8(), holders, Style::default());
    expect_file!["tests/b4.8-bad.txt"].assert_eq(&plain(&bad_jobs()));
    expect_file!["tests/b4.8-good.txt"].assert_eq(&plain(&good_jobs()));
    expect_file!["tests/b4.8-unknown-holders.txt"].assert_eq(&plain(&[]));
}

#[test]
fn tree_of_other_nodes() {
    let plain = |node: &Topology, holders: &[Holder]| tree(node, holders, Style::default());
    expect_file!["tests/h100.8.txt"].assert_eq(&plain(&h100_8(), &one_per_gpu(8, 2)));
    expect_file!["tests/switches.txt"].assert_eq(&plain(&switches(), &one_per_gpu(4, 1)));
    expect_file!["tests/empty.txt"].assert_eq(&plain(&Topology::default(), &[]));
    expect_file!["tests/no-numa.txt"].assert_eq(&plain(&faulty(), &[holder("a", &[0], &[0, 3])]));
}

/// 20 holders; the first three share the first GPU, four share rail 15, one holds nothing.
fn many() -> Vec<Holder> {
    let mut holders: Vec<_> = (0..16)
        .map(|at| holder(&format!("ns/job-{at}-worker-{at}"), &[at / 2], &[at as u16]))
        .collect();
    holders.extend((16..19).map(|at| holder(&format!("ns/shared-{at}"), &[0], &[15])));
    holders.push(holder("ns/nothing", &[], &[]));
    holders
}

/// Names that no cluster should give.
fn hostile() -> Vec<Holder> {
    vec![
        holder("<script>alert('x')</script>", &[0], &[0]),
        holder("\"quotes\" & 'more' ]]> <!--", &[1], &[1]),
        holder(&format!("{}-worker-7", "x".repeat(119)), &[2], &[2, 3]),
        holder("\u{1b}[31mred\u{1b}[0m\nline\ttab\u{0}", &[3], &[4]),
        holder("日本語のポッド名前/とても長い名前", &[4], &[5]),
        holder("e\u{301}\u{301}🚀\u{200d}🚀 \u{202e}txet", &[5], &[6]),
        holder("", &[6], &[7]),
    ]
}

fn hostile_node() -> Topology {
    let mut node = b4_8();
    node.gpus[0].model = Some("<b>\u{1b}[31m\"A100\"&".to_owned());
    node.excluded[0].reason = "</text><script>alert(1)</script>\n\u{7}".to_owned();
    node
}

#[test]
fn no_line_of_a_tree_carries_control_characters() {
    let text = tree(
        &hostile_node(),
        &hostile(),
        Style {
            color: false,
            width: 80,
        },
    );
    assert!(
        text.chars().all(|c| c == '\n' || !c.is_control()),
        "{text:?}"
    );
    expect_file!["tests/hostile.txt"].assert_eq(&text);
    expect_file!["tests/many.txt"].assert_eq(&tree(&b4_8(), &many(), Style::default()));
}

#[test]
fn colours_add_nothing_but_colours() {
    for (node, holders) in [(b4_8(), many()), (faulty(), bad_jobs())] {
        let plain = tree(&node, &holders, Style::default());
        let colored = tree(
            &node,
            &holders,
            Style {
                color: true,
                ..Style::default()
            },
        );
        assert_ne!(colored, plain);
        assert_eq!(without_ansi(&colored), plain);
    }
}

fn without_ansi(text: &str) -> String {
    let mut parts = text.split('\u{1b}');
    let first = parts.next().unwrap().to_owned();
    parts.fold(first, |out, part| out + part.split_once('m').unwrap().1)
}

#[test]
fn holders_names_fit_the_terminal() {
    for width in [80, 100, 120] {
        let text = tree(
            &b4_8(),
            &hostile(),
            Style {
                color: false,
                width,
            },
        );
        let devices = text.split("\n\n").next().unwrap();
        assert!(
            devices.lines().all(|line| text::width(line) <= width),
            "{width}\n{devices}"
        );
    }
}

#[test]
fn tables() {
    let row = |cells: &[&str]| {
        cells
            .iter()
            .map(|cell| (*cell).to_owned())
            .collect::<Vec<_>>()
    };
    let check = |headers: &[&str], rows: &[Vec<String>], expected: &str| {
        assert_eq!(table(headers, rows), expected);
    };
    check(&["NAME", "RAILS"], &[], "NAME  RAILS\n");
    check(
        &["A", "B"],
        &[row(&["long", "x"]), row(&["", "y"])],
        "A     B\nlong  x\n      y\n",
    );
    check(
        &["A", "B"],
        &[row(&["x"]), row(&["x", "y", "z"])],
        "A  B\nx\nx  y  z\n",
    );
    check(
        &["A", "B"],
        &[row(&["日本", "x"]), row(&["a\nb", "y"])],
        "A     B\n日本  x\na\u{fffd}b   y\n",
    );
    check(&[], &[], "\n");
}

#[test]
fn texts_are_cut_by_columns() {
    assert_eq!(text::cut("abcdef", 6), "abcdef");
    assert_eq!(text::cut("abcdefg", 6), "abcde…");
    assert_eq!(text::cut("日本語", 4), "日…");
    assert_eq!(text::cut("abc", 0), "…");
    assert_eq!(text::cut_middle("abcdefgh", 6), "abc…gh");
    assert_eq!(text::cut_middle("日本語日本語", 6), "日…語");
}

#[test]
fn numbers_become_ranges() {
    for (numbers, expected) in [
        (&[][..], "none"),
        (&[3], "3"),
        (&[4, 3], "3, 4"),
        (&[1, 4, 5, 6, 12, 13, 14, 15, 15], "1, 4-6, 12-15"),
    ] {
        assert_eq!(text::ranges(numbers.iter().copied()), expected);
    }
    for (mbps, expected) in [
        (None, "-"),
        (Some(100), "100M"),
        (Some(2500), "2.5G"),
        (Some(400_000), "400G"),
    ] {
        assert_eq!(text::speed(mbps), expected);
    }
}
