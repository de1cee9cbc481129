//! What a sandbox of a template begins with: its home, and the command that its owner wants to run from the start.

use std::collections::BTreeMap;
use std::fs::File;
use std::time::Duration;

use blastbox_engine::keeper::{ExecEnded, Keeper, NewBox, TapeEvent, Tenant, Terms};
use blastbox_engine::{Command, LiveBox, causes};
use blastbox_wire::BoxId;
use blastbox_wire::agent::{EntryKind, Io, Links, Parents, User};
use tokio::time::{Instant, sleep};

use super::archive;
use super::build::Site;
use super::record::Made;
use crate::e2b::ending::Ending;
use crate::e2b::envd::paths::HOME;
use crate::e2b::no::echo;
use crate::e2b::process::environment;
use crate::trouble::line;

/// How long something may take until it is ready, and how often it is asked.
const READY_WITHIN: Duration = Duration::from_secs(120);
const EVERY: Duration = Duration::from_millis(200);

/// Whose box it is.
pub(super) struct Whose<'a> {
    pub(super) keeper: &'a Keeper,
    pub(super) tenant: &'a Tenant,
    pub(super) id: &'a BoxId,
}

/// Fills a new box with what its template has. Variables are those of the sandbox, the template's among them.
pub(super) async fn fill(
    whose: &Whose<'_>,
    made: &Made,
    home: Option<File>,
    variables: &BTreeMap<String, String>,
    wait: Wait,
) -> Result<(), String> {
    let Whose { keeper, tenant, id } = whose;
    let live = keeper.live(tenant, id).map_err(|error| line(&error))?;
    if let Some(home) = home {
        archive::unpack_home(&live, home).await?;
    }
    if made.workdir != HOME {
        // A WORKDIR that no step followed was made by nobody.
        stand_in(&live, User::Payload, &made.workdir).await?;
    }
    if let Some(start) = &made.start {
        let command = command(start, made, variables);
        let terms = Terms { timeout: None, first_reader: Duration::ZERO, tools: Vec::new() };
        let begun = keeper.exec_within(tenant, id, command, terms).await;
        begun.map_err(|error| format!("its start command cannot be started: {}", line(&error)))?;
    }
    match &made.ready {
        Some(ready) if wait == Wait::Always || !only_waits(ready) => {
            until_ready(whose, made, variables, ready).await
        }
        Some(_) | None => Ok(()),
    }
}

/// Makes the directory that commands begin in, where it is not there already.
pub(super) async fn stand_in(live: &LiveBox, user: User, path: &str) -> Result<(), String> {
    let files = live.files_as(user);
    let Err(error) = files.make_directory(path.as_bytes(), 0o755, Parents::Make).await else { return Ok(()) };
    match files.stat(path.as_bytes(), Links::Follow).await {
        Ok(entry) if entry.kind == EntryKind::Directory => Ok(()),
        Ok(_) => Err(format!("its working directory '{}' is no directory", echo(path))),
        Err(_) => Err(format!("its working directory '{}' cannot be made: {}", echo(path), causes(&error))),
    }
}

/// Whether a ready command that only lets time pass is run: it tells nothing, and a sandbox is not to wait for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wait {
    Always,
    ForAnswers,
}

fn only_waits(ready: &str) -> bool {
    let rest = ready.trim().strip_prefix("sleep ");
    rest.is_some_and(|time| time.trim().bytes().all(|byte| byte.is_ascii_digit() || byte == b'.'))
}

async fn until_ready(
    whose: &Whose<'_>,
    made: &Made,
    variables: &BTreeMap<String, String>,
    ready: &str,
) -> Result<(), String> {
    let Whose { keeper, tenant, id } = whose;
    let deadline = Instant::now() + READY_WITHIN;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let command = command(ready, made, variables);
        let (exec, mut tape) = {
            let exec =
                keeper.exec_within(tenant, id, command, Some(left)).await.map_err(|error| line(&error))?;
            (exec, keeper.tape(tenant, id, exec, None).map_err(|error| line(&error))?)
        };
        let ended = loop {
            match tape.next().await {
                Some((_, TapeEvent::Ended { ended, .. })) => break ended,
                Some(_) => {}
                None => return Err(format!("its box ended before command {exec} said that it is ready")),
            }
        };
        match ended {
            ExecEnded::Exited { code: 0 } => return Ok(()),
            ExecEnded::BoxEnded { message, .. } => return Err(format!("its box ended: {message}")),
            ExecEnded::Exited { .. }
            | ExecEnded::Signalled { .. }
            | ExecEnded::FuelSpent { .. }
            | ExecEnded::NotStarted { .. } => {}
        }
        if Instant::now() >= deadline {
            return Err(format!(
                "it did not get ready within {} s: `{}`",
                READY_WITHIN.as_secs(),
                echo(ready)
            ));
        }
        sleep(EVERY).await;
    }
}

fn command(text: &str, made: &Made, variables: &BTreeMap<String, String>) -> Command {
    let mut environment = environment::of_nobody();
    environment.retain(|line| {
        let name = line.split(|byte| *byte == b'=').next().unwrap_or_default();
        !variables.keys().any(|other| other.as_bytes() == name)
    });
    environment.extend(variables.iter().map(|(name, value)| format!("{name}={value}").into_bytes()));
    Command {
        arguments: ["/bin/bash", "-l", "-c", text].map(|word| word.as_bytes().to_vec()).to_vec(),
        environment,
        directory: made.workdir.clone().into_bytes(),
        io: Io::Pipes,
        user: User::Payload,
    }
}

/// At the end of a build: whether what a sandbox begins with gets ready, in one that is as large as they will be.
pub(super) async fn try_out(site: &Site, made: &Made) -> Result<(), String> {
    let image = site.image(made.tree).await?;
    let (keeper, tenant) = (site.desk.keeper(), &site.tenant);
    let home = site.templates.open_home(tenant, made).map_err(|error| error.to_string())?;
    let note = BTreeMap::from([("e2b.template-build".to_owned(), site.build.clone())]);
    let new = NewBox { metadata: note, ..NewBox::new(site.of_sandboxes.clone(), image) };
    let card = keeper.create(tenant, new).await.map_err(|error| line(&error))?;
    let ending = Ending::of(keeper, tenant, &card.id);
    let whose = Whose { keeper, tenant, id: &card.id };
    let outcome = fill(&whose, made, home, &made.env, Wait::Always).await;
    ending.now().await;
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ready_command_that_only_lets_time_pass_is_known() {
        assert!(only_waits("sleep 20") && only_waits(" sleep 0.5 "));
        assert!(!only_waits("sleep 1 && curl localhost") && !only_waits("true"));
    }
}
