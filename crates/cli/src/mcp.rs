//! `blastbox mcp`: boxes for one MCP client at standard input and output. No daemon needed.

use std::sync::Arc;
use std::time::Duration;

use blastbox_engine::keeper::{Keeper, KeeperConfig, NewBox, Tenant};
use blastbox_engine::{CreateError, Engine, WorkspaceDir};
use blastbox_images::Image;
use blastbox_isolation::{Choice, Warden};
use blastbox_policy::{Bytes, SealedPolicy};
use blastbox_server::mcp::{Recipe, Session};
use clap::Args;

use crate::args::{PolicyFlags, SourceFlags};
use crate::image::StoreFlag;
use crate::problem::Problem;
use crate::pump::Signals;
use crate::{guest, output, terminal};

pub(crate) const HELP: &str = "\
Example, in the configuration of an MCP client:
  { \"mcpServers\": { \"blastbox\": { \"command\": \"blastbox\", \"args\": [\"mcp\", \"--workspace\", \"/path/to/project\"] } } }

Tools: run_code, run_command, read_file, write_file, list_files, start_box, stop_box, list_boxes, describe_policy, answer_call.
The session has one box, and more where the client asks for them; all are gone when the client goes. With --tier wasm --image tool.wasm
each box has that program: run_command [\"tool.wasm\", …]. The policy is the one of these options: the client cannot change it.";

/// Nobody types JSON.
const AT_A_TERMINAL: &str = "blastbox: this speaks with an MCP client at its standard input, and is started by one: \
give the client `blastbox mcp` as its command (`blastbox mcp --help` has an example), or end this with Ctrl-C\n";

/// A session may last a day; a box that nobody uses for an hour is ended, and made anew when it is needed again.
const LIFE: Duration = Duration::from_secs(24 * 3_600);
const IDLE: Duration = Duration::from_secs(3_600);
const OUTPUT: Bytes = Bytes::mib(1_024);

#[derive(Debug, Args)]
pub(crate) struct McpArgs {
    #[command(flatten)]
    policy: PolicyFlags,
    #[command(flatten)]
    source: SourceFlags,
    #[command(flatten)]
    store: StoreFlag,
}

impl McpArgs {
    /// The limit on output is meant for one command; a session has many, and its answers are bounded anyway.
    fn seal(&self) -> Result<SealedPolicy, Problem> {
        let flags = PolicyFlags {
            output_limit: self.policy.output_limit.or(self.policy.policy.is_none().then_some(OUTPUT)),
            ..self.policy.clone()
        };
        flags.seal(self.source.workspace.as_ref())
    }
}

/// The same refusal as every other verb gives.
fn refuse(choice: Choice) -> Result<(), Problem> {
    let Err(refusal) = &choice.chosen else { return Ok(()) };
    let refusal = refusal.clone();
    Err(CreateError::Refused { refusal, choice: Box::new(choice) }.into())
}

/// Serves until the client goes or a signal comes. Everything that was asked is checked before the first word is said.
pub(crate) async fn mcp(args: &McpArgs) -> Result<u8, Problem> {
    let mut signals = Signals::catch(false)?;
    let policy = args.seal()?;
    let image = Arc::new(guest::image(&policy, &args.store, &args.source.image)?);
    let workspace = args.source.workspace.clone();
    if let Some(flag) = &workspace {
        drop(WorkspaceDir::open(&flag.path, flag.access)?);
    }
    let engine = Engine::with_warden(Warden::start()?)?;
    let access = workspace.as_ref().map(|flag| flag.access);
    // A client that is told so with every call looks for its own mistake; whoever starts it can do something.
    refuse(engine.choose(&policy, &image, access, &[]).await?)?;
    if terminal::on_stdin() {
        output::say(AT_A_TERMINAL);
    }
    let mut config = KeeperConfig::default();
    // Boxes of a session are few, and made while a model thinks: none waits for them.
    config.pool.max = 0;
    let keeper = Keeper::start(engine, config);
    let (sealed, root, store) = (policy.clone(), args.source.image.clone(), args.store.clone());
    let module = matches!(*image, Image::Module(_)).then(|| Arc::clone(&image));
    let recipe: Recipe = Arc::new(move || {
        let say = |problem: Problem| problem.line();
        let mut new = match &module {
            // As it was compiled, whatever the file is by now.
            Some(module) => NewBox::new(sealed.clone(), Arc::clone(module)),
            None => NewBox::new(sealed.clone(), store.image(&root).map_err(say)?),
        };
        if let Some(flag) = &workspace {
            let opened = WorkspaceDir::open(&flag.path, flag.access).map_err(|error| say(error.into()))?;
            new.workspace = Some(opened);
        }
        (new.life, new.idle) = (LIFE, IDLE);
        Ok(new)
    });
    let session = Session::new(keeper.clone(), Tenant::local(), image, recipe);
    let served = tokio::select! {
        served = session.serve_stdio() => served.map_err(Problem::Mcp),
        _ = signals.told_to_end() => Ok(()),
    };
    keeper.stop().await;
    served.map(|()| 0)
}
