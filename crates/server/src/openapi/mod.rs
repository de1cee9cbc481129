//! The document at `/openapi.json` (OpenAPI 3.1), made from the table of routes. Schemas lie in [`schemas`], each held by
//! a test against the type that it describes.

mod schemas;

use serde_json::{Map, Value, json};

use crate::routes::Route;

/// What one way to call takes and gives.
#[derive(Debug)]
pub(crate) struct Operation {
    id: &'static str,
    summary: &'static str,
    query: Vec<(&'static str, &'static str)>,
    takes: Takes,
    gives: Gives,
    door: Door,
}

/// A body.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Takes {
    Nothing,
    Json(&'static str),
    Bytes,
}

/// An answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gives {
    status: u16,
    form: Form,
}

#[derive(Debug, Clone, Copy)]
enum Form {
    Nothing,
    Json(&'static str),
    Stream(&'static str),
    Text,
    Bytes(&'static str),
    Line,
}

#[derive(Debug, Clone, Copy)]
enum Door {
    Open,
    Key,
}

impl Gives {
    pub(crate) const fn json(status: u16, schema: &'static str) -> Self {
        Self { status, form: Form::Json(schema) }
    }
    pub(crate) const fn stream(schema: &'static str) -> Self {
        Self { status: 200, form: Form::Stream(schema) }
    }
    pub(crate) const fn text(status: u16) -> Self {
        Self { status, form: Form::Text }
    }
    pub(crate) const fn bytes(status: u16, kind: &'static str) -> Self {
        Self { status, form: Form::Bytes(kind) }
    }
    pub(crate) const fn line() -> Self {
        Self { status: 101, form: Form::Line }
    }
    pub(crate) const fn nothing(status: u16) -> Self {
        Self { status, form: Form::Nothing }
    }
}

impl Operation {
    pub(crate) const fn new(id: &'static str, summary: &'static str, gives: Gives) -> Self {
        Self { id, summary, query: Vec::new(), takes: Takes::Nothing, gives, door: Door::Key }
    }

    /// Nobody is asked who they are.
    pub(crate) fn open(mut self) -> Self {
        self.door = Door::Open;
        self
    }

    pub(crate) fn takes(mut self, takes: Takes) -> Self {
        self.takes = takes;
        self
    }

    pub(crate) fn query(mut self, name: &'static str, what: &'static str) -> Self {
        self.query.push((name, what));
        self
    }
}

fn reference(schema: &str) -> Value {
    json!({ "$ref": format!("#/components/schemas/{schema}") })
}

/// The whole document.
pub(crate) fn document(routes: &[Route]) -> Value {
    let mut paths = Map::new();
    for route in routes {
        let methods = paths.entry(route.path).or_insert_with(|| json!({}));
        if let Value::Object(methods) = methods {
            methods.insert(route.method.as_str().to_ascii_lowercase(), operation(route));
        }
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "blastbox",
            "version": env!("CARGO_PKG_VERSION"),
            "license": { "name": "Apache-2.0", "identifier": "Apache-2.0" },
            "description": "An execution sandbox for AI agents. At the unix socket nobody needs a key; over TCP everybody does.",
        },
        "servers": [{ "url": "http://127.0.0.1:7080" }],
        "paths": paths,
        "components": {
            "schemas": schemas::all(),
            "securitySchemes": {
                "bearer": { "type": "http", "scheme": "bearer" },
                "apiKey": { "type": "apiKey", "in": "header", "name": "X-API-Key" },
            },
        },
    })
}

fn operation(route: &Route) -> Value {
    let Operation { id, summary, query, takes, gives, door } = &route.operation;
    let in_path = route.path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'));
    let mut parameters: Vec<Value> = in_path
        .map(|name| {
            let schema =
                if name == "exec" { json!({ "type": "integer" }) } else { json!({ "type": "string" }) };
            json!({ "name": name, "in": "path", "required": true, "schema": schema })
        })
        .collect();
    parameters.extend(query.iter().map(
        |(name, what)| json!({ "name": name, "in": "query", "description": what, "schema": { "type": "string" } }),
    ));
    let mut document = json!({
        "operationId": id,
        "summary": summary,
        "parameters": parameters,
        "responses": {
            gives.status.to_string(): response(gives.form),
            "default": {
                "description": "No, with a stable code",
                "content": { "application/json": { "schema": reference("Error") } },
            },
        },
        "security": match door {
            Door::Open => json!([]),
            Door::Key => json!([{ "bearer": [] }, { "apiKey": [] }]),
        },
    });
    let content = match takes {
        Takes::Nothing => return document,
        Takes::Json(schema) => json!({ "application/json": { "schema": reference(schema) } }),
        Takes::Bytes => json!({ "application/octet-stream": {} }),
    };
    if let Value::Object(fields) = &mut document {
        fields.insert("requestBody".to_owned(), json!({ "required": true, "content": content }));
    }
    document
}

fn response(form: Form) -> Value {
    match form {
        Form::Nothing => json!({ "description": "Done" }),
        Form::Line => json!({ "description": "A WebSocket (RFC 6455), without extensions" }),
        Form::Json(schema) => json!({
            "description": "Done",
            "content": { "application/json": { "schema": reference(schema) } },
        }),
        Form::Stream(schema) => json!({
            "description": "Server-sent events, each with an id; a comment after 15 s of silence",
            "content": { "text/event-stream": { "schema": reference(schema) } },
        }),
        Form::Bytes(kind) => json!({
            "description": "Bytes. An answer that breaks off before its length or its last piece is not whole",
            "content": { kind: {} },
        }),
        Form::Text => json!({
            "description": "Text",
            "content": { "text/plain": { "schema": { "type": "string" } } },
        }),
    }
}

#[cfg(test)]
mod tests;
