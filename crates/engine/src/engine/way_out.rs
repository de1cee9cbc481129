//! The way out of a box that has network: a gateway of its own, started before the box, and told to it.

use std::os::fd::{BorrowedFd, OwnedFd};

use blastbox_isolation::Gateway;
use blastbox_policy::SealedPolicy;
use blastbox_wire::agent::introduce;
use blastbox_wire::egress::{BUNDLE, BUNDLE_VARIABLES, LentSecret, Way};
use blastbox_wire::plan::{Network, Plan};

use crate::errands::Errands;
use crate::error::CreateError;
use crate::tenancy::Tenancy;
use crate::uplink::{Hears, Uplink};

/// How a box is tied to its gateway.
pub(super) enum Tie {
    /// By what travels with the plan: the line that a link is sent on, and the wire to the card of a machine.
    Travels { line: OwnedFd, wire: Option<OwnedFd> },
    /// By what the engine keeps: it brings the box's requests itself.
    Kept(Errands),
}

impl Tie {
    /// What travels.
    pub(super) fn travels(&self) -> (Option<&OwnedFd>, Option<&OwnedFd>) {
        match self {
            Self::Travels { line, wire } => (Some(line), wire.as_ref()),
            Self::Kept(_) => (None, None),
        }
    }

    /// What stays.
    pub(super) fn kept(self) -> Option<Errands> {
        match self {
            Self::Travels { .. } => None,
            Self::Kept(errands) => Some(errands),
        }
    }
}

/// A gateway and what its box is told of it.
pub(super) struct WayOut {
    pub(super) uplink: Uplink,
    pub(super) hears: Hears,
    /// How the box is tied to it.
    pub(super) tie: Tie,
    /// Variables that make programs believe the gateway, and those that hold stand-ins.
    pub(super) variables: Vec<(String, String)>,
}

impl WayOut {
    /// Starts the gateway that the plan asks for, if it does. `control` leads to the box, and nothing but what it wakes up with
    /// was said there.
    pub(super) async fn open(
        (plan, http): (&mut Plan, bool),
        policy: &SealedPolicy,
        tenancy: Option<&Tenancy>,
        secrets: Vec<LentSecret>,
        control: BorrowedFd<'_>,
    ) -> Result<Option<Self>, CreateError> {
        let (machine, way) = match plan.network {
            Network::Empty if http => (false, Way::Calls),
            Network::Empty | Network::Loopback => return Ok(None),
            Network::Gateway { .. } => (false, Way::Link),
            Network::Card { .. } => (true, Way::Link),
        };
        let (gateway, line) = Gateway::start(&plan.box_id, policy, way).map_err(CreateError::Gateway)?;
        if let Some(tenancy) = tenancy {
            tenancy.keep(gateway.voice().map_err(CreateError::Channel)?);
        }
        gateway.lend(secrets).map_err(CreateError::Gateway)?;
        let tie = match way {
            Way::Calls => Tie::Kept(Errands::for_box(&gateway, line).map_err(CreateError::Channel)?),
            Way::Link => {
                let wire = machine.then(|| Gateway::lay_wire(&line)).transpose();
                Tie::Travels { wire: wire.map_err(CreateError::Channel)?, line }
            }
        };
        let (uplink, mut hears) = Uplink::to(gateway).map_err(CreateError::Channel)?;
        let mut variables = Vec::new();
        if policy.network().needs_authority() || way == Way::Calls {
            let trust = hears.trust().await.map_err(CreateError::Gateway)?;
            match (way, machine) {
                // Its requests are read here: nothing in the box has to believe anybody.
                (Way::Calls, _) => variables = trust.variables,
                (Way::Link, true) => {
                    variables = believing(trust.variables);
                    tell(control, &trust.authority)?;
                }
                (Way::Link, false) => {
                    variables = believing(trust.variables);
                    plan.trust(trust.authority);
                }
            }
        }
        Ok(Some(Self { uplink, hears, tie, variables }))
    }
}

/// Tells the guest's first process whom programs of the box believe. The socket has room for far more: so few bytes go in whole.
fn tell(control: BorrowedFd<'_>, authority: &str) -> Result<(), CreateError> {
    let words = introduce(authority);
    match rustix::io::write(control, &words) {
        Ok(written) if written == words.len() => Ok(()),
        Ok(_) => Err(CreateError::Channel(std::io::ErrorKind::WriteZero.into())),
        Err(errno) => Err(CreateError::Channel(errno.into())),
    }
}

fn believing(stand_ins: Vec<(String, String)>) -> Vec<(String, String)> {
    let bundle = BUNDLE_VARIABLES.iter().map(|name| ((*name).to_owned(), BUNDLE.to_owned()));
    bundle.chain(stand_ins).collect()
}
