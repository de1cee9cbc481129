//! What a warden is asked. Whoever asks may have been taken over, and the warden is root: it reads a request back or refuses it, and never
//! worse. The seeds of the fuzz target are replayed here, with every byte of them changed and every end cut off.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail at once")]

mod broken;

use std::path::Path;

use blastbox_wire::plan::{
    Cgroups, Denials, DeviceName, Exec, First, Grant, GrantAccess, GuestPath, Ids, Landlock, Limits, Monitor,
    MonitorKind, Network, Owner, Plan, Slot, Step, WorkspaceAccess,
};
use blastbox_wire::warden::Ask;
use blastbox_wire::{BoxId, CodecError};

use self::broken::{changed_and_cut, lying};

fn at(text: &str) -> GuestPath {
    text.parse().unwrap()
}

fn id() -> BoxId {
    BoxId::from_random([7; 20])
}

/// Steps of every kind that a jail's plan may have, in an order that holds.
fn plan(network: Network) -> Plan {
    let exec = Exec::Denied;
    let scratch = |place: &str, owner| Step::ScratchDirectory { at: at(place), owner, exec };
    let text = "box\n".to_owned();
    Plan {
        box_id: id(),
        template: vec![
            Step::Directory { at: at("/etc") },
            Step::File { at: at("/etc/hostname"), text: text.clone() },
            Step::Cover { at: at("/etc/hosts"), text },
            Step::Link { at: at("/bin"), to: "usr/bin".to_owned() },
            Step::HostView { path: at("/usr") },
            Step::Image { slot: Slot(1) },
            Step::Show { slot: Slot(2), at: at("/opt/shown") },
            Step::Device { name: DeviceName::Null },
        ],
        own: vec![
            Step::Scratch { bytes: 1 << 20, inodes: 100 },
            scratch("/tmp", Owner::Everybody),
            scratch("/mnt", Owner::Root),
            Step::Volume { slot: Slot(3), at: at("/mnt/kept"), exec },
            Step::Workspace {
                slot: Slot(2),
                at: at("/workspace"),
                access: WorkspaceAccess::CopyOnWrite,
                exec,
            },
            Step::Writable { at: at("/opt") },
            Step::Trust { authority: String::new() },
            Step::Processes,
            Step::Terminals,
        ],
        ids: Ids::OwnBlock,
        network,
        cgroups: Cgroups::Enforce { memory: true, cpu: true, pids: true },
        limits: Limits { millicpus: 1_000, memory: 64 << 20, pids: 10, open_files: 64, file_size: 1 << 20 },
        landlock: Landlock {
            least_abi: 1,
            grants: vec![
                Grant { at: at("/usr"), access: GrantAccess::ReadExecute },
                Grant { at: at("/mnt/kept"), access: GrantAccess::Shared },
            ],
        },
        denials: Denials::Reported,
        first: First::Agent,
    }
}

fn samples() -> Vec<(&'static str, Ask)> {
    let launch = |network| Ask::Launch(Box::new(plan(network)));
    let monitor = First::Monitor(Monitor {
        kind: MonitorKind::Qemu,
        program: at("/monitor"),
        arguments: vec!["monitor".to_owned(), "-nodefaults".to_owned()],
        environment: vec!["LANG=C".to_owned()],
        inherits: vec![Slot(1), Slot(4)],
    });
    let machine = Plan { first: monitor, ..plan(Network::Card { slot: Slot(4) }) };
    vec![
        ("launch-monitor", Ask::Launch(Box::new(machine))),
        ("launch", launch(Network::Loopback)),
        ("launch-with-gateway", launch(Network::Gateway { slot: Slot(4), loopback: true })),
        ("kill", Ask::Kill(id())),
        ("sweep", Ask::Sweep),
        ("pause", Ask::Pause(id())),
        ("resume", Ask::Resume(id())),
        ("until", Ask::Until { box_id: id(), millis: 9 }),
        ("keep", Ask::Keep(id())),
        ("listen", Ask::Listen),
        ("count", Ask::Count(id())),
    ]
}

/// What a warden makes of bytes: nothing, or something that it would write and read as the same; a plan is held against the rules, which
/// answer and do no worse.
fn read(bytes: &[u8]) {
    let Ok(ask) = Ask::decode(bytes) else { return };
    assert_eq!(Ask::decode(&ask.encode()).as_ref(), Ok(&ask));
    if let Ask::Launch(plan) = ask {
        plan.check(5).ok();
    }
}

#[test]
fn a_seed_is_what_its_name_says() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/to_warden");
    for (name, ask) in samples() {
        assert_eq!(std::fs::read(corpus.join(name)).unwrap(), ask.encode(), "{name}");
        assert_eq!(Ask::decode(&ask.encode()), Ok(ask), "{name}");
    }
}

#[test]
fn the_plans_among_them_are_carried_out() {
    for network in [Network::Loopback, Network::Gateway { slot: Slot(4), loopback: true }] {
        plan(network).check(5).unwrap();
    }
}

#[test]
fn changed_and_cut_requests_are_refused_or_read_back() {
    for (_, ask) in samples() {
        changed_and_cut(&ask.encode(), read);
    }
}

/// By the reader's own bound, and not because the request ends before: nothing is read, or made room for, by such a length.
#[test]
fn a_lying_length_is_refused_by_its_bound() {
    let mut lied = 0;
    for (name, ask) in samples() {
        let whole = ask.encode();
        for text in ["/etc/hostname", "usr/bin", "/workspace", "/mnt/kept", "/usr", id().as_str()] {
            for changed in lying(&whole, text) {
                let most = usize::try_from(u32::MAX).unwrap();
                assert_eq!(Ask::decode(&changed), Err(CodecError::TooLong(most)), "{name} {text}");
                lied += 1;
            }
        }
    }
    assert!(lied >= 16, "only {lied} lengths were found");
}
