//! Asks the warden for a box whose tier is chosen, with everything that travels along, and sets its driver going.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream as StdStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use blastbox_images::Image;
use blastbox_isolation::{Choice, Lowered};
use blastbox_policy::{Boundary, Gpu, OnDenied, Refusal, SealedPolicy, SurvivesDaemon};
use blastbox_wire::agent::{HostFrame, OnDenied as Reaction, VERSION};
use blastbox_wire::egress::LentSecret;
use blastbox_wire::warden::Ask;
use rustix::fs::{Mode, OFlags};
use tokio::net::UnixStream;
use tokio::time::Instant;

use super::variables::{libraries_of_gpu, path_of_root, wishes};
use super::way_out::WayOut;
use super::{BoxSpec, Engine, Seat, Snapshot, connect, new_id, token};
use crate::copies::{self, Birth};
use crate::driver::Launch;
use crate::error::CreateError;
use crate::link::Expected;
use crate::live::LiveBox;
use crate::shelf::Origin;
use crate::tenancy::Tenancy;

impl Engine {
    pub(super) async fn launch_chosen(
        &self,
        mut choice: Choice,
        spec: &BoxSpec<'_>,
        from: Option<&Snapshot>,
        tenancy: Option<&Tenancy>,
        secrets: Vec<LentSecret>,
    ) -> Result<LiveBox, CreateError> {
        let BoxSpec { policy, image, workspace, volumes, secrets: _ } = *spec;
        let (mut plan, shows) = match &choice.chosen {
            Ok(lowered) => match open_shows(&lowered.shows) {
                Ok(shows) => (lowered.plan.clone(), shows),
                Err(error) => {
                    let Some(refusal) = gone(image, &error) else { return Err(error) };
                    return Err(CreateError::Refused { refusal, choice: Box::new(choice) });
                }
            },
            Err(refusal) => {
                let refusal = refusal.clone();
                return Err(CreateError::Refused { refusal, choice: Box::new(choice) });
            }
        };
        let template = match &mut choice.chosen {
            Ok(lowered) => match from {
                Some(from) => Some(from.source(lowered)?),
                None => self.template(lowered, spec, &shows).await?,
            },
            Err(_) => None,
        };
        let held = template.as_ref().map(|source| Arc::clone(&source.template));
        if let (Some(_), Ok(Lowered { copies: Some(copies), .. })) = (&template, &choice.chosen) {
            plan = copies.copy.clone();
        }
        let copied = match (&choice.chosen, workspace) {
            (Ok(Lowered { tier, workspace_disk: Some(caps), .. }), Some(directory)) => {
                match directory.copy(*caps).await {
                    Ok(disk) => Some(disk),
                    Err(why) => {
                        let refusal = Refusal::TierUnavailable { tier: *tier, why };
                        return Err(CreateError::Refused { refusal, choice: Box::new(choice) });
                    }
                }
            }
            _ => None,
        };
        // Never closed, so this fails for nobody. After the secrets were read: a source that hangs holds up its own box.
        let making = Arc::clone(&self.house.making).acquire_owned().await.ok();
        let (ours, theirs) = StdStream::pair().map_err(CreateError::Channel)?;
        ours.set_nonblocking(true).map_err(CreateError::Channel)?;
        let born = template.map(|template| copies::bear(template, &plan.box_id, ours.as_fd())).transpose()?;
        let (birth, more) = born.unzip();
        let monitor = birth.as_ref().filter(|_| self.snapshots).and_then(Birth::line);
        let agent = UnixStream::from_std(ours).map_err(CreateError::Channel)?;

        let id = plan.box_id.clone();
        let http = choice.chosen.as_ref().is_ok_and(Lowered::calls_http);
        let way_out = WayOut::open((&mut plan, http), policy, tenancy, secrets, agent.as_fd()).await?;
        let (line, wire) = way_out.as_ref().map_or((None, None), |way| way.tie.travels());
        let words = self.house.link.expect(id.clone());
        let expected = Expected(&self.house.link, &id);
        let asked = Instant::now();
        let console = self.console.lock().unwrap_or_else(PoisonError::into_inner).take();
        let own = [Some(theirs.as_fd()), image.dir(), workspace.map(AsFd::as_fd)].into_iter().flatten();
        let fds: Vec<BorrowedFd<'_>> = own
            .chain(volumes.iter().map(AsFd::as_fd))
            .chain(line.map(AsFd::as_fd))
            .chain(
                shows
                    .iter()
                    .chain(more.iter().flatten())
                    .chain(wire)
                    .chain(&copied)
                    .chain(&console)
                    .map(AsFd::as_fd),
            )
            .collect();
        let plan = Box::new(plan);
        self.house.link.ask(&Ask::Launch(plan.clone()), &fds).await.map_err(CreateError::Ask)?;
        // From here on the warden answers for it.
        std::mem::forget(expected);
        // Held until the agent has spoken, because the host may have to be asked more than once.
        let directories = [image.dir(), workspace.map(AsFd::as_fd)].into_iter().flatten();
        let directories = directories.chain(volumes.iter().map(AsFd::as_fd));
        let directories = directories.map(|dir| dir.try_clone_to_owned());
        let directories = directories.chain(shows.into_iter().map(Ok)).collect::<io::Result<_>>();
        // Not where there is a gateway, which goes with the box that it was started for, nor of a copy, which has read what
        // it goes on from.
        let alone = way_out.is_none() && birth.is_none() && copied.is_none() && console.is_none();
        let again = directories.ok().filter(|_| alone).map(|directories| Launch { plan, directories });
        // The agent's end is the agent's alone, so that its end is an end; and so is the line to the gateway the warden's.
        drop((theirs, more, console));
        let way_out =
            way_out.map(|WayOut { uplink, hears, tie, variables }| (uplink, hears, tie.kept(), variables));

        let lifetime = policy.lifetime();
        let (mut live, mut driver) = connect(Seat {
            id,
            choice,
            house: Arc::clone(&self.house),
            agent,
            words,
            asked,
            timeout: Duration::from_secs(lifetime.timeout.0),
            output: lifetime.output.0,
            making,
            again,
            birth,
        });
        // Waits in the socket until there is an agent to read it: one round trip less for every box.
        let heritable = lifetime.survives_daemon == SurvivesDaemon::Yes;
        match from {
            // Its agent began long ago.
            Some(_) => live.stood = Mutex::new(Some(driver.take_copy(token()?))),
            None => {
                driver.send(&HostFrame::Begin { version: VERSION, on_denied: reaction(policy), heritable })
            }
        }
        if heritable {
            driver.bequeath();
        }
        let way_out = way_out.map(|(uplink, hears, errands, variables)| {
            driver.errands = errands;
            (uplink, hears, variables)
        });
        tokio::spawn(driver.run());
        live.variables.extend(image.config().into_iter().flat_map(wishes));
        live.variables.extend(path_of_root(policy, image));
        if policy.kernel().gpu == Gpu::One {
            libraries_of_gpu(image, &mut live.variables);
        }
        live.image = image.hold();
        // Also where it is never copied: its memory is there for as long as the box is.
        live.begun_from = held;
        live.monitor = tokio::sync::Mutex::new(monitor);
        if let Some((uplink, hears, variables)) = way_out {
            live.uplink = Some(uplink);
            // In front: what makes programs believe the gateway goes before what their image says.
            live.variables.splice(0..0, variables);
            // No command runs in a box whose gateway is not there yet. A box that could not be made takes its gateway
            // along, and then the box knows why.
            if let Err(error) = hears.ready().await {
                live.ready().await?;
                return Err(CreateError::Gateway(error));
            }
        }
        Ok(live)
    }

    /// What a box of this plan begins as a copy of; `None`: it boots. The receipt is told which of both.
    async fn template(
        &self,
        lowered: &mut Lowered,
        spec: &BoxSpec<'_>,
        shows: &[OwnedFd],
    ) -> Result<Option<copies::Source>, CreateError> {
        let Some(copies) = &lowered.copies else { return Ok(None) };
        let timeout = Duration::from_secs(spec.policy.lifetime().timeout.0);
        let (link, image, id) = (&self.house.link, spec.image, new_id()?);
        let need = copies::Need { link, copies, image, shows, id, timeout };
        let (from, told) = match self.house.copies.origin(need).await {
            Origin::Copy { from, told } => (Some(from), told),
            Origin::Boot { told } => (None, told),
        };
        if let Some(kernel) = lowered.report.iter_mut().find(|line| line.boundary == Boundary::Kernel) {
            kernel.how.push(told);
        }
        Ok(from)
    }
}

/// What a tier shows of the host, opened as whoever asks for the box: it shows nothing that its caller cannot reach.
pub(super) fn open_shows(paths: &[PathBuf]) -> Result<Vec<OwnedFd>, CreateError> {
    let opened = paths.iter().map(|path| {
        rustix::fs::open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
            .map_err(|source| CreateError::Show { path: path.clone(), source: source.into() })
    });
    opened.collect()
}

/// What is said of a module that was there when the box was asked for, and is not any more: its owner replaced it or took it away.
fn gone(image: &Image, error: &CreateError) -> Option<Refusal> {
    match (image, error) {
        (Image::Module(module), CreateError::Show { path, source })
            if *path == module.directory && source.kind() == io::ErrorKind::NotFound =>
        {
            let why =
                format!("the module {} was replaced or taken away while the box was being made", module.name);
            Some(Refusal::ImageUnusable { why })
        }
        _ => None,
    }
}

fn reaction(policy: &SealedPolicy) -> Reaction {
    match policy.kernel().on_denied_syscall {
        OnDenied::Record => Reaction::Record,
        OnDenied::Kill => Reaction::Kill,
    }
}

#[cfg(test)]
mod tests {
    use blastbox_images::{Form, ModuleImage};

    use super::*;

    #[test]
    fn a_module_that_went_away_is_refused_by_its_name_and_what_else_is_not_there_is_a_failure() {
        let (name, directory) = ("tool".to_owned(), PathBuf::from("/nowhere/tool"));
        let module =
            ModuleImage { directory: directory.clone(), name, form: Form::Module, digest: String::new() };
        let image = Image::Module(Box::new(module));
        let refused = gone(&image, &open_shows(&[directory]).unwrap_err()).unwrap();
        assert_eq!(refused.code(), "image_unusable");
        assert!(
            refused.to_string().contains("tool") && !refused.to_string().contains("/nowhere"),
            "{refused}"
        );
        assert_eq!(gone(&image, &open_shows(&["/nowhere/worker".into()]).unwrap_err()), None);
    }
}
