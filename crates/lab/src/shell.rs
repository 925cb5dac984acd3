//! A person's shell on a node, and single commands, with this process's own terminal.

use std::io::{self, IsTerminal, Read, Write};
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

use crate::error::LabError;
use crate::machine::{Lab, Stream, TerminalSize};
use crate::wire::Status;

/// A person may take their time.
const LIMIT: Duration = Duration::from_secs(30 * 24 * 3600);

/// Runs a command with this process's standard input and output, on a terminal if both are one.
/// Without a terminal, standard input is passed on until it ends.
///
/// # Errors
/// The command cannot be started, or the node is gone.
pub fn attach(lab: &Arc<Lab>, argv: &[String]) -> Result<Status, LabError> {
    let terminal = io::stdin().is_terminal() && io::stdout().is_terminal();
    let mut command = lab.cmd(argv.iter().cloned()).keep_stdin().timeout(LIMIT);
    if terminal {
        command = command.terminal(size()).env("TERM", "xterm");
    }
    let process = command.spawn()?;
    // Raw from here: every key is the guest's. Restored when this goes out of scope.
    let _raw = terminal
        .then(Raw::enter)
        .transpose()
        .map_err(LabError::io("set", "the terminal"))?;
    let (sender, id) = (Arc::downgrade(lab), process.id());
    // Never joined, and no owner: it may wait for a key when the command has ended.
    thread::spawn(move || pass_input(&sender, id));
    let output = process.wait_seeing(&mut |stream, bytes| {
        let written = match stream {
            Stream::Stdout => io::stdout()
                .write_all(bytes)
                .and_then(|()| io::stdout().flush()),
            Stream::Stderr => io::stderr().write_all(bytes),
        };
        // A closed pipe behind us is the reader's choice.
        drop(written);
    })?;
    Ok(output.status)
}

fn pass_input(lab: &Weak<Lab>, id: u64) {
    let mut buffer = vec![0; 4096];
    loop {
        let count = io::stdin().read(&mut buffer).unwrap_or(0);
        let bytes = buffer.get(..count).unwrap_or_default();
        let sent = lab
            .upgrade()
            .is_some_and(|lab| lab.send_input(id, bytes, count == 0).is_ok());
        if !sent || count == 0 {
            return;
        }
    }
}

fn size() -> TerminalSize {
    let size = tcgetwinsize(io::stdout());
    size.map_or(
        TerminalSize {
            rows: 24,
            columns: 80,
        },
        |size| TerminalSize {
            rows: size.ws_row,
            columns: size.ws_col,
        },
    )
}

/// The terminal in raw mode; as it was before when dropped.
struct Raw(Termios);

impl Raw {
    fn enter() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        Ok(Self(before))
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.0);
    }
}
