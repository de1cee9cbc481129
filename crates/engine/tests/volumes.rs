//! Directories that a real box writes to: only where a mark lies beside them, and only where the policy accepts what follows.
//!
//! Runs as whoever runs the tests. `BLASTBOX_BIN_DIR` names the directory of the built programs.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on must fail at once")]

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use blastbox_engine::{BoxSpec, CreateError, Engine, VolumeDir, causes};
use blastbox_images::Image;
use blastbox_isolation::Warden;
use blastbox_policy::{Draft, Gap, Profile, Refusal, Tier, TierChoice};
use blastbox_wire::plan::VOLUMES;

/// No id of ours.
const NOBODY: u32 = 65_534;

fn warden() -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/blastbox");
    let dir = std::env::var_os("BLASTBOX_BIN_DIR").map_or_else(beside, PathBuf::from);
    let found = Some(dir.join("blastbox-warden")).filter(|program| program.exists());
    if found.is_none() {
        blastbox_skips::skip_this("no blastbox-warden is built; `make build` makes it");
    }
    found
}

async fn try_box(program: &Path, draft: Draft, directory: &Path) -> Result<(), CreateError> {
    try_at("/mnt/v", program, draft, directory).await
}

async fn try_at(at: &str, program: &Path, draft: Draft, directory: &Path) -> Result<(), CreateError> {
    let engine = Engine::with_warden(Warden::start_program(program).unwrap()).unwrap();
    let (policy, image) = (draft.seal().unwrap(), Image::host());
    let opened = std::fs::File::open(directory).unwrap();
    let volumes = [VolumeDir::new(at.parse().unwrap(), opened.into())];
    let spec = BoxSpec { policy: &policy, image: &image, workspace: None, volumes: &volumes, secrets: &[] };
    engine.create(spec).await.map(drop)
}

#[tokio::test]
async fn a_directory_is_written_only_where_its_owner_has_put_a_mark_and_the_policy_takes_it() {
    let Some(program) = warden() else { return };
    let place = std::env::temp_dir().join(format!("blastbox-volumes-{}", std::process::id()));
    let volume = place.join("v");
    std::fs::create_dir_all(&volume).unwrap();
    let draft = || Profile::Default.draft().unwrap().accept(Gap::VolumeSize);
    let unmarked = try_box(&program, draft(), &volume).await.unwrap_err();
    assert!(causes(&unmarked).contains("the mark of a place for volumes"), "{}", causes(&unmarked));
    let mark = place.join(VOLUMES);
    let refused = async |what: &str| {
        let error = try_box(&program, draft(), &volume).await.unwrap_err();
        assert!(causes(&error).contains("is no file of our own user"), "{what}: {}", causes(&error));
    };
    std::os::unix::fs::symlink("v", &mark).unwrap();
    refused("a link").await;
    std::fs::remove_file(&mark).unwrap();
    std::fs::create_dir(&mark).unwrap();
    refused("a directory").await;
    std::fs::remove_dir(&mark).unwrap();
    std::fs::write(&mark, "").unwrap();
    if std::os::unix::fs::chown(&mark, Some(NOBODY), None).is_ok() {
        refused("somebody else's").await;
        let us = std::fs::metadata(&place).unwrap().uid();
        std::os::unix::fs::chown(&mark, Some(us), None).unwrap();
    } else {
        let test = "a_directory_is_written_only_where_its_owner_has_put_a_mark_and_the_policy_takes_it";
        blastbox_skips::left_out(test, "somebody else's mark", "only root gives files away");
    }
    try_box(&program, draft(), &volume).await.unwrap();
    // The warden makes a directory there, and believes nobody about where that is.
    for at in ["/mnt", "/mnt/a/b", "/tmp/v", "/home/user", "/etc/v", "/mntv"] {
        let jail = draft().tier(TierChoice::Exactly(Tier::Jail));
        let elsewhere = try_at(at, &program, jail, &volume).await.unwrap_err();
        assert!(causes(&elsewhere).contains("is no place for a volume"), "{at}: {}", causes(&elsewhere));
    }

    let unaccepted = try_box(&program, Profile::Default.draft().unwrap(), &volume).await.unwrap_err();
    let CreateError::Refused { refusal, .. } = unaccepted else { unreachable!("{unaccepted}") };
    assert_eq!(refusal, Refusal::not_accepted(Gap::VolumeSize));
    for tier in [Tier::Wasm, Tier::Gvisor, Tier::Microvm] {
        let other = draft().accept(Gap::EmulatedCpu).tier(TierChoice::Exactly(tier));
        let error = try_box(&program, other, &volume).await.unwrap_err();
        let CreateError::Refused { refusal, .. } = error else { unreachable!("{error}") };
        assert_eq!(refusal.code(), "volumes_unavailable", "{tier}");
    }
    std::fs::remove_dir_all(&place).unwrap();
}
