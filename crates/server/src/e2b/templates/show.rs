//! Templates and builds as E2B shows them. Fields that its clients need are always there.

use blastbox_engine::keeper::Tenant;
use serde_json::{Value, json};

use super::Templates;
use super::record::{Build, Record, Status, Tagged};
use crate::e2b::lines::{Choice, number};
use crate::e2b::no::{No, echo};
use crate::e2b::{form, template};

/// Lines of a log that one answer has.
const MOST_LINES: usize = 100;
const ENVD_VERSION: &str = "0.6.13";

/// One line of a list.
pub(super) fn one_of_a_list(record: &Record) -> Value {
    let last = record.builds.last();
    json!({
        "templateID": record.id,
        "buildID": last.map(|build| build.id.clone()).unwrap_or_default(),
        "cpuCount": last.map_or(1, |build| build.cpus),
        "memoryMB": last.map_or(0, |build| build.memory_mib),
        "diskSizeMB": last.map_or(0, |build| template::disk_mib(build.memory_mib)),
        "public": false,
        "aliases": [record.name],
        "names": [record.name],
        "createdAt": record.created,
        "updatedAt": record.updated,
        "createdBy": null,
        "lastSpawnedAt": record.spawned,
        "spawnCount": record.spawns,
        "buildCount": record.builds.len(),
        "envdVersion": ENVD_VERSION,
        "buildStatus": last.map_or(Status::Waiting, |build| build.status),
    })
}

/// The same with these of its builds.
pub(super) fn with_builds<'a>(record: &Record, builds: impl Iterator<Item = &'a Build>) -> Value {
    let mut shown = one_of_a_list(record);
    let builds: Vec<Value> = builds.map(one).collect();
    if let Some(fields) = shown.as_object_mut() {
        fields.insert("builds".to_owned(), json!(builds));
    }
    shown
}

fn one(build: &Build) -> Value {
    json!({
        "buildID": build.id,
        "status": build.status,
        "createdAt": build.created,
        "updatedAt": build.finished.as_ref().unwrap_or(&build.created),
        "finishedAt": build.finished,
        "cpuCount": build.cpus,
        "memoryMB": build.memory_mib,
        "diskSizeMB": template::disk_mib(build.memory_mib),
        "envdVersion": ENVD_VERSION,
    })
}

/// Where a build stands, and what it has said of what is asked for: `logsOffset` counts the lines of that level.
pub(super) fn status(
    templates: &Templates,
    tenant: &Tenant,
    (asked, build): (&str, &str),
    query: Option<&str>,
) -> Result<Value, No> {
    let (record, found) = own_build(templates, tenant, (asked, build))?;
    let query = form::pairs(query);
    let from = number(&query, "logsOffset")?.map_or(0, |from| usize::try_from(from).unwrap_or(usize::MAX));
    let said = said(templates, build, &Choice::by_level(&query)?, from, most(&query)?);
    let mut shown = json!({
        "templateID": record.id, "buildID": found.id, "status": found.status, "logs": [], "logEntries": said,
    });
    if let (Some(reason), Some(fields)) = (&found.reason, shown.as_object_mut()) {
        fields.insert(
            "reason".to_owned(),
            json!({ "message": reason.message, "step": reason.step, "logEntries": [] }),
        );
    }
    Ok(shown)
}

/// What a build has said, by time. Where it is read from makes no difference here: there is one log.
pub(super) fn logs(
    templates: &Templates,
    tenant: &Tenant,
    (asked, build): (&str, &str),
    query: Option<&str>,
) -> Result<Value, No> {
    own_build(templates, tenant, (asked, build))?;
    let query = form::pairs(query);
    if form::value(&query, "source").is_some_and(|source| !matches!(source, "temporary" | "persistent")) {
        return Err(No::bad("source is temporary or persistent"));
    }
    let said = said(templates, build, &Choice::of(&query)?, 0, most(&query)?);
    Ok(json!({ "logs": said }))
}

fn own_build(
    templates: &Templates,
    tenant: &Tenant,
    (asked, build): (&str, &str),
) -> Result<(Record, Build), No> {
    let record = templates.book.own(tenant, asked)?;
    let found = record.build(build).cloned();
    let found =
        found.ok_or_else(|| No::new(404, format!("there is no build '{}' of this template", echo(build))))?;
    Ok((record, found))
}

fn most(query: &[(String, String)]) -> Result<usize, No> {
    let most = number(query, "limit")?.and_then(|most| usize::try_from(most).ok());
    Ok(most.unwrap_or(MOST_LINES).clamp(1, MOST_LINES))
}

fn said(templates: &Templates, build: &str, choice: &Choice, from: usize, most: usize) -> Vec<Value> {
    templates.logs.of(build).map(|log| log.show(choice, from, most)).unwrap_or_default()
}

/// The tags of a template.
pub(super) fn tags(record: &Record) -> Value {
    let one = |(tag, tagged): (&String, &Tagged)| json!({ "tag": tag, "buildID": tagged.build, "createdAt": tagged.at });
    record.tags.iter().map(one).collect()
}

/// To which build a tag belongs, and since when. What it belonged to before is not kept.
pub(super) fn assignment(record: &Record, tagged: &Tagged) -> Value {
    let build = record.build(&tagged.build);
    json!({
        "assignmentId": format!("{}@{}", tagged.build, tagged.at),
        "buildId": tagged.build,
        "assignedAt": tagged.at,
        "buildCreatedAt": build.map(|build| build.created.clone()).unwrap_or_else(|| tagged.at.clone()),
        "buildFinishedAt": build.and_then(|build| build.finished.clone()),
    })
}

/// Tags with what they belong to: all of them, as there are never many.
pub(super) fn groups(record: &Record, search: &str, sort: &str) -> Result<Value, No> {
    let mut found: Vec<(&String, &Tagged)> =
        record.tags.iter().filter(|(tag, _)| tag.contains(search)).collect();
    match sort {
        "" | "latest_desc" => found.sort_by(|one, other| other.1.at.cmp(&one.1.at)),
        "latest_asc" => found.sort_by(|one, other| one.1.at.cmp(&other.1.at)),
        "name_asc" => {}
        "name_desc" => found.reverse(),
        _ => return Err(No::bad("sort is latest_asc, latest_desc, name_asc or name_desc")),
    }
    let one = |(tag, tagged): (&String, &Tagged)| json!({ "tag": tag, "assignments": [assignment(record, tagged)], "hasMore": false });
    Ok(json!({ "tags": found.into_iter().map(one).collect::<Vec<_>>(), "nextCursor": null }))
}
