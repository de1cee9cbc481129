//! One request and its answer: read, judged, lent a secret, sent on, scrubbed.
//!
//! Trust: the guest chose the request, and through it what the server says. Nothing is sent before every check has
//! passed; a redirect is an answer like any other and is never followed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use blastbox_policy::{ResolverUse, SecretName};
use blastbox_wire::egress::{Reason, Record};
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use hyper::body::Incoming;
use tokio::sync::mpsc;

use super::answer;
use super::body::{self, AnyBody};
use super::head::{self, Addressed, BadHead, Wish};
use super::scrubbable;
use super::tunnel::{self, Tunnel};
use super::unreached::Unreached;
use super::upstream::Upstream;
use super::websocket;
use crate::credentials::{Inspected, Keyring, Patterns, Wanted};
use crate::decide::{Allowed, Ask, Said, Upgrade, Verdict};
use crate::flow::Flow;
use crate::house::House;

/// What all requests of one connection share.
pub(super) struct Room {
    pub(super) house: Arc<House>,
    pub(super) flow: Flow,
    pub(super) to: Addressed,
    /// `None` where the connection is in the clear: then no secret can be lent.
    pub(super) inspected: Option<Inspected>,
    pub(super) keyring: Arc<Keyring>,
    pub(super) upstream: Arc<Upstream>,
    /// Tells the guard that no requests follow.
    pub(super) open: Arc<AtomicBool>,
    /// Where connections that became WebSockets go.
    pub(super) tunnels: mpsc::Sender<Tunnel>,
}

/// A refusal with what the guest is told beyond its code.
struct Refused(StatusCode, Reason, String);

impl Refused {
    fn denied(reason: Reason, detail: impl ToString) -> Self {
        Self(StatusCode::FORBIDDEN, reason, detail.to_string())
    }
}

impl Room {
    /// Answers one request. Whatever goes wrong is an answer too.
    pub(super) async fn answer(self: Arc<Self>, request: Request<Incoming>) -> Response<AnyBody> {
        match self.carry(request).await {
            Ok(response) => response,
            Err(Refused(status, reason, detail)) => {
                self.flow.deny(reason);
                answer::refusal(status, reason.as_str(), self.to.host.as_str(), &detail)
            }
        }
    }

    async fn carry(&self, mut request: Request<Incoming>) -> Result<Response<AnyBody>, Refused> {
        let to_guest = hyper::upgrade::on(&mut request);
        let (mut parts, body) = request.into_parts();
        let wish = head::read(&parts, &self.to).map_err(bad_head)?;
        let allowed = self.judge(parts.method.as_str(), &wish)?;
        if allowed.resolver() == ResolverUse::Refused
            && head::asks_resolver(&parts.headers, wish.path.as_deref(), parts.uri.path())
        {
            let detail =
                "names are asked of the box's own resolver; DNS over HTTPS would carry data out in questions";
            return Err(Refused::denied(Reason::Resolver, detail));
        }

        let wanted =
            Wanted { method: parts.method.as_str(), path: wish.path.as_deref(), target: &wish.target };
        if let Some(stray) = self.keyring.stray(&self.to.host, self.to.port, wanted, &parts.headers) {
            let detail = format!("the placeholder of secret {} stands in a {}", stray.secret, stray.found_in);
            return Err(Refused::denied(Reason::CredentialMisplaced, detail));
        }
        head::strip(&mut parts.headers);
        let socket = match wish.upgrade {
            Upgrade::WebSocket => Some(ask_for_websocket(&parts.method, &mut parts.headers)?),
            Upgrade::No | Upgrade::Other => None,
        };
        let lent = match &self.inspected {
            Some(inspected) => self.keyring.lend(inspected, wanted, &mut parts.headers).map_err(|error| {
                Refused(StatusCode::BAD_GATEWAY, Reason::CredentialUnavailable, error.to_string())
            })?,
            None => Vec::new(),
        };
        // Also in the clear, where none is lent: what the host was lent by TLS it may have kept, and say again here.
        let patterns = self.keyring.scrub(&self.to.host);
        if patterns.is_some() {
            scrubbable::ask(&mut parts.headers);
        }
        self.tell_use(&lent, parts.method.as_str(), wish.path.as_deref())?;

        let mut onward = Request::new(body::upload(body));
        *onward.method_mut() = parts.method;
        *onward.uri_mut() =
            wish.target.parse().map_err(|error| Refused::denied(Reason::BadRequest, error))?;
        *onward.headers_mut() = parts.headers;
        let response = self.upstream.send(&allowed, onward).await.map_err(unreached)?;
        self.give_back(response, patterns, socket.as_ref(), to_guest)
    }

    fn judge(&self, method: &str, wish: &Wish) -> Result<Allowed, Refused> {
        // A path without one meaning is covered by no pattern, so only a rule for all paths lets it pass.
        let path = wish.path.as_deref().unwrap_or_default();
        let said = Said::Request { method, path, upgrade: wish.upgrade };
        match self.house.decide(&Ask { target: self.flow.target(), port: self.flow.port(), said }) {
            Verdict::Allow(allowed) => Ok(allowed),
            Verdict::Deny(Reason::PathNotAllowed) if wish.path.is_none() => Err(Refused::denied(
                Reason::PathNotAllowed,
                "the path can be read in two ways (dot segments, doubled or encoded slashes, double encoding)",
            )),
            Verdict::Deny(reason) => Err(Refused::denied(reason, format!("{method} {}", clip(&wish.target)))),
        }
    }

    /// Before it is sent: what cannot be recorded is not done. One record stands for one request, also where that is sent once more because
    /// its line ended.
    fn tell_use(&self, lent: &[SecretName], method: &str, path: Option<&str>) -> Result<(), Refused> {
        let record = |secret: &SecretName| Record::Lent {
            flow: self.flow.id,
            secret: secret.to_string(),
            target: self.to.host.to_string(),
            port: self.to.port,
            request: format!("{method} {}", clip(path.unwrap_or("…"))),
        };
        self.house.reporter().try_tell(lent.iter().map(record).collect()).map_err(|untold| {
            Refused(StatusCode::SERVICE_UNAVAILABLE, Reason::NotRecorded, untold.to_string())
        })
    }

    fn give_back(
        &self,
        mut response: Response<Incoming>,
        patterns: Option<Arc<Patterns>>,
        socket: Option<&websocket::Wish>,
        to_guest: hyper::upgrade::OnUpgrade,
    ) -> Result<Response<AnyBody>, Refused> {
        let unlike = if scrubbable::transformed(response.headers()) {
            Some("the server sent its answer in a form that nobody asked for (Transfer-Encoding)")
        } else {
            patterns.as_ref().and_then(|_| scrubbable::unlike(&response))
        };
        if let Some(detail) = unlike {
            return Err(Refused(StatusCode::BAD_GATEWAY, Reason::BrokenUpstream, detail.into()));
        }
        let switched = response.status() == StatusCode::SWITCHING_PROTOCOLS;
        if switched && !socket.is_some_and(|socket| websocket::agrees(response.headers(), socket)) {
            let detail = match socket {
                Some(_) => "the server changed the protocol without the proof that it speaks WebSocket",
                None => "the server changed the protocol unasked",
            };
            return Err(Refused(StatusCode::BAD_GATEWAY, Reason::BrokenUpstream, detail.into()));
        }
        let to_server = switched.then(|| hyper::upgrade::on(&mut response));
        // Extensions are left behind: the server's own words for a status would pass unscrubbed.
        let (parts, body) = response.into_parts();
        let mut headers = parts.headers;
        answer::strip(&mut headers);
        if let Some(patterns) = &patterns {
            answer::scrub(&mut headers, patterns);
        }
        let Some(to_server) = to_server else {
            let mut response = Response::new(body::answer(body, patterns));
            *response.status_mut() = parts.status;
            *response.headers_mut() = headers;
            return Ok(response);
        };
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        if let Some(socket) = socket {
            headers.insert(header::SEC_WEBSOCKET_ACCEPT, socket.accept.clone());
        }
        self.open.store(true, Ordering::Release);
        let tunnel = Tunnel { to_guest, to_server, patterns };
        self.tunnels.try_send(tunnel).map_err(|_| {
            Refused(
                StatusCode::BAD_GATEWAY,
                Reason::UpgradeNotAllowed,
                "the connection is upgraded already".into(),
            )
        })?;
        let mut response = Response::new(body::whole(String::new()));
        *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
        *response.headers_mut() = headers;
        Ok(response)
    }
}

/// Asks for a WebSocket.
fn ask_for_websocket(method: &Method, headers: &mut HeaderMap) -> Result<websocket::Wish, Refused> {
    let wish =
        websocket::ask(method, headers).map_err(|detail| Refused::denied(Reason::BadRequest, detail))?;
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
    Ok(wish)
}

fn bad_head(bad: BadHead) -> Refused {
    match bad {
        BadHead::Authority(_) => Refused::denied(Reason::AuthorityMismatch, bad),
        BadHead::Method(_) => Refused::denied(Reason::MethodNotAllowed, bad),
        BadHead::Target => Refused(StatusCode::BAD_REQUEST, Reason::BadRequest, bad.to_string()),
    }
}

fn unreached(why: Unreached) -> Refused {
    Refused(why.status(), why.reason, why.detail().into())
}

/// Text of the guest for a person: short.
fn clip(text: &str) -> String {
    text.chars().take(200).collect()
}

pub(super) use tunnel::carry as carry_tunnel;
