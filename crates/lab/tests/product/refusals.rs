//! Bad input: one clear error with a hint, a documented exit code, nothing changed.
//!
//! Each case is a setup, a command, what the command has to say, and a cleanup. The kernel's state
//! and the files are looked at before and after, inside one script on the node.

use crate::support::{Node, code};
use podrail_lab::Output;
use std::collections::BTreeSet;
use std::time::Duration;

/// What is refused, and how. `setup`, `command` and `cleanup` are shell.
struct Case {
    name: &'static str,
    setup: &'static str,
    command: &'static str,
    exit: i32,
    /// Parts of standard error.
    says: &'static [&'static str],
    cleanup: &'static str,
    books: Books,
}

/// How the state file is compared.
#[derive(Clone, Copy)]
enum Books {
    /// Byte by byte: the refusal came before anything was reserved.
    Bytes,
    /// By what `podrail status` lists: a reservation was made and taken back.
    Content,
}

/// A case without setup.
const fn case(
    name: &'static str,
    command: &'static str,
    exit: i32,
    says: &'static [&'static str],
) -> Case {
    Case {
        name,
        setup: ":",
        command,
        exit,
        says,
        cleanup: ":",
        books: Books::Bytes,
    }
}

impl Case {
    const fn with(self, setup: &'static str, cleanup: &'static str) -> Self {
        Self {
            setup,
            cleanup,
            ..self
        }
    }

    const fn after_reserving(self) -> Self {
        Self {
            books: Books::Content,
            ..self
        }
    }
}

/// Before every group. `$ATTACH` goes to the namespace `pod` as sandbox `job`; `/run/case` is a
/// case's own folder, `$STATE` a state file in it that holds `job` after `held`.
const PRELUDE: &str = r#"
export PODRAIL_ROOT=/lab/root PODRAIL_NODE_ADDRESS=10.140.67.66
NETNS='--netns /run/netns/pod'
ATTACH="podrail attach $NETNS --id job"
STATE=/run/case/state.db
files() { ls -AR /var/lib/podrail /run/case /run/locks 2> /run/ignored || :; }
bytes() { sha256sum /var/lib/podrail/*.db* /run/case/*.db* 2> /run/ignored || :; }
content() { podrail status -o json; }
kernel() {
    {
        ip -d -j link
        nsenter --net=/run/netns/pod sh -c 'ip -d -j addr; ip -j rule; ip -j route show table all
            cat /proc/sys/net/ipv4/conf/all/rp_filter'
    } | jq -cS 'if type == "array" then .[] else . end | if type != "object" then .
        elif has("ifname") then {
            ifname, master, link, ifalias, group, mtu, address, kind: .linkinfo.info_kind,
            port: .linkinfo.info_slave_kind, up: (.flags | index("UP") != null),
            addresses: [.addr_info[]? | [.local, .prefixlen, .scope]] }
        # These come by themselves, when IPv6 has seen that nobody has the address.
        elif .type == "local" and (.dst | startswith("fe80:")) then empty else . end'
}
held() {
    mkdir -m 700 /run/case /run/good
    $ATTACH --rails 2 --state $STATE > /run/ignored
    cp $STATE /run/good
}
release() {
    cp /run/good/state.db $STATE
    podrail detach --id job --state $STATE > /run/ignored
    rm -r /run/case /run/good
}
other() { podrail attach --netns /run/netns/other --id other --rails $* > /run/ignored; }
no_other() { podrail detach --id other > /run/ignored; }
"#;

#[test]
fn what_cannot_be_done_is_refused_with_a_reason_and_changes_nothing() {
    let Some(node) = Node::boot("B4.8") else {
        return;
    };
    prepare(&node);
    let groups = [
        gpus(),
        counts(),
        rails_in_use(),
        rails_in_groups(),
        namespaces(),
        ids(),
        conflicts(),
        wrong_fields(),
        no_configuration(),
        command_lines(),
        dumps(),
        places_of_state(),
        damaged_state(),
    ];
    let cases: Vec<Case> = groups.into_iter().flatten().collect();
    check_all(&node, &cases);
    let exits: BTreeSet<i32> = cases.iter().map(|case| case.exit).collect();
    let documented: BTreeSet<i32> = (2..=8).collect();
    assert_eq!(exits, documented, "every refusal's exit code has a case");
    // Not refused: a path is what it leads to.
    node.podrail_ok("attach --netns /run/netns/../netns/pod --id job --rails 2");
    node.podrail_ok("detach --id job");
}

#[test]
fn exclusive_rdma_mode_is_refused() {
    let Some(node) = Node::boot_with("S8", podrail_lab::Builder::rdma_exclusive) else {
        return;
    };
    prepare_without_state(&node);
    check_all(
        &node,
        &[case(
            "exclusive mode",
            "$ATTACH --rails 2",
            6,
            &[
                "RDMA namespace mode is exclusive",
                "netns_mode=1",
                "rdma system set netns shared",
            ],
        )],
    );
}

#[test]
fn a_kernel_without_ipvlan_is_refused() {
    let without = |builder: podrail_lab::Builder| builder.without_module("ipvlan");
    let Some(node) = Node::boot_with("S8", without) else {
        return;
    };
    prepare(&node);
    check_all(
        &node,
        &[case(
            "no IPvlan",
            "$ATTACH --rails 2",
            6,
            &["cannot attach rail", "EOPNOTSUPP", "modprobe ipvlan"],
        )
        .after_reserving()],
    );
}

// --- The cases -----------------------------------------------------------------------------------

fn gpus() -> Vec<Case> {
    let unknown: &[&str] = &["the node has no GPU", "0: 0000:0f:00.0", "podrail topo"];
    vec![
        case(
            "GPU index too high",
            "$ATTACH --gpus 8 --rails 2",
            2,
            unknown,
        ),
        case(
            "unknown UUID",
            "$ATTACH --gpus GPU-abc --rails 2",
            2,
            unknown,
        ),
        case(
            "unknown PCI address",
            "$ATTACH --gpus 0000:01:00.0 --rails 2",
            2,
            unknown,
        ),
        case(
            "GPU named twice in two forms",
            "$ATTACH --gpus 0,0000:0f:00.0 --rails 2",
            2,
            &["GPU 0000:0f:00.0 is named twice"],
        ),
        case(
            "GPU that is a word",
            "$ATTACH --gpus all --rails 2",
            2,
            &["GPU \"all\" is not valid", "an index (0)", "podrail topo"],
        ),
        case(
            "GPU that is empty",
            "$ATTACH --gpus '' --rails 2",
            2,
            &["GPU \"\" is not valid", "podrail topo"],
        ),
    ]
}

fn counts() -> Vec<Case> {
    vec![
        case(
            "more rails than there are",
            "$ATTACH --rails 17",
            4,
            &["17 rails asked for, the node has 16", "podrail topo"],
        ),
        case(
            "more rails than are free",
            "$ATTACH --rails 8",
            4,
            &["8 rails asked for, 6 can be had: held by 10x other", "podrail status"],
        )
        .with("other 10", "no_other"),
        case(
            "more addresses than are free",
            "$ATTACH --rails 4 --config /run/case/c.yaml",
            4,
            &["pool small", "4 IPv4 addresses asked for, 4 of 6 are in use", "larger block size"],
        )
        .with(
            "mkdir -m 700 /run/case; printf 'gpus: { generic: true }\npool: { name: small, subnets: [10.239.255.0/24], blockSize: 6 }' > /run/case/c.yaml
             other 4 --config /run/case/c.yaml",
            "no_other; rm -r /run/case",
        ),
    ]
}

const ALL_RAILS: &str = "$ATTACH --rails 16";

fn rails_in_use() -> Vec<Case> {
    vec![
        case(
            "rail down",
            ALL_RAILS,
            6,
            &[
                "15 can be had",
                "unusable: rail 0: link down",
                "podrail topo",
            ],
        )
        .with("ip link set rdma0 down", "ip link set rdma0 up"),
        case(
            "macvlan on a rail",
            ALL_RAILS,
            6,
            &["unusable: rail 3: a macvlan hangs on it"],
        )
        .with("ip link add mv0 link rdma3 type macvlan", "ip link del mv0"),
        case(
            "macvlan on a rail, in another namespace",
            ALL_RAILS,
            6,
            &[
                "cannot attach rail 3 (rdma3) as net4",
                "EBUSY",
                "a macvlan of another pod",
            ],
        )
        .with(
            "ip link add mv0 link rdma3 netns other type macvlan",
            "ip -n other link del mv0",
        )
        .after_reserving(),
        case(
            "IPvlan of another mode on a rail",
            ALL_RAILS,
            6,
            &["iv0 on its interface rdma2 is not in mode L2"],
        )
        .with(
            "ip link add iv0 link rdma2 type ipvlan mode l3",
            "ip link del iv0",
        )
        .after_reserving(),
    ]
}

fn rails_in_groups() -> Vec<Case> {
    vec![
        case(
            "rail in a bridge",
            ALL_RAILS,
            6,
            &["unusable: rail 5: it is a port of br0"],
        )
        .with(
            "ip link add br0 type bridge; ip link set rdma5 master br0",
            "ip link del br0",
        ),
        case(
            "rail in a bond",
            ALL_RAILS,
            6,
            &["unusable: rail 5: it is a port of bond7"],
        )
        .with(
            "ip link add bond7 type bond; ip link set rdma5 down; ip link set rdma5 master bond7",
            "ip link del bond7; ip link set rdma5 up",
        ),
    ]
}

fn namespaces() -> Vec<Case> {
    let something_else: &[&str] = &["there is something else at this path", "ip netns"];
    let own: &[&str] = &[
        "is the network namespace of the host itself",
        "ip netns add",
    ];
    vec![
        case(
            "no such namespace",
            "podrail attach --netns /run/netns/gone --id job --rails 2",
            7,
            &["/run/netns/gone: does not exist", "ip netns"],
        ),
        case(
            "a plain file",
            "podrail attach --netns /etc/podrail/config.yaml --id job --rails 2",
            7,
            something_else,
        ),
        case(
            "a directory",
            "podrail attach --netns /run/netns --id job --rails 2",
            7,
            something_else,
        ),
        case(
            "a mount namespace",
            "podrail attach --netns /proc/self/ns/mnt --id job --rails 2",
            7,
            something_else,
        ),
        case(
            "a pipe without writer",
            "podrail attach --netns /run/case --id job --rails 2",
            7,
            something_else,
        )
        .with("mkfifo /run/case", "rm /run/case"),
        case(
            "the host's namespace, by pid",
            "podrail attach --netns /proc/1/ns/net --id job --rails 2",
            7,
            own,
        ),
        case(
            "the host's namespace, by itself",
            "podrail attach --netns /proc/self/ns/net --id job --rails 2",
            7,
            own,
        ),
        case(
            "not root",
            "setpriv --reuid 1000 --clear-groups $ATTACH --rails 2",
            7,
            &["not permitted", "as root"],
        ),
    ]
}

fn ids() -> Vec<Case> {
    let invalid: &[&str] = &["is not valid: 1 to 128 letters, digits"];
    vec![
        case(
            "path as id",
            "podrail attach $NETNS --id ../x --rails 2",
            2,
            invalid,
        ),
        case(
            "empty id",
            "podrail attach $NETNS --id '' --rails 2",
            2,
            invalid,
        ),
        case(
            "long id",
            "podrail attach $NETNS --id $(printf '%0129d' 0) --rails 2",
            2,
            invalid,
        ),
        case(
            "id beyond ASCII",
            "podrail attach $NETNS --id jöb --rails 2",
            2,
            invalid,
        ),
        case(
            "id that is no text",
            r"podrail attach $NETNS --id $'\xff' --rails 2",
            2,
            &["invalid UTF-8"],
        ),
        case(
            "id with an escape sequence",
            r"podrail attach $NETNS --id $'\e[2J' --rails 2",
            2,
            &[r#"sandbox id "\u{1b}[2J" is not valid"#],
        ),
        case("id of a detach", "podrail detach --id ../x", 2, invalid),
    ]
}

fn conflicts() -> Vec<Case> {
    vec![
        case(
            "other count of rails",
            "$ATTACH --rails 3 --state $STATE",
            5,
            &[
                "sandbox job is already bound with other arguments",
                "podrail detach --id job",
            ],
        )
        .with("held", "release"),
        case(
            "other namespace",
            "podrail attach --netns /run/netns/other --id job --rails 2 --state $STATE",
            5,
            &["already bound with other arguments", "/run/netns/other"],
        )
        .with("held", "release"),
        case(
            "namespace replaced by another one of that name",
            "podrail attach --netns /run/netns/short --id job --rails 2 --state $STATE",
            5,
            &["is another network namespace than the one", "podrail detach"],
        )
        .with(
            "mkdir -m 700 /run/case; ip netns add keep; ip netns add short
             podrail attach --netns /run/netns/short --id job --rails 2 --state $STATE > /run/ignored
             umount /run/netns/short; mount --bind /run/netns/keep /run/netns/short",
            "podrail detach --id job --state $STATE 2> /run/ignored > /run/ignored
             ip netns del short; ip netns del keep; rm -r /run/case",
        ),
        case(
            "name taken in the pod",
            "$ATTACH --rails 16",
            5,
            &["the namespace has an interface net1 already", "Multus"],
        )
        .with("ip -n pod link add net1 type dummy", "ip -n pod link del net1")
        .after_reserving(),
    ]
}

/// All wrong configurations, side by side.
const CONFIG_FILES: &str = r"
    mkdir -p /run/case/folder.yaml
    cd /run/case
    echo 'pool: { subnets: [10.239.255.0/24], blocksize: 32 }' > unknown.yaml
    printf '%s\n' 'gpus: { generic: maybe }' 'pool: { subnets: [x], block: y }' \
        'rails: { shares: 0, overrides: [ { gpu: z } ] }' 'more: 1' > many.yaml
    echo 'pool: [' > broken.yaml
    echo 'all rails' > words.yaml
    echo 'gpus: { generic: true }' > no-pool.yaml
    echo 'pool: { subnets: [10.239.255.0/24], blockSize: 32, block: 7 }' > eighth.yaml
    printf '%s\n' 'pool: { subnets: [10.239.255.0/24] }' 'rails: { mtu: 9000 }' > mtu.yaml";

/// A case with these files in the current folder.
const fn config(name: &'static str, command: &'static str, says: &'static [&'static str]) -> Case {
    case(name, command, 3, says).with(CONFIG_FILES, "rm -r /run/case")
}

fn wrong_fields() -> Vec<Case> {
    vec![
        config(
            "unknown field",
            "$ATTACH --rails 2 --config unknown.yaml",
            &[
                "pool.blocksize: unknown field",
                "blockSize",
                "docs/configuration.md",
            ],
        ),
        config(
            "many faults at once",
            "$ATTACH --rails 2 --config many.yaml",
            &[
                "pool.subnets[0]: ",
                "pool.block: ",
                "rails.shares: 0 is not a whole number from 1 to 64",
                "rails.overrides[0].gpu: ",
                "rails.overrides[0].nic: is required",
                "gpus.generic: expected true or false",
                "more: unknown field; known here: resource, pool, rails, gpus, networks, cdi",
            ],
        ),
        config(
            "eighth node of a subnet for seven",
            "$ATTACH --rails 2 --config eighth.yaml",
            &["pool.block: 7 is too high: 7 nodes fit, with 32 addresses each; allowed: 0 to 6"],
        ),
        case(
            "MTU above that of the rail",
            "$ATTACH --rails 2 --config mtu.yaml",
            6,
            &["its interface has MTU 4220, rails.mtu is 9000"],
        )
        .with(CONFIG_FILES, "rm -r /run/case"),
    ]
}

fn no_configuration() -> Vec<Case> {
    vec![
        config(
            "no YAML",
            "$ATTACH --rails 2 --config broken.yaml",
            &["broken.yaml is not valid YAML: line 1 column 7"],
        ),
        config(
            "no mapping",
            "$ATTACH --rails 2 --config words.yaml",
            &["(document): expected a mapping, found a text"],
        ),
        config(
            "a folder",
            "$ATTACH --rails 2 --config folder.yaml",
            &["cannot read the configuration folder.yaml", "directory"],
        ),
        config(
            "missing file",
            "$ATTACH --rails 2 --config gone.yaml",
            &["cannot read the configuration gone.yaml", "No such file"],
        ),
        config(
            "file without pool",
            "$ATTACH --rails 2 --config no-pool.yaml",
            &[
                "there is no address pool: no-pool.yaml has no section 'pool'",
                "subnets",
            ],
        ),
        case(
            "no file and so no pool",
            "$ATTACH --rails 2",
            3,
            &[
                "there is no address pool: there is no configuration file",
                "/etc/podrail/config.yaml",
            ],
        )
        .with("mv /etc/podrail /run/kept", "mv /run/kept /etc/podrail"),
    ]
}

fn command_lines() -> Vec<Case> {
    vec![
        case(
            "nothing but the command",
            "podrail attach",
            2,
            &["--netns <PATH>", "--rails <N>"],
        ),
        case("no rails", "$ATTACH --rails 0", 2, &["0 is not in 1..="]),
        case("rails below none", "$ATTACH --rails=-1", 2, &["-1"]),
        case(
            "empty path",
            "podrail attach --netns '' --id job --rails 2",
            2,
            &["--netns <PATH>"],
        ),
        case("no such command", "podrail atach", 2, &["attach"]),
        case(
            "no such form",
            "podrail status -o yaml",
            2,
            &["text", "json"],
        ),
    ]
}

/// All dumps that are none, side by side.
const DUMP_FILES: &str = r#"
    mkdir -p /run/case/folder.xml
    cd /run/case
    echo hello > text.xml
    : > empty.xml
    echo '<html/>' > html.xml
    echo '<!DOCTYPE s [<!ENTITY a "aaa"><!ENTITY b "&a;&a;">]><system>&b;</system>' > bomb.xml
    { yes '<system>' | head -200000; yes '</system>' | head -200000; } > deep.xml || :
    truncate -s 17M huge.xml
    printf '\377\376<' > bytes.xml"#;

fn dumps() -> Vec<Case> {
    let dump =
        |name, command, says| case(name, command, 3, says).with(DUMP_FILES, "rm -r /run/case");
    vec![
        dump(
            "dump that is no XML",
            "podrail topo --from text.xml",
            &["is not well-formed XML", "NCCL_TOPO_DUMP_FILE"],
        ),
        dump(
            "dump that is empty",
            "podrail topo --from empty.xml",
            &["is not well-formed XML"],
        ),
        dump(
            "dump of something else",
            "podrail topo --from html.xml",
            &["<html>", "neither an NCCL topology nor an hwloc one"],
        ),
        dump(
            "dump with an entity bomb",
            "podrail topo --from bomb.xml",
            &["a DOCTYPE with definitions, which is refused"],
        ),
        dump(
            "dump that is deep",
            "podrail topo --from deep.xml",
            &["is nested deeper than 64 elements"],
        ),
        dump(
            "dump that is huge",
            "podrail topo --from huge.xml",
            &["is larger than 16777216 bytes"],
        ),
        dump(
            "dump that is no text",
            "podrail topo --from bytes.xml",
            &["is not UTF-8 text"],
        ),
        dump(
            "dump that is a folder",
            "podrail topo --from folder.xml",
            &["cannot read folder.xml", "not a regular file"],
        ),
        dump(
            "dump that is not there",
            "podrail topo --from gone.xml",
            &["cannot read gone.xml", "No such file"],
        ),
    ]
}

fn places_of_state() -> Vec<Case> {
    let attach = "$ATTACH --rails 2 --state $STATE";
    let read_only: &[&str] = &["\"/run/case/state.db\" is read-only", "remount"];
    vec![
        case(
            "state in a folder for everybody",
            "$ATTACH --rails 2 --state /run/state.db",
            8,
            &["directory \"/run\" of the state file is not safe", "0700"],
        ),
        case(
            "state that is a link",
            attach,
            8,
            &["is a symbolic link", "remove /run/case/state.db"],
        )
        .with(
            "held; mv $STATE /run/case/real.db; ln -s real.db $STATE",
            "rm $STATE; release",
        ),
        case("state that is a folder", attach, 8, &["no regular file"])
            .with("mkdir -m 700 -p $STATE", "rm -r /run/case"),
        case(
            "read-only file system, nothing there yet",
            attach,
            8,
            read_only,
        )
        .with(
            "mkdir /run/case; mount -t tmpfs -o mode=700,ro none /run/case",
            "umount /run/case; rmdir /run/case",
        ),
        case(
            "read-only file system with a state file",
            "podrail detach --id job --state $STATE",
            8,
            read_only,
        )
        .with(
            "held; mount --bind /run/case /run/case; mount -o remount,ro,bind /run/case",
            "umount /run/case; release",
        ),
        case("read-only state file", attach, 8, read_only).with(
            "held; mount --bind $STATE $STATE; mount -o remount,ro,bind $STATE",
            "umount $STATE; release",
        ),
        case(
            "somebody else's state",
            "setpriv --reuid 1000 --clear-groups podrail detach --id job",
            8,
            &["/var/lib/podrail/state.db", "Permission denied", "root"],
        ),
        case(
            "somebody else's state, to look at",
            "setpriv --reuid 1000 --clear-groups podrail status",
            8,
            &["/var/lib/podrail/state.db", "Permission denied", "root"],
        ),
    ]
}

fn damaged_state() -> Vec<Case> {
    let (attach, detach) = (
        "$ATTACH --rails 3 --state $STATE",
        "podrail detach --id job --state $STATE",
    );
    let text = "held; echo 'a text, and a long one, but no database' > $STATE";
    let cut = "held; truncate -s 6000 $STATE";
    let page = "held; tr '\\0' '\\377' < /dev/zero | dd of=$STATE bs=4096 seek=2 count=1 conv=notrunc 2> /run/ignored || :";
    let newer =
        r"held; printf '\0\0\0\143' | dd of=$STATE bs=1 seek=60 conv=notrunc 2> /run/ignored";
    let damaged: &[&str] = &[
        "\"/run/case/state.db\" is damaged",
        "keep them for a report",
    ];
    let no_database: &[&str] = &["it is no database", "was not touched"];
    let schema: &[&str] = &["has schema 99", "update this program"];
    vec![
        case("text as state, attach", attach, 8, no_database).with(text, "release"),
        case("text as state, detach", detach, 8, no_database).with(text, "release"),
        case(
            "text as state, status",
            "podrail status --state $STATE",
            8,
            no_database,
        )
        .with(text, "release"),
        case("cut state, attach", attach, 8, damaged).with(cut, "release"),
        case("cut state, detach", detach, 8, damaged).with(cut, "release"),
        case("flipped page, attach", attach, 8, damaged).with(page, "release"),
        case("flipped page, detach", detach, 8, damaged).with(page, "release"),
        case("newer state, attach", attach, 8, schema).with(newer, "release"),
        case("newer state, detach", detach, 8, schema).with(newer, "release"),
    ]
}

// --- The check -----------------------------------------------------------------------------------

fn prepare(node: &Node) {
    prepare_without_state(node);
    // The state file is there, of this boot, and empty.
    node.podrail_ok("detach --id job");
}

fn prepare_without_state(node: &Node) {
    node.pod("pod");
    node.pod("other");
}

/// Cases that stand side by side and have the same setup share it, and the look at the node.
fn check_all(node: &Node, cases: &[Case]) {
    let alike = |one: &Case, other: &Case| one.setup == other.setup && one.cleanup == other.cleanup;
    let faults: Vec<String> = cases
        .chunk_by(alike)
        .flat_map(|group| check(node, group))
        .collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Everything that is wrong with these refusals.
fn check(node: &Node, group: &[Case]) -> Vec<String> {
    let output = run(node, group);
    let (text, failed) = (output.text(), code(&output) != 0);
    let mut parts = text.split(MARK).skip(1);
    let mut faults: Vec<String> = group
        .iter()
        .flat_map(|case| {
            let faults = faults_of(case, parts.next().unwrap_or_default());
            faults
                .into_iter()
                .map(|fault| format!("{}: {fault}", case.name))
        })
        .collect();
    let names: Vec<&str> = group.iter().map(|case| case.name).collect();
    match parts.next().map(str::trim) {
        Some("") if !failed => {}
        Some(changed) if !failed => faults.push(format!("{names:?}: changed:\n{changed}")),
        _ => faults.push(format!(
            "{names:?}: cannot be run: {}",
            output.stderr_text()
        )),
    }
    faults
}

/// `answer` is the exit code, then all that the command printed.
fn faults_of(case: &Case, answer: &str) -> Vec<String> {
    let (exit, said) = answer
        .trim()
        .split_once('\n')
        .unwrap_or((answer.trim(), ""));
    let mut faults = Vec::new();
    let mut want = |holds: bool, fault: String| {
        if !holds {
            faults.push(fault);
        }
    };
    let wanted = case.exit.to_string();
    want(exit == wanted, format!("exit {exit} instead of {wanted}"));
    let lines_with = |start: &str| said.lines().filter(|line| line.starts_with(start)).count();
    want(
        said.starts_with("error: "),
        "does not begin with its error".into(),
    );
    want(lines_with("error:") == 1, "not one line 'error:'".into());
    let next_step = lines_with("hint:") == 1 || (case.exit == 2 && said.contains("try '--help'"));
    want(next_step, "no next step".into());
    want(!said.contains("panicked"), "panicked".into());
    for part in case.says {
        want(said.contains(part), format!("does not say {part:?}"));
    }
    if !faults.is_empty() {
        faults.push(format!("said:\n{said}\n"));
    }
    faults
}

/// Between the answers of a group.
const MARK: &str = "=== next ===";

/// Prints the answer of each command, then what all of them have changed.
fn run(node: &Node, group: &[Case]) -> Output {
    let Some(Case { setup, cleanup, .. }) = group.first() else {
        panic!("an empty group")
    };
    let is_content = |case: &Case| matches!(case.books, Books::Content);
    let books = if group.iter().any(is_content) {
        "content"
    } else {
        "bytes"
    };
    let look = format!("{{ files; {books}; kernel; }}");
    let mut script = format!("{PRELUDE}\n{setup}\n{look} > /run/before\n");
    for case in group {
        script.push_str(&format!(
            "code=0; ( {} ) > /run/said 2>&1 < /dev/null || code=$?\n\
             echo '{MARK}'; echo $code; cat /run/said\n",
            case.command
        ));
    }
    script.push_str(&format!(
        "{look} > /run/after\necho '{MARK}'; diff /run/before /run/after || :\n{cleanup}\n"
    ));
    node.lab
        .cmd(["bash", "-euo", "pipefail", "-c", &script])
        .timeout(Duration::from_secs(300))
        .run()
        .unwrap()
}
