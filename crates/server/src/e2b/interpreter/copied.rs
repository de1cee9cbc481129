//! Contexts of a sandbox that was copied with everything that runs in it: their kernels run in the copy too, and know what they
//! knew.

use blastbox_engine::keeper::Keeper;
use serde::{Deserialize, Serialize};
use tokio::sync::OwnedMutexGuard;

use super::contexts::{Contexts, Language};
use super::kernel::Kernel;
use crate::e2b::process::environment;
use crate::e2b::sandbox::Sandbox;

/// A context as it stood when its sandbox was copied.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(in crate::e2b) struct Standing {
    pub(super) id: String,
    language: String,
    pub(super) cwd: String,
    pub(super) usual: bool,
    kernel: Stand,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Stand {
    /// Nothing has run in it yet.
    Unstarted,
    /// It waits for the next piece of code, as this command.
    Waits(u32),
    /// The same, and it has not heard yet whose it is.
    Unclaimed(u32),
    /// It is at a piece of code that somebody else waits for.
    Busy(u32),
}

/// Kernels that wait. None of them is asked anything meanwhile.
#[derive(Debug)]
pub(in crate::e2b) struct Held {
    kernels: Vec<OwnedMutexGuard<Option<Kernel>>>,
}

impl Held {
    /// Lets go of the kernels: their sandbox lies on disk, and others will speak with them.
    pub(in crate::e2b) fn let_go(mut self) {
        self.kernels.iter_mut().for_each(|kernel| drop(kernel.take()));
    }
}

impl Standing {
    /// The language of it; `None`: there is none of that name here.
    pub(super) fn language(&self) -> Option<Language> {
        Language::named(Some(&self.language)).ok()
    }
}

/// What contexts there are, and holds those that wait where they are.
pub(in crate::e2b) fn hold(contexts: &Contexts) -> (Vec<Standing>, Held) {
    let mut kernels = Vec::new();
    let standing = contexts.all().into_iter().map(|context| {
        let kernel = match (context.kernel.clone().try_lock_owned(), context.exec()) {
            (Ok(kernel), _) => {
                let stand = match kernel.as_ref().map(|kernel| (kernel.exec(), kernel.is_claimed())) {
                    Some((exec, true)) => Stand::Waits(exec),
                    Some((exec, false)) => Stand::Unclaimed(exec),
                    None => Stand::Unstarted,
                };
                kernels.push(kernel);
                stand
            }
            (Err(_), Some(exec)) => Stand::Busy(exec),
            (Err(_), None) => Stand::Unstarted,
        };
        let usual = contexts.is_usual(&context);
        let language = context.language.as_str().to_owned();
        Standing { id: context.id.clone(), language, cwd: context.cwd.clone(), usual, kernel }
    });
    (standing.collect(), Held { kernels })
}

/// Gives a copy the contexts and kernels that it has.
pub(in crate::e2b) fn take_over(keeper: &Keeper, sandbox: &Sandbox, standing: &[Standing]) {
    for one in standing {
        let Some(context) = sandbox.contexts.restore(one) else { continue };
        let variables = || environment::of_sandbox(sandbox);
        let (exec, begin) = match one.kernel {
            Stand::Unstarted => continue,
            // With the next piece of code it hears whose it is now: what it knows is its source's name and variables.
            Stand::Waits(exec) | Stand::Unclaimed(exec) => (exec, Some(variables())),
            Stand::Busy(exec) => {
                // Nobody waits for its answer here. Whoever lets go of it ends it, and the next piece of code starts another.
                drop(Kernel::copied(keeper, sandbox, exec, None));
                continue;
            }
        };
        let Some(kernel) = Kernel::copied(keeper, sandbox, exec, begin) else { continue };
        if let Ok(mut place) = context.kernel.try_lock() {
            context.runs_as(exec);
            *place = Some(kernel);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_that_never_ran_are_the_same_in_a_copy() {
        let source = Contexts::default();
        let more = source.add(Language::Bash, "/srv".to_owned()).unwrap();
        let (standing, _held) = hold(&source);
        let text = serde_json::to_string(&standing).unwrap();
        let copy = Contexts::default();
        for one in serde_json::from_str::<Vec<Standing>>(&text).unwrap() {
            assert!(copy.restore(&one).is_some());
        }
        let ids = |contexts: &Contexts| contexts.all().iter().map(|one| one.id.clone()).collect::<Vec<_>>();
        assert_eq!(ids(&copy), ids(&source));
        assert_eq!(copy.find(&more.id).unwrap().cwd, "/srv");
        assert_eq!(copy.usual(Language::Python).unwrap().id, source.usual(Language::Python).unwrap().id);
    }

    #[test]
    fn no_piece_of_code_begins_while_a_sandbox_is_copied_and_one_that_runs_is_not_taken_for_one_that_waits() {
        let contexts = Contexts::default();
        let python = contexts.usual(Language::Python).unwrap();
        python.runs_as(7);
        let running = python.kernel.try_lock().unwrap();
        let (standing, _held) = hold(&contexts);
        let [first, second] = standing.as_slice() else { panic!("{standing:?}") };
        assert!(matches!(first.kernel, Stand::Busy(7)), "{first:?}");
        assert!(matches!(second.kernel, Stand::Unstarted), "{second:?}");
        drop(running);
        assert!(contexts.usual(Language::JavaScript).unwrap().kernel.try_lock().is_err(), "held");
    }
}
