//! The verbs that speak with a daemon, and the one that is it. One file per verb; [`client`] is the line to it.

mod attach;
mod client;
mod cp;
mod create;
mod events;
mod exec;
mod follow;
mod hear;
mod inspect;
mod key;
mod kill;
mod line;
mod logs;
mod metrics;
mod module;
mod net;
mod pause;
mod problem;
mod ps;
mod serve;
mod snapshot;
mod table;
mod workplace;

use std::path::PathBuf;

use clap::{Args, Subcommand};
use tokio::runtime::Runtime;

use crate::problem::Problem;
use client::Client;

pub(crate) use inspect::DaemonView;
pub(crate) use problem::DaemonProblem;
pub(crate) use table::{moment, table};

/// The verbs.
#[derive(Debug, Subcommand)]
pub(crate) enum DaemonVerb {
    /// Be the daemon: keep boxes for whoever asks over a unix socket, or over TCP with a key
    #[command(after_help = serve::HELP)]
    Serve(serve::ServeArgs),
    /// Make a box that stays
    #[command(after_help = create::HELP)]
    Create(Box<create::CreateArgs>),
    /// Run a command in a box that stays
    #[command(after_help = exec::HELP)]
    Exec(exec::ExecArgs),
    /// Look at a command that runs, and type into it
    #[command(after_help = attach::HELP)]
    Attach(attach::AttachArgs),
    /// Copy files and directories into a box, out of it, or from box to box
    #[command(after_help = cp::HELP)]
    Cp(cp::CpArgs),
    /// List boxes
    #[command(after_help = ps::HELP)]
    Ps(ps::PsArgs),
    /// Show everything about a box, or what became of it; without one, the daemon's own walls
    #[command(after_help = inspect::HELP)]
    Inspect(inspect::InspectArgs),
    /// Print what a command printed
    #[command(after_help = logs::HELP)]
    Logs(logs::LogsArgs),
    /// End boxes with everything in them
    #[command(after_help = kill::HELP)]
    Kill(kill::KillArgs),
    /// Stop everything in a box where it stands
    #[command(after_help = pause::HELP)]
    Pause(pause::PauseMore),
    /// Let a paused box go on
    #[command(after_help = "Example:\n  blastbox resume BOX")]
    Resume(pause::PauseArgs),
    /// Write a box that runs to a file, from which others can begin; list and remove such files
    #[command(after_help = snapshot::HELP, args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
    Snapshot(snapshot::SnapshotArgs),
    /// Make a box that begins with a snapshot
    #[command(after_help = snapshot::RESTORE_HELP)]
    Restore(snapshot::RestoreArgs),
    /// Make boxes that are what one is now, with everything that runs in it
    #[command(after_help = snapshot::FORK_HELP)]
    Fork(snapshot::ForkArgs),
    /// Have a daemon compile and keep WebAssembly programs; list and remove them
    #[command(subcommand, after_help = module::HELP)]
    Module(module::ModuleVerb),
    /// Print what happens to boxes
    #[command(after_help = events::HELP)]
    Events(events::EventsArgs),
    /// Print what boxes do with their network, and change what they may reach
    #[command(after_help = net::HELP, args_conflicts_with_subcommands = true)]
    Net(net::NetArgs),
    /// Print the daemon's numbers, as Prometheus reads them
    #[command(after_help = metrics::HELP)]
    Metrics(metrics::MetricsArgs),
    /// Make, list and remove API keys
    #[command(subcommand, after_help = key::HELP)]
    Key(key::KeyVerb),
}

/// Where the daemon is.
#[derive(Debug, Args)]
pub(crate) struct Where {
    /// The daemon's socket [default: $XDG_RUNTIME_DIR/blastbox.sock, or /run/blastbox/blastbox.sock as root]
    #[arg(long, value_name = "PATH", env = "BLASTBOX_SOCKET", hide_env_values = true)]
    socket: Option<PathBuf>,
}

impl Where {
    pub(crate) fn client(&self) -> Result<Client, DaemonProblem> {
        Ok(Client::new(socket(self.socket.as_deref())?))
    }
}

fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn socket(given: Option<&std::path::Path>) -> Result<PathBuf, DaemonProblem> {
    let usual = || blastbox_server::places::socket(own_uid(), |name| std::env::var_os(name));
    given.map(PathBuf::from).or_else(usual).ok_or(DaemonProblem::NoPlace {
        what: "socket",
        fix: "set XDG_RUNTIME_DIR to a directory of yours (a login session has /run/user/UID), or name a socket with --socket PATH or BLASTBOX_SOCKET",
    })
}

fn state(given: Option<&std::path::Path>) -> Result<PathBuf, DaemonProblem> {
    let usual = || blastbox_server::places::state(own_uid(), |name| std::env::var_os(name));
    given.map(PathBuf::from).or_else(usual).ok_or(DaemonProblem::NoPlace {
        what: "state directory",
        fix: "set HOME or XDG_STATE_HOME, or name one with --state-dir DIR",
    })
}

/// Carries out the verb.
pub(crate) fn daemon(
    verb: DaemonVerb,
    runtime: impl FnOnce() -> Result<Runtime, Problem>,
) -> Result<u8, Problem> {
    match verb {
        DaemonVerb::Serve(args) => serve::serve(args),
        DaemonVerb::Key(verb) => key::key(verb),
        DaemonVerb::Create(args) => runtime()?.block_on(create::create(*args)),
        DaemonVerb::Exec(args) => runtime()?.block_on(exec::exec(args)),
        DaemonVerb::Attach(args) => runtime()?.block_on(attach::attach(args)),
        DaemonVerb::Cp(args) => runtime()?.block_on(cp::cp(args)),
        DaemonVerb::Ps(args) => runtime()?.block_on(ps::ps(args)),
        DaemonVerb::Inspect(args) => runtime()?.block_on(inspect::inspect(args)),
        DaemonVerb::Logs(args) => runtime()?.block_on(logs::logs(args)),
        DaemonVerb::Kill(args) => runtime()?.block_on(kill::kill(args)),
        DaemonVerb::Pause(args) => runtime()?.block_on(pause::pause(args)),
        DaemonVerb::Resume(args) => runtime()?.block_on(pause::resume(args)),
        DaemonVerb::Snapshot(args) => runtime()?.block_on(snapshot::snapshot(args)),
        DaemonVerb::Restore(args) => runtime()?.block_on(snapshot::restore(args)),
        DaemonVerb::Fork(args) => runtime()?.block_on(snapshot::fork(args)),
        DaemonVerb::Module(verb) => runtime()?.block_on(module::module(verb)),
        DaemonVerb::Events(args) => runtime()?.block_on(events::events(args)),
        DaemonVerb::Net(args) => runtime()?.block_on(net::net(args)),
        DaemonVerb::Metrics(args) => runtime()?.block_on(metrics::metrics(args)),
    }
}
