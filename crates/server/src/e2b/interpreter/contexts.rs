//! The contexts of one sandbox. A context is cheap until code runs in it: its kernel is started by the first piece.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::kernel::Kernel;
use crate::e2b::desk::Desk;
use crate::e2b::envd::paths::HOME;
use crate::e2b::no::{No, echo};
use crate::e2b::sandbox::Sandbox;
use crate::e2b::token::Token;

/// Contexts of one sandbox at once. Each may become a process in its box.
const MOST: usize = 32;
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

/// All contexts of a sandbox, those first that every sandbox has.
#[derive(Debug, Default)]
pub(crate) struct Contexts(Mutex<Vec<Arc<Context>>>);

impl Contexts {
    fn held(&self) -> MutexGuard<'_, Vec<Arc<Context>>> {
        // Nobody panics while holding it.
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if held.is_empty() {
            let usual = Language::USUAL.iter().filter_map(|one| Context::new(*one, HOME.to_owned()).ok());
            held.extend(usual.map(Arc::new));
        }
        held
    }

    pub(super) fn all(&self) -> Vec<Arc<Context>> {
        self.held().clone()
    }

    pub(super) fn find(&self, id: &str) -> Option<Arc<Context>> {
        self.held().iter().find(|context| context.id == id).cloned()
    }

    pub(super) fn add(&self, language: Language, cwd: String) -> Result<Arc<Context>, No> {
        let mut held = self.held();
        if held.len() >= MOST {
            return Err(No::new(429, format!("a sandbox has at most {MOST} contexts; remove one first")));
        }
        let context = Arc::new(Context::new(language, cwd)?);
        held.push(Arc::clone(&context));
        Ok(context)
    }

    /// The first of a language, which code runs in that names none. One that was removed comes back empty.
    pub(super) fn usual(&self, language: Language) -> Result<Arc<Context>, No> {
        let found = self.held().iter().find(|context| context.language == language).cloned();
        found.map_or_else(|| self.add(language, HOME.to_owned()), Ok)
    }

    pub(super) fn remove(&self, context: &Arc<Context>) {
        self.held().retain(|other| !Arc::ptr_eq(other, context));
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
        let added = (0..MOST).map_while(|_| contexts.add(Language::Python, HOME.to_owned()).ok()).count();
        assert_eq!(added, MOST - 2);
        assert_eq!(contexts.add(Language::Python, HOME.to_owned()).unwrap_err().status(), 429);
        let first = contexts.usual(Language::Python).unwrap();
        contexts.remove(&first);
        assert!(contexts.find(&first.id).is_none());
        assert_ne!(contexts.usual(Language::Python).unwrap().id, first.id);
    }

    #[test]
    fn languages_have_their_usual_names() {
        assert_eq!(Language::named(None).unwrap(), Language::Python);
        assert_eq!(Language::named(Some(" JS ")).unwrap(), Language::JavaScript);
        assert_eq!(Language::named(Some("cobol")).unwrap_err().status(), 500);
    }
}
