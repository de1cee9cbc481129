//! Leases of boxes: minted when a box is made, kept alive while it lives, revoked when it ends.

use std::sync::Arc;
use std::time::Duration;

use blastbox_policy::Binding;
use blastbox_wire::BoxId;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::error::{MintError, RegisterError};
use super::mint::Minting;
use super::overdue::Overdue;
use super::register::{Register, Revocable};
use super::sources::{PATIENCE, Sources};
use super::told::{Tell, Told};
use super::value::SecretValue;
use super::vault;

/// How often an end is tried at once; what is left then stays in the register, and is worked off later.
const TRIES: u32 = 4;
/// How long the first wait between two tries is.
const BACKOFF: Duration = Duration::from_millis(250);
/// How long the end of a box waits for its leases to be revoked.
const FAREWELL: Duration = Duration::from_secs(3);
/// How long the start of a daemon waits for what an earlier one left to be revoked, and how much of it is tried at once.
const LEFTOVERS: (Duration, usize) = (Duration::from_secs(20), 16);
/// A lease is renewed when this much of its life is over, in tenths.
const RENEW_AT: u32 = 7;
/// Where it cannot be renewed then, it is tried again after pauses of at most this part of its life, and at most so long.
const RENEW_PAUSES: (u32, Duration) = (20, Duration::from_secs(300));

/// Lends secrets to boxes.
#[derive(Debug)]
pub struct Broker {
    pub(super) sources: Sources,
    register: Option<Register>,
    /// What could not be revoked.
    pub(super) overdue: Overdue,
}

/// One secret of one box.
#[expect(missing_debug_implementations, reason = "it holds a secret")]
pub struct Lent {
    /// The binding that it is for, and which of the policy's that is.
    pub binding: Binding,
    pub(crate) place: u16,
    /// Its value.
    pub value: SecretValue,
    /// How long it lives, where its source says so.
    pub ttl: Option<Duration>,
    pub(super) lease: Option<Revocable>,
    pub(super) renewable: bool,
}

impl Broker {
    /// Lends what the operator's file names. Without a register (a run without a daemon) leases are revoked at the end of
    /// the box and nobody is left who would do it after a crash.
    #[must_use]
    pub fn new(sources: Sources, register: Option<Register>) -> Arc<Self> {
        // What libraries for HTTP and TLS have of a store's answer is as secret as the answer, and so is what a daemon is sent.
        blastbox_isolation::hold_secrets();
        Arc::new(Self { sources, register, overdue: Overdue::default() })
    }

    /// Whether every secret of a policy is known and may go where it is bound. Reads nothing.
    pub fn permit(&self, bindings: &[Binding]) -> Result<(), MintError> {
        self.sources.permit(bindings)
    }

    /// Mints every secret of a box. Each is read anew: no box inherits another's. On an error what was minted is revoked,
    /// and also where whoever asked goes away meanwhile.
    pub async fn mint(
        self: &Arc<Self>,
        box_id: &BoxId,
        bindings: &[Binding],
        tell: &Tell,
    ) -> Result<Vec<Lent>, MintError> {
        self.mint_some(box_id, (0..).zip(bindings.iter().cloned()).collect(), tell).await
    }

    /// The same for some of a policy's bindings, with their places among all of them.
    pub(crate) async fn mint_some(
        self: &Arc<Self>,
        box_id: &BoxId,
        bindings: Vec<(u16, Binding)>,
        tell: &Tell,
    ) -> Result<Vec<Lent>, MintError> {
        bindings.iter().try_for_each(|(_, binding)| self.permit(std::slice::from_ref(binding)))?;
        let Some((_, first)) = bindings.first() else { return Ok(Vec::new()) };
        let first = first.secret().clone();
        // In a task of its own: a future that is dropped in the midst would drop what a server has made already.
        let minting = tokio::spawn(Minting::new(self, box_id, tell).all(bindings));
        match minting.await {
            Ok(minted) => minted.map(Minting::take),
            Err(_) => Err(MintError::Interrupted(first)),
        }
    }

    /// Writes a lease down, where there is a register.
    pub(super) fn remember(&self, lease: &Revocable) -> Result<(), MintError> {
        let Some(register) = &self.register else { return Ok(()) };
        register.add(lease).map_err(|source| MintError::Register {
            secret: lease.secret.clone(),
            path: register.folder().to_owned(),
            source,
        })
    }

    /// Keeps the leases of a box alive until it is told to stop by being dropped. `renewed` gets the new life of each.
    pub async fn keep_alive(self: Arc<Self>, lent: Vec<Renewable>, told: Tell) {
        let mut waiting = JoinSet::new();
        for one in lent {
            waiting.spawn(Arc::clone(&self).keep_one(one, told.clone()));
        }
        while waiting.join_next().await.is_some() {}
    }

    async fn keep_one(self: Arc<Self>, one: Renewable, told: Tell) {
        let Renewable { lease, mut ttl } = one;
        loop {
            // `None`: for longer than a clock can say.
            let over = Instant::now().checked_add(ttl);
            sleep(ttl / 10 * RENEW_AT).await;
            let Some(longer) = self.renew(&lease, ttl, over, &told).await else { return };
            ttl = longer;
            // Nobody listens any more when the box has ended.
            told.send(Told::Renewed { secret: lease.secret.clone(), binding: lease.binding, ttl }).ok();
        }
    }

    /// Renews a lease, if need be with many tries until its time is over: what is left of it is left for that. `None`: it
    /// will not be renewed any more, which is told. The first failure is told too, while there is time to do something.
    async fn renew(
        &self,
        lease: &Revocable,
        ttl: Duration,
        over: Option<Instant>,
        told: &Tell,
    ) -> Option<Duration> {
        let vault = self.sources.vault.as_ref()?;
        let tell = |why| told.send(Told::NotRenewed { secret: lease.secret.clone(), why }).ok();
        let (part, longest) = RENEW_PAUSES;
        let longest = longest.min(ttl / part);
        // One try that hangs leaves time for others.
        let patience = PATIENCE.min((ttl / part).max(Duration::from_secs(1)));
        let mut pause = BACKOFF;
        let mut first = true;
        loop {
            let why = match timeout(patience, vault.renew(&lease.secret, &lease.lease)).await {
                Ok(Ok(longer)) if !longer.is_zero() => return Some(longer),
                Ok(Ok(_)) => {
                    tell("its life cannot be made longer".to_owned());
                    return None;
                }
                Ok(Err(error)) if vault::is_final(&error) => {
                    tell(crate::causes(&error));
                    return None;
                }
                Ok(Err(error)) => crate::causes(&error),
                Err(_) => "Vault did not answer in time".to_owned(),
            };
            pause = pause.min(longest);
            if over.is_some_and(|over| Instant::now() + pause >= over) {
                tell(format!("{why}; its time is over"));
                return None;
            }
            if std::mem::take(&mut first) {
                tell(format!("{why}; tried again until its time is over"));
            }
            sleep(pause).await;
            pause *= 2;
        }
    }

    /// Revokes leases of a box that has ended. What cannot be revoked stays in the register, and is overdue.
    pub async fn revoke(&self, leases: Vec<Revocable>, told: &Tell) {
        for lease in leases {
            let mut tried = 0;
            let outcome = loop {
                tried += 1;
                match self.revoke_once(&lease).await {
                    Err(_) if tried < TRIES => sleep(BACKOFF * 2_u32.pow(tried)).await,
                    outcome => break outcome,
                }
            };
            let secret = lease.secret.clone();
            match outcome {
                Ok(()) => drop(told.send(Told::Revoked { secret })),
                Err(why) => {
                    told.send(Told::NotRevoked { secret, why }).ok();
                    self.owe(lease, told);
                }
            }
        }
    }

    /// Where there is a register there is a daemon, which works off what is overdue. Without a Vault nothing ever is.
    fn owe(&self, lease: Revocable, tell: &Tell) {
        if self.register.is_some() && self.sources.vault.is_some() {
            self.overdue.add(lease, tell.clone());
        }
    }

    pub(super) async fn revoke_once(&self, lease: &Revocable) -> Result<(), String> {
        let Some(vault) = &self.sources.vault else {
            return Err("there is no [vault] section any more".into());
        };
        match timeout(PATIENCE, vault.revoke(&lease.secret, &lease.lease)).await {
            Err(_) => return Err("Vault did not answer in time".into()),
            Ok(Err(error)) => return Err(crate::causes(&error)),
            Ok(Ok(())) => {}
        }
        match &self.register {
            Some(register) => register.remove(lease).map_err(|error| error.to_string()),
            None => Ok(()),
        }
    }

    /// Revokes what a daemon that was killed has left, and tells what became of each. Its boxes are gone. To be called
    /// before the first box is made. What its source does not take in time stays in the register and is overdue: a source
    /// that hangs must not keep this daemon from starting. On an error nobody knows what is left.
    pub async fn revoke_leftovers(self: &Arc<Self>) -> Result<Vec<Told>, RegisterError> {
        let Some(register) = &self.register else { return Ok(Vec::new()) };
        let found = register.all().map_err(|source| {
            let path = register.folder().to_owned();
            RegisterError { path, source }
        })?;
        let unreadable = found.unreadable.into_iter();
        let mut told: Vec<Told> =
            unreadable.map(|(file, why)| Told::Unreadable { file, why: why.to_string() }).collect();
        let (patience, at_once) = LEFTOVERS;
        let until = Instant::now() + patience;
        let (tell, mut news) = mpsc::unbounded_channel();
        let places = Arc::new(Semaphore::new(at_once));
        let mut revoking = JoinSet::new();
        let mut left = Vec::new();
        for lease in found.leases {
            let (broker, tell, places) = (Arc::clone(self), tell.clone(), Arc::clone(&places));
            let kept = lease.clone();
            let task = revoking.spawn(async move {
                let _place = places.acquire_owned().await;
                broker.revoke(vec![lease], &tell).await;
            });
            left.push((task, kept));
        }
        while let Ok(Some(_)) = timeout_at(until, revoking.join_next()).await {}
        // To revoke twice does no harm, nor to tell of one that is done in this very moment that it was late.
        let late: Vec<_> = left.into_iter().filter(|(task, _)| !task.is_finished()).collect();
        // From here on nobody says anything more.
        revoking.shutdown().await;
        told.extend(std::iter::from_fn(|| news.try_recv().ok()));
        for (_, lease) in late {
            let why = format!("not done within {} s; it is tried again", patience.as_secs());
            told.push(Told::NotRevoked { secret: lease.secret.clone(), why });
            self.owe(lease, &tell);
        }
        Ok(told)
    }

    /// Revokes leases in the background, and waits for it a little; what is not done then goes on meanwhile, or is left to
    /// the next daemon where this one ends.
    pub(crate) async fn give_back(self: &Arc<Self>, leases: Vec<Revocable>, tell: &Tell) {
        if leases.is_empty() {
            return;
        }
        let (broker, tell) = (Arc::clone(self), tell.clone());
        let revoking = tokio::spawn(async move { broker.revoke(leases, &tell).await });
        timeout(FAREWELL, revoking).await.ok();
    }
}

/// A lease whose life can be made longer.
#[derive(Debug, Clone)]
pub struct Renewable {
    lease: Revocable,
    ttl: Duration,
}

impl Lent {
    /// The lease, where it can be revoked.
    #[must_use]
    pub fn lease(&self) -> Option<&Revocable> {
        self.lease.as_ref()
    }

    /// The lease, where its life can be made longer.
    #[must_use]
    pub fn renewable(&self) -> Option<Renewable> {
        match (&self.lease, self.ttl) {
            (Some(lease), Some(ttl)) if self.renewable => Some(Renewable { lease: lease.clone(), ttl }),
            _ => None,
        }
    }
}

/// The leases of these secrets that can be revoked.
#[must_use]
pub fn leases(lent: &[Lent]) -> Vec<Revocable> {
    lent.iter().filter_map(|one| one.lease.clone()).collect()
}
