//! A monitor as the first process of a box: it comes from a descriptor, holds nothing, and starts nothing where its filter says
//! so. The agent's own program stands in for one: it speaks frames and says what it is.
//!
//! Runs as whoever runs the tests. `BLASTBOX_BIN_DIR` names the directory of the built programs.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on must fail at once")]

use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use blastbox_images::Image;
use blastbox_isolation::tiers::jail;
use blastbox_isolation::{Facts, Heard, Request, Warden};
use blastbox_policy::{Gap, Profile};
use blastbox_wire::BoxId;
use blastbox_wire::agent::{AgentFrame, BootFacts, ExecSpec, HostFrame, Io, OnDenied, User, VERSION, parse};
use blastbox_wire::limits::OUTPUT_WINDOW;
use blastbox_wire::plan::{
    Denials, DeviceName, First, Grant, GrantAccess, Monitor, MonitorKind, Plan, Step, UnsafePlan,
};
use blastbox_wire::warden::{Answer, Ask};
use rustix::fs::{Mode, OFlags, open};

/// Longer than anything takes on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

fn programs() -> PathBuf {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/blastbox");
    std::env::var_os("BLASTBOX_BIN_DIR").map_or_else(beside, PathBuf::from)
}

/// A plan of the jail whose first process becomes the agent's program, shown at a place of its own.
fn plan(kind: MonitorKind, facts: &Facts) -> (Plan, usize) {
    let policy = Gap::ALL.iter().fold(Profile::Default.draft().unwrap(), |draft, gap| draft.accept(*gap));
    let (policy, image) = (policy.seal().unwrap(), Image::host());
    let request = Request { box_id: BoxId::from_random([7; 20]), image: &image, workspace: None };
    let mut plan = jail::lower(&policy, facts, &request).unwrap().plan;
    let at: blastbox_wire::plan::GuestPath = "/monitor".parse().unwrap();
    plan.template.push(Step::Show { slot: request.first_show(&policy), at: at.clone() });
    plan.landlock.grants.push(Grant { at: at.clone(), access: GrantAccess::ReadExecute });
    plan.denials = Denials::Silent;
    let arguments = ["monitor", "--control", "3"].map(str::to_owned).to_vec();
    plan.first = First::Monitor(Monitor { kind, program: at, arguments, environment: Vec::new() });
    (plan, request.descriptors(&policy) + 1)
}

struct Running {
    warden: Warden,
    stream: UnixStream,
    heard: Vec<u8>,
    id: BoxId,
}

/// What the monitor said, as far as these tests look at it.
#[derive(Debug, PartialEq)]
enum Said {
    Hello(BootFacts),
    NotStarted,
    Started,
    Output(String),
    Other,
}

impl Running {
    fn launch(kind: MonitorKind) -> Self {
        Self::launch_with(kind, |_| {})
    }

    fn launch_with(kind: MonitorKind, change: impl FnOnce(&mut Plan)) -> Self {
        let mut warden = Warden::start_program(&programs().join("blastbox-warden")).unwrap();
        let powers = warden.wait_ready(PATIENCE).unwrap();
        let (mut plan, _) = plan(kind, &Facts::probe(&powers));
        change(&mut plan);
        let (stream, theirs) = UnixStream::pair().unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let program = open(programs().join("blastbox-agent"), flags, Mode::empty()).unwrap();
        let id = plan.box_id.clone();
        warden.ask(&Ask::Launch(Box::new(plan)), &[theirs.as_fd(), program.as_fd()]).unwrap();
        Self { warden, stream, heard: Vec::new(), id }
    }

    fn say(&mut self, frame: &HostFrame) {
        self.stream.write_all(&frame.encode()).unwrap();
    }

    fn next(&mut self) -> Said {
        loop {
            if let Some((frame, taken)) = parse(&self.heard).unwrap() {
                let said = match frame {
                    AgentFrame::Hello { facts, .. } => Said::Hello(facts),
                    AgentFrame::NotStarted { .. } => Said::NotStarted,
                    AgentFrame::Started { .. } => Said::Started,
                    AgentFrame::Output { bytes, .. } => Said::Output(String::from_utf8_lossy(bytes).into()),
                    _ => Said::Other,
                };
                self.heard.drain(..taken);
                return said;
            }
            let mut bytes = [0; 4096];
            let got = self.stream.read(&mut bytes).unwrap();
            assert!(got > 0, "the monitor has gone: {:?}", self.last_word());
            self.heard.extend(bytes.iter().take(got));
        }
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

    fn greet(&mut self) -> BootFacts {
        let Said::Hello(facts) = self.next() else { panic!("no hello") };
        self.say(&HostFrame::Begin { version: VERSION, on_denied: OnDenied::Record });
        facts
    }

    fn shell(&mut self, script: &str) {
        self.say(&HostFrame::Exec(ExecSpec {
            exec: 1,
            arguments: ["/bin/sh", "-c", script].map(|text| text.as_bytes().to_vec()).to_vec(),
            environment: vec![b"PATH=/usr/bin:/bin".to_vec()],
            directory: b"/".to_vec(),
            user: User::Payload,
            io: Io::Pipes,
            window: OUTPUT_WINDOW,
        }));
    }

    /// Ends the box, and waits until nothing is left of it.
    fn end(mut self) {
        self.warden.ask(&Ask::Kill(self.id.clone()), &[]).unwrap();
        assert!(matches!(self.last_word(), Some(Answer::Ended { .. })), "it does not end");
    }
}

#[test]
fn it_is_the_first_process_with_no_power_at_all() {
    let mut running = Running::launch(MonitorKind::Qemu);
    let facts = running.greet();
    assert_eq!((facts.pid, facts.uid, facts.capabilities), (1, 1000, 0));
    assert!(!facts.sees_denials);
    running.end();
}

#[test]
fn it_inherits_the_control_channel_and_nothing_else() {
    // gVisor's is the one that may start programs: a shell stands in for its keeper, and writes to its control channel.
    let script = "echo /proc/self/fd/* >&3; IFS= read -r all </proc/self/environ; echo \"[$all]\" >&3";
    let mut running = Running::launch_with(MonitorKind::Gvisor, |plan| {
        let arguments = ["sh", "-c", script].map(str::to_owned).to_vec();
        let program = "/usr/bin/sh".parse().unwrap();
        let kind = MonitorKind::Gvisor;
        plan.first = First::Monitor(Monitor { kind, program, arguments, environment: Vec::new() });
    });
    let mut text = String::new();
    running.stream.read_to_string(&mut text).unwrap();
    let (listed, environment) = text.split_once('\n').unwrap();
    // Its three streams, the channel, and the one with which it lists them.
    assert_eq!(listed, [0, 1, 2, 3, 4].map(|fd| format!("/proc/self/fd/{fd}")).join(" "));
    assert_eq!(environment, "[]\n");
    running.end();
}

#[test]
fn one_that_runs_a_machine_starts_no_program() {
    let mut running = Running::launch(MonitorKind::Qemu);
    running.greet();
    running.shell("echo never");
    assert_eq!(running.next(), Said::NotStarted);
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
    let mut running = Running::launch_with(MonitorKind::Qemu, |plan| {
        let arguments = vec!["perl".to_owned(), "-MErrno".to_owned(), "-e".to_owned(), script];
        let (kind, program) = (MonitorKind::Qemu, "/usr/bin/perl".parse().unwrap());
        plan.first = First::Monitor(Monitor { kind, program, arguments, environment: Vec::new() });
        // More than any host lets the monitor have.
        plan.limits.open_files = 1_048_576;
    });
    let mut text = String::new();
    running.stream.read_to_string(&mut text).unwrap();
    let refused = [9, 255, 1023, 4095, 16383, 65535].map(|number| format!("{number}:refused "));
    assert_eq!(text, refused.concat(), "{:?}", running.last_word());
    running.end();
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
    for texts in [Vec::new(), vec!["a\0b".to_owned()], vec!["a".repeat(5000)], vec![String::new(); 200]] {
        let change = |plan: &mut Plan| {
            let First::Monitor(monitor) = &mut plan.first else { panic!() };
            monitor.arguments.clone_from(&texts);
        };
        assert_eq!(wrong(&change), UnsafePlan::MonitorTexts);
    }
    assert!(matches!(good.clone().check(descriptors - 1), Err(UnsafePlan::BadSlot(_))));
    let moved = |plan: &mut Plan| plan.own.extend(plan.template.pop());
    assert!(matches!(wrong(&moved), UnsafePlan::WrongList { list: "own", .. }));
}
