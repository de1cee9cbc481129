//! Compilers at work. Whoever has them may end them before they are done: a daemon that is to end does not wait for a stranger's module.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;
use std::process::{Child, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// Compilers at work.
#[derive(Debug, Default)]
pub struct Compilers(Mutex<AtWork>);

#[derive(Debug, Default)]
struct AtWork {
    over: bool,
    next: u64,
    processes: BTreeMap<u64, OwnedFd>,
}

impl Compilers {
    fn at_work(&self) -> MutexGuard<'_, AtWork> {
        // Nobody panics while holding it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends those that are at work. Whoever is started later ends at once.
    pub fn end(&self) {
        let mut at_work = self.at_work();
        at_work.over = true;
        for process in at_work.processes.values() {
            // One that is over already is what is wanted.
            pidfd_send_signal(process, Signal::KILL).ok();
        }
    }

    /// Whether they were ended.
    pub(super) fn are_over(&self) -> bool {
        self.at_work().over
    }

    /// Waits for one, and takes what it says.
    pub(super) fn hear(&self, mut child: Child) -> io::Result<Output> {
        let number = match self.enter(&child) {
            Ok(number) => number,
            Err(error) => {
                child.kill().ok();
                child.wait()?;
                return Err(error);
            }
        };
        let heard = child.wait_with_output();
        self.at_work().processes.remove(&number);
        heard
    }

    /// By a descriptor and not by its number, which is somebody else's once it is waited for.
    fn enter(&self, child: &Child) -> io::Result<u64> {
        let process = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
        let mut at_work = self.at_work();
        if at_work.over {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let number = at_work.next;
        at_work.next = number.wrapping_add(1);
        at_work.processes.insert(number, process);
        Ok(number)
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::time::{Duration, Instant};

    use super::*;

    #[expect(clippy::disallowed_methods, reason = "a test starts a process of its own")]
    fn sleeper() -> Child {
        let mut command = Command::new("/bin/sleep");
        command.arg("600").stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    #[test]
    fn those_at_work_are_ended_and_nobody_begins_afterwards() {
        let compilers = Compilers::default();
        let begun = Instant::now();
        std::thread::scope(|scope| {
            let heard = scope.spawn(|| compilers.hear(sleeper()));
            while compilers.at_work().processes.is_empty() {
                std::thread::yield_now();
            }
            assert!(!compilers.are_over());
            compilers.end();
            assert_eq!(heard.join().unwrap().unwrap().status.code(), None);
        });
        assert!(compilers.at_work().processes.is_empty() && compilers.are_over());
        assert_eq!(compilers.hear(sleeper()).unwrap_err().kind(), io::ErrorKind::Interrupted);
        assert!(begun.elapsed() < Duration::from_secs(300));
    }
}
