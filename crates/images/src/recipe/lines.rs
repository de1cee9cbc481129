//! The lines of a recipe: continued ones joined, comments gone.

/// The most that is shown of a step.
const SHOWN: usize = 120;

/// Why a text is no recipe.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecipeError {
    /// It is longer than any honest recipe.
    #[error("the recipe is longer than {most} bytes")]
    TooLong {
        /// So many are read.
        most: usize,
    },
    /// It has more steps than anybody needs.
    #[error("the recipe has more than {most} steps")]
    TooMany {
        /// So many are taken.
        most: usize,
    },
    /// There is nothing in it.
    #[error("the recipe is empty; it begins with FROM and an image")]
    Empty,
    /// Something that Dockerfiles may say and this does not do.
    #[error("line {line}: {what} is not supported")]
    Unsupported {
        /// Where.
        line: usize,
        /// What.
        what: String,
    },
    /// Something that means nothing.
    #[error("line {line}: {why}")]
    Wrong {
        /// Where.
        line: usize,
        /// Why.
        why: String,
    },
}

/// One instruction.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) number: usize,
    pub(super) word: String,
    pub(super) rest: String,
}

impl Line {
    pub(super) fn wrong(&self, why: impl Into<String>) -> RecipeError {
        RecipeError::Wrong { line: self.number, why: why.into() }
    }

    pub(super) fn unsupported(&self, what: &str) -> RecipeError {
        RecipeError::Unsupported { line: self.number, what: what.to_owned() }
    }

    /// As it is written, cut and without control characters.
    pub(super) fn shown(&self) -> String {
        let text: String = format!("{} {}", self.word.to_ascii_uppercase(), self.rest.trim());
        let text: String =
            text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
        match text.char_indices().nth(SHOWN).and_then(|(end, _)| text.get(..end)) {
            Some(head) => format!("{head}…"),
            None => text,
        }
    }
}

pub(super) fn lines(text: &str) -> Result<Vec<Line>, RecipeError> {
    let mut found = Vec::new();
    let mut all = text.lines().enumerate().map(|(at, line)| (at + 1, line));
    while let Some((number, first)) = all.next() {
        let trimmed = first.trim();
        if let Some(comment) = trimmed.strip_prefix('#') {
            let directive = comment.trim().to_ascii_lowercase().replace(' ', "");
            if found.is_empty() && directive.starts_with("escape=") && !directive.ends_with('\\') {
                return Err(RecipeError::Unsupported {
                    line: number,
                    what: "another escape character".into(),
                });
            }
            continue;
        }
        if trimmed.is_empty() {
            continue;
        }
        let mut whole = String::new();
        let mut line = first;
        while let Some(continued) = line.trim_end().strip_suffix('\\') {
            whole.push_str(continued);
            // Comments and empty lines between are passed over, as Docker does.
            let next =
                all.by_ref().find(|(_, next)| !next.trim().is_empty() && !next.trim_start().starts_with('#'));
            let Some((_, next)) = next else {
                line = "";
                break;
            };
            line = next;
        }
        whole.push_str(line);
        let whole = whole.trim();
        let (word, rest) = whole.split_once(char::is_whitespace).unwrap_or((whole, ""));
        found.push(Line { number, word: word.to_owned(), rest: rest.to_owned() });
    }
    Ok(found)
}
