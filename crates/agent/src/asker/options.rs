//! The command line of `sudo`, as far as it means something in a box. What is not known is refused by name.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

const HELP: &str =
    "usage: sudo [-EHnS] [-u USER] [-i | -s] [--preserve-env[=NAMES]] [NAME=value …] [--] [COMMAND …]
Runs a command as root of this box, or as another user of it. No password is asked for.";

/// What a command line wants.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// Nothing more: `-v`, `-k`.
    Nothing,
    /// A text.
    Text(&'static str),
    /// A command.
    Command(Ask),
}

/// What of the caller's variables a command has.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Environment {
    Whole,
    Named(Vec<Vec<u8>>),
}

/// A command to run.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Ask {
    /// Name, or `#` and a number.
    pub(super) user: Vec<u8>,
    pub(super) environment: Environment,
    /// As after a login: in the user's home, by its shell.
    pub(super) login: bool,
    pub(super) variables: Vec<(Vec<u8>, Vec<u8>)>,
    /// Program and arguments. Empty: a shell.
    pub(super) command: Vec<Vec<u8>>,
}

pub(super) fn parse(words: Vec<OsString>) -> Result<Wanted, String> {
    let mut words = words.into_iter().map(OsString::into_vec).peekable();
    let mut ask = Ask {
        user: b"root".to_vec(),
        environment: Environment::Named(Vec::new()),
        login: false,
        variables: Vec::new(),
        command: Vec::new(),
    };
    let mut shell = false;
    while let Some(word) = words.next_if(|word| word.starts_with(b"-") && word.len() > 1) {
        if word == b"--" {
            break;
        }
        if let Some(long) = word.strip_prefix(b"--") {
            let mut halves = long.splitn(2, |byte| *byte == b'=');
            let (name, value) = (halves.next().unwrap_or_default(), halves.next());
            match (name, value) {
                (b"user", Some(user)) => ask.user = user.to_vec(),
                (b"user", None) => ask.user = words.next().ok_or("--user wants a user")?,
                (b"preserve-env", None) => ask.environment = Environment::Whole,
                (b"preserve-env", Some(names)) => {
                    if let Environment::Named(kept) = &mut ask.environment {
                        kept.extend(names.split(|byte| *byte == b',').map(<[u8]>::to_vec));
                    }
                }
                (b"non-interactive" | b"set-home" | b"stdin" | b"reset-timestamp", None) => {}
                (b"login", None) => (ask.login, shell) = (true, true),
                (b"shell", None) => shell = true,
                (b"validate" | b"remove-timestamp", None) => return Ok(Wanted::Nothing),
                (b"help", None) => return Ok(Wanted::Text(HELP)),
                (b"version", None) => return Ok(Wanted::Text(version())),
                _ => return Err(unknown(&word)),
            }
            continue;
        }
        let mut letters = word.iter().copied().skip(1);
        while let Some(letter) = letters.next() {
            match letter {
                b'u' => {
                    let rest: Vec<u8> = letters.by_ref().collect();
                    ask.user = if rest.is_empty() { words.next().ok_or("-u wants a user")? } else { rest };
                }
                b'E' => ask.environment = Environment::Whole,
                // Nothing is ever asked, and the home is the user's anyway.
                b'n' | b'S' | b'H' => {}
                b'k' if words.peek().is_some() => {}
                b'i' => (ask.login, shell) = (true, true),
                b's' => shell = true,
                b'v' | b'k' | b'K' => return Ok(Wanted::Nothing),
                b'h' => return Ok(Wanted::Text(HELP)),
                b'V' => return Ok(Wanted::Text(version())),
                _ => return Err(unknown(&word)),
            }
        }
    }
    let mut rest: Vec<Vec<u8>> = words.collect();
    let assignments = rest.iter().take_while(|word| assignment(word).is_some()).count();
    ask.variables = rest.drain(..assignments).filter_map(|word| assignment(&word)).collect();
    ask.command = rest;
    if ask.command.is_empty() && !shell {
        return Err(format!("no command is given\n{HELP}"));
    }
    Ok(Wanted::Command(ask))
}

fn version() -> &'static str {
    concat!("sudo of blastbox ", env!("CARGO_PKG_VERSION"))
}

fn unknown(word: &[u8]) -> String {
    format!("the option {} means nothing in a box\n{HELP}", super::people::quoted(word))
}

fn assignment(word: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let at = word.iter().position(|byte| *byte == b'=')?;
    let (name, value) = (word.get(..at)?, word.get(at + 1..)?);
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    let is_name = !name.is_empty() && name.iter().all(plain) && !name.first()?.is_ascii_digit();
    is_name.then(|| (name.to_vec(), value.to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(line: &str) -> Ask {
        match parse(line.split_whitespace().map(OsString::from).collect()) {
            Ok(Wanted::Command(ask)) => ask,
            other => panic!("{line}: {other:?}"),
        }
    }

    fn words(texts: &[&str]) -> Vec<Vec<u8>> {
        texts.iter().map(|text| text.as_bytes().to_vec()).collect()
    }

    #[test]
    fn a_command_begins_where_options_end() {
        let ask = asked("-n apt-get -y install x");
        assert_eq!(
            (ask.user.as_slice(), ask.command),
            (&b"root"[..], words(&["apt-get", "-y", "install", "x"]))
        );
        let ask = asked("-E -u nobody -- -odd A=1");
        assert_eq!((ask.user.as_slice(), ask.command), (&b"nobody"[..], words(&["-odd", "A=1"])));
        assert_eq!(ask.environment, Environment::Whole);
        for line in ["-nuwww id", "--user=www id", "--user www id", "-u www id"] {
            assert_eq!(asked(line).user, b"www", "{line}");
        }
    }

    #[test]
    fn variables_before_the_command_are_its_own() {
        let ask = asked("A=1 B= env C=3");
        assert_eq!(ask.variables, [(b"A".to_vec(), b"1".to_vec()), (b"B".to_vec(), Vec::new())]);
        assert_eq!(ask.command, words(&["env", "C=3"]));
    }

    #[test]
    fn shells_need_no_command_and_everything_else_does() {
        assert!(asked("-i").login && asked("-s").command.is_empty());
        assert!(parse(vec!["-u".into(), "root".into()]).is_err());
        assert!(parse(Vec::new()).is_err());
        assert_eq!(parse(vec!["-v".into()]), Ok(Wanted::Nothing));
    }

    #[test]
    fn what_means_nothing_here_is_refused_by_name() {
        for option in ["-g", "-b", "-l", "--chroot=/x", "-R", "-D"] {
            let refused = parse(vec![option.into(), "x".into()]).unwrap_err();
            assert!(refused.contains(option), "{refused}");
        }
    }
}
