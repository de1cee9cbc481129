//! QEMU: reads its firmware and what the guest is made of at the start, then runs the guest on threads of its own.

use super::super::arguments::DENY;
use super::Line;

#[rustfmt::skip]
pub(super) const TABLE: &[Line] = &[
    ("execve", DENY, "a machine starts no program of the host"),
];
