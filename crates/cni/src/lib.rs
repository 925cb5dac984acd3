//! The CNI plugin: binds a pod's slots to rails at ADD.
//!
//! Chained after the cluster's own plugin; returns its result unchanged. No daemon, no cluster
//! access, no other process: the state file, one call of the kubelet, netlink, files. Reading order:
//! [`run`], `add` (with `kubelet`, `wish`), `del`, `check`, `gc`.
//!
//! Safety of others first: a pod that wants no rails costs a look at two directories, STATUS never
//! fails, and nothing that only rails need is even parsed before it is clear that a pod wants some.

mod add;
mod check;
mod del;
mod failure;
mod gc;
mod kubelet;
pub mod protocol;
mod wish;

use failure::from_node;
use podrail_node::{Markers, NodeError};
use protocol::{Call, CniError, Command, NetConf};
use std::path::Path;

/// What a call wrote: its result, and things worth knowing for the runtime's log.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// For standard output; empty where the protocol wants nothing.
    pub result: String,
    /// For standard error, one line each.
    pub notes: Vec<String>,
}

/// Serves one call. The second part of an error is the version to answer in.
///
/// # Guarantees
/// As of the commands: ADD all or nothing and repeatable, DEL and GC repeatable, CHECK reads only.
///
/// # Errors
/// In the form that the runtime expects.
pub fn run(call: &Call, input: &[u8]) -> Result<Answer, (CniError, String)> {
    match call.command {
        Command::Version => {
            return Ok(Answer {
                result: protocol::version_answer(),
                notes: vec![],
            });
        }
        // A failing STATUS makes the whole node NotReady; what rails lack shows as unhealthy slots.
        Command::Status => return Ok(Answer::default()),
        Command::Add | Command::Del | Command::Check | Command::Gc => {}
    }
    let conf = protocol::parse(input).map_err(|error| (error, protocol::NEWEST.to_owned()))?;
    let served = match call.command {
        Command::Add => add::add(call, &conf),
        Command::Del => del::del(call, &conf),
        Command::Check => check::check(call, &conf),
        Command::Gc | Command::Status | Command::Version => gc::gc(&conf),
    };
    served.map_err(|error| (error, conf.version().to_owned()))
}

/// The cheap test. What cannot be looked at may be there: then the long way decides.
fn may_have_rails(call: &Call, conf: &NetConf, test: Test) -> bool {
    let state = conf.state();
    let Some(dir) = state.parent() else {
        return true;
    };
    let (markers, uid) = (Markers::at(dir), call.args.uid());
    let found = match test {
        Test::WantsSome => markers.wants_rails(uid.as_ref()),
        Test::HadSome => markers.knows(uid.as_ref()),
    };
    found.unwrap_or(true)
}

/// What the cheap test is about.
#[derive(Debug, Clone, Copy)]
enum Test {
    /// A slot waits for its pod, or this pod had some.
    WantsSome,
    /// This pod had some.
    HadSome,
}

/// Whether there is a state file at all; without one nobody ever had rails.
fn has_state(state: &Path) -> Result<bool, CniError> {
    state.try_exists().map_err(|source| {
        from_node(&NodeError::Marker {
            path: state.to_owned(),
            source,
        })
    })
}
