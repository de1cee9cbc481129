//! Policy in, plan out.
//!
//! - [`Facts`]: what this host can do, as far as lowering needs to know.
//! - [`choose`]: which tier a sealed policy gets on this host, why, and the plan that makes the box.
//! - [`tiers`]: each tier, a pure function from (sealed policy, facts, request) to a plan and an honest report.
//! - [`confine`]: the daemon's own walls; [`Walls`]: what the kernel says of them.
//! - [`doctor`]: what this host lacks, in words and with the command that helps.
//! - [`MachineEngine`]: the programs that play virtual machines, and their words.
//! - [`warden`]: the client of the one privileged program. Only it acts on a plan.

mod choose;
mod confine;
pub mod doctor;
mod engines;
mod facts;
pub mod gateway;
mod outside;
mod report;
mod request;
pub mod tiers;
mod walls;
pub mod warden;

/// Names of system calls, for receipts.
pub use blastbox_sys::arch::syscall_name;
/// How `blastbox` begins, and how it takes its memory and gives it back.
pub use blastbox_sys::memory::{ForgetfulInTime, hold_secrets};
pub use blastbox_sys::program;
pub use choose::{Choice, Considered, Verdict, choose, preparation};
pub use confine::{ConfineError, Confined, Workplace, confine};
pub use engines::{MachineEngine, MonitorAnswer, MonitorOrder};
pub use facts::{
    CgroupKind, Facts, Gpu, Gvisor, Installed, KernelVersion, Machines, Swap, Tun, UserNamespaces, Version,
};
pub use gateway::{Gateway, GatewayError};
pub use report::{BoundaryReport, Copies, Lowered};
pub use request::{MOST_VOLUMES, Request};
pub use tiers::jail::{WANTED_LANDLOCK_ABI, ends_after};
pub use walls::Walls;
pub use warden::{Door, Farewell, Heard, Inheritance, Mark, Warden, WardenError, WardenName};
