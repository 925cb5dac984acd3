//! The program in the guest: PID 1, the host's agent, and `modprobe`.

use std::process::ExitCode;

fn main() -> ExitCode {
    podrail_lab::agent::main()
}
