//! The receipt of a run that never began: once the command line could be read, whoever asked for one gets it, whatever was wrong
//! with the rest.

use std::os::unix::ffi::OsStrExt as _;
use std::time::SystemTime;

use blastbox_engine::{Unasked, receipt_unasked};
use blastbox_isolation::Facts;
use blastbox_wire::receipt::{Reason, Receipt};

use crate::args::RunArgs;
use crate::capture::{Capture, Document};
use crate::output;
use crate::problem::Problem;
use crate::receipt_file::ReceiptFile;

/// Hands out the receipt, where one was asked for, and passes the problem on.
pub(crate) fn told(args: &RunArgs, problem: Problem) -> Problem {
    if !args.json && args.receipt.is_none() {
        return problem;
    }
    let receipt = receipt(args, &problem);
    // A place that cannot be written is the problem itself, or a second one: then there are two things to say.
    if let Some(path) = args.receipt.as_deref().filter(|_| !matches!(problem, Problem::Receipt { .. }))
        && let Err(second) = ReceiptFile::prepare(path).and_then(|file| file.write(&receipt))
    {
        output::say(&format!("error: {}\n", output::plain(&second.line())));
    }
    if args.json
        && let Err(second) = output::print_json(&Document::new(&receipt, Capture::default()))
    {
        output::say(&format!("error: {}\n", output::plain(&Problem::from(second).line())));
    }
    problem
}

fn receipt(args: &RunArgs, problem: &Problem) -> Receipt {
    let policy = args.policy.seal(args.source.workspace.as_ref()).ok();
    let arguments: Vec<Vec<u8>> = args.command.iter().map(|word| word.as_bytes().to_vec()).collect();
    let reason = Reason {
        code: problem.code().unwrap_or(problem.outcome().as_str()).to_owned(),
        message: problem.line(),
        fix: problem.fix(),
    };
    receipt_unasked(Unasked {
        policy: policy.as_ref(),
        image: args.source.image.clone(),
        facts: &Facts::look(),
        arguments: &arguments,
        at: SystemTime::now(),
        outcome: problem.outcome(),
        reason,
    })
}
