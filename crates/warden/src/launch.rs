//! The parent's half of a new box.

use std::convert::Infallible;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use blastbox_sys::cgroup::Group;
use blastbox_sys::channel;
use blastbox_sys::first;
use blastbox_sys::fork::{self, Side, Unshare};
use blastbox_sys::namespaces::{self, DenyGroups, IdRow};
use blastbox_sys::shortcut::Loopback;
use blastbox_wire::plan::{self, CheckedPlan, First, Ids, Network, Plan};
use rustix::process::Pid;

use crate::apply::{Making, become_agent, settle_in};
use crate::boxes::Live;
use crate::embryos::Embryo;
use crate::forerunner;
use crate::given::{copy_given, table_of_owners};
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
            let block = standing.take_block()?;
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
    let given = copy_given(standing, templates, plan, directories, slot)?;
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
        Network::Gateway { slot, loopback } => {
            let network = match &network {
                Some(network) => network,
                None => network.insert(networks::make(standing.proc.as_fd())?),
            };
            let loopback = if loopback { Loopback::Open } else { Loopback::Shut };
            Some(networks::link(standing, network.as_fd(), descriptor(directories, slot)?, loopback)?)
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
        given: &given,
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
            let live =
                Live { slot, _gateway: gateway, trouble: sent.err(), ..Live::new(id, pid, group, line) };
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

/// Goes on with a first process that is there already and waits for its plan.
pub(crate) fn go_on(
    standing: &mut Standing,
    networks: &mut Networks,
    plan: &CheckedPlan,
    descriptors: Vec<OwnedFd>,
    live: &mut Live,
) -> Result<(), Trouble> {
    let plan = plan.plan();
    ids::fits(plan.ids, standing.ids.is_some())?;
    // Given back when the box is buried, as all that is in it.
    live.slot = standing.ids.as_mut().map(ids::Block::slot).transpose()?;
    let (control, _) = split(descriptors)?;
    let Some(line) = &live.making else { return Err(Trouble::plain("find the box that waits")) };
    forerunner::give_plan(line, plan, live.slot, control.as_fd())?;
    let network = match networks.take_ready() {
        Some(ready) => ready,
        None => networks::make(standing.proc.as_fd())?,
    };
    channel::send(line, b"n", &[network.as_fd()]).tried("hand over the box's network")
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
    let (network, control) = (network.map(AsFd::as_fd), handed.control.map(AsFd::as_fd));
    first_process(standing, group, |parent| {
        become_agent(Making { plan, standing, root, places, network, control, inherits, parent })
    })
}

/// Forks the first process of a box, which settles in and begins; and the line to it.
pub(crate) fn first_process(
    standing: &Standing,
    group: Option<&Group>,
    begin: impl FnOnce(BorrowedFd<'_>) -> Result<Infallible, Trouble>,
) -> Result<(Pid, OwnedFd), Trouble> {
    let (ours, theirs) = channel::pair().tried("make a line to the new process")?;
    let birthplace = group.map_or(Ok(None), |group| standing.groups.birthplace(group))?;
    let birthplace = birthplace.as_ref().map(AsFd::as_fd);
    let apart = if lifted::PROCESSES { Unshare::BOX_AMONG_OTHERS } else { Unshare::BOX };
    let before = first::processor();
    match fork::fork(&standing.proof, apart, birthplace).tried("make the box's first process (clone3)")? {
        Side::Parent(pid) => {
            // It has its places to make while its network is made here.
            first::elsewhere(pid.as_raw_nonzero().get());
            Ok((pid, ours))
        }
        Side::Child => {
            first::go_elsewhere(before);
            // Only the parent may hold its end: if it goes, the child must see that.
            drop(ours);
            let Err(trouble) = settle_in(standing, group).and_then(|()| begin(theirs.as_fd()));
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
pub(crate) fn encode_trouble(trouble: &Trouble) -> Vec<u8> {
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
