//! A lease of a real box: from its making to the record that it is revoked. Needs root, `/dev/net/tun` and the built programs; where one of them is
//! missing, it says so.

use std::path::{Path, PathBuf};
use std::process::Command;

use blastbox_engine::Engine;
use blastbox_engine::keeper::{Keeper, KeeperConfig, NewBox, Tenant};
use blastbox_engine::ledger::{Ledger, LedgerError, Options, records};
use blastbox_images::Image;
use blastbox_isolation::Warden;
use blastbox_isolation::warden::find_program;
use blastbox_policy::{Gap, parse};
use blastbox_wire::event::Event;
use blastbox_wire::event::ledger_text::read_record;

use crate::in_vault::world;
use crate::rig::Room;

const PROGRAMS: [&str; 3] = ["blastbox-warden", "blastbox-egress", "blastbox-agent"];
const POLICY: &str = "threat = \"medium\"\n[network]\nmode = \"allow\"\n\
    allow = [{ host = \"api.example.com\", tls = \"inspect\" }]\n[credentials]\nmode = \"brokered\"\n\
    bind = [{ secret = \"db\", host = \"api.example.com\" }]\n";

/// Set where this program runs among the built ones: a gateway is looked for beside whoever wants it.
const AMONG: &str = "BLASTBOX_TEST_AMONG_PROGRAMS";
const NAME: &str = "of_a_box::the_end_of_a_box_that_worked_revokes_its_lease_and_the_ledger_says_so";

/// The built programs, or why there can be no box with a network.
fn programs() -> Result<PathBuf, &'static str> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/blastbox");
    let dir = std::env::var_os("BLASTBOX_BIN_DIR").map_or_else(beside, PathBuf::from);
    if !rustix::process::geteuid().is_root() {
        Err("not root")
    } else if !Path::new("/dev/net/tun").exists() {
        Err("boxes with network need /dev/net/tun")
    } else if !PROGRAMS.iter().all(|program| dir.join(program).is_file()) {
        Err("the built programs are not in BLASTBOX_BIN_DIR or target/blastbox: run `make build`")
    } else {
        std::path::absolute(dir).map_err(|_| "the built programs cannot be found")
    }
}

/// What the ledger says of secrets, in its order.
fn said(ledger: &Path) -> Vec<String> {
    let mut said = Vec::new();
    records(ledger, |_, _, line| {
        match read_record(line).unwrap().event {
            Event::SecretMinted { secret, .. } => said.push(format!("minted {}", secret.as_str())),
            Event::SecretRevoked { secret } => said.push(format!("revoked {}", secret.as_str())),
            Event::SecretTrouble { secret, why } => {
                said.push(format!("trouble {}: {}", secret.as_str(), why.as_str()));
            }
            Event::BoxEnded { .. } => said.push("ended".to_owned()),
            _ => {}
        }
        Ok::<_, LedgerError>(())
    })
    .unwrap();
    said
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "this program once more, in a place where it finds the others")]
async fn the_end_of_a_box_that_worked_revokes_its_lease_and_the_ledger_says_so() {
    if std::env::var_os(AMONG).is_some() {
        return live_and_end().await;
    }
    let dir = match programs() {
        Ok(dir) => dir,
        Err(why) => return blastbox_skips::skip_this(why),
    };
    let room = Room::new();
    for program in PROGRAMS {
        std::os::unix::fs::symlink(dir.join(program), room.0.join(program)).unwrap();
    }
    let own = room.0.join("leases");
    std::fs::copy(std::env::current_exe().unwrap(), &own).unwrap();
    let ended = Command::new(own).args(["--exact", NAME]).env(AMONG, "1").output().unwrap();
    let said = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success() && said.contains("1 passed"), "{said}");
}

async fn live_and_end() {
    let (vault, room, broker, register) = world().await;
    let warden = Warden::start_program(&find_program().unwrap()).unwrap();
    let engine = Engine::with_warden(warden).unwrap().lending(broker);
    let ledger = Ledger::open(Options::new(room.0.join("ledger"), room.0.join("ledger.key"))).unwrap();
    let keeper = Keeper::start_recorded(engine, KeeperConfig::default(), ledger).unwrap();
    // Whatever this host lacks, it is not what is tested here.
    let policy = Gap::ALL.iter().fold(parse(POLICY).unwrap(), |draft, gap| draft.accept(*gap));
    let me = Tenant::local();
    let card = keeper.create(&me, NewBox::new(policy.seal().unwrap(), Image::host())).await.unwrap();
    assert_eq!(vault.state.lock().unwrap().leases.len(), 1);
    assert_eq!(register.all().unwrap().leases.len(), 1);
    keeper.kill(&me, &card.id).await.unwrap();
    // Before whoever ended it hears that it is gone.
    assert_eq!(vault.state.lock().unwrap().leases.len(), 0);
    assert_eq!(register.all().unwrap().leases, []);
    keeper.stop().await;
    assert_eq!(said(&room.0.join("ledger")), ["minted db", "revoked db", "ended"]);
}
