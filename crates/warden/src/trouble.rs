//! What was tried and why it did not work. Small enough to cross from a half-made box to its caller.

use std::borrow::Cow;
use std::{fmt, io};

/// A step that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Trouble {
    /// What was tried, on what.
    pub(crate) tried: Cow<'static, str>,
    /// The kernel's reason; 0 where the text says it all.
    pub(crate) errno: i32,
}

impl Trouble {
    /// A failure that no system call reported.
    pub(crate) fn plain(tried: impl Into<Cow<'static, str>>) -> Self {
        Self { tried: tried.into(), errno: 0 }
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.tried)?;
        if self.errno != 0 {
            write!(f, ": {}", io::Error::from_raw_os_error(self.errno))?;
        }
        Ok(())
    }
}

/// Says what was tried.
pub(crate) trait Trying<T> {
    /// Names the step, for the case that it failed.
    fn tried(self, what: impl Into<Cow<'static, str>>) -> Result<T, Trouble>;
    /// The same, with words that are put together only then: there are dozens of steps in every box.
    fn tried_with(self, what: impl FnOnce() -> String) -> Result<T, Trouble>;
}

impl<T, E: Into<io::Error>> Trying<T> for Result<T, E> {
    fn tried(self, what: impl Into<Cow<'static, str>>) -> Result<T, Trouble> {
        self.map_err(|error| {
            let error: io::Error = error.into();
            match error.raw_os_error() {
                Some(errno) => Trouble { tried: what.into(), errno },
                None => Trouble::plain(format!("{}: {error}", what.into())),
            }
        })
    }

    fn tried_with(self, what: impl FnOnce() -> String) -> Result<T, Trouble> {
        self.or_else(|error| Err(error).tried(what()))
    }
}
