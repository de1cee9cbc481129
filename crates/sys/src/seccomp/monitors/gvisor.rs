//! gVisor's `runsc`, which starts parts of itself as processes of their own.

use super::super::arguments::ALLOW;
use super::Line;

#[rustfmt::skip]
pub(super) const TABLE: &[Line] = &[
    ("execveat", ALLOW, "becoming the monitor"),
];
