//! The last step of a box that has a monitor instead of the agent: its first process becomes that program.

use std::convert::Infallible;
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use blastbox_sys::{identity, program};
use blastbox_wire::plan::Monitor;
use rustix::fs::{Mode, OFlags, open};
use rustix::process::Resource;

use crate::trouble::{Trouble, Trying};

/// The first descriptor that is the plan's to give: 0 to 2 are nothing, 3 is the control channel.
const FIRST_OWN: u8 = 4;

/// A monitor that only has to be executed.
#[derive(Debug)]
pub(crate) struct Ready {
    program: OwnedFd,
    arguments: Vec<CString>,
    environment: Vec<CString>,
    /// The first descriptor that it does not inherit.
    foreign: u32,
}

impl Ready {
    /// Finds the program in the box's own root, before there is a filter, and puts it where nothing else will ever be: above
    /// the limit on open files, which holds from here on. `parent` is a line that must stay; `own` is what the plan has it
    /// inherit, below what the warden keeps.
    pub(crate) fn find(
        monitor: &Monitor,
        number: u16,
        open_files: u32,
        parent: i32,
        own: &[BorrowedFd<'_>],
    ) -> Result<Self, Trouble> {
        let Monitor { kind: _, program, arguments, environment, inherits: _ } = monitor;
        let mut foreign = FIRST_OWN;
        for fd in own {
            program::place(*fd, foreign.into()).tried("hand over what the monitor inherits")?;
            foreign = foreign.saturating_add(1);
        }
        let found = open(program.as_str(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
            .tried_with(|| format!("open {program} in the box"))?;
        // As low as possible each: whoever has reached that number has used up everything below.
        if parent.max(found.as_raw_fd()) >= i32::from(number) {
            return Err(Trouble::plain(
                "place the monitor: too many descriptors are open; end some boxes first",
            ));
        }
        let found =
            program::place_to_execute(found.as_fd(), number.into()).tried("put the monitor in its place")?;
        identity::limit(Resource::Nofile, open_files.min(number.into()).into()).tried("limit open files")?;
        let (arguments, environment) = (texts(arguments)?, texts(environment)?);
        Ok(Self { program: found, arguments, environment, foreign: foreign.into() })
    }

    /// Becomes the program. It inherits the control channel, what the plan names, and nothing else.
    pub(crate) fn start(self) -> Result<Infallible, Trouble> {
        program::close_on_execute_from(self.foreign).tried("let go of what is the warden's")?;
        // The warden hears of signals by a descriptor; a monitor catches the faults of what it runs.
        blastbox_sys::spawn::hear_signals().tried("let the monitor hear signals")?;
        let arguments: Vec<&CStr> = self.arguments.iter().map(CString::as_c_str).collect();
        let environment: Vec<&CStr> = self.environment.iter().map(CString::as_c_str).collect();
        Err(program::execute(self.program.as_fd(), &arguments, &environment)).tried("become the monitor")
    }
}

fn texts(texts: &[String]) -> Result<Vec<CString>, Trouble> {
    let texts = texts.iter().map(|text| CString::new(text.as_str()));
    texts.collect::<Result<_, _>>().map_err(|_| Trouble::plain("hand over the monitor's arguments"))
}
