//! A policy that nobody can change any more.

use std::collections::BTreeSet;

use crate::limits::{check_files, check_kernel, check_lifetime, check_network};
use crate::written::Origin;
use crate::{
    CredentialRules, Draft, FileRules, Gap, KernelRules, LifetimeRules, NetworkMode, NetworkRules,
    PolicyError, ThreatLevel, TierChoice,
};

/// A checked policy. There are no setters: another policy is another draft.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SealedPolicy {
    level: ThreatLevel,
    kernel: KernelRules,
    files: FileRules,
    network: NetworkRules,
    credentials: CredentialRules,
    lifetime: LifetimeRules,
    accepted: BTreeSet<Gap>,
    /// Its name, worked out once: every record of every box carries it.
    #[cfg(feature = "text")]
    digest: crate::PolicyDigest,
}

impl SealedPolicy {
    /// Checks the draft: impossible limits, then what its level forbids. The first problem is reported.
    pub(crate) fn check(draft: Draft) -> Result<Self, PolicyError> {
        find_fault(&draft).map_err(|fault| {
            let (about, problem) = *fault;
            draft.origin.place(&draft, &about, problem)
        })?;
        let Draft { level, kernel, files, network, credentials, lifetime, accepted, origin: _ } = draft;
        #[cfg(feature = "text")]
        let digest = crate::PolicyDigest::NONE;
        #[cfg_attr(not(feature = "text"), expect(unused_mut, reason = "it has no name to be given"))]
        let mut sealed = Self {
            level,
            kernel,
            files,
            network,
            credentials,
            lifetime,
            accepted,
            #[cfg(feature = "text")]
            digest,
        };
        #[cfg(feature = "text")]
        {
            sealed.digest = crate::PolicyDigest::of(&sealed);
        }
        Ok(sealed)
    }

    /// The policy as a draft, from which another one can be made. This one stays as it is.
    pub fn draft(&self) -> Draft {
        let Self {
            level,
            kernel,
            files,
            network,
            credentials,
            lifetime,
            accepted,
            #[cfg(feature = "text")]
                digest: _,
        } = self.clone();
        Draft { level, kernel, files, network, credentials, lifetime, accepted, origin: Origin::NONE }
    }

    /// The threat level.
    pub fn level(&self) -> ThreatLevel {
        self.level
    }

    /// The kernel boundary.
    pub fn kernel(&self) -> &KernelRules {
        &self.kernel
    }

    /// The filesystem boundary.
    pub fn files(&self) -> &FileRules {
        &self.files
    }

    /// The network boundary.
    pub fn network(&self) -> &NetworkRules {
        &self.network
    }

    /// The credentials boundary.
    pub fn credentials(&self) -> &CredentialRules {
        &self.credentials
    }

    /// The lifecycle boundary.
    pub fn lifetime(&self) -> &LifetimeRules {
        &self.lifetime
    }

    /// The gaps that the policy accepts by name.
    pub fn accepted(&self) -> &BTreeSet<Gap> {
        &self.accepted
    }

    /// Whether the policy accepts this gap by name.
    pub fn accepts(&self, gap: Gap) -> bool {
        self.accepted.contains(&gap)
    }

    /// The policy's name: a SHA-256 over every rule, the same however the policy was written down.
    #[cfg(feature = "text")]
    pub fn digest(&self) -> crate::PolicyDigest {
        self.digest
    }
}

/// The first thing that is impossible, and which key it is about.
fn find_fault(draft: &Draft) -> Result<(), Box<(String, PolicyError)>> {
    let Draft { level, kernel, files, network, credentials, lifetime, accepted, origin: _ } = draft;
    let level = *level;
    let at = |key: &str, problem| Err(Box::new((key.to_owned(), problem)));
    let limits = check_kernel(kernel)
        .and_then(|()| check_files(files))
        .and_then(|()| check_lifetime(lifetime))
        .and_then(|()| check_network(&network.limits));
    match limits {
        Err(PolicyError::OutOfRange { key, value, least, most }) => {
            return at(key, PolicyError::OutOfRange { key, value, least, most });
        }
        Err(other) => return at("", other),
        Ok(()) => {}
    }
    crate::network::check(network)
        .map_err(|(key, problem)| Box::new((key, PolicyError::Network(problem))))?;
    crate::credentials::check(credentials, &network.allow)
        .map_err(|(key, problem)| Box::new((key, PolicyError::Credentials(problem))))?;
    if let TierChoice::Exactly(tier) = kernel.tier
        && !tier.allowed_at(level)
    {
        return at("kernel.tier", PolicyError::TierNotAtLevel { tier, level });
    }
    if !kernel.root.allowed_at(level) {
        return at("kernel.root", PolicyError::RootNotAtLevel { level });
    }
    if network.mode == NetworkMode::Open && level == ThreatLevel::Critical {
        return at("network.mode", PolicyError::OpenNotAtLevel { level });
    }
    if !files.workspace.allowed_at(level) {
        let workspace = files.workspace;
        return at("files.workspace", PolicyError::WorkspaceNotAtLevel { workspace, level });
    }
    match accepted.iter().find(|gap| !gap.acceptable_at(level)) {
        Some(gap) => at(&format!("accept[{gap}]"), PolicyError::GapNotAtLevel { gap: *gap, level }),
        None => Ok(()),
    }
}
