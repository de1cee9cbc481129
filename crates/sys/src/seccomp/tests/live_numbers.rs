//! Every number against the running kernel: what the table allows arrives there, and what it does not never does.
//!
//! Each call is made with arguments that no call can do anything with. Under the filter a denied one is seen by the
//! supervisor and ends as the table says; an allowed one is not, and ends as the same call does in a child without a filter.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::AsFd;

use super::super::{Filter, Verdict, Visibility, errno_for, let_pass, receive, refuse, verdict};
use super::live::{End, call, in_child, no_new_privs, pair, receive_fd, send_fd, wait};
use crate::arch;

/// The last number that belongs to the native interface: those of x32 follow.
const LAST: u32 = 511;
/// No descriptor, no pointer, no process, no flag that exists.
const NONSENSE: [u64; 6] = [u64::MAX; 6];

/// Allowed calls that would end, double, stop or slow the child that makes them; other tests make them.
const NOT_MADE: &[(&str, &str)] = &[
    ("exit", "ends the child"),
    ("exit_group", "ends the child"),
    ("rt_sigreturn", "has no frame to return to"),
    ("fork", "makes another child"),
    ("vfork", "makes another child"),
    ("pause", "waits for ever"),
    ("uretprobe", "ends whoever calls it without a probe of the host"),
    ("sync", "waits for every disk of the host"),
];

fn made(number: u32) -> bool {
    let name = arch::syscall_name(number);
    let kept = NOT_MADE.iter().any(|(kept, _)| Some(*kept) == name);
    !kept || !is_carried_out(number)
}

fn is_carried_out(number: u32) -> bool {
    matches!(verdict(number, &NONSENSE), Verdict::Allow | Verdict::Watch)
}

/// A child that a failed test does not leave behind, waiting for somebody to hear it.
fn ends_with_its_parent() {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL)).unwrap();
}

/// The errno of each of these calls, told by a child without a filter.
fn unfiltered(numbers: &[u32]) -> Vec<i32> {
    let (ours, theirs) = pair();
    let pid = in_child(|| {
        ends_with_its_parent();
        for number in numbers {
            let errno = call(*number, NONSENSE);
            if rustix::io::write(&theirs, &errno.to_ne_bytes()).is_err() {
                return 1;
            }
        }
        0
    });
    drop(theirs);
    let told = numbers.iter().map(|number| {
        let mut errno = [0; 4];
        let read = rustix::io::read(&ours, &mut errno);
        assert_eq!(read, Ok(4), "the child without a filter died of {:?}", arch::syscall_name(*number));
        i32::from_ne_bytes(errno)
    });
    let told = told.collect();
    assert_eq!(wait(pid), End::Exit(0));
    told
}

#[test]
fn every_number_is_decided_by_the_kernel_as_by_the_table() {
    decided(Visibility::Reported);
}

/// What is let pass ends as it would without a filter.
#[test]
fn every_number_that_is_watched_is_reported_and_carried_out() {
    decided(Visibility::WithWrites);
}

fn decided(visibility: Visibility) {
    let numbers: Vec<u32> = (0..=LAST).filter(|number| made(*number)).collect();
    assert_eq!(numbers.len() + NOT_MADE.len(), 512, "nothing else is left out");
    // Only what is allowed: whatever is denied must not be tried without a filter.
    let allowed: Vec<u32> = numbers.iter().copied().filter(|number| is_carried_out(*number)).collect();
    assert!(allowed.len() > 200, "the table allows {} calls", allowed.len());
    let control = unfiltered(&allowed);

    let filter = Filter::compile(visibility);
    let (ours, theirs) = pair();
    let pid = in_child(|| {
        ends_with_its_parent();
        no_new_privs();
        let Ok(Some(listener)) = filter.install() else { return 1 };
        send_fd(&theirs, listener.as_fd());
        drop(listener);
        for number in &numbers {
            let errno = call(*number, NONSENSE);
            if rustix::io::write(&theirs, &errno.to_ne_bytes()).is_err() {
                return 2;
            }
        }
        0
    });
    drop(theirs);
    let listener = receive_fd(&ours);
    // The child is ahead of what was read of its results, so that what is reported is put in order afterwards.
    let (mut seen, mut told) = (Vec::new(), Vec::new());
    while told.len() < numbers.len() {
        let mut both = [PollFd::new(&listener, PollFlags::IN), PollFd::new(&ours, PollFlags::IN)];
        let patience = Timespec { tv_sec: 20, tv_nsec: 0 };
        let ready = poll(&mut both, Some(&patience)).unwrap();
        let current = numbers.get(told.len()).and_then(|number| arch::syscall_name(*number));
        assert!(ready > 0, "{current:?} does not return");
        let (asked, answered) = (both[0].revents(), both[1].revents());
        if asked.contains(PollFlags::IN)
            && let Some(denied) = receive(listener.as_fd()).unwrap()
        {
            seen.push(denied.nr);
            let passed = let_pass(listener.as_fd(), &denied);
            assert_eq!(passed.is_ok(), denied.is_watched(), "nothing that is denied can be let through");
            if passed.is_err() {
                refuse(listener.as_fd(), denied.id, errno_for(denied.nr, &denied.args)).unwrap();
            }
        }
        let mut errno = [0; 4];
        if answered.contains(PollFlags::IN) && rustix::io::read(&ours, &mut errno) == Ok(4) {
            told.push(i32::from_ne_bytes(errno));
        } else if answered.contains(PollFlags::HUP) {
            let last = numbers.get(told.len()).and_then(|number| arch::syscall_name(*number));
            panic!("{last:?} ended the child");
        }
    }
    assert_eq!(wait(pid), End::Exit(0));

    let mut control = allowed.iter().zip(control);
    for (number, told) in numbers.into_iter().zip(told) {
        let (reported, errno) = match verdict(number, &NONSENSE) {
            Verdict::Notify(errno) => (1, errno),
            Verdict::Errno(errno) => (0, errno),
            Verdict::Allow => (0, control.next().unwrap().1),
            Verdict::Watch => (usize::from(visibility == Visibility::WithWrites), control.next().unwrap().1),
            Verdict::Kill => panic!("{number}: no native number kills"),
        };
        let found = (seen.iter().filter(|other| **other == number).count(), told);
        assert_eq!(found, (reported, errno), "{number} {:?}: reported, errno", arch::syscall_name(number));
    }
}
