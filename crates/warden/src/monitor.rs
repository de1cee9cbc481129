//! The last step of a box that has a monitor instead of the agent: its first process becomes that program.

use std::convert::Infallible;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, OwnedFd};

use blastbox_sys::program;
use blastbox_sys::seccomp::MONITOR_PROGRAM;
use blastbox_wire::plan::Monitor;
use rustix::fs::{Mode, OFlags, open};

use crate::trouble::{Trouble, Trying};

/// The first descriptor that no monitor inherits: 0 to 2 are nothing, 3 is the control channel.
const FIRST_FOREIGN: u32 = 4;

/// A monitor that only has to be executed.
#[derive(Debug)]
pub(crate) struct Ready {
    program: OwnedFd,
    arguments: Vec<CString>,
    environment: Vec<CString>,
}

impl Ready {
    /// Finds the program in the box's own root, before there is a filter.
    pub(crate) fn find(monitor: &Monitor) -> Result<Self, Trouble> {
        let Monitor { kind: _, program, arguments, environment } = monitor;
        let found = open(program.as_str(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
            .tried_with(|| format!("open {program} in the box"))?;
        Ok(Self { program: found, arguments: texts(arguments)?, environment: texts(environment)? })
    }

    /// Becomes the program. It inherits the control channel and nothing else.
    pub(crate) fn start(self) -> Result<Infallible, Trouble> {
        program::close_on_execute_from(FIRST_FOREIGN).tried("let go of what is the warden's")?;
        // The warden hears of signals by a descriptor; a monitor catches the faults of what it runs.
        blastbox_sys::spawn::hear_signals().tried("let the monitor hear signals")?;
        let arguments: Vec<&CStr> = self.arguments.iter().map(CString::as_c_str).collect();
        let environment: Vec<&CStr> = self.environment.iter().map(CString::as_c_str).collect();
        Err(program::execute_at(self.program.as_fd(), MONITOR_PROGRAM, &arguments, &environment))
            .tried("become the monitor")
    }
}

fn texts(texts: &[String]) -> Result<Vec<CString>, Trouble> {
    let texts = texts.iter().map(|text| CString::new(text.as_str()));
    texts.collect::<Result<_, _>>().map_err(|_| Trouble::plain("hand over the monitor's arguments"))
}
