//! What can be asked for, and what cannot.

use std::collections::BTreeMap;

use blastbox_policy::{Bytes, Cpus, ThreatLevel};
use blastbox_wire::agent::Io;

use super::*;
use crate::Trouble;
use crate::caller::Reach;
use crate::gallery::Gallery;
use crate::take::parse;

fn code<T>(result: Result<T, Trouble>) -> String {
    result.map_or_else(|trouble| trouble.code().into_owned(), |_| "ok".to_owned())
}

fn new_box(text: &str) -> Result<NewBox, Trouble> {
    let new: NewBox = parse(text.as_bytes())?;
    new.one_source()?;
    Ok(new)
}

fn checked(text: &str, reach: Reach) -> String {
    code(new_box(text).and_then(|new| new.check(reach, &Gallery::default(), &[])))
}

#[test]
fn nothing_at_all_is_the_default_box() {
    let wanted = new_box("").unwrap().check(Reach::Boxes, &Gallery::default(), &[]).unwrap();
    assert_eq!(wanted.policy.level(), ThreatLevel::High);
    assert_eq!(wanted.image.label(), "host");
    assert_eq!(wanted.life.as_secs(), 3_600);
    assert_eq!(wanted.idle.as_secs(), 900);
}

#[test]
fn a_gpu_is_for_whoever_is_at_the_socket() {
    let text = r#"{"policy":"[kernel]\ngpu = \"one\"\n"}"#;
    assert_eq!(checked(text, Reach::Host), "ok");
    assert_eq!(checked(text, Reach::Boxes), "local_only");
}

#[test]
fn amounts_are_words_or_numbers() {
    let new = new_box(r#"{"limits":{"memory":"64MiB","cpus":0.5,"disk":1024,"timeout":null},"life":60}"#);
    let new = new.unwrap();
    assert_eq!(new.limits.memory, Some(Bytes::mib(64)));
    assert_eq!(new.limits.cpus, Some(Cpus::from_millis(500)));
    assert_eq!((new.limits.disk, new.limits.timeout), (Some(Bytes(1024)), None));
    assert_eq!(new.life, Some(Seconds(60)));
    let again = serde_json::to_vec(&new).unwrap();
    assert_eq!(parse::<NewBox>(&again).unwrap(), new);
}

#[test]
fn what_is_misspelt_is_refused_wherever_it_stands() {
    for text in [
        r#"{"memory":"64MiB"}"#,
        r#"{"limits":{"memroy":"64MiB"}}"#,
        r#"{"limits":{"memory":"64MB"}}"#,
        r#"{"limits":{"memory":-1}}"#,
        r#"{"limits":{"memory":true}}"#,
        r#"{"profile":"defualt"}"#,
        r#"{"accept":["shared-kernal"]}"#,
        r#"{"on_timeout":"forget"}"#,
        r#"{"workspace":{"path":"/x","access":"rw"}}"#,
        r#"{"profile":"low","threat":"high"}"#,
        r#"{"life":"0s"}"#,
        r#"{"idle":"31d"}"#,
        r#"{"metadata":{"":"x"}}"#,
        r#"{"metadata":{"a":"line\nbreak"}}"#,
    ] {
        assert_eq!(checked(text, Reach::Host), "bad_field", "{text}");
    }
    assert_eq!(checked(r#"{"policy":"threat = \"hihg\""}"#, Reach::Host), "bad_policy");
    assert_eq!(checked(r#"{"limits":{"memory":"0"}}"#, Reach::Host), "bad_policy");
    assert_eq!(checked(r#"{"threat":"critical","accept":["shared-kernel"]}"#, Reach::Host), "bad_policy");
}

#[test]
fn whoever_comes_with_a_key_cannot_name_a_directory_of_the_host() {
    for text in [r#"{"image":"/"}"#, r#"{"image":"/etc"}"#, r#"{"workspace":{"path":"/etc"}}"#] {
        assert_eq!(checked(text, Reach::Boxes), "local_only", "{text}");
        assert_ne!(checked(text, Reach::Host), "local_only", "{text}");
    }
    assert_eq!(checked(r#"{"image":"../x"}"#, Reach::Host), "bad_image");
    assert_eq!(checked(r#"{"image":""}"#, Reach::Host), "bad_image");
    assert_eq!(checked(r#"{"image":"host"}"#, Reach::Boxes), "ok");
    assert_eq!(checked(r#"{"image":"unknown"}"#, Reach::Boxes), "bad_image");
    let named = BTreeMap::from([("tools".to_owned(), std::path::PathBuf::from("/nowhere/at/all"))]);
    let named = Gallery::new(named, None);
    let new = new_box(r#"{"image":"tools"}"#).unwrap();
    assert_eq!(code(new.check(Reach::Boxes, &named, &[])), "bad_image");
}

#[test]
fn a_key_opens_as_workspace_what_the_operator_gave_its_tenant_and_nothing_beside_it() {
    let roots = [std::path::PathBuf::from("/usr/share")];
    let asked = |path: &str, reach| {
        let text = serde_json::json!({ "workspace": { "path": path } }).to_string();
        code(new_box(&text).and_then(|new| new.check(reach, &Gallery::default(), &roots)))
    };
    assert_eq!(asked("/usr/share", Reach::Boxes), "ok");
    assert_eq!(asked("/usr/share/doc", Reach::Boxes), "ok");
    for path in ["/usr", "/etc", "/usr/shared", "/"] {
        assert_eq!(asked(path, Reach::Boxes), "workspace_not_allowed", "{path}");
    }
    // By words it lies beneath; the kernel says otherwise.
    for path in ["/usr/share/../lib", "/usr/share/doc/../../lib", "/usr/share/nowhere", "usr/share"] {
        assert_eq!(asked(path, Reach::Boxes), "bad_workspace", "{path}");
    }
    assert_eq!(asked("/etc", Reach::Host), "ok");
}

#[test]
fn a_command_needs_a_program_and_no_nul() {
    let exec = |text: &str| parse::<NewExec>(text.as_bytes()).and_then(NewExec::check);
    for (text, expected) in [
        (r#"{"command":["true"]}"#, "ok"),
        (r#"{"command":[]}"#, "bad_command"),
        (r#"{"command":[""]}"#, "bad_command"),
        (r#"{"command":["a\u0000b"]}"#, "bad_command"),
        (r#"{"command":["true"],"env":{"A=B":"c"}}"#, "bad_command"),
        (r#"{"command":["true"],"env":{"":"c"}}"#, "bad_command"),
        (r#"{"command":["true"],"env":{"A":"\u0000"}}"#, "bad_command"),
        (r#"{"command":["true"],"cwd":"a"}"#, "bad_command"),
        (r#"{"command":["true"],"cwd":"/a\u0000"}"#, "bad_command"),
        (r#"{"command":["true"],"timeout":0}"#, "bad_field"),
        (r#"{"command":["true"],"stdin":"keyboard"}"#, "bad_field"),
        (r#"{"command":["true"],"terminal":{"rows":24}}"#, "bad_field"),
        (r#"{"command":["true"],"shell":true}"#, "bad_field"),
        (r#"{"env":{}}"#, "bad_field"),
    ] {
        assert_eq!(code(exec(text)), expected, "{text}");
    }
    let long = serde_json::json!({ "command": ["true", "a".repeat(200_000)] }).to_string();
    assert_eq!(code(exec(&long)), "bad_command");
}

#[test]
fn a_command_starts_with_what_it_was_given_over_what_every_command_has() {
    let text = r#"{"command":["sh"],"env":{"PATH":"/x","A":"1"},"terminal":{"rows":24,"columns":80}}"#;
    let (command, terms) = parse::<NewExec>(text.as_bytes()).unwrap().check().unwrap().start("/home/user");
    let environment: Vec<_> = command.environment.iter().map(|v| String::from_utf8_lossy(v)).collect();
    assert_eq!(
        environment,
        ["A=1", "HOME=/home/user", "LANG=C.UTF-8", "PATH=/x", "TERM=xterm-256color", "USER=user"]
    );
    assert_eq!(command.directory, b"/home/user");
    assert_eq!(command.io, Io::Terminal { rows: 24, columns: 80 });
    assert_eq!((terms.timeout, terms.first_reader.as_secs()), (None, 10));
}
