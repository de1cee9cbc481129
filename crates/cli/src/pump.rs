//! Carries bytes between the caller's streams and a command, until one of them ends.

use std::fs::File;
use std::io::{self, Read as _};
use std::pin::Pin;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use blastbox_engine::{Ending, Exec, ExecEnd, ExecEvent, LiveBox, Stdin, ToolAnswer};
use blastbox_wire::agent::Usage;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc;
use tokio::time::sleep;

use crate::capture::Capture;
use crate::output::{self, OutputError, Printer, Reader, Writing};
use crate::problem::Problem;
use crate::terminal;
use crate::tool::{self, ToolFlag};

/// How long a piece of output may take to be written once its box has ended.
const PATIENCE: Duration = Duration::from_secs(2);
const SIGHUP: u8 = 1;
const SIGINT: u8 = 2;
const SIGTERM: u8 = 15;
const GULP: usize = 64 * 1024;
const NOTHING_ON_STDIN: &str = "blastbox: no program came: --lang reads it from standard input, which was empty; pipe it in, or name a file where nothing is piped in (</dev/null): --lang LANGUAGE FILE\n";
const NOTHING_IN_FILE: &str = "blastbox: no program came: the file is empty\n";

/// Where a command's standard input comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Input {
    /// Nowhere.
    None,
    /// The caller's standard input; its end is passed on.
    Pipe,
    /// The same, and it is the program itself: where nothing comes, that is worth a word.
    Program,
    /// The caller's terminal; its end is the end of the box.
    Terminal,
}

/// The signals that end a box cleanly, and the one that resizes it.
#[derive(Debug)]
pub(crate) struct Signals {
    hang_up: Signal,
    interrupt: Signal,
    terminate: Signal,
    resize: Option<Signal>,
}

/// What a signal means.
#[derive(Debug)]
pub(crate) enum Told {
    End(u8),
    Resize,
}

impl Signals {
    /// Catches them from now on.
    pub(crate) fn catch(tty: bool) -> Result<Self, Problem> {
        let catch = |kind| signal(kind).map_err(Problem::Runtime);
        Ok(Self {
            hang_up: catch(SignalKind::hangup())?,
            interrupt: catch(SignalKind::interrupt())?,
            terminate: catch(SignalKind::terminate())?,
            resize: if tty { Some(catch(SignalKind::window_change())?) } else { None },
        })
    }

    /// Waits for one that means the end.
    pub(crate) async fn told_to_end(&mut self) -> u8 {
        loop {
            if let Told::End(signal) = self.next().await {
                return signal;
            }
        }
    }

    /// Waits for any of them. Cancel safe.
    pub(crate) async fn next(&mut self) -> Told {
        let resize = async {
            match &mut self.resize {
                Some(resize) => resize.recv().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = self.hang_up.recv() => Told::End(SIGHUP),
            _ = self.interrupt.recv() => Told::End(SIGINT),
            _ = self.terminate.recv() => Told::End(SIGTERM),
            _ = resize => Told::Resize,
        }
    }
}

/// A command and everything that it is connected to.
#[derive(Debug)]
pub(crate) struct Pump {
    pub(crate) exec: Exec,
    pub(crate) signals: Signals,
    pub(crate) input: Input,
    /// What is passed on instead of standard input.
    pub(crate) program: Option<Arc<File>>,
    /// Output is kept instead of being printed.
    pub(crate) capture: Option<Capture>,
    /// Functions that the command may call.
    pub(crate) tools: Vec<ToolFlag>,
}

/// How it ended.
#[derive(Debug)]
pub(crate) struct Pumped {
    pub(crate) ending: Ending,
    pub(crate) usage: Option<Usage>,
    pub(crate) capture: Capture,
    /// Output was left over because nobody took it.
    pub(crate) gave_up: bool,
    /// Output was lost because it could not be written where it was to go.
    pub(crate) unwritten: Option<OutputError>,
}

/// What the caller's input came to.
enum InputEnd {
    /// The terminal went away.
    HungUp,
    /// It was passed on to its end, or nobody wants it any more.
    Done,
}

impl Pump {
    /// Pumps until the command is over, somebody stops it, or its reader goes away.
    pub(crate) async fn run(mut self, live: &LiveBox) -> Pumped {
        let (mut printer, mut writing) = (Printer::default(), None);
        let mut calling: Option<Calling> = None;
        let input = feed(self.input, self.program.take(), self.exec.stdin());
        tokio::pin!(input);
        let mut feeding = true;
        loop {
            let happened = tokio::select! {
                biased;
                told = self.signals.next() => match told {
                    Told::End(signal) => return self.over(Ending::Interrupted { signal }),
                    Told::Resize => {
                        let (rows, columns) = terminal::size();
                        // An error: the command is over, and the next event says so.
                        self.exec.resize(rows, columns).await.ok();
                        continue;
                    }
                },
                end = &mut input, if feeding => {
                    feeding = false;
                    match end {
                        InputEnd::HungUp => return self.over(Ending::Interrupted { signal: SIGHUP }),
                        InputEnd::Done => continue,
                    }
                },
                written = written(&mut writing, live), if writing.is_some() => match written {
                    Written::Yes => {
                        writing = None;
                        continue;
                    }
                    Written::ReaderGone => return self.over(Ending::ReaderGone),
                    // For the box the same: nobody takes what it prints.
                    Written::Failed(error) => {
                        return Pumped { unwritten: Some(error), ..self.over(Ending::ReaderGone) };
                    }
                    Written::Stalled => return self.give_up().await,
                },
                (call, answer) = answered(&mut calling), if calling.is_some() => {
                    calling = None;
                    // An error: the command is over, and the next event says so.
                    self.exec.answer(call, answer).await.ok();
                    continue;
                },
                event = self.exec.next(), if writing.is_none() => event,
            };
            match happened {
                ExecEvent::Started { .. } => {}
                ExecEvent::Output { stream, bytes } => match &mut self.capture {
                    Some(capture) => capture.add(stream, &bytes),
                    None => writing = Some(printer.write(stream, bytes)),
                },
                ExecEvent::Called(call) => {
                    calling = Some((call.call, Box::pin(tool::run(self.tools.clone(), call))));
                }
                ExecEvent::Ended(end) => return self.ended(end),
            }
        }
    }

    fn over(self, ending: Ending) -> Pumped {
        let capture = self.capture.unwrap_or_default();
        Pumped { ending, usage: None, capture, gave_up: false, unwritten: None }
    }

    fn ended(self, end: ExecEnd) -> Pumped {
        let usage = match &end {
            ExecEnd::Exited { usage, .. } => Some(*usage),
            ExecEnd::NotStarted { .. } | ExecEnd::BoxEnded(_) => None,
        };
        Pumped { usage, ..self.over(end.into()) }
    }

    /// Nobody takes the output and the box has ended: looks for the last event behind what is left.
    async fn give_up(self) -> Pumped {
        loop {
            if let ExecEvent::Ended(end) = self.exec.next().await {
                return Pumped { gave_up: true, ..self.ended(end) };
            }
        }
    }
}

/// A function of the caller at work, for the call of this number.
type Calling = (u32, Pin<Box<dyn Future<Output = ToolAnswer> + Send>>);

/// Waits for what it gives. Cancel safe.
async fn answered(calling: &mut Option<Calling>) -> (u32, ToolAnswer) {
    match calling {
        Some((call, work)) => (*call, work.await),
        None => std::future::pending().await,
    }
}

enum Written {
    Yes,
    ReaderGone,
    Failed(OutputError),
    Stalled,
}

/// Waits for a piece of output to be written: for as long as the box lives, and a little longer.
async fn written(writing: &mut Option<Writing>, live: &LiveBox) -> Written {
    let Some(writing) = writing else { return Written::Yes };
    let stalled = async {
        live.stopped().await;
        sleep(PATIENCE).await;
    };
    tokio::select! {
        biased;
        end = writing.end() => match end {
            Ok(Reader::There) => Written::Yes,
            Ok(Reader::Gone) => Written::ReaderGone,
            Err(error) => Written::Failed(error),
        },
        () = stalled => Written::Stalled,
    }
}

/// Passes the caller's input on.
async fn feed(input: Input, program: Option<Arc<File>>, stdin: Option<Stdin>) -> InputEnd {
    let (Input::Pipe | Input::Program | Input::Terminal, Some(stdin)) = (input, stdin) else {
        return InputEnd::Done;
    };
    let nothing_from = if program.is_some() { NOTHING_IN_FILE } else { NOTHING_ON_STDIN };
    let mut pieces = match program {
        Some(file) => read_from(move |room| (&*file).read(room)),
        None => read_in_thread(),
    };
    let mut came = false;
    while let Some(piece) = pieces.recv().await {
        came = true;
        if stdin.write(&piece).await.is_err() {
            return InputEnd::Done;
        }
    }
    if input == Input::Terminal {
        return InputEnd::HungUp;
    }
    if input == Input::Program && !came {
        output::say(nothing_from);
    }
    // An error: the command is over, which is an end as well.
    stdin.end().await.ok();
    InputEnd::Done
}

/// Reads standard input in a thread that nobody waits for, because a read of a terminal cannot be called off.
pub(crate) fn read_in_thread() -> mpsc::Receiver<Vec<u8>> {
    read_from(terminal::read_stdin)
}

fn read_from(
    mut read: impl FnMut(&mut [u8]) -> io::Result<usize> + Send + 'static,
) -> mpsc::Receiver<Vec<u8>> {
    let (to, pieces) = mpsc::channel(1);
    let work = move || {
        let mut room = vec![0; GULP];
        // An error ends it like its end does: a terminal that went away cannot be read.
        while let Ok(count @ 1..) = read(&mut room) {
            let piece = room.get(..count).unwrap_or_default().to_vec();
            if to.blocking_send(piece).is_err() {
                return;
            }
        }
    };
    drop(thread::Builder::new().name("stdin".to_owned()).stack_size(64 * 1024).spawn(work));
    pieces
}
