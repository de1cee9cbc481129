//! A policy while it is being written: closed at first, opened by name, gone once sealed.

use std::collections::BTreeSet;

use crate::written::Origin;
use crate::{
    AllowRule, BadRule, Binding, BoxRoot, Bytes, Cpus, CredentialMode, CredentialRules, Destination,
    FileRules, Gap, Gpu, GuestName, GvisorPlatform, Host, HostPattern, KernelRules, LifetimeRules, Loopback,
    NetworkLimits, NetworkMode, NetworkRules, OnDenied, PolicyError, PrivateOpening, RuleParts, ScratchExec,
    SealedPolicy, Seconds, SurvivesDaemon, ThreatLevel, TierChoice, TlsMode, Workspace,
};

/// Where requests over TLS go that say no port.
const HTTPS: u16 = 443;

/// A policy that is still being written. It can be used only after [`Draft::seal`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Draft {
    pub(crate) level: ThreatLevel,
    pub(crate) kernel: KernelRules,
    pub(crate) files: FileRules,
    pub(crate) network: NetworkRules,
    pub(crate) credentials: CredentialRules,
    pub(crate) lifetime: LifetimeRules,
    pub(crate) accepted: BTreeSet<Gap>,
    /// What it was read from, for whoever has to mend it.
    pub(crate) origin: Origin,
}

impl Draft {
    /// The closed defaults of a level; no gap is accepted.
    pub const fn at(level: ThreatLevel) -> Self {
        Self {
            level,
            kernel: KernelRules::at(level),
            files: FileRules::at(level),
            network: NetworkRules::at(level),
            credentials: CredentialRules::at(level),
            lifetime: LifetimeRules::at(level),
            accepted: BTreeSet::new(),
            origin: Origin::NONE,
        }
    }

    /// The level it was drafted at.
    pub const fn level(&self) -> ThreatLevel {
        self.level
    }

    /// What the network section says so far.
    pub const fn network_rules(&self) -> &NetworkRules {
        &self.network
    }

    /// Has a secret lent to the box's requests. It opens nothing: a rule must lead to its host, and one that has requests read.
    pub fn lend(mut self, binding: Binding) -> Self {
        self.credentials.mode = CredentialMode::Brokered;
        self.credentials.bind.push(binding);
        self
    }

    /// Has requests to a host read that is reached over TLS already, so that secrets can be put into them: on the usual port. It opens
    /// nothing: where no rule leads there nothing changes, nor where one for more than this host has them read already, which may
    /// say which of them pass.
    pub fn read(mut self, host: Host) -> Result<Self, BadRule> {
        let wider = |rule: &AllowRule| !matches!(rule.host(), HostPattern::Exact(_));
        let is_read = |rule: &AllowRule| rule.tls() == TlsMode::Inspect || *rule.host() == HostPattern::Any;
        match self.network.governing(&Destination::Name(host.clone()), HTTPS) {
            Err(_) => return Ok(self),
            Ok(rules) if rules.iter().any(|rule| wider(rule) && is_read(rule)) => return Ok(self),
            Ok(_) => {}
        }
        let host = HostPattern::Exact(host);
        let rule = AllowRule::new(host.clone(), RuleParts { tls: TlsMode::Inspect, ..RuleParts::default() })?;
        let same = |known: &AllowRule| {
            *known.host() == host && known.protocol() == rule.protocol() && known.ports() == rule.ports()
        };
        self.network.allow.retain(|known| !same(known) || known.tls() == TlsMode::Inspect);
        // One that reads them already may say which of them pass: it stays as it is.
        let read = self.network.allow.iter().any(same);
        Ok(if read { self } else { self.allow(rule) })
    }

    /// Asks for one tier (`Tier` or `TierChoice`).
    pub fn tier(mut self, tier: impl Into<TierChoice>) -> Self {
        self.kernel.tier = tier.into();
        self
    }

    /// Limits processor time.
    pub fn cpus(mut self, cpus: Cpus) -> Self {
        self.kernel.cpus = cpus;
        self
    }

    /// Limits memory.
    pub fn memory(mut self, memory: Bytes) -> Self {
        self.kernel.memory = memory;
        self
    }

    /// Limits processes and threads.
    pub fn pids(mut self, pids: u32) -> Self {
        self.kernel.pids = pids;
        self
    }

    /// Says what follows a denied system call.
    pub fn on_denied_syscall(mut self, answer: OnDenied) -> Self {
        self.kernel.on_denied_syscall = answer;
        self
    }

    /// Says whether commands may run as root of the box.
    pub fn root(mut self, root: BoxRoot) -> Self {
        self.kernel.root = root;
        self
    }

    /// Says whether the box has a GPU of the host.
    pub fn gpu(mut self, gpu: Gpu) -> Self {
        self.kernel.gpu = gpu;
        self
    }

    /// Says whether a run can be repeated to the last byte.
    pub fn deterministic(mut self, deterministic: bool) -> Self {
        self.kernel.deterministic = deterministic;
        self
    }

    /// Says how much work a command may do, counted and not timed.
    pub fn fuel(mut self, fuel: Option<u64>) -> Self {
        self.kernel.fuel = fuel.filter(|fuel| *fuel > 0);
        self
    }

    /// Says which guest of the shelf a box of the tier `wasm` has, alone.
    pub fn guest(mut self, guest: Option<GuestName>) -> Self {
        self.kernel.guest = guest;
        self
    }

    /// Says how gVisor gets hold of the payload's system calls.
    pub fn gvisor_platform(mut self, platform: GvisorPlatform) -> Self {
        self.kernel.gvisor_platform = platform;
        self
    }

    /// Says where the payload works.
    pub fn workspace(mut self, workspace: Workspace) -> Self {
        self.files.workspace = workspace;
        self
    }

    /// Limits writable space.
    pub fn disk(mut self, disk: Bytes) -> Self {
        self.files.disk = disk;
        self
    }

    /// Limits the number of files in the writable space.
    pub fn inodes(mut self, inodes: u64) -> Self {
        self.files.inodes = inodes;
        self
    }

    /// Limits the size of one file.
    pub fn file_size(mut self, file_size: Bytes) -> Self {
        self.files.file_size = file_size;
        self
    }

    /// Limits the open descriptors of one process.
    pub fn open_files(mut self, open_files: u32) -> Self {
        self.files.open_files = open_files;
        self
    }

    /// Says whether files in the writable space may be executed.
    pub fn exec(mut self, exec: ScratchExec) -> Self {
        self.files.exec = exec;
        self
    }

    /// Says whether writes at unexpected paths are reported.
    pub fn report_writes(mut self, report: bool) -> Self {
        self.files.report_writes = report;
        self
    }

    /// Says whether the box has a loopback interface.
    pub fn loopback(mut self, loopback: Loopback) -> Self {
        self.network.loopback = loopback;
        self
    }

    /// Allows what one rule names, and turns the network on.
    pub fn allow(mut self, rule: AllowRule) -> Self {
        self.network.mode = NetworkMode::Allow;
        self.network.allow.push(rule);
        self
    }

    /// Opens every public address on every port. For whoever needs that more than a boundary.
    pub fn dangerously_open_network(mut self) -> Self {
        self.network.mode = NetworkMode::Open;
        self
    }

    /// Lets names lead to private addresses of a range, on some ports.
    pub fn dangerously_allow_private(mut self, opening: PrivateOpening) -> Self {
        self.network.dangerously_allow_private.push(opening);
        self
    }

    /// Limits what may pass the gateway.
    pub fn network_limits(mut self, limits: NetworkLimits) -> Self {
        self.network.limits = limits;
        self
    }

    /// Limits the life of the box.
    pub fn timeout(mut self, timeout: Seconds) -> Self {
        self.lifetime.timeout = timeout;
        self
    }

    /// Limits what the box may print.
    pub fn output(mut self, output: Bytes) -> Self {
        self.lifetime.output = output;
        self
    }

    /// Says whether the box goes on when its daemon is killed.
    pub fn survives_daemon(mut self, survives: SurvivesDaemon) -> Self {
        self.lifetime.survives_daemon = survives;
        self
    }

    /// Accepts one gap by name; accepting it twice is accepting it once.
    pub fn accept(mut self, gap: Gap) -> Self {
        self.accepted.insert(gap);
        self
    }

    /// Takes the draft and gives a policy that nobody can change, or the first thing that is impossible.
    pub fn seal(self) -> Result<SealedPolicy, PolicyError> {
        SealedPolicy::check(self)
    }
}
