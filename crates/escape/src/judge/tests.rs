//! What the judge makes of what was seen.

use super::*;
use crate::catalogue;

fn attempt(id: &str) -> Attempt {
    catalogue::all().into_iter().find(|attempt| attempt.id() == id).unwrap()
}

fn receipt(outcome: &str) -> Receipt {
    let text = include_str!("../../tests/receipt.json").replace("\"exited\"", &format!("\"{outcome}\""));
    serde_json::from_str(&text).unwrap()
}

const NOTHING: Seen<'_> =
    Seen { output: "", complaint: "", signs: &[], receipt: None, kernel: None, compared: false };
const OTHER: Option<&str> = Some("a kernel of its own");

#[test]
fn a_success_counts_wherever_it_is_said_and_the_last_word_otherwise() {
    assert_eq!(said("ESCAPED a\nHELD b\n"), Said::Escaped("a".to_owned()));
    assert_eq!(said("noise\nNA x\nHELD b\n"), Said::Held("b".to_owned()));
    assert_eq!(said("HELDER b\n"), Said::Nothing);
}

#[test]
fn what_the_host_saw_weighs_more_than_what_the_attempt_says_whatever_kernel_answered() {
    let (signs, receipt) = (["canary changed".to_owned()], receipt("exited"));
    for kernel in [None, OTHER] {
        for output in ["HELD fine\n", "NA no\n", "ESCAPED yes\n"] {
            let seen = Seen { output, signs: &signs, receipt: Some(&receipt), kernel, ..NOTHING };
            let (verdict, evidence) = judge(&attempt("kernel.ptrace"), seen);
            assert_eq!((verdict, evidence.as_str()), (Verdict::Escaped, "canary changed"));
        }
    }
}

#[test]
fn without_a_receipt_nothing_is_held() {
    let seen = Seen { output: "HELD fine\n", ..NOTHING };
    assert_eq!(judge(&attempt("kernel.ptrace"), seen).0, Verdict::CouldNotRun);
    assert_eq!(judge(&attempt("control.lie-killed"), seen).0, Verdict::Escaped);
}

#[test]
fn an_answer_is_an_escape_of_the_hosts_kernel_and_says_nothing_about_it_where_another_one_answers() {
    let receipt = receipt("exited");
    let seen = Seen { output: "ESCAPED answered\n", receipt: Some(&receipt), ..NOTHING };
    let of = |id: &str, kernel, compared| judge(&attempt(id), Seen { kernel, compared, ..seen });
    assert_eq!(of("kernel.unshare-user", None, false).0, Verdict::Escaped);
    let (verdict, evidence) = of("kernel.unshare-user", OTHER, false);
    assert!(verdict == Verdict::NotApplicable && evidence.contains("kernel.nested-root"), "{evidence}");
    // What was read is held only where the host had something to compare it with.
    assert_eq!(of("kernel.syslog", OTHER, true).0, Verdict::Held);
    assert_eq!(of("kernel.syslog", OTHER, false).0, Verdict::NotApplicable);
    assert_eq!(of("kernel.syslog", None, true).0, Verdict::Escaped);
    // A limit that was passed was passed, whoever counts.
    assert_eq!(of("resources.memory", OTHER, false).0, Verdict::Escaped);
    assert_eq!(of("kernel.nested-root", OTHER, false).0, Verdict::Escaped);
}

#[test]
fn what_a_gateway_has_stopped_did_not_come_out_and_what_it_did_not_tell_did() {
    use blastbox_wire::receipt::{AllowedTarget, DeniedTarget};
    let closed = receipt("exited");
    let (mut stopped, mut passed) = (closed.clone(), closed.clone());
    let target = "1.1.1.1".to_owned();
    stopped.network.denied = vec![DeniedTarget { target, port: 443, reason: "quic".to_owned(), count: 1 }];
    passed.network.allowed = vec![AllowedTarget {
        target: "1.1.1.1".to_owned(),
        port: 443,
        rule: "one.example.com".to_owned(),
        connections: 1,
        sent_bytes: 0,
        received_bytes: 0,
    }];
    let (mut lost, mut other, mut elsewhere) = (stopped.clone(), stopped.clone(), passed.clone());
    lost.network.gateway_lost = true;
    other.network.denied[0].target = "1.1.1.11".to_owned();
    elsewhere.network.allowed[0].port = 4430;
    let of = |id: &str, receipt: &Receipt| {
        judge(
            &attempt(id),
            Seen { output: "ESCAPED a datagram went to 1.1.1.1:443\n", receipt: Some(receipt), ..NOTHING },
        )
        .0
    };
    assert_eq!(of("network.quic", &closed), Verdict::Escaped, "where there is no gateway");
    assert_eq!(of("network.quic", &stopped), Verdict::Held);
    assert_eq!(of("network.quic", &passed), Verdict::Escaped, "by a rule that is not for it");
    passed.network.allowed[0].rule = "1.1.1.1".to_owned();
    assert_eq!(of("network.quic", &passed), Verdict::NotApplicable, "what the policy names");
    passed.network.allowed[0].rule = "1.1.1.0/24".to_owned();
    assert_eq!(of("network.quic", &passed), Verdict::Escaped, "nor is one that is wider");
    assert_eq!(of("network.quic", &lost), Verdict::Escaped);
    assert_eq!(of("network.quic", &other), Verdict::Escaped, "another refusal proves nothing");
    assert_eq!(of("network.quic", &elsewhere), Verdict::Escaped, "nor does another connection");
    assert_eq!(of("kernel.ptrace", &stopped), Verdict::Escaped, "and what is no packet");
}

#[test]
fn a_workspace_that_a_tier_does_not_take_is_no_place_to_try_anything() {
    let (mut unfit, link) = (receipt("lost"), attempt("files.workspace-link"));
    assert_eq!(judge(&link, Seen { receipt: Some(&unfit), ..NOTHING }).0, Verdict::CouldNotRun);
    let message = "the agent of the box gave up: workspace_unfit: /workspace/link is a link".to_owned();
    unfit.reason = Some(blastbox_wire::receipt::Reason { code: "agent_gave_up".into(), message, fix: None });
    let of =
        |attempt: &Attempt, receipt: &Receipt| judge(attempt, Seen { receipt: Some(receipt), ..NOTHING }).0;
    assert_eq!(of(&link, &unfit), Verdict::CouldNotRun, "in a jail those may be the payload's words");
    unfit.tier = Some(Tier::Wasm);
    assert_eq!(of(&link, &unfit), Verdict::NotApplicable);
    assert_eq!(of(&attempt("kernel.ptrace"), &unfit), Verdict::CouldNotRun, "which has no workspace");
    let reason = unfit.reason.as_mut().unwrap();
    reason.message = "the agent of the box gave up: it says workspace_unfit: x".to_owned();
    assert_eq!(of(&link, &unfit), Verdict::CouldNotRun, "nor somewhere in the middle");
}

#[test]
fn a_box_that_ended_before_the_attempt_began_has_held_nothing() {
    let (late, deadline) = (receipt("timed_out"), attempt("lifecycle.outlive-deadline"));
    let seen = |output| Seen { output, receipt: Some(&late), ..NOTHING };
    assert_eq!(judge(&deadline, seen("")).0, Verdict::CouldNotRun);
    assert_eq!(judge(&deadline, seen("BEGUN\n")).0, Verdict::Held);
}

#[test]
fn an_attempt_that_had_nothing_to_try_is_not_applicable_and_no_lie() {
    let (well, ill) = (receipt("exited"), receipt("lost"));
    let seen = |receipt| Seen { output: "HELD first\nNA nothing\n", receipt: Some(receipt), ..NOTHING };
    assert_eq!(judge(&attempt("control.zombies"), seen(&well)).0, Verdict::NotApplicable);
    assert_eq!(judge(&attempt("control.zombies"), seen(&ill)).0, Verdict::Escaped);
}

#[test]
fn without_a_group_a_kernel_of_its_own_bounds_nothing_for_the_host_and_the_gap_says_so() {
    let (receipt, bomb) = (receipt("exited"), attempt("resources.memory"));
    let mut uncounted = receipt.clone();
    let mut line = uncounted.gaps[0].clone();
    line.code = Gap::NoMemoryLimit;
    uncounted.gaps.push(line);
    let of = |receipt, kernel| {
        let seen = Seen { output: "ESCAPED 256 MiB\n", receipt: Some(receipt), kernel, ..NOTHING };
        judge(&bomb, seen).0
    };
    assert_eq!(of(&receipt, OTHER), Verdict::Escaped);
    assert_eq!(of(&uncounted, OTHER), Verdict::NotApplicable);
    assert_eq!(of(&uncounted, None), Verdict::Escaped, "in a jail the limit of the process holds");
}

#[test]
fn a_copy_that_was_never_lied_to_has_held_nothing() {
    let ended =
        |code| Ended { code, signal: None, stdout: String::new(), stderr: String::new(), overdue: false };
    assert_eq!(judge_copy(&ended(Some(125)), false, &[]).0, Verdict::CouldNotRun);
    assert_eq!(judge_copy(&ended(Some(125)), true, &[]).0, Verdict::Held);
    assert_eq!(judge_copy(&ended(Some(101)), true, &[]).0, Verdict::Escaped);
    assert_eq!(judge_copy(&ended(Some(125)), true, &["canary changed".to_owned()]).0, Verdict::Escaped);
}

#[test]
fn only_a_bomb_may_end_without_a_word_and_only_at_a_limit() {
    let mut met = receipt("exited");
    let silent =
        |id: &str, receipt: &Receipt| judge(&attempt(id), Seen { receipt: Some(receipt), ..NOTHING }).0;
    assert_eq!(silent("resources.memory-shared", &met), Verdict::CouldNotRun);
    met.limits_hit = vec![LimitName::Memory];
    assert_eq!(silent("resources.memory-shared", &met), Verdict::Held);
    assert_eq!(silent("kernel.ptrace", &met), Verdict::CouldNotRun);
}
