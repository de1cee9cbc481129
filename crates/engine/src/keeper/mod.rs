//! Keeps many boxes for many owners: admission, warm pools, deadlines, tapes of output, events.

mod cards;

pub use cards::{BadTenant, BoxCard, ExecCard, ExecEnded, OnTimeout, Phase, Tenant};
