//! From the table to classic BPF: a balanced tree over ranges of system call numbers.
//!
//! Neighbouring numbers with the same rule are one range, so that some 250 allowed calls need about a hundred compares
//! and any call is decided after about eight. A linear list costs several times as much to install, because the kernel
//! runs a new filter once for every number to learn which ones are always allowed.
//!
//! The program is built from its end to its beginning: jumps only go forward, so every target already has its place
//! when a jump to it is written.

use super::check::{Check, Verdict};
use super::install::Visibility;
use super::table;
use crate::arch;
use libc::sock_filter;

/// Offsets into `struct seccomp_data`.
const NUMBER_AT: u32 = 0;
const ARCH_AT: u32 = 4;
const ARGS_AT: u32 = 16;
/// Where the low half of an argument lies within its eight bytes.
const LOW_HALF: u32 = if cfg!(target_endian = "little") { 0 } else { 4 };

const LOAD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
const AND: u16 = 0x54; // BPF_ALU | BPF_AND | BPF_K
const ALWAYS: u16 = 0x05; // BPF_JMP | BPF_JA
const IF_EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
const IF_AT_LEAST: u16 = 0x35; // BPF_JMP | BPF_JGE | BPF_K
const IF_ANY_BIT: u16 = 0x45; // BPF_JMP | BPF_JSET | BPF_K
const RETURN: u16 = 0x06; // BPF_RET | BPF_K

/// Conditional jumps reach 255 instructions. Making one target reachable can add one instruction in front of the
/// other, hence the margin.
const REACH: usize = 250;

/// Where a jump goes.
#[derive(Clone, Copy)]
enum Target {
    /// End with this seccomp action.
    Action(u32),
    /// An instruction that is already written, counted from the end of the program.
    Written(usize),
}

/// Compiles the table of boxes.
pub(super) fn compile(visibility: Visibility) -> Vec<sock_filter> {
    compile_rules(table::rules(), visibility)
}

/// Compiles rules that are given for ascending numbers.
pub(super) fn compile_rules(rules: &[(u32, Check)], visibility: Visibility) -> Vec<sock_filter> {
    let mut program = Backwards { code: Vec::new(), returns: Vec::new(), visibility };
    let ranges = program.ranges(rules);
    let judged = program.tree(&ranges);
    let kill = Target::Action(libc::SECCOMP_RET_KILL_PROCESS);
    let native = match arch::FOREIGN_BIT {
        Some(bit) => program.branch(IF_ANY_BIT, bit, kill, judged),
        None => judged,
    };
    let numbered = program.step(LOAD, NUMBER_AT, native);
    let known = program.branch(IF_EQUAL, arch::AUDIT_ARCH, numbered, kill);
    program.step(LOAD, ARCH_AT, known);
    program.code.reverse();
    program.code
}

/// A program under construction, last instruction first.
struct Backwards {
    code: Vec<sock_filter>,
    /// Where each verdict was written last.
    returns: Vec<(u32, usize)>,
    visibility: Visibility,
}

impl Backwards {
    /// Every number from 0 to `u32::MAX` as ascending ranges, each given by its first number. Equal rules share code.
    fn ranges(&mut self, rules: &[(u32, Check)]) -> Vec<(u32, Target)> {
        let foreign = arch::FOREIGN_NUMBERS.map(|(first, last)| (first, last, super::arguments::DENY));
        // Where nobody hears of writes, a call that is only watched is allowed without a look at its arguments: the kernel
        // then never runs the filter for it.
        let heard = self.visibility == Visibility::WithWrites;
        let plain = |rule: Check| if !heard && rule.never_refuses() { super::arguments::ALLOW } else { rule };
        let single = rules.iter().map(|&(number, rule)| (number, number, plain(rule)));
        let mut spans: Vec<_> = single.chain(foreign).collect();
        spans.sort_unstable_by_key(|span| span.0);

        let mut written: Vec<(Check, Target)> = Vec::new();
        let mut ranges: Vec<(u32, Check)> = Vec::new();
        let mut add = |first: u32, rule: Check| {
            if ranges.last().is_none_or(|last| last.1 != rule) {
                ranges.push((first, rule));
            }
        };
        let mut next = 0;
        for (first, last, rule) in spans {
            if first > next {
                add(next, super::arguments::ABSENT);
            }
            add(first, rule);
            next = last.saturating_add(1);
        }
        add(next, super::arguments::ABSENT);

        let place = |&(first, rule): &(u32, Check)| {
            if let Some(&(_, target)) = written.iter().find(|entry| entry.0 == rule) {
                return (first, target);
            }
            let target = self.check(&rule);
            written.push((rule, target));
            (first, target)
        };
        ranges.iter().map(place).collect()
    }

    /// A balanced tree; the accumulator holds the number.
    fn tree(&mut self, ranges: &[(u32, Target)]) -> Target {
        let (lower, upper) = ranges.split_at(ranges.len() / 2);
        match (lower, upper) {
            (_, []) => self.action(Verdict::Kill), // no ranges at all: cannot happen, fails closed
            ([], [only, ..]) => only.1,
            (_, [middle, ..]) => {
                let high = self.tree(upper);
                let low = self.tree(lower);
                self.branch(IF_AT_LEAST, middle.0, high, low)
            }
        }
    }

    /// The code of an argument check; it loads what it needs.
    fn check(&mut self, check: &Check) -> Target {
        match *check {
            Check::Then(verdict) => self.action(verdict),
            Check::Is { arg, mask, values, yes, no } => {
                let no = self.check(no);
                let yes = self.check(yes);
                let compare = |next, value: &u32| self.branch(IF_EQUAL, *value, yes, next);
                let mut next = values.iter().rev().fold(no, compare);
                if mask != u32::MAX {
                    next = self.step(AND, mask, next);
                }
                self.step(LOAD, ARGS_AT + 8 * u32::from(arg) + LOW_HALF, next)
            }
            Check::Null { arg, yes, no } => {
                let no = self.check(no);
                let yes = self.check(yes);
                let at = ARGS_AT + 8 * u32::from(arg);
                let second = self.branch(IF_EQUAL, 0, yes, no);
                let second = self.step(LOAD, at + 4, second);
                let first = self.branch(IF_EQUAL, 0, second, no);
                self.step(LOAD, at, first)
            }
        }
    }

    fn action(&self, verdict: Verdict) -> Target {
        // An errno is a small positive number. One that is not would fail closed as 0xFFFF, which the kernel caps.
        let errno =
            |value: i32| libc::SECCOMP_RET_ERRNO | u32::from(u16::try_from(value).unwrap_or(u16::MAX));
        Target::Action(match (verdict, self.visibility) {
            (Verdict::Allow, _) | (Verdict::Watch, Visibility::Reported | Visibility::Silent) => {
                libc::SECCOMP_RET_ALLOW
            }
            (Verdict::Watch, Visibility::WithWrites)
            | (Verdict::Notify(_), Visibility::Reported | Visibility::WithWrites) => {
                libc::SECCOMP_RET_USER_NOTIF
            }
            (Verdict::Errno(value), _) | (Verdict::Notify(value), Visibility::Silent) => errno(value),
            (Verdict::Kill, _) => libc::SECCOMP_RET_KILL_PROCESS,
        })
    }

    /// `if accumulator <test> operand { yes } else { no }`.
    fn branch(&mut self, test: u16, operand: u32, yes: Target, no: Target) -> Target {
        let yes = self.reach(yes);
        let no = self.reach(no);
        let distance = |target: usize| u8::try_from(self.code.len() - target - 1).unwrap_or(u8::MAX);
        self.push(sock_filter { code: test, jt: distance(yes), jf: distance(no), k: operand })
    }

    /// An instruction that is followed by `next`.
    fn step(&mut self, code: u16, operand: u32, next: Target) -> Target {
        let at = self.reach(next);
        let gap = self.code.len() - at - 1;
        if gap > 0 {
            let gap = u32::try_from(gap).unwrap_or(u32::MAX);
            self.push(sock_filter { code: ALWAYS, jt: 0, jf: 0, k: gap });
        }
        self.push(sock_filter { code, jt: 0, jf: 0, k: operand })
    }

    /// The place of a target that a conditional jump written next can reach, made so when it is not.
    fn reach(&mut self, target: Target) -> usize {
        let here = self.code.len();
        match target {
            Target::Written(at) if here - at <= REACH => return at,
            Target::Written(at) => {
                let gap = u32::try_from(here - at - 1).unwrap_or(u32::MAX);
                self.push(sock_filter { code: ALWAYS, jt: 0, jf: 0, k: gap });
            }
            Target::Action(action) => {
                let last = self.returns.iter_mut().find(|(written, _)| *written == action);
                match last {
                    Some((_, at)) if here - *at <= REACH => return *at,
                    Some((_, at)) => *at = here,
                    None => self.returns.push((action, here)),
                }
                self.push(sock_filter { code: RETURN, jt: 0, jf: 0, k: action });
            }
        }
        here
    }

    fn push(&mut self, line: sock_filter) -> Target {
        self.code.push(line);
        Target::Written(self.code.len() - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{emulate::run, errno_for, verdict};
    use super::*;

    /// What the table wants, as the value that the filter has to return.
    fn wanted(visibility: Visibility, nr: u32, args: &[u64; 6]) -> u32 {
        let program = Backwards { code: Vec::new(), returns: Vec::new(), visibility };
        match program.action(verdict(nr, args)) {
            Target::Action(action) => action,
            Target::Written(_) => unreachable!(),
        }
    }

    /// Every argument value at which some check of the table changes its mind, and the tricks around it.
    fn edges() -> Vec<u64> {
        fn collect(check: &Check, into: &mut Vec<u64>) {
            if let Check::Is { mask, values, yes, no, .. } = *check {
                let bits = (0..32).map(|bit| 1 << bit).filter(|bit| mask & bit != 0);
                for value in values.iter().copied().chain(bits).chain([mask, !mask]) {
                    into.extend([value, value.wrapping_sub(1), value.wrapping_add(1)].map(u64::from));
                }
                collect(yes, into);
                collect(no, into);
            }
            if let Check::Null { yes, no, .. } = *check {
                into.extend([0, 1, 1 << 32]);
                collect(yes, into);
                collect(no, into);
            }
        }
        let mut edges = vec![0, 1, 2, 5, 6, 10, 16, 17, u64::from(u32::MAX)];
        for (_, check, _) in table::TABLE {
            collect(check, &mut edges);
        }
        edges.sort_unstable();
        edges.dedup();
        let high = edges.iter().map(|edge| edge | 0xDEAD_BEEF_0000_0000).collect::<Vec<_>>();
        [edges, high].concat()
    }

    #[test]
    fn the_program_is_small_and_shallow() {
        for visibility in [Visibility::Reported, Visibility::WithWrites] {
            let program = compile(visibility);
            assert!(program.len() < 400, "{} instructions", program.len());
            let deepest = (0..600).map(|nr| run(&program, arch::AUDIT_ARCH, nr, &[0; 6]).1).max().unwrap();
            assert!(deepest < 50, "{deepest} instructions for one call");
        }
    }

    /// The kernel lets a call through without running the filter where no instruction on its way loads an argument.
    #[test]
    fn a_box_whose_writes_nobody_hears_of_pays_nothing_for_opening_files() {
        let steps = |visibility, name: &str| {
            let number = arch::syscall_number(name).unwrap();
            let (found, steps) = run(&compile(visibility), arch::AUDIT_ARCH, number, &[u64::MAX; 6]);
            (found, steps)
        };
        for name in ["open", "openat", "openat2", "creat", "rename", "unlinkat", "mkdir"] {
            let (heard, _) = steps(Visibility::WithWrites, name);
            assert_eq!(heard, libc::SECCOMP_RET_USER_NOTIF, "{name}");
            for visibility in [Visibility::Reported, Visibility::Silent] {
                let (found, steps) = steps(visibility, name);
                assert_eq!(found, libc::SECCOMP_RET_ALLOW, "{name}");
                assert!(steps < 16, "{name}: {steps} instructions");
            }
        }
    }

    #[test]
    fn the_compiled_filter_says_exactly_what_the_table_says() {
        let bit = arch::FOREIGN_BIT.unwrap_or(0);
        let beyond = [1024, 65_535, 0x3FFF_FFFF, 0x7FFF_FFFF, 0x8000_0000, 0xBFFF_FFFF, u32::MAX];
        let numbers = (0..=1023).flat_map(|nr| [nr, nr | bit, nr | 0x8000_0000]).chain(beyond);
        for visibility in [Visibility::Reported, Visibility::WithWrites, Visibility::Silent] {
            let program = compile(visibility);
            for nr in numbers.clone() {
                for args in [[0; 6], [u64::MAX; 6]] {
                    let found = run(&program, arch::AUDIT_ARCH, nr, &args).0;
                    assert_eq!(found, wanted(visibility, nr, &args), "call {nr}");
                }
            }
        }
    }

    #[test]
    fn argument_checks_hold_at_every_edge_whatever_the_high_bits_say() {
        let visibility = Visibility::WithWrites;
        let program = compile(visibility);
        let edges = edges();
        let checked = table::rules().iter().filter(|(_, rule)| matches!(rule, Check::Is { .. }));
        for &(nr, _) in checked {
            for position in 0..3 {
                for &edge in &edges {
                    for others in [0, 1, 2, 5, 6, 10, 17, 0xFFFF_FFFF_0000_0001, u64::MAX] {
                        let mut args = [others; 6];
                        args[position] = edge;
                        let found = run(&program, arch::AUDIT_ARCH, nr, &args).0;
                        assert_eq!(found, wanted(visibility, nr, &args), "call {nr}, {args:x?}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_foreign_architecture_dies_whatever_it_calls() {
        let program = compile(Visibility::Silent);
        for nr in 0..=1023 {
            for foreign in [0x4000_0003, 0xC000_00B7, 0, u32::MAX] {
                assert_eq!(run(&program, foreign, nr, &[0; 6]).0, libc::SECCOMP_RET_KILL_PROCESS);
            }
        }
    }

    #[test]
    fn the_rules_that_matter_say_what_they_should() {
        let call = |name: &str, args: [u64; 3]| {
            let [a, b, c] = args;
            verdict(arch::syscall_number(name).unwrap(), &[a, b, c, 0, 0, 0])
        };
        let (allow, deny) = (Verdict::Allow, Verdict::Notify(libc::EPERM));
        let watch = Verdict::Watch;
        let high = 0xFFFF_FFFF_0000_0000;

        assert_eq!(call("clone", [17, 0, 0]), allow, "fork");
        assert_eq!(call("clone", [0x003D_0F00, 0, 0]), allow, "a thread");
        for bit in [0x80, 0x2_0000, 0x200_0000, 0x400_0000, 0x800_0000, 0x1000_0000, 0x2000_0000, 0x4000_0000]
        {
            assert_eq!(call("clone", [17 | bit, 0, 0]), deny, "{bit:x}");
            assert_eq!(call("clone", [high | 17 | bit, 0, 0]), deny, "{bit:x}");
        }
        assert_eq!(call("clone3", [0; 3]), Verdict::Errno(libc::ENOSYS));
        assert_eq!(call("ioctl", [0, 0x5412, 0]), deny, "TIOCSTI");
        assert_eq!(call("ioctl", [0, high | 0x5412, 0]), deny, "TIOCSTI with high bits");
        for request in [0x5401, 0x540E, 0x5413, 0x5414, 0x5441] {
            assert_eq!(call("ioctl", [0, request, 0]), allow, "{request:x}");
        }
        for request in [libc::SECCOMP_IOCTL_NOTIF_RECV, libc::SECCOMP_IOCTL_NOTIF_SEND] {
            assert_eq!(call("ioctl", [3, request, 0]), allow, "the supervisor in the box needs it");
        }

        assert_eq!(call("socket", [1, 0x8_0005, 0]), allow, "sequenced packets, close on exec");
        assert_eq!(call("socket", [2, 1, 6]), allow);
        assert_eq!(call("socket", [10, 0x802, 0]), allow);
        assert_eq!(call("socket", [2, 3, 1]), deny, "raw");
        assert_eq!(call("socket", [2, high | 3, 1]), deny, "raw with high bits");
        assert_eq!(call("socket", [2, 10, 0]), deny, "packet");
        assert_eq!(call("socket", [2, 5, 0]), deny, "this is SCTP");
        assert_eq!(call("socket", [2, 1, 132]), Verdict::Notify(libc::EPROTONOSUPPORT), "SCTP");
        assert_eq!(call("socket", [2, 1, 262]), Verdict::Errno(libc::EPROTONOSUPPORT), "MPTCP");
        assert_eq!(call("socket", [16, 3, 0]), Verdict::Errno(libc::EAFNOSUPPORT), "netlink");
        for family in [17, 38, 40, 44] {
            assert_eq!(call("socket", [family, 1, 0]), Verdict::Notify(libc::EAFNOSUPPORT));
        }
        assert_eq!(
            errno_for(arch::syscall_number("socket").unwrap(), &[40, 1, 0, 0, 0, 0]),
            libc::EAFNOSUPPORT
        );

        assert_eq!(call("setsockopt", [3, 6, 1]), allow, "TCP_NODELAY");
        assert_eq!(call("setsockopt", [3, 6, 31]), deny, "TCP_ULP");
        assert_eq!(call("setsockopt", [3, 1, 26]), deny, "SO_ATTACH_FILTER");
        assert_eq!(call("setsockopt", [3, 0, 26]), allow, "another level");
        assert_eq!(call("prctl", [15, 0, 0]), allow, "PR_SET_NAME");
        assert_eq!(call("prctl", [35, 0, 0]), Verdict::Notify(libc::EINVAL), "PR_SET_MM");
        assert_eq!(call("personality", [0xFFFF_FFFF, 0, 0]), allow);
        assert_eq!(call("personality", [0x4_0000, 0, 0]), deny, "ADDR_NO_RANDOMIZE");
        assert_eq!(call("mknod", [0, 0o010_644, 0]), watch, "named pipe");
        assert_eq!(call("mknod", [0, 0o020_644, 0]), deny, "character device");
        assert_eq!(call("mknodat", [0, 0, 0o060_644]), deny, "block device");
        assert_eq!(call("mknodat", [0, 0, 0o100_644]), watch, "regular file");
        for (flags, verdict) in
            [(0, allow), (1, watch), (2, watch), (3, watch), (0x40, watch), (0x200, watch)]
        {
            assert_eq!(call("open", [0, flags, 0]), verdict, "{flags:x}");
            assert_eq!(call("openat", [0, 0, high | 0x8_0000 | flags]), verdict, "{flags:x}, close on exec");
        }
        assert_eq!(call("openat", [0, 0, 0x20_0000]), allow, "O_PATH");
        for name in
            ["creat", "openat2", "rename", "renameat2", "linkat", "symlink", "unlink", "rmdir", "mkdirat"]
        {
            assert_eq!(call(name, [0; 3]), watch, "{name}");
        }
        assert_eq!(call("seccomp", [1, 1, 0]), allow, "TSYNC");
        assert_eq!(call("seccomp", [1, 8, 0]), Verdict::Errno(libc::EINVAL), "a second listener");
        assert_eq!(verdict(0x4000_0000 | 39, &[0; 6]), Verdict::Kill, "x32");
        assert_eq!(verdict(520, &[0; 6]), deny, "an x32 number");
        assert_eq!(verdict(511, &[0; 6]), Verdict::Errno(libc::ENOSYS), "newer than the table");
    }
}
