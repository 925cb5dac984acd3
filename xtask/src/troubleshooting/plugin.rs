//! What only the CNI plugin says. It has no enum of errors, so the table is written here, and each
//! message is looked for in the source.

use super::words;
use anyhow::{Result, ensure};
use std::fmt::Write as _;
use std::path::Path;

/// Message as in the source, cause, next step.
const MESSAGES: [(&str, &str, &str); 12] = [
    (
        "the configuration in the state file is not valid",
        "Another version of Podrail wrote it, or somebody changed it.",
        "restart the agent: it writes its configuration again",
    ),
    (
        "holds no configuration of the agent",
        "The state file is gone or new, and this pod has slots.",
        "start the agent: it writes its configuration",
    ),
    (
        "the configuration names no address pool",
        "Rails need addresses.",
        "add 'pool' to the agent's configuration",
    ),
    (
        "the kubelet's list and its checkpoint do not agree",
        "The kubelet was asked while it admitted the pod.",
        "the kubelet tries again by itself",
    ),
    (
        "CNI_COMMAND is",
        "The program was started by hand, or by no container runtime.",
        "a runtime calls it; `podrail attach` does the same by hand",
    ),
    (
        "CNI_CONTAINERID: ",
        "The runtime gave a sandbox name with characters that the CNI specification forbids.",
        "see the runtime's log; names are letters, digits, `_`, `.` and `-`",
    ),
    (
        "CNI_NETNS is missing",
        "ADD and CHECK need a network namespace.",
        "see the runtime's log",
    ),
    (
        "CNI_IFNAME: ",
        "The runtime gave no interface name, or one that the kernel refuses.",
        "see the runtime's log",
    ),
    (
        "CNI_ARGS: ",
        "The runtime tells of a pod, and not all of its namespace, name and UID.",
        "use containerd 1.6 or newer, or CRI-O: they give K8S_POD_UID",
    ),
    (
        "standard input is no network configuration",
        "It is empty, too large, no JSON, or has no cniVersion.",
        "see which file in /etc/cni/net.d the runtime loads",
    ),
    (
        "network configuration: ",
        "A field of our entry in the chain is not known or not valid; it is named.",
        "let the agent write the chain, or correct the field",
    ),
    (
        "supported: ",
        "The network configuration has a cniVersion that is not spoken.",
        "use one of those that are listed",
    ),
];

/// The table; fails if a message is no longer said.
pub(super) fn section() -> Result<String> {
    let source = source(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/cni/src"))?;
    let mut text = "\n## The CNI plugin\n\nBesides all of the above, each with its code.\n\n\
         | message | cause | next step |\n| --- | --- | --- |\n"
        .to_owned();
    for (message, cause, step) in MESSAGES {
        ensure!(
            source.contains(message),
            "podrail-cni no longer says {message:?}"
        );
        let (message, cause) = (words::code(message.trim()), words::cell(cause));
        writeln!(text, "| {message} | {cause} | {} |", words::cell(step))?;
    }
    Ok(text)
}

/// All files of a folder, one after the other.
fn source(folder: &Path) -> Result<String> {
    let mut text = String::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        text.push_str(&match path.is_dir() {
            true => source(&path)?,
            false => std::fs::read_to_string(&path)?,
        });
    }
    Ok(text)
}
