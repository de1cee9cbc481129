//! Why there is no kernel, told to the engine as the agent would tell it.

use std::borrow::Cow;
use std::os::fd::OwnedFd;

use blastbox_wire::agent::AgentFrame;

/// How much of what `runsc` said is passed on.
const SAID: usize = 600;

/// What was tried, and why it failed.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fault(pub(crate) Cow<'static, str>);

impl Fault {
    /// With the last of what `runsc` said.
    pub(crate) fn with(what: &str, said: &[u8]) -> Self {
        let text = String::from_utf8_lossy(said);
        // It says everything up to three times: as text, as a log line, and as JSON.
        let line = text.lines().find(|line| !line.trim().is_empty() && !line.starts_with('{')).unwrap_or("");
        let line: String = line.chars().filter(|c| !c.is_control()).take(SAID).collect();
        if line.is_empty() {
            Self(Cow::Owned(what.to_owned()))
        } else {
            Self(Cow::Owned(format!("{what}: {line}")))
        }
    }

    /// Over the control channel, which is still ours: no agent has been started.
    pub(crate) fn tell(&self, control: &OwnedFd) {
        // The engine reads this or has gone; either way there is nothing more to say.
        rustix::io::write(control, &AgentFrame::Fault { text: &self.0 }.encode()).ok();
    }
}

/// Names what was tried.
pub(crate) trait Trying<T> {
    fn tried(self, what: &'static str) -> Result<T, Fault>;
}

impl<T, E: std::fmt::Display> Trying<T> for Result<T, E> {
    fn tried(self, what: &'static str) -> Result<T, Fault> {
        self.map_err(|error| Fault(Cow::Owned(format!("cannot {what}: {error}"))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_that_says_something_is_passed_on() {
        let said = b"\n{\"msg\":\"x\"}\nerror setting up:\x1b[2J no\nmore";
        assert_eq!(Fault::with("it ended", said).0, "it ended: error setting up:[2J no");
        assert_eq!(Fault::with("it ended", b"").0, "it ended");
        assert!(Fault::with("it ended", &[b'x'; 9000]).0.len() < 700);
    }
}
