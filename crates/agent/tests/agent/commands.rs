//! Starting commands: what they are, as whom they run, how they end, and why some never start.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use blastbox_wire::agent::{Exit, HostFrame, Io, OnDenied, Stage};
use blastbox_wire::limits::MAX_EXECS;

use crate::rig::{Agent, Finished, Said, command, is_alive};

const ENOENT: i32 = 2;
const E2BIG: i32 = 7;
const ENOEXEC: i32 = 8;
const EAGAIN: i32 = 11;
const EACCES: i32 = 13;
const EEXIST: i32 = 17;
const ENOTDIR: i32 = 20;

/// A directory of files that any user may use; gone with the value.
struct Files(PathBuf);

impl Files {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("blastbox-agent-{name}-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        Self(path)
    }
    fn add(&self, name: &str, mode: u32, text: &[u8]) -> String {
        let path = self.0.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

fn why(agent: &mut Agent, arguments: &[&str]) -> (Stage, i32) {
    agent.run(command(9, Io::Pipes, arguments)).unwrap_err()
}

#[test]
fn the_agent_says_who_it_is() {
    let (agent, facts) = Agent::begun_with(None, OnDenied::Record);
    assert_eq!(facts.pid, agent.child.id());
    assert_eq!(facts.uid, rustix::process::getuid().as_raw());
    assert!(!facts.sees_denials);
    assert!(!facts.kernel.is_empty());
    // At most: change the user (6, 7), signal (5), set the clock (25).
    assert_eq!(facts.capabilities & !(1 << 5 | 1 << 6 | 1 << 7 | 1 << 25), 0);
}

#[test]
fn a_command_is_found_in_the_search_path_and_its_streams_are_apart() {
    let mut agent = Agent::begun();
    let echo = agent.run(command(1, Io::Pipes, &["echo", "hello", "box"])).unwrap();
    assert_eq!(echo, Finished { output: "hello box\n".into(), error: String::new(), exit: Exit::Code(0) });
    let both = agent.shell("echo out; echo err >&2; cat; exit 7");
    assert_eq!(both, Finished { output: "out\n".into(), error: "err\n".into(), exit: Exit::Code(7) });
}

#[test]
fn without_a_search_path_there_is_a_default_one() {
    let mut agent = Agent::begun();
    let mut spec = command(1, Io::Pipes, &["true"]);
    spec.environment.clear();
    assert_eq!(agent.run(spec).unwrap().exit, Exit::Code(0));
}

#[test]
fn a_command_gets_its_environment_and_directory_and_nothing_of_the_agents() {
    let mut agent = Agent::begun();
    let mut spec = command(1, Io::Pipes, &["sh", "-c", "pwd; env | sort; ls /proc/self/fd | wc -l; umask"]);
    spec.environment = vec![b"PATH=/usr/bin:/bin".to_vec(), b"SAID=\xff".to_vec()];
    spec.directory = b"/usr/bin".to_vec();
    spec.arguments[2] =
        b"pwd; test \"$SAID\" = \"$(printf '\\377')\" && echo said; ls /proc/self/fd | wc -l; umask".to_vec();
    // Standard streams, and the directory that ls reads.
    assert_eq!(agent.run(spec).unwrap().output, "/usr/bin\nsaid\n4\n0022\n");
}

#[test]
fn a_command_has_no_rights_no_blocked_signals_and_dies_first() {
    let mut agent = Agent::begun();
    let status = agent.shell("cat /proc/self/status").output;
    let line =
        |name: &str| status.lines().find_map(|line| line.strip_prefix(name)).unwrap().trim().to_owned();
    let nothing = "0000000000000000";
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:", "SigBlk:", "SigIgn:"] {
        assert_eq!(line(set), nothing, "{set}");
    }
    assert_eq!(line("NoNewPrivs:"), "1");
    if rustix::process::getuid().is_root() {
        assert_eq!(line("CapBnd:"), nothing);
        assert_eq!(line("Uid:"), "1000\t1000\t1000\t1000");
        assert_eq!(line("Gid:"), "1000\t1000\t1000\t1000");
        assert_eq!(line("Groups:"), "");
    }
    assert_eq!(agent.shell("sleep 0.05; cat /proc/self/oom_score_adj").output, "1000\n");
    assert_eq!(agent.shell("ulimit -c").output, "0\n");
}

#[test]
fn the_agent_keeps_its_memory_and_its_streams_to_itself() {
    let mut agent = Agent::begun();
    let id = agent.child.id();
    let mut tried =
        |what: &str| agent.shell(&format!("{what} /proc/{id}/fd /proc/{id}/mem 2>/dev/null")).exit;
    assert_ne!(tried("ls"), Exit::Code(0));
    assert_ne!(tried("head -c1"), Exit::Code(0));
}

#[test]
fn standard_streams_can_be_opened_by_name() {
    let mut agent = Agent::begun();
    let written = agent.shell("echo out >/dev/stdout; echo err >/proc/self/fd/2");
    assert_eq!(written, Finished { output: "out\n".into(), error: "err\n".into(), exit: Exit::Code(0) });
}

#[test]
fn a_broken_pipe_ends_a_program_as_it_would_at_home() {
    let mut agent = Agent::begun();
    assert_eq!(agent.shell("sh -c 'kill -PIPE $$; echo alive'; echo $?").output, "141\n");
}

#[test]
fn usage_is_counted() {
    let mut agent = Agent::begun();
    agent.exec(1, Io::Pipes, &["sh", "-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done"]);
    let Said::Started(1, _) = agent.next() else { panic!() };
    let Said::Exited(1, Exit::Code(0), usage) = agent.next() else { panic!() };
    assert!(usage.user_micros > 0 && usage.peak_bytes > 100_000, "{usage:?}");
}

#[test]
fn what_cannot_be_found_is_told_apart_from_what_cannot_run() {
    let mut agent = Agent::begun();
    let files = Files::new("files");
    assert_eq!(why(&mut agent, &["no-such-program"]), (Stage::Find, ENOENT));
    assert_eq!(why(&mut agent, &["/no/such/program"]), (Stage::Find, ENOENT));
    assert_eq!(why(&mut agent, &[]), (Stage::Find, ENOENT));
    assert_eq!(why(&mut agent, &[""]), (Stage::Find, ENOENT));
    assert_eq!(why(&mut agent, &["/usr"]), (Stage::Execute, EACCES));
    let plain = files.add("plain", 0o644, b"#!/bin/sh\n");
    assert_eq!(why(&mut agent, &[&plain]), (Stage::Execute, EACCES));
    let orphan = files.add("orphan", 0o755, b"#!/no/such/interpreter\n");
    assert_eq!(why(&mut agent, &[&orphan]), (Stage::Execute, ENOENT));
    let text = files.add("text", 0o755, b"echo I have no first line\n");
    assert_eq!(why(&mut agent, &[&text]), (Stage::Execute, ENOEXEC));
    let long = "x".repeat(100 * 1024);
    let many: Vec<_> = ["/bin/echo"].into_iter().chain([long.as_str(); 39]).collect();
    assert_eq!(why(&mut agent, &many), (Stage::Execute, E2BIG));
    let script = files.add("script", 0o755, b"#!/bin/sh\necho runs\n");
    assert_eq!(agent.run(command(9, Io::Pipes, &[&script])).unwrap().output, "runs\n");
}

#[test]
fn a_directory_that_cannot_be_entered_is_told() {
    let mut agent = Agent::begun();
    let mut at = |directory: &str| {
        let mut spec = command(2, Io::Pipes, &["pwd"]);
        spec.directory = directory.into();
        agent.run(spec).unwrap_err()
    };
    assert_eq!(at("/no/such/directory"), (Stage::Directory, ENOENT));
    assert_eq!(at("/bin/sh"), (Stage::Directory, ENOTDIR));
    assert_eq!(at(""), (Stage::Directory, ENOENT));
    if rustix::process::getuid().is_root() {
        let files = Files::new("closed");
        fs::set_permissions(&files.0, fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(at(files.0.to_str().unwrap()), (Stage::Directory, EACCES));
    }
}

#[test]
fn signals_reach_the_whole_group() {
    let mut agent = Agent::begun();
    agent.exec(5, Io::Pipes, &["sh", "-c", "sleep 1000 & echo $!; wait"]);
    let Said::Started(5, pid) = agent.next() else { panic!() };
    let Said::Output(5, 1, bytes) = agent.next() else { panic!() };
    let other: u32 = String::from_utf8(bytes).unwrap().trim().parse().unwrap();
    assert!(is_alive(pid) && is_alive(other));
    agent.say(&HostFrame::Signal { exec: 5, signal: 15 });
    assert_eq!(agent.finish(5).exit, Exit::Signal(15));
    crate::rig::eventually("the group is gone", || !is_alive(other));
}

#[test]
fn whoever_leaves_the_group_is_signalled_all_the_same() {
    let mut agent = Agent::begun();
    // Somebody stays behind, so that the group is there and takes every signal that is meant for its leader.
    let leaves = "fork // die or sleep 1000; my $other = fork // die; $other or sleep 1000;
        setpgrp($other, $other) or die; setpgrp(0, $other) or die; $| = 1; print 'left'; sleep 1000";
    for (number, signal) in [(5, 9), (6, 15)] {
        agent.exec(number, Io::Pipes, &["perl", "-e", leaves]);
        let Said::Started(..) = agent.next() else { panic!() };
        assert_eq!(agent.next(), Said::Output(number, 1, b"left".to_vec()));
        agent.say(&HostFrame::Signal { exec: number, signal });
        assert_eq!(agent.finish(number).exit, Exit::Signal(signal));
    }
}

#[test]
fn a_signal_that_comes_early_is_not_lost_and_one_that_comes_late_hits_nobody() {
    let mut agent = Agent::begun();
    for number in 0..20 {
        agent.exec(number, Io::Pipes, &["sleep", "1000"]);
        agent.say(&HostFrame::Signal { exec: number, signal: 9 });
        let Said::Started(_, _) = agent.next() else { panic!() };
        assert_eq!(agent.finish(number).exit, Exit::Signal(9));
        agent.say(&HostFrame::Signal { exec: number, signal: 9 });
    }
    agent.say(&HostFrame::Signal { exec: 77, signal: 0 });
    assert_eq!(agent.shell("exit 3").exit, Exit::Code(3));
}

#[test]
fn a_number_in_use_and_one_command_too_many_are_refused() {
    let mut agent = Agent::begun();
    let most = u32::try_from(MAX_EXECS).unwrap();
    for number in 0..most {
        agent.exec(number, Io::Pipes, &["sleep", "1000"]);
        let Said::Started(started, _) = agent.next() else { panic!() };
        assert_eq!(started, number);
    }
    agent.exec(most, Io::Pipes, &["true"]);
    assert_eq!(agent.next(), Said::NotStarted(most, Stage::Admission, EAGAIN));
    agent.exec(3, Io::Pipes, &["true"]);
    assert_eq!(agent.next(), Said::NotStarted(3, Stage::Admission, EEXIST));
    agent.say(&HostFrame::Signal { exec: 3, signal: 9 });
    assert_eq!(agent.finish(3).exit, Exit::Signal(9));
    assert_eq!(agent.run(command(3, Io::Pipes, &["echo", "again"])).unwrap().output, "again\n");
}

#[test]
fn orphans_are_waited_for() {
    let mut agent = Agent::begun();
    let orphan = agent.shell("(sh -c 'sleep 0.1' >/dev/null 2>&1 & echo $!)").output;
    let orphan: u32 = orphan.trim().parse().unwrap();
    let gone = || !std::path::Path::new(&format!("/proc/{orphan}")).exists();
    crate::rig::eventually("the orphan is gone for good", gone);
}
