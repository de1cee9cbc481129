//! An interpreter that remembers: one of each language in the box, given one piece of code after the other.
//!
//! It is the payload's own process, and whatever it says is the payload's word: a piece of code that forges the end of
//! its own output fools only whoever wrote it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use blastbox_engine::Stream;
use blastbox_engine::keeper::{Keeper, TapeEvent, TapeReader, Tenant};
use blastbox_images::Language;
use blastbox_wire::BoxId;
use serde::Serialize;
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep};

use super::desk::{Desk, Refused};
use super::work::{Asker, Bounded, Came, timeout};
use crate::ask::{NewExec, StdinFrom};
use crate::rest::execs;

const SIGKILL: u8 = 9;
const PROGRESS: Duration = Duration::from_secs(1);

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
pub(crate) struct Notebooks(Mutex<BTreeMap<(BoxId, Tongue), Arc<Page>>>);

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

/// Held by the call that uses it: one piece of code at a time, in the order in which they come.
type Page = tokio::sync::Mutex<Option<Notebook>>;

impl Notebooks {
    /// The page of a box. Those of boxes that are gone are thrown away.
    fn page(&self, id: &BoxId, tongue: Tongue, lives: impl Fn(&BoxId) -> bool) -> Arc<Page> {
        let mut pages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        pages.retain(|(other, _), _| lives(other));
        Arc::clone(pages.entry((id.clone(), tongue)).or_default())
    }
}

/// One interpreter. Whoever lets go of it in the middle of a piece of code ends it.
#[derive(Debug)]
struct Notebook {
    keeper: Keeper,
    tenant: Tenant,
    id: BoxId,
    exec: u32,
    reader: TapeReader,
    turns: u64,
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
    async fn open(desk: &Desk, id: &BoxId, tongue: Tongue) -> Result<Self, Refused> {
        let command = tongue.command(desk, id)?;
        let new = NewExec { command, stdin: StdinFrom::Stream, ..NewExec::default() };
        let execs::Begun { exec } = execs::begin(&desk.keeper, &desk.tenant, id, new.check()?).await?;
        let reader = desk.keeper.tape(&desk.tenant, id, exec, None)?.hold_back();
        let (keeper, tenant, id) = (desk.keeper.clone(), desk.tenant.clone(), id.clone());
        Ok(Self { keeper, tenant, id, exec, reader, turns: 0 })
    }

    /// Runs one piece of code, and tells whether the interpreter is still there for the next.
    async fn turn(&mut self, code: &str, asker: &Asker) -> Result<(Came, bool), Refused> {
        let id = &self.id;
        self.turns += 1;
        // A line that code prints by accident is never this one.
        let mark = format!("\0blastbox turn {} of {id}\0", self.turns);
        let mut line =
            serde_json::to_vec(&Line { code, mark: &mark }).map_err(|error| Refused(error.to_string()))?;
        line.push(b'\n');
        let (mut out, mut err) = (Catch::new(&mark), Catch::new(&mark));
        let begun = Instant::now();
        let mut ticks = interval_at(begun + PROGRESS, PROGRESS);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let feed = self.keeper.write_stdin(&self.tenant, id, self.exec, &line);
        tokio::pin!(feed);
        let (mut fed, mut bytes) = (false, 0);
        let alive = loop {
            let event = tokio::select! {
                sent = &mut feed, if !fed => {
                    fed = true;
                    // It does not read any more: its end is on the tape.
                    sent.ok();
                    continue;
                }
                _ = ticks.tick() => {
                    asker.progress(begun, bytes).await;
                    continue;
                }
                event = self.reader.next() => event,
            };
            match event {
                Some((_, TapeEvent::Output { stream, bytes: piece })) => {
                    bytes += piece.len();
                    match stream {
                        Stream::Stdout => out.add(&piece),
                        Stream::Stderr => err.add(&piece),
                    }
                    if out.failed().is_some() && err.over {
                        break true;
                    }
                }
                Some((_, TapeEvent::Started { .. } | TapeEvent::Dropped { .. })) => {}
                Some((_, TapeEvent::Ended(_))) | None => break false,
            }
        };
        let failed = out.failed();
        let ((stdout, one), (stderr, two)) = (out.text.finish(), err.text.finish());
        let (how, exit_code) = match (alive, failed) {
            (true, Some(false)) => ("done".to_owned(), Some(0)),
            (true, _) => ("it raised an exception".to_owned(), Some(1)),
            (false, _) => ("the interpreter ended; the next stateful call begins anew".to_owned(), None),
        };
        let came = Came {
            of: id.to_string(),
            exec: Some(self.exec),
            how,
            exit_code,
            stdout,
            stderr,
            left_out: one + two,
            timed_out: false,
            waits: None,
        };
        Ok((came, alive))
    }
}

/// One stream up to the mark. What comes behind it belongs to nobody and is dropped.
struct Catch {
    text: Bounded,
    /// What might be the beginning of the mark.
    held: Vec<u8>,
    mark: Vec<u8>,
    over: bool,
    verdict: Option<u8>,
}

impl Catch {
    fn new(mark: &str) -> Self {
        let (text, held) = Default::default();
        Self { text, held, mark: mark.as_bytes().to_vec(), over: false, verdict: None }
    }

    fn add(&mut self, bytes: &[u8]) {
        if self.over {
            self.verdict = self.verdict.or(bytes.first().copied());
            return;
        }
        self.held.extend_from_slice(bytes);
        let found = self.held.windows(self.mark.len()).position(|window| window == self.mark);
        if let Some(at) = found {
            self.over = true;
            self.verdict = self.held.get(at + self.mark.len()).copied();
            self.text.add(self.held.get(..at).unwrap_or_default());
            self.held = Vec::new();
            return;
        }
        // All but what could be the beginning of the mark.
        let keep = (1..self.mark.len())
            .rev()
            .find(|length| self.held.ends_with(self.mark.get(..*length).unwrap_or_default()));
        let ready = self.held.len() - keep.unwrap_or(0);
        self.text.add(self.held.get(..ready).unwrap_or_default());
        self.held.drain(..ready);
    }

    /// Once it is known: whether the code failed.
    fn failed(&self) -> Option<bool> {
        self.verdict.map(|digit| digit != b'0')
    }
}

/// Runs one piece of code in the box's interpreter that remembers.
pub(crate) async fn run(
    desk: &Desk,
    id: &BoxId,
    (tongue, code): (Tongue, &str),
    asked: Option<u64>,
    asker: &Asker,
) -> Result<Came, Refused> {
    let time = Duration::from_secs(timeout(asked)?);
    let page = desk.notebooks.page(id, tongue, |id| desk.lives(id));
    let mut held = page.lock().await;
    let mut notebook = match held.take() {
        Some(notebook) => notebook,
        None => Notebook::open(desk, id, tongue).await?,
    };
    tokio::select! {
        turn = notebook.turn(code, asker) => {
            let (came, alive) = turn?;
            if alive {
                *held = Some(notebook);
            }
            Ok(came)
        }
        () = sleep(time) => {
            let how = "killed: its time was over; what the interpreter remembered is gone".to_owned();
            Ok(Came { of: id.to_string(), how, timed_out: true, ..Came::default() })
        }
        () = asker.gave_up() => {
            Err(Refused("cancelled; the interpreter was killed and what it remembered is gone".to_owned()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_is_found_whatever_pieces_it_comes_in() {
        let text = b"before \0blast and after\0mark\0" as &[u8];
        for cut in 0..=text.len() {
            let mut catch = Catch::new("\0mark\0");
            let (one, two) = text.split_at(cut);
            catch.add(one);
            catch.add(two);
            assert!(catch.over, "{cut}");
            catch.add(b"1");
            assert_eq!(catch.failed(), Some(true));
            assert_eq!(catch.text.finish().0, "before \0blast and after", "{cut}");
        }
        let mut catch = Catch::new("\0mark\0");
        catch.add(b"x\0mark\0");
        assert_eq!(catch.failed(), None);
        catch.add(b"0rest");
        assert_eq!(catch.failed(), Some(false));
    }
}
