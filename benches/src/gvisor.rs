//! A box on gVisor's kernel: from the warm pool through a command, cold by `blastbox run`, and beside both gVisor's own
//! `runsc run`.

use std::path::{Path, PathBuf};
use std::time::Duration;

use blastbox_engine::keeper::{Keeper, KeeperConfig};
use blastbox_engine::{Engine, Supply};
use blastbox_isolation::{Facts, Warden};
use blastbox_policy::{Gap, Profile, Tier};

use crate::boxes::{programs, runtime};
use crate::bundle::{Bundles, Limits};
use crate::options::Options;
use crate::paper::{Finding, Promise, Row, Wrong};
use crate::process::run;
use crate::sample::Samples;
use crate::warm::cycle;

/// The pool learns how many are wanted from those that were asked for.
const WARM_UP: usize = 12;
/// Between two callers, so that the pool has made the next box: a cold start is not what is measured here.
const BETWEEN: Duration = Duration::from_millis(600);

/// Measures it.
pub(crate) fn measure(options: &Options) -> Result<Finding, Wrong> {
    let folder = programs()?;
    let Some(runsc) = runsc(&folder) else {
        return Ok(Finding {
            title: "gvisor · not measured",
            rows: vec![Row::said(
                "gVisor",
                "tools/runsc.sh",
                "there is no runsc that can be used".to_owned(),
            )],
            promises: Vec::new(),
        });
    };
    let [mut used, mut claims, mut ours, mut theirs] = [const { Samples::new() }; 4];
    let count = options.samples(40, 12);
    let mut warm = 0_u64;
    runtime()?.block_on(async {
        let keeper = Keeper::start(engine(&folder, &runsc)?, KeeperConfig::default());
        let policy = Profile::Default.draft()?.tier(Tier::Gvisor).accept(Gap::SilentDenials).seal()?;
        for turn in 0..WARM_UP + count {
            tokio::time::sleep(BETWEEN).await;
            let cycle = cycle(&keeper, &policy).await?;
            if turn >= WARM_UP {
                used.add(cycle.until_used);
                claims.add(cycle.claim);
                warm += u64::from(cycle.warm);
            }
        }
        keeper.stop().await;
        Ok::<_, Wrong>(())
    })?;
    let bundles = Bundles::write()?;
    let cold = line(&[
        &folder.join("blastbox").display().to_string(),
        "run",
        "--quiet",
        "--tier",
        "gvisor",
        "--accept",
        "silent-denials",
        "--",
        "/bin/true",
    ]);
    let root = bundles.path.join("runsc");
    let peer = line(&[
        &runsc.display().to_string(),
        "--root",
        &root.display().to_string(),
        "--ignore-cgroups",
        "--network=none",
        "run",
        "--bundle",
        &bundles.with(Limits::None).display().to_string(),
        "box",
    ]);
    for _ in 0..options.samples(20, 8) {
        ours.add(run(&cold)?);
        theirs.add(run(&peer)?);
    }
    let (used, ours, theirs) = (used.summary(), ours.summary(), theirs.summary());
    Ok(Finding {
        title: "gvisor · a box on gVisor's kernel: warm, cold, and gVisor's own command, in turns",
        rows: vec![
            Row::times("warm: claim → /bin/true has ended", "Keeper::create, exec /bin/true", used),
            Row::times("  of it, until it is the caller's", "Keeper::create", claims.summary()),
            Row::said("from the pool", "BoxCard::warm", format!("{warm} of {count}")),
            Row::times("cold: blastbox run", &cold.join(" "), ours),
            Row::times("cold: runsc run, without limits", &peer.join(" "), theirs),
        ],
        promises: vec![
            Promise::at_most(
                "a command in a warm box costs at most a fifth of a cold runsc run",
                0.2,
                used,
                theirs,
            ),
            Promise::at_most("a cold box costs at most 1.5 of a cold runsc run", 1.5, ours, theirs),
        ],
    })
}

fn line(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Where the tier would find it: beside the programs, or where distributions have it.
fn runsc(folder: &Path) -> Option<PathBuf> {
    let beside = folder.join("runsc");
    if beside.is_file() { Some(beside) } else { Facts::look().gvisor.runsc }
}

/// An engine that finds the programs of this run, not those beside the measuring one.
fn engine(folder: &Path, runsc: &Path) -> Result<Engine, Wrong> {
    let mut seen = Facts::look();
    seen.gvisor.runsc = Some(runsc.to_owned());
    seen.gvisor.keeper = Some(folder.join("blastbox-gvisor"));
    seen.gvisor.agent = Some(folder.join("blastbox-agent"));
    let program = folder.join("blastbox-warden");
    let warden = Warden::start_program(&program)?;
    let supply: Supply = Box::new(move || Warden::start_program(&program));
    Ok(Engine::with_supply(warden, supply, seen)?)
}
