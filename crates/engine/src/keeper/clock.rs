//! When a box's time is over, and what happens then. Pure: whoever has the clock passes the time in.
//!
//! Two spans run: its life, from the moment somebody got it, and its idleness, while no command runs and nobody asks for
//! anything. A paused box is not idle; its life goes on. Where its owner chose `pause`, a box whose life is over is
//! paused and has as long again before it is destroyed; resuming it begins its life anew.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use super::cards::OnTimeout;
use super::events::wall_clock;
use crate::store::Deadlines;

/// Longest span that a clock can add.
pub(crate) const FOR_EVER: Duration = Duration::from_secs(365 * 86_400);
/// The driver ends a box by itself so long after its keeper should have done it.
const BACKSTOP: Duration = Duration::from_secs(30);
/// The owner is warned so long before the end; where the life is short, a tenth of it before.
const WARNING: Duration = Duration::from_secs(60);

/// Two clocks that are read one after the other are not further apart than so; a wall clock that was turned is.
const TURNED: Duration = Duration::from_secs(2);

/// What is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    /// Its life is over soon.
    Warn,
    /// Its life is over.
    Life,
    /// It was idle for too long.
    Idle,
}

/// Whether the box runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Motion {
    Going,
    Paused,
}

/// How much of its time a box has had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    /// Its life, before the warning.
    Fresh,
    /// Its life, after the warning.
    Warned,
    /// Its life was over; it is paused until it has passed once more.
    Overtime,
}

/// The clock of one box.
#[derive(Debug)]
pub(crate) struct Clock {
    life: Duration,
    idle: Duration,
    on_timeout: OnTimeout,
    deadline: Instant,
    ends_at: SystemTime,
    ends_up: Duration,
    touched: Instant,
    act: Act,
    pub(crate) running: usize,
    pub(crate) motion: Motion,
}

impl Clock {
    pub(crate) fn start(life: Duration, idle: Duration, on_timeout: OnTimeout, now: Now) -> Self {
        let (life, idle) = (life.min(FOR_EVER), idle.min(FOR_EVER));
        Self {
            life,
            idle,
            on_timeout,
            deadline: now.monotonic + life,
            ends_at: now.wall + life,
            ends_up: now.up.saturating_add(life),
            touched: now.monotonic,
            act: Act::Fresh,
            running: 0,
            motion: Motion::Going,
        }
    }

    /// The clock of a box that was begun by an earlier daemon: its life is over when it was to be.
    pub(crate) fn inherit(deadlines: &Deadlines, now: Now) -> Self {
        let Deadlines { life, idle, on_timeout, ends_at, ends_up, overtime } = *deadlines;
        // By the clock that nobody sets, where it is the same one: a wall clock that was turned would give or take years.
        let by_wall = || ends_at.duration_since(now.wall).unwrap_or_default();
        let left = ends_up.map_or_else(by_wall, |up| up.saturating_sub(now.up)).min(FOR_EVER);
        // What was shown before is shown again, where nobody turned the wall clock.
        let by_now = now.wall + left;
        let apart = by_now.duration_since(ends_at).or_else(|_| ends_at.duration_since(by_now));
        let is_so = apart.is_ok_and(|apart| apart < TURNED);
        Self {
            deadline: now.monotonic + left,
            ends_at: if is_so { ends_at } else { by_now },
            ends_up: now.up.saturating_add(left),
            // Otherwise each daemon that takes it over would give it another life.
            act: if overtime { Act::Overtime } else { Act::Fresh },
            ..Self::start(life, idle, on_timeout, now)
        }
    }

    /// What the next daemon has to know of it.
    pub(crate) fn deadlines(&self) -> Deadlines {
        Deadlines {
            life: self.life,
            idle: self.idle,
            on_timeout: self.on_timeout,
            ends_at: self.ends_at,
            ends_up: Some(self.ends_up),
            overtime: self.act == Act::Overtime,
        }
    }

    /// When it ends at the latest, unless somebody asks otherwise.
    pub(crate) fn ends_at(&self) -> SystemTime {
        self.ends_at
    }

    /// Somebody asked for something.
    pub(crate) fn touch(&mut self, now: Instant) {
        self.touched = self.touched.max(now);
    }

    /// Its life is over in so long from now.
    pub(crate) fn set_life(&mut self, life: Duration, now: Now) {
        self.life = life.min(FOR_EVER);
        self.renew(now);
    }

    /// It goes on.
    pub(crate) fn resume(&mut self, now: Now) {
        self.motion = Motion::Going;
        self.touch(now.monotonic);
        if self.act == Act::Overtime {
            self.renew(now);
        }
    }

    fn renew(&mut self, now: Now) {
        self.deadline = now.monotonic + self.life;
        self.ends_at = now.wall + self.life;
        self.ends_up = now.up.saturating_add(self.life);
        self.act = Act::Fresh;
        self.touch(now.monotonic);
    }

    /// The owner was warned.
    pub(crate) fn warned(&mut self) {
        if self.act == Act::Fresh {
            self.act = Act::Warned;
        }
    }

    /// How long it still lives.
    pub(crate) fn left(&self, now: Instant) -> Duration {
        self.deadline.saturating_duration_since(now)
    }

    /// What happens to a box whose time is over. `Pause` begins its second life, which it spends paused.
    pub(crate) fn expire(&mut self, due: Due) -> OnTimeout {
        match (self.on_timeout, due, self.act) {
            (OnTimeout::Destroy, ..) | (_, Due::Life, Act::Overtime) => OnTimeout::Destroy,
            (OnTimeout::Pause, Due::Life, Act::Fresh | Act::Warned) => {
                self.act = Act::Overtime;
                self.deadline += self.life;
                self.ends_at += self.life;
                self.ends_up = self.ends_up.saturating_add(self.life);
                OnTimeout::Pause
            }
            (OnTimeout::Pause, Due::Idle | Due::Warn, _) => OnTimeout::Pause,
        }
    }

    /// How long it lives, as was asked for last.
    pub(crate) fn life(&self) -> Duration {
        self.life
    }

    /// When it ends, for people.
    pub(crate) fn words(&self) -> String {
        let (at, idle) = (wall_clock(self.ends_at), self.idle.as_secs());
        let either = format!("at {at} at the latest, or after {idle}s without a command");
        match (self.on_timeout, self.act) {
            (OnTimeout::Destroy, _) => format!("ends {either}, with everything that it started"),
            (OnTimeout::Pause, Act::Fresh | Act::Warned) => format!(
                "is paused {either}; ends when its life has passed once more, with everything that it started"
            ),
            (OnTimeout::Pause, Act::Overtime) => {
                format!("is paused; ends at {at} at the latest, with everything that it started")
            }
        }
    }

    /// What is due next, and when.
    pub(crate) fn next(&self) -> (Instant, Due) {
        let mut next = (self.deadline, Due::Life);
        let idle = self.touched + self.idle;
        if self.running == 0 && self.motion == Motion::Going && idle < next.0 {
            next = (idle, Due::Idle);
        }
        let warning = self.deadline.checked_sub(WARNING.min(self.life / 10)).unwrap_or(self.deadline);
        if self.act == Act::Fresh && warning < next.0 {
            next = (warning, Due::Warn);
        }
        next
    }

    /// When the driver ends the box by itself, should the keeper not.
    pub(crate) fn backstop(&self) -> Instant {
        let second = match (self.on_timeout, self.act) {
            (OnTimeout::Pause, Act::Fresh | Act::Warned) => self.life,
            (OnTimeout::Pause, Act::Overtime) | (OnTimeout::Destroy, _) => Duration::ZERO,
        };
        self.deadline + second + BACKSTOP
    }
}

/// This moment, on every clock. Only the monotonic one decides; the wall's is shown.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Now {
    pub(crate) monotonic: Instant,
    pub(crate) wall: SystemTime,
    /// The monotonic one as the kernel numbers it: the same for every process until the machine starts anew.
    pub(crate) up: Duration,
}

impl Now {
    pub(crate) fn read() -> Self {
        let up = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        let up = Duration::new(up.tv_sec.unsigned_abs(), u32::try_from(up.tv_nsec).unwrap_or(0));
        Self { monotonic: Instant::now(), wall: SystemTime::now(), up }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3_600);
    const QUARTER: Duration = Duration::from_secs(900);

    fn clock(on_timeout: OnTimeout) -> (Clock, Now) {
        let now = Now::read();
        (Clock::start(HOUR, QUARTER, on_timeout, now), now)
    }

    fn later(now: Now, by: Duration) -> Now {
        Now { monotonic: now.monotonic + by, wall: now.wall + by, up: now.up + by }
    }

    #[test]
    fn a_wall_clock_that_is_turned_gives_no_box_another_minute() {
        let (clock, now) = clock(OnTimeout::Destroy);
        let ten_minutes = Duration::from_secs(600);
        let later = later(now, ten_minutes);
        let year = Duration::from_secs(365 * 86_400);
        for wall in [later.wall + year, later.wall - year] {
            let now = Now { wall, ..later };
            let taken_over = Clock::inherit(&clock.deadlines(), now);
            assert_eq!(taken_over.left(now.monotonic), HOUR - ten_minutes);
            assert_eq!(taken_over.ends_at(), wall + HOUR - ten_minutes, "what is shown is what is so");
        }
        let on_another_start = Deadlines { ends_up: None, ..clock.deadlines() };
        assert_eq!(Clock::inherit(&on_another_start, later).left(later.monotonic), HOUR - ten_minutes);
    }

    #[test]
    fn a_box_that_has_its_second_life_gets_no_third_from_another_daemon() {
        let (mut clock, now) = clock(OnTimeout::Pause);
        assert_eq!(clock.expire(Due::Life), OnTimeout::Pause);
        let mut at = later(now, HOUR);
        for _ in 0..3 {
            clock = Clock::inherit(&clock.deadlines(), at);
            assert_eq!(clock.left(at.monotonic), HOUR + HOUR - (at.up - now.up));
            at = later(at, Duration::from_secs(60));
        }
        assert_eq!(clock.expire(Due::Life), OnTimeout::Destroy);
    }

    #[test]
    fn idleness_ends_before_life_but_not_while_a_command_runs_or_the_box_is_paused() {
        let (mut clock, now) = clock(OnTimeout::Destroy);
        assert_eq!(clock.next(), (now.monotonic + QUARTER, Due::Idle));
        clock.running = 1;
        assert_eq!(clock.next(), (now.monotonic + HOUR - WARNING, Due::Warn));
        clock.running = 0;
        clock.motion = Motion::Paused;
        assert_eq!(clock.next().1, Due::Warn);
        clock.warned();
        assert_eq!(clock.next(), (now.monotonic + HOUR, Due::Life));
    }

    #[test]
    fn a_request_begins_idleness_anew() {
        let (mut clock, now) = clock(OnTimeout::Destroy);
        clock.touch(now.monotonic + Duration::from_secs(100));
        clock.touch(now.monotonic);
        assert_eq!(clock.next(), (now.monotonic + Duration::from_secs(1_000), Due::Idle));
    }

    #[test]
    fn a_box_that_is_to_be_destroyed_is_not_paused_first() {
        let (mut clock, now) = clock(OnTimeout::Destroy);
        assert_eq!(clock.expire(Due::Life), OnTimeout::Destroy);
        assert_eq!(clock.expire(Due::Idle), OnTimeout::Destroy);
        assert_eq!(clock.backstop(), now.monotonic + HOUR + BACKSTOP);
    }

    #[test]
    fn a_box_that_is_to_be_paused_has_as_long_again_and_then_ends() {
        let (mut clock, now) = clock(OnTimeout::Pause);
        assert_eq!(clock.expire(Due::Life), OnTimeout::Pause);
        clock.motion = Motion::Paused;
        assert_eq!(clock.next(), (now.monotonic + HOUR + HOUR, Due::Life));
        assert_eq!(clock.expire(Due::Life), OnTimeout::Destroy);
        clock.resume(later(now, HOUR));
        assert_eq!(clock.left(now.monotonic + HOUR), HOUR);
        assert_eq!(clock.expire(Due::Life), OnTimeout::Pause);
    }

    #[test]
    fn a_deadline_of_centuries_or_of_nothing_does_not_overflow() {
        for span in [Duration::ZERO, Duration::MAX] {
            let now = Now::read();
            let mut clock = Clock::start(span, span, OnTimeout::Pause, now);
            clock.expire(Due::Life);
            clock.set_life(span, now);
            assert!(clock.next().0 <= clock.backstop());
        }
    }
}
