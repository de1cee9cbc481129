//! DNS: the small part of it that a gateway needs, on both sides.

pub mod upstream;
