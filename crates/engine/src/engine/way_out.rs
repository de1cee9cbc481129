//! The way out of a box that has network: a gateway of its own, started before the box, and told to it.

use std::os::fd::{BorrowedFd, OwnedFd};

use blastbox_isolation::Gateway;
use blastbox_policy::SealedPolicy;
use blastbox_wire::agent::introduce;
use blastbox_wire::egress::{BUNDLE, BUNDLE_VARIABLES, LentSecret};
use blastbox_wire::plan::{Network, Plan};

use crate::error::CreateError;
use crate::tenancy::Tenancy;
use crate::uplink::{Hears, Uplink};

/// A gateway and what its box is told of it.
pub(super) struct WayOut {
    pub(super) uplink: Uplink,
    pub(super) hears: Hears,
    /// The line that travels with the plan.
    pub(super) line: OwnedFd,
    /// The wire to the card of a machine, which travels behind everything else.
    pub(super) wire: Option<OwnedFd>,
    /// Variables that make programs believe the gateway, and those that hold stand-ins.
    pub(super) variables: Vec<(String, String)>,
}

impl WayOut {
    /// Starts the gateway that the plan asks for, if it does. `control` leads to the box, and nothing but what it wakes up with
    /// was said there.
    pub(super) async fn open(
        plan: &mut Plan,
        policy: &SealedPolicy,
        tenancy: Option<&Tenancy>,
        secrets: Vec<LentSecret>,
        control: BorrowedFd<'_>,
    ) -> Result<Option<Self>, CreateError> {
        let machine = match plan.network {
            Network::Empty | Network::Loopback => return Ok(None),
            Network::Gateway { .. } => false,
            Network::Card { .. } => true,
        };
        let (gateway, line) = Gateway::start(&plan.box_id, policy).map_err(CreateError::Gateway)?;
        if let Some(tenancy) = tenancy {
            tenancy.keep(gateway.voice().map_err(CreateError::Channel)?);
        }
        gateway.lend(secrets).map_err(CreateError::Gateway)?;
        let wire = machine.then(|| Gateway::lay_wire(&line)).transpose().map_err(CreateError::Channel)?;
        let (uplink, mut hears) = Uplink::to(gateway).map_err(CreateError::Channel)?;
        let mut variables = Vec::new();
        if policy.network().needs_authority() {
            let trust = hears.trust().await.map_err(CreateError::Gateway)?;
            variables = believing(trust.variables);
            if machine {
                tell(control, &trust.authority)?;
            } else {
                plan.trust(trust.authority);
            }
        }
        Ok(Some(Self { uplink, hears, line, wire, variables }))
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
