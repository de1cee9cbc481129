//! A snippet in a fresh guest of a Wasm box that is there already, beside the native interpreter, in rounds; one with pandas imported
//! already; the next piece of code in a guest that remembers; the box itself, whose guests were compiled before; and programs that will not end.

mod bombs;
mod cost;

use std::time::{Duration, Instant};

use blastbox_engine::{BoxSpec, Command, Engine, ExecEnd, ExecEvent, LiveBox};
use blastbox_images::Image;
use blastbox_isolation::tiers::wasm::Guests;
use blastbox_isolation::{Facts, Warden};
use blastbox_policy::{Profile, Tier};
use blastbox_wire::agent::{Exit, Io, User};

use crate::boxes::{programs, runtime};
use crate::options::Options;
use crate::paper::{Finding, Promise, Row, Wrong};
use crate::process::{installed, run};
use crate::sample::{Samples, Summary};

const WARM_UP: usize = 5;
/// Commands of one kind that come one after the other, before the next kind has its turn: whoever asks a box for Pythons starts no node
/// in between, which would leave nothing of ours in any cache.
const ROUND: usize = 20;
/// Between two snippets: the guests that are kept ready for the next ones are begun meanwhile.
const PAUSE: Duration = Duration::from_millis(10);
const PYTHON: [&str; 3] = ["python", "-c", "print(1)"];
const JS: [&str; 3] = ["js", "-e", "console.log(1)"];
/// A Python whose image has pandas, where it was made.
const DATA: &str = "python-data";
const PANDAS: [&str; 3] = [DATA, "-c", "import pandas\nprint(pandas.DataFrame({'n': range(100)}).n.mean())"];

/// Interpreters that take one piece of code a line, and say when it is over.
const SESSIONS: [[&str; 3]; 2] = [
    ["python", "-c", "for line in open(0):\n    exec(line)\n    print('over', flush=True)"],
    ["js", "-e", "turns((line) => line, () => print('over'))"],
];

/// Measures it.
pub(crate) fn measure(options: &Options) -> Result<Finding, Wrong> {
    let [mut python, mut js, mut python3, mut node, mut python_turn, mut js_turn, mut pandas, mut starts] =
        [const { Samples::new() }; 8];
    let has_data = programs()?.join("wasm").join(format!("{DATA}.guest")).is_file();
    let native = |program: &str, flag: &str, code: &str| {
        installed(program).map(|path| [path.display().to_string(), flag.to_owned(), code.to_owned()])
    };
    let (snake, server) = (native("python3", "-c", "print(1)"), native("node", "-e", "console.log(1)"));
    let mut costs = Vec::new();
    runtime()?.block_on(async {
        let warden = Warden::start_program(&programs()?.join("blastbox-warden"))?;
        let pid = warden.pid();
        let mut facts = Facts::look();
        facts.wasm = Guests::at(&programs()?.join("wasm"));
        let again = warden.program().to_owned();
        let engine = Engine::with_supply(warden, Box::new(move || Warden::start_program(&again)), facts)?;
        let policy = Profile::Default.draft()?.tier(Tier::Wasm).seal()?;
        let image = Image::host();
        let spec = || BoxSpec { policy: &policy, image: &image, workspace: None, volumes: &[], secrets: &[] };
        let live = engine.create(spec()).await?;
        costs.push(cost::waiting(&live, pid).await?);
        for command in [&PYTHON, &JS].repeat(WARM_UP) {
            tokio::time::sleep(PAUSE).await;
            snippet(&live, command).await?;
        }
        for _ in 0..options.samples(200, 40) / ROUND {
            for (command, times) in [(&PYTHON, &mut python), (&JS, &mut js)] {
                for _ in 0..ROUND {
                    tokio::time::sleep(PAUSE).await;
                    let begun = Instant::now();
                    snippet(&live, command).await?;
                    times.add_since(begun);
                }
            }
            for (line, times) in [(&snake, &mut python3), (&server, &mut node)] {
                for _ in 0..ROUND {
                    if let Some(line) = line {
                        times.add(run(line)?);
                    }
                }
            }
        }
        for turn in 0..if has_data { WARM_UP + options.samples(200, 40) } else { 0 } {
            tokio::time::sleep(PAUSE).await;
            let begun = Instant::now();
            snippet(&live, &PANDAS).await?;
            if turn >= WARM_UP {
                pandas.add_since(begun);
            }
        }
        costs.push(cost::rate(&live, pid, options.samples(400, 80)).await?);
        for (command, times) in SESSIONS.iter().zip([&mut python_turn, &mut js_turn]) {
            session(&live, command, options.samples(200, 40), times).await?;
        }
        live.end().await;
        for _ in 0..options.samples(20, 5) {
            tokio::time::sleep(PAUSE).await;
            let begun = Instant::now();
            let live = engine.create(spec()).await?;
            starts.add_since(begun);
            live.end().await;
        }
        costs.extend(bombs::measure(&engine, options).await?);
        Ok::<_, Wrong>(())
    })?;
    let (python, js) = (python.summary(), js.summary());
    let peer = |there: bool, times: &Samples| there.then(|| times.summary());
    let (python3, node) = (peer(snake.is_some(), &python3), peer(server.is_some(), &node));
    let against = |says: &str, most, ours, theirs: Option<Summary>| match theirs {
        Some(theirs) => Promise::at_most(says, most, ours, theirs),
        None => Promise { says: says.to_owned(), measured: "the peer did not run".to_owned(), kept: None },
    };
    let mut rows = vec![
        Row::times(
            "python in a fresh guest",
            "exec python -c 'print(1)', engine in this process; wish: p50 0.5 ms, p99 2 ms",
            python,
        ),
        Row::times("js in a fresh guest", "exec js -e 'console.log(1)', same box; wish: p50 0.3 ms", js),
        match has_data {
            true => Row::times(
                "pandas in a fresh guest",
                "a frame and its mean in python-data, same box; wish: p50 6 ms",
                pandas.summary(),
            ),
            false => Row::said(
                "pandas in a fresh guest",
                "python-data",
                "not made: `make wasm DATA=yes`".to_owned(),
            ),
        },
        Row::times(
            "next turn in a python",
            "one line of code to a guest that remembers; wish: p50 0.3 ms",
            python_turn.summary(),
        ),
        Row::times("next turn in a js", "the same, by `turns`", js_turn.summary()),
        Row::times(
            "the box itself",
            "Engine::create until the worker answers, guests compiled before; wish: p50 50 ms",
            starts.summary(),
        ),
    ];
    rows.extend(costs);
    rows.extend(python3.map(|times| Row::times("native python3", "python3 -c 'print(1)'", times)));
    rows.extend(node.map(|times| Row::times("native node", "node -e 'console.log(1)'", times)));
    Ok(Finding {
        title: "wasm · a snippet in a fresh guest of a box that is there, beside the native interpreter, in rounds of twenty",
        rows,
        promises: vec![
            against("a Python snippet costs at most half a start of python3", 0.5, python, python3),
            against("a JavaScript snippet costs at most a fifth of a start of node", 0.2, js, node),
        ],
    })
}

async fn snippet(live: &LiveBox, arguments: &[&str]) -> Result<(), Wrong> {
    let exec = live.exec(command(arguments, Io::Pipes)).await;
    loop {
        match exec.next().await {
            ExecEvent::Started { .. } | ExecEvent::Output { .. } | ExecEvent::Called(_) => {}
            ExecEvent::Ended(ExecEnd::Exited { exit: Exit::Code(0), .. }) => return Ok(()),
            ExecEvent::Ended(end) => return Err(format!("{arguments:?} ended badly: {end:?}").into()),
        }
    }
}

/// Pieces of code, one after the other, each until it is said to be over.
async fn session(
    live: &LiveBox,
    arguments: &[&str],
    samples: usize,
    times: &mut Samples,
) -> Result<(), Wrong> {
    let mut exec = live.exec(command(arguments, Io::PipesWithStdin)).await;
    let stdin = exec.stdin().ok_or("a session has no input")?;
    for turn in 0..WARM_UP + samples {
        let begun = Instant::now();
        stdin.write(b"x = 1\n").await.map_err(|_| format!("{arguments:?} is over"))?;
        let mut heard = Vec::new();
        while !heard.ends_with(b"over\n") {
            match exec.next().await {
                ExecEvent::Started { .. } | ExecEvent::Called(_) => {}
                ExecEvent::Output { bytes, .. } => heard.extend_from_slice(&bytes),
                ExecEvent::Ended(end) => return Err(format!("{arguments:?} ended: {end:?}").into()),
            }
        }
        if turn >= WARM_UP {
            times.add_since(begun);
        }
    }
    stdin.end().await.map_err(|_| format!("{arguments:?} is over"))?;
    while !matches!(exec.next().await, ExecEvent::Ended(_)) {}
    Ok(())
}

fn command(arguments: &[&str], io: Io) -> Command {
    Command {
        arguments: arguments.iter().map(|word| word.as_bytes().to_vec()).collect(),
        environment: vec![b"HOME=/home/user".to_vec()],
        user: User::Payload,
        directory: b"/workspace".to_vec(),
        io,
    }
}
