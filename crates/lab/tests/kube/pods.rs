//! Pods of the post's shape.

use crate::support::{node, ok, run_all};
use podrail_lab::Lab;
use podrail_lab::kube::Pod;

#[test]
fn pods_have_the_rails_next_to_their_gpus() {
    let Some(lab) = node("B4.8") else { return };
    run_all(&lab, &[("two_jobs_on_one_node", two_jobs_on_one_node)]);
}

fn two_jobs_on_one_node(lab: &Lab) {
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
