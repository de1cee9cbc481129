//! The contexts of one sandbox. A context is cheap until code runs in it: its kernel is started by the first piece.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::copied::Standing;
use super::kernel::Kernel;
use crate::e2b::desk::Desk;
use crate::e2b::envd::paths::HOME;
use crate::e2b::no::{No, echo};
use crate::e2b::sandbox::Sandbox;
use crate::e2b::token::Token;
use tokio::sync::Semaphore;

/// Contexts of one sandbox at once, beside the usual ones. Each may become a process in its box.
const MOST: usize = 32;
/// Long lines of one sandbox that are in the daemon's memory at once.
const MOST_LONG: usize = 2;
const SIGKILL: u8 = 9;

/// The languages that there is a kernel for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Language {
    Python,
    JavaScript,
    Bash,
}

impl Language {
    /// Those whose contexts are there from the beginning.
    const USUAL: [Self; 2] = [Self::Python, Self::JavaScript];

    /// The one that a caller means; Python where it says nothing.
    pub(super) fn named(asked: Option<&str>) -> Result<Self, No> {
        match asked.unwrap_or("python").trim().to_ascii_lowercase().as_str() {
            "python" => Ok(Self::Python),
            "javascript" | "js" => Ok(Self::JavaScript),
            "bash" => Ok(Self::Bash),
            other => {
                let other = echo(other);
                Err(No::new(
                    500,
                    format!("there is no kernel for '{other}' here; there is python, javascript, bash"),
                ))
            }
        }
    }

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::JavaScript => "javascript",
            Self::Bash => "bash",
        }
    }
}

/// One that remembers.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) id: String,
    pub(super) language: Language,
    pub(super) cwd: String,
    /// Held by the piece of code that runs: one at a time, in the order in which they come.
    pub(super) kernel: Arc<tokio::sync::Mutex<Option<Kernel>>>,
    /// Its command in the box, for whoever ends it while it is held.
    exec: Mutex<Option<u32>>,
}

impl Context {
    fn new(language: Language, cwd: String) -> Result<Self, No> {
        let id = Token::new().ok_or_else(No::defect)?.show_to_owner().to_owned();
        Ok(Self { id, language, cwd, kernel: Arc::default(), exec: Mutex::default() })
    }

    /// Remembers by which command its kernel can be ended.
    pub(super) fn runs_as(&self, exec: u32) {
        *self.exec.lock().unwrap_or_else(PoisonError::into_inner) = Some(exec);
    }

    /// The command that was last its kernel.
    pub(super) fn exec(&self) -> Option<u32> {
        *self.exec.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends its kernel, whatever it does. The next piece of code gets a fresh one.
    pub(super) async fn end(&self, desk: &Desk, sandbox: &Sandbox) {
        let exec = self.exec.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(exec) = exec {
            // An error: it is over already.
            desk.keeper().signal(&sandbox.tenant, &sandbox.box_id, exec, SIGKILL).await.ok();
        }
        // Where code runs in it, that hears of its end.
        if let Ok(mut idle) = self.kernel.try_lock() {
            *idle = None;
        }
    }
}

/// All contexts of a sandbox. The usual ones, in which code runs that names none, are nobody's to take away: whoever may make
/// contexts may be a stranger.
#[derive(Debug)]
pub(crate) struct Contexts {
    usual: Mutex<Vec<Arc<Context>>>,
    more: Mutex<Vec<Arc<Context>>>,
    long: Arc<Semaphore>,
}

impl Default for Contexts {
    fn default() -> Self {
        let long = Arc::new(Semaphore::new(MOST_LONG));
        Self { usual: Mutex::default(), more: Mutex::default(), long }
    }
}

impl Contexts {
    fn usual_ones(&self) -> MutexGuard<'_, Vec<Arc<Context>>> {
        // Nobody panics while holding it.
        let mut usual = self.usual.lock().unwrap_or_else(PoisonError::into_inner);
        if usual.is_empty() {
            let first = Language::USUAL.iter().filter_map(|one| Context::new(*one, HOME.to_owned()).ok());
            usual.extend(first.map(Arc::new));
        }
        usual
    }

    fn more(&self) -> MutexGuard<'_, Vec<Arc<Context>>> {
        self.more.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Places for long lines.
    pub(super) fn long(&self) -> Arc<Semaphore> {
        Arc::clone(&self.long)
    }

    pub(super) fn all(&self) -> Vec<Arc<Context>> {
        let usual = self.usual_ones().clone();
        usual.into_iter().chain(self.more().iter().cloned()).collect()
    }

    pub(super) fn find(&self, id: &str) -> Option<Arc<Context>> {
        self.all().into_iter().find(|context| context.id == id)
    }

    pub(super) fn add(&self, language: Language, cwd: String) -> Result<Arc<Context>, No> {
        let mut more = self.more();
        if more.len() >= MOST {
            return Err(No::new(429, format!("a sandbox has at most {MOST} contexts; remove one first")));
        }
        let context = Arc::new(Context::new(language, cwd)?);
        more.push(Arc::clone(&context));
        Ok(context)
    }

    /// The one of a language that code runs in which names none.
    pub(super) fn usual(&self, language: Language) -> Result<Arc<Context>, No> {
        let mut usual = self.usual_ones();
        if let Some(found) = usual.iter().find(|context| context.language == language) {
            return Ok(Arc::clone(found));
        }
        let context = Arc::new(Context::new(language, HOME.to_owned())?);
        usual.push(Arc::clone(&context));
        Ok(context)
    }

    /// Whether code runs in it that names none.
    pub(super) fn is_usual(&self, context: &Arc<Context>) -> bool {
        self.usual_ones().iter().any(|other| Arc::ptr_eq(other, context))
    }

    /// Has one that the sandbox had from which this one was copied. `None`: there is no room for it, or no such language.
    pub(super) fn restore(&self, standing: &Standing) -> Option<Arc<Context>> {
        let language = standing.language()?;
        // The sandbox may be the one that had it.
        self.more().retain(|other| other.id != standing.id);
        let (id, cwd) = (standing.id.clone(), standing.cwd.clone());
        let context = Arc::new(Context { id, language, cwd, kernel: Arc::default(), exec: Mutex::default() });
        if standing.usual {
            let mut usual = self.usual_ones();
            let place = usual.iter_mut().find(|other| other.language == language);
            match place {
                Some(place) => *place = Arc::clone(&context),
                None => usual.push(Arc::clone(&context)),
            }
        } else {
            let mut more = self.more();
            if more.len() >= MOST {
                return None;
            }
            more.push(Arc::clone(&context));
        }
        Some(context)
    }

    /// Takes one away; a usual one only begins anew.
    pub(super) fn remove(&self, context: &Arc<Context>) {
        self.more().retain(|other| !Arc::ptr_eq(other, context));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_are_always_there_and_there_is_an_end_to_how_many() {
        let contexts = Contexts::default();
        let languages: Vec<&str> = contexts.all().iter().map(|context| context.language.as_str()).collect();
        assert_eq!(languages, ["python", "javascript"]);
        let added = |_| contexts.add(Language::Python, "/nowhere".to_owned()).ok();
        assert_eq!((0..2 * MOST).map_while(added).count(), MOST);
        assert_eq!(contexts.add(Language::Python, HOME.to_owned()).unwrap_err().status(), 429);
        let other = contexts.all().pop().unwrap();
        contexts.remove(&other);
        assert!(contexts.find(&other.id).is_none());
    }

    #[test]
    fn nobody_takes_the_usual_ones_away_or_puts_another_in_their_place() {
        let contexts = Contexts::default();
        contexts.add(Language::Python, "/nowhere".to_owned()).unwrap();
        let first = contexts.usual(Language::Python).unwrap();
        contexts.remove(&first);
        let again = contexts.usual(Language::Python).unwrap();
        assert_eq!((&again.id, again.cwd.as_str()), (&first.id, HOME));
        // A language that is not there from the beginning gets a place of its own too.
        let shell = contexts.usual(Language::Bash).unwrap();
        assert_eq!(contexts.usual(Language::Bash).unwrap().id, shell.id);
    }

    #[test]
    fn languages_have_their_usual_names() {
        assert_eq!(Language::named(None).unwrap(), Language::Python);
        assert_eq!(Language::named(Some(" JS ")).unwrap(), Language::JavaScript);
        assert_eq!(Language::named(Some("cobol")).unwrap_err().status(), 500);
    }
}
