//! Templates that E2B's published SDKs build, unmodified, against a real daemon: suites in `tests/e2b`.
#![expect(clippy::expect_used, reason = "only tests; one that cannot work must fail at once")]

use std::path::{Path, PathBuf};

use blastbox_tests::suites::{CONFIG, Daemon, installed, javascript, pytest, store_with, suite};
use blastbox_tests::{Caller, both_ways, fill_with};

both_ways!(
    templates_where_the_operator_wants_none,
    templates_that_the_sdks_build,
    templates_on_an_image_of_the_store,
    templates_whose_steps_are_root,
    templates_with_packages_of_real_package_managers
);

fn templates_where_the_operator_wants_none(caller: &Caller) {
    let Some(place) = installed(caller, "python") else { return };
    let daemon = Daemon::start_with(caller, &format!("{CONFIG}[e2b.builds]\nenabled = false\n"));
    pytest(caller, &place, &[suite("templates_off")], &daemon, &[]);
}

/// Steps that change a sandbox's home, which every daemon can have.
fn templates_that_the_sdks_build(caller: &Caller) {
    let Some(place) = installed(caller, "python") else { return };
    let daemon = Daemon::start(caller);
    let other = Daemon::key(caller, &["other", "--tenant", "other"], "bbx_");
    pytest(caller, &place, &[suite("templates")], &daemon, &[("E2B_OTHER_KEY", Path::new(&other))]);
    javascript(caller, "templates.test.mjs", &daemon);
}

/// A store with a small image of this name, made of busybox under these names.
fn small(caller: &Caller, more: &[&str]) -> Option<String> {
    let busybox = ["/usr/bin/busybox", "/bin/busybox"].map(Path::new).into_iter().find(|path| path.exists());
    let Some(busybox) = busybox else {
        caller.skip("no busybox (apt-get install busybox-static)");
        return None;
    };
    let image = caller.directory("small");
    fill_with(caller, &image, &[("usr/", ""), ("usr/bin/", ""), ("etc/", ""), ("opt/", ""), ("root/", "")]);
    std::fs::copy(busybox, image.join("usr/bin/busybox")).expect("busybox");
    caller.own(&image.join("usr/bin/busybox"));
    let usual = ["sh", "cat", "id", "mkdir", "cp", "dirname", "find", "chmod", "pwd", "rm", "ls", "true"];
    for name in usual.iter().chain(more) {
        std::os::unix::fs::symlink("busybox", image.join("usr/bin").join(name)).expect("a link");
    }
    std::os::unix::fs::symlink("usr/bin", image.join("bin")).expect("a link");
    let text = |path: PathBuf| path.display().to_string();
    let (image, store) = (text(image), text(caller.place().join("store")));
    let made = caller.blastbox(["image", "import", &image, "--name", "small", "--store", &store]).end();
    assert_eq!(made.code, 0, "{}", made.err);
    Some(store)
}

/// An image of the store has a content that can be named, so that steps on it are used again.
fn templates_on_an_image_of_the_store(caller: &Caller) {
    let Some(place) = installed(caller, "python") else { return };
    let Some(store) = small(caller, &[]) else { return };
    let daemon = Daemon::start_in(caller, CONFIG, &["--store", &store]);
    pytest(caller, &place, &[suite("templates_stored")], &daemon, &[]);
}

/// Steps that are root of their boxes, without a word of the operator.
fn templates_whose_steps_are_root(caller: &Caller) {
    if !caller.is_root() {
        return caller.skip("without root on the host no box has a root");
    }
    let Some(place) = installed(caller, "python") else { return };
    let Some(store) = small(caller, &["chown", "ln", "mkfifo", "mknod", "mount", "mv", "test"]) else {
        return;
    };
    let daemon = Daemon::start_in(caller, CONFIG, &["--store", &store]);
    pytest(caller, &place, &[suite("templates_root")], &daemon, &[]);
}

/// apt, dpkg and npm in steps of root, with packages that the suite makes itself.
fn templates_with_packages_of_real_package_managers(caller: &Caller) {
    if !caller.is_root() {
        return caller.skip("without root on the host no box has a root");
    }
    let Some(place) = installed(caller, "python") else { return };
    let Some(store) = store_with(caller, "tiny") else { return };
    let daemon = Daemon::start_in(caller, CONFIG, &["--store", &store]);
    for manager in ["test_apt.py", "test_npm.py"] {
        pytest(caller, &place, &[suite("templates_packages").join(manager)], &daemon, &[]);
    }
}
