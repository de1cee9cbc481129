//! What can be copied, how long it is waited for, and that a machine goes on.
use std::io::Write as _;

use super::*;

#[test]
fn what_cannot_be_copied_says_why_and_its_neighbour_can() {
    let can = Looks { credentials: false, copies: true, network: true, begun: true };
    assert!(can.may_be_copied(Tier::Microvm).is_ok());
    for (looks, code) in [
        (Looks { credentials: true, ..can }, "snapshot_credentials"),
        (Looks { network: false, ..can }, "snapshot_network"),
        (Looks { begun: false, ..can }, "snapshot_booted_alone"),
        (Looks { copies: false, begun: false, ..can }, "snapshot_tier"),
    ] {
        let error = looks.may_be_copied(Tier::Microvm).unwrap_err();
        assert_eq!((error.code(), error.blame()), (code, Blame::Caller), "{looks:?}");
    }
}

#[test]
fn a_machine_is_waited_for_as_long_as_its_memory_takes_and_never_for_ever() {
    assert!(patience(256 << 20) > ANSWER && patience(256 << 20) < Duration::from_secs(60));
    assert_eq!(patience(u64::MAX), MOST);
}

/// What a QEMU that gives these answers makes of a machine.
async fn after(answers: &[u8]) -> bool {
    let (ours, mut qemu) = StdStream::pair().unwrap();
    qemu.write_all(answers).unwrap();
    goes_on(&mut Monitor::new(blastbox_isolation::MachineEngine::Qemu, ours).unwrap()).await
}

#[tokio::test(start_paused = true)]
async fn a_machine_goes_on_when_its_qemu_says_so_and_is_told_again_until_then() {
    assert!(after(b"{\"return\": {}, \"id\": 1}\n").await);
    let not_yet = b"{\"error\": {\"desc\": \"Migration is not finalized yet\"}, \"id\": 1}\n".as_slice();
    assert!(after(&[not_yet, b"{\"return\": {}, \"id\": 2}\n"].concat()).await);
    // It says no, and then nothing more.
    assert!(!after(not_yet).await && !after(b"").await);
}
