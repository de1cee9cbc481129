//! Files of a real box, through warden, filter, Landlock and agent: every operation works there and none is denied.
//!
//! Runs as whoever runs the tests. `BLASTBOX_BIN_DIR` names the directory of the built programs.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail at once")]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use blastbox_engine::{
    BoxSpec, Command, Download, Engine, ExecEnd, ExecEvent, FileError, LiveBox, Slice, UnpackLimits,
};
use blastbox_images::Image;
use blastbox_isolation::Warden;
use blastbox_policy::Profile;
use blastbox_wire::agent::{
    ChangeKind, Depth, EntryKind, Exit, Fault, Io, Links, Parents, Target, User, Writing,
};
use tokio::time::timeout;

const LIMITS: UnpackLimits = UnpackLimits { bytes: 1 << 30, entries: 10_000 };

fn warden() -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/blastbox");
    let dir = std::env::var_os("BLASTBOX_BIN_DIR").map_or_else(beside, PathBuf::from);
    Some(dir.join("blastbox-warden")).filter(|program| program.exists())
}

/// A box with the default policy. `None`: there is no warden to make it.
async fn boxed() -> Option<(Engine, LiveBox)> {
    let Some(program) = warden() else {
        blastbox_skips::skip_this("no blastbox-warden is built; `make build` makes it");
        return None;
    };
    let engine = Engine::with_warden(Warden::start_program(&program).unwrap()).unwrap();
    let policy = Profile::Default.draft().unwrap().seal().unwrap();
    let image = Image::host();
    let spec = BoxSpec { policy: &policy, image: &image, workspace: None, volumes: &[], secrets: &[] };
    let mut live = engine.launch(spec).await.unwrap();
    live.ready().await.unwrap();
    Some((engine, live))
}

async fn shell(live: &LiveBox, script: &str) -> String {
    let arguments = ["/bin/sh", "-c", script].map(|word| word.as_bytes().to_vec()).to_vec();
    let environment = vec![b"PATH=/usr/bin:/bin".to_vec()];
    let command = Command {
        arguments,
        environment,
        directory: b"/home/user".to_vec(),
        io: Io::Pipes,
        user: User::Payload,
    };
    let exec = live.exec(command).await;
    let mut text = Vec::new();
    loop {
        match exec.next().await {
            ExecEvent::Started { .. } | ExecEvent::Called(_) => {}
            ExecEvent::Output { bytes, .. } => text.extend(bytes),
            ExecEvent::Ended(end) => {
                let text = String::from_utf8_lossy(&text).into_owned();
                assert!(matches!(end, ExecEnd::Exited { exit: Exit::Code(0), .. }), "{end:?}: {text}");
                return text;
            }
        }
    }
}

async fn write(live: &LiveBox, path: &str, bytes: &[u8]) -> Result<u64, FileError> {
    let files = live.files();
    let mut upload = files.write(path.as_bytes(), 0o644, Writing::Replace, Parents::Make).await?;
    upload.write(bytes).await?;
    upload.finish().await.map(|summary| summary.amount)
}

async fn bytes(mut download: Download) -> Result<Vec<u8>, FileError> {
    let mut all = Vec::new();
    while let Some(bytes) = download.next().await? {
        all.extend(bytes);
    }
    Ok(all)
}

async fn read(live: &LiveBox, path: &str) -> Result<Vec<u8>, FileError> {
    bytes(live.files().read(path.as_bytes(), Slice::WHOLE).await?).await
}

#[tokio::test]
async fn every_operation_works_in_a_box_and_none_is_denied() {
    let Some((_engine, live)) = boxed().await else { return };
    let files = live.files();
    assert_eq!(write(&live, "project/main.py", b"print(6 * 7)").await, Ok(12));
    assert_eq!(read(&live, "/home/user/project/main.py").await.unwrap(), b"print(6 * 7)");
    // It belongs to the payload, which works on with it.
    let who =
        shell(&live, "stat -c %u:%g:%a project project/main.py; echo '# more' >> project/main.py").await;
    assert_eq!(who, "1000:1000:755\n1000:1000:644\n");
    assert_eq!(files.stat(b"project/main.py", Links::Keep).await.unwrap().size, 12 + 7);

    files.make_directory(b"project/a/b", 0o755, Parents::Make).await.unwrap();
    files.rename(b"project/main.py", b"project/a/b/main.py", Target::Fresh, Parents::Expect).await.unwrap();
    let (entries, summary) = files.list(b"project", 9, 100).await.unwrap().collect().await.unwrap();
    let names: Vec<_> = entries.iter().map(|entry| String::from_utf8_lossy(&entry.path)).collect();
    assert_eq!(
        (names.as_slice(), summary.amount),
        (["a", "a/b", "a/b/main.py"].map(Into::into).as_slice(), 3)
    );

    let mut watching = files.watch(b"project", Depth::All).await.unwrap();
    shell(&live, "mkdir project/new && touch project/new/file").await;
    let seen = async {
        loop {
            let changes = watching.next().await.unwrap().unwrap();
            if changes.iter().any(|change| change.kind == ChangeKind::Created && change.path == b"new/file") {
                return;
            }
        }
    };
    timeout(Duration::from_secs(10), seen).await.unwrap();
    drop(watching);

    let archive = bytes(files.tar_out(b"project").await.unwrap()).await.unwrap();
    let mut upload = files.tar_in(b"/tmp/copy", Parents::Make, LIMITS).await.unwrap();
    upload.write(&archive).await.unwrap();
    upload.finish().await.unwrap();
    assert_eq!(shell(&live, "diff -r project /tmp/copy && echo same").await, "same\n");

    assert_eq!(files.remove(b"project", Depth::All).await, Ok(6));
    let gone = files.stat(b"project", Links::Keep).await.unwrap_err();
    assert_eq!(gone.fault(), Some(Fault::NotFound));
    let ended = live.end().await;
    assert_eq!(ended.tally.denied_calls(), [], "the agent makes no call that the box may not make");
}

#[tokio::test]
async fn what_the_payload_may_not_reach_is_not_reached_for_the_host() {
    let Some((_engine, live)) = boxed().await else { return };
    for path in ["/etc/new", "/usr/bin/new", "/new", "/proc/self/oom_score_adj", "/proc/sys/kernel/hostname"]
    {
        let refused = write(&live, path, b"x").await.unwrap_err().fault();
        let expected = [
            Some(Fault::NotPermitted),
            Some(Fault::ReadOnly),
            Some(Fault::NotRegular),
            Some(Fault::NotFound),
        ];
        assert!(expected.contains(&refused), "{path}: {refused:?}");
    }
    for path in ["/proc/1/environ", "/proc/self/mem", "/dev/zero", "/proc/self/fd/3"] {
        assert!(read(&live, path).await.is_err(), "{path}");
    }
    shell(&live, "mkfifo pipe; ln -s /proc/self/mem memory; ln -s pipe link; mkdir loop; ln -s . loop/loop")
        .await;
    for path in ["pipe", "link", "memory"] {
        let outcome = timeout(Duration::from_secs(5), read(&live, path)).await.unwrap();
        assert_eq!(outcome.unwrap_err().fault(), Some(Fault::NotRegular), "{path}");
    }
    // A link that leads out leads to the box's own root.
    shell(&live, "ln -s ../../../../../../../../etc/hostname up").await;
    let inside = shell(&live, "cat /etc/hostname 2>/dev/null || true").await;
    assert_eq!(read(&live, "up").await.unwrap_or_default(), inside.as_bytes());
    let (entries, _) = live.files().list(b"loop", 50, 100).await.unwrap().collect().await.unwrap();
    assert!(entries.len() == 1 && entries.iter().all(|entry| entry.kind == EntryKind::Link));
    live.end().await;
}

#[tokio::test]
async fn a_hundred_megabytes_go_in_and_out() {
    let Some((_engine, live)) = boxed().await else { return };
    let content: Vec<u8> = (0..100_000_000_u32).map(|at| at.to_le_bytes()[1]).collect();
    let begun = Instant::now();
    assert_eq!(write(&live, "/tmp/big", &content).await, Ok(100_000_000));
    let written = begun.elapsed();
    assert!(read(&live, "/tmp/big").await.unwrap() == content);
    let total = begun.elapsed();
    println!("100 MB: written in {written:?}, read in {:?} (debug builds are slow)", total - written);
    live.end().await;
}
