//! Errors of the layers below, as the runtime reads them.

use crate::protocol::{CniError, Code};
use podrail_core::attachment::DecideError;
use podrail_core::binding::BindError;
use podrail_core::networks::NetworksError;
use podrail_core::pods::PodsError;
use podrail_kubelet::podresources::PodResourcesError;
use podrail_node::NodeError;
use podrail_store::{ReadOnly, ReserveError};
use std::error::Error;

/// An error of the node.
pub(crate) fn from_node(error: &NodeError) -> CniError {
    let code = if error.retryable() {
        Code::TryAgain
    } else {
        code_of(error)
    };
    CniError::new(code, error.to_string()).details(details(error, error.hint()))
}

fn code_of(error: &NodeError) -> Code {
    match error {
        NodeError::Decide(error) => decide_code(error),
        NodeError::Reserve(error) => match &**error {
            ReserveError::Decide { source, .. } => decide_code(source),
            _ => Code::State,
        },
        NodeError::Store(_)
        | NodeError::StateLost { .. }
        | NodeError::Rebuild(_)
        | NodeError::BadPlan { .. }
        | NodeError::BadTopology(_)
        | NodeError::Lock { .. }
        | NodeError::Marker { .. } => Code::State,
        NodeError::Busy { .. } | NodeError::Expose { .. } => Code::TryAgain,
        NodeError::Conceal { .. } | NodeError::Teardown(_) => Code::Teardown,
        NodeError::NetNs(_) | NodeError::NetnsGone { .. } | NodeError::HostNamespace { .. } => {
            Code::Environment
        }
        NodeError::Host(_) | NodeError::NotReady { .. } => Code::Rails,
        _ => Code::Kernel,
    }
}

fn decide_code(error: &DecideError) -> Code {
    match error {
        DecideError::Rails { .. } | DecideError::NoInterface { .. } => Code::Rails,
        DecideError::Addresses { .. } => Code::Addresses,
        DecideError::Plan { .. } => Code::Config,
    }
}

/// The kubelet did not tell.
pub(crate) fn from_kubelet(error: &PodResourcesError) -> CniError {
    // The kubelet that runs this pod is there: whatever it is, it is worth another try.
    CniError::new(Code::TryAgain, error.to_string())
        .details(details(error, Some(error.hint().to_owned())))
}

/// The kubelet's answer makes no sense.
pub(crate) fn from_pods(error: &PodsError) -> CniError {
    let code = if error.is_retryable() {
        Code::TryAgain
    } else {
        Code::Rails
    };
    CniError::new(code, error.to_string()).details(details(error, Some(error.hint())))
}

/// The pod's annotation cannot be served.
pub(crate) fn from_networks(error: &NetworksError) -> CniError {
    CniError::new(
        Code::Config,
        format!("annotation {}: {error}", podrail_core::networks::ANNOTATION),
    )
    .details(details(error, Some(error.hint())))
}

/// Adds the pods of the sandboxes that hold what this one needs.
pub(crate) fn with_holders(mut failed: CniError, error: &NodeError, state: &ReadOnly) -> CniError {
    let NodeError::Decide(decide) = error else {
        return failed;
    };
    let DecideError::Rails {
        source: BindError::NotEnoughFree { holders, .. },
        ..
    } = &**decide
    else {
        return failed;
    };
    let pods = holders.iter().filter_map(|(_, sandbox)| {
        let pod = state.get(sandbox)?.request.pod.as_ref()?;
        Some(format!("sandbox {sandbox} is of pod {pod}"))
    });
    let pods: Vec<String> = pods.collect();
    if !pods.is_empty() {
        failed.details = format!("{}\n{}", pods.join("; "), failed.details);
    }
    failed
}

/// Causes and the next step, one line each.
pub(crate) fn details(error: &dyn Error, hint: Option<String>) -> String {
    let mut lines = Vec::new();
    let mut cause = error.source();
    while let Some(source) = cause {
        lines.push(format!("because: {source}"));
        cause = source.source();
    }
    lines.extend(hint.map(|hint| format!("hint: {hint}")));
    lines.join("\n")
}
