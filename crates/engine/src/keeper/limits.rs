//! Limits that a box meets while it lives: when somebody looks, and how often it is told.
//!
//! A box can meet a limit a thousand times a second. Each is told soon after the first time, and when it was met again after a
//! minute, two, four, …: so what all tenants share grows with the logarithm of its life.

use std::time::Duration;

use blastbox_wire::event::Event;
use blastbox_wire::receipt::{LimitName, Receipt};
use tokio::time::Instant;

use super::cards::Phase;
use super::events::Happened;
use super::face::whose;
use super::house::House;
use super::kept::Kept;
use crate::desk::Ended;
use crate::met::Met;

/// How often a box with a running command is looked at, and one without.
const BUSY: Duration = Duration::from_secs(1);
const IDLE: Duration = Duration::from_secs(30);
/// How long after the end of a command: when it was the last one the box is over by then, and its receipt says it all.
const SETTLED: Duration = Duration::from_millis(50);
/// Of all boxes together no more than 500 are looked at in a second: the one warden answers for each.
const EACH: Duration = Duration::from_millis(2);
/// Between the first word of a limit and the second.
const FIRST_GAP: Duration = Duration::from_secs(60);

/// What was told of one box.
#[derive(Debug)]
pub(crate) struct Limits {
    told: [Told; 4],
    looked: Instant,
    /// The next look; `None` until it is known what the box does.
    due: Option<Instant>,
    phase: Phase,
    /// Commands that had ended.
    ends: u64,
    /// Thrown once for each box, so that those that began together are not looked at together.
    dice: u8,
}

#[derive(Debug, Clone, Copy)]
struct Told {
    count: u64,
    /// Not told again before.
    due: Instant,
    gap: Duration,
}

impl Limits {
    pub(crate) fn new(now: Instant, dice: u8) -> Self {
        let told = Told { count: 0, due: now, gap: FIRST_GAP };
        Self { told: [told; 4], looked: now, due: None, phase: Phase::Ready, ends: 0, dice }
    }

    /// When the box is to be looked at, in this phase, after so many commands have ended, and among so many boxes; `None`:
    /// nothing runs in it. A look that is due only ever comes nearer, whatever is begun meanwhile.
    pub(crate) fn next(&mut self, phase: Phase, ends: u64, boxes: usize, now: Instant) -> Option<Instant> {
        let began = phase == Phase::Executing && self.phase != phase;
        let ended = std::mem::replace(&mut self.ends, ends) != ends;
        self.phase = phase;
        let often = match phase {
            Phase::Executing => BUSY,
            Phase::Ready => IDLE,
            Phase::Provisioning | Phase::Paused | Phase::Ending | Phase::Gone => return None,
        };
        let fair = EACH.saturating_mul(u32::try_from(boxes).unwrap_or(u32::MAX));
        let period = |often: Duration| {
            let plain = often.max(fair);
            plain.saturating_add(plain.saturating_mul(u32::from(self.dice)) / 1024)
        };
        let mut due = self.due.unwrap_or(self.looked + period(often));
        if began {
            // Not in the moment in which a command starts, which is when somebody waits for it.
            due = due.min(now + period(BUSY));
        }
        if ended {
            due = due.min((now + SETTLED).max(self.looked + period(BUSY)));
        }
        self.due = Some(due);
        self.due
    }

    /// Looks. What it finds rings the box's alarm.
    pub(crate) fn look(&mut self, kept: &Kept, now: Instant) {
        self.looked(now);
        kept.live.look_for_limits();
    }

    fn looked(&mut self, now: Instant) {
        (self.looked, self.due) = (now, None);
    }

    /// What is to be told by now.
    fn due(&mut self, met: Met, now: Instant) -> Vec<LimitName> {
        let due = |((limit, count), told): ((LimitName, u64), &mut Told)| {
            if count <= told.count || now < told.due {
                return None;
            }
            *told = Told { count, due: now + told.gap, gap: told.gap.saturating_mul(2) };
            Some(limit)
        };
        met.each().into_iter().zip(&mut self.told).filter_map(due).collect()
    }

    /// Tells it.
    pub(crate) fn tell(&mut self, house: &House, kept: &Kept) {
        for limit in self.due(kept.live.bells.met(), Instant::now()) {
            house.pen.record(&kept.about(), &Event::LimitMet { limit });
            house.hub.tell(whose(kept), Happened::LimitMet { limit });
        }
    }

    /// What the receipt has and nobody was told since it was met last.
    pub(crate) fn rest(&self, receipt: &Receipt, ended: &Ended) -> Vec<LimitName> {
        let mut met = ended.tally.met;
        met.counted(&ended.spent);
        let all = met.each().into_iter().zip(&self.told);
        let known = all.filter(|((_, count), told)| *count <= told.count).map(|((limit, _), _)| limit);
        // Fuel is told when its command ends, each time.
        let known: Vec<LimitName> = known.chain([LimitName::Fuel]).collect();
        receipt.limits_hit.iter().copied().filter(|limit| !known.contains(limit)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_told_once_and_again_only_when_it_was_met_again_ever_more_rarely() {
        let start = Instant::now();
        let mut limits = Limits::new(start, 0);
        let after = |seconds| start + Duration::from_secs(seconds);
        let met = |memory, disk| Met { memory, disk, ..Met::default() };
        assert_eq!(limits.due(met(0, 0), after(1)), []);
        assert_eq!(limits.due(met(1, 0), after(2)), [LimitName::Memory]);
        assert_eq!(limits.due(met(1, 0), after(500)), [], "nothing has happened since");
        assert_eq!(limits.due(met(2, 1), after(501)), [LimitName::Memory, LimitName::Disk]);
        assert_eq!(limits.due(met(9, 9), after(550)), []);
        assert_eq!(limits.due(met(9, 9), after(561)), [LimitName::Disk]);
        assert_eq!(limits.due(met(9, 9), after(621)), [LimitName::Memory]);
        let mut told = 0;
        for second in 1_000..10_000 {
            told += limits.due(met(second, second), after(second)).len();
        }
        assert!(told <= 16, "{told} times in hours");
    }

    #[test]
    fn a_box_is_looked_at_while_something_runs_and_a_thousand_of_them_less_often() {
        let start = Instant::now();
        let mut limits = Limits::new(start, 0);
        assert_eq!(limits.next(Phase::Ready, 0, 1, start), Some(start + IDLE));
        let later = start + Duration::from_secs(20);
        assert_eq!(limits.next(Phase::Executing, 0, 1, later), Some(later + BUSY));
        limits.looked(later);
        assert_eq!(limits.next(Phase::Executing, 0, 1_000, later), Some(later + 2 * BUSY));
        assert_eq!(limits.next(Phase::Paused, 0, 1, later), None);
        assert_eq!(limits.next(Phase::Ready, 0, 1, later), Some(later + 2 * BUSY), "it stays due");
        let (mut one, mut other) = (Limits::new(start, 0), Limits::new(start, 255));
        assert!(one.next(Phase::Ready, 0, 1, start) < other.next(Phase::Ready, 0, 1, start));
    }

    #[test]
    fn a_box_that_runs_short_commands_is_looked_at_soon_after_the_first_and_no_more_often_than_a_busy_one() {
        for seen in [true, false] {
            let start = Instant::now();
            let mut limits = Limits::new(start, 0);
            let (mut now, mut looks) = (start + Duration::from_secs(10), Vec::new());
            let first = now;
            // Ten commands of 90 ms with 10 ms between them. A command may be over before anybody saw that it began.
            for ends in 0..10 {
                for (phase, millis) in [(Phase::Executing, 90_u32), (Phase::Ready, 10)] {
                    let ends = ends + u64::from(phase == Phase::Ready);
                    for _ in 0..millis {
                        if seen || phase == Phase::Ready {
                            let due = limits.next(phase, ends, 1, now);
                            if due.is_some_and(|due| due <= now) {
                                limits.looked(now);
                                looks.push(now.duration_since(first));
                            }
                        }
                        now += Duration::from_millis(1);
                    }
                }
            }
            let soon = Duration::from_millis(250);
            assert!(looks.first().is_some_and(|after| *after <= soon), "the first was killed: {looks:?}");
            assert_eq!(looks.len(), 1, "within a second");
            let last = limits.next(Phase::Ready, 10, 1, now);
            assert!(last.is_some_and(|due| due <= now + BUSY), "and once after the last");
        }
    }
}
