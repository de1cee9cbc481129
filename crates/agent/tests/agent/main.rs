//! The real agent as a plain child process, with a host at the other end of its stream. No box is needed: whatever
//! the agent does for a box, it does here for its own commands.

// `cfg(test)` says nothing new here; by it the lints know that all of this is test code.
#[cfg(test)]
mod commands;
#[cfg(test)]
mod confined;
#[cfg(test)]
mod endings;
#[cfg(test)]
mod files;
#[cfg(test)]
mod files_hostile;
#[cfg(test)]
mod files_rig;
#[cfg(test)]
mod files_tar;
#[cfg(test)]
mod files_watch;
#[cfg(test)]
mod heirs;
#[cfg(test)]
mod rig;
#[cfg(test)]
mod streams;
#[cfg(test)]
mod terminal;
