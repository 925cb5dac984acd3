//! Entry of `podrail-cni`: environment and standard input in, one JSON object out.

use podrail_cni::protocol::{Call, CniError, Code, NEWEST};
use std::io::{Read, Write};
use std::process::ExitCode;

/// Far more than any chain's configuration and result.
const LARGEST_INPUT: u64 = 16 * 1024 * 1024;

const HELP: &str = "\
podrail-cni: gives a pod the RDMA rails next to its GPUs, chained after the cluster's network plugin

A container runtime calls it, as the CNI specification says: CNI_COMMAND and its companions in the
environment, the network configuration on standard input, one JSON object on standard output.
'podrail agent' installs it and its entry in the chain.

By hand, without Kubernetes: podrail attach --help
What it says of its version: CNI_COMMAND=VERSION podrail-cni </dev/null";

fn main() -> ExitCode {
    // No runtime gives arguments.
    match std::env::args().nth(1).as_deref() {
        Some("--help" | "-h") => return print(HELP, ExitCode::SUCCESS),
        Some("--version" | "-V") => {
            let version = concat!("podrail-cni ", env!("CARGO_PKG_VERSION"));
            return print(version, ExitCode::SUCCESS);
        }
        _ => {}
    }
    match serve() {
        Ok(text) => print(&text, ExitCode::SUCCESS),
        Err((error, version)) => print(&error.to_json(&version), ExitCode::FAILURE),
    }
}

fn serve() -> Result<String, (CniError, String)> {
    let newest = |error| (error, NEWEST.to_owned());
    let call = Call::read(|name| std::env::var(name).ok()).map_err(newest)?;
    let mut input = Vec::new();
    let mut limited = std::io::stdin().lock().take(LARGEST_INPUT + 1);
    limited.read_to_end(&mut input).map_err(|error| {
        let message = format!("cannot read standard input: {error}");
        newest(CniError::new(Code::Io, message))
    })?;
    if input.len() as u64 > LARGEST_INPUT {
        let message = format!("standard input is larger than {LARGEST_INPUT} bytes");
        return Err(newest(CniError::new(Code::Decode, message)));
    }
    let answer = podrail_cni::run(&call, &input)?;
    for note in &answer.notes {
        // The runtime's log; nobody is there to be told that it cannot be written.
        _ = writeln!(std::io::stderr(), "podrail-cni: {note}");
    }
    Ok(answer.result)
}

fn print(text: &str, code: ExitCode) -> ExitCode {
    if text.is_empty() {
        return code;
    }
    match writeln!(std::io::stdout(), "{text}") {
        Ok(()) => code,
        Err(_) => ExitCode::FAILURE,
    }
}
