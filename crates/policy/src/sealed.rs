//! A policy that nobody can change any more.

use std::collections::BTreeSet;

use crate::limits::{check_files, check_kernel, check_lifetime, check_network};
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
        let Draft { level, kernel, files, network, credentials, lifetime, accepted } = draft;
        check_kernel(&kernel)?;
        check_files(&files)?;
        check_lifetime(&lifetime)?;
        check_network(&network.limits)?;
        crate::network::check(&network).map_err(PolicyError::Network)?;
        crate::credentials::check(&credentials, &network.allow).map_err(PolicyError::Credentials)?;
        if let TierChoice::Exactly(tier) = kernel.tier
            && !tier.allowed_at(level)
        {
            return Err(PolicyError::TierNotAtLevel { tier, level });
        }
        if !kernel.root.allowed_at(level) {
            return Err(PolicyError::RootNotAtLevel { level });
        }
        if network.mode == NetworkMode::Open && level == ThreatLevel::Critical {
            return Err(PolicyError::OpenNotAtLevel { level });
        }
        if !files.workspace.allowed_at(level) {
            return Err(PolicyError::WorkspaceNotAtLevel { workspace: files.workspace, level });
        }
        if let Some(gap) = accepted.iter().find(|gap| !gap.acceptable_at(level)) {
            return Err(PolicyError::GapNotAtLevel { gap: *gap, level });
        }
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
        Draft { level, kernel, files, network, credentials, lifetime, accepted }
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
