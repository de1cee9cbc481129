//! Tags of templates: what each means, given and taken away.

use axum::body::Body;
use axum::extract::Request;
use axum::http::{Response, StatusCode};
use axum::response::IntoResponse as _;
use blastbox_engine::keeper::Tenant;
use serde::Deserialize;
use serde_json::json;

use super::name::{self, Named};
use super::{Templates, json as answer_json, show};
use crate::e2b::control::body;
use crate::e2b::form;
use crate::e2b::no::{No, echo};

#[derive(Debug, Deserialize)]
struct NewTags {
    target: String,
    tags: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct OldTags {
    name: String,
    tags: Vec<String>,
}

pub(super) async fn answer(
    templates: &Templates,
    tenant: &Tenant,
    (method, parts): (&str, &[&str]),
    request: Request,
) -> Result<Response<Body>, No> {
    match (method, parts) {
        ("GET", ["templates", id, "tags"]) => {
            Ok(answer_json(StatusCode::OK, show::tags(&templates.book.own(tenant, id)?)))
        }
        ("GET", ["templates", id, "tags", "count"]) => {
            Ok(answer_json(StatusCode::OK, json!({ "total": templates.book.own(tenant, id)?.tags.len() })))
        }
        ("GET", ["templates", id, "tags", "exists"]) => {
            let record = templates.book.own(tenant, id)?;
            let query = form::pairs(request.uri().query());
            let tag = name::tag(form::value(&query, "tag").unwrap_or_default())?;
            Ok(answer_json(
                StatusCode::OK,
                json!({ "exists": record.tags.contains_key(&tag), "normalizedTag": tag }),
            ))
        }
        ("GET", ["templates", id, "tags", "groups"]) => {
            let query = form::pairs(request.uri().query());
            let word = |name: &str| form::value(&query, name).unwrap_or_default();
            let record = templates.book.own(tenant, id)?;
            Ok(answer_json(StatusCode::OK, show::groups(&record, word("search"), word("sort"))?))
        }
        ("GET", ["templates", id, "tags", tag, "assignments"]) => {
            let record = templates.book.own(tenant, id)?;
            let tagged = record.tags.get(&name::tag(tag)?);
            let missing = || No::new(404, format!("the template has no tag '{}'", echo(tag)));
            let data = [show::assignment(&record, tagged.ok_or_else(missing)?)];
            Ok(answer_json(StatusCode::OK, json!({ "data": data, "nextCursor": null })))
        }
        ("POST", ["templates", "tags"]) => {
            let NewTags { target, tags } = body::read(request).await?;
            let named = Named::parse(&target)?;
            let tags = tags.iter().map(|tag| name::tag(tag)).collect::<Result<Vec<_>, _>>()?;
            let build = templates.book.change(tenant, &target, |record| {
                let missing =
                    || No::new(404, format!("template '{}' has no tag '{}'", named.name, named.tag()));
                let build = record.tagged(named.tag()).ok_or_else(missing)?.id.clone();
                record.tag(&build, &tags)?;
                Ok(build)
            })?;
            Ok(answer_json(StatusCode::CREATED, json!({ "tags": tags, "buildID": build })))
        }
        ("DELETE", ["templates", "tags"]) => {
            let OldTags { name: asked, tags } = body::read(request).await?;
            let tags = tags.iter().map(|tag| name::tag(tag)).collect::<Result<Vec<_>, _>>()?;
            templates.book.change(tenant, &asked, |record| {
                let gone = tags.iter().filter(|tag| record.tags.remove(tag.as_str()).is_some()).count();
                if gone == 0 && !tags.is_empty() {
                    return Err(No::new(404, "the template has none of these tags"));
                }
                record.let_go();
                Ok(())
            })?;
            Ok(StatusCode::NO_CONTENT.into_response())
        }
        _ => Err(No::defect()),
    }
}
