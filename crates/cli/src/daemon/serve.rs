//! `blastbox serve`: the daemon. Opens its doors, keeps boxes, and ends all of them before it ends itself.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

use blastbox_engine::keeper::Keeper;
use blastbox_engine::leases::{Broker, Register, Sources, Told};
use blastbox_engine::ledger::{Ledger, Options as LedgerOptions};
use blastbox_engine::store::{Leftovers, Store};
use blastbox_engine::{Engine, causes};
use blastbox_images::Store as Images;
use blastbox_isolation::warden::find_program;
use blastbox_isolation::{Facts, Warden, confine};
use blastbox_server::{
    Config, Doors, Gallery, Hall, Keys, Log, MAX_CONFIG_TEXT, Socket, StateDir, TcpAddress, TlsDoor,
    open_port,
};
use clap::Args;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::runtime::Builder;
use tokio::sync::mpsc;

use super::problem::DaemonProblem;
use super::workplace::{walls, workplace};
use crate::image::StoreFlag;
use crate::output;
use crate::problem::Problem;
use crate::pump::Signals;
use crate::regular::open_regular;

pub(crate) const HELP: &str = "Examples:\n  blastbox serve                               the unix socket alone\n  \
blastbox key create ci && blastbox serve --listen 127.0.0.1:7080\n  \
blastbox serve --config daemon.toml --state-dir /srv/blastbox\n\n\
Over TCP a request needs a key, or the token of the E2B sandbox that it is for; without either there are only /healthz,\n\
/openapi.json, /health, signed addresses of files, addresses handed out for uploads of template builds, and open ports of E2B sandboxes. An address that other hosts reach is refused while there is no key.\n\
TERM or INT ends it: nobody new is let in, every box is ended, the socket is removed.";

/// How long whatever still holds the warden may take to let go of it, once every box is ended.
const GOODBYE: Duration = Duration::from_secs(30);
/// Lines that may wait to be written. A reader of standard error that stalls loses lines, and holds up nobody.
const LINES: usize = 4096;

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// Listen on TCP too [default without ADDR: 127.0.0.1:7080]
    #[arg(long, value_name = "ADDR", num_args = 0..=1, default_missing_value = "127.0.0.1:7080")]
    listen: Option<TcpAddress>,
    /// The unix socket [default: $XDG_RUNTIME_DIR/blastbox.sock, or /run/blastbox/blastbox.sock as root]
    #[arg(long, value_name = "PATH", env = "BLASTBOX_SOCKET", hide_env_values = true)]
    socket: Option<PathBuf>,
    /// Where keys and state are [default: $XDG_STATE_HOME/blastbox, or /var/lib/blastbox as root]
    #[arg(long, value_name = "DIR")]
    state_dir: Option<PathBuf>,
    /// Quotas, pools, limits of the host, names of images
    #[arg(long, value_name = "FILE.toml")]
    pub(super) config: Option<PathBuf>,
    /// Where the secrets are that policies may bind; none of them enters a box
    #[arg(long, value_name = "FILE.toml")]
    pub(super) secrets: Option<PathBuf>,
    #[command(flatten)]
    store: StoreFlag,
    /// Do not print a line for each request
    #[arg(long, short)]
    quiet: bool,
}

pub(crate) fn serve(args: ServeArgs) -> Result<u8, Problem> {
    let config = read(args.config.as_deref())?;
    let socket = super::socket(args.socket.as_deref())?;
    let state = StateDir::open(&super::state(args.state_dir.as_deref())?).map_err(DaemonProblem::Door)?;
    let _lock = state.lock().map_err(DaemonProblem::Door)?;
    raise_limits();
    let store = Arc::new(Store::open(state.path())?);
    // Before the next warden, whose first act is to sweep away the empty groups of those that are gone.
    let program = find_program()?;
    let mut leftovers = Leftovers::release(&store, &program)?;
    output::say(&told(&leftovers));
    // One that has kept boxes makes the next ones too.
    let warden = match leftovers.warden.take() {
        Some(warden) => warden,
        None => store.start_warden(&program)?,
    };
    // Every thread of the runtime comes from this one, and is confined like it.
    // What secrets stand for is read before; they themselves are read when a box needs them.
    let mut sources = args.secrets.as_deref().map(Sources::load).transpose()?;
    if let Some(sources) = &mut sources {
        // Before the walls, which nobody behind them can leave.
        let own = std::env::current_exe().map_err(Problem::OwnProgram)?;
        sources.start_clerk(&own, &[crate::clerk::VERB])?;
    }
    let images = args.store.open_beside(state.path())?;
    let mut place = workplace(&args, &config, &socket, &state)?;
    place.read.push(images.path().to_owned());
    place.read.extend(sources.iter().flat_map(Sources::places));
    let seen = Facts::look();
    // By starting it, which is over then.
    seen.gvisor.version();
    if seen.gpu.is_some() {
        seen.gvisor.drivers();
    }
    seen.machines.settle(images.path());
    // Keys of the operator may lie where the walls let nobody read.
    let tls = config.https.as_ref().map(|https| TlsDoor::open(https, state.path())).transpose();
    let tls = tls.map_err(DaemonProblem::Door)?;
    let confined = confine(&place).map_err(DaemonProblem::Confine)?;
    output::say(&walls(confined));
    let runtime = Builder::new_multi_thread().enable_io().enable_time().build().map_err(Problem::Runtime)?;
    let past = Past { store: Arc::clone(&store), leftovers, program, sources, seen, images, tls };
    let outcome = runtime.block_on(keep(&args, config, &socket, &state, warden, past));
    // With the runtime goes everything that holds the warden, which is waited for. A thread that hangs is not: in a look at a dead file
    // server, say. It ends with this process, and what it leaves is the next daemon's to clear away.
    runtime.shutdown_timeout(GOODBYE);
    store.strike_ended();
    outcome
}

async fn keep(
    args: &ServeArgs,
    mut config: Config,
    socket: &Path,
    state: &StateDir,
    warden: Warden,
    past: Past,
) -> Result<u8, Problem> {
    let keys = Keys::in_directory(state.path());
    // A list that cannot be read is told now, not to the first caller with a key.
    let known = keys.list().map_err(DaemonProblem::Key)?.len();
    let place = LedgerOptions::new(state.path().join("ledger"), state.path().join("ledger.key"));
    let mut ledger = Ledger::open(place)?;
    let Past { store, mut leftovers, program, sources, seen, images, tls } = past;
    let (broker, words) = lender(sources, state, &mut ledger).await?;
    let mut signals = Signals::catch(false)?;
    let mut doors = Doors::new(config.patience);
    let mut said = format!("blastbox: listening on {}\n", output::plain(&socket.display().to_string()));
    if let Some(address) = args.listen {
        let port = open_port(address, &keys).await.map_err(DaemonProblem::Door)?;
        // Port 0 is whichever is free: what is said is where it really is.
        let at = port.local_addr().unwrap_or(address.0);
        doors = doors.with_tcp(port);
        said.push_str(&format!("blastbox: listening on http://{at}\n"));
        if known == 0 {
            said.push_str(&no_key(args.state_dir.as_deref()));
        }
    }
    if let Some((https, door)) = config.https.take().zip(tls) {
        let port = open_port(https.address, &keys).await.map_err(DaemonProblem::Door)?;
        let at = port.local_addr().unwrap_or(https.address.0);
        said.push_str(&format!("blastbox: listening on https://{at} for {}\n", door.words()));
        doors = doors.with_tls(port, door);
    }
    let spare = Arc::clone(&store);
    let engine = Engine::with_supply(warden, Box::new(move || spare.replace_warden(&program)), seen)?;
    let engine = engine.reading_no_directories().taking_snapshots();
    let engine = match broker {
        Some(broker) => engine.lending(broker),
        None => engine,
    };
    config.keeper.snapshots.place = Some(state.path().join("snapshots"));
    let keeper = Keeper::start_kept(engine, config.keeper, ledger, Arc::clone(&store), &leftovers)?;
    config.orders.carry_out(&keeper).map_err(DaemonProblem::Order)?;
    keeper.tell_past();
    let kept = std::mem::take(&mut leftovers.kept);
    let mut adopted = 0;
    if !kept.is_empty() {
        let all = kept.len();
        adopted = keeper.adopt(kept).await;
        said.insert_str(0, &format!("blastbox: took over {adopted} of {all} boxes of the last daemon\n"));
    }
    tell_trouble(&keeper, &words);
    work_off(&keeper);
    let images = Gallery::new(config.images, Some(images)).with_templates(config.templates);
    let hall = Hall::new(keeper.clone(), keys, images);
    let hall = hall.with_roots(config.roots).with_origins(config.origins);
    let hall = hall.with_e2b(config.internet, config.domain, config.roots_of_boxes).with_begins(&config.warm);
    let hall = hall.with_templates(&state.path().join("e2b"), config.builds);
    let hall = hall.with_volumes(&state.path().join("e2b/volumes"), config.volumes);
    let hall = hall.map_err(DaemonProblem::Volumes)?;
    let hall = hall.with_secrets(&state.path().join("e2b/secrets"), config.secrets);
    let hall = hall.map_err(DaemonProblem::Secrets)?;
    let hall = hall.with_modules(&state.path().join("modules"), config.modules);
    let hall = hall.map_err(DaemonProblem::Modules)?;
    let left = hall.left_of_volumes().iter().map(|left| output::plain(left));
    said.extend(
        left.map(|left| format!("blastbox: left of a deleted volume until the next start: {left}\n")),
    );
    for damaged in hall.damaged_volumes() {
        let damaged = output::plain(&damaged);
        said.push_str(&format!(
            "blastbox: a volume is left out, and its data kept: {damaged}; put that file back from a copy, or remove it to give the volume up, and start again\n"
        ));
    }
    for damaged in hall.damaged_secrets() {
        let damaged = output::plain(damaged);
        said.push_str(&format!(
            "blastbox: secrets are left out, and their file kept: {damaged}; put it back from a copy, or remove it to give them up, and start again\n"
        ));
    }
    if args.listen.is_some() {
        said.push_str(&format!("blastbox: {}\n", hall.offers()));
    }
    if let Err(error) = hall.keep_warm(config.warm).await {
        // Boxes that were taken over are worth more than boxes that wait: they would end with this daemon.
        if adopted == 0 {
            keeper.stop().await;
            return Err(DaemonProblem::Warm(error).into());
        }
        said.push_str(&format!("blastbox: not everything waits that should: {}\n", causes(&error)));
    }
    // Last, when there is a warden to make boxes: whoever can connect is answered from here on.
    doors = doors.with_socket(Socket::open(socket).map_err(DaemonProblem::Door)?);
    let log = if args.quiet { Log::none() } else { log() };
    output::say(&said);
    doors
        .serve(hall, log, async {
            signals.told_to_end().await;
            output::say("blastbox: ending every box\n");
        })
        .await;
    output::say(&untold(keeper.untold()));
    Ok(0)
}

/// What is said where nobody can be let in over TCP, with what makes a key for this daemon.
fn no_key(state: Option<&Path>) -> String {
    let place = state.map(|state| format!(" --state-dir {}", output::plain(&state.display().to_string())));
    let place = place.unwrap_or_default();
    format!("blastbox: there is no key yet, so nobody is let in over TCP: blastbox key create NAME{place}\n")
}

/// What is said of ends that a sink did not acknowledge in time.
fn untold(boxes: usize) -> String {
    match boxes {
        0 => String::new(),
        boxes => format!(
            "blastbox: {boxes} box(es) are gone, and this is not acknowledged by every sink that must; the next start tells it\n"
        ),
    }
}

/// Who lends secrets, where the operator has named some. What a daemon that was killed has lent is revoked first, also
/// where the operator names no secrets any more; what could not be is handed back.
async fn lender(
    sources: Option<Sources>,
    state: &StateDir,
    ledger: &mut Ledger,
) -> Result<(Option<Arc<Broker>>, Vec<Told>), Problem> {
    let lends = sources.is_some();
    let register = Register::open(state.path())
        .map_err(|source| Problem::Leases { path: state.path().join("leases"), source })?;
    let broker = Broker::new(sources.unwrap_or_default(), Some(register));
    let told = broker.revoke_leftovers().await.map_err(Problem::LeasesUnread)?;
    for word in &told {
        ledger.append(None, &word.event())?;
    }
    Ok((Some(broker).filter(|_| lends), told))
}

/// Says which leases of an earlier daemon somebody has to look after, to whoever watches and on the screen.
fn tell_trouble(keeper: &Keeper, told: &[Told]) {
    for (secret, why) in told.iter().filter_map(Told::trouble) {
        output::say(&format!("blastbox: secret {}: {}\n", output::plain(&secret), output::plain(&why)));
        keeper.secret_trouble(secret, why);
    }
}

/// Tries leases that could not be revoked again for as long as this daemon lives: it ends with the runtime. What becomes
/// of those of its own boxes is written down with the rest of the box, of those of an earlier daemon for no box.
fn work_off(keeper: &Keeper) {
    let Some(broker) = keeper.engine().broker().cloned() else { return };
    let (tell, news) = mpsc::unbounded_channel();
    tokio::spawn(broker.work_off(tell));
    keeper.hear_leases(news);
}

/// What an earlier daemon has left, and what the next ones will be told.
struct Past {
    store: Arc<Store>,
    leftovers: Leftovers,
    program: PathBuf,
    sources: Option<Sources>,
    /// The host, as it looked from outside the walls.
    seen: Facts,
    images: Images,
    tls: Option<TlsDoor>,
}

/// What is said of boxes that went with an earlier daemon; nothing where it ended in order.
fn told(leftovers: &Leftovers) -> String {
    let Leftovers { boxes, nobodys, killed, stuck, .. } = leftovers;
    let mut said = String::new();
    if boxes.len() + nobodys.len() > 0 {
        said.push_str(&format!(
            "blastbox: the last daemon did not end in order; released {} boxes of tenants and {} of nobody\n",
            boxes.len(),
            nobodys.len()
        ));
    }
    if *killed > 0 {
        said.push_str(&format!("blastbox: killed {killed} warden(s) that did not end by themselves\n"));
    }
    for stuck in stuck {
        said.push_str(&format!("blastbox: cannot end {}\n", output::plain(stuck)));
    }
    said
}

/// Each box and each caller costs descriptors; how many there may be is the administrator's hard limit.
fn raise_limits() {
    let hard = getrlimit(Resource::Nofile).maximum;
    // A process may always raise its own limit that far.
    setrlimit(Resource::Nofile, Rlimit { current: hard, maximum: hard }).ok();
}

/// Lines go through a thread of their own.
fn log() -> Log {
    let (to, lines) = sync_channel::<String>(LINES);
    let work = move || lines.into_iter().for_each(|line| output::say(&line));
    drop(thread::Builder::new().name("log".to_owned()).stack_size(64 * 1024).spawn(work));
    let lost = Lost::default();
    Log::to(move |line| {
        let before = lost.take();
        let line = if before > 0 { format!("lines_lost={before}\n{line}") } else { line.to_owned() };
        if to.try_send(line).is_err() {
            lost.add(before.saturating_add(1));
        }
    })
}

/// Lines that could not be written and were not told of yet.
#[derive(Debug, Default)]
struct Lost(AtomicU64);

impl Lost {
    /// All of them, which are told of from now on: two that look at once do not both have them.
    fn take(&self) -> u64 {
        self.0.swap(0, Ordering::Relaxed)
    }

    fn add(&self, lines: u64) {
        self.0.fetch_add(lines, Ordering::Relaxed);
    }
}

/// The configuration. Where there is no file it is that of an empty one.
fn read(path: Option<&Path>) -> Result<Config, DaemonProblem> {
    let Some(path) = path else {
        let none = |source| DaemonProblem::Config { path: PathBuf::new(), source };
        return Config::parse("").map_err(none);
    };
    let failed = |source| DaemonProblem::ReadConfig { path: path.to_owned(), source };
    let file = open_regular(path).map_err(failed)?;
    let most = u64::try_from(MAX_CONFIG_TEXT).unwrap_or(u64::MAX).saturating_add(1);
    let mut text = String::new();
    file.take(most).read_to_string(&mut text).map_err(failed)?;
    Config::parse(&text).map_err(|source| DaemonProblem::Config { path: path.to_owned(), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_key_that_is_advised_is_one_for_this_daemon() {
        assert!(no_key(None).ends_with("blastbox key create NAME\n"));
        assert!(no_key(Some(Path::new("/srv/b"))).ends_with("blastbox key create NAME --state-dir /srv/b\n"));
    }

    #[test]
    fn lines_that_were_lost_are_told_of_once() {
        let lost = Lost::default();
        lost.add(2);
        lost.add(3);
        // Two writers that look before either is done: the second has nothing to tell, and nothing to take away again.
        let (one, other) = (lost.take(), lost.take());
        assert_eq!((one, other, lost.take()), (5, 0, 0));
        lost.add(one + 1);
        assert_eq!(lost.take(), 6);
    }
}
