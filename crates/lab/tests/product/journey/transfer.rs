//! Real RDMA transfers by what `podrail map` says.

use super::{MapLine, attach, detach, settled_map};
use crate::support::{CONFIG, Node, code};
use podrail_lab::Output;

/// Where both programs of a pair listen.
const PORT: u16 = 18515;

/// A pair of programs that moves data: the words of both sides, and the option of the GID index.
const PAIRS: [(&str, &str); 2] = [
    ("ibv_rc_pingpong -n 50", "-g"),
    ("ib_write_bw -F -n 50 -s 4096", "-x"),
];

/// Inside one pod, and between two pods that hold the same rail and so have different indexes.
pub(super) fn data_flows_by_the_mapped_gids(node: &Node) {
    node.configure(&format!("{CONFIG}rails: {{ shares: 2 }}\n"));
    attach(node, "pod1", "--rails 8");
    attach(node, "pod2", "--rails 8");
    let (one, two) = (settled_map(node, "pod1"), settled_map(node, "pod2"));
    assert_eq!(one[0].device, two[0].device);
    assert_ne!(one[0].index, two[0].index);
    let (pod1, pod2) = (
        Side {
            pod: "pod1",
            map: &one,
        },
        Side {
            pod: "pod2",
            map: &two,
        },
    );
    for pair in PAIRS {
        transfer(node, pair, 0, &pod1, &pod1);
        transfer(node, pair, 0, &pod1, &pod2);
        transfer(node, pair, 5, &pod2, &pod1);
    }
    detach(node, "pod1");
    detach(node, "pod2");
}

/// A pod at one end.
struct Side<'a> {
    pod: &'a str,
    map: &'a [MapLine],
}

/// Over one rail; the two programs find each other over rail 0, since a pod's main table knows all
/// rails as one subnet and the rails of this node have no wires between them.
fn transfer(
    node: &Node,
    (program, index): (&str, &str),
    rail: usize,
    server: &Side<'_>,
    client: &Side<'_>,
) {
    let words = |side: &Side<'_>| {
        let MapLine {
            device,
            index: place,
            ..
        } = &side.map[rail];
        format!("{program} -d {device} {index} {place}")
    };
    let serve = words(server);
    let served = node
        .lab
        .in_netns(server.pod)
        .cmd(serve.split(' '))
        .spawn()
        .unwrap();
    wait_until_listening(node, server.pod);
    let call = format!("{} {}", words(client), server.map[0].address);
    let called = node.lab.in_netns(client.pod).run(call.split(' ')).unwrap();
    assert_moved(&call, &called, [&server.map[rail], &client.map[rail]]);
    assert_moved(
        &serve,
        &served.wait().unwrap(),
        [&server.map[rail], &client.map[rail]],
    );
}

fn assert_moved(command: &str, output: &Output, lines: [&MapLine; 2]) {
    let text = format!("{}\n{}", output.text(), output.stderr_text());
    assert_eq!(code(output), 0, "{command}: {text}");
    assert_gids(&text, lines);
}

fn wait_until_listening(node: &Node, pod: &str) {
    node.sh(&format!(
        "for try in $(seq 200); do if ip netns exec {pod} ss -Hltn | grep -q :{PORT}; then exit 0; \
         fi; done; ip netns exec {pod} ss -tan >&2; exit 1"
    ));
}

/// Both programs print the GIDs that they use: one as an address, one as 16 decimal numbers.
fn assert_gids(text: &str, lines: [&MapLine; 2]) {
    for line in lines {
        let octets: Vec<String> = line
            .address
            .split('.')
            .map(|n| format!("{:02}", n.parse::<u8>().unwrap()))
            .collect();
        let numbers = format!(":255:255:{}", octets.join(":"));
        let address = format!("::ffff:{}", line.address);
        assert!(
            text.contains(&numbers) || text.contains(&address),
            "{line:?} in {text}"
        );
    }
}
