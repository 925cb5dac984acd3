//! Pods of the post's shape.

use crate::support::{node, ok};
use podrail_lab::kube::Pod;

#[test]
fn two_jobs_on_one_node() {
    let Some(lab) = node("B4.8") else { return };
    let kube = lab.kube();
    kube.apply(&Pod::sleeping(kube, "first", &[2, 3, 4, 5], 8))
        .unwrap();
    kube.apply(&Pod::sleeping(kube, "second", &[0, 1, 6, 7], 8))
        .unwrap();
    kube.wait("first", "ready").unwrap();
    kube.wait("second", "ready").unwrap();
    for name in ["first", "second"] {
        let text = kube
            .podrail(&format!("explain --pod default/{name}"))
            .unwrap();
        assert!(text.contains("8 of 8 rails next to its GPUs"), "{text}");
        let seen = ok(kube
            .exec(name, "ls /dev/infiniband | grep -c uverbs")
            .unwrap());
        assert_eq!(seen, "8");
    }
}
