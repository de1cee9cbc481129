//! How much of the kernel's memory a box can hold by connections that nobody reads.

use blastbox_tests::census::family;
use blastbox_tests::{Caller, both_ways, wait_until};

use super::{COMMON, with_echo};

both_ways!(what_nobody_reads_has_a_bound);

const FLOWS: usize = 256;
/// What the buffers of all connections share, and what each of those that find nothing left of it has in each direction.
const SHARED: u64 = 48 << 20;
const SMALL: u64 = 16 << 10;
/// What was on its way when a connection was taken: as much as any connection may send at first, with what the kernel adds to it.
const FIRST: u64 = 128 << 10;

/// Both sides say as much as they can, on as many connections as are allowed, and neither reads: the sockets of the gateway's hold no more
/// than they may, and neither does any of the box's own.
fn what_nobody_reads_has_a_bound(caller: &Caller) {
    let Some(internet) = with_echo(caller) else { return };
    let code = r#"
import select, sys, time
all = []
while len(all) < 256:
    try: all.append(reach(7))
    except OSError: time.sleep(0.05)  # as many in a second as are allowed
    else: all[-1].setblocking(False)
if not carried(all[0]):
    print("not carried", flush=True)
    sys.exit()
piece, idle = b"x" * 65536, 0
while idle < 20:
    ready = select.select([], all, [], 0.1)[1]
    idle = 0 if ready else idle + 1
    for one in ready:
        try: one.send(piece)
        except OSError: pass
print("full", flush=True)
sys.stdin.readline()
"#;
    let script = caller.file("code.py", format!("{COMMON}\n{code}"));
    let directory = script.parent().unwrap().to_str().unwrap().to_owned();
    let workspace = format!("{directory}:ro");
    let gaps = [
        "shared-uid",
        "no-memory-limit",
        "no-cpu-limit",
        "no-pids-limit",
        "shared-kernel",
        "host-image",
        "swap-unlimited",
    ];
    let mut words = vec!["run", "-i", "--profile", "medium", "--workspace", &workspace, "--timeout", "400s"];
    words.extend(gaps.iter().flat_map(|gap| ["--accept", gap]));
    words.extend(["--allow", "echo.example.com:7", "--", "/usr/bin/python3", "/workspace/code.py"]);
    let (reader, writer) = std::io::pipe().unwrap();
    let (out_reader, out) = std::io::pipe().unwrap();
    let err = caller.file("err", "");
    let null = std::fs::File::create(&err).unwrap();
    let held = internet.blastbox(caller, &words).start_with([reader.into(), out.into(), null.into()]);
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(out_reader));
    let said = lines.next().and_then(Result::ok).unwrap_or_default();
    if said == "not carried" {
        return caller.skip("this kernel has no short way");
    }
    assert_eq!(said, "full", "{}", std::fs::read_to_string(err).unwrap());
    let mut boxed = None;
    assert!(wait_until(|| {
        boxed = family(held.id()).into_iter().find(|process| process.name.starts_with("python"));
        boxed.is_some()
    }));
    let root = Caller::root("a look into a box's network").unwrap();
    let enter = format!("--target {} --net /usr/bin/ss -tanmOH state established", boxed.unwrap().pid);
    let table = root.program(std::path::Path::new("/usr/bin/nsenter"), enter.split(' ')).end();
    assert_eq!(table.code, 0, "{}", table.err);
    let (mut of_gateway, mut held_there, mut allowed_there) = (0, 0, 0);
    for line in String::from_utf8_lossy(&table.out).lines() {
        let sizes = line.split_once("skmem:(").unwrap().1;
        let size = |key: &str| -> u64 {
            let found = sizes.trim_end_matches(')').split(',').find_map(|word| {
                word.strip_prefix(key).and_then(|number| number.trim_end_matches(')').parse().ok())
            });
            found.unwrap()
        };
        let (held, allowed) = (size("r") + size("w"), size("rb") + size("tb"));
        // The gateway's is the one at the target's end.
        if line.split_whitespace().nth(2).unwrap().ends_with(":7") {
            of_gateway += 1;
            held_there += held;
            allowed_there += allowed;
        } else {
            assert!(allowed <= 2 << 20 && held <= (2 << 20) + FIRST, "{line}");
        }
    }
    assert_eq!(of_gateway, FLOWS);
    let all = u64::try_from(FLOWS).unwrap();
    assert!(allowed_there <= SHARED + all * 2 * SMALL, "{allowed_there}");
    assert!(held_there <= SHARED + all * 2 * (SMALL + FIRST), "{held_there}");
    assert!(held_there > 8 << 20, "they were filled: {held_there}");
    drop(writer);
    held.end();
}
