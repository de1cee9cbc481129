//! The face that E2B's SDKs talk to, unmodified: their control plane, and the daemon that they expect inside a sandbox
//! ("envd"), answered from the host through the agent of the box.
//!
//! - [`edge`]: which requests are for this face, and for which sandbox. [`endpoints`]: what there is. [`no`]: what a caller hears when the answer is no.
//! - [`desk`]: the sandboxes that were made through this face; [`sandbox`]: what is known of one.
//! - [`control`]: REST about sandboxes. [`envd`]: files and facts over HTTP. [`rpc`]: Connect-RPC, with
//!   [`process`] and [`filesystem`] as its two services. [`ports`]: servers inside a sandbox, from outside.
//!   [`interpreter`]: what the code interpreter's SDKs take for one of those.
//! - [`passport`]: what the next daemon has to know of them. [`copies`]: snapshots and forks. [`template`]: what sandboxes are made of, and [`rooted`]: which have a root; [`templates`]: those that tenants build. [`volumes`]: directories that outlive sandboxes. [`secrets`]: values that headers are filled with. [`apart`]: threads that wait for disks. [`ending`]: boxes that end with whoever
//!   made them.
//!
//! A box has one name here and another in the native API: a sandbox id is a box id without `bx_`, because E2B's becomes a
//! part of a host name.
//!
//! Trust: caller. Whoever has a key may ask for sandboxes; whoever has the token of a sandbox may use that one. Must not:
//! open more of the network than a sealed policy names, or do anything as another user than the box's own and its root.

mod apart;
mod control;
mod copies;
mod desk;
mod edge;
mod ending;
mod endpoints;
mod envd;
mod errand;
mod feed;
mod filesystem;
mod form;
mod interpreter;
mod lend;
mod lines;
mod moment;
mod no;
mod passport;
mod ports;
mod process;
mod rooted;
mod rpc;
mod sandbox;
mod secrets;
mod template;
mod templates;
mod token;
mod turns;
mod volumes;
mod waiting;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse, Response};
use blastbox_engine::keeper::Preparation;
use blastbox_images::Image;
use blastbox_policy::SealedPolicy;
use blastbox_wire::BoxId;

pub(crate) use self::control::network::Reaches;
pub(crate) use self::endpoints::words;
pub(crate) use self::rooted::settle;
pub(crate) use self::secrets::{Drawer, SecretLimits};
pub(crate) use self::volumes::{Shelf, VolumeLimits};

use self::desk::Desk;
use self::edge::Place;
use self::no::No;
use crate::Hall;
use crate::config::{Internet, Shape};
use crate::gallery::Gallery;
use crate::trouble::line;
use crate::warm::Begins;

/// Whether a part of a path is the name of a sandbox: a box without its prefix.
pub(crate) fn is_sandbox(part: &str) -> bool {
    format!("bx_{part}").parse::<BoxId>().is_ok()
}

/// The native API with this face in front: what is not for it goes on.
pub(crate) fn mount(native: Router, hall: Hall) -> Router {
    let desk = Arc::new(Desk::new(hall));
    desk.take_up();
    native.layer(from_fn(move |request: Request, next: Next| {
        let desk = Arc::clone(&desk);
        async move {
            match edge::place(&request) {
                Place::Elsewhere => next.run(request).await,
                Place::Sandbox { id, port: interpreter::PORT } => {
                    let answered = interpreter::answer(&desk, &id, request).await;
                    answered.unwrap_or_else(IntoResponse::into_response)
                }
                // A server inside reads the body as it wants to; nobody else touches it.
                Place::Sandbox { id, port } if port != envd::PORT => {
                    to_a_port(&desk, &id, port, request).await.unwrap_or_else(IntoResponse::into_response)
                }
                place => {
                    let (request, lender) = lend::lend(request);
                    let response = answer(&desk, place, request).await;
                    lender.settle(response).await
                }
            }
        }
    }))
}

/// What steps of template builds reach. An error is what is wrong with a host.
pub(crate) fn reached_by_builds(hosts: &[String]) -> Result<Reaches, String> {
    control::network::named(hosts).map_err(No::message)
}

/// Whether a template that the operator describes can be had. An error is why not.
pub(crate) fn seals(shape: &Shape) -> Result<(), String> {
    template::seals(shape).map_err(|error| line(&error))
}

/// What a sandbox of this template is made of whose owner says nothing of its network. Whether it has a root is still to be
/// settled. Opens the image, so not on a thread that others wait for.
pub(crate) fn warm(
    template: &str,
    images: &Gallery,
    internet: Internet,
    begins: &BTreeMap<String, Begins>,
) -> Result<(SealedPolicy, Arc<Image>, Option<Preparation>), String> {
    let reaches = match internet {
        Internet::Closed => Reaches::Nothing,
        Internet::DangerouslyOpen => Reaches::Everything,
    };
    let opened = template::open(template, images, &reaches).map_err(No::message)?;
    let preparation = template::preparation(&opened.name, begins);
    Ok((opened.policy, Arc::new(opened.image), preparation))
}

async fn to_a_port(desk: &Arc<Desk>, id: &str, port: u16, request: Request) -> Result<Response, No> {
    edge::let_through_to_a_port(&request)?;
    let sandbox = desk.reach(id)?;
    ports::answer(desk, &sandbox, port, request).await
}

async fn answer(desk: &Arc<Desk>, place: Place, request: Request) -> Response {
    let answered = match place {
        Place::Control => control::answer(desk, request).await,
        Place::Sandbox { id, .. } => match edge::let_through(&request) {
            Ok(()) => envd::answer(desk, &id, request).await,
            Err(no) => Err(no),
        },
        Place::Signed => match edge::let_through(&request) {
            Ok(()) => envd::answer_signed(desk, request).await,
            Err(no) => Err(no),
        },
        Place::Nowhere(why) => Err(No::bad(why)),
        // The caller of this function has sent it on.
        Place::Elsewhere => Err(No::defect()),
    };
    answered.unwrap_or_else(IntoResponse::into_response)
}
