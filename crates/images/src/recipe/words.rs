//! Words of a line: in quotes, in a list, and with variables in them.

use std::collections::BTreeMap;

/// Words as a shell splits them, quotes taken off. Variables stay.
pub(super) fn shell_words(text: &str) -> Result<Vec<String>, &'static str> {
    let (mut words, mut word, mut begun) = (Vec::new(), String::new(), false);
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        match letter {
            quote @ ('"' | '\'') => {
                begun = true;
                loop {
                    match letters.next() {
                        None => return Err("a quote is not closed"),
                        Some(next) if next == quote => break,
                        Some('\\') if quote == '"' => match letters.next() {
                            Some(next @ ('"' | '\\')) => word.push(next),
                            Some(next) => word.extend(['\\', next]),
                            None => return Err("a quote is not closed"),
                        },
                        // A dollar in these quotes is only that.
                        Some('$') if quote == '\'' => word.push_str("\\$"),
                        Some(next) => word.push(next),
                    }
                }
            }
            '\\' => {
                begun = true;
                match letters.next() {
                    Some('$') => word.push_str("\\$"),
                    Some(next) => word.push(next),
                    None => return Err("a line ends in the middle of a character"),
                }
            }
            space if space.is_whitespace() => {
                if begun {
                    words.push(std::mem::take(&mut word));
                    begun = false;
                }
            }
            other => {
                begun = true;
                word.push(other);
            }
        }
    }
    if begun {
        words.push(word);
    }
    Ok(words)
}

/// A list of words in JSON.
pub(super) fn json_words(text: &str) -> Option<Vec<String>> {
    serde_json::from_str(text).ok()
}

/// `$NAME` and `${NAME}` by what they mean so far; `\$` is a dollar. Other forms are refused: they would mean something else.
pub(super) fn expand(text: &str, env: &BTreeMap<String, String>) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        let (before, behind) = rest.split_at(at);
        if let Some(before) = before.strip_suffix('\\') {
            out.push_str(before);
            out.push('$');
            rest = behind.get(1..).unwrap_or_default();
            continue;
        }
        out.push_str(before);
        let behind = behind.get(1..).unwrap_or_default();
        let (name, after) = match behind.strip_prefix('{') {
            Some(inner) => inner.split_once('}').ok_or_else(|| "a ${ is not closed".to_owned())?,
            None => {
                let end =
                    behind.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(behind.len());
                behind.split_at(end)
            }
        };
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
            return Err(format!("${{{name}}} is not supported; $NAME and ${{NAME}} are"));
        }
        match (env.get(name), name) {
            (Some(value), _) => out.push_str(value),
            // What every command of a box has; other variables of the image are not known while the recipe is read.
            (None, "PATH") => out.push_str("/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"),
            (None, _) => return Err(format!("${name} is not set by this recipe before this line")),
        }
        rest = after;
    }
    out.push_str(rest);
    Ok(out)
}
