//! The gateway of a box that has network, as the engine hears it.
//!
//! Must not: believe the gateway about anything but its own box. It reads bytes of an attacker; what it says is bounded
//! here once more, and goes into the ledger as what that gateway said.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream as StdStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use blastbox_isolation::gateway::{Said, Voice};
use blastbox_isolation::{Gateway, GatewayError};
use blastbox_policy::SealedPolicy;
use blastbox_wire::egress::{Carried, FromGateway, Reason, Record, Trust};
use blastbox_wire::receipt::{AllowedTarget, DeniedTarget, NetworkUse};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::{Notify, mpsc, oneshot, watch};
use tokio::time::timeout;

/// How long a gateway may take until it is ready.
const READY: Duration = Duration::from_secs(10);
/// How long a gateway may take to end after its box has.
const FAREWELL: Duration = Duration::from_secs(3);
/// Different targets that are told apart.
const MOST_TARGETS: usize = 256;
/// Records that may wait for whoever writes them down. Where somebody does, the gateway waits when there are more, and
/// lends no secret whose use it could not tell.
const MOST_WAITING: usize = 1024;
/// Records that a gateway may have left when it ends: its own queue and what is in the socket.
const MOST_LEFT: usize = 4 * MOST_WAITING;

/// What a box did with its network, as its gateway told.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    inner: Mutex<Inner>,
    news: Notify,
    /// Rung when what waited was taken, and when nobody will take more.
    room: Notify,
}

#[derive(Debug, Default)]
struct Inner {
    allowed: BTreeMap<(String, u16), AllowedTarget>,
    denied: BTreeMap<(String, u16, Reason), u64>,
    untold: u64,
    gateway_lost: bool,
    by_packets: bool,
    waiting: VecDeque<Record>,
    /// Records that found no room there, and that whoever writes them down does not know of yet.
    left_out: u32,
    writer: Writer,
}

/// Whether somebody writes records down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Writer {
    /// Nobody: they are counted for the receipt, and the first are kept.
    #[default]
    None,
    /// Somebody, all the time.
    There,
    /// Somebody, once more when the gateway has ended.
    AtTheEnd,
}

impl Seen {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a record in, when there is room for it.
    async fn take_in(&self, record: Record) {
        while self.lock().must_wait() {
            self.room.notified().await;
        }
        let mut inner = self.lock();
        inner.count(&record);
        let most = if inner.writer == Writer::AtTheEnd { MOST_LEFT } else { MOST_WAITING };
        if inner.waiting.len() < most {
            inner.waiting.push_back(record);
        } else {
            // One that tells of losses was counted as such above.
            let (lost, untold) = match record {
                Record::Lost { count } => (count, 0),
                _ => (1, 1),
            };
            inner.left_out = inner.left_out.saturating_add(lost);
            inner.untold = inner.untold.saturating_add(untold);
        }
        drop(inner);
        self.news.notify_one();
    }

    /// Waits until there is something new, and takes it. Whoever asks writes it down, and asks again.
    pub(crate) async fn news(&self) -> Vec<Record> {
        self.lock().writer = Writer::There;
        loop {
            self.news.notified().await;
            let news = self.take_news();
            if !news.is_empty() {
                return news;
            }
        }
    }

    /// What is new, and how much of it was left out: a ledger that is silent about that would look whole.
    pub(crate) fn take_news(&self) -> Vec<Record> {
        let mut inner = self.lock();
        let mut news: Vec<Record> = inner.waiting.drain(..).collect();
        match std::mem::take(&mut inner.left_out) {
            0 => {}
            count => news.push(Record::Lost { count }),
        }
        drop(inner);
        self.room.notify_one();
        news
    }

    /// From now on nobody takes anything until the gateway has ended.
    fn last_words(&self) {
        let mut inner = self.lock();
        if inner.writer == Writer::There {
            inner.writer = Writer::AtTheEnd;
        }
        drop(inner);
        self.room.notify_one();
    }

    /// All of it, for the receipt.
    pub(crate) fn sum(&self) -> NetworkUse {
        let inner = self.lock();
        let denied = inner.denied.iter().map(|((target, port, reason), count)| DeniedTarget {
            target: target.clone(),
            port: *port,
            reason: reason.as_str().to_owned(),
            count: *count,
        });
        NetworkUse {
            allowed: inner.allowed.values().cloned().collect(),
            denied: denied.collect(),
            untold: inner.untold,
            gateway_lost: inner.gateway_lost,
            by_packets: inner.by_packets,
        }
    }
}

impl Inner {
    fn must_wait(&self) -> bool {
        self.writer == Writer::There && self.waiting.len() >= MOST_WAITING
    }

    fn count(&mut self, record: &Record) {
        match record {
            Record::Question { name, denied: Some(reason), count, .. } => {
                self.deny(name, 53, *reason, *count)
            }
            Record::Question { denied: None, .. } | Record::Lent { .. } => {}
            Record::Denied { target, port, reason, count, .. } => self.deny(target, *port, *reason, *count),
            Record::Opened { target, port, rule, .. } => {
                let rule = rule.clone();
                if let Some(known) = self.allowed(target, *port) {
                    known.connections = known.connections.saturating_add(1);
                    known.rule = rule;
                }
            }
            Record::Closed { target, port, carried: Carried { sent, received, .. }, .. } => {
                // One that came to nothing reached nobody, and takes no place of those that were reached.
                if let Some(known) = self.allowed.get_mut(&(target.clone(), *port)) {
                    known.sent_bytes = known.sent_bytes.saturating_add(*sent);
                    known.received_bytes = known.received_bytes.saturating_add(*received);
                }
            }
            Record::Lost { count } => self.untold = self.untold.saturating_add(u64::from(*count)),
        }
    }

    fn allowed(&mut self, target: &str, port: u16) -> Option<&mut AllowedTarget> {
        let key = (target.to_owned(), port);
        if !self.allowed.contains_key(&key) && self.allowed.len() >= MOST_TARGETS {
            self.untold = self.untold.saturating_add(1);
            return None;
        }
        Some(self.allowed.entry(key).or_insert_with(|| AllowedTarget {
            target: target.to_owned(),
            port,
            rule: String::new(),
            connections: 0,
            sent_bytes: 0,
            received_bytes: 0,
        }))
    }

    fn deny(&mut self, target: &str, port: u16, reason: Reason, count: u32) {
        let key = (target.to_owned(), port, reason);
        if let Some(known) = self.denied.get_mut(&key) {
            *known = known.saturating_add(u64::from(count));
        } else if self.denied.len() < MOST_TARGETS {
            self.denied.insert(key, u64::from(count));
        } else {
            self.untold = self.untold.saturating_add(u64::from(count));
        }
    }
}

/// The engine's side of a box's gateway.
#[derive(Debug)]
pub(crate) struct Uplink {
    pub(crate) seen: Arc<Seen>,
    voice: Voice,
    /// What the gateway says to other rules. Held by whoever changes them: one after the other.
    taken: tokio::sync::Mutex<mpsc::Receiver<Result<(), GatewayError>>>,
    over: watch::Receiver<bool>,
    /// Rung to end it, where it does not end by itself.
    end: Arc<Notify>,
}

impl Uplink {
    /// Listens to a gateway from now on. The other end says when it is ready.
    pub(crate) fn to(gateway: Gateway) -> io::Result<(Self, Hears)> {
        let socket = StdStream::from(gateway.as_fd().try_clone_to_owned()?);
        let watch = UnixStream::from_std(socket)?;
        let (ready_to, ready) = oneshot::channel();
        let (trust_to, trust) = oneshot::channel();
        let (over_to, over) = watch::channel(false);
        let (taken_to, taken) = mpsc::channel(1);
        let voice = gateway.voice()?;
        let (seen, end) = (Arc::<Seen>::default(), Arc::new(Notify::new()));
        let tell = Tell { ready: Some(ready_to), trust: Some(trust_to), taken: taken_to, over: over_to };
        tokio::spawn(listen(Line { gateway, watch }, Arc::clone(&seen), tell, Arc::clone(&end)));
        let taken = tokio::sync::Mutex::new(taken);
        Ok((Self { seen, voice, taken, over, end }, Hears { ready, trust }))
    }

    /// Gives the gateway other rules, and waits until they are in force. One that does not say so is ended: nobody would
    /// know which rules hold.
    pub(crate) async fn change_rules(&self, policy: &SealedPolicy) -> Result<(), GatewayError> {
        let mut taken = self.taken.lock().await;
        // A word that nobody asked for is not the answer to this.
        while taken.try_recv().is_ok() {}
        self.voice.change_rules(policy)?;
        match timeout(READY, taken.recv()).await {
            Ok(Some(said)) => said,
            Ok(None) => Err(GatewayError::Ended),
            Err(_) => {
                self.end.notify_one();
                Err(GatewayError::NotReady(READY))
            }
        }
    }

    /// Whether the gateway is gone.
    pub(crate) fn is_over(&self) -> bool {
        *self.over.borrow()
    }

    /// Waits until the gateway, which ends with its box, is gone, so that everything that it saw is told.
    pub(crate) async fn over(&self) {
        self.seen.last_words();
        let mut over = self.over.clone();
        if timeout(FAREWELL, over.wait_for(|over| *over)).await.is_err() {
            self.end.notify_one();
            timeout(FAREWELL, over.wait_for(|over| *over)).await.ok();
        }
    }
}

/// What a gateway says while its box is made.
#[derive(Debug)]
pub(crate) struct Hears {
    ready: oneshot::Receiver<Result<(), GatewayError>>,
    trust: oneshot::Receiver<Trust>,
}

impl Hears {
    /// Waits until the gateway has said what the box must know before it is made.
    pub(crate) async fn trust(&mut self) -> Result<Trust, GatewayError> {
        match timeout(READY, &mut self.trust).await {
            Ok(Ok(trust)) => Ok(trust),
            // It ended first, and has said why.
            Ok(Err(_)) => match (&mut self.ready).await {
                Ok(Err(error)) => Err(error),
                Ok(Ok(())) | Err(_) => Err(GatewayError::Ended),
            },
            Err(_) => Err(GatewayError::NotReady(READY)),
        }
    }

    /// Waits until the gateway is ready.
    pub(crate) async fn ready(self) -> Result<(), GatewayError> {
        match timeout(READY, self.ready).await {
            Ok(Ok(said)) => said,
            Ok(Err(_)) => Err(GatewayError::Ended),
            Err(_) => Err(GatewayError::NotReady(READY)),
        }
    }
}

/// To whom a gateway's words go.
struct Tell {
    ready: Option<oneshot::Sender<Result<(), GatewayError>>>,
    trust: Option<oneshot::Sender<Trust>>,
    taken: mpsc::Sender<Result<(), GatewayError>>,
    over: watch::Sender<bool>,
}

/// A gateway and its socket once more, only to learn when it can be read. Dropped before the gateway, which waits for
/// its process to see the socket close.
struct Line {
    watch: UnixStream,
    gateway: Gateway,
}

async fn listen(mut line: Line, seen: Arc<Seen>, tell: Tell, end: Arc<Notify>) {
    let Tell { mut ready, mut trust, taken, over } = tell;
    let (mut was_ready, mut in_order) = (false, false);
    let mut say = |outcome| {
        if let Some(ready) = ready.take() {
            // Whoever waited has given up.
            ready.send(outcome).ok();
        }
    };
    loop {
        match line.gateway.hear() {
            Ok(Said::Message(FromGateway::Ready { by_packets })) => {
                was_ready = true;
                seen.lock().by_packets = by_packets;
                say(Ok(()));
            }
            // After it was ready it is about other rules; the old ones stay in force.
            Ok(Said::Message(FromGateway::Failed { why })) if was_ready => {
                taken.try_send(Err(GatewayError::GaveUp(why))).ok();
            }
            Ok(Said::Message(FromGateway::Failed { why })) => {
                say(Err(GatewayError::GaveUp(why)));
                trust = None;
            }
            Ok(Said::Message(FromGateway::Trust(said))) => {
                if let Some(trust) = trust.take() {
                    // Whoever waited has given up.
                    trust.send(said).ok();
                }
            }
            Ok(Said::Message(FromGateway::RulesTaken)) => {
                // Said more often than asked, it is not kept.
                taken.try_send(Ok(())).ok();
            }
            Ok(Said::Message(FromGateway::Farewell)) => in_order = true,
            Ok(Said::Message(FromGateway::Record(record))) => tokio::select! {
                () = seen.take_in(record) => {}
                () = end.notified() => break,
            },
            Ok(Said::Gone) => break,
            // A gateway that talks nonsense is not one: it is ended, and the box has no network.
            Err(error) => {
                say(Err(error));
                break;
            }
            Ok(Said::Waiting) => {
                tokio::select! {
                    readable = line.watch.readable() => {
                        if readable.is_err() {
                            break;
                        }
                        // Not read through this; only its memory of having been ready is cleared.
                        line.watch.try_io(Interest::READABLE, || Err::<(), _>(io::ErrorKind::WouldBlock.into())).ok();
                    }
                    () = end.notified() => break,
                }
            }
        }
    }
    drop(trust);
    say(Err(GatewayError::Ended));
    seen.lock().gateway_lost = was_ready && !in_order;
    // Waits for the process, which is ending.
    let Line { watch, gateway } = line;
    drop(watch);
    tokio::task::spawn_blocking(move || drop(gateway)).await.ok();
    over.send(true).ok();
}

#[cfg(test)]
mod tests {
    use super::*;
    use blastbox_wire::egress::Door;

    fn opened(target: &str) -> Record {
        let address = [93, 184, 216, 34].into();
        Record::Opened {
            flow: 1,
            door: Door::Link,
            target: target.into(),
            port: 443,
            address,
            rule: "*.example.com".into(),
        }
    }

    fn closed(target: &str, (sent, received): (u64, u64)) -> Record {
        let carried = Carried { sent, received, millis: 5 };
        Record::Closed { flow: 1, target: target.into(), port: 443, carried, reason: None }
    }

    #[tokio::test]
    async fn what_came_to_nothing_takes_no_place_of_what_was_reached() {
        let seen = Seen::default();
        for number in 0..=MOST_TARGETS {
            seen.take_in(closed(&format!("{number}.example.com"), (0, 0))).await;
            seen.take_in(closed(&format!("{number}.example.com"), (517, 0))).await;
        }
        seen.take_in(opened("a.example.com")).await;
        let sum = seen.sum();
        assert_eq!(sum.allowed.iter().map(|one| one.target.as_str()).collect::<Vec<_>>(), ["a.example.com"]);
    }

    #[tokio::test]
    async fn targets_are_summed_up() {
        let seen = Seen::default();
        seen.take_in(opened("a.example.com")).await;
        seen.take_in(closed("a.example.com", (10, 20))).await;
        for _ in 0..2 {
            seen.take_in(Record::Denied {
                flow: 0,
                door: Door::Link,
                target: "evil.test".into(),
                port: 443,
                address: None,
                reason: Reason::HostNotAllowed,
                count: 3,
                carried: Carried::default(),
            })
            .await;
        }
        let sum = seen.sum();
        assert_eq!(sum.allowed.len(), 1);
        assert_eq!(
            (sum.allowed[0].connections, sum.allowed[0].sent_bytes, sum.allowed[0].received_bytes),
            (1, 10, 20)
        );
        assert_eq!(sum.denied.len(), 1);
        assert_eq!((sum.denied[0].count, sum.denied[0].reason.as_str()), (6, "host-not-allowed"));
        assert_eq!(seen.take_news().len(), 4);
    }

    #[tokio::test]
    async fn a_gateway_cannot_make_it_grow_without_end() {
        let seen = Seen::default();
        for number in 0..100_000 {
            seen.take_in(opened(&format!("a{number}.example.com"))).await;
        }
        let sum = seen.sum();
        assert_eq!(sum.allowed.len(), MOST_TARGETS);
        assert!(sum.untold > 90_000);
        let news = seen.take_news();
        assert_eq!(news.len(), MOST_WAITING + 1);
        // What was left out is told to whoever writes the ledger, once.
        assert_eq!(
            news.last(),
            Some(&Record::Lost { count: 100_000 - u32::try_from(MOST_WAITING).unwrap() })
        );
        assert!(seen.take_news().is_empty());
        assert_eq!(seen.sum().untold, sum.untold, "counted once");
    }

    #[tokio::test]
    async fn where_somebody_writes_it_down_the_gateway_waits_and_nothing_is_lost() {
        let seen = Arc::new(Seen::default());
        let writer = async {
            let mut written = 0;
            while written < 3 * MOST_WAITING {
                written += seen.news().await.len();
            }
            written
        };
        let gateway = async {
            // Only after the writer has asked for the first time.
            tokio::task::yield_now().await;
            for _ in 0..3 * MOST_WAITING {
                seen.take_in(opened("a.example.com")).await;
            }
        };
        let (written, ()) = tokio::join!(writer, gateway);
        assert_eq!((written, seen.sum().untold), (3 * MOST_WAITING, 0));
        // At the end nobody takes anything until the gateway is gone, and what it left is kept all the same.
        seen.last_words();
        for _ in 0..2 * MOST_WAITING {
            seen.take_in(opened("a.example.com")).await;
        }
        assert_eq!((seen.take_news().len(), seen.sum().untold), (2 * MOST_WAITING, 0));
    }
}
