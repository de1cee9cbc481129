//! A monitor as the first process of a box: it comes from a descriptor, holds nothing, and starts nothing where its filter says
//! so. Perl stands in for one, and writes what it finds to its control channel.
//!
//! Runs as whoever runs the tests. `BLASTBOX_BIN_DIR` names the directory of the built programs.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on must fail at once")]

use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use blastbox_images::Image;
use blastbox_isolation::tiers::jail;
use blastbox_isolation::{Facts, Heard, Request, Warden};
use blastbox_policy::{Gap, Profile};
use blastbox_wire::BoxId;
use blastbox_wire::plan::{
    Denials, DeviceName, First, Grant, GrantAccess, Monitor, MonitorKind, Network, Plan, Slot, Step,
    UnsafePlan,
};
use blastbox_wire::warden::{Answer, Ask};
use rustix::fs::{Mode, OFlags, open};

/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

fn programs() -> PathBuf {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/blastbox");
    std::env::var_os("BLASTBOX_BIN_DIR").map_or_else(beside, PathBuf::from)
}

/// A plan of the jail whose first process becomes a program that is shown at a place of its own.
fn plan(kind: MonitorKind, facts: &Facts) -> (Plan, usize) {
    let policy = Gap::ALL.iter().fold(Profile::Default.draft().unwrap(), |draft, gap| draft.accept(*gap));
    let (policy, image) = (policy.seal().unwrap(), Image::host());
    let request =
        Request { box_id: BoxId::from_random([7; 20]), image: &image, workspace: None, volumes: &[] };
    let mut plan = jail::lower(&policy, facts, &request).unwrap().plan;
    let at: blastbox_wire::plan::GuestPath = "/monitor".parse().unwrap();
    plan.template.push(Step::Show { slot: request.first_show(&policy), at: at.clone() });
    plan.landlock.grants.push(Grant { at: at.clone(), access: GrantAccess::ReadExecute });
    plan.denials = Denials::Silent;
    let arguments = vec!["monitor".to_owned()];
    plan.first = First::Monitor(Monitor {
        kind,
        program: at,
        arguments,
        environment: Vec::new(),
        inherits: Vec::new(),
    });
    (plan, request.descriptors(&policy) + 1)
}

struct Running {
    warden: Warden,
    stream: UnixStream,
    id: BoxId,
}

impl Running {
    /// Perl, with a script.
    fn launch(kind: MonitorKind, script: &str, change: impl FnOnce(&mut Plan)) -> Self {
        let mut warden = Warden::start_program(&programs().join("blastbox-warden")).unwrap();
        let powers = warden.wait_ready(PATIENCE).unwrap();
        let (mut plan, _) = plan(kind, &Facts::probe(&powers));
        let First::Monitor(monitor) = &mut plan.first else { panic!() };
        monitor.arguments = ["perl", "-MErrno", "-e", script].map(str::to_owned).to_vec();
        change(&mut plan);
        let (stream, theirs) = UnixStream::pair().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let program = open("/usr/bin/perl", OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).unwrap();
        let id = plan.box_id.clone();
        warden.ask(&Ask::Launch(Box::new(plan)), &[theirs.as_fd(), program.as_fd()]).unwrap();
        Self { warden, stream, id }
    }

    /// Everything that it wrote until it ended.
    fn wrote(&mut self) -> String {
        let mut text = String::new();
        self.stream.read_to_string(&mut text).unwrap();
        if text.is_empty() {
            text = format!("nothing: {:?}", self.last_word());
        }
        text
    }

    /// Why there is no box, as the warden says it.
    fn last_word(&mut self) -> Option<Answer> {
        let begun = std::time::Instant::now();
        while begun.elapsed() < PATIENCE {
            match self.warden.answer().unwrap() {
                Heard::Answer(answer @ (Answer::Failed { .. } | Answer::Ended { .. })) => {
                    return Some(answer);
                }
                Heard::Gone => return None,
                Heard::Answer(_) | Heard::Waiting => std::thread::sleep(Duration::from_millis(2)),
            }
        }
        None
    }

    /// Ends the box, and waits until nothing is left of it.
    fn end(mut self) {
        self.warden.ask(&Ask::Kill(self.id.clone()), &[]).unwrap();
        assert!(matches!(self.last_word(), Some(Answer::Ended { .. })), "it does not end");
    }
}

#[test]
fn it_is_the_first_process_with_no_power_at_all() {
    let script = r#"open(my $control, ">&=", 3); open(my $status, "<", "/proc/self/status") or die;
        while (<$status>) { print $control $_ if /^(Pid|Uid|CapInh|CapPrm|CapEff|CapBnd|CapAmb|NoNewPrivs|Seccomp):/ }"#;
    for kind in [MonitorKind::Qemu, MonitorKind::Gvisor] {
        let mut running = Running::launch(kind, script, |_| {});
        let none = ["Inh", "Prm", "Eff", "Bnd", "Amb"].map(|set| format!("Cap{set}:\t0000000000000000\n"));
        let users = "Uid:\t1000\t1000\t1000\t1000\n";
        let expected = format!("Pid:\t1\n{users}{}NoNewPrivs:\t1\nSeccomp:\t2\n", none.concat());
        assert_eq!(running.wrote(), expected, "{kind:?}");
        running.end();
    }
}

#[test]
fn it_inherits_the_control_channel_and_nothing_else() {
    let script = r#"open(my $control, ">&=", 3); opendir(my $all, "/proc/self/fd") or die;
        print $control join(" ", sort { $a <=> $b } grep { /\d/ } readdir $all), " [", join(" ", keys %ENV), "]";"#;
    let mut running = Running::launch(MonitorKind::Qemu, script, |_| {});
    // Its three streams, the channel, and the one with which it lists them.
    assert_eq!(running.wrote(), "0 1 2 3 4 []");
    running.end();
    // What the plan names follows the channel.
    let twice = |plan: &mut Plan| {
        let First::Monitor(monitor) = &mut plan.first else { panic!() };
        monitor.inherits = vec![Slot(1), Slot(1)];
    };
    let mut running = Running::launch(MonitorKind::Qemu, script, twice);
    assert_eq!(running.wrote(), "0 1 2 3 4 5 6 []");
    running.end();
}

#[test]
fn it_ends_by_the_wardens_clock_whatever_its_caller_does() {
    // One that is there: a box that is still being made could not be.
    let there = || {
        let script = r#"open(my $control, ">&=", 3); syswrite($control, "up"); sleep 600;"#;
        let mut running = Running::launch(MonitorKind::Qemu, script, |_| {});
        running.stream.read_exact(&mut [0; 2]).unwrap();
        running
    };
    let until = |running: &mut Running, millis| {
        running.warden.ask(&Ask::Until { box_id: running.id.clone(), millis }, &[]).unwrap();
    };
    let mut running = there();
    // The last word counts, and a time that no clock knows is none.
    for millis in [3_600_000, u64::MAX, 300] {
        until(&mut running, millis);
    }
    assert!(matches!(running.last_word(), Some(Answer::Ended { .. })));
    // A caller that reads nothing has the warden wait to answer it; the box does not live longer for that.
    let mut running = there();
    until(&mut running, 500);
    for _ in 0..250 {
        running.warden.ask(&Ask::Pause(BoxId::from_random([9; 20])), &[]).unwrap();
    }
    let mut text = String::new();
    running.stream.read_to_string(&mut text).unwrap();
    let word = running.last_word();
    assert!(matches!(word, Some(Answer::Ended { .. })), "{word:?}");
}

#[test]
fn one_that_runs_a_machine_starts_no_program_and_no_process() {
    let script = r#"open(my $control, ">&=", 3);
        print $control defined(fork) ? "forked " : "no process "; exec { "/bin/true" } "true"; print $control "no program";"#;
    let mut running = Running::launch(MonitorKind::Qemu, script, |_| {});
    assert_eq!(running.wrote(), "no process no program");
    running.end();
}

/// Tries to raise the limit on open files, then to put its own program at each number from which monitors are executed and
/// to execute it from there.
const TAKEN_OVER: &str = r#"
open(my $control, ">&=", 3); open(my $program, "<", "/usr/bin/perl") or die;
syscall(PRLIMIT, 0, 7, my $most = pack("Q2", 1 << 20, 1 << 20), 0) == 0 and print $control "raised ";
for my $number (9, 255, 1023, 4095, 16383, 65535) {
  syscall(DUP3, fileno($program), $number, 0);
  my $arguments = pack("p p p Q", "perl", "-e", "open(my \$c, q(>&=), 3); print \$c q(executed )", 0);
  syscall(EXECVEAT, $number, my $empty = "", $arguments, my $none = pack("Q", 0), 0x1000);
  print $control "$number:", $!{EPERM} || $!{EBADF} ? "refused " : "$! ";
}
"#;

#[test]
fn one_that_was_taken_over_cannot_execute_again_as_it_was_executed() {
    let call = |number: i64| number.to_string();
    let script = TAKEN_OVER
        .replace("PRLIMIT", &call(libc::SYS_prlimit64))
        .replace("DUP3", &call(libc::SYS_dup3))
        .replace("EXECVEAT", &call(libc::SYS_execveat));
    // More than any host lets the monitor have.
    let mut running = Running::launch(MonitorKind::Qemu, &script, |plan| plan.limits.open_files = 1_048_576);
    let text = running.wrote();
    let refused = [9, 255, 1023, 4095, 16383, 65535].map(|number| format!("{number}:refused "));
    assert_eq!(text, refused.concat());
    running.end();
}

#[test]
fn a_device_that_the_host_keeps_closed_is_open_in_the_boxes_that_have_it_and_nowhere_else() {
    let mode = || rustix::fs::stat("/dev/kvm").map(|found| found.st_mode & 0o777);
    let before = match mode() {
        Ok(mode) if mode & 0o006 != 0o006 && rustix::process::geteuid().is_root() => mode,
        _ => return blastbox_skips::skip_this("it takes root, and a /dev/kvm that is not open to everybody"),
    };
    let script = r#"open(my $control, ">&=", 3); my $kvm;
        print $control open($kvm, "+<", "/dev/kvm") ? "API " . (ioctl($kvm, 0xAE00, 0) || "denied: $!") : "closed: $!";
        opendir(my $root, "/"); open(my $mounts, "<", "/proc/self/mountinfo");
        print $control " [", grep({ /device/ } readdir $root), grep({ /device/ } <$mounts>), "]";"#;
    let grants = |plan: &mut Plan| {
        plan.template.push(Step::Device { name: DeviceName::Kvm });
        plan.landlock.grants.push(Grant { at: "/dev/kvm".parse().unwrap(), access: GrantAccess::Terminals });
    };
    let mut running = Running::launch(MonitorKind::Qemu, script, grants);
    // And where the file was made is nothing left.
    assert_eq!(running.wrote(), "API 12 []");
    running.end();
    assert_eq!(mode().unwrap(), before);
}

#[test]
fn what_only_monitors_may_have_is_refused_to_others() {
    let (good, descriptors) = plan(MonitorKind::Qemu, &Facts::look());
    assert!(good.clone().check(descriptors).is_ok());
    let kvm = Step::Device { name: DeviceName::Kvm };
    let wrong = |change: &dyn Fn(&mut Plan)| {
        let mut plan = good.clone();
        change(&mut plan);
        plan.check(descriptors).unwrap_err()
    };
    assert_eq!(wrong(&|plan| plan.denials = Denials::Reported), UnsafePlan::MonitorReports);
    let machine_without_one = |plan: &mut Plan| {
        plan.template.push(kvm.clone());
        plan.first = First::Agent;
    };
    assert_eq!(wrong(&machine_without_one), UnsafePlan::DeviceOfMonitor("kvm"));
    let gpu = |kind| {
        let mut plan = good.clone();
        plan.template.push(Step::Device { name: DeviceName::Nvidiactl });
        if let First::Monitor(monitor) = &mut plan.first {
            monitor.kind = kind;
            monitor.inherits.clear();
        }
        plan.check(descriptors).err()
    };
    for kind in [MonitorKind::Qemu, MonitorKind::Wasm] {
        assert_eq!(gpu(kind), Some(UnsafePlan::DeviceOfAgent("nvidiactl")), "{kind:?}");
    }
    assert_eq!(gpu(MonitorKind::Gvisor), None, "it hands on the calls of programs");
    for texts in [Vec::new(), vec!["a\0b".to_owned()], vec!["a".repeat(5000)], vec![String::new(); 200]] {
        let change = |plan: &mut Plan| {
            let First::Monitor(monitor) = &mut plan.first else { panic!() };
            monitor.arguments.clone_from(&texts);
        };
        assert_eq!(wrong(&change), UnsafePlan::MonitorTexts);
    }
    assert!(matches!(good.clone().check(descriptors - 1), Err(UnsafePlan::BadSlot(_))));
    let inherits = |kind, slots: &[u8]| {
        wrong(&|plan: &mut Plan| {
            let First::Monitor(monitor) = &mut plan.first else { panic!() };
            monitor.kind = kind;
            monitor.inherits = slots.iter().map(|slot| Slot(*slot)).collect();
        })
    };
    // Neither the control channel nor what nobody sent, no more than three, and only a machine.
    assert_eq!(inherits(MonitorKind::Qemu, &[0]), UnsafePlan::BadSlot(0));
    assert_eq!(inherits(MonitorKind::Qemu, &[9]), UnsafePlan::BadSlot(9));
    for (kind, slots) in [(MonitorKind::Qemu, [1, 1, 1, 1].as_slice()), (MonitorKind::Gvisor, &[1])] {
        assert_eq!(inherits(kind, slots), UnsafePlan::TooMany("descriptors of the monitor"));
    }
    // A card is a machine's, and the line to its gateway the warden's alone.
    let with_card = |first: First| {
        wrong(&|plan| (plan.network, plan.first) = (Network::Card { slot: Slot(1) }, first.clone()))
    };
    let First::Monitor(machine) = &good.first else { panic!() };
    let other = Monitor { kind: MonitorKind::Gvisor, ..machine.clone() };
    for first in [First::Agent, First::Monitor(other)] {
        assert_eq!(with_card(first), UnsafePlan::CardOfNobody);
    }
    let greedy = Monitor { inherits: vec![Slot(1)], ..machine.clone() };
    assert_eq!(with_card(First::Monitor(greedy)), UnsafePlan::MonitorHasLine);
    let modest = Plan { network: Network::Card { slot: Slot(1) }, ..good.clone() };
    assert!(modest.check(descriptors).is_ok());
    let moved = |plan: &mut Plan| plan.own.extend(plan.template.pop());
    assert!(matches!(wrong(&moved), UnsafePlan::WrongList { list: "own", .. }));
}
