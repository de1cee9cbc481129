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
/// Of all boxes together no more than 500 are looked at in a second: the one warden answers for each.
const EACH: Duration = Duration::from_millis(2);
/// Between the first word of a limit and the second.
const FIRST_GAP: Duration = Duration::from_secs(60);

/// What was told of one box.
#[derive(Debug)]
pub(crate) struct Limits {
    told: [Told; 4],
    looked: Instant,
    phase: Phase,
}

#[derive(Debug, Clone, Copy)]
struct Told {
    count: u64,
    /// Not told again before.
    due: Instant,
    gap: Duration,
}

impl Limits {
    pub(crate) fn new(now: Instant) -> Self {
        let told = Told { count: 0, due: now, gap: FIRST_GAP };
        Self { told: [told; 4], looked: now, phase: Phase::Ready }
    }

    /// When the box is to be looked at, in this phase and among so many; `None`: nothing runs in it.
    pub(crate) fn next(&mut self, phase: Phase, boxes: usize, now: Instant) -> Option<Instant> {
        if phase == Phase::Executing && self.phase != phase {
            // Not in the moment in which a command starts, which is when somebody waits for it.
            self.looked = now;
        }
        self.phase = phase;
        let often = match phase {
            Phase::Executing => BUSY,
            Phase::Ready => IDLE,
            Phase::Provisioning | Phase::Paused | Phase::Ending | Phase::Gone => return None,
        };
        let fair = EACH.saturating_mul(u32::try_from(boxes).unwrap_or(u32::MAX));
        self.looked.checked_add(often.max(fair))
    }

    /// Looks. What it finds rings the box's alarm.
    pub(crate) fn look(&mut self, kept: &Kept, now: Instant) {
        self.looked = now;
        kept.live.look_for_limits();
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
        let known: Vec<LimitName> =
            all.filter(|((_, count), told)| *count <= told.count).map(|((limit, _), _)| limit).collect();
        receipt.limits_hit.iter().copied().filter(|limit| !known.contains(limit)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_told_once_and_again_only_when_it_was_met_again_ever_more_rarely() {
        let start = Instant::now();
        let mut limits = Limits::new(start);
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
        let mut limits = Limits::new(start);
        assert_eq!(limits.next(Phase::Ready, 1, start), Some(start + IDLE));
        let later = start + Duration::from_secs(20);
        assert_eq!(limits.next(Phase::Executing, 1, later), Some(later + BUSY));
        assert_eq!(limits.next(Phase::Executing, 1_000, later), Some(later + 2 * BUSY));
        assert_eq!(limits.next(Phase::Paused, 1, later), None);
    }
}
