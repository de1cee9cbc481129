//! The first piece of code in a sandbox of the code interpreter whose box, and Python in it, waited in the pool; over E2B's wire, on loopback.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::daemon::Daemon;
use crate::http::Client;
use crate::options::Options;
use crate::paper::{Finding, Promise, Row, Wrong};
use crate::sample::Samples;

const POOL: &str = "[[pool.warm]]\ntemplate = \"code-interpreter-v1\"\nmin = 2\n";
const TITLE: &str = "interpreter · create a sandbox, run code, over E2B's wire on loopback, one at a time";
/// In milliseconds.
const FIRST: f64 = 50.0;
/// A pool that has no member by then never will.
const PATIENCE: Duration = Duration::from_secs(120);
const ASK: &str = r#"{"code":"1+1"}"#;

/// Measures it.
pub(crate) fn measure(options: &Options) -> Result<Finding, Wrong> {
    if !std::path::Path::new("/usr/lib/python3/dist-packages/IPython").is_dir() {
        let why = "the host's Python has no IPython (package ipython3)".to_owned();
        let rows = vec![Row::said("left out", "this host", why)];
        return Ok(Finding { title: TITLE, rows, promises: Vec::new() });
    }
    let daemon = Daemon::start_with(POOL)?;
    let mut client = daemon.client()?;
    let [mut creates, mut firsts, mut seconds] = [const { Samples::new() }; 3];
    for _ in 0..options.samples(40, 10) {
        wait_for_a_member(&mut client)?;
        let begun = Instant::now();
        let made = client.ask("POST", "/v2/sandboxes", r#"{"templateID":"code-interpreter-v1"}"#)?;
        creates.add_since(begun);
        let text = |name: &str| made.get(name).and_then(Value::as_str).ok_or(format!("no {name}"));
        let id = text("sandboxID")?;
        let mut inside = daemon.client()?.with_headers(&[
            ("e2b-sandbox-id", id),
            ("e2b-sandbox-port", "49999"),
            ("x-access-token", text("envdAccessToken")?),
        ]);
        for samples in [&mut firsts, &mut seconds] {
            let begun = Instant::now();
            inside.ask("POST", "/execute", ASK)?;
            samples.add_since(begun);
        }
        client.ask("DELETE", &format!("/sandboxes/{id}"), "")?;
    }
    let firsts = firsts.summary();
    Ok(Finding {
        title: TITLE,
        rows: vec![
            Row::times("create", "POST /v2/sandboxes, a member of the pool", creates.summary()),
            Row::times("the first code", "POST /execute {\"code\":\"1+1\"}", firsts),
            Row::times("the second", "the same", seconds.summary()),
        ],
        promises: vec![Promise {
            says: format!("the first code from the pool takes {FIRST} ms in the middle"),
            measured: format!("{:.1} ms", firsts.median),
            kept: Some(firsts.median <= FIRST),
        }],
    })
}

/// A box of the pool is counted when its Python is ready.
fn wait_for_a_member(client: &mut Client) -> Result<(), Wrong> {
    let begun = Instant::now();
    loop {
        let mut page = Vec::new();
        client.listen("/metrics", |piece| page.extend_from_slice(piece))?;
        let page = String::from_utf8_lossy(&page);
        let size = page.lines().find_map(|line| line.strip_prefix("blastbox_pool_boxes "));
        if size.and_then(|size| size.trim().parse::<u64>().ok()).is_some_and(|size| size >= 1) {
            return Ok(());
        }
        if begun.elapsed() > PATIENCE {
            return Err("no member of the pool gets ready".into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}
