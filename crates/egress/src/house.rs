//! What all parts of one gateway share.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use blastbox_policy::NetworkRules;
use blastbox_wire::BoxId;
use blastbox_wire::egress::{Door, Reason};

use crate::connect;
use crate::decide::{self, Allowed, Ask, Verdict};
use crate::flow::{Dialled, Flow};
use crate::inspection::Inspection;
use crate::limits::{Meter, Metered};
use crate::report::Reporter;
use crate::resolve::Resolver;

/// What all parts of one gateway share: its box's rules, what the box has used, who looks up and who is told.
#[derive(Debug)]
pub struct House {
    box_id: BoxId,
    rules: RwLock<Arc<NetworkRules>>,
    meter: Arc<Meter>,
    resolver: Resolver,
    reporter: Reporter,
    flows: AtomicU64,
    inspection: Option<Inspection>,
}

impl House {
    /// The house of one box.
    #[must_use]
    pub fn new(box_id: BoxId, rules: NetworkRules, resolvers: Vec<SocketAddr>, reporter: Reporter) -> Self {
        Self {
            box_id,
            meter: Arc::new(Meter::new(&rules.limits)),
            rules: RwLock::new(Arc::new(rules)),
            resolver: Resolver::new(resolvers),
            reporter,
            flows: AtomicU64::new(1),
            inspection: None,
        }
    }

    /// The same house with what reading requests needs.
    #[must_use]
    pub fn with_inspection(self, inspection: Inspection) -> Self {
        Self { inspection: Some(inspection), ..self }
    }

    /// What reading requests needs; `None` where no rule needs it.
    #[must_use]
    pub fn inspection(&self) -> Option<&Inspection> {
        self.inspection.as_ref()
    }

    /// The box.
    #[must_use]
    pub fn box_id(&self) -> &BoxId {
        &self.box_id
    }

    /// The rules as they are now.
    #[must_use]
    pub fn rules(&self) -> Arc<NetworkRules> {
        Arc::clone(&self.rules.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Takes other rules. What was used stays used.
    pub fn change_rules(&self, rules: NetworkRules) {
        self.meter.limit(&rules.limits);
        *self.rules.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(rules);
    }

    /// Decides by the rules as they are now. See [`decide::decide`].
    pub fn decide(&self, ask: &Ask<'_>) -> Verdict {
        decide::decide(&self.rules(), ask)
    }

    /// Lets one connection in that was allowed, if the limits have room for it.
    pub fn admit(&self, door: Door, allowed: Allowed) -> Result<Flow, Reason> {
        let slot = self.meter.connection(allowed.target())?;
        let id = self.flows.fetch_add(1, Ordering::Relaxed);
        Ok(Flow::new(id, door, allowed, self.reporter.clone(), slot))
    }

    /// The box's side of a connection, every byte of it counted and held against the limits.
    pub fn metered<S>(&self, stream: S, flow: &Flow) -> Metered<S> {
        Metered::new(stream, flow.clone(), Arc::clone(&self.meter))
    }

    /// Makes the connection that was allowed, for this flow, and reports it. A refusal is reported too.
    pub async fn dial(&self, flow: &Flow, allowed: &Allowed) -> Result<Dialled, Reason> {
        let rules = self.rules();
        let dialled = connect::dial(allowed, &rules.dangerously_allow_private, &self.resolver).await;
        match &dialled {
            Ok(dialled) => flow.opened(dialled.address),
            Err(reason) => flow.deny(*reason),
        }
        dialled
    }

    /// Who tells the engine.
    #[must_use]
    pub fn reporter(&self) -> &Reporter {
        &self.reporter
    }

    /// What the box has used.
    #[must_use]
    pub fn meter(&self) -> &Meter {
        &self.meter
    }
}
