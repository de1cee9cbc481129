//! Images from recipes: each command in a box, what was made used again, nothing half.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail at once")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use blastbox_tests::{Caller, Ended, both_ways, fill_with};
use serde_json::Value;

both_ways!(
    a_recipe_becomes_an_image_and_its_steps_are_used_again,
    a_step_that_fails_leaves_nothing_and_says_its_line,
    what_a_recipe_may_not_say_is_refused_before_anything_is_done,
    a_recipe_without_commands_needs_no_root,
    what_no_image_holds_is_said_and_limits_hold_for_what_is_there,
);

const NAMES: [&str; 13] =
    ["sh", "cat", "id", "rm", "ls", "touch", "mkdir", "mkfifo", "chmod", "pwd", "env", "ln", "readlink"];

fn text(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// The caller's store with a small system in it, called `small`. `None`: the test is skipped.
fn store(caller: &Caller) -> Option<String> {
    let busybox = ["/usr/bin/busybox", "/bin/busybox"].map(Path::new).into_iter().find(|path| path.exists());
    let Some(busybox) = busybox else {
        caller.skip("no busybox (apt-get install busybox-static)");
        return None;
    };
    let image = caller.directory("small");
    fill_with(
        caller,
        &image,
        &[
            ("usr/", ""),
            ("usr/bin/", ""),
            ("etc/", ""),
            ("etc/old", "old"),
            ("root/", ""),
            ("etc/passwd", "root:x:0:0::/root:/bin/sh\n"),
        ],
    );
    fs::copy(busybox, image.join("usr/bin/busybox")).unwrap();
    caller.own(&image.join("usr/bin/busybox"));
    for name in NAMES {
        symlink("busybox", image.join("usr/bin").join(name)).unwrap();
    }
    symlink("usr/bin", image.join("bin")).unwrap();
    let store = text(&caller.place().join("store"));
    let ended =
        caller.blastbox(["image", "import", &text(&image), "--name", "small", "--store", &store]).end();
    assert_eq!(ended.code, 0, "{}", ended.err);
    Some(store)
}

fn build(caller: &Caller, store: &str, recipe: &str, words: &[&str]) -> Ended {
    let path = text(&caller.file("recipe", recipe));
    let words = ["image", "build", &path, "--store", store].into_iter().chain(words.iter().copied());
    caller.blastbox(words).end()
}

#[track_caller]
fn built(ended: &Ended) -> Value {
    assert_eq!(ended.code, 0, "{}{}", ended.text(), ended.err);
    serde_json::from_str(&ended.text()).unwrap()
}

fn cached(built: &Value) -> Vec<bool> {
    built
        .pointer("/steps")
        .and_then(Value::as_array)
        .unwrap()
        .iter()
        .map(|step| step.get("cached") == Some(&Value::Bool(true)))
        .collect()
}

/// Without root on the host no box has a root, and that is said by name.
fn refused_without_root(caller: &Caller, store: &str) -> bool {
    if caller.is_root() {
        return false;
    }
    let ended = build(caller, store, "FROM small\nRUN true\n", &["--name", "x"]);
    assert_eq!(ended.code, 125);
    assert!(ended.err.contains("the box cannot have a root"), "{}", ended.err);
    true
}

fn a_recipe_becomes_an_image_and_its_steps_are_used_again(caller: &Caller) {
    let Some(store) = store(caller) else { return };
    if refused_without_root(caller, &store) {
        return;
    }
    caller.file("note", "from the context");
    let recipe = "FROM small\nENV GREETING=\"good day\"\nWORKDIR /app\nCOPY note ./\nCOPY note /bin/tool\n\
                  RUN echo $GREETING $(id -u) $(pwd) > said && rm /etc/old && chmod 700 said \\\n && ln -s /etc/passwd out\n\
                  USER user\nRUN id -u; if touch /app/x; then exit 1; fi\nCMD [\"cat\", \"note\"]\n";
    let first = built(&build(caller, &store, recipe, &["--name", "made", "--json"]));
    assert_eq!(cached(&first), [true, false, false, false, false, true, false, true]);
    let words = ["run", "--quiet", "--store", &store, "--image", "made", "--", "sh", "-c"];
    let run = |script: &str| {
        let ended = caller.blastbox(words.into_iter().chain([script])).end();
        (ended.code, ended.text())
    };
    assert_eq!(run("cat /app/note /usr/bin/tool"), (0, "from the contextfrom the context".to_owned()));
    assert_eq!(
        run("echo $GREETING; ls /app; readlink /app/out"),
        (0, "good day\nnote\nout\nsaid\n/etc/passwd\n".to_owned())
    );
    assert_eq!(
        run("ls /etc/old /usr/local/bin/sudo 2>/dev/null").1,
        "",
        "what was removed is gone, and nothing of ours is left"
    );
    // Root's own is the store's: nobody in a box without a root reads it.
    assert_eq!(run("cat /app/said").0, 1);
    let again = built(&build(caller, &store, recipe, &["--name", "made", "--json"]));
    assert_eq!(again.get("digest"), first.get("digest"));
    assert!(cached(&again).iter().all(|cached| *cached), "{again}");
    // Another content of a file that is copied is another tree, and what follows is run again.
    caller.file("note", "another");
    let other = built(&build(caller, &store, recipe, &["--name", "made", "--json"]));
    assert_ne!(other.get("digest"), first.get("digest"));
    assert_eq!(cached(&other), [true, true, false, false, false, true, false, true]);
    let anew = built(&build(caller, &store, recipe, &["--name", "made", "--no-cache", "--json"]));
    assert_eq!(anew.get("digest"), other.get("digest"), "the same steps make the same tree");
    // The image that it began with is as it was, though both share files.
    let verified = caller.blastbox(["image", "verify", "small", "--store", &store]).end();
    assert_eq!(verified.code, 0, "{}", verified.err);
    let shown = caller.blastbox(["image", "inspect", "made", "--json", "--store", &store]).end().text();
    let shown: Value = serde_json::from_str(&shown).unwrap();
    assert_eq!(shown.pointer("/config/command/0"), Some(&Value::from("cat")));
    assert_eq!(shown.pointer("/config/workdir"), Some(&Value::from("/app")));
    assert_eq!(shown.pointer("/source/kind"), Some(&Value::from("recipe")));
}

fn what_no_image_holds_is_said_and_limits_hold_for_what_is_there(caller: &Caller) {
    let Some(store) = store(caller) else { return };
    if refused_without_root(caller, &store) {
        return;
    }
    // The agent's link to `sudo` lies behind a link of the image.
    let recipe = "FROM small\nRUN mkdir -p /usr/elsewhere/bin && ln -s elsewhere /usr/local && ln -s /nowhere /etc/resolv.conf || true\n\
                  RUN mkfifo /usr/pipe && echo long enough > /usr/file\n";
    let first = built(&build(caller, &store, recipe, &["--name", "made", "--json"]));
    assert_eq!(first.pointer("/steps/1/left_out"), Some(&Value::from(1)), "{first}");
    let said = build(caller, &store, recipe, &["--name", "made", "--no-cache"]);
    assert!(said.code == 0 && said.err.contains("1 entries are left out"), "{}", said.err);
    let words = ["run", "--quiet", "--store", &store, "--image", "made", "--", "sh", "-c"];
    let ended = caller
        .blastbox(words.into_iter().chain(["ls /usr/elsewhere/bin; ls /usr/pipe; cat /usr/file"]))
        .end();
    assert_eq!(ended.text(), "long enough\n", "{}", ended.err);
    // What is there is not taken where this build allows less.
    let less = build(caller, &store, recipe, &["--name", "made", "--max-entries", "3"]);
    assert_ne!(less.code, 0, "{}", less.text());
}

fn a_step_that_fails_leaves_nothing_and_says_its_line(caller: &Caller) {
    let Some(store) = store(caller) else { return };
    if refused_without_root(caller, &store) {
        return;
    }
    let trees = || fs::read_dir(caller.place().join("store/trees")).unwrap().count();
    let before = trees();
    let recipe = "FROM small\n\n# a comment\nENV A=1\nRUN echo so far; touch /usr/half; exit 3\n";
    for words in [&["--name", "bad"][..], &["--name", "bad", "--quiet"], &["--name", "bad", "--json"]] {
        let ended = build(caller, &store, recipe, words);
        assert_eq!((ended.code, ended.text().as_str()), (125, ""), "{words:?}");
        for said in ["so far", "line 5", "RUN echo so far", "code 3", "code: recipe_step_failed", "fix: "] {
            assert!(ended.err.contains(said), "{words:?}: {said}: {}", ended.err);
        }
    }
    let gone = caller.blastbox(["image", "inspect", "bad", "--store", &store]).end();
    assert!(gone.err.contains("image_unknown"), "{}", gone.err);
    assert_eq!(trees(), before);
    assert_eq!(fs::read_dir(caller.place().join("store/drafts")).unwrap().count(), 0);
    // A box reaches nothing that no option names.
    let ended = build(
        caller,
        &store,
        "FROM small\nRUN [\"busybox\", \"wget\", \"-T\", \"2\", \"http://192.0.2.1/\"]\n",
        &["--name", "bad"],
    );
    assert!(ended.err.contains("line 2"), "{}", ended.err);
    // What is no archive of ours to keep: a command that fills more than its disk fails in the box.
    let ended = build(
        caller,
        &store,
        "FROM small\nRUN [\"busybox\", \"dd\", \"if=/dev/zero\", \"of=/usr/big\", \"bs=1M\", \"count=64\"]\n",
        &["--name", "bad", "--disk", "16MiB"],
    );
    assert!(ended.code == 125 && ended.err.contains("recipe_step_failed"), "{}", ended.err);
}

fn what_a_recipe_may_not_say_is_refused_before_anything_is_done(caller: &Caller) {
    let Some(store) = store(caller) else { return };
    for (recipe, said) in [
        ("FROM small\nADD x /y\n", "line 2: the instruction ADD is not supported"),
        ("FROM small\nRUN --mount=type=cache true\n", "line 2: an option of RUN is not supported"),
        ("FROM small AS one\n", "line 1: FROM … AS (several stages) is not supported"),
        ("RUN true\n", "line 1: the first instruction has to be FROM"),
        ("FROM small\nUSER www\n", "line 2"),
    ] {
        let ended = build(caller, &store, recipe, &["--name", "x"]);
        assert_eq!(ended.code, 125, "{recipe}");
        assert!(
            ended.err.contains(said) && ended.err.contains("code: recipe_invalid"),
            "{recipe}: {}",
            ended.err
        );
    }
    let ended = build(caller, &store, "FROM nobody\n", &["--name", "x"]);
    assert!(ended.err.contains("code: image_unknown"), "{}", ended.err);
    assert!(ended.err.contains("docker save nobody | blastbox image import -"), "{}", ended.err);
    for (recipe, said) in [
        ("FROM small\nCOPY missing /x\n", "line 2"),
        ("FROM small\nCOPY recipe /tmp/x\n", "a box has its own /tmp"),
        ("FROM small\nCOPY recipe /home/user/x\n", "a box has its own /home"),
    ] {
        let ended = build(caller, &store, recipe, &["--name", "x"]);
        assert!(
            ended.code == 125 && ended.err.contains(said) && ended.err.contains("recipe_step_failed"),
            "{recipe}: {}",
            ended.err
        );
    }
    // A link of the context that leads out of it is followed nowhere.
    symlink("/etc/hostname", caller.place().join("way-out")).unwrap();
    let ended = build(caller, &store, "FROM small\nCOPY way-out /x\n", &["--name", "x"]);
    assert!(ended.code == 125 && ended.err.contains("way-out"), "{}", ended.err);
}

fn a_recipe_without_commands_needs_no_root(caller: &Caller) {
    let Some(store) = store(caller) else { return };
    let folder = caller.directory("files");
    fill_with(caller, &folder, &[("a/", ""), ("a/b", "deep"), ("c", "flat")]);
    let made = built(&build(
        caller,
        &store,
        "FROM small\nCOPY files /opt/files\nCOPY files/c /opt/\nENV X=1\n",
        &["--name", "plain", "--json"],
    ));
    assert_eq!(cached(&made), [false, false, true]);
    let boxed = caller
        .run(&["--store", &store, "--image", "plain"], &["cat", "/opt/files/a/b", "/opt/c", "/opt/files/c"])
        .fine();
    assert_eq!(boxed.stdout, "deepflatflat");
}
