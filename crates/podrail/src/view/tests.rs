//! Views of whole nodes, compared with kept text (`UPDATE_EXPECT=1` rewrites it).

mod nodes;

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
