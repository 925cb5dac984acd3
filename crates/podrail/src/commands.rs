//! The commands: each reads arguments, asks the edges, prints.

mod agent;
mod attach;
mod check;
mod detach;
mod explain;
mod state;
mod status;
mod topo;

use crate::cli::{Cli, Command, StateCommand};
use crate::failure::Failure;
use crate::output::note;
use podrail_node::Session;

/// Runs one command.
///
/// # Errors
/// See [`Failure`]; what was printed before is a whole result.
pub fn run(cli: &Cli) -> Result<(), Failure> {
    match &cli.command {
        Command::Topo(args) => topo::run(args),
        Command::Attach(args) => attach::run(args),
        Command::Detach(args) => detach::run(args),
        Command::Status(args) => status::run(args),
        Command::Map(args) => check::map(args),
        Command::Check(args) => check::check(args),
        Command::Explain(args) => explain::run(args),
        Command::State { command } => match command {
            StateCommand::Check(args) => state::check(args),
            StateCommand::Rebuild(args) => state::rebuild(args),
        },
        Command::Agent(args) => agent::run(args),
        Command::Uninstall(args) => agent::uninstall(args),
    }
}

/// Says what there was to tell on the way.
fn tell(session: &mut Session) {
    session.take_notes().iter().for_each(|text| note(text));
}
