//! Lies about files: what a box that was taken over answers to whoever copies something out of it.

use blastbox_policy::Boundary;

use crate::attempt::Control::{self, Plain, PlainRoot};
use crate::attempt::{Attempt, Class, Issue, Script, nothing_false};
use crate::layer::Second::{self, Nothing, Unlifted};
use crate::reply::Reply;

const BENEATH: &str = "every name is opened beneath the target, and over no link (openat2)";
const FRESH: &str = "what has the name is taken away, and the file is made new (O_EXCL), through no link";
/// Both are lines of one program, of which no build lacks one.
const ONE_PROGRAM: &str =
    "both are checks of `blastbox cp`, of which no build lacks one: crates/cli/src/daemon/cp/unpack_tests.rs";
const NAMES: Second =
    Unlifted("names with a root or `..` in them are refused before anything is opened", ONE_PROGRAM);
const RIGHTS: Second = Nothing("whoever copies writes with their own rights, and those are all that is left");
const NO_LINK_OUT: Second = Unlifted("no link that leads out is made", ONE_PROGRAM);
const KINDS: &str = "files, directories and links that stay inside are made, and nothing else";

/// Name, what it tries, what it stands for, first control, second, what is answered, where it must succeed.
type Line = (&'static str, &'static str, &'static str, &'static str, Second, Reply, Control);

#[rustfmt::skip]
const LINES: &[Line] = &[
    ("cp-absolute", "Answer with a file of an absolute name", "CVE-2007-4559 (tarfile)", BENEATH, NAMES, Reply::Absolute, Plain),
    ("cp-dotdot", "Answer with a file that climbs out of the target", "Zip Slip, CVE-2007-4559", BENEATH, NAMES, Reply::DotDot, Plain),
    ("cp-link-then-file", "Answer with a link, then with a file behind it", "CVE-2019-1002101 (kubectl cp)", BENEATH, NO_LINK_OUT, Reply::LinkThenFile, Plain),
    ("cp-link-replaced", "Answer with a link, then with a file of its name", "CVE-2018-15664 (docker cp)", FRESH, NO_LINK_OUT, Reply::LinkReplaced, Plain),
    ("cp-hard-link", "Answer with a hard link to a file of the host, then write it", "CVE-2024-12718 class (tarfile)", KINDS, Unlifted("a file is made new: what has its name is taken away, not written to", ONE_PROGRAM), Reply::HardLink, Plain),
    ("cp-link-out", "Leave a link to a secret of the host in what was copied", "CVE-2019-11249 (kubectl cp)", "no link that leads out of what was copied is made", RIGHTS, Reply::LinkOut, Plain),
    ("cp-link-there", "Write through a link that was in the target before", "CVE-2019-11246 (kubectl cp)", BENEATH, RIGHTS, Reply::LinkThatWasThere, Plain),
    ("cp-long-name", "Give a harmless file another name in a header before it (PAX)", "parsers that check one name and use another", BENEATH, NAMES, Reply::LongName, Plain),
    ("cp-gnu-long-name", "The same by the older way (GNU)", "parsers that check one name and use another", BENEATH, NAMES, Reply::GnuLongName, Plain),
    ("cp-device", "Leave a device node in what was copied", "mknod by whoever unpacks as root", KINDS, RIGHTS, Reply::Device, PlainRoot),
    ("cp-set-id", "Leave a set-id program in what was copied", "root's copy of a guest's program", "modes are cut to what a mode of a file may be", RIGHTS, Reply::SetId, Plain),
    ("cp-pipe", "Leave a pipe where a file should be", "whoever reads it next hangs", KINDS, RIGHTS, Reply::Pipe, Plain),
    ("cp-endless", "Send more than was asked for", "disks that fill", "a limit on what is taken (--limit)", Nothing("it is the caller's own disk, and a limit that the caller names is all that bounds it"), Reply::Endless, Plain),
    ("cp-file-through-link", "Have one file written through a link that is there", "CVE-2018-15664 (docker cp)", FRESH, RIGHTS, Reply::ThroughLink, Plain),
    ("cp-file-mode", "Say that one file is set-id", "root's copy of a guest's program", "modes are cut to what a mode of a file may be", RIGHTS, Reply::ModeOfFile, Plain),
];

pub(super) fn attempts() -> Vec<Attempt> {
    let make = |&(name, title, stands_for, first, second, reply, control): &Line| Attempt {
        class: Class::ControlPlane,
        name,
        title,
        boundary: Boundary::Files,
        issue: Issue::Escape,
        stands_for,
        first,
        second,
        script: Script::Reply(reply),
        control,
        props: &[],
        options: &[],
        stopped_by: &[],
        lie: nothing_false,
        unless: &[],
    };
    LINES.iter().map(make).collect()
}
