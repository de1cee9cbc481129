//! Keeps many boxes for many owners: admission, warm pools, deadlines, tapes of output, events.
//!
//! - [`Keeper`]: what the daemon's faces talk to. One task per box watches its life; one per command writes its tape.
//! - [`TapeReader`]: what a command printed, replayed and then live.
//! - [`EventReader`]: what happened, for alerts and consoles.
//! - [`Metrics`]: how often, how long.
//!
//! Bounded memory everywhere: a guest, a slow reader or a thousand askers at once cost a number that is written here.

mod admission;
mod adopt;
mod album;
mod alerts;
mod begin;
mod calls;
mod cards;
mod cause;
mod clock;
mod commands;
mod config;
mod copy;
mod copy_queue;
mod deeds;
mod demand;
mod error;
mod events;
mod face;
mod forks;
mod from_disk;
mod gate;
mod house;
mod in_turn;
mod kept;
mod limits;
mod make;
mod member;
mod metrics;
mod on_disk;
mod orders;
mod past;
mod pen;
mod pool;
mod post;
mod prepare;
mod prepared_machine;
mod provision;
mod pump;
mod register;
mod rehearse;
mod repeats;
mod snapshot_card;
mod snapshot_id;
mod snapshot_note;
mod snapshots;
mod snapshots_of_all;
mod tape;
mod tend;
mod to_disk;
mod traffic;
mod unborn;
mod warm;
mod watch;

pub use begin::{Begin, Opened};
pub use calls::CallCard;
pub use cards::{BadTenant, BoxCard, ExecCard, ExecEnded, OnTimeout, Phase, Tenant};
pub use config::{DEFAULT_IDLE, DEFAULT_LIFE, HostLimits, KeeperConfig, NewBox, PoolConfig, Quota};
pub use error::KeepError;
pub use events::{EventItem, EventReader, Happened, KeeperEvent};
pub use face::Keeper;
pub use forks::MOST_FORKS;
pub use metrics::{BUCKETS, Histogram, Metrics, Stretch};
pub use prepare::Preparation;
pub use pump::Terms;
pub use snapshot_card::{Caption, SnapshotCard, SnapshotLimits, Unreadable};
pub use snapshot_id::{BadSnapshotId, SnapshotId};
pub use snapshot_note::paused_in;
pub use tape::{TapeEvent, TapeReader};
pub use warm::{MOST_WARM, WarmError};

#[cfg(test)]
mod tests;
