//! An interpreter that remembers: one of each language in the box, given one piece of code after the other.
//!
//! It is the payload's own process, and whatever it says is the payload's word: a piece of code that forges the end of
//! its own output fools only whoever wrote it.

mod turn;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use blastbox_engine::keeper::{KeepError, Keeper, TapeEvent, TapeReader, Tenant};
use blastbox_images::Language;
use blastbox_wire::BoxId;
use serde::Serialize;
use tokio::sync::OwnedMutexGuard;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until, timeout_at};

use self::turn::{Next, Turn, Watch};
use super::calls;
use super::desk::{Desk, Refused};
use super::work::{Asker, Came, timeout};
use crate::ask::{NewExec, StdinFrom};
use crate::rest::execs;

const SIGKILL: u8 = 9;
const PROGRESS: Duration = Duration::from_secs(1);
const MOMENT: Duration = Duration::from_secs(1);

/// What an interpreter is given to be one that remembers. Neither asks which tier it is on.
const PYTHON: &str = include_str!("notebook/driver.py");
const JAVASCRIPT: &str = include_str!("notebook/driver.js");

#[derive(Debug, Serialize)]
struct Line<'a> {
    code: &'a str,
    mark: &'a str,
}

/// The interpreters of everybody who may share boxes, one a box and language.
#[derive(Debug, Default)]
pub(crate) struct Notebooks(Mutex<BTreeMap<(BoxId, Tongue), Page>>);

/// A language that has an interpreter that remembers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tongue {
    Python,
    PythonData,
    Javascript,
}

impl Tongue {
    /// The program, and what it is given.
    fn command(self, desk: &Desk, id: &BoxId) -> Result<Vec<String>, Refused> {
        let (language, given): (Language, &[&str]) = match self {
            Self::Python => (Language::Python, &["-u", "-c", PYTHON]),
            Self::PythonData => (Language::PythonData, &["-u", "-c", PYTHON]),
            Self::Javascript => (Language::Node, &["-e", JAVASCRIPT]),
        };
        let mut command = desk.interpreter(id, language)?;
        command.truncate(1);
        command.extend(given.iter().map(|&word| word.to_owned()));
        Ok(command)
    }
}

/// The place of one interpreter.
#[derive(Debug, Clone, Default)]
struct Page {
    /// Held by the call that uses it: one piece of code at a time, in the order in which they come.
    held: Arc<tokio::sync::Mutex<Option<Notebook>>>,
    /// The command that it is, also for those who do not hold it. `None` before there was one.
    exec: Arc<Mutex<Option<u32>>>,
}

type Held = OwnedMutexGuard<Option<Notebook>>;

impl Page {
    fn exec(&self) -> MutexGuard<'_, Option<u32>> {
        self.exec.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Notebooks {
    fn pages(&self) -> MutexGuard<'_, BTreeMap<(BoxId, Tongue), Page>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The page of a box. Those of boxes that are gone are thrown away.
    fn page(&self, id: &BoxId, tongue: Tongue, lives: impl Fn(&BoxId) -> bool) -> Page {
        let mut pages = self.pages();
        pages.retain(|(other, _), _| lives(other));
        pages.entry((id.clone(), tongue)).or_default().clone()
    }

    /// The interpreter that waits for this call. `None`: the command is no interpreter. An answer that is not for it is refused, and one
    /// for whoever runs, too: nobody else may listen to an interpreter.
    pub(crate) async fn waiting(&self, id: &BoxId, exec: u32, call: u32) -> Result<Option<Waiting>, Refused> {
        let is_it = |((of, _), page): &(&(BoxId, Tongue), &Page)| of == id && *page.exec() == Some(exec);
        let page = self.pages().iter().find(is_it).map(|(_, page)| page.clone());
        let Some(page) = page else { return Ok(None) };
        let waits = |held: &Held| {
            held.as_ref().is_some_and(|notebook| notebook.exec == exec && notebook.waits_for() == Some(call))
        };
        // Whoever is told that it waits holds it for a moment, too.
        match timeout_at(Instant::now() + MOMENT, page.held.lock_owned()).await {
            Ok(held) if waits(&held) => Ok(Some(Waiting(held))),
            _ => Err(KeepError::CallOver.into()),
        }
    }
}

/// An interpreter that waits for a function.
#[derive(Debug)]
pub(crate) struct Waiting(Held);

/// One interpreter. Whoever lets go of it in the middle of a piece of code ends it.
#[derive(Debug)]
struct Notebook {
    keeper: Keeper,
    tenant: Tenant,
    id: BoxId,
    exec: u32,
    reader: TapeReader,
    turns: u64,
    /// The functions that it was begun with.
    tools: BTreeSet<String>,
    /// The piece of code that waits for one of them.
    turn: Option<Turn>,
}

impl Drop for Notebook {
    fn drop(&mut self) {
        let (keeper, tenant, id, exec) =
            (self.keeper.clone(), self.tenant.clone(), self.id.clone(), self.exec);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            // An error: it is over already.
            runtime.spawn(async move { keeper.signal(&tenant, &id, exec, SIGKILL).await.ok() });
        }
    }
}

impl Notebook {
    /// Starts an interpreter in a box.
    async fn open(desk: &Desk, id: &BoxId, tongue: Tongue, tools: Vec<String>) -> Result<Self, Refused> {
        let command = tongue.command(desk, id)?;
        let offered = tools.iter().cloned().collect();
        let new = NewExec { command, stdin: StdinFrom::Stream, tools, ..NewExec::default() };
        let execs::Begun { exec } = execs::begin(&desk.keeper, &desk.tenant, id, new.check()?).await?;
        let reader = desk.keeper.tape(&desk.tenant, id, exec, None)?.hold_back();
        let (keeper, tenant, id) = (desk.keeper.clone(), desk.tenant.clone(), id.clone());
        Ok(Self { keeper, tenant, id, exec, reader, turns: 0, tools: offered, turn: None })
    }

    /// The call that its piece of code waits for.
    fn waits_for(&self) -> Option<u32> {
        self.turn.as_ref()?.call
    }

    /// Whether it takes another piece of code, which is to have these functions. It has those that it was begun with, and no others.
    fn may_take(&self, tools: &[String]) -> Result<(), Refused> {
        if let Some(call) = self.waits_for() {
            let exec = self.exec;
            return Err(Refused(format!(
                "the interpreter waits for a function: answer it first, by answer_call with exec = {exec} and call = {call}"
            )));
        }
        if tools.is_empty() || self.tools.iter().eq(&tools.iter().cloned().collect::<BTreeSet<_>>()) {
            return Ok(());
        }
        let has: Vec<&str> = self.tools.iter().map(String::as_str).collect();
        let has = if has.is_empty() { "no functions".to_owned() } else { has.join(", ") };
        Err(Refused(format!(
            "the interpreter was begun with {has}, and gets no others: leave `tools` out, or begin one in another box (start_box)"
        )))
    }

    /// The next piece of code, as the interpreter reads it.
    fn begin(&mut self, code: &str, time: Duration) -> Result<(Turn, Vec<u8>), Refused> {
        self.turns += 1;
        // A line that code prints by accident is never this one.
        let mark = format!("\0blastbox turn {} of {}\0", self.turns, self.id);
        let mut line =
            serde_json::to_vec(&Line { code, mark: &mark }).map_err(|error| Refused(error.to_string()))?;
        line.push(b'\n');
        Ok((Turn::new(&mark, time), line))
    }

    /// Gives it a piece of code, or nothing where it has that, and listens until it is over or waits for a function.
    async fn listen(&mut self, turn: &mut Turn, line: &[u8], desk: &Desk, asker: &Asker) -> Next {
        let mut ticks = interval_at(Instant::now() + PROGRESS, PROGRESS);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut feed = std::pin::pin!(self.keeper.write_stdin(&self.tenant, &self.id, self.exec, line));
        let mut call = std::pin::pin!(calls::next(desk, &self.id, self.exec));
        let mut fed = line.is_empty();
        loop {
            let event = tokio::select! {
                // What was printed before a call is told with it.
                biased;
                _ = ticks.tick() => {
                    asker.progress(turn.begun, turn.bytes).await;
                    continue;
                }
                sent = &mut feed, if !fed => {
                    fed = true;
                    // It does not read any more: its end is on the tape.
                    sent.ok();
                    continue;
                }
                event = self.reader.next() => event,
                card = &mut call, if !self.tools.is_empty() => return Next::Calls(card),
            };
            match event {
                Some((_, TapeEvent::Output { stream, bytes })) => {
                    turn.add(stream, &bytes);
                    if turn.is_over() {
                        return Next::Over;
                    }
                }
                Some((_, TapeEvent::Started { .. } | TapeEvent::Dropped { .. })) => {}
                Some((_, TapeEvent::Ended { .. })) | None => return Next::Lost,
            }
        }
    }
}

/// Runs one piece of code in the box's interpreter that remembers.
pub(crate) async fn run(
    desk: &Desk,
    id: &BoxId,
    (tongue, code): (Tongue, &str),
    (tools, asked): (Vec<String>, Option<u64>),
    asker: &Asker,
) -> Result<Came, Refused> {
    let time = Duration::from_secs(timeout(asked)?);
    let page = desk.notebooks.page(id, tongue, |id| desk.lives(id));
    let mut held = Arc::clone(&page.held).lock_owned().await;
    if let Some(notebook) = held.as_ref() {
        notebook.may_take(&tools)?;
    }
    let mut notebook = match held.take() {
        Some(notebook) => notebook,
        None => Notebook::open(desk, id, tongue, tools).await?,
    };
    *page.exec() = Some(notebook.exec);
    let (turn, line) = notebook.begin(code, time)?;
    attend(held, (notebook, turn), &line, desk, asker).await
}

/// The call was answered, or that came too late: either way the piece of code goes on.
pub(crate) async fn go_on(
    desk: &Desk,
    Waiting(mut held): Waiting,
    answered: Result<(), KeepError>,
    asker: &Asker,
) -> Result<Came, Refused> {
    let late = match answered {
        Ok(()) => false,
        Err(KeepError::CallOver) => true,
        Err(error) => return Err(error.into()),
    };
    let gone = || Refused("the interpreter is gone".to_owned());
    let mut notebook = held.take().ok_or_else(gone)?;
    let turn = notebook.turn.take().ok_or_else(gone)?;
    let mut came = attend(held, (notebook, turn), &[], desk, asker).await?;
    if late {
        came.how.push_str("; the answer came too late (call_over)");
    }
    Ok(came)
}

/// Waits for what a piece of code does next. The interpreter is put back where it can be used again, and is gone otherwise.
async fn attend(
    mut held: Held,
    (mut notebook, mut turn): (Notebook, Turn),
    line: &[u8],
    desk: &Desk,
    asker: &Asker,
) -> Result<Came, Refused> {
    let (ends, of, exec) = (turn.ends, notebook.id.to_string(), notebook.exec);
    let next = tokio::select! {
        next = notebook.listen(&mut turn, line, desk, asker) => next,
        () = sleep_until(ends) => {
            let how = "killed: its time was over; what the interpreter remembered is gone".to_owned();
            return Ok(Came { of, how, timed_out: true, ..Came::default() });
        }
        () = asker.gave_up() => {
            return Err(Refused("cancelled; the interpreter was killed and what it remembered is gone".to_owned()));
        }
    };
    let came = Came { of, exec: Some(exec), ..turn.came(&next) };
    match next {
        Next::Over => *held = Some(notebook),
        Next::Lost => {}
        Next::Calls(card) => {
            turn.call = Some(card.call);
            turn.watch.get_or_insert_with(|| watch(OwnedMutexGuard::mutex(&held), exec, ends));
            notebook.turn = Some(turn);
            *held = Some(notebook);
        }
    }
    Ok(came)
}

/// Ends an interpreter whose piece of code still waits at its time: nobody else looks at it meanwhile.
fn watch(page: &Arc<tokio::sync::Mutex<Option<Notebook>>>, exec: u32, ends: Instant) -> Watch {
    let page = Arc::downgrade(page);
    Watch(tokio::spawn(async move {
        sleep_until(ends).await;
        let Some(page) = page.upgrade() else { return };
        let mut held = page.lock().await;
        if held.as_ref().is_some_and(|notebook| notebook.exec == exec && notebook.turn.is_some()) {
            *held = None;
        }
    }))
}
