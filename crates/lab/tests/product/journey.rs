//! The journey: attach, look, detach.

use crate::support::Node;

#[test]
fn two_jobs_get_the_rails_next_to_their_gpus() {
    let Some(node) = Node::boot("B4.8") else { return };
    node.pod("pod1");
    node.pod("pod2");
    let before = node.picture(&["pod1", "pod2"]);
    let rails = |job: &serde_json::Value| -> Vec<u64> {
        job["rails"].as_array().unwrap().iter().map(|r| r["index"].as_u64().unwrap()).collect()
    };
    let one = node.podrail_json("attach --netns /run/netns/pod1 --id job1 --gpus 0,1,6,7 --rails 8");
    let two = node.podrail_json("attach --netns /run/netns/pod2 --id job2 --gpus 2,3,4,5 --rails 8");
    assert_eq!(rails(&one), [0, 1, 2, 3, 12, 13, 14, 15]);
    assert_eq!(rails(&two), [4, 5, 6, 7, 8, 9, 10, 11]);
    assert_eq!((one["near"].as_u64(), two["near"].as_u64()), (Some(8), Some(8)));
    node.podrail_ok("detach --id job1");
    node.podrail_ok("detach --id job2");
    assert_eq!(node.picture(&["pod1", "pod2"]), before);
}
