//! warden
fn main() {}
