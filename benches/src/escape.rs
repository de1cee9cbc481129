//! Every break-out attempt in the jail, under every shipped profile that it can keep.

use crate::boxes::programs;
use crate::options::Options;
use crate::paper::{Finding, Promise, Row, Wrong};
use crate::process::run;
use crate::processors::Two;

/// So long may it take on two processors that have nothing else to do.
const MOST: f64 = 180.0;

/// Measures it, once: it is minutes.
pub(crate) fn measure(options: &Options) -> Result<Finding, Wrong> {
    let ours = programs()?.join("blastbox").display().to_string();
    let only: &[&str] = if options.quick { &["--only", "kernel"] } else { &[] };
    // A cell that proves nothing on a busy machine is no reason to have no time.
    let words = ["escape", "--tier", "jail", "--tolerate", "8"].iter().chain(only);
    let line: Vec<String> = [ours].into_iter().chain(words.map(|word| (*word).to_owned())).collect();
    let how = line.join(" ");
    let two = Two::keep_to()?;
    let seconds = run(&line)?.as_secs_f64();
    drop(two);
    let kept = (!options.quick).then_some(seconds <= MOST);
    Ok(Finding {
        title: "escape · every attempt in the jail, with its control",
        rows: vec![Row::said("a campaign", &how, format!("{seconds:.1} s"))],
        promises: vec![Promise {
            says: "a campaign in the jail on an idle machine with two processors".to_owned(),
            measured: format!("{seconds:.1} s; at most {MOST:.0} s"),
            kept,
        }],
    })
}
