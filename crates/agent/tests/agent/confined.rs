//! The agent under the filter that it will live under, hearing of what is denied.
//!
//! A filter cannot be taken off, so each test puts a thread of its own under it, which then starts the agent.

use blastbox_sys::arch::syscall_number;
use blastbox_sys::seccomp::{Filter, Visibility};
use blastbox_wire::agent::{Exit, HostFrame, Io, Oddity, OnDenied, VERSION};

use crate::rig::{Agent, Said, command};

fn confined(on_denied: OnDenied, test: impl FnOnce(Agent) + Send + 'static) {
    let thread = std::thread::spawn(move || {
        rustix::thread::set_no_new_privs(true).unwrap();
        let listener = Filter::compile(Visibility::Reported).install().unwrap();
        let (agent, facts) = Agent::begun_with(listener, on_denied);
        assert!(facts.sees_denials);
        test(agent);
    });
    thread.join().unwrap();
}

/// Makes this many denied calls: a new namespace each.
fn denied(times: u32) -> Vec<String> {
    let script =
        format!("i=0; while [ $i -lt {times} ]; do unshare -U true 2>/dev/null; i=$((i+1)); done; exit 5");
    vec!["sh".into(), "-c".into(), script]
}

#[test]
fn the_agent_makes_no_denied_call_itself() {
    confined(OnDenied::Record, |mut agent| {
        assert_eq!(agent.shell("echo out").output, "out\n");
        let spec = command(2, Io::Terminal { rows: 5, columns: 6 }, &["stty", "size"]);
        assert_eq!(agent.run(spec).unwrap().output, "5 6\r\n");
        assert!(agent.run(command(2, Io::Pipes, &["no-such-program"])).is_err());
        agent.say(&HostFrame::Shutdown);
        assert_eq!(agent.ended().code(), Some(0));
        assert_eq!(agent.try_next().unwrap(), None);
    });
}

#[test]
fn denied_calls_are_refused_and_counted_before_the_end_is_told() {
    confined(OnDenied::Record, |mut agent| {
        let arguments = denied(5);
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        agent.exec(1, Io::Pipes, &arguments);
        let unshare = syscall_number("unshare").unwrap();
        let mut told = Vec::new();
        let exit = loop {
            match agent.next() {
                Said::Started(..) | Said::Output(..) => {}
                Said::Denied(number, count) => {
                    assert_eq!(number, unshare);
                    told.push(count);
                }
                Said::Exited(1, exit, _) => break exit,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(exit, Exit::Code(5));
        assert_eq!(told.first(), Some(&1));
        assert_eq!(told.iter().sum::<u64>(), 5);
    });
}

#[test]
fn a_denied_call_can_be_deadly() {
    confined(OnDenied::Kill, |mut agent| {
        let finished = agent.shell("unshare -U true; echo $?");
        assert_eq!((finished.output.as_str(), finished.exit), ("137\n", Exit::Code(0)));
    });
}

/// An agent that hears of writes, in a box whose commands work in the caller's directory.
fn watched(on_denied: OnDenied, test: impl FnOnce(Agent) + Send + 'static) {
    let thread = std::thread::spawn(move || {
        rustix::thread::set_no_new_privs(true).unwrap();
        let listener = Filter::compile(Visibility::WithWrites).install().unwrap();
        let mut agent = Agent::start_with(listener, &["--writes", "callers"]);
        let Said::Hello(facts) = agent.next() else { panic!("no hello") };
        assert!(facts.sees_denials);
        agent.say(&HostFrame::Begin { version: VERSION, on_denied, heritable: false });
        test(agent);
    });
    thread.join().unwrap();
}

/// All writes that were told before the end of a command, and its end.
fn told(agent: &mut Agent, script: &str) -> (Vec<(Oddity, u64, String)>, Exit) {
    agent.exec(1, Io::Pipes, &["/bin/sh", "-c", script]);
    let mut told = Vec::new();
    loop {
        match agent.next() {
            Said::Started(..) | Said::Output(..) | Said::Denied(..) => {}
            Said::Wrote(oddity, count, path) => told.push((oddity, count, path)),
            Said::Exited(1, exit, _) => return (told, exit),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn writes_at_unexpected_paths_are_told_before_the_end_is_and_go_on() {
    watched(OnDenied::Record, |mut agent| {
        let (writes, exit) = told(
            &mut agent,
            "exec 2>/dev/null; d=$(mktemp -d) && echo ok > $d/x && rm -r $d; \
             : < /etc/passwd; echo x > /nowhere-at-all/x; cd /; echo x > nowhere-at-all/y; \
             mkdir /proc/nowhere; mv /nowhere-at-all/a /nowhere-at-all/b; echo y > /nowhere-at-all/x; exit 5",
        );
        assert_eq!(exit, Exit::Code(5), "what is watched still does what it would");
        let mut paths: Vec<&str> = writes.iter().map(|(_, _, path)| path.as_str()).collect();
        paths.sort_unstable();
        paths.dedup();
        let wanted = [
            "/nowhere-at-all/a",
            "/nowhere-at-all/b",
            "/nowhere-at-all/x",
            "/nowhere-at-all/y",
            "/proc/nowhere",
        ];
        assert_eq!(paths, wanted, "{writes:?}");
        assert!(writes.iter().all(|(oddity, ..)| *oddity == Oddity::Outside));
        let twice =
            writes.iter().filter(|(_, _, path)| path == "/nowhere-at-all/x").map(|(_, count, _)| count);
        assert_eq!(twice.sum::<u64>(), 2);
    });
}

#[test]
fn a_name_is_told_as_what_it_leads_to() {
    watched(OnDenied::Record, |mut agent| {
        let (writes, _) = told(
            &mut agent,
            "exec 2>/dev/null; d=$(mktemp -d); ln -s /proc/sys/kernel $d/link; echo x > $d/link/nowhere; rm -r $d",
        );
        assert_eq!(writes, [(Oddity::Outside, 1, "/proc/sys/kernel/nowhere".to_owned())]);
    });
}

#[test]
fn the_agents_own_work_and_denied_calls_go_on_while_writes_are_watched() {
    watched(OnDenied::Record, |mut agent| {
        assert_eq!(agent.shell("sleep 0.05; cat /proc/self/oom_score_adj").output, "1000\n");
        let spec = command(2, Io::Terminal { rows: 5, columns: 6 }, &["stty", "size"]);
        assert_eq!(agent.run(spec).unwrap().output, "5 6\r\n");
        let arguments = denied(3);
        let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
        agent.exec(1, Io::Pipes, &arguments);
        let mut count = 0;
        loop {
            match agent.next() {
                Said::Denied(_, times) => count += times,
                Said::Exited(..) => break,
                Said::Started(..) | Said::Output(..) => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(count, 3);
        agent.say(&HostFrame::Shutdown);
        assert_eq!(agent.ended().code(), Some(0));
    });
    watched(OnDenied::Kill, |mut agent| {
        assert_eq!(agent.shell("unshare -U true; echo $?").output, "137\n");
    });
}

#[test]
fn a_process_that_hides_its_memory_is_told_as_one() {
    watched(OnDenied::Record, |mut agent| {
        let hides =
            "import ctypes; ctypes.CDLL(None).prctl(4, 0, 0, 0, 0); open('/tmp/../nowhere-at-all', 'a')";
        let python = "exec 2>/dev/null; PYTHONDONTWRITEBYTECODE=1 exec python3 -c";
        let (writes, _) = told(&mut agent, &format!("{python} \"{hides}\""));
        assert_eq!(writes, [(Oddity::Unreadable, 1, String::new())]);
    });
}
