//! A box that was asked for, and the commands in it, as its owner holds them.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use blastbox_images::Hold;
use blastbox_images::machine::Template;
use blastbox_isolation::{Choice, GatewayError};
use blastbox_policy::{Boundary, SealedPolicy};
use blastbox_wire::BoxId;
use blastbox_wire::agent::{ExecSpec, Io, User};
use blastbox_wire::egress::Record;
use blastbox_wire::limits::{MAX_STDIN_CHUNK, OUTPUT_WINDOW, STDIN_WINDOW};
use blastbox_wire::receipt::NetworkUse;
use blastbox_wire::tools::{TOOLS_VARIABLE, ToolName};
use blastbox_wire::warden::{Ask, Spent};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

use crate::deeds::Deeds;
use crate::desk::{Bells, Ended, Order, Pausing, Tally};
use crate::driver::{PATIENCE, Sleepless, Stood};
use crate::engine::House;
use crate::error::{CreateError, Over, PauseError};
use crate::leases::News;
use crate::monitor::Monitor;
use crate::outcome::{Ending, Loss};
use crate::outlet::{ExecEvent, Outlet};
use crate::tenancy::Tenancy;
use crate::tools::{Offer, ToolAnswer};
use crate::uplink::Uplink;

/// Where programs are looked for, unless the image or whoever asks says otherwise.
pub const USUAL_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A command to run in a box.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// Program and arguments.
    pub arguments: Vec<Vec<u8>>,
    /// The whole environment, as `NAME=value`.
    pub environment: Vec<Vec<u8>>,
    /// The working directory inside the box.
    pub directory: Vec<u8>,
    /// Its standard streams.
    pub io: Io,
    /// Who it runs as. Root of the box only where the policy gives it one.
    pub user: User,
}

/// A box that was asked for. It may still be in the making; commands can be given to it at once.
///
/// Dropping it has the warden end the box, without waiting for that; [`LiveBox::end`] waits and tells what it used.
#[derive(Debug)]
pub struct LiveBox {
    pub(crate) id: BoxId,
    pub(crate) choice: Arc<Choice>,
    pub(crate) house: Arc<House>,
    pub(crate) orders: mpsc::Sender<Order>,
    pub(crate) bells: Arc<Bells>,
    pub(crate) ready: Option<oneshot::Receiver<Result<(), Ending>>>,
    pub(crate) report: Mutex<Option<oneshot::Receiver<Ended>>>,
    pub(crate) next_exec: AtomicU32,
    /// Its gateway, where it has network.
    pub(crate) uplink: Option<Uplink>,
    /// Variables that every command of the box has, unless it brings its own.
    pub(crate) variables: Vec<(String, String)>,
    /// Its secrets, where it has some.
    pub(crate) tenancy: Option<Tenancy>,
    /// What happens to its leases.
    pub(crate) lease_news: Mutex<Option<News>>,
    /// Its image, which must not be taken away beneath it.
    pub(crate) image: Option<Hold>,
    /// The line to its machine's engine, where it can be put to sleep. One snapshot at a time.
    pub(crate) monitor: tokio::sync::Mutex<Option<Monitor>>,
    /// What it began as a copy of, and shares memory with as long as it lives.
    pub(crate) begun_from: Option<Arc<Template>>,
    /// The commands of such a box, when its agent has named them.
    pub(crate) stood: Mutex<Option<oneshot::Receiver<Vec<Stood>>>>,
}

impl LiveBox {
    /// Its name.
    #[must_use]
    pub fn id(&self) -> &BoxId {
        &self.id
    }

    /// What was weighed before it was made.
    #[must_use]
    pub fn choice(&self) -> &Choice {
        &self.choice
    }

    /// Adds to what its receipt says of how it began.
    pub(crate) fn note_beginning(&mut self, told: String) {
        if let Ok(lowered) = &mut Arc::make_mut(&mut self.choice).chosen
            && let Some(kernel) = lowered.report.iter_mut().find(|line| line.boundary == Boundary::Kernel)
        {
            kernel.how.push(told);
        }
    }

    /// Waits until its agent has answered. A command can be given without waiting.
    pub async fn ready(&mut self) -> Result<(), CreateError> {
        let Some(ready) = self.ready.take() else { return Ok(()) };
        let outcome = ready.await.unwrap_or(Err(Ending::Lost(Loss::WardenGone)));
        outcome.map_err(CreateError::NotReady)
    }

    /// Runs a command. Whatever goes wrong comes as its last event.
    pub async fn exec(&self, command: Command) -> Exec {
        self.exec_as(self.take_number(), command, Vec::new()).await
    }

    /// Runs the last command of the box, which ends with it: its agent goes by itself, and nobody has to be asked.
    /// It is offered these functions, and whoever takes its events answers its calls.
    pub async fn exec_last(&self, command: Command, tools: Vec<ToolName>) -> Exec {
        let exec = self.exec_as(self.take_number(), command, tools).await;
        // An error: the box is over already, and the command's last event says so.
        self.orders.send(Order::Farewell).await.ok();
        exec
    }

    /// A number for a command, which no other has.
    pub(crate) fn take_number(&self) -> u32 {
        self.next_exec.fetch_add(1, Ordering::Relaxed)
    }

    /// The last number that a command had; 0: none had one.
    pub(crate) fn last_number(&self) -> u32 {
        self.next_exec.load(Ordering::Relaxed).saturating_sub(1)
    }

    /// Runs a command under a number that was taken for it.
    pub(crate) async fn exec_as(&self, exec: u32, command: Command, mut tools: Vec<ToolName>) -> Exec {
        let Command { arguments, mut environment, directory, io, user } = command;
        self.add_variables(&mut environment);
        // A name that is offered twice is one.
        let mut known = BTreeSet::new();
        tools.retain(|tool| known.insert(tool.clone()));
        if !tools.is_empty() {
            let names = tools.iter().map(ToolName::as_str).collect::<Vec<_>>().join(",");
            environment.push(format!("{TOOLS_VARIABLE}={names}").into_bytes());
        }
        let spec = ExecSpec { exec, arguments, environment, directory, user, io, window: OUTPUT_WINDOW };
        let outlet = Arc::new(Outlet::default());
        let room = Arc::new(Semaphore::new(usize::try_from(STDIN_WINDOW).unwrap_or(0)));
        let offer = match &self.choice.chosen {
            Ok(lowered) if lowered.calls_tools() => {
                Offer::of(tools, lowered.fuel).with_http(lowered.calls_http())
            }
            Ok(_) | Err(_) => Offer::default(),
        };
        let spec = Box::new(spec);
        let order = Order::Exec { spec, outlet: Arc::clone(&outlet), room: Arc::clone(&room), offer };
        if let Err(mpsc::error::SendError(Order::Exec { outlet, room, .. })) = self.orders.send(order).await {
            outlet.end(crate::outlet::ExecEnd::BoxEnded(Ending::Dismissed));
            room.close();
        }
        let desk = Desk { exec, orders: self.orders.clone() };
        let stdin = Stdin { desk: desk.clone(), room };
        Exec { desk, outlet, bells: Arc::clone(&self.bells), stdin: Some(stdin) }
    }

    /// A command that was given to the box by an earlier process.
    pub(crate) fn found(&self, stood: Stood) -> Exec {
        let desk = Desk { exec: stood.exec, orders: self.orders.clone() };
        let stdin = stood.takes_input.then(|| Stdin { desk: desk.clone(), room: stood.room });
        Exec { desk, outlet: stood.outlet, bells: Arc::clone(&self.bells), stdin }
    }

    /// Numbers up to this one are taken.
    pub(crate) fn took_numbers(&self, last: u32) {
        self.next_exec.fetch_max(last.saturating_add(1), Ordering::Relaxed);
    }

    /// Adds what makes programs of the box believe its gateway, and what its image says. What the caller says goes
    /// before; the usual search path is nobody's saying.
    fn add_variables(&self, environment: &mut Vec<Vec<u8>>) {
        for (name, value) in &self.variables {
            let given = format!("{name}=").into_bytes();
            if name == "PATH" {
                environment.retain(|line| line.strip_prefix(b"PATH=") != Some(USUAL_PATH.as_bytes()));
            }
            if !environment.iter().any(|line| line.starts_with(&given)) {
                environment.push([given, value.as_bytes().to_vec()].concat());
            }
        }
    }

    /// What happens to its leases: for the one who watches over it. Once.
    pub fn take_lease_news(&self) -> Option<News> {
        self.lease_news.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Revokes its leases before its end, where it will never run anything.
    pub(crate) async fn give_back_secrets(&self) {
        if let Some(tenancy) = &self.tenancy {
            tenancy.end().await;
        }
    }

    /// Stops every process of the box where it stands. Its memory and files stay; its time goes on.
    pub async fn pause(&self) -> Result<(), PauseError> {
        self.pausing(Order::Pause).await
    }

    /// Lets a paused box go on.
    pub async fn resume(&self) -> Result<(), PauseError> {
        self.pausing(Order::Resume).await
    }

    /// Stops everything in it, and its agent, until [`LiveBox::wake`]. Nobody waits longer for that: a box whose guest does not
    /// read what it is told takes no order either.
    pub(crate) async fn sleep(&self, longest: Duration) -> Result<(), Option<Sleepless>> {
        let late = Instant::now() + longest;
        let (to, mut from) = oneshot::channel();
        let sent = timeout_at(late, self.orders.send(Order::Sleep(to))).await;
        sent.map_err(|_| Some(Sleepless::Late))?.map_err(|_| None)?;
        if let Ok(answer) = timeout_at(late, &mut from).await {
            return answer.map_err(|_| None)?.map_err(Some);
        }
        // From here on it hears that nobody waits; what it said until now still counts, or it would never be woken.
        from.close();
        from.try_recv().map_err(|_| Some(Sleepless::Late))?.map_err(Some)
    }

    /// Lets a box go on that sleeps. Only after that: a bell that was rung too early would end the next sleep.
    pub(crate) fn wake(&self) {
        self.bells.morning.notify_one();
    }

    /// The commands of a box that began as a copy of one that ran; none of any other.
    pub(crate) async fn take_stood(&self) -> Vec<Stood> {
        let stood = self.stood.lock().unwrap_or_else(PoisonError::into_inner).take();
        match stood {
            Some(stood) => stood.await.unwrap_or_default(),
            None => Vec::new(),
        }
    }

    async fn pausing(&self, order: impl FnOnce(Pausing) -> Order) -> Result<(), PauseError> {
        let late = Instant::now() + PATIENCE;
        let (to, mut from) = oneshot::channel();
        let unanswered = || PauseError::Unanswered(PATIENCE);
        let sent = timeout_at(late, self.orders.send(order(to))).await;
        sent.map_err(|_| unanswered())?.map_err(|_| PauseError::Over)?;
        if let Ok(answer) = timeout_at(late, &mut from).await {
            return answer.unwrap_or(Err(PauseError::Over));
        }
        // From here on the driver hears that nobody waits, and undoes what the warden does; what it said until now still counts.
        from.close();
        from.try_recv().unwrap_or_else(|_| Err(unanswered()))
    }

    /// Waits until the agent has given a sign of life. `false`: the box is being ended, because the agent died or answered
    /// wrongly, or somebody else waits for the same.
    pub(crate) async fn answers(&self) -> bool {
        let (to, from) = oneshot::channel();
        self.orders.send(Order::Ping(to)).await.is_ok() && from.await.is_ok()
    }

    /// What it has printed so far counts for nobody. An error: the box is being ended.
    pub(crate) async fn forgive_output(&self) {
        self.orders.send(Order::Forgive).await.ok();
    }

    /// Has somebody look which limits it has met. Where there is no room for the question now, the next one does.
    pub(crate) fn look_for_limits(&self) {
        self.orders.try_send(Order::Look).ok();
    }

    /// Waits until the box is being ended, by whomever.
    pub async fn stopped(&self) {
        self.orders.closed().await;
    }

    /// Whether the box is being ended, or is gone.
    #[must_use]
    pub fn is_stopped(&self) -> bool {
        self.orders.is_closed()
    }

    /// From now on this is when the box's time is over, whatever its policy says of a `run`.
    pub fn live_until(&self, deadline: Instant) {
        self.bells.move_deadline(deadline);
    }

    /// Waits until the box was denied a system call, wrote where nobody expects it or has met a limit, and tells what it did since
    /// the last time.
    pub(crate) async fn deeds(&self) -> Deeds {
        self.bells.alarm.notified().await;
        self.bells.take_deeds()
    }

    /// Ends the box with everything in it, waits until nothing is left, and tells what it used.
    pub async fn end(self) -> Ended {
        self.finish().await
    }

    /// The same for a box that several hold. Only the first who asks learns what it used.
    pub(crate) async fn finish(&self) -> Ended {
        self.bells.stop.notify_one();
        let report = self.report.lock().unwrap_or_else(PoisonError::into_inner).take();
        let ended = match report {
            Some(report) => report.await.ok(),
            None => None,
        };
        // Only a driver that was dropped with its runtime reports nothing.
        let mut ended = ended.unwrap_or_else(|| Ended {
            spent: Spent::default(),
            tally: Tally::default(),
            ending: Some(Ending::Lost(Loss::WardenGone)),
            network: NetworkUse::default(),
            facts: None,
            setup: Default::default(),
            run: Default::default(),
            teardown: Default::default(),
        });
        if let Some(uplink) = &self.uplink {
            uplink.over().await;
            ended.network = uplink.seen.sum();
        }
        self.give_back_secrets().await;
        ended
    }

    /// Waits until the box did something with its network, and tells what. For ever where it has none.
    pub(crate) async fn network_news(&self) -> Vec<Record> {
        match &self.uplink {
            Some(uplink) => uplink.seen.news().await,
            None => std::future::pending().await,
        }
    }

    /// Gives its gateway other rules. Those that were in force stay until these are.
    pub(crate) async fn change_rules(&self, policy: &SealedPolicy) -> Result<(), GatewayError> {
        match &self.uplink {
            Some(uplink) => uplink.change_rules(policy).await,
            None => Err(GatewayError::Ended),
        }
    }

    /// Whether it has a gateway: one that was made without never gets one.
    pub(crate) fn has_gateway(&self) -> bool {
        self.uplink.is_some()
    }

    /// Whether it had one that is gone: the box reaches nothing, and nobody knows which rules held last.
    pub(crate) fn has_lost_gateway(&self) -> bool {
        self.uplink.as_ref().is_some_and(Uplink::is_over)
    }

    /// What the box did with its network and nobody was told yet.
    pub(crate) fn take_network_news(&self) -> Vec<Record> {
        self.uplink.as_ref().map(|uplink| uplink.seen.take_news()).unwrap_or_default()
    }
}

impl Drop for LiveBox {
    fn drop(&mut self) {
        if self.report.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
            // A courtesy, sent without the driver because its runtime may be going down. The guarantee is the warden's:
            // it ends its boxes when we go.
            self.house.link.say(Ask::Kill(self.id.clone())).ok();
        }
    }
}

/// A command that was given to a box.
#[derive(Debug)]
pub struct Exec {
    desk: Desk,
    outlet: Arc<Outlet>,
    bells: Arc<Bells>,
    stdin: Option<Stdin>,
}

#[derive(Debug, Clone)]
struct Desk {
    exec: u32,
    orders: mpsc::Sender<Order>,
}

impl Desk {
    async fn order(&self, order: Order) -> Result<(), Over> {
        self.orders.send(order).await.map_err(|_| Over)
    }
}

impl Exec {
    /// Its number in the box.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.desk.exec
    }

    /// The next thing that happened. Cancel safe. Taking output is what lets the command print more.
    pub async fn next(&self) -> ExecEvent {
        let event = self.outlet.next().await;
        if self.outlet.owes_credit() {
            self.bells.credit.notify_one();
        }
        event
    }

    /// Passes bytes to its standard input, where nobody has taken that.
    pub(crate) async fn write(&self, bytes: &[u8]) -> Result<(), Over> {
        self.stdin.as_ref().ok_or(Over)?.write(bytes).await
    }

    /// The way to its standard input, once.
    pub fn stdin(&mut self) -> Option<Stdin> {
        self.stdin.take()
    }

    /// Tells it that its terminal has another size.
    pub async fn resize(&self, rows: u16, columns: u16) -> Result<(), Over> {
        self.desk.order(Order::Resize { exec: self.desk.exec, rows, columns }).await
    }

    /// Answers a call that it waits for. One that it does not wait for any more is not answered.
    pub async fn answer(&self, call: u32, answer: ToolAnswer) -> Result<(), Over> {
        self.desk.order(Order::Answer { exec: self.desk.exec, call, answer }).await
    }

    /// Signals its process group.
    pub async fn signal(&self, signal: u8) -> Result<(), Over> {
        self.desk.order(Order::Signal { exec: self.desk.exec, signal }).await
    }
}

/// The way to a command's standard input.
#[derive(Debug)]
pub struct Stdin {
    desk: Desk,
    room: Arc<Semaphore>,
}

impl Stdin {
    /// Passes bytes on; waits while the command does not read. An error: it is over.
    pub async fn write(&self, bytes: &[u8]) -> Result<(), Over> {
        for chunk in bytes.chunks(MAX_STDIN_CHUNK) {
            let size = u32::try_from(chunk.len()).map_err(|_| Over)?;
            // What is sent belongs to the agent now; its word that it was taken brings the room back.
            self.room.acquire_many(size).await.map_err(|_| Over)?.forget();
            self.desk.order(Order::Stdin { exec: self.desk.exec, bytes: chunk.to_vec() }).await?;
        }
        Ok(())
    }

    /// There will be no more.
    pub async fn end(self) -> Result<(), Over> {
        self.desk.order(Order::StdinEnd { exec: self.desk.exec }).await
    }
}
