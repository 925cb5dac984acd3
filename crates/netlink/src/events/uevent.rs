//! Uevents as the kernel writes them (`lib/kobject_uevent.c`): `action@path`, then `KEY=value`
//! texts, each ended by a NUL.

/// Subsystems of the devices that a rail or a GPU is made of.
const SUBSYSTEMS: [&str; 4] = ["net", "infiniband", "infiniband_verbs", "pci"];
/// Longest path that is kept; the kernel's own limit of the whole message is 2 KiB.
const LONGEST: usize = 2048;

/// What happened to a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// It is new.
    Add,
    /// It is gone.
    Remove,
    /// It changed.
    Change,
    /// It has another name.
    Move,
    /// A driver took it.
    Bind,
    /// Its driver left it.
    Unbind,
    /// Something else (`online`, `offline`).
    Other,
}

impl Action {
    fn of(text: &str) -> Self {
        match text {
            "add" => Self::Add,
            "remove" => Self::Remove,
            "change" => Self::Change,
            "move" => Self::Move,
            "bind" => Self::Bind,
            "unbind" => Self::Unbind,
            _ => Self::Other,
        }
    }
}

/// What happened to which device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Uevent {
    /// What happened.
    pub action: Action,
    /// `net`, `infiniband`, `infiniband_verbs` or `pci`.
    pub subsystem: String,
    /// Path of the device below `/sys`.
    pub path: String,
}

impl Uevent {
    /// Reads a message; `None` for other subsystems, and for what is no uevent.
    pub(super) fn parse(message: &[u8]) -> Option<Self> {
        let mut texts = message
            .split(|byte| *byte == 0)
            .map(|text| std::str::from_utf8(text).unwrap_or_default());
        let (action, path) = texts.next()?.split_once('@')?;
        let subsystem = texts.find_map(|text| text.strip_prefix("SUBSYSTEM="))?;
        let ours = SUBSYSTEMS.contains(&subsystem) && path.len() <= LONGEST;
        ours.then(|| Self {
            action: Action::of(action),
            subsystem: subsystem.to_owned(),
            path: path.to_owned(),
        })
    }
}
