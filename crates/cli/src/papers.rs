//! `blastbox papers`: completions for shells and pages for man, from the same definitions as the command line itself.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use clap::{CommandFactory, Subcommand};
use clap_complete::{Shell, generate};

use crate::args::Cli;
use crate::output;
use crate::problem::Problem;

const NAME: &str = "blastbox";

#[derive(Debug, Subcommand)]
pub(crate) enum PapersVerb {
    /// Completions for bash
    Bash,
    /// Completions for zsh
    Zsh,
    /// Completions for fish
    Fish,
    /// Pages for man, one per verb, into this directory
    Man {
        /// The directory, which must be there
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
}

pub(crate) fn papers(verb: &PapersVerb) -> Result<u8, Problem> {
    let shell = match verb {
        PapersVerb::Bash => Shell::Bash,
        PapersVerb::Zsh => Shell::Zsh,
        PapersVerb::Fish => Shell::Fish,
        PapersVerb::Man { directory } => {
            return pages(directory)
                .map(|()| 0)
                .map_err(|source| Problem::Papers { path: directory.clone(), source });
        }
    };
    let mut text = Vec::new();
    generate(shell, &mut Cli::command(), NAME, &mut text);
    output::print(&String::from_utf8_lossy(&text))?;
    Ok(0)
}

fn pages(directory: &Path) -> io::Result<()> {
    let mut whole = Cli::command();
    whole.build();
    page(&whole, NAME, directory)?;
    for verb in whole.get_subcommands().filter(|verb| !verb.is_hide_set() && verb.get_name() != "help") {
        page(verb, &format!("{NAME}-{}", verb.get_name()), directory)?;
    }
    Ok(())
}

fn page(command: &clap::Command, name: &str, directory: &Path) -> io::Result<()> {
    let command = command.clone().display_name(name.to_owned());
    let mut file = File::create(directory.join(format!("{name}.1")))?;
    clap_mangen::Man::new(command).title(name).render(&mut file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definitions_hold_together_and_every_verb_is_completed() {
        Cli::command().debug_assert();
        let mut text = Vec::new();
        generate(Shell::Bash, &mut Cli::command(), NAME, &mut text);
        let text = String::from_utf8(text).unwrap();
        for verb in ["run", "serve", "attach", "cp", "audit"] {
            assert!(text.contains(&format!("blastbox,{verb}")) || text.contains(verb), "{verb}");
        }
    }
}
