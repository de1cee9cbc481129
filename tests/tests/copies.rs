//! `blastbox cp` with a real daemon: what is copied is the same on both sides, and a box cannot write beside its target.
#![expect(
    clippy::indexing_slicing,
    clippy::expect_used,
    reason = "only tests; one that cannot work must fail at once"
)]

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::Path;

use blastbox_tests::{Caller, Served, both_ways, fill_with};

both_ways!(
    files_and_directories_go_in_and_out,
    a_box_cannot_write_beside_the_target,
    what_cannot_be_copied_is_said,
    what_a_box_keeps_back_is_counted_and_named,
    a_relative_path_is_where_commands_start,
    from_box_to_box,
);

fn read(path: impl AsRef<Path>) -> String {
    std::fs::read_to_string(path).expect("read what was copied")
}

fn files_and_directories_go_in_and_out(caller: &Caller) {
    let daemon = Served::start(caller, &[]);
    let id = daemon.ask(["create"]);
    let src = caller.directory("src");
    let odd = "two\nlines";
    fill_with(
        caller,
        &src,
        &[("a.txt", "first"), ("sub/", ""), ("sub/b.txt", "second"), (odd, "odd"), ("empty/", "")],
    );
    std::fs::set_permissions(src.join("a.txt"), std::fs::Permissions::from_mode(0o750)).expect("set a mode");
    symlink("sub/b.txt", src.join("link")).expect("make a link");
    symlink("/etc/passwd", src.join("out")).expect("make a link");
    caller.own(&src.join("link"));
    caller.own(&src.join("out"));

    daemon.ask(["cp", "src/a.txt", &format!("{id}:")]);
    daemon.ask(["cp", "src/a.txt", &format!("{id}:other")]);
    assert_eq!(
        daemon.sh(&id, "stat -c %a:%u a.txt other; cat a.txt other"),
        "750:1000\n750:1000\nfirstfirst"
    );
    daemon.ask(["cp", "src", &format!("{id}:")]);
    daemon.ask(["cp", "src", &format!("{id}:/tmp/new")]);
    daemon.ask(["cp", "src/.", &format!("{id}:/tmp/new")]);
    let listed = daemon.sh(
        &id,
        "readlink src/link src/out; ls /tmp/new; diff -r --no-dereference src /tmp/new && echo same",
    );
    assert_eq!(listed, "sub/b.txt\n/etc/passwd\na.txt\nempty\nlink\nout\nsub\ntwo\nlines\nsame");

    daemon.ask(["cp", &format!("{id}:a.txt"), "."]);
    daemon.ask(["cp", &format!("{id}:src/sub/b.txt"), "renamed"]);
    let place = caller.place();
    assert_eq!(
        (read(place.join("a.txt")), read(place.join("renamed"))),
        ("first".to_owned(), "second".to_owned())
    );
    assert_eq!(std::fs::metadata(place.join("a.txt")).expect("look at it").mode() & 0o777, 0o750);
    // A link that leads out of what was copied stays in the box, and is counted.
    let ended = daemon.blastbox(["cp", "--json", &format!("{id}:src"), "back"]).end();
    assert_eq!(ended.code, 1, "{}", ended.err);
    assert!(ended.text().contains("\"skipped\": 1"), "{}", ended.text());
    let back = place.join("back");
    assert_eq!(read(back.join("link")), "second");
    assert_eq!(read(back.join(odd)), "odd");
    assert!(back.join("empty").is_dir() && back.join("out").symlink_metadata().is_err());
    // Into a directory that is there: under its own name. With `/.`: what is in it.
    daemon.sh(&id, "rm src/out");
    daemon.ask(["cp", &format!("{id}:src"), "back"]);
    daemon.ask(["cp", &format!("{id}:src/sub/."), "back"]);
    assert_eq!(
        (read(back.join("src/a.txt")), read(back.join("b.txt"))),
        ("first".to_owned(), "second".to_owned())
    );
    assert_eq!(daemon.stop().code, 0);
}

fn a_box_cannot_write_beside_the_target(caller: &Caller) {
    let daemon = Served::start(caller, &[]);
    let id = daemon.ask(["create"]);
    let outside = caller.file("outside", "untouched");
    let target = caller.directory("target");
    // Links that were there before lead out; the box has directories and files of the same names.
    symlink("..", target.join("up")).expect("make a link");
    symlink("../outside", target.join("file")).expect("make a link");
    daemon.sh(&id, "mkdir -p t/up; echo evil > t/up/outside");
    let ended = daemon.blastbox(["cp", &format!("{id}:t/."), "target"]).end();
    assert_eq!(ended.code, 125, "{}", ended.err);
    assert_eq!(read(&outside), "untouched");
    daemon.sh(&id, "rm -r t; mkdir t; echo new > t/file; chmod 4755 t/file");
    daemon.ask(["cp", &format!("{id}:t/."), "target"]);
    daemon.ask(["cp", &format!("{id}:t/file"), "target/file"]);
    assert_eq!((read(&outside), read(target.join("file"))), ("untouched".to_owned(), "new\n".to_owned()));
    assert_eq!(std::fs::symlink_metadata(target.join("file")).expect("look at it").mode() & 0o7777, 0o755);
    // A box that pretends to hold more than anybody wants.
    daemon.sh(&id, "truncate -s 20M t/hole");
    let ended = daemon.blastbox(["cp", "--limit", "10MiB", &format!("{id}:t/hole"), "big"]).end();
    assert!(ended.code == 125 && ended.err.contains("--limit"), "{}", ended.err);
    assert!(!caller.place().join("big").exists());
    assert_eq!(daemon.stop().code, 0);
}

fn what_cannot_be_copied_is_said(caller: &Caller) {
    let daemon = Served::start(caller, &[]);
    let id = daemon.ask(["create"]);
    caller.file("here", "x");
    for (words, said) in [
        (["here".to_owned(), "there".to_owned()], "BOX:PATH"),
        (["missing".to_owned(), format!("{id}:")], "cannot read missing"),
        ([format!("{id}:missing"), ".".to_owned()], "there is no"),
        (["here".to_owned(), format!("{id}:/etc/x")], "the daemon said no"),
        (["here".to_owned(), "bx_aaaaaaaaaaaaaaaaaaaa:".to_owned()], "no such box"),
        ([format!("{id}:/dev/null"), ".".to_owned()], "a device"),
    ] {
        let ended = daemon.blastbox(["cp", words[0].as_str(), words[1].as_str()]).end();
        assert!(ended.code == 125 && ended.err.contains(said), "{words:?}: {}", ended.err);
    }
    assert_eq!(daemon.stop().code, 0);
}

fn what_a_box_keeps_back_is_counted_and_named(caller: &Caller) {
    let (daemon, other) = (Served::start(caller, &[]), "/tmp/there");
    let (id, second) = (daemon.ask(["create"]), daemon.ask(["create"]));
    daemon.sh(
        &id,
        "mkdir -p d/closed; echo x > d/closed/in; echo 1 > d/good; echo 2 > d/secret; mkfifo d/pipe",
    );
    daemon.sh(&id, "chmod 0 d/secret d/closed");
    let ended = daemon.blastbox(["cp", "--json", &format!("{id}:d"), "out"]).end();
    assert_eq!(ended.code, 1, "{}", ended.err);
    let said: serde_json::Value = serde_json::from_str(&ended.text()).expect("read what was said");
    assert_eq!(said["skipped"], 3, "{said}");
    let mut names: Vec<&str> =
        said["left_out"].as_array().expect("names").iter().filter_map(|name| name["path"].as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["closed", "pipe", "secret"]);
    assert!(
        ended.err.contains("3 entries were left out") && ended.err.contains("\"secret\""),
        "{}",
        ended.err
    );
    assert_eq!(read(caller.place().join("out/good")), "1\n");
    assert!(!caller.place().join("out/secret").exists());
    // From box to box as well.
    let ended = daemon.blastbox(["cp", &format!("{id}:d"), &format!("{second}:{other}")]).end();
    assert!(ended.code == 1 && ended.err.contains("3 entries were left out"), "{}", ended.err);
    // What goes in is named like what comes out.
    let half = caller.directory("half");
    fill_with(caller, &half, &[("good", "1")]);
    rustix::fs::mknodat(
        rustix::fs::CWD,
        half.join("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o644),
        0,
    )
    .expect("make a pipe");
    let ended = daemon.blastbox(["cp", "half", &format!("{id}:")]).end();
    assert!(ended.code == 1 && ended.err.contains("1 entry was left out"), "{}", ended.err);
    assert!(ended.err.contains("\"pipe\""), "{}", ended.err);
    assert_eq!(daemon.stop().code, 0);
}

fn a_relative_path_is_where_commands_start(caller: &Caller) {
    let daemon = Served::start(caller, &[]);
    let id = daemon.ask(["create"]);
    caller.file("f", "content");
    let ended = daemon.blastbox(["cp", "f", &format!("{id}:out.txt")]).end();
    assert_eq!(ended.code, 0, "{}", ended.err);
    assert!(ended.err.contains(&format!("{id}:/workspace/out.txt")), "{}", ended.err);
    assert_eq!(daemon.sh(&id, "pwd; cat out.txt"), "/workspace\ncontent");
    let ended = daemon.blastbox(["cp", "--json", &format!("{id}:./out.txt"), "back"]).end();
    let said: serde_json::Value = serde_json::from_str(&ended.text()).expect("read what was said");
    assert_eq!(said["from"], format!("{id}:/workspace/out.txt"));
    assert_eq!(said["to"], caller.place().join("back").display().to_string());
    daemon.sh(&id, "echo home > ~/out.txt");
    daemon.ask(["cp", &format!("{id}:/home/user/out.txt"), "back"]);
    assert_eq!(read(caller.place().join("back")), "home\n");
    assert_eq!(daemon.stop().code, 0);
}

fn from_box_to_box(caller: &Caller) {
    let daemon = Served::start(caller, &[]);
    let (one, two) = (daemon.ask(["create"]), daemon.ask(["create"]));
    daemon.sh(&one, "mkdir -p d/e; echo content > d/e/f; chmod 700 d/e/f");
    daemon.ask(["cp", &format!("{one}:d"), &format!("{two}:")]);
    daemon.ask(["cp", &format!("{one}:d/e/f"), &format!("{two}:/tmp/g")]);
    assert_eq!(daemon.sh(&two, "stat -c %a d/e/f; cat d/e/f /tmp/g"), "700\ncontent\ncontent");
    assert_eq!(daemon.stop().code, 0);
}
