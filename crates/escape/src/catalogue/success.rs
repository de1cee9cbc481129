//! What a success would look like from the host's side: what is looked at, by attempt.
//!
//! One table, so that a reader sees which verdicts rest on what the host sees by itself (canaries, listeners, processes, the
//! receipt) and which on the word of the attempt: a call that was answered leaves no trace on the host.

use crate::attempt::{Attempt, Class, Prop, Script};

const REACHED: &str = "the call is answered by anything but a refusal: it has reached the kernel (the attempt says so: it changes nothing)";
const POWER: &str = "the process has a user id or a capability that it had not (the attempt says so)";
const SECRET: &str = "the host's secret is in what the box printed";
const CANARY: &str = "a canary on the host's stage has changed or is gone, or something appeared beside it";
const CHECKOUT: &str = "a file of the checkout has changed, is gone or appeared on the host";
const OPENED: &str = "the file or device opens (the attempt says so: nothing is written)";
const DOOR: &str = "the connection is made (the attempt says so: nobody of the host is asked for anything)";
const HEARD: &str = "a listener of the host heard this attempt's nonce";
const LEFT: &str = "the connection is made, or the datagram taken for sending (the attempt says so)";
const SURVIVOR: &str =
    "a process of the host has this attempt's nonce in its command line after the box has ended";
const LATE: &str = "the command goes on after its deadline, and says so";
const KILLED: &str = "a process of the host that waits for it was ended";
const TAKEN: &str = "the kernel grants it (the attempt says so)";
const MORE: &str = "more is there at once than the limit lets: the attempt counts it";
const PRINTED: &str = "more output arrived at the caller than the limit lets";
const FACT: &str =
    "the host's boot id, machine id, name, hardware address, log or file is in what the box printed";
const SEEN: &str = "what belongs to the host is listed or read (the attempt says so)";
const FOUND: &str = "what one box left is found by the other";
const FALSE: &str =
    "the receipt says something else than what the command did, or blastbox did not survive it";
const AGENT: &str = "the receipt says that the box did not go on, or the attempt has pid 1's memory, descriptors, limits or time in hand";
const BELIEVED: &str = "blastbox has no receipt for the box, is held up past its deadline, or says that the command came to its own end";
const COPIED: &str =
    "something changed beside the target, or a link out, a device, a pipe, a set-id bit or too much is in it";

pub(crate) fn success(attempt: &Attempt) -> &'static str {
    match attempt.class {
        Class::Kernel => kernel(attempt.name),
        Class::Files => files(attempt),
        Class::Network => match attempt.name {
            "host-loopback-tcp" | "host-loopback-tcp6" | "host-loopback-udp" | "abstract-socket"
            | "unix-socket" => HEARD,
            _ => LEFT,
        },
        Class::Credentials => credentials(attempt.name),
        Class::Lifecycle => lifecycle(attempt),
        Class::Resources => match attempt.name {
            "output" | "output-error" => PRINTED,
            _ => MORE,
        },
        Class::Information => information(attempt),
        Class::Persistence => FOUND,
        Class::ControlPlane => match attempt.script {
            Script::Reply(_) => COPIED,
            Script::Frames(..) => BELIEVED,
            _ if matches!(attempt.control, crate::Control::Believed(..)) => FALSE,
            _ => AGENT,
        },
    }
}

fn kernel(name: &str) -> &'static str {
    match name {
        "nested-root" => {
            "a canary on the host has changed, its secret is in the output, its disk opens, or a listener was reached"
        }
        "dirty-pipe" | "dirty-cow" => "a file that was opened for reading has changed (the box's own)",
        "become-root" | "capset" | "new-privileges" => POWER,
        "syslog" => "a line of the host's kernel log is in what the box printed, or the call is answered",
        _ => REACHED,
    }
}

fn files(attempt: &Attempt) -> &'static str {
    match attempt.name {
        "read-secret" | "workspace-link" | "workspace-up" | "climb-dotdot" | "proc-1-root" | "proc-cwd"
        | "leaked-descriptor" | "fchdir-out" | "race-link" => SECRET,
        "workspace-socket" => HEARD,
        "any-descriptor" => "a descriptor is open that nobody gave it (the attempt says so)",
        "shared-tmp" => "a file of this attempt's name is in the host's /tmp, /dev/shm or /var/tmp",
        "core-dump" => "the kernel says that a core was dumped, or a core file is there",
        "device-node" | "file-capability" => TAKEN,
        _ if attempt.has(Prop::Workspace) => CHECKOUT,
        name if name.ends_with("canary") || name.ends_with("on-stage") => CANARY,
        _ => OPENED,
    }
}

fn credentials(name: &str) -> &'static str {
    match name {
        "pid-1-memory" | "pid-1-maps" | "pid-1-descriptors" => SEEN,
        "agent-socket" => HEARD,
        "root-ssh"
        | "root-history"
        | "kubernetes-token"
        | "docker-secret"
        | "systemd-credentials"
        | "cloud-init"
        | "shadow"
        | "gshadow"
        | "blastbox-state" => OPENED,
        "docker-socket" | "containerd-socket" | "dbus" | "blastbox-socket" | "x11" => DOOR,
        _ => SECRET,
    }
}

fn lifecycle(attempt: &Attempt) -> &'static str {
    match attempt.name {
        "outlive-deadline" | "block-deadline" | "stop-the-clock" => LATE,
        _ if attempt.has(Prop::Decoy) => KILLED,
        "own-cgroup" => OPENED,
        "real-time" | "nice" | "io-priority" | "raise-limits" | "oom-score" | "wake-alarm" => TAKEN,
        _ => SURVIVOR,
    }
}

fn information(attempt: &Attempt) -> &'static str {
    let facts = |prop: &Prop| matches!(prop, Prop::HostFacts | Prop::HostFile(_) | Prop::HostLog);
    match attempt.props {
        props if props.iter().any(facts) => FACT,
        props if props.contains(&Prop::Decoy) => {
            "the secret in the command line of a process of the host is in the output"
        }
        _ => SEEN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is said to be seen by the host must be there for it to see.
    #[test]
    fn a_word_about_what_the_host_sees_is_about_an_attempt_that_it_can_see() {
        for attempt in crate::catalogue::all() {
            let (id, word) = (attempt.id(), success(&attempt));
            let text = match attempt.script {
                Script::Line(text) | Script::Python(text) | Script::Shell(text) => text,
                Script::Reply(_) | Script::Frames(..) => "",
            };
            match word {
                KILLED => assert!(attempt.has(Prop::Decoy), "{id}"),
                LATE => assert!(attempt.stopped_by.contains(&"timed_out"), "{id}"),
                PRINTED => assert!(attempt.stopped_by.contains(&"output_limit"), "{id}"),
                SURVIVOR => assert!(text.contains("leave_process") || text.contains("NONCE"), "{id}"),
                HEARD => assert!(text.contains("NONCE"), "{id}"),
                CANARY => assert!(text.contains("there("), "{id}"),
                CHECKOUT => assert!(text.contains("WORKSPACE"), "{id}"),
                REACHED | OPENED | DOOR | LEFT | TAKEN | MORE | POWER => {
                    let says = [
                        "escaped(",
                        "call(",
                        "socket_of(",
                        "open(",
                        "steal(",
                        "connect_unix(",
                        "reach_",
                        "knock(",
                    ];
                    assert!(says.iter().any(|word| text.contains(word)), "{id}: {text}");
                }
                _ => {}
            }
        }
    }
}
