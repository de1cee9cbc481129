//! `blastbox-bench`: what the specification promises in numbers, measured.
//!
//! Each promise is a ratio of two things that were measured in turns, in one run: absolute times of a busy machine say
//! little. `--quick` takes fewer samples, `--json FILE` keeps everything, and names of benchmarks select some of them.
//!
//! - `cycle`: one box from nothing to nothing, beside a bare process;
//! - `warm`: the same from a warm pool, as a daemon hands boxes out;
//! - `command`: `blastbox run`, beside bubblewrap, crun and runc;
//! - `throughput`: boxes a second from one process;
//! - `memory`: what an idle box costs;
//! - `crowd`: the thousandth box, beside the first;
//! - `output`: what a command can print;
//! - `api`: a warm box over the API on loopback, beside a bare process;
//! - `clients`: eight callers for ten thousand boxes, and whether the daemon grows;
//! - `interpreter`: the first code in a sandbox whose Python waited in the pool;
//! - `sdk`: E2B's SDK for Python, as a user calls it, and what of each call is the SDK's own;
//! - `idle`: a thousand idle boxes of a daemon;
//! - `stream`: what a command can print, through the daemon;
//! - `network`: the way out of a box, beside a plain wire, slirp4netns and pasta;
//! - `https`: requests that a box's gateway reads, beside the same client without a box;
//! - `gvisor`: a box on gVisor's kernel, beside `runsc run`;
//! - `wasm`: snippets in fresh guests of the tier `wasm`, beside the native interpreters;
//! - `clones`: virtual machines that begin as copies, beside machines that boot;
//! - `escape`: every break-out attempt in the jail.

mod allowlist;
mod api;
mod boxes;
mod bundle;
mod clients;
mod clones;
mod command;
mod crowd;
mod cycle;
mod daemon;
mod escape;
mod filter;
mod gvisor;
mod http;
mod idle;
mod interpreter;
mod machine;
mod memory;
mod network;
mod options;
mod output;
mod paper;
mod process;
mod processors;
mod sample;
mod sdk;
mod stream;
mod throughput;
mod warm;
mod wasm;

use std::process::ExitCode;

use options::{Options, USAGE};
use paper::{Finding, Paper, Wrong};

type Bench = fn(&Options) -> Result<Finding, Wrong>;

const ALL: [(&str, Bench); 19] = [
    ("cycle", cycle::measure),
    ("warm", warm::measure),
    ("command", command::measure),
    ("throughput", throughput::measure),
    ("memory", memory::measure),
    ("crowd", crowd::measure),
    ("output", output::measure),
    ("api", api::measure),
    ("clients", clients::measure),
    ("interpreter", interpreter::measure),
    ("sdk", sdk::measure),
    ("idle", idle::measure),
    ("stream", stream::measure),
    ("network", network::measure),
    ("https", network::secure::measure),
    ("gvisor", gvisor::measure),
    ("wasm", wasm::measure),
    ("clones", clones::measure),
    ("escape", escape::measure),
];

fn main() -> ExitCode {
    match Options::read(std::env::args().skip(1), &ALL.map(|(name, _)| name)) {
        Ok(options) => run(&options),
        Err(what) => {
            paper::complain(&format!("{what}\n{USAGE}"));
            ExitCode::from(2)
        }
    }
}

fn run(options: &Options) -> ExitCode {
    let mut paper = Paper::begin(machine::look());
    let mut code = ExitCode::SUCCESS;
    for (name, measure) in ALL.iter().filter(|(name, _)| options.wants(name)) {
        match measure(options) {
            Ok(finding) => paper.add(finding),
            Err(wrong) => {
                paper::complain(&format!("{name} could not be measured: {wrong}"));
                code = ExitCode::FAILURE;
            }
        }
    }
    paper.sum_up();
    if let Some(file) = &options.json
        && let Err(wrong) = paper.keep(file)
    {
        paper::complain(&format!("cannot write {}: {wrong}", file.display()));
        code = ExitCode::FAILURE;
    }
    code
}
