//! `run --console`: what the kernel of a box says, for whoever has one that does not boot. What one says that boots is heard in
//! `microvm_boxes.rs`. What a kernel says does not depend on who asked: each of these boots once.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use blastbox_tests::machines::{ONE_AT_A_TIME, Workshop, kernel};
use blastbox_tests::{Caller, both_ways, text};

both_ways!(a_box_without_a_kernel_of_its_own_has_no_console);

#[test]
fn what_the_kernel_of_a_machine_says_is_kept_also_where_it_gives_up() {
    let test = "what_the_kernel_of_a_machine_says_is_kept_also_where_it_gives_up";
    let Some(caller) = &Caller::either(test) else { return };
    let _turn = ONE_AT_A_TIME.lock();
    let Some(workshop) = Workshop::as_shipped(caller) else { return };
    // What an earlier one said, in whose place it comes.
    let file = caller.file("console", "Linux version 0");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("open it to all");
    let heard = || fs::read_to_string(&file).expect("what it said");
    // By a kernel whose first process ends.
    workshop.hostile(&workshop.first_files(), "exit 1");
    let lost = workshop.sh(&["--timeout", "200s", "--console", text(&file)], "true");
    let reason = lost.receipt.reason.as_ref().expect("a reason");
    assert_eq!((lost.outcome(), reason.code.as_str()), ("lost", "agent_gone"));
    assert!(heard().contains("Kernel panic") && heard().contains("Attempted to kill init"), "{}", heard());
    assert!(heard().contains("Linux version ") && !heard().contains("Linux version 0"), "{}", heard());
    assert!(heard().bytes().all(|byte| matches!(byte, b'\n' | b'\t' | b' '..=b'~')), "text alone");
    assert_eq!(fs::metadata(&file).expect("a file").permissions().mode() & 0o777, 0o600);
}

/// As Debian's kernel has them, but for the one that leads to the host.
#[test]
fn a_driver_that_a_kernel_does_not_take_is_named_on_its_console() {
    let test = "a_driver_that_a_kernel_does_not_take_is_named_on_its_console";
    let Some(caller) = &Caller::either(test) else { return };
    let _turn = ONE_AT_A_TIME.lock();
    let Some(workshop) = Workshop::as_shipped(caller) else { return };
    let Some((image, modules)) = kernel() else { return };
    let broken = caller.directory("broken");
    for place in ["modules.builtin", "kernel/drivers/virtio", "kernel/drivers/block", "kernel/fs/squashfs"] {
        let from = modules.join(place);
        let files = if from.is_dir() {
            fs::read_dir(&from).expect("list").flatten().map(|entry| entry.path()).collect()
        } else {
            vec![from]
        };
        for file in files.iter().filter(|file| file.is_file()) {
            fs::copy(file, broken.join(file.file_name().expect("a name"))).expect("copy");
        }
    }
    let randomness = "kernel/drivers/char/hw_random/virtio-rng.ko";
    fs::copy(modules.join(randomness), broken.join("virtio-rng.ko")).expect("copy a driver");
    fs::write(broken.join("virtio_console.ko"), "no driver at all").expect("write");
    workshop.fine(&["kernel", "add", text(&image), "--modules", text(&broken)]);
    let file = caller.place().join("console");
    let lost = workshop.sh(&["--timeout", "200s", "--console", text(&file)], "true");
    assert_eq!(lost.outcome(), "lost");
    let heard = fs::read_to_string(&file).expect("what it said");
    assert!(heard.contains("blastbox: the guest could not load a driver: "), "{heard}");
}

fn a_box_without_a_kernel_of_its_own_has_no_console(caller: &Caller) {
    let file = caller.place().join("console");
    let words = |file: &str| -> Vec<String> {
        let tier = ["run", "--tier", "jail", "--accept", "shared-kernel", "--console", file];
        tier.into_iter().chain(["--", "/bin/true"]).map(str::to_owned).collect()
    };
    let refused = caller.blastbox(words(text(&file))).end();
    assert!(refused.code == 125 && refused.err.contains("--tier microvm"), "{}", refused.err);
    assert!(!file.exists(), "nothing ran, and nothing is left");
    let nowhere = caller.blastbox(words("/nowhere/console")).end();
    assert!(nowhere.code == 125 && nowhere.err.contains("/nowhere/console"), "{}", nowhere.err);
    assert!(nowhere.err.contains("directory that you may write to"), "{}", nowhere.err);
}
