//! What may happen in a box.
//!
//! A policy is drafted closed, opened by name and sealed once: [`Draft::at`] gives a threat level's closed
//! defaults, each builder method opens or limits one thing, and [`Draft::seal`] either says precisely what is
//! impossible or yields a [`SealedPolicy`] that nobody can change. With the feature `text` a policy is read
//! from TOML ([`parse`]), written back in full ([`to_toml`]) and named by a canonical digest.
//!
//! ```
//! use blastbox_policy::{Draft, Gap, Seconds, ThreatLevel};
//!
//! let policy = Draft::at(ThreatLevel::High).accept(Gap::SharedKernel).timeout(Seconds(30)).seal()?;
//! assert!(policy.accepts(Gap::SharedKernel));
//! # Ok::<(), blastbox_policy::PolicyError>(())
//! ```
//!
//! Must not: do I/O, read a clock, start a thread. What the host can enforce is not known here; it comes in as
//! [`Gap`]s and [`Boundary`]s from `blastbox-isolation` and is judged against the sealed policy.

#![forbid(unsafe_code)]

mod amounts;
mod boundary;
mod credentials;
#[cfg(feature = "text")]
mod digest;
mod draft;
mod error;
mod files;
mod gap;
mod guest;
mod kernel;
mod lifetime;
mod limits;
mod network;
pub mod path;
#[cfg(feature = "text")]
mod print;
#[cfg(feature = "text")]
mod profiles;
mod refusal;
mod sealed;
#[cfg(feature = "text")]
mod text;
mod threat;
mod tier;
mod words;
mod written;

pub use amounts::{BadAmount, Bytes, Cpus, Seconds};
pub use boundary::{Boundary, MIN_EFFECTIVE_BOUNDARIES, enough_boundaries};
pub use credentials::{
    BadBinding, Binding, BindingParts, CredentialMode, CredentialRules, Given, MOST_BINDINGS, SecretName,
    Slot,
};
#[cfg(feature = "text")]
pub use digest::{BadDigest, PolicyDigest};
pub use draft::Draft;
pub use error::{Place, PolicyError, Section};
pub use files::{FileRules, ScratchExec, Workspace};
pub use gap::Gap;
pub use guest::{BadGuest, GuestName};
pub use kernel::{BoxRoot, Gpu, GvisorPlatform, KernelRules, OnDenied};
pub use lifetime::{LifetimeRules, SurvivesDaemon};
pub use network::{
    AllowRule, BadChange, BadHost, BadRule, Below, Denied, Destination, Host, HostPattern, Loopback, Network,
    NetworkLimits, NetworkMode, NetworkRules, PathPattern, PrivateOpening, Protocol, ResolverUse, RuleChange,
    RuleParts, TlsMode, Ungoverned, below_floor, is_resolver_port, may_dial,
};
#[cfg(feature = "text")]
pub use print::to_toml;
#[cfg(feature = "text")]
pub use profiles::Profile;
pub use refusal::Refusal;
pub use sealed::SealedPolicy;
#[cfg(feature = "text")]
pub use text::{MAX_POLICY_TEXT, parse};
pub use threat::ThreatLevel;
pub use tier::{Tier, TierChoice, passed_over, tiers_for};
pub use words::UnknownWord;
