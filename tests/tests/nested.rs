//! Machines on a real KVM, on hosts without one: in a machine around them, whose emulated processor has hardware virtualisation.

use std::collections::BTreeSet;

use blastbox_tests::Caller;
use blastbox_tests::machines::{ONE_AT_A_TIME, Workshop};
use blastbox_tests::nested::Nested;

/// How often a boot may leave the guest for QEMU by a port and by memory. Each costs microseconds on hardware, and a driver that asks where
/// nothing answers asks thousands of times.
const PORT_EXITS: u64 = 5_000;
const MEMORY_EXITS: u64 = 1_000;

/// A box that boots by itself, a daemon's that begins as a copy, two forks of that, and one that begins with its snapshot. Each line that
/// counts begins with a word of its own.
const SCRIPT: &str = r#"
usual="--tier microvm --image tools --memory 256M --timeout 500s"
# Whoever is asked on a busy host may find this KVM too slow for once.
again() { for turn in 1 2 3 4 5 6 7 8; do "$@" && return; done; false; }
says() { blastbox doctor | grep -q "$1"; }
echo
# As a distribution keeps it: closed to the users of boxes, who get a file of their own for it.
chmod 0660 /dev/kvm
again says '/dev/kvm works' && echo "doctor: yes"
echo "holds: $(ls /store/names)"
# Held until somebody has looked at what its boot cost: how often the processor left the guest for QEMU, by port and by memory.
mount -t debugfs none /sys/kernel/debug; mkfifo /tmp/hold
alone() {
  blastbox run --quiet --interactive --threat critical --accept weak-landlock --store /store $usual -- \
    sh -c 'echo "alone: $(uname -r) $(id -u)"; read end; true' < /tmp/hold > /tmp/alone & run=$!
  exec 9> /tmp/hold
  while kill -0 $run 2> /dev/null && ! grep -q alone: /tmp/alone; do sleep 0.2; done
  cat /tmp/alone
  grep -q alone: /tmp/alone && echo "left guest: $(cat /sys/kernel/debug/kvm/*-*/io_exits) $(cat /sys/kernel/debug/kvm/*-*/mmio_exits)"
  exec 9>&-; wait $run && grep -q alone: /tmp/alone
}
again alone
serve() {
  blastbox serve --store /store --state-dir /tmp/state > /tmp/serve 2>&1 & daemon=$!
  for turn in $(seq 40); do blastbox ps > /dev/null 2>&1 && break; sleep 0.5; done
  box=$(blastbox create $usual) && return
  kill $daemon; wait $daemon; false
}
again serve
blastbox exec $box -- sh -c 'echo kept > /tmp/kept; echo "copy: $(uname -r) $(id -u)"'
snapshot=$(blastbox snapshot $box)
for one in $box $(blastbox fork $box --count 2) $(blastbox create --snapshot $snapshot); do
  echo "of $one: $(blastbox exec $one -- sh -c 'cat /tmp/kept; uname -n; head -c 16 /dev/urandom | hexdump -e "16/1 \"%02x\""' | tr '\n' ' ')"
done
blastbox kill --json $box > /tmp/receipt
echo "receipt: $(grep -c 'keeps guest and host apart (KVM)' /tmp/receipt) $(grep -c 'began as a copy' /tmp/receipt)"
kill $daemon; wait $daemon
echo "closed: $(stat -c %a /dev/kvm)"
echo "left: $(ls /sys/fs/cgroup | grep -c blastbox) $(ps | grep -c '[q]emu-system')"
"#;

/// And the host around them boots at most once: whoever comes later begins where the first one was kept, with a script and programs of its
/// own.
#[test]
fn machines_run_on_kvm_alone_as_copies_as_forks_and_from_snapshots() {
    let Some(caller) = Caller::root("machines_run_on_kvm_alone_as_copies_as_forks_and_from_snapshots") else {
        return;
    };
    let Some(workshop) = Workshop::new(&caller) else { return };
    // At once, and not when it is its turn: programs beside this one count boxes then.
    workshop.first_files();
    let _turn = ONE_AT_A_TIME.lock();
    let Some(mut host) = Nested::with(&caller, &workshop) else { return };
    let said = host.sh(SCRIPT);
    let after = |word: &str| -> Vec<&str> {
        said.lines().filter_map(|line| line.strip_prefix(word)).map(str::trim).collect()
    };
    assert_eq!((after("closed:"), after("doctor:")), (vec!["660"], vec!["yes"]), "{said}");
    for (how, words) in [("alone:", after("alone:")), ("copy:", after("copy:"))] {
        assert!(matches!(words.as_slice(), [one] if one.ends_with(" 1000")), "{how} {said}");
    }
    let exits: Vec<u64> = after("left guest:")
        .iter()
        .flat_map(|line| line.split_whitespace())
        .filter_map(|count| count.parse().ok())
        .collect();
    assert!(
        matches!(exits.as_slice(), [port, memory] if (1..=PORT_EXITS).contains(port) && (1..=MEMORY_EXITS).contains(memory)),
        "{said}"
    );
    println!("a boot left the guest {exits:?} times");
    assert_eq!(after("receipt:"), ["1 1"], "{said}");
    // The box, two forks and one from the snapshot: each has what was kept, its own name and its own randomness.
    let boxes = after("of bx_");
    let own: Vec<(&str, &str)> = boxes
        .iter()
        .filter_map(|line| match line.split_whitespace().collect::<Vec<_>>().as_slice() {
            [id, "kept", name, random] if name.strip_prefix("bx-") == id.strip_suffix(':') => {
                Some((*name, *random))
            }
            _ => None,
        })
        .collect();
    assert_eq!(own.len(), 4, "{said}");
    let names: BTreeSet<&str> = own.iter().map(|(name, _)| *name).collect();
    let randoms: BTreeSet<&str> = own.iter().map(|(_, random)| *random).collect();
    assert_eq!((names.len(), randoms.len()), (4, 4), "{said}");
    assert_eq!(after("left:"), ["0 0"], "{said}");
    let boots = host.boots();
    assert!(boots <= 1 && after("holds:") == ["tools"], "{boots} {said}");
    // It went on from where an earlier test had kept it. The one that keeps it looks whether it does.
    if boots == 1 {
        let again = host.sh("blastbox run --help > /dev/null && echo again: $(ls /dev/kvm) $(date +%Y)");
        assert!(again.contains("again: /dev/kvm 2") && !again.contains("copy:"), "{again}");
        assert_eq!(host.boots(), boots, "it was kept");
    }
}
