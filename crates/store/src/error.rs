//! What can go wrong with the store, and what to do about it.

use podrail_core::ids::{PciAddr, RailIndex, SandboxId, SlotId};
use rusqlite::ErrorCode;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

/// How long a transaction waits for those of other processes: 150 pods at once on a slow disk, each
/// with a few commits, and still well below the two minutes that a kubelet gives a sandbox.
pub(crate) const BUSY_SECONDS: u64 = 30;

/// The store could not do what was asked. Nothing was changed then, and nothing was deleted.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The path does not name a file.
    #[error("{path:?} cannot be a state file: it is no regular file")]
    NotAFile {
        /// The path as given.
        path: PathBuf,
    },
    /// A symbolic link stands at the path, or at that of a file beside it.
    #[error("state file {path:?} is a symbolic link")]
    Symlink {
        /// The link.
        path: PathBuf,
    },
    /// The directory cannot be made or looked at.
    #[error("cannot use directory {path:?} for the state file")]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Anyone may put files into the directory.
    #[error("directory {path:?} of the state file is not safe: mode {mode:o}, owner {owner}")]
    LooseDirectory {
        /// The directory.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
        /// Its owner's user id.
        owner: u32,
    },
    /// The file cannot be made, looked at, or given its permissions.
    #[error("cannot prepare state file {path:?}")]
    Prepare {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file belongs to someone else.
    #[error("state file {path:?} belongs to user {owner}, not to user {us}")]
    Owner {
        /// The file.
        path: PathBuf,
        /// Its owner's user id.
        owner: u32,
        /// Our user id.
        us: u32,
    },
    /// Anyone may have written to the file.
    #[error("state file {path:?} may be written by anyone: mode {mode:o}")]
    WorldWritable {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The file or its file system is read-only.
    #[error("state file {path:?} is read-only")]
    ReadOnly {
        /// The file.
        path: PathBuf,
        /// What SQLite said, if it came to that.
        source: Option<rusqlite::Error>,
    },
    /// SQLite cannot open the file or those beside it.
    #[error("cannot open state file {path:?}")]
    CannotOpen {
        /// The file.
        path: PathBuf,
        /// What SQLite said.
        source: rusqlite::Error,
    },
    /// The file is no SQLite database.
    #[error("{path:?} is not a state file: it is no database")]
    NotADatabase {
        /// The file.
        path: PathBuf,
        /// What SQLite said.
        source: rusqlite::Error,
    },
    /// The file is the database of another program.
    #[error("{path:?} is not a state file: it is a database of another program ({application:#x})")]
    Foreign {
        /// The file.
        path: PathBuf,
        /// Its application id.
        application: i32,
    },
    /// A damaged page was met.
    #[error("state file {path:?} is damaged")]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What SQLite said.
        source: rusqlite::Error,
    },
    /// The check at opening found damage.
    #[error("state file {path:?} is damaged: {finding}")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What the check says.
        finding: String,
    },
    /// A value in the file is none that Podrail writes.
    #[error("state file {path:?} holds a value that Podrail did not write")]
    BadValue {
        /// The file.
        path: PathBuf,
        /// Which value.
        source: rusqlite::Error,
    },
    /// A newer Podrail wrote the file.
    #[error("state file {path:?} has schema {found}, and this program knows up to {known}")]
    Newer {
        /// The file.
        path: PathBuf,
        /// Schema of the file.
        found: i32,
        /// Newest schema that this program knows.
        known: i32,
    },
    /// Other processes kept the file locked for too long.
    #[error("state file {path:?} stayed locked while {doing}")]
    Busy {
        /// The file.
        path: PathBuf,
        /// What was to be done.
        doing: &'static str,
        /// What SQLite said.
        source: rusqlite::Error,
    },
    /// No room is left.
    #[error("no room is left for state file {path:?}")]
    DiskFull {
        /// The file.
        path: PathBuf,
        /// What SQLite said.
        source: rusqlite::Error,
    },
    /// The database is gone and its log is there: SQLite would take the log for an old one, and
    /// delete it.
    #[error("the state file of {log:?} is gone, and its log is there")]
    LogWithoutFile {
        /// The log.
        log: PathBuf,
    },
    /// Another process has the file open, and would write on into the one that was moved aside.
    #[error("state file {path:?} is open in {}", in_words(*.process))]
    InUse {
        /// The file.
        path: PathBuf,
        /// Number of the process, where it is seen from here.
        process: Option<i32>,
    },
    /// A file could not be moved aside or into place.
    #[error("cannot move {path:?} to {to:?}")]
    Move {
        /// The file.
        path: PathBuf,
        /// Where to.
        to: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another boot has taken the file over.
    #[error("state file {path:?} now belongs to boot {found:?}, not to {ours:?}")]
    OtherBoot {
        /// The file.
        path: PathBuf,
        /// The boot that this store was opened for.
        ours: String,
        /// The boot that the file is of.
        found: String,
    },
    /// The sandbox has no binding.
    #[error("sandbox {sandbox} has no binding in the state file")]
    NoBinding {
        /// The sandbox.
        sandbox: SandboxId,
    },
    /// Anything else that SQLite says.
    #[error("state file {path:?} failed while {doing}")]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// What was to be done.
        doing: &'static str,
        /// What SQLite said.
        source: rusqlite::Error,
    },
}

impl StoreError {
    /// Sorts what SQLite said by what has to be done about it.
    pub(crate) fn from_sqlite(path: &Path, doing: &'static str, source: rusqlite::Error) -> Self {
        let path = path.to_owned();
        match source.sqlite_error_code() {
            Some(
                ErrorCode::DatabaseBusy
                | ErrorCode::DatabaseLocked
                | ErrorCode::FileLockingProtocolFailed,
            ) => Self::Busy {
                path,
                doing,
                source,
            },
            Some(ErrorCode::DiskFull) => Self::DiskFull { path, source },
            Some(ErrorCode::NotADatabase) => Self::NotADatabase { path, source },
            Some(ErrorCode::DatabaseCorrupt) => Self::Corrupt { path, source },
            Some(ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
                Self::CannotOpen { path, source }
            }
            Some(ErrorCode::ReadOnly) => Self::ReadOnly {
                path,
                source: Some(source),
            },
            None if is_bad_value(&source) => Self::BadValue { path, source },
            _ => Self::Sqlite {
                path,
                doing,
                source,
            },
        }
    }

    /// The next step.
    #[must_use]
    pub fn hint(&self) -> String {
        match self {
            Self::NotAFile { .. } => "give the path of a file, such as /var/lib/podrail/state.db".into(),
            Self::Symlink { path } => format!("remove {}, or give the path of the file itself", path.display()),
            Self::Directory { path, .. } => format!("run as root, or give a state file in a directory that you can write; {} has to exist or be creatable", path.display()),
            Self::LooseDirectory { path, .. } => format!("give the state file a directory of its own, or: chmod 0700 {}", path.display()),
            Self::Prepare { path, .. } | Self::CannotOpen { path, .. } => format!("run as the user that owns {} (root for the node's own), and see that its file system is writable", path.display()),
            Self::Owner { path, owner, .. } => format!("run as user {owner}, or if the content is yours: chown it, {} and the files beside it", path.display()),
            Self::WorldWritable { path, .. } => format!("find out who wrote to it; if the content is good: chmod 0600 {}", path.display()),
            Self::ReadOnly { path, .. } => format!("remount the file system of {} writable, or give another state file", path.display()),
            Self::NotADatabase { path, .. } | Self::Foreign { path, .. } => format!("give another state file; {} was not touched", path.display()),
            Self::Corrupt { path, .. } | Self::Damaged { path, .. } | Self::BadValue { path, .. } => format!("run 'podrail state rebuild': it moves {} and the files beside it aside (keep them for a report) and makes a new one from what the kernel has; pods with rails run on", path.display()),
            Self::LogWithoutFile { log } => format!("run 'podrail state rebuild': it moves {} aside; or put the state file back beside it", log.display()),
            Self::InUse { .. } => "stop the agent (and wait for pods that are being started), then try again".into(),
            Self::Move { path, .. } => format!("see that the directory of {} is writable and has room, then run 'podrail state rebuild' again", path.display()),
            Self::Newer { .. } => "update this program: agent and plugin have to be of the version that wrote the file, or newer".into(),
            Self::Busy { path, .. } => format!("try again; if it stays so, look who holds it: fuser {}", path.display()),
            Self::DiskFull { path, .. } => format!("free space on the file system of {}, and try again", path.display()),
            Self::OtherBoot { .. } => "restart this process: it was started in another boot".into(),
            Self::NoBinding { .. } => "attach the sandbox first".into(),
            Self::Sqlite { path, .. } => format!("look for disk errors in the kernel log (dmesg), and keep {} for a report", path.display()),
        }
    }
}

fn in_words(process: Option<i32>) -> String {
    process.map_or_else(|| "another process".into(), |pid| format!("process {pid}"))
}

fn is_bad_value(error: &rusqlite::Error) -> bool {
    use rusqlite::Error;
    matches!(
        error,
        Error::FromSqlConversionFailure(..)
            | Error::InvalidColumnType(..)
            | Error::IntegralValueOutOfRange(..)
    )
}

/// A decision that the database refuses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Conflict {
    /// Someone holds that share of that rail.
    #[error("share {share} of rail {pci} port {port} is held by sandbox {holder}")]
    Share {
        /// PCI function of the rail.
        pci: PciAddr,
        /// Its port.
        port: u32,
        /// The share.
        share: u16,
        /// Who holds it.
        holder: SandboxId,
    },
    /// Someone holds that address.
    #[error("address {address} is held by sandbox {holder}")]
    Address {
        /// The address.
        address: IpAddr,
        /// Who holds it.
        holder: SandboxId,
    },
    /// One sandbox was given a rail twice.
    #[error("rail {rail} was chosen twice")]
    RailTwice {
        /// The rail.
        rail: RailIndex,
    },
    /// One sandbox was given two rails for a slot.
    #[error("{slot} was given a second rail")]
    SlotTwice {
        /// The slot.
        slot: SlotId,
    },
    /// One rail was given two addresses of a family.
    #[error("rail {rail} was given a second address of a family: {address}")]
    AddressTwice {
        /// The rail.
        rail: RailIndex,
        /// The second address.
        address: IpAddr,
    },
    /// An address was meant for a rail that was not chosen.
    #[error("address {address} is for rail {rail}, which was not chosen")]
    UnboundRail {
        /// The address.
        address: IpAddr,
        /// The rail.
        rail: RailIndex,
    },
}

/// Nothing was reserved. `E` is what the caller's own choice fails with.
#[derive(Debug, thiserror::Error)]
pub enum ReserveError<E: std::error::Error + 'static> {
    /// The sandbox is bound by a request with other arguments.
    #[error("sandbox {sandbox} is already bound with other arguments: {existing}, now {asked}")]
    OtherArguments {
        /// The sandbox.
        sandbox: SandboxId,
        /// Fingerprint of its binding.
        existing: String,
        /// Fingerprint of the request.
        asked: String,
    },
    /// The choice itself failed.
    #[error("cannot choose rails for sandbox {sandbox}")]
    Decide {
        /// The sandbox.
        sandbox: SandboxId,
        /// Why.
        source: E,
    },
    /// The choice gives away what is taken.
    #[error("the choice of rails for sandbox {sandbox} cannot be kept")]
    Conflict {
        /// The sandbox.
        sandbox: SandboxId,
        /// What stands against it.
        source: Conflict,
    },
    /// A slot was allocated to another pod after the request had looked; its own pod is gone.
    #[error("{slot} was given to another pod meanwhile, not to that of sandbox {sandbox}")]
    GivenAway {
        /// The sandbox.
        sandbox: SandboxId,
        /// The slot.
        slot: SlotId,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl<E: std::error::Error + 'static> ReserveError<E> {
    /// The next step; a choice that failed has its own.
    #[must_use]
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::OtherArguments { sandbox, .. } => Some(format!(
                "release sandbox {sandbox} before attaching it with other arguments"
            )),
            Self::Conflict { .. } => Some(
                "this is a fault in Podrail: keep the message and the state file for a report"
                    .into(),
            ),
            Self::GivenAway { .. } => Some(
                "try again: the kubelet says anew which slots the pod has, if it is there still"
                    .into(),
            ),
            Self::Decide { .. } => None,
            Self::Store(error) => Some(error.hint()),
        }
    }
}
