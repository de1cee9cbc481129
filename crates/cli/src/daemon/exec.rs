//! `blastbox exec`: a command in a box that stays. Its exit code is the verb's.

use std::ffi::OsString;
use std::future::Future;

use blastbox_engine::Stream;
use blastbox_policy::Seconds;
use blastbox_server::ask::{NewExec, Signal, StdinFrom, TerminalSize};
use blastbox_wire::BoxId;
use clap::Args;
use clap::builder::{OsStringValueParser, TypedValueParser};
use hyper::Method;
use serde::Deserialize;
use serde_json::json;

use super::Where;
use super::attach::{self, End, written};
use super::client::{Client, Sent};
use super::follow::{Follow, Heard, Until};
use super::problem::DaemonProblem;
use crate::args::Variable;
use crate::output::{self, Printer, READER_GONE, Reader};
use crate::problem::Problem;
use crate::pump::{Signals, Told, read_in_thread};
use crate::terminal::{self, RawTerminal};

pub(crate) const HELP: &str = "Examples:\n  blastbox exec BOX -- python3 -c 'print(6 * 7)'\n  \
echo hi | blastbox exec -i BOX -- cat\n  blastbox exec -t BOX -- bash\n  \
blastbox exec --detach BOX -- make        goes on by itself; see `blastbox logs`\n\n\
The exit code is the command's own, or one of those that `blastbox run --help` lists. A first Ctrl-C is passed on to \
the\ncommand, a second one leaves it alone.";

/// How long the command waits for us to listen: long enough for a machine that is busy, and short enough for one on which we
/// were killed between the two questions.
const ATTACHED: Seconds = Seconds(60);
const SIGNALLED: u8 = 128;

#[derive(Debug, Args)]
pub(crate) struct ExecArgs {
    /// The box
    #[arg(value_name = "BOX")]
    id: BoxId,
    /// Pass standard input on
    #[arg(long, short, conflicts_with = "detach")]
    interactive: bool,
    /// Give the command a terminal
    #[arg(long, short, conflicts_with = "detach")]
    tty: bool,
    /// Print the command's number and go
    #[arg(long, short)]
    detach: bool,
    /// Set a variable (repeatable); nothing is taken from your own environment
    #[arg(long, value_name = "NAME=VALUE", value_parser = OsStringValueParser::new().try_map(Variable::parse))]
    env: Vec<Variable>,
    /// Where it starts, in the box
    #[arg(long, value_name = "DIR")]
    cwd: Option<String>,
    /// Kill it after this time, such as 30s
    #[arg(long, value_name = "TIME")]
    timeout: Option<Seconds>,
    /// Print one line of JSON for each piece of output and for the end, instead of the output
    #[arg(long, conflicts_with = "tty")]
    json: bool,
    #[command(flatten)]
    place: Where,
    /// Program and arguments
    #[arg(value_name = "COMMAND", trailing_var_arg = true, required = true)]
    command: Vec<OsString>,
}

#[derive(Debug, Deserialize)]
struct Begun {
    exec: u32,
}

pub(crate) async fn exec(args: ExecArgs) -> Result<u8, Problem> {
    if args.tty && !terminal::on_stdin() {
        return Err(Problem::NotATerminal);
    }
    let client = args.place.client()?;
    let body = asked(&args)?;
    // Caught before the command begins, so that a key that is pressed meanwhile is not the end of us alone.
    let signals = if args.detach { None } else { Some(Signals::catch(args.tty)?) };
    let path = format!("/v1/boxes/{}/execs", args.id.as_str());
    let Begun { exec } = client.ask(Method::POST, &path, Some(&body)).await?;
    let Some(signals) = signals else {
        match args.json {
            true => output::print_json(&json!({ "box": args.id.as_str(), "exec": exec }))?,
            false => output::print(&format!("{exec}\n"))?,
        }
        return Ok(0);
    };
    if args.tty {
        // A terminal is one line both ways.
        let raw = RawTerminal::enter()?;
        let session = attach::Session::new(client, args.id, exec, signals, true, attach::Input::Own);
        let ended = session.run().await;
        // Before anything is said: lines in raw mode are stairs.
        drop(raw);
        return attach::finish(ended?);
    }
    let follow = Follow::new(client.clone(), &args.id, exec, Until::Ended);
    let session = Session { client, path: format!("{path}/{exec}"), signals, told: None, json: args.json };
    let feed = feed(session.client.clone(), session.path.clone(), args.interactive);
    attach::finish(session.run(follow, feed).await?)
}

fn text(bytes: Vec<u8>) -> Result<String, DaemonProblem> {
    use std::os::unix::ffi::OsStringExt;
    String::from_utf8(bytes).map_err(|bad| DaemonProblem::NotText(OsString::from_vec(bad.into_bytes())))
}

fn asked(args: &ExecArgs) -> Result<NewExec, DaemonProblem> {
    use std::os::unix::ffi::OsStringExt;
    let command = args.command.iter().map(|word| text(word.clone().into_vec())).collect::<Result<_, _>>()?;
    let env = args.env.iter().map(|Variable { name, value }| Ok((text(name.clone())?, text(value.clone())?)));
    let terminal = args.tty.then(terminal::size).map(|(rows, columns)| TerminalSize { rows, columns });
    Ok(NewExec {
        command,
        env: env.collect::<Result<_, DaemonProblem>>()?,
        cwd: args.cwd.clone(),
        stdin: if args.interactive { StdinFrom::Stream } else { StdinFrom::None },
        terminal,
        timeout: args.timeout,
        hold: Some(if args.detach { Seconds(0) } else { ATTACHED }),
        tools: Vec::new(),
    })
}

/// Passes our standard input on, to its end.
async fn feed(client: Client, path: String, interactive: bool) {
    if !interactive {
        return;
    }
    let body = Sent::Piped(read_in_thread());
    // What goes wrong here is that the command is over, and its end says so.
    let passed = client.send(Method::POST, &format!("{path}/stdin"), &[], body).await;
    if passed.is_ok() {
        client.post::<()>(&format!("{path}/stdin/end")).await.ok();
    }
}

/// A command and everything that it is connected to.
struct Session {
    client: Client,
    path: String,
    signals: Signals,
    told: Option<u8>,
    json: bool,
}

impl Session {
    async fn run(mut self, mut follow: Follow, feed: impl Future<Output = ()>) -> Result<End, Problem> {
        let (mut printer, mut writing) = (Printer::default(), None);
        tokio::pin!(feed);
        let mut feeding = true;
        loop {
            let heard = tokio::select! {
                biased;
                told = self.signals.next() => match self.tell(told).await {
                    Some(code) => return Ok(End::Code(code)),
                    None => continue,
                },
                () = &mut feed, if feeding => {
                    feeding = false;
                    continue;
                }
                written = written(&mut writing), if writing.is_some() => {
                    writing = None;
                    match written? {
                        Reader::There => continue,
                        Reader::Gone => return Ok(End::Code(READER_GONE)),
                    }
                }
                heard = follow.next(), if writing.is_none() => heard?,
            };
            if let Some(heard) = heard.as_ref().filter(|_| self.json) {
                let mut line = printer.write(Stream::Stdout, heard.json()?);
                if let Heard::Ended(ended) = heard {
                    // The last line is out before the verb is over, or nobody has it.
                    return Ok(match line.end().await? {
                        Reader::There => End::Ended(ended.clone()),
                        Reader::Gone => End::Code(READER_GONE),
                    });
                }
                writing = Some(line);
                continue;
            }
            match heard {
                Some(Heard::Output(stream, bytes)) => writing = Some(printer.write(stream, bytes)),
                Some(Heard::Dropped(bytes)) => output::say(&format!("blastbox: {bytes} bytes were lost\n")),
                Some(Heard::Ended(ended)) => return Ok(End::Ended(ended)),
                Some(Heard::Started) => {}
                None => return Err(DaemonProblem::LostTrack.into()),
            }
        }
    }

    /// Passes a signal on. The exit code, when it was the second one.
    async fn tell(&mut self, told: Told) -> Option<u8> {
        // An error: the command is over, and the next event says so.
        match told {
            Told::Resize => None,
            Told::End(signal) if self.told.is_some() => Some(SIGNALLED.saturating_add(signal)),
            Told::End(signal) => {
                self.told = Some(signal);
                let path = format!("{}/signal", self.path);
                self.client.ask::<()>(Method::POST, &path, Some(&Signal { signal })).await.ok();
                None
            }
        }
    }
}
