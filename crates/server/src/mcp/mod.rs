//! The Model Context Protocol: what an agent may do with boxes, as tools.
//!
//! - [`Session`]: one client and its boxes. They are made when they are first needed and end with it.
//! - `tools`: the tools, one function each. `ask`: what each takes. `work`: a command from its start to its answer.
//!   `calls`: functions that the client offers to a command. `notebook`: interpreters that remember. `http`: the same for every tenant of a daemon.
//!
//! Must not: let the client choose its policy. Whoever starts the server does; the model on the other side may have
//! read anything, and every wish of its is taken as hostile.

mod ask;
mod calls;
mod desk;
pub(crate) mod http;
mod notebook;
mod tools;
mod work;

use std::io;
use std::sync::Arc;

use blastbox_engine::keeper::{Keeper, NewBox, Tenant};
use blastbox_images::Image;
use rmcp::ServiceExt as _;
use rmcp::handler::server::router::tool::ToolRouter;
use rmcp::model::{Implementation, ServerCapabilities, ServerConfig};
use rmcp::transport::stdio;
use rmcp::{ServerHandler, tool_handler};

use self::desk::{Desk, Scope};

const WELCOME: &str = "Runs code that nobody has reviewed in disposable boxes on this machine. Without `box`, tools \
    work in the session's own box, which is made at the first call and destroyed with the session. What a box may do \
    (network, files, limits) was decided by whoever started this server: `describe_policy` tells. Boxes have no way to \
    ask for more.";

/// Makes what the keeper is asked for, whenever a box is needed.
pub type Recipe = Arc<dyn Fn() -> Result<NewBox, String> + Send + Sync>;

/// One client and its boxes.
#[derive(Debug, Clone)]
pub struct Session {
    desk: Arc<Desk>,
    tool_router: ToolRouter<Self>,
}

impl Session {
    /// A session without boxes yet. `image` is the one that the recipe uses: where interpreters are looked for.
    #[must_use]
    pub fn new(keeper: Keeper, tenant: Tenant, image: impl Into<Arc<Image>>, recipe: Recipe) -> Self {
        Self::with(keeper, tenant, image.into(), recipe, Scope::Session)
    }

    fn with(keeper: Keeper, tenant: Tenant, image: Arc<Image>, recipe: Recipe, scope: Scope) -> Self {
        let desk = Desk::new(keeper, tenant, image, recipe, scope);
        Self { desk: Arc::new(desk), tool_router: Self::tool_router() }
    }

    /// Serves the client at standard input and output until it goes.
    pub async fn serve_stdio(self) -> io::Result<()> {
        let running = self.serve(stdio()).await.map_err(io::Error::other)?;
        running.waiting().await.map(drop).map_err(io::Error::other)
    }
}

#[tool_handler(router = self.tool_router)]
impl ServerHandler for Session {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(Implementation::new("blastbox", env!("CARGO_PKG_VERSION")))
            .with_instructions(WELCOME)
    }
}
