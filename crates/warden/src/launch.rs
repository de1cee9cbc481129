//! The parent's half of a new box.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use blastbox_sys::cgroup::Group;
use blastbox_sys::channel;
use blastbox_sys::fork::{self, Side, Unshare};
use blastbox_sys::mount::{self, Attributes, Beneath};
use blastbox_sys::namespaces::{self, DenyGroups, IdRow};
use blastbox_wire::plan::{self, CheckedPlan, First, Ids, Network, Plan, Step};

use rustix::process::Pid;

use crate::apply::{Making, become_agent};
use crate::boxes::Live;
use crate::embryos::Embryo;
use crate::gathered::directory;
use crate::groups::new_name;
use crate::ids::{self, Slot};
use crate::lifted;
use crate::networks::{self, Networks};
use crate::places::Places;
use crate::standing::Standing;
use crate::template::{Root, Templates};
use crate::trouble::{Trouble, Trying};

/// Starts a box: makes its group, forks into its namespaces, and leaves the rest to the child. `descriptors` are those
/// that came with the plan, the control channel first.
pub(crate) fn launch(
    standing: &mut Standing,
    templates: &mut Templates,
    networks: &mut Networks,
    plan: &CheckedPlan,
    descriptors: Vec<OwnedFd>,
) -> Result<Live, Trouble> {
    let (control, directories) = split(descriptors)?;
    put_together(standing, templates, networks, plan.plan(), Some(&control), &directories)
}

/// The control channel, and what else came with a plan.
pub(crate) fn split(mut descriptors: Vec<OwnedFd>) -> Result<(OwnedFd, Vec<OwnedFd>), Trouble> {
    if descriptors.is_empty() {
        return Err(Trouble::plain("find the control channel"));
    }
    let directories = descriptors.split_off(1);
    let control = descriptors.pop().ok_or_else(|| Trouble::plain("find the control channel"))?;
    Ok((control, directories))
}

/// The same for a box that nobody has asked for yet: it waits for its control channel. Its name is nobody's.
pub(crate) fn expect(
    standing: &mut Standing,
    templates: &mut Templates,
    networks: &mut Networks,
    plan: &CheckedPlan,
) -> Result<Live, Trouble> {
    let id = new_name()?;
    let live = put_together(standing, templates, networks, plan.plan(), None, &[])?;
    Ok(Live { id, unborn: true, ..live })
}

/// Gives the first process that waited its box: the host name, and the control channel.
pub(crate) fn hatch(live: &Live, embryo: &Embryo, control: BorrowedFd<'_>) -> Result<(), Trouble> {
    namespaces::enter_host_name(embryo.host.as_fd()).tried("enter the box's host name")?;
    let named = rustix::system::sethostname(live.id.as_host_name().as_bytes());
    namespaces::enter_host_name(embryo.home.as_fd()).tried("go back to the own host name")?;
    named.tried("set the box's host name")?;
    let Some(line) = &live.making else { return Err(Trouble::plain("find the box that waited")) };
    channel::send(line, b"b", &[control]).tried("hand over the control channel")
}

fn put_together(
    standing: &mut Standing,
    templates: &mut Templates,
    networks: &mut Networks,
    plan: &Plan,
    control: Option<&OwnedFd>,
    directories: &[OwnedFd],
) -> Result<Live, Trouble> {
    ids::fits(plan.ids, standing.ids.is_some())?;
    let (slot, block) = match plan.ids {
        Ids::OwnRange => (standing.ids.as_mut().map(ids::Block::slot).transpose()?, None),
        Ids::OwnBlock => {
            let block = ids::Block::take()?;
            (Some(block.whole()), Some(block))
        }
        Ids::CallerOnly => (None, None),
    };
    let made = make(standing, templates, networks, plan, control, directories, slot)
        .map(|live| Live { block, ..live });
    if let (Err(_), Some(slot), Some(ids)) = (&made, slot, standing.ids.as_mut()) {
        ids.free(slot);
    }
    made
}

fn make(
    standing: &mut Standing,
    templates: &mut Templates,
    networks: &mut Networks,
    plan: &Plan,
    control: Option<&OwnedFd>,
    directories: &[OwnedFd],
    slot: Option<Slot>,
) -> Result<Live, Trouble> {
    let workspace = copy_workspace(standing, templates, plan, directories, slot)?;
    let owners = match (plan.ids, slot) {
        (Ids::OwnBlock, Some(slot)) => Some(table_of_owners(standing, &slot.rows(), &slot.rows())?),
        _ => None,
    };
    let root = match templates.enter(standing, &plan.template, directories) {
        Ok(root) => root,
        Err(trouble) => {
            templates.abandon(standing)?;
            return Err(trouble);
        }
    };
    let mut network = networks.take_ready();
    let gateway = match plan.network {
        Network::Gateway { slot, loopback: _ } => {
            let network = match &network {
                Some(network) => network,
                None => network.insert(networks::make(standing.proc.as_fd())?),
            };
            Some(networks::link(standing, network.as_fd(), descriptor(directories, slot)?)?)
        }
        Network::Card { slot } => {
            Some(descriptor(directories, slot)?.try_clone().tried("keep the line to the box's gateway")?)
        }
        Network::Empty | Network::Loopback => None,
    };
    standing.settle();
    standing.filter(&plan.first, plan.denials)?;
    let group = standing.groups.take(plan)?;
    let places = Places {
        workspace: workspace.as_ref().map(AsFd::as_fd),
        owners: owners.as_ref().map(AsFd::as_fd),
        root: slot.map_or(0, |slot| slot.agent),
        payload: slot.map_or(0, |slot| slot.payload),
        template_shows_processes: slot.is_none(),
    };
    let control = Handed { control, directories };
    match start(standing, plan, group.as_ref(), control, network.as_ref(), root, places) {
        Ok((pid, line)) => {
            let sent = send_network(standing, network.is_none(), &line);
            let id = plan.box_id.clone();
            let live = Live {
                id,
                pid,
                group,
                slot,
                block: None,
                making: Some(line),
                _gateway: gateway,
                tabled: false,
                until: None,
                kept: None,
                unborn: false,
                trouble: sent.err(),
            };
            if live.trouble.is_some() {
                live.kill();
            }
            Ok(live)
        }
        Err(trouble) => {
            if let Some(group) = group {
                // No process was ever in it: its ids are free whether or not it goes.
                standing.groups.give_back(group, None);
            }
            Err(trouble)
        }
    }
}

/// Makes the network of a box that was started without one: its first process makes its places meanwhile.
fn send_network(standing: &Standing, wanted: bool, line: &OwnedFd) -> Result<(), Trouble> {
    if !wanted {
        return Ok(());
    }
    let network = networks::make(standing.proc.as_fd())?;
    channel::send(line, b"n", &[network.as_fd()]).tried("hand over the box's network")
}

fn start(
    standing: &Standing,
    plan: &Plan,
    group: Option<&Group>,
    handed: Handed<'_>,
    network: Option<&OwnedFd>,
    root: Root,
    places: Places<'_>,
) -> Result<(Pid, OwnedFd), Trouble> {
    let inherits = handed.inherits(&plan.first)?;
    let (ours, theirs) = channel::pair().tried("make a line to the new process")?;
    let birthplace = group.map_or(Ok(None), |group| standing.groups.birthplace(group))?;
    let birthplace = birthplace.as_ref().map(AsFd::as_fd);
    let apart = if lifted::PROCESSES { Unshare::BOX_AMONG_OTHERS } else { Unshare::BOX };
    match fork::fork(&standing.proof, apart, birthplace).tried("make the box's first process (clone3)")? {
        Side::Parent(pid) => Ok((pid, ours)),
        Side::Child => {
            // Only the parent may hold its end: if it goes, the child must see that.
            drop(ours);
            let making = Making {
                plan,
                standing,
                group,
                root,
                places,
                network: network.map(AsFd::as_fd),
                control: handed.control.map(AsFd::as_fd),
                inherits,
                parent: theirs.as_fd(),
            };
            let Err(trouble) = become_agent(making);
            channel::send(&theirs, &encode_trouble(&trouble), &[]).ok();
            fork::leave(125)
        }
    }
}

/// What came with a plan.
#[derive(Clone, Copy)]
struct Handed<'a> {
    control: Option<&'a OwnedFd>,
    directories: &'a [OwnedFd],
}

impl<'a> Handed<'a> {
    /// What the first process inherits of it, beside the control channel.
    fn inherits(self, first: &First) -> Result<Vec<BorrowedFd<'a>>, Trouble> {
        let First::Monitor(monitor) = first else { return Ok(Vec::new()) };
        monitor.inherits.iter().map(|slot| descriptor(self.directories, *slot).map(AsFd::as_fd)).collect()
    }
}

/// Something that came with the plan, other than a directory.
fn descriptor(descriptors: &[OwnedFd], slot: plan::Slot) -> Result<&OwnedFd, Trouble> {
    let place = usize::from(slot.0).checked_sub(1);
    place
        .and_then(|place| descriptors.get(place))
        .ok_or_else(|| Trouble::plain("find a descriptor that should have come with the plan"))
}

/// What the child says of its failure: "f", the errno, what it tried.
fn encode_trouble(trouble: &Trouble) -> Vec<u8> {
    let mut bytes = vec![b'f'];
    bytes.extend_from_slice(&trouble.errno.to_be_bytes());
    bytes.extend(trouble.tried.bytes().take(200));
    bytes
}

/// Reads what the child said.
pub(crate) fn decode_trouble(bytes: &[u8]) -> Option<Trouble> {
    let (&[b'f', a, b, c, d], text) = bytes.split_first_chunk::<5>()? else { return None };
    let tried = String::from_utf8_lossy(text).into_owned();
    Some(Trouble { tried: tried.into(), errno: i32::from_be_bytes([a, b, c, d]) })
}

/// Writes the tables of the box's users and lets the child go on.
pub(crate) fn give_users(standing: &Standing, live: &Live) -> Result<(), Trouble> {
    let rows = live.slot.map_or(vec![IdRow { inside: 1000, outside: 0, count: 1 }], Slot::rows);
    // Where the one row is all there is, further groups stay denied, as the warden's own tables demand.
    let deny = if live.slot.is_some() { DenyGroups::No } else { DenyGroups::Yes };
    namespaces::write_maps(standing.proc.as_fd(), &live.pid.as_raw_nonzero().to_string(), &rows, &rows, deny)
        .tried("write the tables of the box's users")?;
    let Some(line) = &live.making else { return Err(Trouble::plain("answer a box that is made already")) };
    channel::send(line, b"g", &[]).tried("let the box go on")
}

/// A read-only copy of the mount of the caller's directory, made where the caller's mounts are in reach.
fn copy_workspace(
    standing: &Standing,
    templates: &mut Templates,
    plan: &Plan,
    directories: &[OwnedFd],
    slot: Option<Slot>,
) -> Result<Option<OwnedFd>, Trouble> {
    let workspace = plan.own.iter().find_map(|step| match step {
        Step::Workspace { slot, .. } => Some(slot.0),
        _ => None,
    });
    let Some(number) = workspace else { return Ok(None) };
    templates.leave(standing)?;
    let host = standing.local(directory(directories, number)?)?;
    let copy = mount::copy(&host, "", Beneath::LeftOut).tried("copy the workspace")?;
    mount::restrict(copy.as_fd(), Attributes::PLAIN.read_only(), Beneath::LeftOut)
        .tried("make the workspace read-only")?;
    if let Some(slot) = slot {
        let stat = rustix::fs::fstat(&host).tried("look at the workspace")?;
        // The owner of the workspace becomes the payload, everybody else stays who they are (and is nobody in the box).
        let row = |owner| all_but_one(owner, slot.payload);
        let owners = table_of_owners(standing, &row(stat.st_uid), &row(stat.st_gid))?;
        // A file system that cannot do this shows the box less, never more: the owners stay foreign to it.
        mount::map_owners(copy.as_fd(), owners.as_fd()).ok();
    }
    Ok(Some(copy))
}

/// A user namespace that is nothing but a table: how owners of files are shown.
fn table_of_owners(standing: &Standing, users: &[IdRow], groups: &[IdRow]) -> Result<OwnedFd, Trouble> {
    let (ours, theirs) = channel::pair().tried("make a line to a helper process")?;
    match fork::fork(&standing.proof, Unshare::USERS, None).tried("make a table of owners")? {
        Side::Child => {
            drop(ours);
            // Waits until the parent has what it wants, or is gone.
            channel::receive(&theirs, &mut [0_u8; 1]).ok();
            fork::leave(0)
        }
        Side::Parent(pid) => {
            let process = pid.as_raw_nonzero().to_string();
            let opened =
                namespaces::write_maps(standing.proc.as_fd(), &process, users, groups, DenyGroups::No)
                    .and_then(|()| namespaces::open(standing.proc.as_fd(), &process, "user"));
            rustix::process::kill_process(pid, rustix::process::Signal::KILL)
                .tried("end a helper process")?;
            rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty())
                .tried("collect a helper process")?;
            opened.tried("write the table of owners")
        }
    }
}

/// Every id as itself, except that `owner` becomes `payload`. The payload's own number shows nothing.
fn all_but_one(owner: u32, payload: u32) -> Vec<IdRow> {
    let mut rows = vec![IdRow { inside: owner, outside: payload, count: 1 }];
    let (low, high) = (owner.min(payload), owner.max(payload));
    let last = u32::MAX - 1;
    for (first, end) in [(0, low), (low.saturating_add(1), high), (high.saturating_add(1), last)] {
        if first < end {
            rows.push(IdRow { inside: first, outside: first, count: end - first });
        }
    }
    rows
}
