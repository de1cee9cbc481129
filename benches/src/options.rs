//! What was asked for on the command line.

use std::path::PathBuf;

/// How it is called.
pub(crate) const USAGE: &str = "usage: blastbox-bench [--quick] [--json FILE] [NAME…]";

/// What was asked for.
#[derive(Debug, Default)]
pub(crate) struct Options {
    /// Fewer samples.
    pub(crate) quick: bool,
    /// Where to keep everything.
    pub(crate) json: Option<PathBuf>,
    names: Vec<String>,
}

impl Options {
    /// Reads the arguments; `known` are the names of the benchmarks.
    pub(crate) fn read(arguments: impl Iterator<Item = String>, known: &[&str]) -> Result<Self, String> {
        let mut options = Self::default();
        let mut arguments = arguments;
        while let Some(argument) = arguments.next() {
            match argument.as_str() {
                "--quick" => options.quick = true,
                "--json" => {
                    let file = arguments.next().ok_or("--json needs the name of a file")?;
                    options.json = Some(file.into());
                }
                name if known.contains(&name) => options.names.push(argument),
                other => {
                    return Err(format!("there is no benchmark `{other}`; there are: {}", known.join(", ")));
                }
            }
        }
        Ok(options)
    }

    /// Whether a benchmark is to run.
    pub(crate) fn wants(&self, name: &str) -> bool {
        self.names.is_empty() || self.names.iter().any(|wanted| wanted == name)
    }

    /// How many samples: all of them, or a few.
    pub(crate) fn samples(&self, all: usize, few: usize) -> usize {
        if self.quick { few } else { all }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &[&str]) -> Result<Options, String> {
        Options::read(words.iter().map(|&word| word.to_owned()), &["cycle", "command"])
    }

    #[test]
    fn without_names_everything_runs_and_a_name_selects() {
        assert!(read(&[]).unwrap().wants("command"));
        let some = read(&["--quick", "cycle", "--json", "x.json"]).unwrap();
        assert!(some.wants("cycle") && !some.wants("command") && some.quick);
        assert_eq!(some.json, Some("x.json".into()));
    }

    #[test]
    fn an_unknown_name_is_refused() {
        assert!(read(&["--fast"]).unwrap_err().contains("cycle, command"));
        assert!(read(&["--json"]).is_err());
    }
}
