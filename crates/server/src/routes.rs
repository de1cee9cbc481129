//! Every route, once: the router and the document at `/openapi.json` are made from the same table, so that neither can
//! know a route that the other does not.

use axum::Router;
use axum::http::Method;
use axum::routing::{MethodRouter, delete, get, post};

use crate::openapi::{Gives, Operation, Takes};
use crate::rest::{about, boxes, execs, run, stdin};
use crate::{Hall, Trouble};

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
    [about_daemon(), about_boxes(), about_execs()].into_iter().flatten().collect()
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
                .query("all", "`true`: of every tenant (at the socket only)")
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
            post(boxes::pause),
            op("pauseBox", "Stop everything in a box where it stands", Gives::json(200, "BoxCard")),
        ),
        route(
            Method::POST,
            "/v1/boxes/{id}/resume",
            post(boxes::resume),
            op("resumeBox", "Let a paused box go on", Gives::json(200, "BoxCard")),
        ),
        route(
            Method::POST,
            "/v1/boxes/{id}/deadline",
            post(boxes::deadline),
            op("setDeadline", "Set how long a box may live from now on", Gives::json(200, "BoxCard"))
                .takes(Takes::Json("Deadline")),
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
            Method::POST,
            "/v1/boxes/{id}/execs/{exec}/resize",
            post(execs::resize),
            op("resizeExec", "Tell a command that its terminal has another size", Gives::nothing(204))
                .takes(Takes::Json("TerminalSize")),
        ),
    ]
}

/// The router.
pub fn router(hall: Hall) -> Router {
    all()
        .into_iter()
        .fold(Router::new(), |router, Route { path, handler, .. }| router.route(path, handler))
        .fallback(async || Trouble::NoRoute)
        .method_not_allowed_fallback(async || Trouble::WrongMethod)
        .with_state(hall)
}
