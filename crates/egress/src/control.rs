//! The gateway's life: it is told whose it is, gives everything up, takes the link, and serves until one of those who
//! need it is gone.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::sync::Arc;
use std::time::Duration;

use blastbox_policy::{NetworkRules, SealedPolicy, parse};
use blastbox_sys::channel;
use blastbox_wire::BoxId;
use blastbox_wire::egress::{
    BUNDLE_FILES, CARD_WORD, EARS_WORD, FromGateway, MAX_EGRESS_MESSAGE, Record, ToGateway, Trust, Way,
};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::sync::mpsc;

use crate::credentials::{BadSecret, Secret};
use crate::gateway::Gateway;
use crate::harden::{self, Carrier, Held, TooFew};
use crate::house::House;
use crate::inspection::{BadInspection, Inspection};
use crate::netstack::Link;
use crate::report::{Reporter, Settle};

/// How often what was only counted is told.
const SETTLE: Duration = Duration::from_secs(1);
/// How long the last records may take to be told.
const FAREWELL: Duration = Duration::from_millis(500);

/// Why a gateway cannot be one.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// Something of the host.
    #[error("cannot {tried}: {source}")]
    Host {
        /// What was tried.
        tried: &'static str,
        /// Why it did not work.
        #[source]
        source: io::Error,
    },
    /// The engine said something that makes no sense.
    #[error("the engine {0}")]
    Engine(&'static str),
    /// A secret cannot be used. Says nothing of it but its name.
    #[error("secret {secret} cannot be used: {problem}")]
    Secret {
        /// Its name.
        secret: String,
        /// What is wrong with it.
        #[source]
        problem: BadSecret,
    },
    /// Requests cannot be read.
    #[error(transparent)]
    Inspection(#[from] BadInspection),
    /// The policy is none.
    #[error("the policy does not hold: {0}")]
    Policy(#[from] blastbox_policy::PolicyError),
    /// It allows more than this host lets a process hold.
    #[error(transparent)]
    TooFew(#[from] TooFew),
}

/// Says what was tried when it fails.
trait Tried<T> {
    fn tried(self, tried: &'static str) -> Result<T, Trouble>;
}

impl<T, E: Into<io::Error>> Tried<T> for Result<T, E> {
    fn tried(self, tried: &'static str) -> Result<T, Trouble> {
        self.map_err(|error| Trouble::Host { tried, source: error.into() })
    }
}

/// Runs a gateway over this control channel until it is not needed any more.
pub fn run(control: OwnedFd) -> Result<(), Trouble> {
    let beginning = match hear_beginning(&control) {
        Ok(Some(beginning)) => beginning,
        Ok(None) => return Ok(()),
        Err(trouble) => {
            let failed = FromGateway::Failed { why: trouble.to_string() };
            channel::send(&control, &failed.encode(), &[]).ok();
            return Err(trouble);
        }
    };
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().tried("start the runtime")?;
    let served = harden::give_up()
        .tried("give up what a gateway does not need")
        .and_then(|held| runtime.block_on(serve(&control, beginning, &held)));
    if let Err(trouble) = &served {
        let failed = FromGateway::Failed { why: trouble.to_string() };
        // Where nobody hears it any more, nobody needs to.
        channel::send(&control, &failed.encode(), &[]).ok();
    }
    served
}

/// Whose gateway it is.
struct Beginning {
    house: Arc<House>,
    records: mpsc::Receiver<Record>,
    /// Where the warden sends the link. Open as long as the box lives.
    link: OwnedFd,
}

fn hear_beginning(control: &OwnedFd) -> Result<Option<Beginning>, Trouble> {
    let mut buffer = vec![0_u8; MAX_EGRESS_MESSAGE];
    let Some((length, mut descriptors)) = channel::receive(control, &mut buffer).tried("hear the engine")?
    else {
        return Ok(None);
    };
    let message = ToGateway::decode(buffer.get(..length).unwrap_or_default())
        .map_err(|_| Trouble::Engine("said something that is no message"))?;
    let ToGateway::Open { box_id, policy, resolvers, way } = message else {
        return Err(Trouble::Engine("changed rules before there were any"));
    };
    let (Some(link), true) = (descriptors.pop(), descriptors.is_empty()) else {
        return Err(Trouble::Engine("sent no way to the link"));
    };
    let (reporter, records) = Reporter::new();
    let policy = parse(&policy)?.seal()?;
    let inspection = inspection(control, &box_id, (&policy, way), &mut buffer)?;
    let house = House::new(box_id, policy.network().clone(), resolvers, reporter);
    let house = match inspection {
        Some(inspection) => house.with_inspection(inspection),
        None => house,
    };
    Ok(Some(Beginning { house: Arc::new(house), records, link }))
}

/// What reading requests needs, where a rule has requests read or all of them are brought to be read: the secrets that the engine sends, an authority of the
/// box's own, and whom this host believes. Read before everything is given up, files of the host among it.
fn inspection(
    control: &OwnedFd,
    box_id: &BoxId,
    (policy, way): (&SealedPolicy, Way),
    buffer: &mut [u8],
) -> Result<Option<Inspection>, Trouble> {
    let mut secrets = Vec::with_capacity(policy.credentials().bind.len());
    for (place, binding) in (0..).zip(&policy.credentials().bind) {
        let heard = channel::receive(control, buffer).tried("hear the engine")?;
        let length = heard.map_or(0, |(length, _)| length);
        let message = ToGateway::decode(buffer.get(..length).unwrap_or_default());
        buffer.fill(0);
        let Ok(ToGateway::Secret(secret)) = message else {
            return Err(Trouble::Engine("sent fewer secrets than the policy binds"));
        };
        if secret.binding != place {
            return Err(Trouble::Engine("sent secrets in another order than the policy binds them"));
        }
        let value = Secret::new(secret.value.unveil().to_vec())
            .map_err(|problem| Trouble::Secret { secret: binding.secret().to_string(), problem })?;
        secrets.push((
            binding.clone(),
            value,
            secret.seconds.map(|seconds| Duration::from_secs(seconds.into())),
        ));
    }
    if !policy.network().needs_authority() && way == Way::Link {
        return Ok(None);
    }
    let bundle = BUNDLE_FILES.iter().find_map(|path| std::fs::read(path).ok()).unwrap_or_default();
    let inspection = Inspection::new(box_id.as_str(), &bundle, secrets)?;
    let trust = Trust { authority: inspection.ca().pem(), variables: inspection.keyring().variables() };
    channel::send(control, &FromGateway::Trust(trust).encode(), &[])
        .tried("say whom the box must believe")?;
    Ok(Some(inspection))
}

/// The rules of a policy text: read and sealed again, because a gateway believes nobody that the text was sealed.
fn rules(policy: &str) -> Result<NetworkRules, Trouble> {
    Ok(parse(policy)?.seal()?.network().clone())
}

/// A sequenced socket, only to learn when it can be read or written.
fn watched(socket: &OwnedFd) -> Result<UnixStream, Trouble> {
    let socket = StdStream::from(socket.try_clone().tried("watch a socket")?);
    // Not by the standard library, which asks in a way that the gateway has given up.
    let flags = fcntl_getfl(&socket).tried("watch a socket")?;
    fcntl_setfl(&socket, flags | OFlags::NONBLOCK).tried("watch a socket")?;
    UnixStream::from_std(socket).tried("watch a socket")
}

/// Waits for one message. `None`: the other side is gone.
async fn message(socket: &UnixStream, buffer: &mut [u8]) -> io::Result<Option<(usize, Vec<OwnedFd>)>> {
    loop {
        socket.readable().await?;
        match socket.try_io(Interest::READABLE, || channel::receive(socket.as_fd(), buffer)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
            received => return received,
        }
    }
}

async fn serve(control: &OwnedFd, beginning: Beginning, held: &Held) -> Result<(), Trouble> {
    let Beginning { house, mut records, link } = beginning;
    let (control, link) = (watched(control)?, watched(&link)?);
    let mut word = [0_u8; 16];
    let Some((length, mut descriptors)) = message(&link, &mut word).await.tried("wait for the link")? else {
        return Ok(());
    };
    if descriptors.is_empty() {
        return Err(Trouble::Engine("let nobody send a link"));
    }
    let end = descriptors.remove(0);
    if !descriptors.is_empty() && word.get(..length) != Some(EARS_WORD) {
        return Err(Trouble::Engine("let somebody send more than a link"));
    }
    let is_card = word.get(..length) == Some(CARD_WORD);
    let by_packets = !is_card && descriptors.is_empty();
    let carrier = if descriptors.is_empty() { Carrier::Gateway } else { Carrier::Kernel };
    held.room_for(house.rules().limits.flows, carrier)?;
    let end = if is_card { Link::card(end) } else { Link::tun(end) }.tried("watch the link")?;
    let gateway = Gateway::new(Arc::clone(&house), end, descriptors).tried("listen behind the link")?;
    tell(&control, &FromGateway::Ready { by_packets }).await.tried("say that the gateway is ready")?;
    let in_order = tokio::select! {
        // The box's network is gone before the box is.
        _ = gateway.serve() => false,
        // The box or its warden is gone.
        _ = message(&link, &mut word) => true,
        // The engine is gone, or talks nonsense.
        () = listen(&control, &house, &gateway, (held, carrier)) => false,
        () = settle(house.reporter()) => false,
        () = pass_on(&control, &mut records) => false,
    };
    gateway.end().await;
    if in_order {
        // Only then: without its gateway a box that lives must lose its interface.
        gateway.leave_link();
    }
    house.reporter().settle(Settle::Everything);
    records.close();
    let last = async {
        pass_on(&control, &mut records).await;
        if in_order {
            tell(&control, &FromGateway::Farewell).await.ok();
        }
    };
    tokio::time::timeout(FAREWELL, last).await.ok();
    Ok(())
}

/// Takes new rules until the engine is gone or says something that is no message.
async fn listen(control: &UnixStream, house: &House, gateway: &Gateway, (held, carrier): (&Held, Carrier)) {
    let mut buffer = vec![0_u8; MAX_EGRESS_MESSAGE];
    while let Ok(Some((length, mut descriptors))) = message(control, &mut buffer).await {
        let heard = ToGateway::decode(buffer.get(..length).unwrap_or_default());
        let policy = match heard {
            Ok(ToGateway::Rules { policy }) => policy,
            Ok(ToGateway::Renewed { binding, seconds }) => {
                if let Some(inspection) = house.inspection() {
                    inspection.keyring().renewed(binding.into(), Duration::from_secs(seconds.into()));
                }
                continue;
            }
            Ok(ToGateway::Visit { to }) => {
                // One that cannot be watched is closed, and whoever sent it learns that.
                if let Some(Ok(stream)) = descriptors.pop().map(|stream| watched(&stream)) {
                    gateway.visit(stream, to);
                }
                continue;
            }
            Ok(ToGateway::Open { .. } | ToGateway::Secret(_)) | Err(_) => return,
        };
        let fits = |rules: NetworkRules| {
            held.room_for(rules.limits.flows, carrier).map(|()| rules).map_err(Trouble::from)
        };
        let answer = match rules(&policy).and_then(fits) {
            Ok(rules) => {
                gateway.change_rules(rules);
                FromGateway::RulesTaken
            }
            // The old rules stay in force: they were sealed, these were not.
            Err(trouble) => FromGateway::Failed { why: trouble.to_string() },
        };
        // Past the records, of which the box decides how many wait: without an answer the engine would end the gateway, and
        // nobody would know which rules held.
        if tell(control, &answer).await.is_err() {
            return;
        }
    }
}

async fn settle(reporter: &Reporter) {
    loop {
        tokio::time::sleep(SETTLE).await;
        reporter.settle(Settle::WhatIsDue);
    }
}

/// Passes records on until there are no more, or nobody hears them.
async fn pass_on(control: &UnixStream, records: &mut mpsc::Receiver<Record>) {
    while let Some(record) = records.recv().await {
        if tell(control, &FromGateway::Record(record)).await.is_err() {
            return;
        }
    }
}

async fn tell(control: &UnixStream, message: &FromGateway) -> io::Result<()> {
    let bytes = message.encode();
    loop {
        control.writable().await?;
        match control.try_io(Interest::WRITABLE, || channel::send(control.as_fd(), &bytes, &[])) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            sent => return sent,
        }
    }
}
