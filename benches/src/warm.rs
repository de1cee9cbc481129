//! One box from the warm pool to nothing, as a daemon hands it out, beside a bare process.

use std::time::{Duration, Instant};

use blastbox_engine::Command;
use blastbox_engine::keeper::{ExecEnded, Keeper, KeeperConfig, NewBox, TapeEvent, Tenant};
use blastbox_images::Image;
use blastbox_policy::{Profile, SealedPolicy, parse};
use blastbox_wire::agent::{Io, User};

use crate::boxes::{House, runtime};
use crate::network::most;
use crate::options::Options;
use crate::paper::{Finding, Promise, Row, Wrong};
use crate::process::{Start, bare};
use crate::sample::Samples;

const TRUE: &str = "/bin/true";
const WARM_UP: usize = 40;
/// Whatever it may reach, it reaches nothing here.
const NETWORK: &str = r#"
threat = "high"
accept = ["host-image", "shared-kernel"]
[network]
mode = "allow"
allow = [{ host = "example.com", ports = [443] }]
"#;

/// Measures it.
pub(crate) fn measure(options: &Options) -> Result<Finding, Wrong> {
    let [mut boxes, mut claims, mut claims_with_network, mut forked] = [const { Samples::new() }; 4];
    let (mut warm, mut warm_with_network) = (0_u64, 0_u64);
    let count = options.samples(300, 60);
    runtime()?.block_on(async {
        let keeper = Keeper::start(House::open()?.into_engine(), KeeperConfig::default());
        let policy = Profile::Default.draft()?.seal()?;
        let network = parse(NETWORK)?.seal()?;
        for _ in 0..WARM_UP {
            cycle(&keeper, &policy).await?;
            cycle(&keeper, &network).await?;
        }
        for _ in 0..count {
            let begun = Instant::now();
            let cycle = self::cycle(&keeper, &policy).await?;
            boxes.add_since(begun);
            claims.add(cycle.claim);
            warm += u64::from(cycle.warm);
            forked.add(bare(TRUE, Start::Fork)?);
            let cycle = self::cycle(&keeper, &network).await?;
            claims_with_network.add(cycle.claim);
            warm_with_network += u64::from(cycle.warm);
        }
        keeper.stop().await;
        Ok::<_, Wrong>(())
    })?;
    let (boxes, forked) = (boxes.summary(), forked.summary());
    let (claims, claims_with_network) = (claims.summary(), claims_with_network.summary());
    let later = claims_with_network.median - claims.median;
    Ok(Finding {
        title: "warm · claim from the pool → /bin/true → destroyed, keeper in this process, one at a time",
        rows: vec![
            Row::times("box", "Keeper::create, exec /bin/true, kill", boxes),
            Row::times("  of it, until it is the caller's", "Keeper::create", claims),
            Row::times("  the same with network", "Keeper::create", claims_with_network),
            Row::times("bare process, fork + exec", "std::process::Command with uid(), /bin/true", forked),
            Row::said("from the pool", "BoxCard::warm", format!("{warm} of {count}")),
            Row::said("  with network", "BoxCard::warm", format!("{warm_with_network} of {count}")),
        ],
        promises: vec![
            Promise::at_most("a warm box's life costs at most 2.5 bare processes", 2.5, boxes, forked),
            most("a warm box with network is its caller's later, in ms", 1.0, Some(later)),
        ],
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
            Some((_, TapeEvent::Ended { ended, .. })) => break ended,
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
