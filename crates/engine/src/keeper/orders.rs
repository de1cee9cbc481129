//! The keeper as faces hold it: commands in boxes.

use std::sync::Arc;
use std::time::Duration;

use blastbox_isolation::Lowered;
use blastbox_wire::BoxId;
use tokio::time::timeout;

use super::calls::{CallCard, NoMore};
use super::cards::Tenant;
use super::commands::{KeptExec, Purpose, Title};
use super::error::KeepError;
use super::events::Happened;
use super::face::{Keeper, to_its_end, whose};
use super::kept::Starting;
use super::pen;
use super::pump::{Terms, answer_call, pump};
use super::tape::TapeReader;
use crate::failpoint;
use crate::live::Command;
use crate::tools::ToolAnswer;

impl Keeper {
    /// Runs a command. It goes on when nobody listens; what it prints goes on a tape.
    pub async fn exec(&self, tenant: &Tenant, id: &BoxId, command: Command) -> Result<u32, KeepError> {
        self.exec_within(tenant, id, command, None).await
    }

    /// Runs a command that is killed (signal 9, to its process group) when this time is over. Its end is then
    /// `Signalled { signal: 9 }` with `timed_out` on its card and in the event; its box goes on. Until its first reader has
    /// come, for the time that its terms say, nothing that it prints is overwritten.
    pub async fn exec_within(
        &self,
        tenant: &Tenant,
        id: &BoxId,
        command: Command,
        terms: impl Into<Terms>,
    ) -> Result<u32, KeepError> {
        let exec = self.run_for(tenant, id, command, terms.into(), Purpose::Owner).await?;
        Ok(exec.exec.number())
    }

    /// Runs a command that carries bytes for somebody else than the owner of the box, such as whoever asks for one of its
    /// ports. It is in the ledger like any other, never in the list of commands, and forgotten when it ends: what it
    /// prints is for this reader alone.
    pub async fn carry(
        &self,
        tenant: &Tenant,
        id: &BoxId,
        command: Command,
    ) -> Result<(u32, TapeReader), KeepError> {
        let exec = self.run_for(tenant, id, command, Terms::default(), Purpose::Carrier).await?;
        Ok((exec.exec.number(), exec.tape.reader(None)))
    }

    async fn run_for(
        &self,
        tenant: &Tenant,
        id: &BoxId,
        command: Command,
        terms: Terms,
        purpose: Purpose,
    ) -> Result<Arc<KeptExec>, KeepError> {
        let kept = self.touch(tenant, id)?;
        let calls_tools = || kept.live.choice().chosen.as_ref().is_ok_and(Lowered::calls_tools);
        if !terms.tools.is_empty() && !calls_tools() {
            return Err(KeepError::NoTools(kept.card.tier));
        }
        let starting = Starting::begin(&kept)?;
        let title = Title::of(&command, purpose);
        let number = kept.live.take_number();
        self.0.pen.announce(Some(&kept.about()), &pen::asked(number, &command))?;
        if purpose == Purpose::Owner {
            self.0.register.exec_begun(id, number, &command, terms.timeout);
        }
        failpoint::reach("exec-noted");
        let exec = kept.live.exec_as(number, command, terms.tools.clone()).await;
        failpoint::reach("exec-sent");
        // From here to the pump nothing waits, so that no caller who goes away leaves a command without one.
        let exec = kept.commands.add(title, exec, terms.tape());
        // Whoever watches over the box looks at it from now on, as long as something runs.
        kept.bell.notify_one();
        starting.done();
        self.0.count(|metrics| metrics.execs += 1);
        if purpose == Purpose::Owner {
            self.0.hub.tell(whose(&kept), Happened::ExecStarted { exec: number });
        }
        tokio::spawn(pump(Arc::clone(&self.0), kept, Arc::clone(&exec), terms));
        Ok(exec)
    }

    /// What a command printed, from after this place on its tape, and then live. Counts as a request.
    pub fn tape(
        &self,
        tenant: &Tenant,
        id: &BoxId,
        exec: u32,
        after: Option<u64>,
    ) -> Result<TapeReader, KeepError> {
        Ok(self.command(tenant, id, exec)?.tape.reader(after))
    }

    /// Passes bytes to a command; waits while it does not read. A caller that goes away may have passed a part.
    pub async fn write_stdin(
        &self,
        tenant: &Tenant,
        id: &BoxId,
        exec: u32,
        bytes: &[u8],
    ) -> Result<(), KeepError> {
        self.command(tenant, id, exec)?.write(bytes).await
    }

    /// Tells a command that there will be no more input.
    pub async fn end_stdin(&self, tenant: &Tenant, id: &BoxId, exec: u32) -> Result<(), KeepError> {
        self.command(tenant, id, exec)?.end_input().await
    }

    /// Signals a command's process group.
    pub async fn signal(&self, tenant: &Tenant, id: &BoxId, exec: u32, signal: u8) -> Result<(), KeepError> {
        let command = self.command(tenant, id, exec)?;
        command.running()?.signal(signal).await.map_err(|_| KeepError::CommandOver)
    }

    /// Tells a command that its terminal has another size.
    pub async fn resize(
        &self,
        tenant: &Tenant,
        id: &BoxId,
        exec: u32,
        rows: u16,
        columns: u16,
    ) -> Result<(), KeepError> {
        let command = self.command(tenant, id, exec)?;
        command.running()?.resize(rows, columns).await.map_err(|_| KeepError::CommandOver)
    }

    /// The call that a command waits with, or will within this time. It stays until it is answered.
    pub async fn wait_for_call(
        &self,
        tenant: &Tenant,
        id: &BoxId,
        exec: u32,
        patience: Duration,
    ) -> Result<Option<CallCard>, KeepError> {
        let command = self.command(tenant, id, exec)?;
        match timeout(patience, command.calls.wait()).await {
            Ok(Ok(card)) => Ok(Some(card)),
            Ok(Err(NoMore)) => Err(KeepError::CommandOver),
            Err(_) => Ok(None),
        }
    }

    /// Answers a call: what the function gave, or why it gave nothing.
    pub async fn answer_call(
        &self,
        tenant: &Tenant,
        id: &BoxId,
        exec: u32,
        call: u32,
        answer: ToolAnswer,
    ) -> Result<(), KeepError> {
        let kept = self.touch(tenant, id)?;
        let command = kept.commands.find(exec)?;
        if !command.calls.take(call) {
            return Err(KeepError::CallOver);
        }
        let house = Arc::clone(&self.0);
        // Taken is answered: a caller that goes away meanwhile must not leave the command waiting.
        to_its_end(async move {
            answer_call(&house, &kept, &command, call, answer, None).await;
            Ok(())
        })
        .await
    }

    fn command(&self, tenant: &Tenant, id: &BoxId, exec: u32) -> Result<Arc<KeptExec>, KeepError> {
        let kept = self.0.find(tenant, id)?;
        // What a command printed can be read while its box is being ended.
        kept.touch().ok();
        kept.commands.find(exec)
    }
}
