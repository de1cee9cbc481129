//! One line per request, with a fixed vocabulary. What a caller wrote appears only where it is a word of ours: a route, a
//! box that is named as boxes are, a tenant.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use axum::http::{Method, Request, Response};
use blastbox_engine::keeper::Tenant;
use blastbox_wire::BoxId;
use blastbox_wire::receipt::rfc3339;

use crate::caller::Caller;
use crate::trouble::{Cause, Code};
use crate::{e2b, routes};

/// Where lines go.
#[derive(Clone)]
pub struct Log(Arc<dyn Fn(&str) + Send + Sync>);

impl Log {
    /// Lines go to this function, each with its line break.
    pub fn to(write: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self(Arc::new(write))
    }

    /// Lines go nowhere.
    #[must_use]
    pub fn none() -> Self {
        Self::to(|_| {})
    }

    pub(super) fn write(&self, line: &Line) {
        self.line(&line.to_string());
    }

    /// A line, with the time before it.
    pub(super) fn line(&self, line: &str) {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        (self.0)(&format!("{} {line}\n", rfc3339(now)));
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Log")
    }
}

/// What is said about one request.
#[derive(Debug)]
pub(super) struct Line {
    method: Method,
    path: String,
    tenant: Option<Tenant>,
    status: u16,
    reason: Option<String>,
    /// What a caller is not told.
    cause: Option<String>,
    took: Duration,
}

impl Line {
    pub(super) fn of<B>(request: &Request<B>, caller: Option<&Caller>) -> Self {
        Self {
            method: request.method().clone(),
            path: known(request.uri().path()),
            tenant: caller.map(|caller| caller.tenant.clone()),
            status: 0,
            reason: None,
            cause: None,
            took: Duration::ZERO,
        }
    }

    pub(super) fn answered<B>(&mut self, response: &Response<B>, took: Duration) {
        self.status = response.status().as_u16();
        self.reason = response.extensions().get::<Code>().map(|code| code.0.clone().into_owned());
        self.cause = response.extensions().get::<Cause>().map(|cause| cause.0.clone());
        self.took = took;
    }
}

/// The path, with everything that is neither a word of ours, a box nor a number replaced.
fn known(path: &str) -> String {
    // The words of every route that there is: a new one cannot be forgotten here.
    static WORDS: OnceLock<BTreeSet<&'static str>> = OnceLock::new();
    let words = WORDS.get_or_init(|| {
        routes::all()
            .into_iter()
            .flat_map(|route| route.path.split('/'))
            .filter(|part| !part.starts_with('{'))
            .chain(e2b::words())
            .collect()
    });
    let part = |part: &str| {
        let number = part.len() <= 10 && part.bytes().all(|b| b.is_ascii_digit());
        let a_box = part.parse::<BoxId>().is_ok() || e2b::is_sandbox(part);
        let ours = words.contains(part) || number || a_box;
        if ours { part.to_owned() } else { "?".to_owned() }
    };
    path.split('/').take(8).map(part).collect::<Vec<_>>().join("/")
}

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenant = self.tenant.as_ref().map_or("-", Tenant::as_str);
        // A method may be any word that a caller invents.
        let method = if self.method.as_str().len() <= 7 { self.method.as_str() } else { "?" };
        let (path, status, took) = (&self.path, self.status, self.took.as_secs_f64() * 1e3);
        write!(f, "method={method} path={path} tenant={tenant} status={status} took_ms={took:.1}")?;
        if let Some(reason) = &self.reason {
            write!(f, " reason={reason}")?;
        }
        match &self.cause {
            Some(cause) => write!(f, " cause={cause:?}"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_caller_invents_does_not_reach_the_log() {
        let id = BoxId::from_random([7; 20]);
        let good = format!("/v1/boxes/{}/execs/12/events", id.as_str());
        assert_eq!(known(&good), good);
        for route in routes::all() {
            let path = route.path.replace("{id}", id.as_str()).replace("{exec}", "12").replace("{call}", "3");
            // What a module is called is its caller's to choose.
            assert_eq!(known(&path), path.replace("{name}", "?"));
        }
        assert_eq!(known("/v1/boxes/{id}"), "/v1/boxes/?");
        assert_eq!(known("/v1/boxes/a%0astatus=200"), "/v1/boxes/?");
        assert_eq!(known(&"/x".repeat(1000)).len(), 14);
    }
}
