//! One kernel: a process in the box that is given one piece of code after the other, and answers in lines of JSON.
//!
//! What it says is the payload's word: lines are bounded, read by the JSON library, and one that is none ends the kernel.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Bytes;
use blastbox_engine::keeper::{ExecEnded, Keeper, TapeEvent, TapeReader, Tenant};
use blastbox_engine::{Command, Stream};
use blastbox_wire::BoxId;
use blastbox_wire::agent::{Io, User};
use serde::{Deserialize, Serialize};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::contexts::{Context, Language};
use super::pooled::Begin;
use crate::e2b::desk::Desk;
use crate::e2b::no::{No, echo};
use crate::e2b::process::environment;
use crate::e2b::sandbox::Sandbox;
use crate::e2b::waiting::Waiting;

const PYTHON: &str = concat!(include_str!("charts.py"), include_str!("kernel.py"));
const JAVASCRIPT: &str = include_str!("kernel.js");
/// How long an interpreter may take to get ready.
const PATIENCE: Duration = Duration::from_secs(60);
/// Longest line: a picture is one.
const MOST_LINE: usize = 16 * 1024 * 1024;
/// What is longer than this takes one of the sandbox's few places for long lines, until its client has it.
const LONG_LINE: usize = 1024 * 1024;
/// What is kept of what an interpreter complains about when it does not start.
const MOST_COMPLAINT: usize = 2_000;
/// No kind of line is longer.
const MOST_KIND: usize = 32;
const SIGINT: u8 = 2;
const SIGKILL: u8 = 9;

/// What a kernel is asked.
#[derive(Serialize)]
pub(super) struct Ask<'a> {
    pub(super) code: &'a str,
    pub(super) env_vars: &'a BTreeMap<String, String>,
}

/// The same to a kernel that was begun in the pool, and hears for the first time whose it is.
#[derive(Serialize)]
struct First<'a> {
    begin: Begin,
    #[serde(flatten)]
    ask: &'a Ask<'a>,
}

/// The command that is the kernel of a language.
pub(super) fn words(language: Language) -> Vec<Vec<u8>> {
    let words: &[&str] = match language {
        Language::Python => &["python3", "-u", "-c", PYTHON],
        Language::Bash => &["python3", "-u", "-c", PYTHON, "bash"],
        Language::JavaScript => &["node", "-e", JAVASCRIPT],
    };
    words.iter().map(|word| word.as_bytes().to_vec()).collect()
}

/// One interpreter. Whoever lets go of it ends it.
#[derive(Debug)]
pub(super) struct Kernel {
    keeper: Keeper,
    tenant: Tenant,
    id: BoxId,
    exec: u32,
    tape: TapeReader,
    /// What came and is no line yet.
    held: Waiting,
    complaint: Vec<u8>,
    long: Arc<Semaphore>,
    /// The place of the line that was said last, where it is a long one.
    place: Option<OwnedSemaphorePermit>,
    /// What it is told with the first piece of code, where it was begun in the pool.
    begin: Option<Begin>,
}

/// A line of a kernel, as it was said. Nothing of it is unpacked but what it is: it is the payload's, and what it says in a few
/// bytes may take a hundred times as many in memory.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) kind: String,
    pub(super) bytes: Bytes,
}

#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Complaint<'a> {
    #[serde(borrow)]
    text: Cow<'a, str>,
}

impl Drop for Kernel {
    fn drop(&mut self) {
        let (keeper, tenant, id, exec) =
            (self.keeper.clone(), self.tenant.clone(), self.id.clone(), self.exec);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            // An error: it is over already.
            runtime.spawn(async move { keeper.signal(&tenant, &id, exec, SIGKILL).await.ok() });
        }
    }
}

impl Kernel {
    /// Starts the kernel of a context, and waits until it can be asked.
    pub(super) async fn start(desk: &Desk, sandbox: &Sandbox, context: &Context) -> Result<Self, No> {
        let environment = environment::of_command(sandbox, User::Payload, &BTreeMap::new());
        let command = Command {
            arguments: words(context.language),
            environment: environment.map_err(|_| No::defect())?,
            directory: context.cwd.clone().into_bytes(),
            io: Io::PipesWithStdin,
            user: User::Payload,
        };
        let keeper = desk.keeper();
        let trouble = |error| No::kept(&error, sandbox.id());
        let exec = keeper.exec(&sandbox.tenant, &sandbox.box_id, command).await.map_err(trouble)?;
        context.runs_as(exec);
        let mut kernel = Self::of(keeper, sandbox, exec, None).map_err(trouble)?;
        let language = context.language.as_str();
        match timeout(PATIENCE, kernel.line()).await {
            Ok(Ok(line)) if line.kind == "ready" => Ok(kernel),
            Ok(Ok(line)) => {
                let said = serde_json::from_slice::<Complaint<'_>>(&line.bytes);
                let why = said.map_or(Cow::Borrowed("it says something else"), |said| said.text);
                Err(No::new(500, format!("the {language} kernel cannot start: {}", echo(&why))))
            }
            Ok(Err(Over(why))) => {
                Err(No::new(500, format!("the {language} kernel cannot start: {}", echo(&why))))
            }
            Err(_) => Err(No::new(500, format!("the {language} kernel did not get ready in time"))),
        }
    }

    /// One that its box had begun before it was anybody's, and that has shown that it is ready. `None`: its box is gone.
    pub(super) fn begun(keeper: &Keeper, sandbox: &Sandbox, exec: u32, begin: Begin) -> Option<Self> {
        Self::of(keeper, sandbox, exec, Some(begin)).ok()
    }

    /// One that runs in a copy of the box that it was started in. `None`: it does not, or its box is gone.
    pub(super) fn copied(
        keeper: &Keeper,
        sandbox: &Sandbox,
        exec: u32,
        begin: Option<Begin>,
    ) -> Option<Self> {
        Self::of(keeper, sandbox, exec, begin).ok()
    }

    pub(super) fn exec(&self) -> u32 {
        self.exec
    }

    /// Whether it has heard whose it is.
    pub(super) fn is_claimed(&self) -> bool {
        self.begin.is_none()
    }

    fn of(
        keeper: &Keeper,
        sandbox: &Sandbox,
        exec: u32,
        begin: Option<Begin>,
    ) -> Result<Self, blastbox_engine::keeper::KeepError> {
        let (keeper, tenant, id) = (keeper.clone(), sandbox.tenant.clone(), sandbox.box_id.clone());
        let tape = keeper.tape(&tenant, &id, exec, None)?.hold_back();
        let (held, complaint) = (Waiting::default(), Vec::new());
        let long = sandbox.contexts.long();
        Ok(Self { keeper, tenant, id, exec, tape, held, complaint, long, place: None, begin })
    }

    /// Asks it. It reads when it can; what does not fit into its pipe waits.
    pub(super) fn ask(
        &mut self,
        ask: &Ask<'_>,
    ) -> Result<impl Future<Output = Result<(), Over>> + Send + use<>, Over> {
        let line = match self.begin.take() {
            Some(begin) => serde_json::to_vec(&First { begin, ask }),
            None => serde_json::to_vec(ask),
        };
        let mut line = line.map_err(|error| Over(error.to_string()))?;
        line.push(b'\n');
        let (keeper, tenant, id, exec) =
            (self.keeper.clone(), self.tenant.clone(), self.id.clone(), self.exec);
        Ok(async move {
            let sent = keeper.write_stdin(&tenant, &id, exec, &line).await;
            sent.map_err(|error| Over(error.to_string()))
        })
    }

    pub(super) async fn interrupt(&self) {
        // An error: it is over already.
        self.keeper.signal(&self.tenant, &self.id, self.exec, SIGINT).await.ok();
    }

    /// The next line that it says. May be dropped while it waits: nothing is lost.
    pub(super) async fn line(&mut self) -> Result<Line, Over> {
        if self.held.len() <= LONG_LINE {
            self.place = None;
        }
        loop {
            if let Some(line) = self.held.line() {
                let bytes = Bytes::from(line);
                let head = serde_json::from_slice::<Head<'_>>(&bytes);
                let head =
                    head.map_err(|_| Over("the kernel said something that is no answer".to_owned()))?;
                return Ok(Line { kind: head.kind.chars().take(MOST_KIND).collect(), bytes: bytes.clone() });
            }
            let waiting = self.held.len();
            if waiting > MOST_LINE {
                return Err(Over(format!("one result is longer than {MOST_LINE} bytes")));
            }
            if waiting > LONG_LINE && self.place.is_none() {
                // Never closed. What it says further waits in the box meanwhile.
                self.place = Arc::clone(&self.long).acquire_owned().await.ok();
            }
            match self.tape.next().await {
                Some((_, TapeEvent::Output { stream: Stream::Stdout, bytes })) => {
                    self.held.add(&bytes);
                }
                Some((_, TapeEvent::Output { stream: Stream::Stderr, bytes })) => {
                    let room = MOST_COMPLAINT.saturating_sub(self.complaint.len());
                    self.complaint.extend(bytes.iter().take(room));
                }
                Some((_, TapeEvent::Started { .. } | TapeEvent::Dropped { .. })) => {}
                Some((_, TapeEvent::Ended { ended: ExecEnded::NotStarted { message, .. }, .. })) => {
                    return Err(Over(message));
                }
                Some((_, TapeEvent::Ended { .. })) | None => {
                    return Err(Over(String::from_utf8_lossy(&self.complaint).into_owned()));
                }
            }
        }
    }
}

/// The kernel has ended, or cannot be understood any more; why, where that is known.
#[derive(Debug)]
pub(super) struct Over(pub(super) String);
