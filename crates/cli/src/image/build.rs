//! `blastbox image build`: an image from a recipe, each command in a box of its own.

mod step;

use std::path::{Path, PathBuf};

use blastbox_images::recipe::{self, MAX_RECIPE, RecipeUser};
use blastbox_images::store::Source;
use blastbox_images::{ImageConfig, ImageName};
use blastbox_policy::{BoxRoot, Bytes, SealedPolicy, Seconds};
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
use step::{After, Site};

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
    /// What its command made and no image holds: pipes, sockets, devices.
    left_out: u64,
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

pub(crate) async fn build(args: &BuildArgs) -> Result<u8, Problem> {
    let bad = |source| Problem::ReadRecipe { path: args.recipe.clone(), source };
    let text = read(&args.recipe).map_err(bad)?;
    let parsed = recipe::parse(&text)
        .map_err(|source| Problem::Recipe { path: args.recipe.clone(), source: Box::new(source) })?;
    let context = args.context.clone().unwrap_or_else(|| {
        args.recipe.parent().filter(|at| !at.as_os_str().is_empty()).unwrap_or(Path::new(".")).to_owned()
    });
    let store = args.store.open()?;
    let named = parsed.from.parse().map_err(blastbox_images::StoreError::from);
    let from = named.and_then(|from| store.find(&from)).map_err(|source| Problem::NoBase {
        from: parsed.from.chars().take(200).collect(),
        source: Box::new(source),
    })?;
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
        let (cached, left_out);
        After { tree, cached, left_out } = site.carry_out(step, tree, &mut config, &mut user).await?;
        if !args.json && cached && tree.digest() != before {
            output::say("      as before\n");
        }
        if !args.json && left_out > 0 {
            output::say(&format!(
                "      {left_out} entries are left out: pipes, sockets, devices, what cannot be read\n"
            ));
        }
        steps.push(Done { line: step.line, step: step.text.clone(), cached, left_out, tree: tree.digest() });
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
        ))?;
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
