//! Pictures: kept files, and what must be true of each.

use super::nodes::*;
use super::*;
use expect_test::{ExpectFile, expect_file};

/// Draws, checks that the file is sound, and compares it with the kept one.
fn check(expected: ExpectFile, topology: &Topology, holders: &[Holder], title: &str) {
    let picture = picture(topology, holders, title);
    expected.assert_eq(&picture);
}

pub(super) fn picture(topology: &Topology, holders: &[Holder], title: &str) -> String {
    let title = title.to_owned();
    let picture = svg(topology, holders, &SvgOptions { title });
    sound(&picture, topology);
    picture
}

/// Well-formed, complete, needs nothing from elsewhere, and every box lies in the picture.
fn sound(picture: &str, topology: &Topology) {
    let document = roxmltree::Document::parse(picture).unwrap();
    let root = document.root_element();
    assert_eq!(
        (root.tag_name().name(), root.attribute("role")),
        ("svg", Some("img"))
    );
    let numbers = |mark: &str| -> Vec<usize> {
        let nodes = document.descendants();
        let mut found: Vec<_> = nodes
            .filter_map(|n| n.attribute(mark)?.parse().ok())
            .collect();
        found.sort_unstable();
        found
    };
    let up_to = |count: usize| (0..count).collect::<Vec<_>>();
    assert_eq!(numbers("data-gpu"), up_to(topology.gpus.len()));
    assert_eq!(numbers("data-rail"), up_to(topology.rails.len()));
    assert_eq!(numbers("data-excluded"), up_to(topology.excluded.len()));
    for node in document.descendants().filter(roxmltree::Node::is_element) {
        assert!(
            !["script", "image", "use", "a", "foreignObject"].contains(&node.tag_name().name())
        );
        assert!(
            !node
                .attributes()
                .any(|a| a.name().starts_with("on") || a.name() == "href")
        );
    }
    boxes_fit(&root);
    lines_fit(&root);
}

fn number(node: &roxmltree::Node<'_, '_>, name: &str) -> f64 {
    node.attribute(name).unwrap_or("0").parse().unwrap()
}

fn boxes_fit(root: &roxmltree::Node<'_, '_>) {
    let (width, height) = (number(root, "width"), number(root, "height"));
    for node in root
        .descendants()
        .filter(|node| node.has_tag_name(("http://www.w3.org/2000/svg", "rect")))
    {
        assert!(
            number(&node, "x") + number(&node, "width") <= width,
            "{node:?}"
        );
        assert!(
            number(&node, "y") + number(&node, "height") <= height,
            "{node:?}"
        );
    }
}

/// Each line of a device lies inside its edge, at 6.7 units a column.
fn lines_fit(root: &roxmltree::Node<'_, '_>) {
    let device =
        |n: &roxmltree::Node<'_, '_>| n.attributes().any(|a| a.name().starts_with("data-"));
    for group in root
        .descendants()
        .filter(device)
        .filter(|n| !n.has_attribute("data-holder"))
    {
        let edge = group
            .children()
            .find(|n| n.attribute("class") == Some("edge"))
            .unwrap();
        let (right, bottom) = (
            number(&edge, "x") + number(&edge, "width"),
            number(&edge, "y") + number(&edge, "height"),
        );
        for line in group.children().filter(|n| n.tag_name().name() == "text") {
            let columns = text::width(line.text().unwrap().trim());
            assert!(
                number(&line, "x") + 6.7 * columns as f64 <= right,
                "{line:?}"
            );
            assert!(number(&line, "y") < bottom, "{line:?}");
        }
    }
}

#[test]
fn the_post() {
    let docs = expect_file!["../../../../../docs/images/topo-b4.8.svg"];
    check(
        docs,
        &b4_8(),
        &good_jobs(),
        "BM.GPU.B4.8: two jobs, each with the rails next to its GPUs",
    );
    check(expect_file!["b4.8-bad.svg"], &b4_8(), &bad_jobs(), "node-1");
    check(
        expect_file!["b4.8-unknown-holders.svg"],
        &b4_8(),
        &[],
        "node-1",
    );
}

#[test]
fn other_nodes() {
    check(
        expect_file!["h100.8.svg"],
        &h100_8(),
        &one_per_gpu(8, 2),
        "BM.GPU.H100.8",
    );
    check(
        expect_file!["switches.svg"],
        &switches(),
        &one_per_gpu(4, 1),
        "switches",
    );
    check(expect_file!["empty.svg"], &Topology::default(), &[], "");
    check(
        expect_file!["no-numa.svg"],
        &faulty(),
        &[holder("a", &[0], &[0, 3, 4])],
        "faults",
    );
}

#[test]
fn more_holders_than_colours_and_shared_devices() {
    check(expect_file!["many.svg"], &b4_8(), &many(), "20 holders");
}

#[test]
fn hostile_names() {
    let holders = hostile();
    check(
        expect_file!["hostile.svg"],
        &hostile_node(),
        &holders,
        "\"><script>alert(1)</script>\u{0}&\u{202e}",
    );
}
