//! Tells Rust code from comments, strings and tests, line by line. Not a parser: just enough for the rules.

/// One line of a file.
#[derive(Debug)]
pub(crate) struct Line {
    /// The line without comments, with every character of a literal replaced by `"`.
    pub(crate) code: String,
    /// Part of a `#[cfg(test)]` module.
    pub(crate) test: bool,
}

impl Line {
    pub(crate) fn is_code(&self) -> bool {
        !self.code.trim().is_empty()
    }

    /// Whole words only: `unsafe` is not found in `unsafe_code`.
    pub(crate) fn has_word(&self, word: &str) -> bool {
        self.code.split(|c: char| !(c.is_alphanumeric() || c == '_')).any(|found| found == word)
    }
}

/// A file, line by line.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) lines: Vec<Line>,
}

impl Source {
    pub(crate) fn read(text: &str) -> Self {
        let mut lines: Vec<Line> =
            strip(text).lines().map(|code| Line { code: code.to_owned(), test: false }).collect();
        mark_tests(&mut lines);
        Self { lines }
    }

    /// Lines of code that ship: neither blank, comment nor test.
    pub(crate) fn shipped(&self) -> usize {
        self.lines.iter().filter(|line| line.is_code() && !line.test).count()
    }
}

/// What the next character belongs to.
enum Mode {
    Code,
    LineComment,
    BlockComment { depth: usize },
    Text { end: String, escapes: bool },
}

/// Removes comments and blanks out literals; line breaks stay where they were.
fn strip(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    let mut mode = Mode::Code;
    while let Some(next) = rest.chars().next() {
        let mut taken = next.len_utf8();
        match &mut mode {
            Mode::Code => {
                if rest.starts_with("//") {
                    mode = Mode::LineComment;
                } else if rest.starts_with("/*") {
                    taken = 2;
                    mode = Mode::BlockComment { depth: 1 };
                } else if let Some((opening, end, escapes)) = literal(&out, rest) {
                    taken = opening;
                    out.push('"');
                    mode = Mode::Text { end, escapes };
                } else {
                    out.push(next);
                }
            }
            Mode::LineComment => {
                if next == '\n' {
                    out.push('\n');
                    mode = Mode::Code;
                }
            }
            Mode::BlockComment { depth } => {
                if rest.starts_with("/*") {
                    taken = 2;
                    *depth += 1;
                } else if rest.starts_with("*/") {
                    taken = 2;
                    *depth -= 1;
                    if *depth == 0 {
                        out.push(' ');
                        mode = Mode::Code;
                    }
                } else if next == '\n' {
                    out.push('\n');
                }
            }
            Mode::Text { end, escapes } => {
                if *escapes && next == '\\' {
                    taken += rest.chars().nth(1).filter(|&escaped| escaped != '\n').map_or(0, char::len_utf8);
                    out.push('"');
                } else if rest.starts_with(end.as_str()) {
                    taken = end.len();
                    out.push('"');
                    mode = Mode::Code;
                } else {
                    out.push(if next.is_whitespace() { next } else { '"' });
                }
            }
        }
        rest = rest.get(taken..).unwrap_or_default();
    }
    out
}

/// A literal that begins here: bytes of its opening, what ends it, and whether `\` escapes in it.
fn literal(before: &str, rest: &str) -> Option<(usize, String, bool)> {
    if rest.starts_with('"') {
        return Some((1, "\"".to_owned(), true));
    }
    if rest.starts_with('\'') {
        // `'a'` and `'\n'` are characters, `'a` is a lifetime.
        let mut following = rest.chars().skip(1);
        let first = following.next()?;
        let closed = following.next() == Some('\'');
        return (first == '\\' || closed).then(|| (1, "'".to_owned(), true));
    }
    let inside_a_word = before.ends_with(|c: char| c.is_alphanumeric() || c == '_');
    let prefix = ["br", "cr", "r"].into_iter().find(|prefix| rest.starts_with(prefix))?;
    let after = rest.get(prefix.len()..)?;
    let hashes = after.bytes().take_while(|&byte| byte == b'#').count();
    let raw = !inside_a_word && after.get(hashes..)?.starts_with('"');
    raw.then(|| (prefix.len() + hashes + 1, format!("\"{}", "#".repeat(hashes)), false))
}

/// Marks every `#[cfg(test)] mod … { … }`, wherever it stands.
fn mark_tests(lines: &mut [Line]) {
    let mut at = 0;
    while let Some(begin) = lines.iter().skip(at).position(|line| line.code.contains("#[cfg(test)]")) {
        let begin = at + begin;
        let length = module_length(lines.iter().skip(begin).map(|line| line.code.as_str()));
        for line in lines.iter_mut().skip(begin).take(length) {
            line.test = true;
        }
        at = begin + length.max(1);
    }
}

/// Lines from the attribute to the closing brace of its module; 0 when the attribute belongs to something else.
fn module_length<'a>(lines: impl Iterator<Item = &'a str>) -> usize {
    let mut seen = String::new();
    for (index, line) in lines.enumerate() {
        seen.push_str(line);
        seen.push(' ');
        let Some(head) = seen.split(['{', ';']).next().filter(|head| head.len() < seen.len()) else {
            continue;
        };
        if !head.split_whitespace().any(|word| word == "mod") {
            return 0;
        }
        if seen.matches('{').count() == seen.matches('}').count() {
            return index + 1;
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str, word: &str) -> bool {
        Source::read(text).lines.iter().any(|line| line.has_word(word))
    }

    #[test]
    fn comments_and_literals_are_not_code() {
        for text in [
            "// unsafe\n",
            "/* unsafe /* unsafe */ unsafe */\n",
            "let a = \"unsafe \\\" unsafe\";\n",
            "let a = r#\"unsafe \" unsafe\"#;\n",
            "let a = b\"unsafe\";\n",
            "let q = '\"'; // unsafe\n",
            "let a = \"first\n unsafe\";\n",
            "#![allow(unsafe_code)]\n",
        ] {
            assert!(!words(text, "unsafe"), "{text}");
        }
    }

    #[test]
    fn code_after_comments_and_literals_is_still_code() {
        for text in [
            "/* x */ unsafe {}\n",
            "let a = \"x\"; unsafe {}\n",
            "let a = '\"'; unsafe {}\n",
            "let a = '\\''; unsafe {}\n",
            "fn f<'a>(x: &'a str) { unsafe {} }\n",
            "let a = r\"\\\"; unsafe {}\n",
        ] {
            assert!(words(text, "unsafe"), "{text}");
        }
    }

    #[test]
    fn only_lines_that_ship_are_counted() {
        let text =
            "//! Doc.\n\nfn a() {\n    // why\n    b();\n}\n\n#[cfg(test)]\nmod tests {\n    fn c() {}\n}\n";
        assert_eq!(Source::read(text).shipped(), 3);
    }

    #[test]
    fn a_test_module_in_the_middle_ends_at_its_brace() {
        let text = "#[cfg(test)]\nmod tests {\n    const A: &str = \"}\";\n}\nfn after() {}\n";
        assert_eq!(Source::read(text).shipped(), 1);
    }

    #[test]
    fn a_test_function_alone_does_not_swallow_the_file() {
        let text = "#[cfg(test)]\nfn only() {}\nfn after() {}\n";
        assert_eq!(Source::read(text).shipped(), 3);
    }

    #[test]
    fn lines_keep_their_numbers() {
        let text = "a\n/* b\nc */\n\"d\ne\"\nf\n";
        assert_eq!(Source::read(text).lines.len(), 6);
    }
}
