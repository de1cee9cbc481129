//! Which attempts speak of an answer and not of the host: where a box has a kernel of its own, that kernel answers for itself.
//!
//! One table for all of them, so that a reader sees at once what a cell of such a tier does not prove by itself, and which
//! attempts prove it instead. Whatever is not here counts in every tier.

use crate::attempt::{Class, Word};

const ROOT: Word =
    Word::Answer("kernel.nested-root, which goes on from there to the host's files, disks and listeners");
const SOCKETS: Word = Word::Answer("the class network, whose listeners are the host's");
const AGENT: Word = Word::Answer(
    "control.agent-channel, control.agent-memory and control.kill-agent: what is seen of the agent there is nothing of the host's",
);
const SHARE: Word = Word::Answer("resources.processor and resources.memory, which are counted by the host");
const FACTS: Word =
    Word::Answer("information.boot-id, information.kernel-command-line and information.host-processes");

/// How the word of an attempt is taken where the box has a kernel of its own.
pub(crate) fn word(class: Class, name: &str) -> Word {
    match class {
        Class::Kernel => kernel(name),
        Class::Files => files(name),
        Class::Credentials => match name {
            "pid-1-environment" => Word::Content,
            "pid-1-maps" | "pid-1-descriptors" => AGENT,
            _ => Word::Counts,
        },
        Class::Lifecycle => match name {
            "own-cgroup" | "real-time" | "nice" | "io-priority" | "raise-limits" | "oom-score"
            | "wake-alarm" => SHARE,
            _ => Word::Counts,
        },
        Class::Resources => match name {
            // Threads, queues and terminals of such a kernel are its own objects; they cost the host memory.
            "thread-bomb" | "signals" | "terminals" | "memory-lock" => Word::Answer(
                "resources.memory and resources.memory-children: such things are no tasks of the host, and cost it memory alone",
            ),
            _ => Word::Counts,
        },
        Class::Information => match name {
            "kernel-command-line" | "dmi" | "kernel-log" => Word::Content,
            "kernel-symbols" | "kernel-memory" | "kernel-config" | "modules" | "iomem" | "interrupts"
            | "scheduler" | "partitions" | "debugfs" | "cgroup-path" | "keys" | "locks" => FACTS,
            _ => Word::Counts,
        },
        Class::ControlPlane => match name {
            "agent-descriptors" => AGENT,
            "agent-priority" | "agent-limits" => Word::Answer(
                "resources.processor and control.kill-agent: what such a kernel notes about its processes moves no task of the host",
            ),
            _ => Word::Counts,
        },
        Class::Network | Class::Persistence => Word::Counts,
    }
}

fn kernel(name: &str) -> Word {
    match name {
        // They go for the host itself.
        "nested-root" | "dirty-pipe" | "dirty-cow" => Word::Counts,
        "syslog" => Word::Content,
        _ if super::sockets::names().any(|socket| socket == name) => SOCKETS,
        "ptrace" | "process-vm-read" | "process-vm-write" | "pidfd-getfd" | "kcmp" | "process-madvise"
        | "move-pages" | "migrate-pages" => AGENT,
        "msgget" | "mq-open" | "add-key" | "request-key" | "keyctl" => {
            Word::Answer("persistence.sysv-shm, persistence.neighbour-shm and persistence.user-keyring")
        }
        _ => ROOT,
    }
}

fn files(name: &str) -> Word {
    match name {
        "core-pattern" | "modprobe-path" | "sysrq" | "uevent-helper" | "binfmt" | "release-agent"
        | "disk" | "device-node" | "file-capability" => ROOT,
        "proc-1-exe" => AGENT,
        _ if name.starts_with("dev-") => ROOT,
        _ => Word::Counts,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_attempt_that_judges_for_others_is_there_and_counts() {
        let all = crate::catalogue::all();
        let judges = |text: &str| {
            text.split(|c: char| !(c.is_ascii_lowercase() || c.is_ascii_digit() || ".-".contains(c)))
                .filter(|word| word.trim_matches('.').contains('.'))
                .map(str::to_owned)
                .collect::<Vec<_>>()
        };
        for attempt in &all {
            let Word::Answer(text) = attempt.word() else { continue };
            for judge in judges(text) {
                let found = all.iter().find(|one| one.id() == judge);
                let word = found.map(crate::attempt::Attempt::word);
                assert!(
                    matches!(word, Some(Word::Counts | Word::Content)),
                    "{}: {judge} is no judge: {word:?}",
                    attempt.id()
                );
            }
        }
    }

    #[test]
    fn what_only_the_host_can_give_counts_in_every_tier() {
        for (class, name) in [
            (Class::Files, "write-canary"),
            (Class::Network, "host-loopback-tcp"),
            (Class::Lifecycle, "orphan"),
            (Class::Resources, "memory"),
            (Class::Persistence, "tmp"),
            (Class::Kernel, "nested-root"),
        ] {
            assert_eq!(word(class, name), Word::Counts, "{name}");
        }
    }
}
