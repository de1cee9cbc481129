//! One box from the warm pool to nothing, as a daemon hands it out, beside a bare process.

use std::time::{Duration, Instant};

use blastbox_engine::Command;
use blastbox_engine::keeper::{ExecEnded, Keeper, KeeperConfig, NewBox, TapeEvent, Tenant};
use blastbox_images::Image;
use blastbox_policy::{Profile, SealedPolicy};
use blastbox_wire::agent::{Io, User};

use crate::boxes::{House, runtime};
use crate::options::Options;
use crate::paper::{Finding, Promise, Row, Wrong};
use crate::process::{Start, bare};
use crate::sample::Samples;

const TRUE: &str = "/bin/true";
const WARM_UP: usize = 40;

/// Measures it.
pub(crate) fn measure(options: &Options) -> Result<Finding, Wrong> {
    let [mut boxes, mut claims, mut forked] = [const { Samples::new() }; 3];
    let mut warm = 0_u64;
    let count = options.samples(300, 60);
    runtime()?.block_on(async {
        let keeper = Keeper::start(House::open()?.into_engine(), KeeperConfig::default());
        let policy = Profile::Default.draft()?.seal()?;
        for _ in 0..WARM_UP {
            cycle(&keeper, &policy).await?;
        }
        for _ in 0..count {
            let begun = Instant::now();
            let cycle = cycle(&keeper, &policy).await?;
            boxes.add_since(begun);
            claims.add(cycle.claim);
            warm += u64::from(cycle.warm);
            forked.add(bare(TRUE, Start::Fork)?);
        }
        keeper.stop().await;
        Ok::<_, Wrong>(())
    })?;
    let (boxes, forked) = (boxes.summary(), forked.summary());
    Ok(Finding {
        title: "warm · claim from the pool → /bin/true → destroyed, keeper in this process, one at a time",
        rows: vec![
            Row::times("box", "Keeper::create, exec /bin/true, kill", boxes),
            Row::times("  of it, until it is the caller's", "Keeper::create", claims.summary()),
            Row::times("bare process, fork + exec", "std::process::Command with uid(), /bin/true", forked),
            Row::said("from the pool", "BoxCard::warm", format!("{warm} of {count}")),
        ],
        promises: vec![Promise::at_most(
            "a warm box's life costs at most 2.5 bare processes",
            2.5,
            boxes,
            forked,
        )],
    })
}

/// How long the parts of a box's life took.
pub(crate) struct Cycle {
    /// Until it was the caller's.
    pub(crate) claim: Duration,
    /// Until its command had ended.
    pub(crate) until_used: Duration,
    /// Whether it came from the pool.
    pub(crate) warm: bool,
}

/// Takes a box, runs the command, ends the box.
pub(crate) async fn cycle(keeper: &Keeper, policy: &SealedPolicy) -> Result<Cycle, Wrong> {
    let tenant = Tenant::local();
    let begun = Instant::now();
    let card = keeper.create(&tenant, NewBox::new(policy.clone(), Image::host())).await?;
    let claim = begun.elapsed();
    let command = Command {
        arguments: vec![TRUE.as_bytes().to_vec()],
        environment: vec![b"PATH=/usr/bin:/bin".to_vec()],
        directory: b"/".to_vec(),
        io: Io::Pipes,
        user: User::Payload,
    };
    let exec = keeper.exec(&tenant, &card.id, command).await?;
    let mut tape = keeper.tape(&tenant, &card.id, exec, None)?;
    let ended = loop {
        match tape.next().await {
            Some((_, TapeEvent::Ended(ended))) => break ended,
            Some(_) => {}
            None => return Err("the tape ended without the command's end".into()),
        }
    };
    let until_used = begun.elapsed();
    keeper.kill(&tenant, &card.id).await?;
    match ended {
        ExecEnded::Exited { code: 0 } => Ok(Cycle { claim, until_used, warm: card.warm }),
        other => Err(format!("{TRUE} ended badly: {other:?}").into()),
    }
}
