//! `blastbox logs`: what a command printed.

use blastbox_engine::Stream;
use blastbox_wire::BoxId;
use clap::Args;
use serde::Deserialize;

use super::Where;
use super::follow::{Follow, Heard, Until};
use super::problem::DaemonProblem;
use super::table::ExecView;
use crate::output::{self, Printer, READER_GONE, Reader};
use crate::problem::Problem;

pub(crate) const HELP: &str = "Examples:\n  blastbox logs BOX               of its last command\n  \
blastbox logs BOX 2 --follow    of its second command, until that ends\n\n\
The daemon keeps the last MiB of each command.";

#[derive(Debug, Args)]
pub(crate) struct LogsArgs {
    /// The box
    #[arg(value_name = "BOX")]
    id: BoxId,
    /// The command, by its number [default: the last one]
    exec: Option<u32>,
    /// Go on until the command ends
    #[arg(long, short)]
    follow: bool,
    /// Print one line of JSON for each piece of output and for the end
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    place: Where,
}

#[derive(Debug, Deserialize)]
struct Whole {
    execs: Vec<ExecView>,
}

pub(crate) async fn logs(args: LogsArgs) -> Result<u8, Problem> {
    let client = args.place.client()?;
    let exec = match args.exec {
        Some(exec) => exec,
        None => {
            let whole: Whole = client.get(&format!("/v1/boxes/{}", args.id.as_str())).await?;
            let last = whole.execs.iter().map(|exec| exec.exec).max();
            last.ok_or_else(|| DaemonProblem::NoCommand("at all".to_owned()))?
        }
    };
    let until = if args.follow { Until::Ended } else { Until::Now };
    let mut follow = Follow::new(client, &args.id, exec, until);
    let mut printer = Printer::default();
    while let Some(heard) = follow.next().await? {
        if args.json {
            if printer.write(Stream::Stdout, heard.json()?).end().await? == Reader::Gone {
                return Ok(READER_GONE);
            }
            continue;
        }
        match heard {
            Heard::Started => {}
            Heard::Output(stream, bytes) => {
                if printer.write(stream, bytes).end().await? == Reader::Gone {
                    return Ok(READER_GONE);
                }
            }
            Heard::Dropped(bytes) => output::say(&format!("blastbox: {bytes} bytes were overwritten\n")),
            Heard::Ended(_) => return Ok(0),
        }
    }
    Ok(0)
}
