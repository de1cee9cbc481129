//! Templates and builds as E2B shows them. Fields that its clients need are always there.

use blastbox_engine::keeper::Tenant;
use serde_json::{Value, json};

use super::Templates;
use super::record::{Build, Record, Status};
use crate::e2b::no::{No, echo};
use crate::e2b::template;

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

/// The same with its builds, newest first.
pub(super) fn with_builds(record: &Record) -> Value {
    let mut shown = one_of_a_list(record);
    let builds: Vec<Value> = record.builds.iter().rev().map(one).collect();
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

/// Where a build stands, and what it has said from this line on.
pub(super) fn status(
    templates: &Templates,
    tenant: &Tenant,
    (asked, build): (&str, &str),
    from: usize,
    most: usize,
) -> Result<Value, No> {
    let record = templates.book.own(tenant, asked)?;
    let found = record.build(build);
    let found =
        found.ok_or_else(|| No::new(404, format!("there is no build '{}' of this template", echo(build))))?;
    let said =
        templates.logs.of(build).map(|log| log.show(from, most.clamp(1, MOST_LINES))).unwrap_or_default();
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

/// The tags of a template.
pub(super) fn tags(record: &Record) -> Value {
    let one = |(tag, tagged): (&String, &super::record::Tagged)| json!({ "tag": tag, "buildID": tagged.build, "createdAt": tagged.at });
    record.tags.iter().map(one).collect()
}
