//! Secrets from real sources: files, variables, programs, and a server that speaks the documented wire of Vault.

// `cfg(test)` says nothing new here; by it the lints know that all of this is test code.
#[cfg(test)]
mod at_hand;
#[cfg(test)]
mod in_vault;
#[cfg(test)]
mod not_lost;
#[cfg(test)]
mod of_a_box;
#[cfg(test)]
mod rig;
