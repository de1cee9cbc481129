//! One task per box: watches its clock, tells what it was denied, and ends it.

use std::sync::Arc;
use std::time::Duration;

use blastbox_isolation::ends_after;
use blastbox_wire::event::Event;
use blastbox_wire::receipt::{LimitName, Receipt};
use tokio::time::{Instant, sleep_until, timeout};

use super::admission::{Hold, Lodging};
use super::cards::{OnTimeout, Phase};
use super::cause::Cause;
use super::clock::Due;
use super::deeds::Deeds;
use super::events::Happened;
use super::house::House;
use super::kept::Kept;
use super::limits::Limits;
use super::metrics::Stretch;
use super::post::Unheard;
use super::traffic::Untold;
use super::unborn::{write_down, write_rest};
use crate::desk::Ended;
use crate::failpoint;
use crate::leases::{News, Told};
use crate::paper::{Account, receipt};
use crate::patience::random_byte;
use crate::store::BoxState;

/// How long a box may be copied that is to be paused. Longer than all that may take.
const COPYING: Duration = Duration::from_secs(600);
/// How long a pause may take before the box is ended instead.
const PAUSING: Duration = Duration::from_secs(10);

/// Denials are looked at no more often than so: a guest that does nothing else holds up neither its clock nor its news.
const QUIET: Duration = Duration::from_secs(1);

/// Watches a box until nothing is left of it. Its room is free only then.
pub(crate) async fn watch(house: Arc<House>, kept: Arc<Kept>, room: Lodging, hold: Hold) {
    let mut news = Deeds::default();
    let mut untold = Untold::default();
    let mut leases = kept.live.take_lease_news();
    let mut limits = Limits::new(Instant::now(), random_byte());
    live_on(&house, &kept, &mut news, &mut limits, &mut untold, &mut leases).await;
    let over = Instant::now();
    // Whoever comes now is told that it is gone; commands are told why.
    kept.condemn(Cause::ByItself);
    let to_disk = kept.fate().cause == Some(Cause::OnDisk);
    if !to_disk {
        house.register.moved(&kept.card.id, BoxState::Ending);
    }
    let mut ended = kept.live.finish().await;
    ended.run = ended.run.saturating_sub(kept.pooled);
    news.count(&house, &kept.live.bells.take_deeds());
    news.tell_rest(&house, &kept);
    untold.add(kept.live.take_network_news());
    untold.write_all(&house, &kept);
    while let Some(word) = leases.as_mut().and_then(|news| news.try_recv().ok()) {
        write_down(&house, &kept.about(), &word);
    }
    // A revocation that its source does not take is known long after the box is gone.
    write_rest(&house, kept.about(), leases);
    let receipt = write_receipt(&house, &kept, &ended);
    let limits = limits.rest(&receipt, &ended);
    for limit in &limits {
        house.pen.record(&kept.about(), &Event::LimitMet { limit: *limit });
    }
    if to_disk {
        house.pen.record(&kept.about(), &Event::BoxOnDisk { spent: receipt.usage });
        failpoint::reach("box-on-disk");
        if house.lay_on_disk(&kept) {
            drop((room, hold));
            return house.hub.tell(Some((&kept.card.tenant, &kept.card.id)), Happened::BoxPaused);
        }
        // Somebody killed it meanwhile, and waits.
        house.register.moved(&kept.card.id, BoxState::Ending);
        house.album.forget(&kept.card.id).await;
    }
    if write_end(&house, &kept, &receipt).await == Err(Unheard) {
        // Nothing is left of it, and nobody may be told: the next daemon finds it in the store and tells it.
        drop(kept.take_waiting());
        house.leave_untold(&kept);
        return;
    }
    // Only now, so that whoever asks meanwhile does not hear from the store what the sink does not have.
    house.register.gone(&kept.card.id, receipt.outcome.as_str());
    failpoint::reach("box-struck");
    let waiting = kept.take_waiting();
    house.bury(&kept, &receipt);
    house.count(|metrics| metrics.took(Stretch::Teardown, over.elapsed()));
    drop((room, hold));
    tell_end(&house, &kept, &receipt, &limits);
    for caller in waiting {
        // One that went away meanwhile finds the receipt where it is kept.
        caller.send(receipt.clone()).ok();
    }
}

/// Writes the end of a box down, and waits until every sink that must has it.
async fn write_end(house: &House, kept: &Kept, receipt: &Receipt) -> Result<(), Unheard> {
    let ended = Event::BoxEnded { outcome: receipt.outcome, spent: receipt.usage };
    let recorded = house.pen.record_end(&kept.about(), &ended).await?;
    failpoint::reach("box-ended");
    let post = house.pen.post();
    if let Some(seq) = recorded
        && post.must_acknowledge()
    {
        house.register.moved(&kept.card.id, BoxState::Ended);
        post.acknowledged(seq).await?;
    }
    Ok(())
}

/// Comes back when the box has to end, or has.
async fn live_on(
    house: &House,
    kept: &Kept,
    news: &mut Deeds,
    limits: &mut Limits,
    untold: &mut Untold,
    leases: &mut Option<News>,
) {
    let mut quiet = Instant::now();
    loop {
        let (cause, phase, ends, (at, due)) = {
            let fate = kept.fate();
            (fate.cause, fate.phase(), fate.ends, fate.clock.next())
        };
        if cause.is_some() {
            return;
        }
        let deeds = async {
            sleep_until(quiet).await;
            kept.live.deeds().await
        };
        let again = news.next();
        let look = limits.next(phase, ends, house.crowd(), Instant::now());
        tokio::select! {
            biased;
            () = kept.live.stopped() => return,
            () = kept.bell.notified() => {}
            deeds = deeds => {
                quiet = Instant::now() + QUIET;
                news.count(house, &deeds);
                limits.tell(house, kept);
            }
            () = sleep_until(again.unwrap_or(at)), if again.is_some() => {
                news.tell_due(house, kept);
            }
            () = sleep_until(look.unwrap_or(at)), if look.is_some() => {
                limits.look(kept, Instant::now());
                // Those that were met again meanwhile, and too early to be told.
                limits.tell(house, kept);
            }
            word = next(leases) => write_down(house, &kept.about(), &word),
            // While something waits to be written nothing more is taken: the gateway waits, and lends no secret meanwhile.
            () = untold.due(), if !untold.is_empty() => untold.write(house, kept),
            news = kept.live.network_news(), if untold.is_empty() => untold.add(news),
            () = sleep_until(at) => expire(house, kept, due).await,
        }
    }
}

async fn expire(house: &House, kept: &Kept, due: Due) {
    if decide(house, kept, due) == Some(OnTimeout::Pause) {
        failpoint::reach("box-overtime");
        pause_or_end(house, kept).await;
    }
}

/// Pauses a box that may not go on, after it was copied where that has begun. One that cannot be paused ends.
pub(crate) async fn pause_or_end(house: &House, kept: &Kept) {
    let _copied = tokio::select! {
        copied = timeout(COPYING, kept.copying.lock()) => copied,
        () = ending(kept) => return,
    };
    match timeout(PAUSING, kept.pause()).await {
        Ok(Ok(())) => {
            house.register.moved(&kept.card.id, BoxState::Paused);
            house.hub.tell(Some((&kept.card.tenant, &kept.card.id)), Happened::BoxPaused);
        }
        // Its owner was faster.
        Ok(Err(_)) if kept.phase() == Phase::Paused => {}
        Ok(Err(_)) | Err(_) => {
            kept.condemn(Cause::NotPaused);
        }
    }
}

/// Comes back when the box ends for another reason.
async fn ending(kept: &Kept) {
    let condemned = async {
        // Whatever else the bell rang for is looked at afterwards.
        while kept.fate().cause.is_none() {
            kept.bell.notified().await;
        }
    };
    tokio::select! {
        () = condemned => {}
        () = kept.live.stopped() => {}
    }
}

/// What is to be done to a box whose time is over; a box that is to be destroyed is condemned already.
fn decide(house: &House, kept: &Kept, due: Due) -> Option<OnTimeout> {
    let now = Instant::now();
    let mut fate = kept.fate();
    let (at, still) = fate.clock.next();
    if still != due || at > now {
        // Somebody moved the deadline in this moment.
        return None;
    }
    if due == Due::Warn {
        fate.clock.warned();
        let seconds_left = fate.clock.left(now).as_secs();
        drop(fate);
        house.pen.record(&kept.about(), &Event::TimeNearlyOver { left_seconds: seconds_left });
        let what = Happened::DeadlineNear { seconds_left };
        house.hub.tell(Some((&kept.card.tenant, &kept.card.id)), what);
        return None;
    }
    let (what, phase, backstop) = (fate.clock.expire(due), fate.phase(), fate.clock.backstop());
    if what == OnTimeout::Destroy {
        // Under the same lock, so that no command comes in between.
        fate.cause.get_or_insert(if due == Due::Idle { Cause::Idle } else { Cause::TimedOut });
    }
    drop(fate);
    house.write_deadlines(kept);
    kept.live.live_until(backstop);
    (phase != Phase::Paused).then_some(what)
}

/// What becomes of a lease, next.
async fn next(leases: &mut Option<News>) -> Told {
    if let Some(news) = leases {
        if let Some(word) = news.recv().await {
            return word;
        }
        *leases = None;
    }
    std::future::pending().await
}

fn write_receipt(house: &House, kept: &Kept, ended: &Ended) -> Receipt {
    let cause = kept.fate().cause.unwrap_or(Cause::ByItself);
    let mut receipt = receipt(&Account {
        policy: &kept.policy(),
        image: kept.card.image.clone(),
        facts: house.engine.facts(),
        choice: Some(kept.live.choice()),
        box_id: Some(kept.card.id.clone()),
        arguments: &[],
        started: kept.asked,
        ending: ended.ending.clone().unwrap_or_else(|| cause.ending()),
        usage: None,
        ended: Some(ended),
    });
    cause.reword(&mut receipt.reason);
    // Whatever became of its warden, what was told of it is not taken back.
    let fuel = kept.fate().fuel_spent.then_some(LimitName::Fuel);
    for limit in kept.live.bells.met().names().chain(fuel) {
        if !receipt.limits_hit.contains(&limit) {
            receipt.limits_hit.push(limit);
        }
    }
    // The policy's timeout is for a box of one command; this one ended by its keeper's clock.
    let (fate, of_policy) = (kept.fate(), ends_after(kept.policy().lifetime().timeout));
    if let Some(limits) = &mut receipt.limits {
        limits.timeout_seconds = fate.clock.life().as_secs();
    }
    for line in receipt.boundaries.iter_mut().flat_map(|line| &mut line.how) {
        if *line == of_policy {
            *line = fate.clock.words();
        }
    }
    drop(fate);
    receipt
}

fn tell_end(house: &House, kept: &Kept, receipt: &Receipt, limits: &[LimitName]) {
    let whose = Some((&kept.card.tenant, &kept.card.id));
    for limit in limits {
        house.hub.tell(whose, Happened::LimitMet { limit: *limit });
    }
    let cause = kept.fate().cause.unwrap_or(Cause::ByItself);
    let reason = match (cause, &receipt.reason) {
        (Cause::ByItself, Some(reason)) => reason.code.clone(),
        (Cause::ByItself, None) => receipt.outcome.as_str().to_owned(),
        (cause, _) => cause.code().to_owned(),
    };
    house.hub.tell(whose, Happened::BoxEnded { outcome: receipt.outcome, reason });
}
