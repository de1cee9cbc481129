//! The tiers of this host, for tests whose bodies hold for all of them.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;

use blastbox_policy::Tier;

use crate::machines::{PATIENCE, Workshop};
use crate::{Boxed, Caller, Held, Served};

/// A tier as somebody asks for it.
#[derive(Debug)]
pub struct Bench<'a> {
    /// Who asks.
    pub caller: &'a Caller,
    /// For what.
    pub tier: Tier,
    options: &'static [&'static str],
    /// Where its images lie, if not where they usually do.
    store: Option<String>,
    /// The body, where several share a test.
    body: Option<&'static str>,
}

impl<'a> Bench<'a> {
    /// The options that ask for it, and more.
    pub fn with<'b>(&'b self, more: &[&'b str]) -> Vec<&'b str> {
        let store = self.store.iter().flat_map(|store| ["--store", store.as_str()]);
        store.chain(self.create(more)).collect()
    }

    /// The same for a box of a daemon, which has its own idea of where images lie.
    pub fn create<'b>(&self, more: &[&'b str]) -> Vec<&'b str> {
        self.options.iter().copied().chain(more.iter().copied()).collect()
    }

    /// A daemon that keeps boxes of this tier.
    pub fn serve(&self) -> Served<'a> {
        let store: Vec<&str> = self.store.iter().flat_map(|store| ["--store", store.as_str()]).collect();
        Served::start(self.caller, &store)
    }

    /// Reports that this host, or this tier, cannot do what a body asks.
    pub fn skip(&self, reason: &str) {
        match self.body {
            Some(body) => self.caller.leave_out(body, reason),
            None => self.caller.skip(reason),
        }
    }

    /// A command in a box of this tier, to its end, with what it reads.
    pub fn run(&self, more: &[&str], command: &[&str], input: &str) -> Boxed {
        let words = ["run", "--json"].into_iter().chain(self.with(more)).chain(["--"]);
        let start = self.caller.blastbox(words.chain(command.iter().copied())).input(input).start();
        // A machine may have to boot first, on a busy host.
        if self.tier == Tier::Microvm { start.end_within(PATIENCE).boxed() } else { start.end().boxed() }
    }

    /// A shell script in a box of this tier, to its end.
    pub fn sh(&self, more: &[&str], script: &str) -> Boxed {
        self.run(more, &["/bin/sh", "-c", script], "")
    }

    /// A box whose command has said that it runs, and what else it says.
    pub fn start(&self, script: &str) -> (Held, File) {
        let null =
            || OwnedFd::from(File::options().read(true).write(true).open("/dev/null").expect("/dev/null"));
        let (mut said, says) = std::io::pipe().expect("a pipe");
        let words = ["run", "--timeout", "40s"].into_iter().chain(self.with(&[]));
        let command = self.caller.blastbox(words.chain(["--", "/bin/sh", "-c", script]));
        let held = command.start_with([null(), OwnedFd::from(says), null()]);
        let mut up = [0; 3];
        said.read_exact(&mut up).expect("a box that runs");
        assert_eq!(&up, b"up\n");
        (held, File::from(OwnedFd::from(said)))
    }
}

/// The jail: every host has it.
pub fn jail(caller: &Caller) -> Option<Bench<'_>> {
    Some(Bench { caller, tier: Tier::Jail, options: &["--tier", "jail"], store: None, body: None })
}

/// `None`, and reported: this host has no gVisor that can be used.
pub fn gvisor(caller: &Caller) -> Option<Bench<'_>> {
    let options: &[&str] = &["--tier", "gvisor", "--accept", "silent-denials"];
    let asked = caller.blastbox(["plan"].iter().chain(options)).end();
    if asked.code != 0 {
        assert!(asked.err.contains("refused: "), "{}", asked.err);
        caller.skip(&format!("no gVisor here: {}", asked.err.lines().next().unwrap_or_default()));
        return None;
    }
    Some(Bench { caller, tier: Tier::Gvisor, options, store: None, body: None })
}

/// What a body of a suite is.
pub type Body = fn(&Bench<'_>);

/// What bodies call in a box beside the usual tools.
const MORE_TOOLS: [&str; 12] =
    ["true", "rm", "mv", "ln", "cp", "chmod", "cut", "tail", "tty", "stty", "od", "unshare"];

/// All bodies in machines, one after the other, with one store: most of their boxes are copies of the same template. Reported where this
/// host has no machines. The two callers go side by side: one that waited for the other would keep a thread from the tests of other tiers.
pub fn microvm(caller: &Caller, bodies: &[(&'static str, Body)]) {
    let workshop = Workshop::with(caller, |root| {
        for tool in MORE_TOOLS {
            symlink("busybox", root.join("bin").join(tool)).expect("make a link");
        }
        fs::write(root.join("etc/passwd"), "user:x:1000:1000::/home/user:/bin/sh\n").expect("write a file");
    });
    let Some(workshop) = workshop else { return };
    // All kinds that bodies ask for again and again: where one is missing, one of the two boots it.
    for limits in [LIMITS, &[LIMITS, LITTLE].concat(), &[LIMITS, WITH_GATEWAY].concat()] {
        workshop.template(limits);
    }
    for body in OF_A_GUEST {
        assert!(bodies.iter().any(|(name, _)| *name == body), "{body} is nobody's");
    }
    let asked = bodies.iter().filter(|(body, _)| caller.comes_first() || !OF_A_GUEST.contains(body));
    for (body, try_it) in asked {
        try_it(&Bench {
            caller,
            tier: Tier::Microvm,
            options: MACHINE,
            store: Some(workshop.store.clone()),
            body: Some(body),
        });
    }
}

/// What a guest does by itself, whoever asked for its box: one caller sees it. The other one sees what daemon, warden, gateway and workspace
/// have to do with it.
const OF_A_GUEST: [&str; 6] = [
    "a_denied_call_is_told",
    "processes_are_limited",
    "what_can_be_written_is_limited",
    "what_the_box_wrote_is_not_executed_where_the_policy_says_so",
    "nothing_is_reached_without_network",
    "a_terminal_has_its_size_and_passes_on_every_byte",
];

/// Limits that are small enough to be reached, all at once: a machine boots for each set of them.
pub const LITTLE: &[&str] = &["--pids", "16", "--disk", "4MiB", "--no-exec"];
/// Of a box that has a gateway. Which hosts it lets through is nothing that its machine knows.
pub const WITH_GATEWAY: &[&str] = &["--allow", "good.example"];

/// Those of machines in which nothing else is limited.
const LIMITS: &[&str] = &["--memory", "256MiB"];

/// An emulated processor is no boundary, so what the jail around it lacks is named too.
const MACHINE: &[&str] = &[
    "--tier",
    "microvm",
    "--image",
    "tools",
    "--memory",
    "256MiB",
    "--accept=emulated-cpu",
    "--accept=shared-kernel",
    "--accept=shared-uid",
    "--accept=no-memory-limit",
    "--accept=no-cpu-limit",
    "--accept=no-pids-limit",
    "--accept=swap-unlimited",
];

/// Two tests of all bodies in machines, which would take too long to boot for each: two callers.
#[macro_export]
macro_rules! conform_in_machines {
    ($($body:ident),+ $(,)?) => {
        mod in_a_machine {
            const BODIES: &[(&str, $crate::tiers::Body)] = &[$((stringify!($body), super::$body)),+];

            #[test]
            fn as_root() {
                if let Some(caller) = $crate::Caller::root(concat!(module_path!(), "::as_root")) {
                    $crate::tiers::microvm(&caller, BODIES);
                }
            }

            #[test]
            fn as_user() {
                if let Some(caller) = $crate::Caller::user(concat!(module_path!(), "::as_user")) {
                    $crate::tiers::microvm(&caller, BODIES);
                }
            }
        }
    };
}

/// What every tier has to do: tests of each body in the jail and on gVisor, and of all of them in machines.
#[macro_export]
macro_rules! conform_everywhere {
    ($($body:ident),+ $(,)?) => {
        $crate::conform!($($body),+);
        $crate::conform_in_machines!($($body),+);
    };
}

/// Four tests of each body: two tiers, two callers.
#[macro_export]
macro_rules! conform {
    ($($body:ident),+ $(,)?) => {
        $(
            mod $body {
                use $crate::Caller;
                use $crate::tiers::{Bench, gvisor, jail};

                fn on(caller: Option<Caller>, tier: for<'a> fn(&'a Caller) -> Option<Bench<'a>>) {
                    if let Some(caller) = caller && let Some(bench) = tier(&caller) {
                        super::$body(&bench);
                    }
                }

                #[test]
                fn jail_as_root() {
                    on(Caller::root(concat!(module_path!(), "::jail_as_root")), jail);
                }

                #[test]
                fn jail_as_user() {
                    on(Caller::user(concat!(module_path!(), "::jail_as_user")), jail);
                }

                #[test]
                fn gvisor_as_root() {
                    on(Caller::root(concat!(module_path!(), "::gvisor_as_root")), gvisor);
                }

                #[test]
                fn gvisor_as_user() {
                    on(Caller::user(concat!(module_path!(), "::gvisor_as_user")), gvisor);
                }
            }
        )+
    };
}
