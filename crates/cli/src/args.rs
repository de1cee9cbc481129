//! What can be written on the command line.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;

use blastbox_engine::WorkspaceDir;
use blastbox_images::Language;
use blastbox_policy::{
    BoxRoot, Bytes, Cpus, Draft, Gap, Gpu, Loopback, Profile, ScratchExec, SealedPolicy, Seconds,
    ThreatLevel, TierChoice, Workspace,
};
use blastbox_wire::plan::WorkspaceAccess;
use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};

use crate::audit::AuditVerb;
use crate::daemon::DaemonVerb;
use crate::image::{ImageVerb, StoreFlag};
use crate::policy::PolicyVerb;
use crate::problem::Problem;
use crate::reach::AllowFlag;
use crate::tool::ToolFlag;

const EXIT_CODES: &str = "\
Exit codes:
  that of the program, or 128 + N when signal N ended it
  124  the time was over             137  the memory was used up
  125  refused, or blastbox failed   141  whoever read the output went away
  126  not executable                153  the output was over its limit
  127  not found                     152  the work that --fuel gives was done
                                     129, 130, 143  blastbox was told to end (HUP, INT, TERM)
The receipt names the outcome: exited, signalled, timed_out, out_of_memory, pids_exhausted, output_limit, fuel_spent, refused,
not_started, failed, lost.";

const RUN_HELP: &str = "\
Examples:
  blastbox run -- python3 -c 'print(6 * 7)'
  echo 'print(6 * 7)' | blastbox run --lang python
  blastbox run --lang python job.py                          the same, of a file; what is piped in goes before it
  blastbox run --workspace . --timeout 10m -- make test      changes never reach the directory
  blastbox run --workspace . -- ./untrusted                  without --workspace a box sees nothing of your directory
  blastbox run --allow example.com -- curl -sI https://example.com
  blastbox run -t -- bash                                    a shell to look around in
  blastbox run --json --memory 64MiB -- python3 --version    one JSON document on standard output

With --json standard output carries one document: {\"receipt\": …, \"stdout\": {\"base64\": …, \"text\": …}, \"stderr\": …};
`text` is null where the bytes are not UTF-8.
";

/// An execution sandbox for AI agents: runs code that nobody has reviewed and keeps the blast radius inside a
/// disposable box.
#[derive(Debug, Parser)]
#[command(name = "blastbox", version, after_help = EXIT_CODES, max_term_width = 110)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Run a program in a box that vanishes afterwards
    #[command(after_help = format!("{RUN_HELP}\n{EXIT_CODES}"))]
    Run(Box<RunArgs>),
    /// Give boxes to an MCP client (Claude, Cursor, an agent of your own) over standard input and output
    #[command(after_help = crate::mcp::HELP)]
    Mcp(Box<crate::mcp::McpArgs>),
    /// Say what a policy means on this host: each boundary, which tier and why, which gaps
    #[command(after_help = "Example:\n  blastbox explain --profile strict")]
    Explain(BoxArgs),
    /// Print the exact steps that would make the box, without making it
    #[command(after_help = "Example:\n  blastbox plan --workspace . --json")]
    Plan(BoxArgs),
    /// Say what this host can do, and how to fix what it cannot
    #[command(after_help = crate::doctor::HELP)]
    Doctor(DoctorArgs),
    /// Try to break out of boxes under every shipped profile that this host can keep, and print what held
    #[command(after_help = crate::escape::HELP)]
    Escape(Box<crate::escape::EscapeArgs>),
    /// Check, print, test or hash a policy
    #[command(subcommand, after_help = crate::policy::HELP)]
    Policy(PolicyVerb),
    /// Import, pull, make, list, check and remove images
    #[command(subcommand, after_help = crate::image::HELP)]
    Image(ImageVerb),
    /// Get, add and list kernels for virtual machines
    #[command(subcommand, after_help = crate::kernel::HELP)]
    Kernel(crate::kernel::KernelVerb),
    /// Verify, read and export a ledger
    #[command(subcommand, after_help = crate::audit::HELP)]
    Audit(AuditVerb),
    /// Print completions for shells and pages for man
    #[command(subcommand, hide = true)]
    Papers(crate::papers::PapersVerb),
    /// Become another program, which ends when whoever started it does
    #[command(hide = true)]
    Tether(crate::tether::TetherArgs),
    /// Run the commands of secrets for the daemon at standard input
    #[command(hide = true)]
    Clerk,
    #[command(flatten)]
    Daemon(DaemonVerb),
}

/// The options that form a policy.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Policy")]
pub(crate) struct PolicyFlags {
    /// How hostile the code is taken to be: low, medium, high, critical [default: high]
    #[arg(long, value_name = "LEVEL", conflicts_with_all = ["profile", "policy"])]
    pub(crate) threat: Option<ThreatLevel>,
    /// A policy that comes with blastbox: default, strict, medium, low, critical
    #[arg(long, value_name = "NAME", conflicts_with = "policy")]
    pub(crate) profile: Option<Profile>,
    /// A policy of your own (docs/policy.md); `-` reads it from standard input
    #[arg(long, value_name = "FILE.toml")]
    pub(crate) policy: Option<PathBuf>,
    /// The kernel boundary: wasm, jail, gvisor, microvm, or by-threat
    #[arg(long, value_name = "TIER")]
    pub(crate) tier: Option<TierChoice>,
    /// Accept a weakness by name, as `explain` and refusals name it (repeatable)
    #[arg(long, value_name = "GAP")]
    pub(crate) accept: Vec<Gap>,
    /// Processors, such as 2 or 0.5
    #[arg(long, value_name = "N")]
    pub(crate) cpus: Option<Cpus>,
    /// Memory of the whole box, such as 512MiB
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<Bytes>,
    /// Most processes and threads
    #[arg(long, value_name = "N")]
    pub(crate) pids: Option<u32>,
    /// Work that each command may do, counted by the engine and not by a clock (tier wasm)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) fuel: Option<u64>,
    /// Most writable space (it lies in memory)
    #[arg(long, value_name = "SIZE")]
    pub(crate) disk: Option<Bytes>,
    /// Life of the box, such as 30s or 10m
    #[arg(long, value_name = "TIME")]
    pub(crate) timeout: Option<Seconds>,
    /// Most output: standard output and error together
    #[arg(long, value_name = "SIZE")]
    pub(crate) output_limit: Option<Bytes>,
    /// Give the box a loopback interface of its own
    #[arg(long)]
    pub(crate) loopback: bool,
    /// Let the box reach a host through its gateway: HOST (HTTPS), HOST:PORT (any TCP), *.HOST (repeatable)
    #[arg(long, value_name = "HOST[:PORT]")]
    pub(crate) allow: Vec<AllowFlag>,
    /// Let commands in the box become its root with sudo: root of the box, and of nothing else
    #[arg(long)]
    pub(crate) sudo: bool,
    /// Give the box the first NVIDIA GPU of the host: needs --accept gpu-driver-surface
    #[arg(long)]
    pub(crate) gpu: bool,
    /// Let nothing be executed that the box wrote itself
    #[arg(long)]
    pub(crate) no_exec: bool,
    /// Report writes at unexpected paths: each call that changes a file then waits until the agent has seen the name
    #[arg(long)]
    pub(crate) report_writes: bool,
}

impl PolicyFlags {
    /// Whether the policy itself comes from standard input, which has nothing more to give then.
    pub(crate) fn spends_stdin(&self) -> bool {
        self.policy.as_deref().is_some_and(crate::policy::is_stdin)
    }

    /// Where the policy starts from, before the flags.
    fn base(&self) -> Result<Draft, Problem> {
        if let Some(path) = &self.policy {
            return crate::policy::read(path);
        }
        let level = self.threat.map(Profile::for_level);
        Ok(self.profile.or(level).unwrap_or_default().draft()?)
    }

    /// The sealed policy: file, profile or level first, then each flag over it.
    pub(crate) fn seal(&self, workspace: Option<&WorkspaceFlag>) -> Result<SealedPolicy, Problem> {
        let mut draft = self.base()?;
        let Self {
            threat: _, profile: _, policy: _, tier, accept, cpus, memory, pids, disk, timeout, ..
        } = self;
        if let Some(tier) = *tier {
            draft = draft.tier(tier);
        }
        if let Some(cpus) = *cpus {
            draft = draft.cpus(cpus);
        }
        if let Some(memory) = *memory {
            draft = draft.memory(memory);
        }
        if let Some(pids) = *pids {
            draft = draft.pids(pids);
        }
        if let Some(fuel) = self.fuel {
            draft = draft.fuel(Some(fuel));
        }
        if let Some(disk) = *disk {
            draft = draft.disk(disk);
        }
        if let Some(timeout) = *timeout {
            draft = draft.timeout(timeout);
        }
        if let Some(output) = self.output_limit {
            draft = draft.output(output);
        }
        if self.loopback {
            draft = draft.loopback(Loopback::Own);
        }
        for AllowFlag(rule) in &self.allow {
            draft = draft.allow(rule.clone());
        }
        if self.sudo {
            draft = draft.root(BoxRoot::Allowed);
        }
        if self.gpu {
            draft = draft.gpu(Gpu::One);
        }
        if self.no_exec {
            draft = draft.exec(ScratchExec::Denied);
        }
        if self.report_writes {
            draft = draft.report_writes(true);
        }
        if let Some(workspace) = workspace {
            draft = draft.workspace(match workspace.access {
                WorkspaceAccess::ReadOnly => Workspace::ReadOnly,
                WorkspaceAccess::CopyOnWrite => Workspace::CopyOnWrite,
            });
        }
        let draft = accept.iter().fold(draft, |draft, gap| draft.accept(*gap));
        Ok(draft.seal()?)
    }
}

/// A directory and what the box may do with it: `DIR`, `DIR:cow` or `DIR:ro`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WorkspaceFlag {
    pub(crate) path: PathBuf,
    pub(crate) access: WorkspaceAccess,
}

impl WorkspaceFlag {
    /// Opens it. One that was removed and is only held open has no name that a box could be shown.
    pub(crate) fn open(&self) -> Result<WorkspaceDir, Problem> {
        let found = WorkspaceDir::open(&self.path, self.access)?;
        match std::fs::metadata(&self.path) {
            Ok(now) if now.nlink() == 0 => Err(Problem::Gone { path: self.path.clone() }),
            Ok(_) | Err(_) => Ok(found),
        }
    }

    /// Names of directories are bytes, not text.
    fn parse(given: &OsStr) -> Result<Self, String> {
        let given = given.as_bytes();
        let colon = given.iter().rposition(|byte| *byte == b':').and_then(|at| given.split_at_checked(at));
        let (path, access) = match colon {
            Some((path, b":cow")) => (path, WorkspaceAccess::CopyOnWrite),
            Some((path, b":ro")) => (path, WorkspaceAccess::ReadOnly),
            Some((_, [_, word @ ..])) if !word.contains(&b'/') => {
                let word = String::from_utf8_lossy(word);
                return Err(format!(
                    "unknown use {word:?} of a workspace; write DIR:cow (changes are thrown away) or DIR:ro"
                ));
            }
            Some(_) | None => (given, WorkspaceAccess::CopyOnWrite),
        };
        if path.is_empty() {
            return Err("the directory is missing; write DIR, DIR:cow or DIR:ro".to_owned());
        }
        Ok(Self { path: PathBuf::from(OsStr::from_bytes(path)), access })
    }
}

/// A variable of the environment: `NAME=value`. Both are bytes: what the kernel passes on is not always text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Variable {
    pub(crate) name: Vec<u8>,
    pub(crate) value: Vec<u8>,
}

impl Variable {
    pub(crate) fn parse(given: OsString) -> Result<Self, String> {
        let given = given.into_vec();
        match given.iter().position(|byte| *byte == b'=').and_then(|at| given.split_at_checked(at)) {
            Some((name @ [_, ..], [_, value @ ..])) => {
                Ok(Self { name: name.to_vec(), value: value.to_vec() })
            }
            Some(_) => Err("the name before `=` is missing; write NAME=value".to_owned()),
            None => {
                let name = String::from_utf8_lossy(&given);
                Err(format!("it has no `=`; write {name}=value (nothing is taken from your own environment)"))
            }
        }
    }
}

/// What a box is made from.
#[derive(Debug, Args)]
pub(crate) struct BoxArgs {
    #[command(flatten)]
    pub(crate) policy: PolicyFlags,
    #[command(flatten)]
    pub(crate) source: SourceFlags,
    #[command(flatten)]
    pub(crate) store: StoreFlag,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(next_help_heading = "Files")]
pub(crate) struct SourceFlags {
    /// The root file system: `host` (a read-only view of this host's programs), an image of the store, or a directory. With
    /// `--tier wasm`, which has none: FILE.wasm (`run`, `mcp`), or `module:NAME` of a daemon (`create`)
    #[arg(long, value_name = "host|NAME[@sha256:…]|DIR", default_value = "host")]
    pub(crate) image: String,
    /// Show one directory at /workspace: copy-on-write (changes are thrown away) or read-only [default: cow]
    #[arg(
        long,
        value_name = "DIR[:cow|:ro]",
        value_parser = OsStringValueParser::new().try_map(|given| WorkspaceFlag::parse(&given))
    )]
    pub(crate) workspace: Option<WorkspaceFlag>,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    pub(crate) policy: PolicyFlags,
    #[command(flatten)]
    pub(crate) source: SourceFlags,
    #[command(flatten)]
    pub(crate) store: StoreFlag,
    /// Run a program in this language: python, sh, node (or js), python-data (tier wasm). It comes from standard input; where nothing
    /// is piped in, from the file that the first word after the options names
    #[arg(long, value_name = "LANGUAGE", conflicts_with = "tty")]
    pub(crate) lang: Option<Language>,
    /// Where the command starts, in the box [default: /workspace, or /home/user where there is none]
    #[arg(long, value_name = "DIR")]
    pub(crate) cwd: Option<OsString>,
    /// Set a variable (repeatable); nothing is taken from your own environment
    #[arg(long, value_name = "NAME=VALUE", value_parser = OsStringValueParser::new().try_map(Variable::parse))]
    pub(crate) env: Vec<Variable>,
    /// Where the secrets are that the policy binds; none of them enters the box
    #[arg(long, value_name = "FILE.toml")]
    pub(crate) secrets: Option<PathBuf>,
    /// Offer a function to the program (tier wasm, repeatable): COMMAND runs here, outside of the box, by /bin/sh, reads JSON from
    /// standard input and prints JSON
    #[arg(long, value_name = "NAME=COMMAND")]
    pub(crate) tool: Vec<ToolFlag>,
    /// Give the program a terminal
    #[arg(long, short)]
    pub(crate) tty: bool,
    /// Pass standard input on
    #[arg(long, short)]
    pub(crate) interactive: bool,
    /// Print one JSON document with the receipt and all output instead of the output
    #[arg(long, conflicts_with = "tty")]
    pub(crate) json: bool,
    /// Write the receipt to this file
    #[arg(long, value_name = "FILE")]
    pub(crate) receipt: Option<PathBuf>,
    /// Write what the kernel of the box says to this file, 1 MiB at most (tier microvm; the machine boots for it)
    #[arg(long, value_name = "FILE")]
    pub(crate) console: Option<PathBuf>,
    /// Print nothing but the program's own output, and errors
    #[arg(long, short)]
    pub(crate) quiet: bool,
    /// Program and arguments; with --lang only arguments, or a file with the program and its arguments
    #[arg(value_name = "COMMAND", trailing_var_arg = true)]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    #[command(flatten)]
    pub(crate) place: crate::daemon::Where,
    /// Print JSON
    #[arg(long)]
    pub(crate) json: bool,
}

#[cfg(test)]
mod tests {
    use blastbox_policy::PolicyError;

    use super::*;

    fn run(words: &[&str]) -> Result<RunArgs, clap::Error> {
        let all = ["blastbox", "run"].iter().chain(words);
        match Cli::try_parse_from(all)?.verb {
            Verb::Run(args) => Ok(*args),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_definition_is_sound() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn everything_after_the_dashes_belongs_to_the_program() {
        let args = run(&["--memory", "64MiB", "-q", "--", "ls", "--json", "-q"]).unwrap();
        assert_eq!(args.command, ["ls", "--json", "-q"]);
        assert!(args.quiet && !args.json);
        assert_eq!(args.policy.memory, Some(Bytes::mib(64)));
        assert_eq!(run(&["ls", "--json"]).unwrap().command, ["ls", "--json"]);
    }

    #[test]
    fn a_misspelt_gap_names_the_one_that_was_meant() {
        let error = run(&["--accept", "shared-kernal", "true"]).unwrap_err().to_string();
        assert!(error.contains("did you mean \"shared-kernel\""), "{error}");
    }

    #[test]
    fn a_workspace_is_copy_on_write_unless_it_says_otherwise() {
        let parse = |text: &str| WorkspaceFlag::parse(OsStr::new(text));
        assert_eq!(parse("/a").unwrap().access, WorkspaceAccess::CopyOnWrite);
        assert_eq!(
            parse("/a:ro").unwrap(),
            WorkspaceFlag { path: "/a".into(), access: WorkspaceAccess::ReadOnly }
        );
        assert_eq!(parse("/a:b:cow").unwrap().path, PathBuf::from("/a:b"));
        assert_eq!(parse("/a:b/c").unwrap().path, PathBuf::from("/a:b/c"));
        assert!(parse("/a:rw").unwrap_err().contains("\"rw\""));
        assert!(parse(":ro").is_err());
    }

    #[test]
    fn a_variable_needs_a_name_and_a_value() {
        assert!(run(&["--env", "HOME", "true"]).unwrap_err().to_string().contains("HOME=value"));
        assert!(run(&["--env", "=x", "true"]).is_err());
        assert_eq!(run(&["--env", "A=b=c", "true"]).unwrap().env[0].value, b"b=c");
        assert!(run(&["--env", "A=", "true"]).unwrap().env[0].value.is_empty());
        let bytes = OsString::from_vec(b"A=\xff".to_vec());
        assert_eq!(Variable::parse(bytes).unwrap().value, b"\xff");
    }

    #[test]
    fn a_misspelt_option_is_not_taken_for_the_program() {
        let error = run(&["--memroy", "64MiB", "--", "true"]).unwrap_err().to_string();
        assert!(error.contains("--memroy") && error.contains("'--memory'"), "{error}");
        assert_eq!(run(&["--", "--memroy"]).unwrap().command, ["--memroy"]);
    }

    #[test]
    fn flags_go_over_the_profile_and_the_level_may_refuse_them() {
        let sealed = |words: &[&str]| {
            let args = run(words).unwrap();
            args.policy.seal(args.source.workspace.as_ref())
        };
        let policy =
            sealed(&["--threat", "medium", "--pids", "7", "--loopback", "--no-exec", "true"]).unwrap();
        assert_eq!((policy.level(), policy.kernel().pids), (ThreatLevel::Medium, 7));
        assert_eq!(policy.network().loopback, Loopback::Own);
        assert_eq!(policy.files().exec, ScratchExec::Denied);
        assert_eq!(sealed(&["true"]).unwrap().level(), ThreatLevel::High);
        assert_eq!(sealed(&["--workspace", "/a:ro", "true"]).unwrap().files().workspace, Workspace::ReadOnly);
        let refused = sealed(&["--threat", "critical", "--workspace", "/a", "true"]).unwrap_err();
        assert!(
            matches!(&refused, Problem::Policy(error) if matches!(**error, PolicyError::WorkspaceNotAtLevel { .. }))
        );
        assert!(matches!(sealed(&["--memory", "0", "true"]), Err(Problem::Policy(_))));
    }

    #[test]
    fn one_source_of_policy_is_enough() {
        assert!(run(&["--threat", "low", "--profile", "strict", "true"]).is_err());
        assert!(run(&["--policy", "a.toml", "--profile", "strict", "true"]).is_err());
        assert!(run(&["--lang", "python", "-t"]).is_err());
    }
}
