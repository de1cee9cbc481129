//! The whole lifecycle of a box: one pure function. No clock, no I/O, no locks; the driver carries out effects.
//!
//! ```text
//!            Asked             Greeted            CommandStarted
//!  Dormant ───────► Provisioning ─────► Ready ───────────────────► Executing
//!     │                 │   │             │                         │     ▲
//!     │                 │   │             │ LastCommandEnded        │     │ CommandStarted
//!     │                 │   │             ▼                         ▼     │
//!     │                 │   │          Completed ◄────────────── (last one ended)
//!     │     LaunchFailed│   │             │                         │
//!     │      (for good) ▼   ▼             ▼                         ▼
//!     │   Stopped    ┌──────────────── Teardown ◄───── Stopped (kill, deadline, output, lie, silence,
//!     └───────►──────┤                    │                     or the warden is lost)
//!                    ▼                    │ Released
//!                   Gone ◄────────────────┘       Released in any state: the box died by itself
//! ```
//!
//! A launch that failed for want of something that may be there a moment later goes to `Error`: nothing is left of it, and
//! it is tried again after a while, ever longer, a few times ([`cure`], and the backoff of the driver).
//!
//! From `Ready`, `Executing` and `Completed` a box can be `Paused`, and come back from there to `Executing` or
//! `Completed`. The warden is asked first; the state follows its answer.
//!
//! Three properties hold and are tested: a gone box never comes back; being stopped is accepted in every state;
//! every path ends in `Gone`.

/// Where a box is in its life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum State {
    /// Nothing was asked of the host yet.
    Dormant,
    /// The warden was asked and the agent has not spoken yet.
    Provisioning,
    /// The host could not make it just now. Nothing is left of it; it will be tried again.
    Error,
    /// The agent answered; no command has run.
    Ready,
    /// At least one command runs.
    Executing,
    /// Every command has ended; another may follow.
    Completed,
    /// Every process was stopped where it stood.
    Paused,
    /// Being ended.
    Teardown,
    /// Nothing is left on the host.
    Gone,
}

/// What can happen to a box.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Event {
    /// Somebody wants the box.
    Asked,
    /// The agent said hello.
    Greeted,
    /// The warden could not make it, and left nothing of it.
    LaunchFailed(Cure),
    /// It was waited for long enough: it is tried again.
    RetryDue,
    /// Somebody wants a command run. Accepted before the agent has spoken: the frame waits in its socket.
    ExecAsked,
    /// A command runs.
    CommandStarted,
    /// The last command that was asked for has ended, or could not be started.
    LastCommandEnded,
    /// Somebody wants the box paused.
    PauseAsked,
    /// Nothing runs in it any more.
    Paused,
    /// Somebody wants it to go on.
    ResumeAsked,
    /// It runs again.
    Resumed(Load),
    /// The box has to end.
    Stopped(Stop),
    /// The warden says that nothing is left.
    Released,
}

/// What may help against a launch that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cure {
    /// Trying it again.
    Retry,
    /// Nothing that we could do.
    Nothing,
}

/// How often a box is tried to be made, the first time included.
pub const TRIES: u32 = 3;

/// What may help against a launch that failed with this errno, after so many tries.
#[must_use]
pub const fn cure(tries: u32, errno: i32) -> Cure {
    // EINTR, EAGAIN, ENOMEM, EBUSY, ENFILE, EMFILE, ENOSPC, EUSERS, EDQUOT: somebody else has what we need, for now.
    match errno {
        4 | 11 | 12 | 16 | 23 | 24 | 28 | 87 | 122 if tries < TRIES => Cure::Retry,
        _ => Cure::Nothing,
    }
}

/// Whether commands run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Load {
    /// At least one does.
    Busy,
    /// None does.
    Idle,
}

/// Why a box has to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stop {
    /// Its owner is done with it.
    Asked,
    /// Its time is over.
    Deadline,
    /// It printed more than it may.
    OutputSpent,
    /// It broke the protocol: whoever speaks there is not our agent any more.
    GuestLied,
    /// Its agent closed the channel.
    AgentGone,
    /// The warden died; what it left is released by name.
    WardenLost,
}

/// What the driver has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Ask the warden to make the box.
    Launch,
    /// Wait a while, ever longer, before it is tried again.
    AwaitRetry,
    /// Send the command to the agent.
    SendExec,
    /// Tell whoever waits that the box is there.
    SayReady,
    /// Tell the commands that still run that it is over.
    EndCommands,
    /// Ask the warden to stop every process of the box.
    Freeze,
    /// Ask the warden to let them go on.
    Thaw,
    /// Ask the warden to end the box.
    Kill,
    /// Ask a fresh warden to release what the lost one has left.
    Sweep,
    /// Tell whoever waits what it used; forget the box.
    Report,
}

/// An event that this state does not know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a box that is {state:?} cannot meet {event:?}")]
pub struct Refused {
    /// Where the box is.
    pub state: State,
    /// What happened.
    pub event: Event,
}

/// The next state and what has to be done to get there.
pub fn step(state: State, event: Event) -> Result<(State, &'static [Effect]), Refused> {
    use Effect::{AwaitRetry, EndCommands, Freeze, Kill, Launch, Report, SayReady, SendExec, Sweep, Thaw};
    use Event::{
        Asked, CommandStarted, ExecAsked, Greeted, LastCommandEnded, LaunchFailed, PauseAsked, Released,
        ResumeAsked, Resumed, RetryDue, Stopped,
    };
    use State::{Completed, Dormant, Error, Executing, Gone, Paused, Provisioning, Ready, Teardown};
    let to = |next: State, effects: &'static [Effect]| Ok((next, effects));
    match (state, event) {
        (Dormant, Asked) => to(Provisioning, &[Launch]),
        (Provisioning, Greeted) => to(Ready, &[SayReady]),
        // What is asked meanwhile is kept for the next try.
        (Provisioning | Error | Ready | Executing | Completed, ExecAsked) => to(state, &[SendExec]),
        (Ready | Executing | Completed, CommandStarted) => to(Executing, &[]),
        (Ready | Executing | Completed, LastCommandEnded) => to(Completed, &[]),
        (Ready | Executing | Completed, PauseAsked) => to(state, &[Freeze]),
        (Ready | Executing | Completed, Event::Paused) => to(Paused, &[]),
        (Paused, ResumeAsked) => to(Paused, &[Thaw]),
        (Paused, Resumed(Load::Busy)) => to(Executing, &[]),
        (Paused, Resumed(Load::Idle)) => to(Completed, &[]),
        // Said before the pause, heard after it.
        (Paused, CommandStarted | LastCommandEnded) => to(Paused, &[]),
        // The warden leaves nothing of a box that it could not make: `Released` follows at once.
        (Provisioning, LaunchFailed(Cure::Retry)) => to(Error, &[AwaitRetry]),
        (Error, RetryDue) => to(Provisioning, &[Launch]),
        (Error, Stopped(_) | Released) => to(Gone, &[EndCommands, Report]),
        (Provisioning, LaunchFailed(Cure::Nothing)) => to(Teardown, &[EndCommands]),
        (Dormant, Stopped(_) | Released) => to(Gone, &[Report]),
        (Gone, Stopped(_) | Released) => to(Gone, &[]),
        (Teardown, Stopped(Stop::WardenLost)) => to(Teardown, &[Sweep]),
        (Teardown, Stopped(_) | LaunchFailed(_)) => to(Teardown, &[]),
        (Provisioning | Ready | Executing | Completed | Paused, Stopped(Stop::WardenLost)) => {
            to(Teardown, &[EndCommands, Sweep])
        }
        (Provisioning | Ready | Executing | Completed | Paused, Stopped(_)) => {
            to(Teardown, &[EndCommands, Kill])
        }
        (Teardown, Released) => to(Gone, &[Report]),
        (Provisioning | Ready | Executing | Completed | Paused, Released) => to(Gone, &[EndCommands, Report]),
        // What was on its way when the box was stopped arrives late and changes nothing.
        (Teardown, Greeted | CommandStarted | LastCommandEnded | Event::Paused | Resumed(_)) => {
            to(Teardown, &[])
        }
        (
            Provisioning,
            Asked | CommandStarted | LastCommandEnded | PauseAsked | Event::Paused | ResumeAsked | Resumed(_),
        )
        | (Ready | Executing | Completed, Asked | Greeted | LaunchFailed(_) | ResumeAsked | Resumed(_))
        | (Paused, Asked | Greeted | LaunchFailed(_) | ExecAsked | PauseAsked | Event::Paused)
        | (Teardown, Asked | ExecAsked | PauseAsked | ResumeAsked)
        | (
            Dormant | Gone,
            Greeted
            | LaunchFailed(_)
            | ExecAsked
            | CommandStarted
            | LastCommandEnded
            | PauseAsked
            | Event::Paused
            | ResumeAsked
            | Resumed(_),
        )
        | (
            Error,
            Asked
            | Greeted
            | LaunchFailed(_)
            | CommandStarted
            | LastCommandEnded
            | PauseAsked
            | Event::Paused
            | ResumeAsked
            | Resumed(_),
        )
        | (Dormant | Provisioning | Ready | Executing | Completed | Paused | Teardown | Gone, RetryDue)
        | (Gone, Asked) => Err(Refused { state, event }),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    const STOPS: [Stop; 6] =
        [Stop::Asked, Stop::Deadline, Stop::OutputSpent, Stop::GuestLied, Stop::AgentGone, Stop::WardenLost];
    pub(crate) const STATES: [State; 9] = [
        State::Dormant,
        State::Provisioning,
        State::Error,
        State::Ready,
        State::Executing,
        State::Completed,
        State::Paused,
        State::Teardown,
        State::Gone,
    ];

    /// Every event that there is.
    pub(crate) fn events() -> Vec<Event> {
        let others = [
            Event::Asked,
            Event::Greeted,
            Event::LaunchFailed(Cure::Retry),
            Event::LaunchFailed(Cure::Nothing),
            Event::RetryDue,
            Event::ExecAsked,
            Event::CommandStarted,
            Event::LastCommandEnded,
            Event::PauseAsked,
            Event::Paused,
            Event::ResumeAsked,
            Event::Resumed(Load::Busy),
            Event::Resumed(Load::Idle),
            Event::Released,
        ];
        others.into_iter().chain(STOPS.map(Event::Stopped)).collect()
    }

    fn event() -> impl Strategy<Value = Event> {
        prop::sample::select(events())
    }

    /// Walks the events; one that is refused changes nothing.
    fn walk(events: &[Event]) -> Vec<(State, &'static [Effect])> {
        let mut state = State::Dormant;
        let mut seen = Vec::new();
        for event in events {
            if let Ok((next, effects)) = step(state, *event) {
                state = next;
                seen.push((next, effects));
            }
        }
        seen
    }

    proptest! {
        #[test]
        fn a_gone_box_never_comes_back(events in prop::collection::vec(event(), 0..40)) {
            let seen = walk(&events);
            let mut after = seen.iter().skip_while(|(state, _)| *state != State::Gone);
            after.next();
            for (state, effects) in after {
                prop_assert_eq!(*state, State::Gone);
                prop_assert!(effects.is_empty());
            }
        }

        #[test]
        fn every_path_ends_in_gone(events in prop::collection::vec(event(), 0..40)) {
            let last = walk(&events).last().map_or(State::Dormant, |(state, _)| *state);
            let (stopped, _) = step(last, Event::Stopped(Stop::Asked)).unwrap();
            prop_assert_eq!(step(stopped, Event::Released).unwrap().0, State::Gone);
        }

        #[test]
        fn what_a_box_used_is_reported_once(events in prop::collection::vec(event(), 0..60)) {
            let reports = walk(&events).iter().flat_map(|(_, effects)| effects.iter())
                .filter(|effect| **effect == Effect::Report).count();
            prop_assert!(reports <= 1);
        }

        #[test]
        fn a_box_is_launched_again_only_after_it_failed_and_was_waited_for(
            events in prop::collection::vec(event(), 0..60)
        ) {
            let effects: Vec<Effect> = walk(&events).iter().flat_map(|(_, e)| e.iter().copied()).collect();
            let launches: Vec<usize> =
                (0..effects.len()).filter(|at| effects[*at] == Effect::Launch).collect();
            for pair in launches.windows(2) {
                prop_assert!(effects[pair[0]..pair[1]].contains(&Effect::AwaitRetry));
            }
        }

        #[test]
        fn trying_again_comes_to_an_end(errno: i32, tries in 0_u32..1_000) {
            prop_assert!(tries < TRIES || cure(tries, errno) == Cure::Nothing);
        }

        #[test]
        fn nothing_is_killed_that_was_never_launched(events in prop::collection::vec(event(), 0..40)) {
            let effects: Vec<Effect> = walk(&events).iter().flat_map(|(_, e)| e.iter().copied()).collect();
            let launched = effects.iter().position(|effect| *effect == Effect::Launch);
            let killed = effects.iter().position(|effect| *effect == Effect::Kill);
            prop_assert!(killed.is_none() || launched < killed);
        }
    }

    #[test]
    fn being_stopped_is_accepted_in_every_state() {
        for state in STATES {
            for stop in STOPS {
                let (next, _) = step(state, Event::Stopped(stop)).unwrap();
                assert!(matches!(next, State::Teardown | State::Gone), "{state:?} {stop:?}");
            }
            assert_eq!(step(state, Event::Released).unwrap().0, State::Gone, "{state:?}");
        }
    }

    #[test]
    fn a_launch_that_failed_for_want_of_something_is_tried_again_and_any_other_is_not() {
        let (state, effects) = step(State::Provisioning, Event::LaunchFailed(cure(1, 12))).unwrap();
        assert_eq!((state, effects), (State::Error, &[Effect::AwaitRetry][..]));
        assert_eq!(step(state, Event::RetryDue), Ok((State::Provisioning, &[Effect::Launch][..])));
        for (tries, errno) in [(1, 1), (1, 0), (1, 38), (TRIES, 12)] {
            let (state, _) = step(State::Provisioning, Event::LaunchFailed(cure(tries, errno))).unwrap();
            assert_eq!(state, State::Teardown, "{tries} {errno}");
        }
        let (gone, effects) = step(State::Error, Event::Stopped(Stop::Asked)).unwrap();
        assert_eq!((gone, effects), (State::Gone, &[Effect::EndCommands, Effect::Report][..]));
    }

    #[test]
    fn a_command_is_accepted_before_the_agent_speaks_and_refused_once_the_box_ends() {
        assert_eq!(
            step(State::Provisioning, Event::ExecAsked),
            Ok((State::Provisioning, &[Effect::SendExec][..]))
        );
        for state in [State::Dormant, State::Teardown, State::Gone] {
            assert!(step(state, Event::ExecAsked).is_err());
        }
    }
}
