//! The steps of a recipe: what is made without a box, and what a command makes in one.

use std::collections::BTreeMap;
use std::path::PathBuf;

use blastbox_engine::build::{BuildStep, StepError, StepMade};
use blastbox_engine::{Command, Engine, Stream, USUAL_PATH, causes};
use blastbox_images::recipe::{RecipeStep, RecipeUser, What};
use blastbox_images::store::layer_key;
use blastbox_images::tree::Caps;
use blastbox_images::{Image, ImageConfig, OURS, Store, StoredImage};
use blastbox_isolation::Warden;
use blastbox_policy::SealedPolicy;
use blastbox_wire::agent::{Io, User};
use blastbox_wire::event::Hash;
use rustix::fs::{CWD, Mode, OFlags, openat};

use super::BuildArgs;
use crate::output;
use crate::problem::Problem;

/// The tree after a step.
pub(super) struct After {
    pub(super) tree: StoredImage,
    /// Whether it was there before.
    pub(super) cached: bool,
    /// What its command made and no image holds.
    pub(super) left_out: u64,
}

impl After {
    fn new(tree: StoredImage, cached: bool) -> Self {
        Self { tree, cached, left_out: 0 }
    }
}

/// Everything that steps have in common.
pub(super) struct Site<'a> {
    pub(super) args: &'a BuildArgs,
    pub(super) store: &'a Store,
    pub(super) policy: SealedPolicy,
    pub(super) context: PathBuf,
    pub(super) recipe: Hash,
    pub(super) caps: Caps,
    /// Started by the first step that needs a box.
    pub(super) engine: Option<Engine>,
}

impl Site<'_> {
    /// One step.
    pub(super) async fn carry_out(
        &mut self,
        step: &RecipeStep,
        tree: StoredImage,
        config: &mut ImageConfig,
        user: &mut RecipeUser,
    ) -> Result<After, Problem> {
        match &step.what {
            What::Env(variables) => {
                config.env.extend(variables.clone());
                Ok(After::new(tree, true))
            }
            What::User(who) => {
                *user = *who;
                config.user = Some(who.as_str().to_owned());
                Ok(After::new(tree, true))
            }
            What::Command(words) => {
                config.command = words.clone();
                Ok(After::new(tree, true))
            }
            What::Workdir(path) => {
                config.workdir = Some(path.clone());
                if top(path).is_none_or(|top| OURS.contains(&top)) {
                    return Ok(After::new(tree, true));
                }
                self.made(step, &tree, &mut |derived| derived.directory(path))
            }
            What::Copy { from, to } => {
                if let Some(top) = top(to).filter(|top| OURS.contains(top)) {
                    return Err(failed(step, format!("a box has its own /{top}; copy to another place")));
                }
                let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
                let context = openat(CWD, &self.context, flags, Mode::empty())
                    .map_err(|errno| failed(step, format!("{}: {errno}", self.context.display())))?;
                self.made(step, &tree, &mut |derived| {
                    from.iter().try_for_each(|from| derived.copy(&context, from, to))
                })
            }
            What::Run(words) => self.run(step, words, tree, config, *user).await,
        }
    }

    /// A tree that is made without a box. What it is decides whether it was there before.
    fn made(
        &self,
        step: &RecipeStep,
        tree: &StoredImage,
        change: &mut dyn FnMut(
            &mut blastbox_images::store::Derived<'_>,
        ) -> Result<(), blastbox_images::StoreError>,
    ) -> Result<After, Problem> {
        let mut derived = self.store.derive(tree, self.caps)?;
        derived.inherit(&[])?;
        change(&mut derived).map_err(|error| failed(step, Problem::from(error).line()))?;
        let kept = derived.keep(self.recipe, &mut |_| {})?;
        Ok(After::new(self.store.open_tree(&kept.facts.digest)?, kept.known))
    }

    async fn run(
        &mut self,
        step: &RecipeStep,
        words: &[String],
        tree: StoredImage,
        config: &ImageConfig,
        user: RecipeUser,
    ) -> Result<After, Problem> {
        let workdir = config.workdir.clone().unwrap_or_else(|| "/".to_owned());
        let policy = self.policy.digest().to_string();
        let mut parts = vec!["run", user.as_str(), workdir.as_str(), policy.as_str()];
        parts.extend(words.iter().map(String::as_str));
        let key = layer_key(&tree.digest(), &config.env, &parts);
        if !self.args.no_cache
            && let Some(digest) = self.store.recall(&key, self.caps)?
            && let Ok(found) = self.store.open_tree(&digest)
        {
            return Ok(After::new(found, true));
        }
        if self.engine.is_none() {
            self.engine = Some(Engine::with_warden(Warden::start()?)?);
        }
        let Some(engine) = &self.engine else { return Err(failed(step, "there is no engine".to_owned())) };
        let parent = tree.digest();
        let image = Image::Stored(Box::new(tree));
        let command = command(words, &config.env, &workdir, user);
        let quiet = self.args.quiet || self.args.json;
        let mut tail = Vec::new();
        let spec = BuildStep {
            policy: &self.policy,
            image: &image,
            command,
            spool: self.store.path(),
            most: self.most(),
        };
        let made = engine.run_step(spec, &mut |stream, bytes| hear(stream, bytes, quiet, &mut tail)).await;
        let StepMade { packed, left_out } = match made {
            Ok(made) => made,
            Err(StepError::Create(error)) => return Err(Problem::Create(error)),
            Err(error) => {
                if quiet {
                    output::say(&plain_lines(&tail));
                }
                return Err(failed(step, causes(&error)));
            }
        };
        let parent = self.store.open_tree(&parent)?;
        let mut derived = self.store.derive(&parent, self.caps)?;
        let tops: Vec<&str> = packed.iter().map(|(at, _)| at.as_str()).collect();
        derived.inherit(&tops)?;
        for (at, mut file) in packed.iter().map(|(at, file)| (at, file)) {
            derived.fill(at, &mut file)?;
        }
        derived.clean()?;
        let kept = derived.keep(self.recipe, &mut |_| {})?;
        self.store.remember(&key, &kept.facts.digest)?;
        Ok(After { tree: self.store.open_tree(&kept.facts.digest)?, cached: false, left_out })
    }

    /// Bytes of archives: content, and generously what stands around it.
    fn most(&self) -> u64 {
        self.caps.bytes.saturating_add(self.caps.entries.saturating_mul(2_048))
    }
}

fn failed(step: &RecipeStep, why: String) -> Problem {
    Problem::Step { line: step.line, step: step.text.clone(), why }
}

/// The name at the top of a path; `None`: the root itself.
fn top(path: &str) -> Option<&str> {
    path.split('/').find(|part| !part.is_empty())
}

fn command(words: &[String], env: &BTreeMap<String, String>, workdir: &str, user: RecipeUser) -> Command {
    let (who, home) = match user {
        RecipeUser::Root => (User::Root, "/root"),
        RecipeUser::User => (User::Payload, "/home/user"),
    };
    let mut variables = BTreeMap::from([
        ("PATH".to_owned(), USUAL_PATH.to_owned()),
        ("HOME".to_owned(), home.to_owned()),
        ("USER".to_owned(), user.as_str().to_owned()),
    ]);
    variables.extend(env.clone());
    Command {
        arguments: words.iter().map(|word| word.as_bytes().to_vec()).collect(),
        environment: variables.iter().map(|(name, value)| format!("{name}={value}").into_bytes()).collect(),
        directory: workdir.as_bytes().to_vec(),
        io: Io::Pipes,
        user: who,
    }
}

/// The most that is kept of what a command said, for the case that it fails.
const TAIL: usize = 64 * 1024;

/// What a command says: shown at once, or kept for the case that it fails.
fn hear(_stream: Stream, bytes: &[u8], quiet: bool, tail: &mut Vec<u8>) {
    if quiet {
        tail.extend_from_slice(bytes);
        let over = tail.len().saturating_sub(TAIL);
        tail.drain(..over);
    } else {
        output::say(&plain_lines(bytes));
    }
}

/// Output of a box without what would change a terminal.
fn plain_lines(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.chars().filter(|letter| !letter.is_control() || matches!(letter, '\n' | '\t')).collect()
}
