//! A recipe: how an image is made from another one. A part of what Dockerfiles say, and nothing else.
//!
//! Trust: whoever builds. What is not known is refused by line and name, never passed over: a recipe that builds means what
//! it says.

mod lines;
mod words;

use std::collections::BTreeMap;

pub use self::lines::RecipeError;
use self::lines::{Line, lines};
use self::words::{expand, json_words, shell_words};

/// The longest recipe that is read, in bytes.
pub const MAX_RECIPE: usize = 256 * 1024;
/// The most steps of one.
const MOST_STEPS: usize = 512;

/// A whole recipe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipe {
    /// The image that it begins with.
    pub from: String,
    /// What is done, in order.
    pub steps: Vec<RecipeStep>,
}

/// One step, and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecipeStep {
    /// The line that it begins on.
    pub line: usize,
    /// As it is written, for people.
    pub text: String,
    /// What it does.
    pub what: What,
}

/// What a step does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// Runs a command in a box.
    Run(Vec<String>),
    /// Copies files of the context.
    Copy {
        /// Which, relative to the context.
        from: Vec<String>,
        /// Where to; with a `/` at its end it is a directory.
        to: String,
    },
    /// Sets variables, for what follows and for boxes of the image.
    Env(BTreeMap<String, String>),
    /// The directory in which what follows works.
    Workdir(String),
    /// Who runs what follows.
    User(RecipeUser),
    /// What the image's maker would run.
    Command(Vec<String>),
}

/// Who runs a command of a recipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RecipeUser {
    /// Root of the box.
    #[default]
    Root,
    /// The box's ordinary user.
    User,
}

impl RecipeUser {
    /// The name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Root => "root",
            Self::User => "user",
        }
    }

    /// Who is meant by a name or number.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "root" | "0" | "root:root" | "0:0" => Some(Self::Root),
            "user" | "1000" | "user:user" | "1000:1000" => Some(Self::User),
            _ => None,
        }
    }
}

/// Reads a recipe.
pub fn parse(text: &str) -> Result<Recipe, RecipeError> {
    if text.len() > MAX_RECIPE {
        return Err(RecipeError::TooLong { most: MAX_RECIPE });
    }
    let mut from = None;
    let mut steps = Vec::new();
    // What `$NAME` means so far. Variables of the image that it begins with are not known here.
    let mut env: BTreeMap<String, String> = BTreeMap::new();
    let (mut workdir, mut entry) = ("/".to_owned(), Vec::new());
    for line in lines(text)? {
        let word = line.word.to_ascii_uppercase();
        if from.is_none() && word != "FROM" {
            return Err(line.wrong("the first instruction has to be FROM"));
        }
        let what = match word.as_str() {
            "FROM" if from.is_some() => return Err(line.unsupported("a second FROM (several stages)")),
            "FROM" => {
                from = Some(one_image(&line)?);
                continue;
            }
            "RUN" => What::Run(command(&line)?),
            "COPY" => copy(&line, &env, &workdir)?,
            "ENV" => {
                let set = variables(&line, &env)?;
                env.extend(set.clone());
                What::Env(set)
            }
            "WORKDIR" => {
                workdir = joined(&workdir, &expand(line.rest.trim(), &env).map_err(|why| line.wrong(why))?);
                What::Workdir(plain(&line, &workdir)?)
            }
            "USER" => {
                let name = line.rest.trim();
                What::User(
                    RecipeUser::named(name)
                        .ok_or_else(|| line.unsupported("a USER that is neither root nor user"))?,
                )
            }
            "ENTRYPOINT" => {
                entry = command(&line)?;
                What::Command(entry.clone())
            }
            "CMD" => {
                let mut words = entry.clone();
                words.extend(command(&line)?);
                What::Command(words)
            }
            _ => return Err(line.unsupported(&format!("the instruction {}", line.word))),
        };
        steps.push(RecipeStep { line: line.number, text: line.shown(), what });
        if steps.len() > MOST_STEPS {
            return Err(RecipeError::TooMany { most: MOST_STEPS });
        }
    }
    let from = from.ok_or(RecipeError::Empty)?;
    Ok(Recipe { from, steps })
}

fn one_image(line: &Line) -> Result<String, RecipeError> {
    let words: Vec<&str> = line.rest.split_whitespace().collect();
    match words.as_slice() {
        [image] if !image.starts_with("--") && !image.contains('$') => Ok((*image).to_owned()),
        [image, ..] if image.starts_with("--") => Err(line.unsupported("an option of FROM")),
        [_, word, _] if word.eq_ignore_ascii_case("as") => {
            Err(line.unsupported("FROM … AS (several stages)"))
        }
        _ => Err(line.wrong("FROM wants one image")),
    }
}

/// `["a", "b"]` as it is, anything else by the shell.
fn command(line: &Line) -> Result<Vec<String>, RecipeError> {
    let rest = line.rest.trim();
    if rest.starts_with("--") {
        return Err(line.unsupported("an option of RUN"));
    }
    if rest.contains("<<") && rest.split_whitespace().any(|word| word.starts_with("<<") && word.len() > 2) {
        return Err(line.unsupported("a here-document"));
    }
    let words = match rest.starts_with('[') {
        true => json_words(rest).ok_or_else(|| line.wrong("a list of words is written as [\"a\", \"b\"]"))?,
        false => vec!["/bin/sh".to_owned(), "-c".to_owned(), rest.to_owned()],
    };
    match words.is_empty() || rest.is_empty() {
        true => Err(line.wrong("there is no command")),
        false => Ok(words),
    }
}

fn copy(line: &Line, env: &BTreeMap<String, String>, workdir: &str) -> Result<What, RecipeError> {
    let rest = line.rest.trim();
    if rest.starts_with("--") {
        return Err(line.unsupported("an option of COPY"));
    }
    let words = match rest.starts_with('[') {
        true => json_words(rest).ok_or_else(|| line.wrong("a list of words is written as [\"a\", \"b\"]"))?,
        false => shell_words(rest).map_err(|why| line.wrong(why))?,
    };
    let words: Result<Vec<String>, _> = words.iter().map(|word| expand(word, env)).collect();
    let mut words = words.map_err(|why| line.wrong(why))?;
    let Some(to) = words.pop().filter(|_| !words.is_empty()) else {
        return Err(line.wrong("COPY wants something to copy and a place for it"));
    };
    if words.iter().any(|word| word.contains(['*', '?', '['])) {
        return Err(line.unsupported("a pattern in COPY; name files and directories"));
    }
    if words.iter().any(|word| word.split('/').any(|part| part == "..")) {
        return Err(line.wrong("COPY takes nothing from outside its context"));
    }
    let folder = to.ends_with('/') || words.len() > 1 || to == "." || to.ends_with("/.");
    let mut to = plain(line, &joined(workdir, &to))?;
    if folder && !to.ends_with('/') {
        to.push('/');
    }
    Ok(What::Copy { from: words, to })
}

fn variables(line: &Line, env: &BTreeMap<String, String>) -> Result<BTreeMap<String, String>, RecipeError> {
    let rest = line.rest.trim();
    let words = shell_words(rest).map_err(|why| line.wrong(why))?;
    let expanded = |text: &str| expand(text, env).map_err(|why| line.wrong(why));
    let named = |name: &str| -> Result<String, RecipeError> {
        let good = |(at, letter): (usize, char)| {
            letter == '_' || letter.is_ascii_alphabetic() || (at > 0 && letter.is_ascii_digit())
        };
        match !name.is_empty() && name.chars().enumerate().all(good) {
            true => Ok(name.to_owned()),
            false => Err(line.wrong("ENV wants NAME=value")),
        }
    };
    let first = words.first().ok_or_else(|| line.wrong("ENV wants NAME=value"))?;
    if !first.contains('=') {
        // The old form: a name, and everything behind it.
        let (name, value) =
            rest.split_once(char::is_whitespace).ok_or_else(|| line.wrong("ENV wants NAME=value"))?;
        return Ok(BTreeMap::from([(named(name)?, expanded(value.trim())?)]));
    }
    let pair = |word: &String| -> Result<(String, String), RecipeError> {
        let (name, value) = word.split_once('=').ok_or_else(|| line.wrong("ENV wants NAME=value"))?;
        Ok((named(name)?, expanded(value)?))
    };
    words.iter().map(pair).collect()
}

fn joined(workdir: &str, path: &str) -> String {
    if path.starts_with('/') { path.to_owned() } else { format!("{}/{path}", workdir.trim_end_matches('/')) }
}

/// An absolute path without `.` and `..`, with its last slash.
fn plain(line: &Line, path: &str) -> Result<String, RecipeError> {
    if path.contains('\0') || path.len() > 4_000 {
        return Err(line.wrong("this is no path"));
    }
    let mut whole = blastbox_wire::plan::plain(path);
    if path.ends_with('/') && whole != "/" {
        whole.push('/');
    }
    Ok(whole)
}

#[cfg(test)]
mod tests;
