//! Secrets of this box: which request gets which, and how answers lose them again.
//!
//! A secret arrives over the control socket, lives in this process's memory and leaves it in the header of a request
//! that the policy allows. It has no text form ([`Secret`]); the only code that puts it into a request is [`Keyring`].

mod forms;
mod keyring;
mod placeholder;
mod scrub;
mod secret;

pub use keyring::{BadKeyring, Handed, Inspected, Keyring, NotLent, Stray, Wanted};
pub use placeholder::Placeholder;
pub use scrub::{BadPatterns, Patterns, Scrubber};
pub use secret::{BadSecret, LONGEST_SECRET, SHORTEST_SECRET, Secret};
