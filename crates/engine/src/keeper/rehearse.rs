//! What a member of a pool runs once before it is anybody's, on a kernel whose first command costs far more than the next one.
//!
//! gVisor opens and maps the loader and the C library with the first program that needs them. Whoever claims the box would wait for it.

use std::time::Duration;

use blastbox_wire::agent::{Io, User};
use blastbox_wire::event::About;
use tokio::time::timeout;

use super::house::House;
use super::pen;
use crate::live::{Command, LiveBox};
use crate::outlet::{ExecEnd, ExecEvent};

/// Does nothing, with nothing of anybody. Where an image does not have it, the box has been asked for a command all the same.
const NOTHING: &str = "/bin/true";
/// How long that may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// Whether the member may be handed out: its command is over, however it ended, or it needs none. It is in the ledger as any other.
pub(crate) async fn rehearse(house: &House, live: &LiveBox, nobody: &About) -> bool {
    if !live.choice.chosen.as_ref().is_ok_and(|lowered| lowered.rehearses) {
        return true;
    }
    let command = Command {
        arguments: vec![NOTHING.into()],
        environment: Vec::new(),
        directory: b"/".to_vec(),
        io: Io::Pipes,
        user: User::Payload,
    };
    let number = live.take_number();
    let about = About { box_id: Some(live.id().clone()), ..nobody.clone() };
    if house.pen.announce(Some(&about), &pen::asked(number, &command)).is_err() {
        return false;
    }
    let exec = live.exec_as(number, command, Vec::new()).await;
    let over = async {
        loop {
            if let ExecEvent::Ended(end) = exec.next().await {
                break end;
            }
        }
    };
    let end = timeout(PATIENCE, over).await.ok();
    house.pen.record(&about, &pen::over(number, end.as_ref()));
    matches!(end, Some(ExecEnd::Exited { .. } | ExecEnd::NotStarted { .. }))
}
