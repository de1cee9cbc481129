//! `blastbox attach`: to a command that runs, with its terminal. Leaving does not end it.

use std::time::Duration;

use blastbox_server::ask::TerminalSize;
use blastbox_wire::BoxId;
use blastbox_wire::websocket::Kind;
use clap::Args;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::Where;
use super::client::Client;
use super::follow::{Heard, code, complaint};
use super::line::{self, Came, Ear, Mouth};
use super::problem::DaemonProblem;
use super::table::{EndView, ExecView};
use crate::output::{self, OutputError, Printer, READER_GONE, Reader, Writing};
use crate::problem::Problem;
use crate::pump::{Signals, Told, read_in_thread};
use crate::terminal::{self, RawTerminal};

pub(crate) const HELP: &str = "Examples:\n  blastbox attach BOX               to its last command\n  \
blastbox attach BOX 2 --no-stdin    only look\n\n\
What it has printed so far is shown first, as far as the daemon keeps it. At a terminal, Ctrl-P Ctrl-Q leaves the command\n\
alone; so does the end of the terminal. The exit code is the command's own where it ends.";

/// Ctrl-P Ctrl-Q.
const LEAVE: [u8; 2] = [0x10, 0x11];
/// How often a line that was cut is made again without anything new heard, and after which pause.
const TRIES: u32 = 5;
const BREATH: Duration = Duration::from_millis(200);
const SIGNALLED: u8 = 128;
const SIGHUP: u8 = 1;

#[derive(Debug, Args)]
pub(crate) struct AttachArgs {
    /// The box
    #[arg(value_name = "BOX")]
    id: BoxId,
    /// The command, by its number [default: the last one]
    exec: Option<u32>,
    /// Only look: pass no input on
    #[arg(long)]
    no_stdin: bool,
    #[command(flatten)]
    place: Where,
}

#[derive(Debug, Deserialize)]
struct Whole {
    execs: Vec<ExecView>,
}

pub(crate) async fn attach(args: AttachArgs) -> Result<u8, Problem> {
    let client = args.place.client()?;
    let whole: Whole = client.get(&format!("/v1/boxes/{}", args.id.as_str())).await?;
    let found = match args.exec {
        Some(exec) => whole.execs.iter().find(|card| card.exec == exec),
        None => whole.execs.iter().max_by_key(|card| card.exec),
    };
    let missing = || args.exec.map_or_else(|| "at all".to_owned(), |exec| exec.to_string());
    let found = found.ok_or_else(|| DaemonProblem::NoCommand(missing()))?;
    let signals = Signals::catch(found.terminal)?;
    let raw = if found.terminal && !args.no_stdin && terminal::on_stdin() {
        Some(RawTerminal::enter()?)
    } else {
        None
    };
    let input = if args.no_stdin { Input::None } else { Input::Kept };
    let session = Session::new(client, args.id, found.exec, signals, raw.is_some(), input);
    let ended = session.run().await;
    drop(raw);
    finish(ended?)
}

/// What the end of a session comes to.
pub(super) fn finish(end: End) -> Result<u8, Problem> {
    match end {
        End::Code(code) => Ok(code),
        End::Left => {
            output::say_last("blastbox: left; the command goes on\n");
            Ok(0)
        }
        End::Ended(ended) => {
            if let Some(complaint) = complaint(&ended) {
                output::say_last(&complaint);
            }
            Ok(code(&ended))
        }
    }
}

/// What happens with our standard input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Input {
    /// Nothing.
    None,
    /// It is passed on; its end leaves the command alone.
    Kept,
    /// It is passed on; its end is that of a terminal, and the command hears that it hung up.
    Own,
}

pub(super) enum End {
    Code(u8),
    Left,
    Ended(EndView),
}

/// A command, and a terminal that looks at it.
pub(super) struct Session {
    client: Client,
    id: BoxId,
    exec: u32,
    signals: Signals,
    raw: bool,
    input: Input,
    told: bool,
    keys: Keys,
}

impl Session {
    pub(super) fn new(
        client: Client,
        id: BoxId,
        exec: u32,
        signals: Signals,
        raw: bool,
        input: Input,
    ) -> Self {
        Self { client, id, exec, signals, raw, input, told: false, keys: Keys::default() }
    }

    /// Looks until the command ends, somebody leaves, or the daemon cannot be found again.
    pub(super) async fn run(mut self) -> Result<End, Problem> {
        let mut pieces = (self.input != Input::None).then(read_in_thread);
        let mut printer = Printer::default();
        let (mut place, mut tries) = (0, 0);
        loop {
            let (mut ear, mouth) = line::open(&self.client, &self.id, self.exec, place).await?;
            if self.raw {
                mouth.say(Kind::Text, size().as_bytes());
            }
            let end = self.look(&mut ear, &mouth, &mut printer, &mut pieces).await?;
            if let Some(end) = end {
                mouth.close().await;
                return Ok(end);
            }
            tries = if ear.place > place { 0 } else { tries + 1 };
            place = ear.place;
            if tries > TRIES {
                return Err(DaemonProblem::LostTrack.into());
            }
            sleep(BREATH).await;
        }
    }

    /// Looks for as long as the line holds. `None`: it was cut.
    async fn look(
        &mut self,
        ear: &mut Ear,
        mouth: &Mouth,
        printer: &mut Printer,
        pieces: &mut Option<mpsc::Receiver<Vec<u8>>>,
    ) -> Result<Option<End>, Problem> {
        let mut writing = None;
        loop {
            let came = tokio::select! {
                biased;
                told = self.signals.next() => {
                    if let Some(end) = self.tell(told, mouth) {
                        return Ok(Some(end));
                    }
                    continue;
                }
                written = written(&mut writing), if writing.is_some() => {
                    writing = None;
                    match written? {
                        Reader::There => continue,
                        Reader::Gone => return Ok(Some(End::Code(READER_GONE))),
                    }
                }
                piece = mouth.feed(pieces), if pieces.is_some() => {
                    if let Some(end) = self.pass(piece, mouth, pieces) {
                        return Ok(Some(end));
                    }
                    continue;
                }
                came = ear.next(), if writing.is_none() => came?,
            };
            match came {
                Some(Came::Heard(Heard::Output(stream, bytes))) => {
                    writing = Some(printer.write(stream, bytes));
                }
                Some(Came::Heard(Heard::Dropped(bytes))) => {
                    output::say(&format!("blastbox: {bytes} bytes were overwritten\r\n"));
                }
                Some(Came::Heard(Heard::Ended(ended))) => return Ok(Some(End::Ended(ended))),
                Some(Came::Heard(Heard::Started)) => {}
                Some(Came::Ping(content)) => mouth.say(Kind::Pong, &content),
                None => return Ok(None),
            }
        }
    }

    /// Passes a piece of input on.
    fn pass(
        &mut self,
        piece: Option<Vec<u8>>,
        mouth: &Mouth,
        pieces: &mut Option<mpsc::Receiver<Vec<u8>>>,
    ) -> Option<End> {
        let Some(piece) = piece else {
            *pieces = None;
            return match (self.input, self.raw) {
                (Input::Own, true) => {
                    // The terminal went away.
                    mouth.say(Kind::Text, json!({ "signal": SIGHUP }).to_string().as_bytes());
                    None
                }
                (Input::Kept, true) => Some(End::Left),
                (Input::Own | Input::Kept | Input::None, _) => None,
            };
        };
        let (piece, leave) =
            if self.raw && self.input == Input::Kept { self.keys.watch(piece) } else { (piece, false) };
        if !piece.is_empty() {
            mouth.pass(&piece);
        }
        leave.then_some(End::Left)
    }

    /// Passes a signal on. A second one ends us and leaves the command alone.
    fn tell(&mut self, told: Told, mouth: &Mouth) -> Option<End> {
        match told {
            Told::Resize => mouth.say(Kind::Text, size().as_bytes()),
            Told::End(signal) if self.told || self.input != Input::Own => {
                return Some(End::Code(SIGNALLED.saturating_add(signal)));
            }
            Told::End(signal) => {
                self.told = true;
                mouth.say(Kind::Text, json!({ "signal": signal }).to_string().as_bytes());
            }
        }
        None
    }
}

fn size() -> String {
    let (rows, columns) = terminal::size();
    json!({ "resize": TerminalSize { rows, columns } }).to_string()
}

/// Waits for what is being written, if anything is. Cancel safe.
pub(super) async fn written(writing: &mut Option<Writing>) -> Result<Reader, OutputError> {
    match writing {
        Some(writing) => writing.end().await,
        None => Ok(Reader::There),
    }
}

/// Finds the keys that leave, also when they come in two pieces.
#[derive(Debug, Default)]
struct Keys {
    half: bool,
}

impl Keys {
    /// What is to be passed on, and whether to leave after it.
    fn watch(&mut self, piece: Vec<u8>) -> (Vec<u8>, bool) {
        let [first, second] = LEAVE;
        let mut passed = Vec::with_capacity(piece.len().saturating_add(1));
        for byte in piece {
            if std::mem::take(&mut self.half) {
                if byte == second {
                    return (passed, true);
                }
                passed.push(first);
            }
            if byte == first {
                self.half = true;
            } else {
                passed.push(byte);
            }
        }
        (passed, false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keys_that_leave_are_found_across_pieces_and_half_of_them_is_passed_on() {
        let mut keys = Keys::default();
        assert_eq!(keys.watch(b"ab\x10".to_vec()), (b"ab".to_vec(), false));
        assert_eq!(keys.watch(b"c\x11".to_vec()), (b"\x10c\x11".to_vec(), false));
        assert_eq!(keys.watch(b"\x10\x10".to_vec()), (b"\x10".to_vec(), false));
        assert_eq!(keys.watch(b"\x11x".to_vec()), (Vec::new(), true));
    }
}
