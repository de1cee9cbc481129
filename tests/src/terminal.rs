//! A terminal that a test holds the other end of.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

use crate::held::PATIENCE;
use crate::{Caller, Held};

/// Where util-linux has the program that gives another one a controlling terminal.
const SETSID: &str = "/usr/bin/setsid";

/// The end of a terminal that a person would look at and type into, and the program at its other end.
#[derive(Debug)]
pub struct Terminal {
    end: OwnedFd,
    seen: String,
    held: Held,
}

impl Terminal {
    /// Starts `blastbox WORDS` on a new terminal of its own. `None`: this host has no `setsid`.
    pub fn start(caller: &Caller, rows: u16, columns: u16, words: &[&str]) -> Option<Self> {
        if !Path::new(SETSID).exists() {
            return None;
        }
        let end =
            openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).expect("make a terminal");
        grantpt(&end).expect("grant the terminal");
        unlockpt(&end).expect("unlock the terminal");
        let name = ptsname(&end, Vec::new()).expect("name the terminal");
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let far = rustix::fs::open(name.as_c_str(), flags, Mode::empty()).expect("open the terminal");
        let copy = || far.try_clone().expect("copy a descriptor");
        let blastbox = caller.blastbox_path();
        let all = ["--ctty", "--wait"].map(AsRef::as_ref).into_iter().chain([blastbox.as_os_str()]);
        let all = all.chain(words.iter().map(AsRef::as_ref));
        let start = caller.program(Path::new(SETSID), all).env("TERM", "xterm");
        set_size(&end, rows, columns);
        let streams = [copy(), copy(), copy()];
        Some(Self { end, seen: String::new(), held: start.start_with(streams) })
    }

    /// Changes the size of the window.
    pub fn resize(&mut self, rows: u16, columns: u16) {
        set_size(&self.end, rows, columns);
    }

    /// Types.
    pub fn type_in(&mut self, text: &str) {
        let mut rest = text.as_bytes();
        while !rest.is_empty() {
            let count = rustix::io::write(&self.end, rest).expect("type into the terminal");
            rest = rest.get(count..).unwrap_or_default();
        }
    }

    /// Reads until `text` has been shown, and forgets what was shown up to its end: what came before it is the answer.
    #[track_caller]
    pub fn expect(&mut self, text: &str) -> String {
        let begun = Instant::now();
        loop {
            if let Some(at) = self.seen.find(text) {
                let rest = self.seen.split_off(at + text.len());
                let mut shown = std::mem::replace(&mut self.seen, rest);
                shown.truncate(at);
                return shown;
            }
            assert!(begun.elapsed() < PATIENCE, "{text:?} does not come: {:?}", self.seen);
            assert!(self.read(), "the terminal closed before {text:?} came: {:?}", self.seen);
        }
    }

    /// Reads up to the next line break, and forgets what was shown up to it.
    #[track_caller]
    pub fn line(&mut self) -> String {
        self.expect("\n").trim_end().to_owned()
    }

    /// Reads once, for a second at most. `false`: there will be no more.
    fn read(&mut self) -> bool {
        let mut looked = [PollFd::from_borrowed_fd(self.end.as_fd(), PollFlags::IN)];
        let second = Timespec { tv_sec: 1, tv_nsec: 0 };
        if matches!(rustix::io::retry_on_intr(|| poll(&mut looked, Some(&second))), Ok(0)) {
            return true;
        }
        let mut room = [0_u8; 4096];
        match rustix::io::read(&self.end, &mut room) {
            Ok(count @ 1..) => {
                self.seen.push_str(&String::from_utf8_lossy(room.get(..count).unwrap_or_default()));
                true
            }
            Ok(_) | Err(_) => false,
        }
    }

    /// Waits for the program to end, with the terminal read meanwhile, and says how: exit code and what was shown.
    pub fn end(mut self) -> (i32, String) {
        let begun = Instant::now();
        while self.read() && !self.held.is_over() {
            assert!(begun.elapsed() < PATIENCE, "it hangs: {:?}", self.seen);
        }
        (self.held.end().code, self.seen)
    }

    /// Takes the terminal away, as a closed window does, and waits for the program to end.
    pub fn close(self) -> i32 {
        drop(self.end);
        self.held.end().code
    }
}

fn set_size(end: &OwnedFd, rows: u16, columns: u16) {
    let size = Winsize { ws_row: rows, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(end, size).expect("resize the terminal");
}
