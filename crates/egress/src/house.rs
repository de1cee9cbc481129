//! What all parts of one gateway share.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use blastbox_policy::NetworkRules;
use blastbox_wire::BoxId;
use blastbox_wire::egress::{Door, Reason};

use crate::connect;
use crate::decide::{self, Allowed, Ask, Said, Target, Verdict};
use crate::dns::names::Names;
use crate::dns::{self, Asked};
use crate::flow::{Dialled, Flow, Known};
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
    names: Mutex<Names>,
    flows: AtomicU64,
    inspection: Option<Inspection>,
    alive: Mutex<Vec<Known>>,
}

impl House {
    /// The house of one box.
    #[must_use]
    pub fn new(box_id: BoxId, rules: NetworkRules, resolvers: Vec<SocketAddr>, reporter: Reporter) -> Self {
        let mut random = [0; 4];
        // Without any they begin where they always did.
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty()).ok();
        Self {
            box_id,
            meter: Arc::new(Meter::new(&rules.limits)),
            rules: RwLock::new(Arc::new(rules)),
            resolver: Resolver::new(resolvers),
            reporter,
            names: Mutex::new(Names::beginning_anywhere(random)),
            flows: AtomicU64::new(1),
            inspection: None,
            alive: Mutex::default(),
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

    /// Takes other rules. What was used stays used; connections that they do not allow in the same way are ended.
    pub fn change_rules(&self, rules: NetworkRules) {
        self.meter.limit(&rules.limits);
        let rules = Arc::new(rules);
        *self.rules.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&rules);
        for known in self.alive.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            let allowed = known.allowed();
            let ask = Ask { target: allowed.target(), port: allowed.port(), said: Said::Nothing };
            // Also where it would be treated differently now: what was carried unread may have to be read.
            if decide::decide(&rules, &ask) != Verdict::Allow(allowed.clone()) {
                known.stop(Reason::RulesChanged);
            }
        }
    }

    /// Decides by the rules as they are now. See [`decide::decide`].
    pub fn decide(&self, ask: &Ask<'_>) -> Verdict {
        decide::decide(&self.rules(), ask)
    }

    /// Lets one connection in that was allowed, if the limits have room for it. By whichever way it came: a name that was
    /// said to a proxy is looked up outside as well, and so costs the same budget as one that DNS was asked for.
    pub fn admit(&self, door: Door, allowed: Allowed) -> Result<Flow, Reason> {
        let slot = self.meter.connection(allowed.target())?;
        if let Target::Name(name) = allowed.target() {
            let rules = self.rules();
            let pattern = rules.closest(name).map_err(decide::unnamed)?;
            let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
            names.number(name, pattern, self.meter.names_per_wildcard())?;
        }
        let id = self.flows.fetch_add(1, Ordering::Relaxed);
        let flow = Flow::new(id, door, allowed, self.reporter.clone(), slot);
        let mut alive = self.alive.lock().unwrap_or_else(PoisonError::into_inner);
        // Bounded by the connections that may be open: each time it has doubled, the dead are left out.
        if alive.len() == alive.capacity() {
            alive.retain(Known::is_alive);
        }
        alive.push(flow.known());
        Ok(flow)
    }

    /// The box's side of a connection, every byte of it counted and held against the limits.
    pub fn metered<S>(&self, stream: S, flow: &Flow) -> Metered<S> {
        Metered::new(stream, flow.clone(), Arc::clone(&self.meter))
    }

    /// Makes the connection that was allowed, for this flow, and reports it, if the limits have room for one more where it is not
    /// the flow's first. A refusal is reported too.
    pub async fn dial(&self, flow: &Flow, allowed: &Allowed) -> Result<Dialled, Reason> {
        let dialled = self.try_dial(flow, allowed).await;
        if let Err(reason) = &dialled {
            flow.deny(*reason);
        }
        dialled
    }

    /// The same for whoever reports a refusal himself, as an answer to a request is one.
    pub(crate) async fn try_dial(&self, flow: &Flow, allowed: &Allowed) -> Result<Dialled, Reason> {
        let place = flow.place(&self.meter)?;
        let dialling = flow.dialling();
        let rules = self.rules();
        let dialled = connect::dial(allowed, &rules.dangerously_allow_private, &self.resolver).await;
        dialling.over();
        let (stream, address) = dialled.map_err(|refused| {
            flow.found_at(refused.address);
            refused.reason
        })?;
        flow.opened(address);
        Ok(Dialled { stream, address, _place: place })
    }

    /// What an address means: the name that it was given to, or itself.
    #[must_use]
    pub fn meaning(&self, address: IpAddr) -> Target {
        let names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        names.name(address).map_or(Target::Address(address), |name| Target::Name(name.clone()))
    }

    /// Answers a packet to port 53, and reports the question.
    #[must_use]
    pub fn answer(&self, packet: &[u8]) -> Option<Vec<u8>> {
        let question = match dns::read(packet) {
            Asked::Question(question) => question,
            Asked::Unreadable { id } => return Some(dns::not_understood(id)),
            Asked::Nothing => return None,
        };
        let reply = match self.meter.question() {
            Ok(()) => {
                let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
                question.answer(&self.rules(), &mut names, self.meter.names_per_wildcard())
            }
            Err(_) => question.refuse(),
        };
        self.reporter.question(reply.name, reply.kind, reply.denied);
        Some(reply.bytes)
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

#[cfg(test)]
mod tests {
    use super::*;
    use blastbox_policy::parse;
    use blastbox_wire::egress::Record;

    fn house(text: &str) -> House {
        let text = format!("threat = \"medium\"\n[network]\nmode = \"allow\"\n{text}");
        let rules = parse(&text).unwrap().network_rules().clone();
        House::new(BoxId::from_random([1; 20]), rules, Vec::new(), Reporter::new().0)
    }

    fn admit(house: &House, door: Door, name: &str) -> Result<(), Reason> {
        let target = Target::Name(name.parse().unwrap());
        match house.decide(&Ask { target: &target, port: 443, said: Said::Nothing }) {
            Verdict::Allow(allowed) => house.admit(door, allowed).map(drop),
            Verdict::Deny(reason) => Err(reason),
        }
    }

    #[tokio::test]
    async fn what_works_for_a_connection_ends_with_it() {
        let house = house("allow = [{ host = \"a.example.net\" }]");
        let target = Target::Name("a.example.net".parse().unwrap());
        let verdict = house.decide(&Ask { target: &target, port: 443, said: Said::Nothing });
        let Verdict::Allow(allowed) = verdict else { panic!("{verdict:?}") };
        let flow = house.admit(Door::Link, allowed).unwrap();
        let stop = flow.stop();
        assert_eq!(stop.cut(async { 7 }).await, Some(7));
        let begun = Arc::clone(&stop);
        let begun = tokio::spawn(async move { begun.cut(std::future::pending::<()>()).await });
        drop(flow);
        assert_eq!(begun.await.unwrap(), None);
        assert_eq!(stop.cut(std::future::pending::<()>()).await, None);
    }

    #[tokio::test]
    async fn a_connection_that_was_let_in_is_told_of_whatever_becomes_of_it() {
        let text = "threat = \"medium\"\n[network]\nmode = \"allow\"\nallow = [{ host = \"a.example.net\" }]";
        let rules = parse(text).unwrap().network_rules().clone();
        let (reporter, mut records) = Reporter::new();
        let house = House::new(BoxId::from_random([1; 20]), rules, Vec::new(), reporter);
        // It came to nothing.
        admit(&house, Door::Link, "a.example.net").unwrap();
        let told = records.try_recv().unwrap();
        assert!(
            matches!(&told, Record::Closed { target, port: 443, reason: None, .. } if target == "a.example.net"),
            "{told:?}"
        );
        // It was ended for a reason that nobody else tells.
        let target = Target::Name("a.example.net".parse().unwrap());
        let allowed = || match house.decide(&Ask { target: &target, port: 443, said: Said::Nothing }) {
            Verdict::Allow(allowed) => allowed,
            Verdict::Deny(reason) => panic!("{reason}"),
        };
        house.admit(Door::Link, allowed()).unwrap().end_by(Reason::ByteLimit);
        let told = records.try_recv().unwrap();
        assert!(matches!(told, Record::Closed { reason: Some(Reason::ByteLimit), .. }), "{told:?}");
        // It was refused, which is told once.
        house.admit(Door::Link, allowed()).unwrap().deny(Reason::NotTls);
        let told = records.try_recv().unwrap();
        assert!(matches!(told, Record::Denied { reason: Reason::NotTls, .. }), "{told:?}");
        assert!(records.try_recv().is_err());
        // Something in it was refused, and its target was dialled for somebody who went away: it may have heard of that.
        let flow = house.admit(Door::Link, allowed()).unwrap();
        flow.deny(Reason::PathNotAllowed);
        drop(flow.dialling());
        drop(flow);
        let told = [records.try_recv().unwrap(), records.try_recv().unwrap()];
        assert!(matches!(told, [Record::Denied { .. }, Record::Closed { .. }]), "{told:?}");
        // One whose dial has come to its end is told by what came of it.
        let flow = house.admit(Door::Link, allowed()).unwrap();
        flow.deny(Reason::MethodNotAllowed);
        flow.dialling().over();
        drop(flow);
        assert!(matches!(records.try_recv(), Ok(Record::Denied { .. })));
        assert!(records.try_recv().is_err());
    }

    /// Each may carry a piece before anybody can say what that costs.
    #[tokio::test(start_paused = true)]
    async fn a_new_connection_waits_for_what_others_have_used() {
        use tokio::io::AsyncWriteExt as _;
        let house = house("allow = [{ host = \"a.example.net\" }]\nlimits = { bandwidth = \"1KiB\" }");
        let target = Target::Name("a.example.net".parse().unwrap());
        let begun = tokio::time::Instant::now();
        let mut waited = Vec::new();
        for _ in 0..3 {
            let verdict = house.decide(&Ask { target: &target, port: 443, said: Said::Nothing });
            let Verdict::Allow(allowed) = verdict else { panic!("{verdict:?}") };
            let flow = house.admit(Door::Link, allowed).unwrap();
            let (near, _far) = tokio::io::duplex(64 * 1024);
            house.metered(near, &flow).write_all(&[0; 61 * 1024]).await.unwrap();
            waited.push(begun.elapsed().as_secs());
        }
        // 60 s are owed after the first, and 61 more after each.
        assert_eq!(waited, [0, 60, 121]);
    }

    #[tokio::test]
    async fn names_under_a_wildcard_run_out_by_every_door() {
        let house = house(
            "allow = [{ host = \"*.example.org\" }, { host = \"a.example.net\" }]\n\
             limits = { names_per_wildcard = 2 }",
        );
        assert_eq!(admit(&house, Door::Connect, "a0.example.org"), Ok(()));
        assert_eq!(admit(&house, Door::Socks, "a1.example.org"), Ok(()));
        // Data in the name would go to whoever answers for the domain.
        for door in [Door::Connect, Door::Socks, Door::Link] {
            assert_eq!(admit(&house, door, "secret-data.example.org"), Err(Reason::NameBudget));
        }
        // What was given out stays, and exact rules have no budget.
        assert_eq!(admit(&house, Door::Connect, "a0.example.org"), Ok(()));
        assert_eq!(admit(&house, Door::Connect, "a.example.net"), Ok(()));
    }
}
