//! The agent under the filter that it will live under, hearing of what is denied.
//!
//! A filter cannot be taken off, so each test puts a thread of its own under it, which then starts the agent.

use blastbox_sys::arch::syscall_number;
use blastbox_sys::seccomp::{Filter, Visibility};
use blastbox_wire::agent::{Exit, HostFrame, Io, OnDenied};

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
