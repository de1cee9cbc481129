//! A small command of our own in a box, to its end: for what the agent has no word for.

use std::time::Duration;

use blastbox_engine::keeper::{ExecEnded, KeepError, TapeEvent};
use blastbox_engine::{Command, Stream};
use blastbox_wire::agent::{Io, User};

use super::desk::Desk;
use super::envd::paths::HOME;
use super::sandbox::Sandbox;

/// Bytes of each stream that are kept.
const MOST_OUTPUT: usize = 1024 * 1024;

/// How it went.
#[derive(Debug)]
pub(super) struct Done {
    pub(super) ended: ExecEnded,
    pub(super) stdout: Vec<u8>,
    pub(super) stderr: Vec<u8>,
}

/// Runs it as the box's user, in its home, with nothing of the sandbox's environment.
pub(super) async fn run(
    desk: &Desk,
    sandbox: &Sandbox,
    words: &[&str],
    patience: Duration,
) -> Result<Done, KeepError> {
    run_as(User::Payload, desk, sandbox, words, patience).await
}

/// The same as one of the box's users.
pub(super) async fn run_as(
    user: User,
    desk: &Desk,
    sandbox: &Sandbox,
    words: &[&str],
    patience: Duration,
) -> Result<Done, KeepError> {
    let command = Command {
        arguments: words.iter().map(|word| word.as_bytes().to_vec()).collect(),
        environment: vec![b"PATH=/usr/local/bin:/usr/bin:/bin".to_vec(), b"LC_ALL=C".to_vec()],
        directory: HOME.as_bytes().to_vec(),
        io: Io::Pipes,
        user,
    };
    let (keeper, tenant, id) = (desk.keeper(), &sandbox.tenant, &sandbox.box_id);
    let exec = keeper.exec_within(tenant, id, command, Some(patience)).await?;
    let mut tape = keeper.tape(tenant, id, exec, None)?;
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    while let Some((_, event)) = tape.next().await {
        match event {
            TapeEvent::Output { stream, bytes } => {
                let kept = match stream {
                    Stream::Stdout => &mut stdout,
                    Stream::Stderr => &mut stderr,
                };
                if kept.len() < MOST_OUTPUT {
                    kept.extend_from_slice(&bytes);
                }
            }
            TapeEvent::Ended { ended, .. } => return Ok(Done { ended, stdout, stderr }),
            TapeEvent::Started { .. } | TapeEvent::Dropped { .. } => {}
        }
    }
    Err(KeepError::Gone)
}
