//! Killing blastbox at its own steps: every system call that a run makes is a moment at which it can be killed (with strace,
//! which sends the signal at exactly that call). Whoever is killed, nothing is left.
//!
//! A sample of the steps, spread evenly, so that the suite stays short: `BLASTBOX_EVERY_STEP=1` takes all (about a minute for each caller).
#![expect(clippy::expect_used, reason = "only tests; one that cannot work must fail at once")]

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use blastbox_tests::census::Census;
use blastbox_tests::{Caller, both_ways, cc};

/// What a command tells its warden: that it is for one box.
const ONE: &str = "one";

/// Steps at which each victim is killed, of all those that it takes.
const STEPS: usize = 32;

both_ways!(
    killing_the_command_at_each_step_leaves_nothing,
    killing_the_warden_at_each_step_leaves_nothing,
    killing_a_box_at_each_step_of_its_making_leaves_nothing,
);

/// A system call and which of its kind: the moment at which somebody is killed.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Step {
    call: String,
    count: u32,
}

/// Every step of each process, in the order in which the log of strace has them.
fn steps(log: &str) -> Vec<(String, Step)> {
    let mut counts: BTreeMap<(String, String), u32> = BTreeMap::new();
    let mut steps = Vec::new();
    for line in log.lines() {
        let (pid, rest) = line.split_once(' ').expect("a line begins with a process id");
        let Some((call, _)) = rest.trim_start().split_once('(') else { continue };
        // The other half of a call, a signal, an end: not a new step.
        if !call.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            continue;
        }
        let count = counts.entry((pid.to_owned(), call.to_owned())).or_default();
        *count += 1;
        steps.push((pid.to_owned(), Step { call: call.to_owned(), count: *count }));
    }
    steps
}

/// Some of them, spread evenly; all of them with `BLASTBOX_EVERY_STEP`.
fn some<T: Clone>(all: &[T], most: usize) -> Vec<T> {
    if std::env::var_os("BLASTBOX_EVERY_STEP").is_some() {
        return all.to_vec();
    }
    all.iter().step_by(all.len().div_ceil(most).max(1)).cloned().collect()
}

/// strace, where it is there and may trace.
fn strace(caller: &Caller) -> Option<&'static Path> {
    let strace = Path::new("/usr/bin/strace");
    let works =
        strace.exists() && caller.program(strace, ["-qq", "-o", "/dev/null", "/bin/true"]).end().code == 0;
    if !works {
        caller.skip("strace is not installed, or may not trace");
    }
    works.then_some(strace)
}

/// The words that make strace kill at a step.
fn injection(step: &Step) -> [String; 2] {
    ["-e".to_owned(), format!("inject={}:signal=SIGKILL:when={}", step.call, step.count)]
}

fn killing_the_command_at_each_step_leaves_nothing(caller: &Caller) {
    let mut census = Census::begin(caller);
    let Some(strace) = strace(caller) else { return };
    for name in ["log", "r.json"] {
        census.expect_file(name);
    }
    let log = caller.place().join("log");
    let blastbox = caller.blastbox_path();
    let run = |census: &mut Census, extra: &[String]| {
        let mut words: Vec<String> = vec!["-qq".into(), "-o".into(), log.display().to_string()];
        words.extend_from_slice(extra);
        words.push(blastbox.display().to_string());
        words.extend(["run", "--receipt", "r.json", "--", "/bin/echo", "up"].map(str::to_owned));
        census.watch(caller.program(strace, words).start())
    };
    assert_eq!(run(&mut census, &[]).code, 0);
    let text = std::fs::read_to_string(&log).expect("read the log");
    let text: String = text.lines().map(|line| format!("0 {line}\n")).collect();
    let all: Vec<Step> = steps(&text).into_iter().map(|(_, step)| step).collect();
    // The last steps are those of the receipt and of the end, where most can be left: every one of them.
    let last = all.len().saturating_sub(40);
    let (begin, end) = all.split_at(last);
    let mut killed = 0;
    for step in some(begin, STEPS).into_iter().chain(some(end, 40)) {
        std::fs::remove_file(caller.place().join("r.json")).ok();
        let ended = run(&mut census, &injection(&step));
        killed += usize::from(ended.code == 137);
        census.expect_nothing(&format!("command killed at {step:?}"));
    }
    assert!(killed > STEPS, "only {killed} were killed");
    assert!(census.see() > 0, "no namespace of a box was ever seen, so none was counted");
}

/// A copy of the programs in which strace stands between the command and the warden, the first time.
struct Between {
    blastbox: PathBuf,
    list: PathBuf,
    strace: &'static Path,
    warden: PathBuf,
}

impl Between {
    fn new(caller: &Caller) -> Option<Self> {
        let strace = strace(caller)?;
        let warden = caller.blastbox_path().with_file_name("blastbox-warden");
        let list = caller.place().join("list");
        let quoted = |path: &Path| format!("\"{}\"", path.display());
        let source = format!(
            "#include <stdio.h>\n#include <string.h>\n#include <unistd.h>\n\
             static char text[65536]; static char *words[64];\n\
             int main(int count, char **given) {{\n  FILE *list = fopen({list}, \"r\");\n\
               if (!list) {{ execv({warden}, given); return 99; }}\n\
               unlink({list});\n  text[fread(text, 1, sizeof text - 1, list)] = 0;\n  fclose(list);\n\
               count = 0;\n\
               for (char *word = strtok(text, \"\\n\"); word && count < 63; word = strtok(0, \"\\n\"))\n\
                 words[count++] = word;\n  execv(words[0], words);\n  return 99;\n}}\n",
            list = quoted(&list),
            warden = quoted(&warden),
        );
        let Some(made) = cc(caller, "between", &source, &["-w"]) else {
            caller.skip("no C compiler");
            return None;
        };
        let copies = caller.directory("copies");
        let blastbox = copies.join("blastbox");
        std::fs::copy(caller.blastbox_path(), &blastbox).expect("copy the program");
        std::fs::rename(made, copies.join("blastbox-warden")).expect("put it in between");
        Some(Self { blastbox, list, strace, warden })
    }

    /// Runs a box whose warden is traced with these options.
    fn run(&self, caller: &Caller, census: &mut Census, options: &[String]) -> blastbox_tests::Ended {
        let mut words = vec![self.strace.display().to_string(), "-qq".to_owned()];
        words.extend_from_slice(options);
        // As the command starts it.
        words.extend([self.warden.display().to_string(), ONE.to_owned()]);
        std::fs::write(&self.list, words.join("\n")).expect("write the list");
        caller.own(&self.list);
        census.watch(caller.program(&self.blastbox, ["run", "--timeout", "30s", "--", "/bin/true"]).start())
    }

    /// The steps of the warden and of the box that it makes.
    fn steps(&self, caller: &Caller, census: &mut Census) -> (Vec<Step>, Vec<Step>) {
        let log = caller.place().join("log");
        let options = ["-f", "-o", &log.display().to_string()].map(str::to_owned);
        let ended = self.run(caller, census, &options);
        assert_eq!(ended.code, 0, "{}", ended.err);
        let text = std::fs::read_to_string(&log).expect("read the log");
        std::fs::remove_file(&log).expect("remove the log");
        let all = steps(&text);
        let mut pids: Vec<&String> = Vec::new();
        for (pid, _) in &all {
            if !pids.contains(&pid) {
                pids.push(pid);
            }
        }
        let of = |number: usize| -> Vec<Step> {
            let steps = all.iter().filter(|(pid, _)| Some(&pid) == pids.get(number));
            steps.map(|(_, step)| step.clone()).collect()
        };
        (of(0), of(1))
    }
}

fn kill_between(caller: &Caller, census: &mut Census, between: &Between, options: &[String], steps: &[Step]) {
    let mut killed = 0;
    for step in steps {
        let words: Vec<String> = options.iter().cloned().chain(injection(step)).collect();
        let ended = between.run(caller, census, &words);
        // Killed after its last answer, nobody misses it.
        assert!(matches!(ended.code, 0 | 125), "{step:?}: {} {}", ended.code, ended.err);
        killed += usize::from(ended.code == 125);
        census.expect_nothing(&format!("killed at {step:?}, exit {}", ended.code));
    }
    assert!(killed * 2 > steps.len(), "only {killed} of {} were killed", steps.len());
    assert!(census.see() > 0, "no namespace of a box was ever seen, so none was counted");
}

fn killing_the_warden_at_each_step_leaves_nothing(caller: &Caller) {
    let mut census = Census::begin(caller);
    let Some(between) = Between::new(caller) else { return };
    census.accept_files();
    let (warden, _) = between.steps(caller, &mut census);
    let steps = some(&warden, STEPS * 2);
    kill_between(caller, &mut census, &between, &["-o", "/dev/null"].map(str::to_owned), &steps);
}

fn killing_a_box_at_each_step_of_its_making_leaves_nothing(caller: &Caller) {
    let mut census = Census::begin(caller);
    let Some(between) = Between::new(caller) else { return };
    census.accept_files();
    let (warden, made) = between.steps(caller, &mut census);
    // Counted in each process: a step that the warden takes as well would kill the warden first.
    let most = |call: &str| warden.iter().filter(|step| step.call == call).map(|step| step.count).max();
    let alone: Vec<Step> =
        made.into_iter().filter(|step| most(&step.call).unwrap_or(0) < step.count).collect();
    let steps = some(&alone, STEPS * 2);
    kill_between(caller, &mut census, &between, &["-f", "-o", "/dev/null"].map(str::to_owned), &steps);
}
