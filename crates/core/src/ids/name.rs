//! Ids that are names: interfaces, RDMA devices, sandboxes, GPUs.

use super::{BadId, text_id};
use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! name_id {
    ($(#[$doc:meta])* $name:ident, $kind:literal, $allowed:literal, $valid:path) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// Checks the text; see the type for what is allowed.
            pub fn parse(text: &str) -> Result<Self, BadId> {
                if $valid(text) {
                    Ok(Self(text.to_owned()))
                } else {
                    Err(BadId::new($kind, text, $allowed))
                }
            }

            /// The checked text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        text_id!($name);
    };
}

name_id!(
    /// Name of a network interface: what the kernel's `dev_valid_name` takes (1 to 15 bytes, no
    /// `/`, `:` or white space, not `.` or `..`), and ASCII without control characters besides,
    /// so that it can stand in a sysctl path and on a terminal.
    IfName, "interface name", "1 to 15 ASCII characters, no '/', ':' or spaces, not '.' or '..'",
    is_interface_name
);
name_id!(
    /// Name of an RDMA device (`mlx5_5`): 1 to 63 characters (`IB_DEVICE_NAME_MAX` is 64).
    RdmaName, "RDMA device", "1 to 63 letters, digits, '_', '-' or '.', not '.' or '..'",
    is_rdma_name
);
name_id!(
    /// Id of a pod sandbox, or of a job without Kubernetes. Same rule as CNI's container id
    /// (starts with a letter or digit), with a length limit so that it fits an interface alias.
    SandboxId, "sandbox id",
    "1 to 128 letters, digits, '_', '-' or '.', the first a letter or a digit",
    is_sandbox_id
);
name_id!(
    /// UID of a pod, as the API server makes it or, for a static pod, the kubelet (a hash).
    PodUid, "pod UID", "1 to 63 letters, digits or '-'",
    is_pod_uid
);
name_id!(
    /// Name of a Kubernetes object (RFC 1123 subdomain), as pods and namespaces have it.
    KubeName, "name",
    "1 to 253 lower-case letters, digits, '-' or '.', the first and last a letter or a digit",
    is_kube_name
);
name_id!(
    /// Extended resource that the kubelet counts: `podrail.io/rail`, `nvidia.com/hostdev`.
    ResourceName, "resource name",
    "a domain, '/' and a name of 1 to 63 letters, digits, '-', '_' or '.': podrail.io/rail",
    is_resource_name
);
name_id!(
    /// UUID of a GPU as its driver prints it (`GPU-5a8b…`), without any sharing suffix.
    GpuUuid, "GPU UUID", "'GPU-' and 1 to 60 hexadecimal digits or '-'",
    is_gpu_uuid
);

fn is_interface_name(text: &str) -> bool {
    (1..=15).contains(&text.len())
        && text != "."
        && text != ".."
        && text
            .bytes()
            .all(|b| b.is_ascii_graphic() && b != b'/' && b != b':')
}

fn is_word(text: &str) -> bool {
    text.bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b))
}

fn is_rdma_name(text: &str) -> bool {
    (1..=63).contains(&text.len()) && text != "." && text != ".." && is_word(text)
}

fn is_sandbox_id(text: &str) -> bool {
    (1..=128).contains(&text.len())
        && is_word(text)
        && text
            .bytes()
            .next()
            .is_some_and(|b| b.is_ascii_alphanumeric())
}

fn is_gpu_uuid(text: &str) -> bool {
    text.strip_prefix("GPU-").is_some_and(|rest| {
        (1..=60).contains(&rest.len()) && rest.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-')
    })
}

fn is_pod_uid(text: &str) -> bool {
    (1..=63).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
}

fn is_kube_name(text: &str) -> bool {
    let edge = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    (1..=253).contains(&text.len())
        && edge(text.bytes().next())
        && edge(text.bytes().next_back())
        && text
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-.".contains(&b))
}

fn is_resource_name(text: &str) -> bool {
    let alphanumeric = |b: Option<u8>| b.is_some_and(|b| b.is_ascii_alphanumeric());
    text.split_once('/').is_some_and(|(domain, name)| {
        // The kubelet refuses its own names for extended resources.
        is_kube_name(domain)
            && domain != "kubernetes.io"
            && !domain.ends_with(".kubernetes.io")
            && (1..=63).contains(&name.len())
            && is_word(name)
            && alphanumeric(name.bytes().next())
            && alphanumeric(name.bytes().next_back())
    })
}
