//! The child's half of a new box: the table of contents of the jail.
//!
//! Each line of [`become_agent`] is one layer. The order matters: mounts while there is power to mount; users when all
//! namespaces belong to somebody else; Landlock, capabilities and the filter last; then the agent or the one monitor
//! that the plan names, and never anything else. A layer that cannot be put on fails the launch.

use std::convert::Infallible;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use blastbox_sys::cgroup::Group;
use blastbox_sys::identity::{self, Groups, Keep};
use blastbox_sys::landlock::{self, Access, Tcp};
use blastbox_sys::{channel, namespaces, program};
use blastbox_wire::plan::{Cgroups, Denials, First, GrantAccess, Ids, Limits, Network, Plan};
use rustix::fs::{Mode, OFlags, open};
use rustix::process::Resource;

use crate::lifted;
use crate::monitor;
use crate::places::Places;
use crate::standing::Standing;
use crate::template::{self, Root};
use crate::trouble::{Trouble, Trying};

/// Numbers of what the agent inherits.
const CONTROL: i32 = 3;
const DENIALS: i32 = 4;
/// The line to the parent, of a box that waits to be asked for.
const LINE: i32 = 5;

/// Everything that the child's half needs.
#[derive(Debug)]
pub(crate) struct Making<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) standing: &'a Standing,
    pub(crate) root: Root,
    pub(crate) places: Places<'a>,
    /// The box's own network, in which nothing is up; `None`: it comes by the line to the parent.
    pub(crate) network: Option<BorrowedFd<'a>>,
    /// The agent's end of the control channel; `None`: nobody has asked for this box yet, and it waits for that.
    pub(crate) control: Option<BorrowedFd<'a>>,
    /// What a monitor inherits beside that.
    pub(crate) inherits: Vec<BorrowedFd<'a>>,
    /// The line to the parent: "m" asks for the tables of users, any answer means go.
    pub(crate) parent: BorrowedFd<'a>,
}

/// What needs no plan: the box's group, and what is taken on by whoever is in it.
pub(crate) fn settle_in(standing: &Standing, group: Option<&Group>) -> Result<(), Trouble> {
    if let Some(group) = group {
        standing.groups.join(group)?;
    }
    identity::ordinary_scheduling().tried("take the ordinary scheduler")?;
    namespaces::write_at(&standing.proc, "self/oom_score_adj", b"900").tried("volunteer for the OOM killer")
}

/// Turns this process, which has settled in, into the agent of the box. Returns only if that fails.
pub(crate) fn become_agent(making: Making<'_>) -> Result<Infallible, Trouble> {
    let Making { plan, standing, root, places, network, control, inherits, parent } = making;
    match root {
        Root::Template => {}
        Root::Own(gathered) => template::build(standing, &plan.template, gathered)?,
    }
    places.make(&plan.own)?;
    rustix::system::sethostname(plan.box_id.as_host_name().as_bytes()).tried("set the box's host name")?;
    enter_network(network, parent)?;
    if matches!(plan.network, Network::Loopback | Network::Gateway { loopback: true, .. }) {
        namespaces::loopback_up().tried("bring the box's loopback up")?;
    }
    namespaces::own_cgroup_view().tried("hide the cgroups above")?;
    let null = open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())
        .tried("open /dev/null in the box")?;
    namespaces::own_users().tried("make the box's users")?;
    channel::send(parent, b"m", &[]).tried("ask for the box's users")?;
    // What needs no user is done while the parent writes the tables: it has to wake up for that, which takes as long.
    // Should `unshare` or `clone` ever get past the filter, the kernel still makes no user namespace in this one, and without
    // one there is no root to be. Where the host keeps /proc/sys read-only the filter stands alone.
    // And what a box watches counts as its maker's, who has 128 of them on most hosts: one box must not take them all.
    for (name, most) in
        [("max_user_namespaces", "0"), ("max_inotify_instances", "32"), ("max_inotify_watches", "16384")]
    {
        let write = |place| namespaces::write_at(place, &format!("sys/user/{name}"), most.as_bytes());
        // Where a host lets nobody write to what is attached nowhere, its own has to do.
        write(standing.settings()).or_else(|_| write(standing.proc.as_fd())).ok();
    }
    rustix::process::setsid().tried("leave the caller's session")?;
    identity::no_new_privileges().tried("give up new privileges")?;
    restrict_files(plan)?;
    wait_for_tables(parent)?;
    take_on_user(plan)?;
    limit_processes(plan)?;
    identity::die_with_parent().tried("tie the box's life to the warden's")?;
    for number in 0..=2 {
        program::place(null.as_fd(), number).tried("close the standard streams")?;
    }
    let monitor = match (&plan.first, control) {
        (First::Agent, _) => None,
        (First::Monitor(monitor), Some(control)) => {
            // Before the filter: a monitor then needs no call for what is done for it here.
            program::place(control, CONTROL).tried("hand over the control channel")?;
            let number = standing.monitor_program()?;
            let parent = parent.as_raw_fd();
            Some(monitor::Ready::find(monitor, number, plan.limits.open_files, parent, &inherits)?)
        }
        (First::Monitor(_), None) => return Err(Trouble::plain("start a monitor that nobody asked for")),
    };
    let listener = if lifted::SECCOMP {
        None
    } else {
        standing.filter(&plan.first, plan.denials)?.install().tried("install the system-call filter")?
    };
    if let Some(listener) = &listener {
        program::place(listener.as_fd(), DENIALS).tried("hand over the denials")?;
    }
    if let Some(monitor) = monitor {
        return monitor.start();
    }
    match control {
        Some(control) => program::place(control, CONTROL).tried("hand over the control channel")?,
        None => wait_to_be_asked_for(parent)?,
    }
    identity::limit(Resource::Nofile, u64::from(plan.limits.open_files)).tried("limit open files")?;
    let arguments = blastbox_agent::Arguments {
        control: CONTROL,
        denials: listener.as_ref().map(|_| DENIALS),
        writes: (plan.denials == Denials::WithWrites && listener.is_some())
            .then(|| blastbox_agent::Workplace::of(plan)),
        lends: false,
        root: plan.ids == Ids::OwnBlock,
        nurse: None,
    };
    blastbox_sys::fork::leave(i32::from(blastbox_agent::run(&arguments)))
}

/// Waits until somebody wants this box. Whoever waits holds nothing that is another's: a line that it kept open would look
/// alive to whoever waits for its end.
fn wait_to_be_asked_for(parent: BorrowedFd<'_>) -> Result<(), Trouble> {
    let line = program::place_last(parent, LINE).tried("let go of what is the warden's")?;
    let received = channel::receive(&line, &mut [0_u8; 1]).tried("wait to be asked for")?;
    match received.as_ref().and_then(|(_, fds)| fds.first()) {
        Some(control) => program::place(control.as_fd(), CONTROL).tried("hand over the control channel"),
        None => Err(Trouble::plain("wait to be asked for: the warden is gone")),
    }
}

/// The network that was ready, or the one that the parent has made meanwhile.
fn enter_network(ready: Option<BorrowedFd<'_>>, parent: BorrowedFd<'_>) -> Result<(), Trouble> {
    let enter = |network| match lifted::NETWORK {
        true => Ok(()),
        false => namespaces::enter_network(network).tried("enter the box's network"),
    };
    if let Some(network) = ready {
        return enter(network);
    }
    let received = channel::receive(parent, &mut [0_u8; 1]).tried("wait for the box's network")?;
    match received.as_ref().and_then(|(_, fds)| fds.first()) {
        Some(network) => enter(network.as_fd()),
        None => Err(Trouble::plain("wait for the box's network: the warden is gone")),
    }
}

/// The tables can only be written from outside. If the parent is gone, so is the reason to go on.
fn wait_for_tables(parent: BorrowedFd<'_>) -> Result<(), Trouble> {
    let mut answer = [0_u8; 1];
    match channel::receive(parent, &mut answer).tried("wait for the box's users")? {
        Some(_) => Ok(()),
        None => Err(Trouble::plain("wait for the box's users: the warden is gone")),
    }
}

fn take_on_user(plan: &Plan) -> Result<(), Trouble> {
    let (uid, groups, keep) = match (plan.ids, &plan.first) {
        (Ids::OwnRange, First::Agent) if lifted::USERS => (1000, Groups::Clear, Keep::Nothing),
        (Ids::OwnRange, First::Agent) => (0, Groups::Clear, Keep::ForAgent),
        (Ids::OwnBlock, _) => (0, Groups::Clear, Keep::ForAgentOfRoot),
        // A monitor starts nobody as somebody else.
        (Ids::OwnRange, First::Monitor(_)) => (1000, Groups::Clear, Keep::Nothing),
        (Ids::CallerOnly, _) => (1000, Groups::Leave, Keep::Nothing),
    };
    identity::become_user(uid, uid, groups).tried("become the box's user")?;
    identity::own_keyring().tried("make a keyring for the box")?;
    if lifted::CAPABILITIES {
        return Ok(());
    }
    identity::reduce_capabilities(keep).tried("drop capabilities")
}

fn limit_processes(plan: &Plan) -> Result<(), Trouble> {
    // Open files are limited last: until then this process holds what it needs to make the box, and all of the warden's.
    let Limits { millicpus: _, memory, pids, open_files: _, file_size } = plan.limits;
    // A monitor and all that it starts are one user, as many as the group counts: the group is to refuse first, because it
    // says so.
    let processes = match (&plan.first, plan.cgroups) {
        (First::Monitor(_), Cgroups::Enforce { pids: true, .. }) => pids.saturating_add(1),
        _ => pids,
    };
    let mut limits = vec![
        (Resource::Core, identity::NO_CORE),
        (Resource::Fsize, file_size),
        (Resource::Nproc, u64::from(processes)),
        (Resource::Memlock, 64 * 1024),
        (Resource::Msgqueue, 0),
        (Resource::Nice, 0),
        (Resource::Rtprio, 0),
        (Resource::Stack, 8 * 1024 * 1024),
        (Resource::Sigpending, 1024),
    ];
    // Without a group that counts memory, each process at least cannot have more than the box should have.
    if !matches!(plan.cgroups, Cgroups::Enforce { memory: true, .. }) {
        limits.push((Resource::Data, memory));
    }
    for (resource, most) in limits {
        identity::limit(resource, most).tried_with(|| format!("limit {resource:?}"))?;
    }
    Ok(())
}

fn restrict_files(plan: &Plan) -> Result<(), Trouble> {
    if lifted::LANDLOCK || (plan.landlock.least_abi == 0 && landlock::abi() == 0) {
        return Ok(());
    }
    // Names may be listed everywhere: there is nothing in the box's root that was not put there for it.
    let root =
        open("/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).tried("open the root for Landlock")?;
    let mut opened: Vec<(OwnedFd, Access)> = vec![(root, Access::List)];
    for grant in &plan.landlock.grants {
        let access = match grant.access {
            GrantAccess::Read => Access::ReadOnly,
            GrantAccess::ReadExecute => Access::ReadExecute,
            GrantAccess::ReadWrite => Access::ReadWrite,
            GrantAccess::ReadWriteExecute => Access::ReadWriteExecute,
            GrantAccess::Devices => Access::Devices,
            GrantAccess::Terminals => Access::Terminals,
            GrantAccess::Shared => Access::Shared,
        };
        let place = open(grant.at.as_str(), OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
            .tried_with(|| format!("open {} for Landlock", grant.at))?;
        opened.push((place, access));
    }
    let grants: Vec<_> = opened
        .iter()
        .map(|(place, access)| landlock::Grant { dir: place.as_fd(), access: *access })
        .collect();
    // Where there is no loopback there is nothing to connect to, and Landlock says so once more.
    let tcp = match plan.network {
        Network::Empty | Network::Card { .. } => Tcp::DenyAll,
        // Which hosts and ports can be reached is for the gateway to say: it knows names, Landlock only numbers.
        Network::Loopback | Network::Gateway { .. } => Tcp::AllowAll,
    };
    landlock::restrict(&grants, tcp, plan.landlock.least_abi).tried("restrict files with Landlock").map(drop)
}
