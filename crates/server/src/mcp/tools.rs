//! The tools, one function each.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use blastbox_engine::Slice;
use blastbox_engine::keeper::{BoxCard, EventItem, Happened};
use blastbox_images::Language;
use blastbox_wire::agent::{Coverage, Entry, EntryKind, Extent, Parents, Writing};
use rmcp::handler::server::wrapper::Parameters;
use rmcp::model::{CallToolResult, ContentBlock};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::{ErrorData, tool, tool_router};
use serde_json::{Value, json};

use super::ask::{Code, ListFiles, OneBox, ReadFile, RunCode, RunCommand, WriteFile};
use super::calls::{self, AnswerCall};
use super::desk::Refused;
use super::notebook::Tongue;
use super::work::{self, Asker, Came};
use super::{Session, notebook};
use crate::ask::{NewExec, StdinFrom};
use crate::entry::{Gathered, gather};
use crate::rest::network;
use crate::start_place;

/// Most bytes of a file that one answer carries.
const MOST_READ: u64 = 256 * 1024;
/// Most entries of a list.
const MOST_LISTED: u32 = 1_000;
/// Bytes of one list.
const MOST_LISTED_BYTES: usize = 1024 * 1024;
/// Kinds of connections that a box was denied, in one answer.
const MOST_UNREACHED: usize = 200;
const DEEPEST: u32 = 10;

/// What went wrong is for the model to read, so it is an answer and no error of the protocol.
fn said(outcome: Result<CallToolResult, Refused>) -> Result<CallToolResult, ErrorData> {
    Ok(outcome.unwrap_or_else(|Refused(why)| CallToolResult::error(vec![ContentBlock::text(why)])))
}

#[tool_router(vis = "pub(super)")]
impl Session {
    /// Runs code.
    #[tool(
        description = "Run a snippet of Python, JavaScript or shell in a disposable box and return what it printed. \
            With stateful=true (Python and JavaScript) variables stay for the next stateful call.",
        annotations(title = "Run code", destructive_hint = false, open_world_hint = false)
    )]
    async fn run_code(
        &self,
        Parameters(asked): Parameters<RunCode>,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResult, ErrorData> {
        said(self.code(asked, Asker::of(context)).await)
    }

    /// Runs a command.
    #[tool(
        description = "Run a program with arguments in a disposable box and return exit code and output.",
        annotations(title = "Run a command", destructive_hint = false, open_world_hint = false)
    )]
    async fn run_command(
        &self,
        Parameters(asked): Parameters<RunCommand>,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResult, ErrorData> {
        said(self.command(asked, Asker::of(context)).await)
    }

    /// Answers a call of a command.
    #[tool(
        description = "Answer a program that waits for a function which was offered to it by `tools`, with exactly one of \
            `result` and `error`. Returns like run_code: what it printed since its beginning and how it ended, or its next call.",
        annotations(title = "Answer a call", destructive_hint = false, open_world_hint = false)
    )]
    async fn answer_call(
        &self,
        Parameters(asked): Parameters<AnswerCall>,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResult, ErrorData> {
        said(calls::answer(&self.desk, asked, &Asker::of(context)).await.map(Came::answer))
    }

    /// Reads a file of a box.
    #[tool(
        description = "Read a file of a box: as text where it is UTF-8, as base64 otherwise.",
        annotations(title = "Read a file", read_only_hint = true)
    )]
    async fn read_file(&self, Parameters(asked): Parameters<ReadFile>) -> Result<CallToolResult, ErrorData> {
        said(self.read(asked).await)
    }

    /// Writes a file of a box.
    #[tool(
        description = "Write a whole file of a box; missing directories are made.",
        annotations(title = "Write a file", destructive_hint = false)
    )]
    async fn write_file(
        &self,
        Parameters(asked): Parameters<WriteFile>,
    ) -> Result<CallToolResult, ErrorData> {
        said(self.write(asked).await)
    }

    /// Lists a directory of a box.
    #[tool(
        description = "List a directory of a box.",
        annotations(title = "List files", read_only_hint = true)
    )]
    async fn list_files(
        &self,
        Parameters(asked): Parameters<ListFiles>,
    ) -> Result<CallToolResult, ErrorData> {
        said(self.list(asked).await)
    }

    /// Makes another box.
    #[tool(
        description = "Make another box beside the session's own, with the same policy. Returns its name.",
        annotations(title = "Start a box", destructive_hint = false)
    )]
    async fn start_box(&self) -> Result<CallToolResult, ErrorData> {
        said(self.desk.start().await.map(|card| CallToolResult::structured(about(&card))))
    }

    /// Ends a box.
    #[tool(
        description = "Destroy a box with everything in it, and return its receipt.",
        annotations(title = "Stop a box", destructive_hint = true)
    )]
    async fn stop_box(
        &self,
        Parameters(OneBox { of }): Parameters<OneBox>,
    ) -> Result<CallToolResult, ErrorData> {
        let stopped = async {
            // None is made only to be stopped.
            let id = match of {
                Some(name) => self.desk.find(Some(&name)).await?,
                None => self.desk.own().await.ok_or_else(|| Refused("the session has no box".to_owned()))?,
            };
            let receipt = self.desk.stop(&id).await?;
            Ok(CallToolResult::structured(serde_json::to_value(receipt).unwrap_or(Value::Null)))
        };
        said(stopped.await)
    }

    /// Lists the boxes of this session.
    #[tool(
        description = "List the boxes of this session and the commands in them.",
        annotations(title = "List boxes", read_only_hint = true)
    )]
    async fn list_boxes(&self) -> Result<CallToolResult, ErrorData> {
        let boxes: Vec<Value> = self
            .desk
            .list()
            .iter()
            .map(|(card, execs)| json!({ "box": about(card), "commands": execs }))
            .collect();
        Ok(CallToolResult::structured(json!({ "boxes": boxes })))
    }

    /// Tells what a box may do, and what it was denied.
    #[tool(
        description = "What a box may do (network, files, limits, time), which weaknesses were accepted, and which \
            system calls and connections it was denied so far, and why. Policies cannot be changed from here.",
        annotations(title = "Describe the policy", read_only_hint = true)
    )]
    async fn describe_policy(
        &self,
        Parameters(OneBox { of }): Parameters<OneBox>,
    ) -> Result<CallToolResult, ErrorData> {
        said(self.describe(of).await)
    }
}

impl Session {
    async fn code(&self, asked: RunCode, asker: Asker) -> Result<CallToolResult, Refused> {
        let RunCode { language, code, stateful, timeout_seconds, tools, of } = asked;
        let tongue = match (stateful, language) {
            (false, _) => None,
            (true, Code::Python) => Some(Tongue::Python),
            (true, Code::PythonData) => Some(Tongue::PythonData),
            (true, Code::Javascript) => Some(Tongue::Javascript),
            (true, Code::Sh) => {
                let why = "only Python and JavaScript can be stateful; leave `stateful` out, or keep state in files";
                return Err(Refused(why.to_owned()));
            }
        };
        let id = self.desk.find(of.as_deref()).await?;
        if let Some(tongue) = tongue {
            let code = (tongue, code.as_str());
            let came = notebook::run(&self.desk, &id, code, (tools, timeout_seconds), &asker).await?;
            return Ok(came.answer());
        }
        let command = self.desk.interpreter(&id, Language::from(language))?;
        let new = NewExec { command, stdin: StdinFrom::Stream, tools, ..NewExec::default() };
        let came = work::run(&self.desk, &id, new, Some(code.into_bytes()), timeout_seconds, &asker).await?;
        Ok(came.answer())
    }

    async fn command(&self, asked: RunCommand, asker: Asker) -> Result<CallToolResult, Refused> {
        let RunCommand { command, cwd, env, stdin, timeout_seconds, tools, of } = asked;
        let id = self.desk.find(of.as_deref()).await?;
        let from = if stdin.is_some() { StdinFrom::Stream } else { StdinFrom::None };
        let new = NewExec { command, env, cwd, stdin: from, tools, ..NewExec::default() };
        let stdin = stdin.map(String::into_bytes);
        Ok(work::run(&self.desk, &id, new, stdin, timeout_seconds, &asker).await?.answer())
    }

    async fn read(&self, asked: ReadFile) -> Result<CallToolResult, Refused> {
        let ReadFile { path, offset, limit, of } = asked;
        let id = self.desk.find(of.as_deref()).await?;
        let live = self.desk.keeper.live(&self.desk.tenant, &id)?;
        let most = limit.unwrap_or(MOST_READ).min(MOST_READ);
        let at = start_place::path(&live, path.as_bytes());
        let slice = Slice { offset, most, extent: Extent::Seen };
        let mut download = live.files().read(&at, slice).await?;
        let size = download.entry().map_or(0, |entry| entry.size);
        let mut bytes = Vec::new();
        while let Some(piece) = download.next().await? {
            bytes.extend_from_slice(&piece);
        }
        let read = bytes.len();
        let content = match String::from_utf8(bytes) {
            Ok(text) => json!({ "text": text }),
            Err(error) => json!({ "base64": STANDARD.encode(error.as_bytes()) }),
        };
        let mut answer = json!({ "path": shown_path(&at), "size": size, "offset": offset, "bytes": read });
        if let (Some(answer), Value::Object(content)) = (answer.as_object_mut(), content) {
            answer.extend(content);
        }
        Ok(CallToolResult::structured(answer))
    }

    async fn write(&self, asked: WriteFile) -> Result<CallToolResult, Refused> {
        let WriteFile { path, text, base64, executable, of } = asked;
        let bytes = match (text, base64) {
            (Some(text), None) => text.into_bytes(),
            (None, Some(base64)) => STANDARD
                .decode(base64)
                .map_err(|error| Refused(format!("`base64` is not base64: {error}")))?,
            _ => return Err(Refused("give exactly one of `text` and `base64`".to_owned())),
        };
        let id = self.desk.find(of.as_deref()).await?;
        let live = self.desk.keeper.live(&self.desk.tenant, &id)?;
        let mode = if executable { 0o755 } else { 0o644 };
        let at = start_place::path(&live, path.as_bytes());
        let mut upload = live.files().write(&at, mode, Writing::Replace, Parents::Make).await?;
        upload.write(&bytes).await?;
        let written = upload.finish().await?.amount;
        Ok(CallToolResult::structured(json!({ "path": shown_path(&at), "bytes": written })))
    }

    async fn list(&self, asked: ListFiles) -> Result<CallToolResult, Refused> {
        let ListFiles { path, depth, of } = asked;
        let id = self.desk.find(of.as_deref()).await?;
        let live = self.desk.keeper.live(&self.desk.tenant, &id)?;
        let depth = depth.unwrap_or(1).clamp(1, DEEPEST);
        let at = start_place::path(&live, path.as_bytes());
        let listing = live.files().list(&at, depth, MOST_LISTED).await?;
        let Gathered::Fits(mut entries, coverage) = gather(listing, 0, MOST_LISTED_BYTES).await? else {
            let what = format!("{path:?} has more than {MOST_LISTED_BYTES} bytes of entries; list less deep");
            return Err(Refused(what));
        };
        entries.sort_by(|one, other| one.path.cmp(&other.path));
        let entries: Vec<Value> = entries.iter().map(shown).collect();
        let whole = coverage == Coverage::Whole;
        Ok(CallToolResult::structured(json!({ "path": shown_path(&at), "entries": entries, "whole": whole })))
    }

    async fn describe(&self, of: Option<String>) -> Result<CallToolResult, Refused> {
        let id = self.desk.find(of.as_deref()).await?;
        let (card, _) = self.desk.keeper.get(&self.desk.tenant, &id)?;
        let mut events = self.desk.keeper.subscribe_after(Some(&self.desk.tenant), Some(0));
        let mut denied = std::collections::BTreeMap::<String, u64>::new();
        // The box chooses the names: those that came first are told.
        let mut unreached = std::collections::BTreeMap::<(String, u16, String), u64>::new();
        loop {
            let event = tokio::select! {
                biased;
                event = events.next() => event,
                () = std::future::ready(()) => break,
            };
            match event {
                Some(EventItem::Event(event)) if event.box_id.as_ref() == Some(&id) => {
                    if let Happened::SyscallDenied { syscall, count } = &event.what {
                        *denied.entry(syscall.clone()).or_default() += count;
                    }
                    if let Happened::NetworkDenied { target, port, reason, count, .. } = &event.what {
                        let known = (target.clone(), *port, reason.clone());
                        if unreached.len() < MOST_UNREACHED || unreached.contains_key(&known) {
                            *unreached.entry(known).or_default() += u64::from(*count);
                        }
                    }
                }
                Some(_) => {}
                None => break,
            }
        }
        let (keeper, tenant) = (&self.desk.keeper, &self.desk.tenant);
        let policy = network::policy_text(keeper, tenant, &id)?;
        let ends = keeper.ends(tenant, &id)?;
        let connection = |((target, port, reason), count): ((String, u16, String), u64)| json!({ "target": target, "port": port, "reason": reason, "count": count });
        let unreached: Vec<Value> = unreached.into_iter().map(connection).collect();
        Ok(CallToolResult::structured(json!({
            "box": about(&card), "policy": policy, "ends": ends, "denied_system_calls": denied,
            "denied_connections": unreached,
        })))
    }
}

fn about(card: &BoxCard) -> Value {
    json!({
        "box": card.id, "phase": card.phase, "tier": card.tier.as_str(), "image": card.image,
        "gaps": card.gaps.iter().map(|gap| gap.as_str()).collect::<Vec<_>>(),
        "created_at": card.created_at, "ends_at": card.ends_at,
    })
}

/// In full, so that nobody has to guess where a relative one has led.
fn shown_path(at: &[u8]) -> String {
    String::from_utf8_lossy(at).into_owned()
}

fn shown(entry: &Entry) -> Value {
    let kind = match entry.kind {
        EntryKind::File => "file",
        EntryKind::Directory => "directory",
        EntryKind::Link => "link",
        EntryKind::Other => "other",
    };
    json!({
        "path": String::from_utf8_lossy(&entry.path), "kind": kind, "size": entry.size,
        "mode": format!("{:04o}", entry.mode),
    })
}
