//! The shape of everything that is taken or given, as JSON Schema (2020-12).

use serde_json::{Map, Value, json};

/// An object with these fields. `closed`: one that has others is refused.
fn object(required: &[&str], fields: Value) -> Value {
    json!({ "type": "object", "required": required, "properties": fields })
}

fn closed(required: &[&str], fields: Value) -> Value {
    json!({ "type": "object", "required": required, "properties": fields, "additionalProperties": false })
}

fn text() -> Value {
    json!({ "type": "string" })
}

fn number() -> Value {
    json!({ "type": "integer", "minimum": 0 })
}

fn amount(example: &str) -> Value {
    json!({ "type": ["string", "number", "null"], "examples": [example] })
}

fn words(all: &[&str]) -> Value {
    json!({ "type": "string", "enum": all })
}

fn maybe(all: &[&str]) -> Value {
    let mut all: Vec<Value> = all.iter().map(|word| json!(word)).collect();
    all.push(Value::Null);
    json!({ "enum": all })
}

fn map() -> Value {
    json!({ "type": "object", "additionalProperties": { "type": "string" } })
}

fn list(of: Value) -> Value {
    json!({ "type": "array", "items": of })
}

fn named(schema: &str) -> Value {
    super::reference(schema)
}

/// Every schema, by name.
pub(super) fn all() -> Value {
    let mut all = Map::new();
    for (name, schema) in asked().into_iter().chain(boxes()).chain(execs()).chain(files()).chain(daemon()) {
        all.insert(name.to_owned(), schema);
    }
    Value::Object(all)
}

fn asked() -> Vec<(&'static str, Value)> {
    let limits = json!({
        "cpus": amount("0.5"), "memory": amount("512MiB"), "pids": { "type": ["integer", "null"] },
        "fuel": { "type": ["integer", "null"], "minimum": 1, "description": "Work of one command, counted and not timed: tier wasm" },
        "disk": amount("256MiB"), "timeout": amount("5m"), "output": amount("10MiB"),
    });
    let new_box = json!({
        "profile": maybe(&["default", "strict", "medium", "low", "critical"]),
        "policy": { "type": ["string", "null"], "description": "A policy as TOML; only one of profile, policy, threat" },
        "threat": maybe(&["low", "medium", "high", "critical"]),
        "tier": maybe(&["by-threat", "wasm", "jail", "gvisor", "microvm"]),
        "accept": list(text()),
        "limits": named("Limits"),
        "image": { "type": ["string", "null"], "description": "`host`, an image that the operator named or put into the store, or (at the socket) a directory" },
        "workspace": { "anyOf": [named("WorkspaceAsk"), { "type": "null" }] },
        "loopback": { "type": "boolean" },
        "metadata": map(),
        "life": amount("1h"),
        "idle": amount("15m"),
        "on_timeout": words(&["destroy", "pause"]),
        "snapshot": { "type": ["string", "null"], "description": "A snapshot to begin with; then only life, idle, on_timeout and metadata beside it" },
    });
    let new_exec = json!({
        "command": list(text()), "env": map(), "cwd": { "type": ["string", "null"] },
        "stdin": words(&["none", "stream"]),
        "terminal": { "anyOf": [named("TerminalSize"), { "type": "null" }] },
        "timeout": amount("30s"), "hold": amount("10s"), "tools": list(text()),
    });
    let run = json!({
        "box": named("NewBox"), "command": list(text()), "env": map(), "cwd": { "type": ["string", "null"] },
        "stdin_base64": { "type": ["string", "null"], "contentEncoding": "base64" },
    });
    let size = json!({ "type": "integer", "minimum": 0, "maximum": 65535 });
    let workspace = json!({ "path": text(), "access": words(&["copy-on-write", "read-only"]) });
    vec![
        ("NewBox", closed(&[], new_box)),
        ("Limits", closed(&[], limits)),
        ("WorkspaceAsk", closed(&["path"], workspace)),
        ("NewExec", closed(&["command"], new_exec)),
        ("TerminalSize", closed(&["rows", "columns"], json!({ "rows": size, "columns": size }))),
        ("Run", closed(&["command"], run)),
        ("Deadline", closed(&["life"], json!({ "life": amount("1h") }))),
        (
            "Forks",
            closed(
                &[],
                json!({ "count": { "type": ["integer", "null"], "minimum": 1, "maximum": 16 }, "life": amount("1h"), "idle": amount("15m") }),
            ),
        ),
        ("RuleChanges", closed(&[], json!({ "allow": list(text()), "deny": list(text()) }))),
        (
            "Signal",
            closed(&["signal"], json!({ "signal": { "type": "integer", "minimum": 1, "maximum": 64 } })),
        ),
    ]
}

fn card() -> Value {
    json!({
        "id": { "type": "string", "pattern": "^bx_[a-z0-9]{20}$" },
        "tenant": text(),
        "phase": words(&["provisioning", "ready", "executing", "paused", "ending", "gone"]),
        "tier": words(&["wasm", "jail", "gvisor", "microvm"]),
        "level": words(&["low", "medium", "high", "critical"]),
        "policy": text(), "image": text(), "gaps": list(text()),
        "created_at": { "type": "string", "format": "date-time" },
        "ends_at": { "type": "string", "format": "date-time" },
        "idle_seconds": number(), "on_timeout": words(&["destroy", "pause"]),
        "on_disk": { "type": "boolean", "description": "It was paused to disk and holds no memory" },
        "warm": { "type": "boolean" }, "metadata": map(),
    })
}

fn keys(fields: &Value) -> Vec<&str> {
    fields.as_object().map(|fields| fields.keys().map(String::as_str).collect()).unwrap_or_default()
}

fn boxes() -> Vec<(&'static str, Value)> {
    let card = card();
    let execs = json!({ "execs": list(named("ExecCard")) });
    let whole = json!({ "allOf": [named("BoxCard"), object(&["execs"], execs)] });
    let receipt = json!({ "type": "object", "description": "What is known of the box, version 1; fields are only ever added" });
    vec![
        ("BoxCard", object(&keys(&card), card.clone())),
        ("Whole", whole),
        ("Page", object(&["boxes"], json!({ "boxes": list(named("BoxCard")), "next": text() }))),
        ("Receipt", receipt),
        ("Forked", object(&["boxes"], json!({ "boxes": list(named("BoxCard")) }))),
        (
            "Snapshots",
            object(
                &["snapshots"],
                json!({ "snapshots": list(named("SnapshotCard")), "unreadable": list(named("Unreadable")) }),
            ),
        ),
        ("Modules", object(&["modules"], json!({ "modules": list(named("ModuleCard")) }))),
        (
            "ModuleCard",
            object(
                &["name", "form", "digest", "bytes", "added_at"],
                json!({
                    "name": text(), "form": words(&["module", "component"]), "digest": text(), "bytes": number(),
                    "added_at": { "type": "string", "format": "date-time" },
                }),
            ),
        ),
        (
            "Unreadable",
            object(&["id", "bytes", "why"], json!({ "id": text(), "bytes": number(), "why": text() })),
        ),
        (
            "SnapshotCard",
            object(
                &[
                    "id",
                    "tenant",
                    "box",
                    "paused",
                    "created_at",
                    "image",
                    "policy",
                    "level",
                    "memory",
                    "bytes",
                ],
                json!({
                    "id": text(), "tenant": text(), "box": text(), "paused": { "type": "boolean" }, "created_at": { "type": "string", "format": "date-time" },
                    "image": text(), "policy": text(), "level": words(&["low", "medium", "high", "critical"]),
                    "memory": number(), "bytes": number(),
                }),
            ),
        ),
        ("BoxRules", object(&["policy", "text"], json!({ "policy": text(), "text": text() }))),
    ]
}

fn execs() -> Vec<(&'static str, Value)> {
    let card = json!({
        "exec": number(), "command": list(text()), "started_at": { "type": "string", "format": "date-time" },
        "pid": { "type": ["integer", "null"] }, "terminal": { "type": "boolean" },
        "ended": { "anyOf": [named("ExecEnded"), { "type": "null" }] },
        "timed_out": { "type": "boolean", "description": "It was ended because its own time was over" },
        "fuel": { "type": "integer", "description": "Its work, where the policy has it counted and it has ended" },
    });
    // Only where work is counted.
    let always: Vec<&str> = keys(&card).into_iter().filter(|key| *key != "fuel").collect();
    let ended = json!({
        "how": words(&["exited", "signalled", "fuel-spent", "not-started", "box-ended"]),
        "code": { "type": ["integer", "string"], "description": "A number where it exited, a word where it did not" },
        "signal": number(), "message": text(),
        "fuel": { "type": "integer", "description": "Where all its work was spent: so much" },
    });
    let event = json!({
        "description": "`started` {pid}, `output` {stream, base64}, `dropped` {bytes}, `ended` (ExecEnded, and `timed_out`)",
        "type": "object",
        "properties": {
            "pid": number(), "stream": words(&["stdout", "stderr"]),
            "base64": { "type": "string", "contentEncoding": "base64" }, "bytes": number(),
            "timed_out": { "type": "boolean", "description": "It was ended because its own time was over" },
        },
    });
    let kept = json!({
        "base64": { "type": "string", "contentEncoding": "base64" }, "text": text(),
        "truncated": { "type": "boolean" },
    });
    let ran = json!({
        "receipt": named("Receipt"), "ended": named("ExecEnded"), "stdout": named("Kept"), "stderr": named("Kept"),
    });
    let call = json!({ "call": number(), "tool": text(), "input": { "description": "Any JSON" } });
    let answered = json!({
        "type": "object", "additionalProperties": false, "minProperties": 1, "maxProperties": 1,
        "properties": { "result": { "description": "Any JSON" }, "error": text() },
    });
    vec![
        ("OpenCalls", object(&["calls"], json!({ "calls": list(object(&keys(&call), call.clone())) }))),
        ("Answered", answered),
        ("ExecCard", object(&always, card.clone())),
        ("ExecEnded", object(&["how"], ended)),
        ("ExecEvent", event),
        ("Begun", object(&["exec"], json!({ "exec": number() }))),
        ("Kept", object(&["base64", "truncated"], kept)),
        ("Ran", object(&keys(&ran), ran.clone())),
    ]
}

fn files() -> Vec<(&'static str, Value)> {
    const BYTES: &str = "Instead of it, where the bytes are no UTF-8";
    let base64 = json!({ "type": "string", "contentEncoding": "base64", "description": BYTES });
    let kind = words(&["file", "directory", "link", "other"]);
    let entry = json!({
        "path": text(), "path_base64": base64, "kind": kind, "size": number(),
        "mode": { "type": "string", "description": "Permission bits, octal" },
        "uid": number(), "gid": number(),
        "modified_at": { "type": "string", "format": "date-time" },
        "link": { "type": "object", "description": "Of a link: its text, and what following it finds" },
    });
    let listed = json!({
        "entries": list(named("Entry")), "skipped": number(),
        "complete": { "type": "boolean", "description": "`false`: the limit ended it" },
    });
    let kinds = [
        "created",
        "written",
        "removed",
        "moved_from",
        "moved_to",
        "attributes",
        "lost",
        "unwatched",
        "ended",
    ];
    let change = json!({
        "kind": words(&kinds), "path": text(), "path_base64": base64,
        "cookie": { "type": "integer", "description": "The same on both halves of a move" },
    });
    let written = json!({ "bytes": number(), "path": text(), "path_base64": base64 });
    vec![
        ("Entry", object(&["kind", "size", "mode", "uid", "gid", "modified_at"], entry)),
        ("Listed", object(&["entries", "skipped", "complete"], listed)),
        ("Change", object(&["kind"], change)),
        ("Written", object(&["bytes"], written)),
        ("Removed", object(&["entries"], json!({ "entries": number() }))),
    ]
}

fn daemon() -> Vec<(&'static str, Value)> {
    let event = json!({
        "seq": number(), "at": { "type": "string", "format": "date-time" },
        "tenant": { "type": ["string", "null"] }, "box_id": { "type": ["string", "null"] }, "event": text(), "alert": named("Alert"),
    });
    let alert = json!({
        "severity": words(&["low", "high", "critical"]), "text": text(),
        "code": words(&[
            "denied_syscall", "escape_attempt", "mount_attempt", "unexpected_write", "denied_network", "metadata_attempt", "secret_trouble", "limit_met", "nearing_time_limit", "pool_poisoned",
            "sink_unreachable", "ledger_recovered", "alerts_dropped",
        ]),
    });
    let no = object(&["code", "message"], json!({ "code": text(), "message": text(), "fix": text() }));
    let walls = json!({
        "threads": number(), "open_threads": list(text()), "seccomp": { "type": "boolean" },
        "no_new_privs": { "type": "boolean" }, "landlock": { "type": ["boolean", "null"] },
        "dumpable": { "type": "boolean" }, "capabilities": number(),
    });
    let daemon = json!({
        "version": text(), "pid": number(), "walls": object(&keys(&walls), walls.clone()), "missing": list(text()),
    });
    vec![
        ("KeeperEvent", object(&["seq", "at", "event"], event)),
        ("Alert", object(&["severity", "code", "text"], alert)),
        ("Health", object(&["status", "version"], json!({ "status": text(), "version": text() }))),
        ("Daemon", object(&["version", "pid", "walls", "missing"], daemon)),
        ("Document", json!({ "type": "object" })),
        ("Error", object(&["error"], json!({ "error": no }))),
    ]
}
