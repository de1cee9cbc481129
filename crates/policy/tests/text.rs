//! Policies as text: what is understood, what is complained about and where, and what the digest names.

use blastbox_policy::{
    Bytes, Cpus, Draft, Gap, Loopback, MAX_POLICY_TEXT, OnDenied, PolicyError, ScratchExec, SealedPolicy,
    Seconds, ThreatLevel, Tier, TierChoice, Workspace, parse, to_toml,
};
use proptest::prelude::*;

#[track_caller]
fn assert_complains(text: &str, message: &str) {
    assert_eq!(parse(text).map_err(|error| error.to_string()), Err(message.to_owned()), "{text}");
}

#[test]
fn an_empty_text_is_the_closed_default_of_high() {
    assert_eq!(parse(""), Ok(Draft::at(ThreatLevel::High)));
    assert_eq!(parse("# nothing\n"), Ok(Draft::at(ThreatLevel::High)));
}

#[test]
fn absent_keys_take_the_default_of_the_level_wherever_the_level_stands() {
    let text = "files.inodes = 99\nkernel.pids = 7\nthreat = \"low\"\n";
    assert_eq!(parse(text), Ok(Draft::at(ThreatLevel::Low).pids(7).inodes(99)));
}

#[test]
fn every_key_is_understood() {
    let text = r#"
threat = "medium"
accept = ["shared-kernel", "host-image"]
[kernel]
tier = "gvisor"
cpus = 0.5
memory = "1g"
pids = 64
on_denied_syscall = "kill"
[files]
workspace = "read-only"
disk = 1048576
inodes = 1_000
file_size = "512KiB"
open_files = 0x40
exec = "denied"
[network]
mode = "off"
loopback = "own"
[credentials]
mode = "none"
[lifetime]
timeout = "5m"
output = "64k"
"#;
    let expected = Draft::at(ThreatLevel::Medium)
        .accept(Gap::SharedKernel)
        .accept(Gap::HostImage)
        .tier(Tier::Gvisor)
        .cpus(Cpus::from_millis(500))
        .memory(Bytes(1 << 30))
        .pids(64)
        .on_denied_syscall(OnDenied::Kill)
        .workspace(Workspace::ReadOnly)
        .disk(Bytes(1 << 20))
        .inodes(1_000)
        .file_size(Bytes(512 << 10))
        .open_files(64)
        .exec(ScratchExec::Denied)
        .loopback(Loopback::Own)
        .timeout(Seconds(300))
        .output(Bytes(65_536));
    assert_eq!(parse(text), Ok(expected));
}

#[test]
fn a_guest_is_named_or_none_is_alone() {
    assert_eq!(parse("kernel.guest = \"\""), Ok(Draft::at(ThreatLevel::High)));
    let named = Draft::at(ThreatLevel::High).guest(Some("tool-2".parse().unwrap()));
    assert_eq!(parse("kernel.guest = \"tool-2\""), Ok(named.clone()));
    let sealed = named.seal().unwrap();
    assert_eq!(parse(&to_toml(&sealed)).and_then(Draft::seal).as_ref(), Ok(&sealed));
    assert_ne!(sealed.digest(), Draft::at(ThreatLevel::High).seal().unwrap().digest());
    assert_complains(
        "[kernel]\nguest = \"../tool\"\n",
        "line 2, column 9: kernel.guest: \"../tool\" is no name of a guest; expected letters, digits, - and _, at most 80, as \
         `blastbox doctor` lists them",
    );
    assert_complains(
        "kernel.guest = 3",
        "line 1, column 16: kernel.guest: expected a string, found a number",
    );
}

#[test]
fn processors_and_times_may_be_bare_or_quoted() {
    for text in ["kernel.cpus = 2", "kernel.cpus = 2.0", "kernel.cpus = \"2\"", "kernel.cpus = +2"] {
        assert_eq!(parse(text), Ok(Draft::at(ThreatLevel::High).cpus(Cpus::from_millis(2_000))), "{text}");
    }
    for text in ["lifetime.timeout = 60", "lifetime.timeout = \"60\"", "lifetime.timeout = \"1m\""] {
        assert_eq!(parse(text), Ok(Draft::at(ThreatLevel::High).timeout(Seconds(60))), "{text}");
    }
}

#[test]
fn a_misspelt_key_is_refused_with_its_place_and_the_right_one() {
    assert_complains(
        "threat = \"high\"\n[kernel]\nmemroy = \"1g\"\n",
        "line 3, column 1: unknown key \"memroy\" in [kernel]; did you mean \"memory\"?",
    );
    assert_complains(
        "[kernel]\npids = 3\n[lifetme]\n",
        "line 3, column 2: unknown key \"lifetme\" at the top level; did you mean \"lifetime\"?",
    );
}

#[test]
fn a_strange_key_is_refused_with_the_known_ones() {
    assert_complains(
        "[network]\n  banana = 1\n",
        "line 2, column 3: unknown key \"banana\" in [network]; expected one of \"mode\", \"loopback\", \
         \"allow\", \"dangerously_allow_private\", \"limits\"",
    );
}

#[test]
fn every_section_refuses_unknown_keys() {
    for section in ["kernel", "files", "network", "credentials", "lifetime"] {
        let error = parse(&format!("[{section}]\nzzz = 1\n")).unwrap_err();
        assert!(matches!(error, PolicyError::UnknownKey { .. }), "{error}");
        assert!(error.to_string().contains(&format!("in [{section}]")), "{error}");
        assert_eq!(parse(&format!("[{section}]\n")), Ok(Draft::at(ThreatLevel::High)));
    }
}

#[test]
fn a_misspelt_word_is_refused_with_its_place_and_the_right_one() {
    assert_complains(
        "threat = \"hgih\"\n",
        "line 1, column 10: threat: unknown threat level \"hgih\"; expected one of \"low\", \"medium\", \"high\", \
         \"critical\"; did you mean \"high\"?",
    );
    assert_complains(
        "[files]\nworkspace = \"copy_on_write\"",
        "line 2, column 13: files.workspace: unknown workspace \"copy_on_write\"; expected one of \"none\", \
         \"scratch\", \"read-only\", \"copy-on-write\"; did you mean \"copy-on-write\"?",
    );
    let error = parse("accept = [\n  \"shared-kernel\",\n  \"shared-iud\",\n]").unwrap_err().to_string();
    assert!(error.starts_with("line 3, column 3: accept: unknown gap \"shared-iud\""), "{error}");
    assert!(error.ends_with("did you mean \"shared-uid\"?"), "{error}");
}

#[test]
fn the_network_of_the_host_is_no_mode() {
    assert_complains(
        "network.mode = \"host\"",
        "line 1, column 16: network.mode: unknown network mode \"host\"; expected one of \"off\", \"allow\", \
         \"dangerously-open\"",
    );
}

#[test]
fn a_value_of_the_wrong_kind_is_refused() {
    for (text, message) in [
        ("threat = 3", "line 1, column 10: threat: expected a string, found a number"),
        ("accept = \"shared-kernel\"", "line 1, column 10: accept: expected a list of gaps, found a string"),
        ("accept = [1]", "line 1, column 11: accept: expected a string, found a number"),
        ("kernel = true", "line 1, column 10: kernel: expected a section, found true or false"),
        ("kernel.pids = \"9\"", "line 1, column 15: kernel.pids: expected a whole number, found a string"),
        ("kernel.pids = 1.5", "line 1, column 15: kernel.pids: expected a whole number, found a number"),
        (
            "files.disk = [1]",
            "line 1, column 14: files.disk: expected a number, or a string with a unit, found a list",
        ),
    ] {
        assert_complains(text, message);
    }
}

#[test]
fn an_unreadable_amount_is_refused() {
    for (text, message) in [
        (
            "kernel.pids = -1",
            "line 1, column 15: kernel.pids: \"-1\" is not a count; write a whole number without sign",
        ),
        (
            "kernel.pids = 4294967296",
            "line 1, column 15: kernel.pids: \"4294967296\" is more than blastbox can count",
        ),
        (
            "files.inodes = 99999999999999999999",
            "line 1, column 16: files.inodes: \"99999999999999999999\" is more than blastbox can count",
        ),
        (
            "kernel.cpus = inf",
            "line 1, column 15: kernel.cpus: \"inf\" is not a number of processors; write a number with at most three \
             decimals, such as \"2\" or \"0.5\"",
        ),
    ] {
        assert_complains(text, message);
    }
    assert!(parse("kernel.memory = -1").is_err());
    assert!(parse("kernel.memory = \"12MB\"").is_err());
}

#[test]
fn a_place_counts_characters_not_bytes() {
    let error = parse("# é\r\n\"éé\" = @").unwrap_err();
    assert!(matches!(error, PolicyError::Syntax { .. }), "{error}");
    assert!(error.to_string().starts_with("line 2, column 8: "), "{error}");
}

#[test]
fn broken_toml_is_refused_with_its_place_in_one_line() {
    for (text, place) in [
        ("threat = ", "line 1, column 10: "),
        ("\n\nthreat \"high\"", "line 3, column "),
        ("[kernel]\npids = 1\npids = 2\n", "line 3, column 1: "),
        ("threat = \"\u{1b}[2J\"", "line 1, column "),
    ] {
        let error = parse(text).unwrap_err();
        assert!(matches!(error, PolicyError::Syntax { .. }), "{error}");
        let shown = error.to_string();
        assert!(shown.starts_with(place), "{shown}");
        assert!(!shown.chars().any(char::is_control), "{shown:?}");
    }
}

#[test]
fn a_text_over_the_limit_is_refused_and_one_at_the_limit_is_read() {
    assert_eq!(parse(&"#".repeat(MAX_POLICY_TEXT)), Ok(Draft::at(ThreatLevel::High)));
    assert_complains(&"#".repeat(MAX_POLICY_TEXT + 1), "the policy has 65537 bytes; at most 65536 are read");
}

#[test]
fn deep_nesting_is_refused_without_exhausting_the_stack() {
    for open in ["[", "{a=", "a."] {
        let text = format!("accept = {}", open.repeat(20_000));
        assert!(parse(&text).is_err());
    }
    assert!(parse(&format!("{}a = 1", "a.".repeat(20_000))).is_err());
    assert!(parse(&format!("accept = {}{}", "[".repeat(30_000), "]".repeat(30_000))).is_err());
}

#[test]
fn the_written_policy_holds_every_key() {
    let policy =
        Draft::at(ThreatLevel::High).accept(Gap::SharedKernel).accept(Gap::HostImage).seal().unwrap();
    assert_eq!(
        to_toml(&policy),
        r#"threat = "high"
accept = ["shared-kernel", "host-image"]

[kernel]
tier = "by-threat"
cpus = 1
memory = "512MiB"
pids = 128
on_denied_syscall = "record"
root = "none"
gpu = "none"
deterministic = false
fuel = 0
guest = ""
gvisor_platform = "systrap"

[files]
workspace = "scratch"
disk = "256MiB"
inodes = 65536
file_size = "256MiB"
open_files = 1024
exec = "allowed"
report_writes = false

[network]
mode = "off"
loopback = "none"
allow = []
dangerously_allow_private = []

[network.limits]
flows = 256
connections_per_second = 200
questions_per_second = 100
names_per_wildcard = 256
bandwidth = "1GiB"
bytes = "64GiB"
bytes_per_host = "64GiB"

[credentials]
mode = "none"
bind = []

[lifetime]
timeout = "300s"
output = "16MiB"
survives_daemon = "no"
"#
    );
}

/// One value for each rule, so that rules can be exchanged one at a time.
#[derive(Debug, Clone)]
struct Wish {
    level: ThreatLevel,
    accept: Vec<Gap>,
    tier: TierChoice,
    cpus: u32,
    memory: u64,
    pids: u32,
    on_denied: OnDenied,
    workspace: Workspace,
    disk: u64,
    inodes: u64,
    file_size: u64,
    open_files: u32,
    exec: ScratchExec,
    loopback: Loopback,
    timeout: u64,
    output: u64,
}

impl Wish {
    const RULES: usize = 16;

    fn draft(self) -> Draft {
        let draft = Draft::at(self.level)
            .tier(self.tier)
            .cpus(Cpus::from_millis(self.cpus))
            .memory(Bytes(self.memory))
            .pids(self.pids)
            .on_denied_syscall(self.on_denied)
            .workspace(self.workspace)
            .disk(Bytes(self.disk))
            .inodes(self.inodes)
            .file_size(Bytes(self.file_size))
            .open_files(self.open_files)
            .exec(self.exec)
            .loopback(self.loopback)
            .timeout(Seconds(self.timeout))
            .output(Bytes(self.output));
        self.accept.into_iter().fold(draft, Draft::accept)
    }

    /// This wish with one rule taken from another.
    fn with(mut self, rule: usize, other: &Self) -> Self {
        match rule {
            0 => self.level = other.level,
            1 => self.accept.clone_from(&other.accept),
            2 => self.tier = other.tier,
            3 => self.cpus = other.cpus,
            4 => self.memory = other.memory,
            5 => self.pids = other.pids,
            6 => self.on_denied = other.on_denied,
            7 => self.workspace = other.workspace,
            8 => self.disk = other.disk,
            9 => self.inodes = other.inodes,
            10 => self.file_size = other.file_size,
            11 => self.open_files = other.open_files,
            12 => self.exec = other.exec,
            13 => self.loopback = other.loopback,
            14 => self.timeout = other.timeout,
            _ => self.output = other.output,
        }
        self
    }
}

fn any_of<T: Clone + std::fmt::Debug + 'static>(all: &'static [T]) -> impl Strategy<Value = T> {
    proptest::sample::select(all)
}

fn wishes() -> impl Strategy<Value = Wish> {
    let tier = prop_oneof![Just(TierChoice::ByThreat), any_of(Tier::ALL).prop_map(TierChoice::Exactly)];
    let accept = proptest::sample::subsequence(Gap::ALL, 0..=Gap::ALL.len()).prop_shuffle();
    let kernel = (tier, 10u32..=1_024_000, (4u64 << 20)..=(1 << 40), 2u32..=4_194_304, any_of(OnDenied::ALL));
    let sizes = (4_096u64..=(1 << 40), 16u64..=(1 << 32), 4_096u64..=(1 << 40), 16u32..=1_048_576);
    let words = (any_of(Workspace::ALL), any_of(ScratchExec::ALL), any_of(Loopback::ALL));
    let lifetime = (1u64..=2_592_000, 1u64..=(1 << 30));
    (any_of(ThreatLevel::ALL), accept, kernel, sizes, words, lifetime).prop_map(
        |(level, accept, kernel, sizes, words, lifetime)| {
            let (tier, cpus, memory, pids, on_denied) = kernel;
            let (disk, inodes, file_size, open_files) = sizes;
            let (workspace, exec, loopback) = words;
            let (timeout, output) = lifetime;
            Wish {
                level,
                accept,
                tier,
                cpus,
                memory,
                pids,
                on_denied,
                workspace,
                disk,
                inodes,
                file_size,
                open_files,
                exec,
                loopback,
                timeout,
                output,
            }
        },
    )
}

fn policies() -> impl Strategy<Value = SealedPolicy> {
    wishes().prop_filter_map("forbidden at its level", |wish| wish.draft().seal().ok())
}

/// The written policy with its sections, and the keys within them, in another order.
fn shuffled(text: &str) -> impl Strategy<Value = String> + use<> {
    let sections: Vec<Vec<String>> =
        text.split("\n\n").map(|section| section.lines().map(str::to_owned).collect()).collect();
    let mut sections = sections.into_iter();
    let top = Just(sections.next().unwrap_or_default()).prop_shuffle();
    let named: Vec<_> = sections
        .map(|mut lines| {
            let head = lines.remove(0);
            Just(lines).prop_shuffle().prop_map(move |lines| format!("{head}\n{}", lines.join("\n")))
        })
        .collect();
    (top, named.prop_shuffle()).prop_map(|(top, named): (Vec<String>, Vec<String>)| {
        format!("{}\n{}\n", top.join("\n"), named.join("\n"))
    })
}

proptest! {
    #[test]
    fn a_written_policy_reads_back_the_same(policy in policies()) {
        let again = parse(&to_toml(&policy)).and_then(Draft::seal);
        prop_assert_eq!(again, Ok(policy));
    }

    #[test]
    fn the_order_in_the_file_does_not_change_the_digest(
        (policy, text) in policies().prop_flat_map(|policy| {
            let text = shuffled(&to_toml(&policy));
            (Just(policy), text)
        })
    ) {
        let again = parse(&text).and_then(Draft::seal).unwrap();
        prop_assert_eq!(again.digest(), policy.digest());
        prop_assert_eq!(again, policy);
    }

    #[test]
    fn the_order_of_accepting_does_not_change_the_digest(gaps in Just(Gap::ALL.to_vec()).prop_shuffle()) {
        let forwards = gaps.iter().fold(Draft::at(ThreatLevel::High), |draft, gap| draft.accept(*gap));
        let backwards = gaps.iter().rev().fold(Draft::at(ThreatLevel::High), |draft, gap| draft.accept(*gap));
        prop_assert_eq!(forwards.seal().unwrap().digest(), backwards.seal().unwrap().digest());
    }

    #[test]
    fn one_changed_rule_changes_the_digest(one in wishes(), other in wishes()) {
        let Ok(policy) = one.clone().draft().seal() else { return Ok(()) };
        for rule in 0..Wish::RULES {
            if let Ok(changed) = one.clone().with(rule, &other).draft().seal() {
                prop_assert_eq!(changed == policy, changed.digest() == policy.digest(), "rule {}", rule);
            }
        }
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "([a-z.\\[\\]{}=\"', \n#0-9é-]|kernel|files|accept|threat){0,60}") {
        if let Err(error) = parse(&text) {
            prop_assert!(!error.to_string().is_empty());
        }
    }
}

#[test]
fn outliving_a_daemon_is_part_of_the_name_and_ending_with_it_is_not() {
    let digest = |text: &str| parse(text).unwrap().seal().unwrap().digest();
    let silent = digest("");
    assert_eq!(digest("[lifetime]\nsurvives_daemon = \"no\""), silent);
    assert_ne!(digest("[lifetime]\nsurvives_daemon = \"yes\""), silent);
    assert!(parse("[lifetime]\nsurvives_daemon = true").is_err());
}
