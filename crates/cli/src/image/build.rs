//! `blastbox image build`: an image from a recipe, each command in a box of its own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use blastbox_engine::build::{BuildStep, StepError};
use blastbox_engine::{Command, Engine, Stream, USUAL_PATH};
use blastbox_images::recipe::{self, MAX_RECIPE, RecipeStep, RecipeUser, What};
use blastbox_images::store::{Source, layer_key};
use blastbox_images::tree::Caps;
use blastbox_images::{Image, ImageConfig, ImageName, Store, StoredImage};
use blastbox_isolation::Warden;
use blastbox_policy::{BoxRoot, Bytes, SealedPolicy, Seconds};
use blastbox_wire::agent::{Io, User};
use blastbox_wire::event::Hash;
use clap::Args;
use rustix::fs::{CWD, Mode, OFlags, openat};
use serde::Serialize;

use super::StoreFlag;
use super::import::Limits;
use super::progress::amount;
use crate::args::PolicyFlags;
use crate::output::{self, plain};
use crate::problem::Problem;

pub(crate) const HELP: &str = "\
Examples:
  blastbox image build ./Dockerfile --name tools
  blastbox image build ./recipe --name tools --allow deb.debian.org:80 --disk 2GiB --memory 3GiB
  blastbox image build ./recipe --name tools --no-cache --json

A recipe is a part of what Dockerfiles say: FROM (an image of the store), RUN, COPY, ENV, WORKDIR, USER (root or user), CMD and
ENTRYPOINT. Everything else is refused by line and name. Each RUN is a command in a box of its own, as root of that box, with
the policy of the options below: no network unless --allow names it. What a step made is kept by what it was made from, and
used again. A step that fails leaves nothing. Files of /home, /tmp, /run, /dev and /workspace are a box's own and not the
image's.";

const MEMORY: Bytes = Bytes::mib(2_048);
const DISK: Bytes = Bytes::mib(1_024);
const PIDS: u32 = 512;
const TIMEOUT: Seconds = Seconds(1_800);
const INODES: u64 = 1_000_000;
const OUTPUT: Bytes = Bytes::mib(64);
/// What every box fills itself.
const OURS: [&str; 7] = ["dev", "proc", "sys", "tmp", "run", "home", "workspace"];

#[derive(Debug, Args)]
pub(crate) struct BuildArgs {
    /// The recipe
    recipe: PathBuf,
    /// The name that the image shall have; another image of that name loses it
    #[arg(long)]
    name: ImageName,
    /// Where COPY takes files from [default: the directory of the recipe]
    #[arg(long, value_name = "DIR")]
    context: Option<PathBuf>,
    /// Run every step, also one whose result is there
    #[arg(long)]
    no_cache: bool,
    /// Say nothing of what commands print, unless one fails
    #[arg(long)]
    quiet: bool,
    #[command(flatten)]
    limits: Limits,
    #[command(flatten)]
    policy: PolicyFlags,
    #[command(flatten)]
    store: StoreFlag,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What became of a step.
#[derive(Debug, Serialize)]
struct Done {
    line: usize,
    step: String,
    cached: bool,
    tree: Hash,
}

/// What was built.
#[derive(Debug, Serialize)]
struct Built {
    name: String,
    digest: Hash,
    bytes: u64,
    entries: u64,
    steps: Vec<Done>,
}

/// Everything that steps have in common.
struct Site<'a> {
    args: &'a BuildArgs,
    store: &'a Store,
    policy: SealedPolicy,
    context: PathBuf,
    recipe: Hash,
    caps: Caps,
    /// Started by the first step that needs a box.
    engine: Option<Engine>,
}

pub(crate) async fn build(args: &BuildArgs) -> Result<u8, Problem> {
    let bad = |source| Problem::ReadRecipe { path: args.recipe.clone(), source };
    let text = read(&args.recipe).map_err(bad)?;
    let parsed = recipe::parse(&text)
        .map_err(|source| Problem::Recipe { path: args.recipe.clone(), source: Box::new(source) })?;
    let context = args.context.clone().unwrap_or_else(|| {
        args.recipe.parent().filter(|at| !at.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned()
    });
    let store = args.store.open()?;
    let from = store.find(&parsed.from.parse().map_err(blastbox_images::StoreError::from)?)?;
    let mut config = ImageConfig { command: Vec::new(), ..from.config().clone() };
    let mut site = Site {
        args,
        store: &store,
        policy: policy(&args.policy)?,
        context,
        recipe: Hash::of([text.as_bytes()]),
        caps: args.limits.caps(),
        engine: None,
    };
    let (base, mut tree, mut user) = (from.digest(), from, RecipeUser::Root);
    let count = parsed.steps.len();
    let mut steps = Vec::new();
    for (number, step) in (1..).zip(&parsed.steps) {
        if !args.json {
            output::say(&format!("[{number}/{count}] line {}: {}\n", step.line, plain(&step.text)));
        }
        let before = tree.digest();
        let cached;
        (tree, cached) = site.carry_out(step, tree, &mut config, &mut user).await?;
        if !args.json && cached && tree.digest() != before {
            output::say("      as before\n");
        }
        steps.push(Done { line: step.line, step: step.text.clone(), cached, tree: tree.digest() });
    }
    let source = Source::Recipe { recipe: site.recipe, from: base };
    let facts = store.name_tree(&args.name, &tree, source, config)?;
    if args.json {
        let name = args.name.to_string();
        output::print_json(&Built {
            name,
            digest: facts.digest,
            bytes: facts.bytes,
            entries: facts.entries,
            steps,
        })?;
    } else {
        output::print(&format!(
            "{}@{}\n{} in {} entries, {} steps\n",
            args.name,
            facts.digest,
            amount(facts.bytes),
            facts.entries,
            count
        ));
    }
    Ok(0)
}

fn read(path: &Path) -> std::io::Result<String> {
    use std::io::Read as _;
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = std::fs::File::from(openat(CWD, path, flags, Mode::empty())?);
    let mut text = String::new();
    // One byte more than may be, so that too much is seen.
    file.take(u64::try_from(MAX_RECIPE).unwrap_or(u64::MAX).saturating_add(1)).read_to_string(&mut text)?;
    Ok(text)
}

/// What the options say, with a root. Room to install something, where nobody has written limits down: neither a policy nor a
/// profile nor an option.
fn policy(flags: &PolicyFlags) -> Result<SealedPolicy, Problem> {
    let mut draft = flags.seal(None)?.draft().root(BoxRoot::Allowed);
    if flags.policy.is_none() && flags.profile.is_none() {
        let disk = flags.disk.unwrap_or(DISK);
        draft = draft.disk(disk).file_size(disk).inodes(INODES);
        if flags.memory.is_none() {
            draft = draft.memory(MEMORY);
        }
        if flags.pids.is_none() {
            draft = draft.pids(PIDS);
        }
        if flags.timeout.is_none() {
            draft = draft.timeout(TIMEOUT);
        }
        if flags.output_limit.is_none() {
            draft = draft.output(OUTPUT);
        }
    }
    Ok(draft.seal()?)
}

impl Site<'_> {
    /// One step. The tree after it, and whether that was there before.
    async fn carry_out(
        &mut self,
        step: &RecipeStep,
        tree: StoredImage,
        config: &mut ImageConfig,
        user: &mut RecipeUser,
    ) -> Result<(StoredImage, bool), Problem> {
        match &step.what {
            What::Env(variables) => {
                config.env.extend(variables.clone());
                Ok((tree, true))
            }
            What::User(who) => {
                *user = *who;
                config.user = Some(who.as_str().to_owned());
                Ok((tree, true))
            }
            What::Command(words) => {
                config.command = words.clone();
                Ok((tree, true))
            }
            What::Workdir(path) => {
                config.workdir = Some(path.clone());
                if top(path).is_none_or(|top| OURS.contains(&top)) {
                    return Ok((tree, true));
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
    ) -> Result<(StoredImage, bool), Problem> {
        let mut derived = self.store.derive(tree, self.caps)?;
        derived.inherit(&[])?;
        change(&mut derived).map_err(|error| failed(step, Problem::from(error).line()))?;
        let kept = derived.keep(self.recipe, &mut |_| {})?;
        Ok((self.store.open_tree(&kept.facts.digest)?, kept.known))
    }

    async fn run(
        &mut self,
        step: &RecipeStep,
        words: &[String],
        tree: StoredImage,
        config: &ImageConfig,
        user: RecipeUser,
    ) -> Result<(StoredImage, bool), Problem> {
        let workdir = config.workdir.clone().unwrap_or_else(|| "/".to_owned());
        let policy = self.policy.digest().to_string();
        let mut parts = vec!["run", user.as_str(), workdir.as_str(), policy.as_str()];
        parts.extend(words.iter().map(String::as_str));
        let key = layer_key(&tree.digest(), &config.env, &parts);
        if !self.args.no_cache
            && let Some(digest) = self.store.recall(&key)?
            && let Ok(found) = self.store.open_tree(&digest)
        {
            return Ok((found, true));
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
        let packed = engine.run_step(spec, &mut |stream, bytes| hear(stream, bytes, quiet, &mut tail)).await;
        let packed = match packed {
            Ok(packed) => packed,
            Err(StepError::Create(error)) => return Err(Problem::Create(error)),
            Err(error) => {
                if quiet {
                    output::say(&plain_lines(&tail));
                }
                let why = error.to_string();
                return Err(failed(step, why));
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
        Ok((self.store.open_tree(&kept.facts.digest)?, false))
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
