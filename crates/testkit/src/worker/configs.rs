//! What the runtime is told of a pod and its containers.

use crate::devices::Grant;
use crate::error::{Error, Result};
use crate::kubelet::Settings;
use crate::manifest::{
    ConfigMap, ConfigMapSource, Container, Pod, PodSpec, Propagation, Seccomp, SecurityContext,
    Volume,
};
use crate::proto::cri::security_profile::ProfileType;
use crate::proto::cri::{
    Capability, CdiDevice, ContainerConfig, ContainerMetadata, Device, DnsConfig, ImageSpec,
    Int64Value, KeyValue, LinuxContainerConfig, LinuxContainerSecurityContext,
    LinuxPodSandboxConfig, LinuxSandboxSecurityContext, Mount, MountPropagation, NamespaceMode,
    NamespaceOption, PodSandboxConfig, PodSandboxMetadata, SecurityProfile,
};
use crate::runtime::labels;
use std::collections::{BTreeMap, HashMap};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// What the kubelet hides from containers that are not privileged.
const MASKED: [&str; 10] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
];

/// What it makes read-only for them.
const READ_ONLY: [&str; 5] = [
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
];

/// The folder of a pod's logs, as the kubelet names it.
pub(crate) fn log_directory(settings: &Settings, pod: &Pod) -> PathBuf {
    let metadata = &pod.metadata;
    let name = format!("{}_{}_{}", metadata.namespace, metadata.name, metadata.uid);
    settings.state_directory().join("logs").join(name)
}

/// Where a container's output goes, below the folder of its pod.
pub(crate) fn log_file(container: &str, attempt: u32) -> String {
    format!("{container}/{attempt}.log")
}

/// A sandbox of a pod.
pub(crate) fn sandbox(settings: &Settings, pod: &Pod, attempt: u32) -> PodSandboxConfig {
    let metadata = &pod.metadata;
    let mut all_labels: HashMap<String, String> = metadata.labels.clone().into_iter().collect();
    all_labels.extend(pod_labels(pod));
    let host = pod.spec.host_network;
    PodSandboxConfig {
        metadata: Some(PodSandboxMetadata {
            name: metadata.name.clone(),
            uid: metadata.uid.clone(),
            namespace: metadata.namespace.clone(),
            attempt,
        }),
        hostname: if host {
            String::new()
        } else {
            metadata.name.clone()
        },
        log_directory: log_directory(settings, pod).display().to_string(),
        dns_config: Some(dns(&metadata.namespace)),
        labels: all_labels,
        annotations: metadata.annotations.clone().into_iter().collect(),
        linux: Some(LinuxPodSandboxConfig {
            cgroup_parent: String::new(),
            security_context: Some(LinuxSandboxSecurityContext {
                namespace_options: Some(namespaces(&pod.spec)),
            }),
        }),
    }
}

fn pod_labels(pod: &Pod) -> [(String, String); 3] {
    let metadata = &pod.metadata;
    [
        (labels::POD_NAME.to_owned(), metadata.name.clone()),
        (labels::POD_NAMESPACE.to_owned(), metadata.namespace.clone()),
        (labels::POD_UID.to_owned(), metadata.uid.clone()),
    ]
}

fn namespaces(spec: &PodSpec) -> NamespaceOption {
    let host_or = |host, else_: NamespaceMode| match host {
        true => NamespaceMode::Node.into(),
        false => else_.into(),
    };
    NamespaceOption {
        network: host_or(spec.host_network, NamespaceMode::Pod),
        pid: host_or(spec.host_pid, NamespaceMode::Container),
        ipc: NamespaceMode::Pod.into(),
    }
}

/// As with the policy ClusterFirst: an address that a service would have.
fn dns(namespace: &str) -> DnsConfig {
    DnsConfig {
        servers: vec!["10.96.0.10".to_owned()],
        searches: vec![
            format!("{namespace}.svc.cluster.local"),
            "svc.cluster.local".to_owned(),
            "cluster.local".to_owned(),
        ],
        options: vec!["ndots:5".to_owned()],
    }
}

/// One start of a container, with everything that the device plugins answered for it.
pub(crate) fn container(
    settings: &Settings,
    pod: &Pod,
    container: &Container,
    attempt: u32,
    grants: &[Grant],
) -> ContainerConfig {
    let answers = || grants.iter().map(|grant| &grant.answer);
    let image = settings.image.as_ref().unwrap_or(&container.image);
    let mut annotations: HashMap<String, String> = HashMap::from([(
        "io.kubernetes.container.restartCount".to_owned(),
        attempt.to_string(),
    )]);
    annotations.extend(answers().flat_map(|answer| answer.annotations.clone()));
    let mut all_labels = HashMap::from(pod_labels(pod));
    all_labels.insert(labels::CONTAINER.to_owned(), container.name.clone());
    ContainerConfig {
        metadata: Some(ContainerMetadata {
            name: container.name.clone(),
            attempt,
        }),
        image: Some(ImageSpec {
            image: image.clone(),
        }),
        command: container.command.clone(),
        args: container.args.clone(),
        working_dir: String::new(),
        envs: envs(container, grants),
        mounts: mounts(settings, pod, container, grants),
        devices: answers().flat_map(|a| &a.devices).map(device).collect(),
        labels: all_labels,
        annotations,
        log_path: log_file(&container.name, attempt),
        linux: Some(LinuxContainerConfig {
            security_context: Some(security(pod, container)),
        }),
        cdi_devices: answers()
            .flat_map(|answer| &answer.cdi_devices)
            .map(|cdi| CdiDevice {
                name: cdi.name.clone(),
            })
            .collect(),
    }
}

/// The plugins' first, as the kubelet orders them: a variable of the pod wins.
fn envs(container: &Container, grants: &[Grant]) -> Vec<KeyValue> {
    let of_plugins: BTreeMap<&String, &String> =
        grants.iter().flat_map(|grant| &grant.answer.envs).collect();
    let own = container.env.iter().map(|env| (&env.name, &env.value));
    let all = of_plugins.into_iter().chain(own);
    all.map(|(key, value)| KeyValue {
        key: key.clone(),
        value: value.clone(),
    })
    .collect()
}

fn device(device: &podrail_kubelet::proto::deviceplugin::DeviceSpec) -> Device {
    Device {
        container_path: device.container_path.clone(),
        host_path: device.host_path.clone(),
        permissions: device.permissions.clone(),
    }
}

fn mounts(settings: &Settings, pod: &Pod, container: &Container, grants: &[Grant]) -> Vec<Mount> {
    let of_plugins = grants.iter().flat_map(|grant| &grant.answer.mounts);
    let of_plugins = of_plugins.map(|mount| Mount {
        container_path: mount.container_path.clone(),
        host_path: mount.host_path.clone(),
        readonly: mount.read_only,
        propagation: MountPropagation::PropagationPrivate.into(),
    });
    let own = container.volume_mounts.iter().filter_map(|mount| {
        let volume = pod
            .spec
            .volumes
            .iter()
            .find(|volume| volume.name == mount.name)?;
        Some(Mount {
            container_path: mount.mount_path.clone(),
            host_path: volume_path(settings, pod, volume).display().to_string(),
            readonly: mount.read_only,
            propagation: propagation(mount.mount_propagation).into(),
        })
    });
    own.chain(of_plugins).collect()
}

fn propagation(wanted: Propagation) -> MountPropagation {
    match wanted {
        Propagation::None => MountPropagation::PropagationPrivate,
        Propagation::HostToContainer => MountPropagation::PropagationHostToContainer,
        Propagation::Bidirectional => MountPropagation::PropagationBidirectional,
    }
}

fn volume_path(settings: &Settings, pod: &Pod, volume: &Volume) -> PathBuf {
    match &volume.host_path {
        Some(host) => PathBuf::from(&host.path),
        None => settings
            .volumes_directory(&pod.metadata.uid)
            .join(&volume.name),
    }
}

fn security(pod: &Pod, container: &Container) -> LinuxContainerSecurityContext {
    let wanted = &container.security_context;
    let hidden = |paths: &[&str]| match wanted.privileged {
        true => vec![],
        false => paths.iter().map(|path| (*path).to_owned()).collect(),
    };
    LinuxContainerSecurityContext {
        capabilities: Some(Capability {
            add_capabilities: wanted.capabilities.add.clone(),
            drop_capabilities: wanted.capabilities.drop.clone(),
        }),
        privileged: wanted.privileged,
        namespace_options: Some(namespaces(&pod.spec)),
        run_as_user: wanted.run_as_user.map(|value| Int64Value { value }),
        run_as_group: None,
        readonly_rootfs: wanted.read_only_root_filesystem,
        no_new_privs: wanted.allow_privilege_escalation == Some(false),
        masked_paths: hidden(&MASKED),
        readonly_paths: hidden(&READ_ONLY),
        seccomp: Some(seccomp(wanted)),
    }
}

fn seccomp(wanted: &SecurityContext) -> SecurityProfile {
    let kind = match wanted.seccomp_profile {
        Some(Seccomp::RuntimeDefault) if !wanted.privileged => ProfileType::RuntimeDefault,
        _ => ProfileType::Unconfined,
    };
    SecurityProfile {
        profile_type: kind.into(),
    }
}

/// Makes the folders and files of a pod's volumes.
///
/// # Errors
/// A config map is missing, in the kubelet's words, or a file cannot be written.
pub(crate) fn make_volumes(
    settings: &Settings,
    pod: &Pod,
    config_maps: &BTreeMap<String, ConfigMap>,
) -> Result<()> {
    for volume in &pod.spec.volumes {
        let path = volume_path(settings, pod, volume);
        let host = volume.host_path.as_ref();
        if host.is_none_or(|host| host.kind == "DirectoryOrCreate") {
            std::fs::create_dir_all(&path).map_err(Error::io("create", &path))?;
        }
        if let Some(source) = &volume.config_map {
            let key = format!("{}/{}", pod.metadata.namespace, source.name);
            let map = config_maps.get(&key).ok_or_else(|| {
                Error::Refused(format!(
                    "MountVolume.SetUp failed for volume {:?} : configmap {key:?} not found",
                    volume.name
                ))
            })?;
            write_files(&path, map, source)?;
        }
    }
    Ok(())
}

fn write_files(directory: &Path, map: &ConfigMap, source: &ConfigMapSource) -> Result<()> {
    let mode = source.default_mode.unwrap_or(0o644);
    for (name, text) in &map.data {
        if name.contains('/') {
            return Err(Error::Refused(format!(
                "config map key {name:?} is no file name"
            )));
        }
        let path = directory.join(name);
        crate::devices::checkpoint::replace(&path, text)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode))
            .map_err(Error::io("set the mode of", &path))?;
    }
    Ok(())
}
