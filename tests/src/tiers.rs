//! The tiers of this host, for tests whose bodies hold for all of them.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;

use blastbox_policy::Tier;

use crate::{Boxed, Caller, Held};

/// A tier as somebody asks for it.
#[derive(Debug)]
pub struct Bench<'a> {
    /// Who asks.
    pub caller: &'a Caller,
    /// For what.
    pub tier: Tier,
    options: &'static [&'static str],
}

impl Bench<'_> {
    /// The options that ask for it, and more.
    pub fn with<'b>(&self, more: &[&'b str]) -> Vec<&'b str> {
        self.options.iter().copied().chain(more.iter().copied()).collect()
    }

    /// A shell script in a box of this tier, to its end.
    pub fn sh(&self, more: &[&str], script: &str) -> Boxed {
        self.caller.sh(&self.with(more), script)
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
    Some(Bench { caller, tier: Tier::Jail, options: &["--tier", "jail"] })
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
    Some(Bench { caller, tier: Tier::Gvisor, options })
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
