//! `blastbox doctor`: what this host can do, with a box really made to prove it.

use std::fmt::Write as _;

use blastbox_engine::{BoxSpec, CreateError, Ended, Engine, outcome};
use blastbox_images::Image;
use blastbox_isolation::doctor::{Finding, State, examine};
use blastbox_isolation::{Warden, WardenError};
use blastbox_policy::{AllowRule, Draft, Gap, ThreatLevel, Tier};
use blastbox_wire::warden::Spent;

use crate::args::DoctorArgs;
use crate::daemon::{DaemonProblem, DaemonView};
use crate::output;
use crate::problem::Problem;

pub(crate) const HELP: &str = "\
Examples:
  blastbox doctor
  blastbox doctor --json | jq '.[] | select(.state != \"good\")'

Exit codes: 0 a box of the jail was made and ended, 1 none could be.";

/// Prints every finding. 0: a box in the jail tier was made and ended on this host.
pub(crate) async fn doctor(args: &DoctorArgs, warden: Result<Warden, WardenError>) -> Result<u8, Problem> {
    let engine = warden.map_err(Problem::from).and_then(|warden| Ok(Engine::with_warden(warden)?));
    let why = engine.as_ref().err().map(Problem::line);
    let powers = engine.as_ref().map(Engine::powers).map_err(|_| why.as_deref().unwrap_or_default());
    let mut findings = vec![jail(&engine).await];
    if let Ok(engine) = &engine {
        findings.push(network(try_network(engine).await));
    }
    findings.extend(examine(powers));
    findings.extend(daemon(args).await);
    let works = findings.first().is_some_and(|jail| jail.state == State::Good);
    if args.json {
        output::print_json(&findings)?;
    } else {
        output::print(&text(&findings))?;
    }
    Ok(if works { 0 } else { 1 })
}

/// Makes a box and ends it: the one finding that cannot be wrong.
async fn jail(engine: &Result<Engine, Problem>) -> Finding {
    let tried = match engine {
        Ok(engine) => try_box(engine, any_jail()).await,
        Err(problem) => Err(problem.line()),
    };
    let (state, detail) = match tried {
        Ok(_) => (State::Good, "a box was made and ended".to_owned()),
        Err(why) => (State::Missing, why),
    };
    let fix = (state != State::Good).then(|| "see the lines below that are not ✓".to_owned());
    Finding { code: "jail_works", subject: "jail tier", state, detail, fix }
}

/// Who carries the network of a box, which was made and ended: its kernel, or its gateway packet by packet.
fn network(by_packets: Result<bool, String>) -> Finding {
    let found = |state, detail: String, fix: Option<&str>| {
        let fix = fix.map(ToOwned::to_owned);
        Finding { code: "network_by_kernel", subject: "network of boxes", state, detail, fix }
    };
    match by_packets {
        Ok(false) => {
            found(State::Good, "the kernel carries what a box's gateway has let in".to_owned(), None)
        }
        Ok(true) => found(
            State::Weaker,
            "the gateway carries every packet itself, as closed but slower: this kernel has no packet rules for it"
                .to_owned(),
            Some(
                "sudo modprobe -a nf_tables nft_tproxy, or boot a kernel with CONFIG_NF_TABLES_INET, CONFIG_NFT_TPROXY, \
                 CONFIG_IP_MULTIPLE_TABLES and CONFIG_IPV6_MULTIPLE_TABLES",
            ),
        ),
        Err(why) if !why.contains("tun") => found(
            State::Missing,
            format!("no box with network could be made: {why}"),
            Some("see the lines that are not ✓"),
        ),
        Err(why) => found(
            State::Missing,
            format!("no box with network could be made: {why}"),
            Some("sudo modprobe tun; sudo chmod 666 /dev/net/tun (its usual mode); see also the lines that are not ✓"),
        ),
    }
}

/// A daemon's own walls, as the kernel says of the one that runs. None runs: nothing is lacking.
async fn daemon(args: &DoctorArgs) -> Option<Finding> {
    let finding = |state, detail, fix: Option<&str>| {
        let fix = fix.map(ToOwned::to_owned);
        Some(Finding { code: "daemon_confined", subject: "daemon", state, detail, fix })
    };
    let asked = match args.place.client() {
        Ok(client) => DaemonView::ask(&client).await,
        Err(error) => Err(error),
    };
    match asked {
        Ok(daemon) if daemon.missing.is_empty() => finding(State::Good, daemon.words(), None),
        Ok(daemon) => finding(
            State::Weaker,
            daemon.words(),
            Some(
                "start it anew on a kernel with seccomp and Landlock (Linux 5.13), and look at what it says then",
            ),
        ),
        Err(DaemonProblem::NoDaemon { .. } | DaemonProblem::NoPlace { .. }) => None,
        Err(error) => finding(
            State::Weaker,
            Problem::from(error).line(),
            Some("ask at its own socket (`--socket`), as its user"),
        ),
    }
}

/// Every gap is accepted: this asks whether a box can be had at all, not whether it is good enough for a policy.
fn any_jail() -> Draft {
    Gap::ALL.iter().fold(Draft::at(ThreatLevel::High).tier(Tier::Jail), |draft, gap| draft.accept(*gap))
}

/// The same with a way out that nobody takes: to a name that is nobody's by decree (RFC 2606).
fn with_network() -> Result<Draft, String> {
    let rule = AllowRule::short("blastbox.invalid:443").map_err(|error| error.to_string())?;
    Ok(any_jail().allow(rule))
}

async fn try_box(engine: &Engine, draft: Draft) -> Result<Ended, String> {
    let policy = draft.seal().map_err(|error| error.to_string())?;
    let image = Image::host();
    let spec = BoxSpec { policy: &policy, image: &image, workspace: None, volumes: &[], secrets: &[] };
    let live = engine.create(spec).await.map_err(why_not)?;
    Ok(live.end().await)
}

/// Why there was no box, in words.
fn why_not(error: CreateError) -> String {
    match error {
        // As a receipt of it would say.
        CreateError::NotReady(ending) => {
            let verdict = outcome(&ending, &Spent::default());
            verdict.reason.map_or_else(|| verdict.outcome.to_string(), |reason| reason.message)
        }
        other => Problem::from(other).line(),
    }
}

/// Whether the gateway of a box with network has to carry its packets.
async fn try_network(engine: &Engine) -> Result<bool, String> {
    Ok(try_box(engine, with_network()?).await?.network.by_packets)
}

fn text(findings: &[Finding]) -> String {
    let mut text = String::new();
    let width = findings.iter().map(|finding| finding.subject.chars().count()).max().unwrap_or(0);
    for Finding { code, subject, state, detail, fix } in findings {
        let mark = match state {
            State::Good => "✓",
            State::Weaker => "–",
            State::Missing => "✗",
        };
        // Writing to a string does not fail.
        writeln!(text, "{mark} {subject:<width$}  {}", output::plain(detail)).ok();
        if *state != State::Good {
            let fix = fix.as_deref().map(|fix| format!("; fix: {fix}")).unwrap_or_default();
            writeln!(text, "  {:width$}  [{code}]{}", "", output::plain(&fix)).ok();
        }
    }
    text.push_str("\n✓ good   – works, with a named gap or without a tier   ✗ missing\n");
    text
}

#[cfg(test)]
mod tests {
    use blastbox_engine::{Ending, Loss};

    use super::*;

    #[test]
    fn a_box_that_could_not_be_made_is_told_in_words() {
        let failed = Ending::LaunchFailed { tried: "hear the new box".to_owned(), errno: 104 };
        let said = why_not(CreateError::NotReady(failed));
        assert!(said.contains("the box could not be made: hear the new box: Connection reset"), "{said}");
        let lost = why_not(CreateError::NotReady(Ending::Lost(Loss::AgentGone)));
        assert!(!lost.contains(['{', '(']), "{lost}");
        let timed = why_not(CreateError::NotReady(Ending::TimedOut));
        assert_eq!(timed, "timed_out");
    }

    #[test]
    fn who_carries_the_network_is_said_with_what_would_help() {
        assert_eq!(network(Ok(false)).state, State::Good);
        let slower = network(Ok(true));
        assert_eq!((slower.code, slower.state), ("network_by_kernel", State::Weaker));
        assert!(slower.fix.unwrap().contains("modprobe -a nf_tables nft_tproxy"));
        let none = network(Err("cannot find /dev/net/tun".to_owned()));
        assert_eq!(none.state, State::Missing);
        assert!(none.detail.contains("/dev/net/tun") && none.fix.unwrap().contains("modprobe tun"));
        let other = network(Err("make /home/user: Invalid argument".to_owned()));
        assert!(!other.fix.unwrap().contains("modprobe"), "what has nothing to do with it is no fix");
        assert!(with_network().unwrap().seal().is_ok(), "the rule it is tried with is a rule");
    }
}
