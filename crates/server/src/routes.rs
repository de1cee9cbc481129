//! Every route, once: the router and the document at `/openapi.json` are made from the same table, so that neither can
//! know a route that the other does not.

use axum::Router;
use axum::http::Method;
use axum::routing::{MethodRouter, delete, get, post, put};

use crate::mcp::http as mcp;
use crate::openapi::{Gives, Operation, Takes};
use crate::rest::{
    about, attach, boxes, calls, execs, files, modules, network, output, pause, run, snapshots, stdin, trees,
};
use crate::{Hall, Trouble, e2b};

/// One way to call.
#[derive(Debug)]
pub(crate) struct Route {
    pub(crate) method: Method,
    pub(crate) path: &'static str,
    pub(crate) operation: Operation,
    handler: MethodRouter<Hall>,
}

fn route(method: Method, path: &'static str, handler: MethodRouter<Hall>, operation: Operation) -> Route {
    Route { method, path, operation, handler }
}

/// Every route.
pub(crate) fn all() -> Vec<Route> {
    let all = [about_daemon(), about_boxes(), about_modules(), about_execs(), about_files(), about_mcp()];
    all.into_iter().flatten().collect()
}

fn about_daemon() -> Vec<Route> {
    let op = Operation::new;
    vec![
        route(
            Method::GET,
            "/healthz",
            get(about::health),
            op("health", "Whether the daemon answers", Gives::json(200, "Health")).open(),
        ),
        route(
            Method::GET,
            "/openapi.json",
            get(about::document),
            op("document", "This document", Gives::json(200, "Document")).open(),
        ),
        route(
            Method::GET,
            "/v1/daemon",
            get(about::daemon),
            op(
                "daemon",
                "The daemon itself and its own walls (at the socket only)",
                Gives::json(200, "Daemon"),
            ),
        ),
        route(
            Method::GET,
            "/metrics",
            get(about::metrics),
            op("metrics", "Numbers for Prometheus", Gives::text(200)),
        ),
        route(
            Method::GET,
            "/v1/events",
            get(about::events),
            op("events", "What happens to boxes, as it happens", Gives::stream("KeeperEvent"))
                .query("after", "Number of the last event that was seen; `Last-Event-ID` goes before it")
                .query("alerts", "`true`: only those that a person should hear about")
                .query("all", "`true`: of every tenant (at the socket only)")
                .query("follow", "`false`: end with what has happened by now"),
        ),
        route(
            Method::GET,
            "/v1/network",
            get(network::traffic),
            op(
                "traffic",
                "Every connection and question of boxes, as it happens",
                Gives::stream("KeeperEvent"),
            )
            .query("after", "Number of the last event that was seen; `Last-Event-ID` goes before it")
            .query("all", "`true`: of every tenant (at the socket only)")
            .query("box", "Of this box only")
            .query("follow", "`false`: end with what has happened by now"),
        ),
        route(
            Method::POST,
            "/v1/run",
            post(run::run),
            op("run", "One command in a box of its own, its output and its receipt", Gives::json(200, "Ran"))
                .takes(Takes::Json("Run")),
        ),
    ]
}

fn about_boxes() -> Vec<Route> {
    let op = Operation::new;
    vec![
        route(
            Method::POST,
            "/v1/boxes",
            post(boxes::create),
            op("createBox", "Make a box", Gives::json(201, "BoxCard")).takes(Takes::Json("NewBox")),
        ),
        route(
            Method::GET,
            "/v1/boxes",
            get(boxes::list),
            op("listBoxes", "The boxes of the caller's tenant, oldest first", Gives::json(200, "Page"))
                .query("limit", "1 to 1000; 100 where it is absent")
                .query("cursor", "`next` of the page before"),
        ),
        route(
            Method::GET,
            "/v1/boxes/{id}",
            get(boxes::show),
            op("showBox", "A box and the commands in it", Gives::json(200, "Whole")),
        ),
        route(
            Method::DELETE,
            "/v1/boxes/{id}",
            delete(boxes::end),
            op("endBox", "End a box with everything in it", Gives::json(200, "Receipt")),
        ),
        route(
            Method::GET,
            "/v1/boxes/{id}/receipt",
            get(boxes::receipt),
            op("showReceipt", "What became of a box that is gone", Gives::json(200, "Receipt")),
        ),
        route(
            Method::POST,
            "/v1/boxes/{id}/pause",
            post(pause::pause),
            op("pauseBox", "Stop everything in a box where it stands", Gives::json(200, "BoxCard"))
                .query("to", "`memory`, where it stays; `disk`: written there, and its memory given back"),
        ),
        route(
            Method::POST,
            "/v1/boxes/{id}/resume",
            post(pause::resume),
            op("resumeBox", "Let a paused box go on", Gives::json(200, "BoxCard")),
        ),
        route(
            Method::POST,
            "/v1/boxes/{id}/snapshot",
            post(snapshots::take),
            op(
                "snapshotBox",
                "Write a box that runs to a file, from which others can begin",
                Gives::json(201, "SnapshotCard"),
            ),
        ),
        route(
            Method::POST,
            "/v1/boxes/{id}/fork",
            post(snapshots::fork),
            op(
                "forkBox",
                "Make boxes that are what this one is now, with everything that runs in it",
                Gives::json(201, "Forked"),
            )
            .takes(Takes::Json("Forks")),
        ),
        route(
            Method::GET,
            "/v1/snapshots",
            get(snapshots::list),
            op(
                "listSnapshots",
                "The snapshots of the caller's tenant, oldest first",
                Gives::json(200, "Snapshots"),
            )
            .query("all", "`true`: of every tenant, with what cannot be read (at the socket only)"),
        ),
        route(
            Method::DELETE,
            "/v1/snapshots/{id}",
            delete(snapshots::remove),
            op("removeSnapshot", "Take a snapshot away", Gives::nothing(204)),
        ),
        route(
            Method::POST,
            "/v1/boxes/{id}/deadline",
            post(boxes::deadline),
            op("setDeadline", "Set how long a box may live from now on", Gives::json(200, "BoxCard"))
                .takes(Takes::Json("Deadline")),
        ),
        route(
            Method::GET,
            "/v1/boxes/{id}/network",
            get(network::rules),
            op("showRules", "The policy of a box as it is now", Gives::json(200, "BoxRules")),
        ),
        route(
            Method::POST,
            "/v1/boxes/{id}/network",
            post(network::change),
            op("changeRules", "Change what a box may reach from now on", Gives::json(200, "BoxRules"))
                .takes(Takes::Json("RuleChanges")),
        ),
    ]
}

fn about_modules() -> Vec<Route> {
    let op = Operation::new;
    vec![
        route(
            Method::GET,
            "/v1/modules",
            get(modules::list),
            op("listModules", "The modules of the caller's tenant, by name", Gives::json(200, "Modules")),
        ),
        route(
            Method::PUT,
            "/v1/modules/{name}",
            put(modules::put),
            op(
                "putModule",
                "Bring a WASI module or component, which is compiled; boxes of the tier wasm have it with the image `module:NAME`",
                Gives::json(201, "ModuleCard"),
            )
            .takes(Takes::Bytes),
        ),
        route(
            Method::DELETE,
            "/v1/modules/{name}",
            delete(modules::remove),
            op("removeModule", "Take a module away; boxes that run it go on", Gives::nothing(204)),
        ),
    ]
}

fn about_execs() -> Vec<Route> {
    let op = Operation::new;
    vec![
        route(
            Method::POST,
            "/v1/boxes/{id}/execs",
            post(execs::create),
            op("createExec", "Run a command in a box", Gives::json(201, "Begun"))
                .takes(Takes::Json("NewExec")),
        ),
        route(
            Method::GET,
            "/v1/boxes/{id}/execs/{exec}/events",
            get(execs::events),
            op("execEvents", "What a command prints, from its beginning or from a place, and how it ends", Gives::stream("ExecEvent"))
                .query("after", "Id of the last event that was seen; `Last-Event-ID` goes before it")
                .query("slow", "`hold` (default): the command waits for this reader; `drop`: the reader loses what it is too slow for")
                .query("follow", "`false`: end with what was printed by now"),
        ),
        route(
            Method::GET,
            "/v1/boxes/{id}/execs/{exec}/output",
            get(output::output),
            op("execOutput", "What a command prints, as bytes; the command waits for this reader", Gives::bytes(200, "application/octet-stream"))
                .query("after", "Place from which to go on; as the ids of `events`")
                .query("stream", "`stdout` or `stderr`; both, as they come, where it is absent")
                .query("follow", "`false`: end with what was printed by now"),
        ),
        route(
            Method::GET,
            "/v1/boxes/{id}/execs/{exec}/attach",
            get(attach::attach),
            op("attachExec", "A command and its terminal over one WebSocket: bytes are output and input, texts the rest", Gives::line())
                .query("after", "Place from which to go on; as the ids of `events`")
                .query("slow", "As with `events`"),
        ),
        route(
            Method::POST,
            "/v1/boxes/{id}/execs/{exec}/stdin",
            post(stdin::write),
            op("writeStdin", "Bytes for a command, as they come", Gives::nothing(204)).takes(Takes::Bytes),
        ),
        route(
            Method::POST,
            "/v1/boxes/{id}/execs/{exec}/stdin/end",
            post(stdin::end),
            op("endStdin", "Say that there is no more input", Gives::nothing(204)),
        ),
        route(
            Method::POST,
            "/v1/boxes/{id}/execs/{exec}/signal",
            post(execs::signal),
            op("signalExec", "Signal the process group of a command", Gives::nothing(204))
                .takes(Takes::Json("Signal")),
        ),
        route(
            Method::GET,
            "/v1/boxes/{id}/execs/{exec}/calls",
            get(calls::open),
            op("openCalls", "What a command wants of the functions that it was offered", Gives::json(200, "OpenCalls"))
                .query("wait", "Seconds to wait for a call where there is none: 0 to 60"),
        ),
        route(
            Method::POST,
            "/v1/boxes/{id}/execs/{exec}/calls/{call}",
            post(calls::answer),
            op("answerCall", "What a function gave, or why it gave nothing", Gives::nothing(204))
                .takes(Takes::Json("Answered")),
        ),
        route(
            Method::POST,
            "/v1/boxes/{id}/execs/{exec}/resize",
            post(execs::resize),
            op("resizeExec", "Tell a command that its terminal has another size", Gives::nothing(204))
                .takes(Takes::Json("TerminalSize")),
        ),
    ]
}

fn about_files() -> Vec<Route> {
    const PATH: &str =
        "Path in the box, absolute or from its home directory; bytes are escaped as in any address";
    const PARENTS: &str = "`true`: directories on the way are made";
    const MODE: &str = "Permission bits, octal";
    let op = |id, summary, gives| Operation::new(id, summary, gives).query("path", PATH);
    vec![
        route(
            Method::GET,
            "/v1/boxes/{id}/files",
            get(files::read),
            op("readFile", "Content of a file", Gives::bytes(200, "application/octet-stream"))
                .query("offset", "Where to begin; 0 where it is absent")
                .query("length", "Bytes at most"),
        ),
        route(
            Method::PUT,
            "/v1/boxes/{id}/files",
            put(files::write),
            op("writeFile", "Write a file from the body, as it comes", Gives::json(200, "Written"))
                .query("mode", MODE)
                .query("parents", PARENTS)
                .query(
                    "if_exists",
                    "`replace` (default): the old file stays until the new one is whole; `fail`; `append`",
                )
                .takes(Takes::Bytes),
        ),
        route(
            Method::DELETE,
            "/v1/boxes/{id}/files",
            delete(files::remove),
            op("removeFile", "Remove an entry", Gives::json(200, "Removed"))
                .query("recursive", "`true`: with everything in it"),
        ),
        route(
            Method::GET,
            "/v1/boxes/{id}/files/stat",
            get(files::stat),
            op("statFile", "What is known of one entry", Gives::json(200, "Entry"))
                .query("follow", "`true`: a link is followed"),
        ),
        route(
            Method::GET,
            "/v1/boxes/{id}/files/list",
            get(trees::list),
            op("listFiles", "The entries of a directory, in no order", Gives::json(200, "Listed"))
                .query("depth", "Levels; 1 (default) is the directory alone")
                .query("limit", "Most entries; 10000 where it is absent, at most 1000000"),
        ),
        route(
            Method::POST,
            "/v1/boxes/{id}/files/directory",
            post(files::make_directory),
            op("makeDirectory", "Make a directory", Gives::nothing(204))
                .query("mode", MODE)
                .query("parents", PARENTS),
        ),
        route(
            Method::POST,
            "/v1/boxes/{id}/files/move",
            post(files::rename),
            op("moveFile", "Give an entry another name", Gives::nothing(204))
                .query("to", "Its new path")
                .query("replace", "`true` (default): what has that name already is replaced")
                .query("parents", PARENTS),
        ),
        route(
            Method::GET,
            "/v1/boxes/{id}/files/watch",
            get(trees::watch),
            op("watchFiles", "What happens beneath a directory, as it happens", Gives::stream("Change"))
                .query("recursive", "`true`: beneath its directories too"),
        ),
        route(
            Method::GET,
            "/v1/boxes/{id}/files/tar",
            get(trees::pack),
            op(
                "packFiles",
                "A directory, or one file, as a tar archive",
                Gives::bytes(200, "application/x-tar"),
            ),
        ),
        route(
            Method::PUT,
            "/v1/boxes/{id}/files/tar",
            put(trees::unpack),
            op(
                "unpackFiles",
                "Unpack a tar archive beneath a directory, as it comes",
                Gives::json(200, "Written"),
            )
            .query("parents", PARENTS)
            .takes(Takes::Bytes),
        ),
    ]
}

fn about_mcp() -> Vec<Route> {
    let op = Operation::new;
    vec![
        route(
            Method::POST,
            "/mcp",
            post(mcp::serve),
            op("mcpSend", "A message of a Model Context Protocol client, streamable HTTP", Gives::text(200)),
        ),
        route(
            Method::GET,
            "/mcp",
            get(mcp::serve),
            op("mcpListen", "What the server has to say to a session", Gives::text(200)),
        ),
        route(
            Method::DELETE,
            "/mcp",
            delete(mcp::serve),
            op("mcpEnd", "End a session, and its own box", Gives::nothing(202)),
        ),
    ]
}

/// The router.
pub fn router(hall: Hall) -> Router {
    let native = all()
        .into_iter()
        .fold(Router::new(), |router, Route { path, handler, .. }| router.route(path, handler))
        .fallback(async || Trouble::NoRoute)
        .method_not_allowed_fallback(async || Trouble::WrongMethod)
        .with_state(hall.clone());
    e2b::mount(native, hall)
}
