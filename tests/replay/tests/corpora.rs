//! Every seed of `fuzz/corpus` through its own fuzz target, with everything that the target asserts.
#![allow(
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    unused_attributes,
    reason = "only tests; the targets are written for a fuzzer, as programs of their own"
)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

// The name that the targets know it by.
extern crate blastbox_replay as libfuzzer_sys;

#[path = "../../../fuzz/fuzz_targets/call.rs"]
mod call;
#[path = "../../../fuzz/fuzz_targets/card.rs"]
mod card;
#[path = "../../../fuzz/fuzz_targets/dns.rs"]
mod dns;
#[path = "../../../fuzz/fuzz_targets/egress.rs"]
mod egress;
#[path = "../../../fuzz/fuzz_targets/file_say.rs"]
mod file_say;
#[path = "../../../fuzz/fuzz_targets/files.rs"]
mod files;
#[path = "../../../fuzz/fuzz_targets/framing.rs"]
mod framing;
#[path = "../../../fuzz/fuzz_targets/from_agent.rs"]
mod from_agent;
#[path = "../../../fuzz/fuzz_targets/from_host.rs"]
mod from_host;
#[path = "../../../fuzz/fuzz_targets/hello.rs"]
mod hello;
#[path = "../../../fuzz/fuzz_targets/host.rs"]
mod host;
#[path = "../../../fuzz/fuzz_targets/ledger_text.rs"]
mod ledger_text;
#[path = "../../../fuzz/fuzz_targets/link.rs"]
mod link;
#[path = "../../../fuzz/fuzz_targets/oci_text.rs"]
mod oci_text;
#[path = "../../../fuzz/fuzz_targets/path.rs"]
mod path;
#[path = "../../../fuzz/fuzz_targets/policy_text.rs"]
mod policy_text;
#[path = "../../../fuzz/fuzz_targets/proxy_connect.rs"]
mod proxy_connect;
#[path = "../../../fuzz/fuzz_targets/scrub.rs"]
mod scrub;
#[path = "../../../fuzz/fuzz_targets/socks.rs"]
mod socks;
#[path = "../../../fuzz/fuzz_targets/sudo.rs"]
mod sudo;
#[path = "../../../fuzz/fuzz_targets/to_warden.rs"]
mod to_warden;
#[path = "../../../fuzz/fuzz_targets/tools.rs"]
mod tools;
#[path = "../../../fuzz/fuzz_targets/untar.rs"]
mod untar;
#[path = "../../../fuzz/fuzz_targets/websocket.rs"]
mod websocket;

/// `unpack` makes files: `crates/images/tests/corpus.rs` sends its seeds through.
const ELSEWHERE: &str = "unpack";

/// A target, by its name.
type Target = (&'static str, fn(&[u8]) -> bool);

const TARGETS: &[Target] = &[
    ("call", call::run),
    ("card", card::run),
    ("dns", dns::run),
    ("egress", egress::run),
    ("file_say", file_say::run),
    ("files", files::run),
    ("framing", framing::run),
    ("from_agent", from_agent::run),
    ("from_host", from_host::run),
    ("hello", hello::run),
    ("host", host::run),
    ("ledger_text", ledger_text::run),
    ("link", link::run),
    ("oci_text", oci_text::run),
    ("path", path::run),
    ("policy_text", policy_text::run),
    ("proxy_connect", proxy_connect::run),
    ("scrub", scrub::run),
    ("socks", socks::run),
    ("sudo", sudo::run),
    ("to_warden", to_warden::run),
    ("tools", tools::run),
    ("untar", untar::run),
    ("websocket", websocket::run),
];

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus")
}

#[test]
fn every_seed_goes_through_its_target() {
    for (name, run) in TARGETS {
        let seeds = std::fs::read_dir(corpus().join(name)).expect("list the seeds");
        let mut count = 0;
        for seed in seeds {
            let seed = seed.expect("read a name").path();
            let bytes = std::fs::read(&seed).expect("read a seed");
            // Which one it was is said where a target fails.
            let ran = std::panic::catch_unwind(|| run(&bytes));
            assert!(ran.is_ok(), "{} broke its target", seed.display());
            count += usize::from(ran.is_ok_and(|ran| ran));
        }
        assert!(count > 0, "{name} has no seeds that it takes");
    }
}

#[test]
fn every_target_with_seeds_is_here() {
    let folders = std::fs::read_dir(corpus()).expect("list the corpora");
    let found: BTreeSet<String> =
        folders.map(|folder| folder.expect("a name").file_name().to_string_lossy().into_owned()).collect();
    let known: BTreeSet<String> =
        TARGETS.iter().map(|target| target.0).chain([ELSEWHERE]).map(str::to_owned).collect();
    assert_eq!(found, known);
}
