//! Two test programs at a time: most of them wait for deadlines most of the time. Whoever counts what is left on the host has no other
//! beside it that starts boxes.

use std::io;
use std::process::Command;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use super::follow::{Heard, follow};
use super::programs::{Company, Program};

/// More at once were never tried.
const LANES: usize = 2;

/// Programs that have not begun, and who runs now.
struct Stand {
    waiting: Vec<Program>,
    running: Vec<Company>,
    begun: usize,
    all: usize,
    heard: Vec<(Program, Heard)>,
    broken: Option<io::Error>,
}

struct Lanes<'a> {
    stand: Mutex<Stand>,
    over: Condvar,
    start: &'a (dyn Fn(&Program) -> Command + Sync),
}

/// Runs all programs. What one printed is shown when it is over.
pub(super) fn run(
    programs: Vec<Program>,
    start: &(dyn Fn(&Program) -> Command + Sync),
) -> io::Result<Vec<(Program, Heard)>> {
    let stand = Stand {
        all: programs.len(),
        waiting: programs,
        running: Vec::new(),
        begun: 0,
        heard: Vec::new(),
        broken: None,
    };
    let lanes = Lanes { stand: Mutex::new(stand), over: Condvar::new(), start };
    std::thread::scope(|scope| {
        for _ in 0..LANES {
            scope.spawn(|| lanes.work());
        }
    });
    let stand = lanes.stand.into_inner().unwrap_or_else(PoisonError::into_inner);
    stand.broken.map_or(Ok(stand.heard), Err)
}

impl Lanes<'_> {
    /// One program after another, until none is left.
    fn work(&self) {
        while let Some(program) = self.next() {
            let heard = (self.start)(&program).spawn().and_then(follow);
            let mut stand = self.stand();
            let place = stand.running.iter().position(|company| *company == program.company);
            place.map(|place| stand.running.swap_remove(place));
            match heard {
                Ok(heard) => {
                    let (took, worked) = (heard.took.as_secs(), heard.worked);
                    println!(
                        "\n{}, {took} s, {worked} s of processors:\n{}",
                        program.name,
                        heard.lines.join("\n")
                    );
                    stand.heard.push((program, heard));
                }
                Err(source) => {
                    let told = format!("cannot run {}: {source}", program.name);
                    stand.broken = Some(io::Error::new(source.kind(), told));
                }
            }
            self.over.notify_all();
        }
    }

    /// The first that suits those that run; waits where none does.
    fn next(&self) -> Option<Program> {
        let mut stand = self.stand();
        loop {
            if stand.waiting.is_empty() || stand.broken.is_some() {
                return None;
            }
            if let Some(place) = suitable(&stand.waiting, &stand.running) {
                let program = stand.waiting.remove(place);
                stand.running.push(program.company);
                stand.begun += 1;
                println!("begins: {} ({} of {})", program.name, stand.begun, stand.all);
                return Some(program);
            }
            stand = self.over.wait(stand).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn stand(&self) -> MutexGuard<'_, Stand> {
        self.stand.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn suitable(waiting: &[Program], running: &[Company]) -> Option<usize> {
    waiting.iter().position(|program| running.iter().all(|company| company.suits(program.company)))
}
