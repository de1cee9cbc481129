//! The places of a box that are its own, and what may be done where.

use blastbox_images::{Image, Tree, TreeUse};
use blastbox_policy::{NetworkMode, ScratchExec};
use blastbox_wire::agent::SUDO_PROGRAM;
use blastbox_wire::egress::{BUNDLE, RESOLV_CONF};
use blastbox_wire::plan::{
    DeviceName, Exec, GPU_LIBRARIES, Grant, GrantAccess, GuestPath, Owner, Slot, Step, VOLUMES_AT,
    WorkspaceAccess,
};

use crate::request::{Request, Worksite};

/// Where the program lies that is `sudo` in a box.
const SUDO_FOLDER: &str = "/.blastbox";
const ROOT_HOME: &str = "/root";
const WORKSPACE: &str = "/workspace";

const RESOLVERS: &str = "/etc/resolv.conf";

/// The root of a box of this image. One with network asks its gateway for names, and nobody else.
pub(super) fn template(image: &Image, network: NetworkMode) -> Vec<Step> {
    let mut steps = image.template_steps(Request::IMAGE);
    if network == NetworkMode::Off {
        return steps;
    }
    let ours = RESOLV_CONF.to_owned();
    let own = steps.iter_mut().find_map(|step| match step {
        Step::File { at, text } if at.as_str() == RESOLVERS => Some(text),
        _ => None,
    });
    match own {
        Some(text) => *text = ours,
        None => steps.extend(path(RESOLVERS).map(|at| Step::Cover { at, text: ours })),
    }
    steps
}

/// What decides over the places of a box.
pub(super) struct Places<'a> {
    pub(super) image: &'a Image,
    pub(super) worksite: Worksite,
    /// Where the workspace's directory travels, if one is given.
    pub(super) slot: Slot,
    /// Where the first volume travels, and where each appears.
    pub(super) volumes: (Slot, &'a [GuestPath]),
    pub(super) exec: ScratchExec,
    pub(super) trust: Trust,
    /// Where the program travels that is `sudo` in the box, where it has a root.
    pub(super) sudo: Option<Slot>,
    /// Where the box has a GPU.
    pub(super) gpu: Option<GpuPlaces>,
}

/// A GPU in a box.
pub(super) struct GpuPlaces {
    /// Where the driver's libraries travel, and their names; none where the image is the host's, which has them.
    pub(super) libraries: Vec<(Slot, String)>,
}

/// Whom programs of the box believe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trust {
    /// Whom the image believes.
    AsImage,
    /// An authority of the box's own besides: its gateway ends TLS.
    OwnAuthority,
}

impl Places<'_> {
    /// The root with a place for the bundle of authorities, where one will lie there.
    pub(super) fn with_bundle(&self, mut template: Vec<Step>) -> Vec<Step> {
        if self.trust == Trust::OwnAuthority {
            template.extend(path(BUNDLE).map(|at| Step::File { at, text: String::new() }));
        }
        template
    }

    /// The root with a place for volumes: the same one wherever they appear, so that no caller has a root of its own made.
    pub(super) fn with_volumes(&self, mut template: Vec<Step>) -> Vec<Step> {
        if !self.volumes.1.is_empty() {
            template.extend(path(VOLUMES_AT).map(|at| Step::Directory { at }));
        }
        template
    }

    /// The root with `sudo` in it, where the box has a root.
    pub(super) fn with_sudo(&self, mut template: Vec<Step>) -> Vec<Step> {
        let Some(slot) = self.sudo else { return template };
        // Where an image has one it is shown there; the host's own is not.
        template
            .extend([ROOT_HOME, SUDO_FOLDER].into_iter().filter_map(path).map(|at| Step::Directory { at }));
        template.extend(path(SUDO_PROGRAM).map(|at| Step::Show { slot, at }));
        for step in &mut template {
            // The host's own programs stay as they are, so the search path leads past them.
            if let Step::File { at, text } = step
                && at.as_str() == "/etc/profile"
            {
                text.push_str(&format!("export PATH={SUDO_FOLDER}:$PATH\n"));
            }
        }
        template
    }

    /// The root with the devices of the GPU and the driver's libraries, where the box has one.
    pub(super) fn with_gpu(&self, mut template: Vec<Step>) -> Vec<Step> {
        let Some(gpu) = &self.gpu else { return template };
        template.extend(DeviceName::GPU.map(|name| Step::Device { name }));
        if !gpu.libraries.is_empty() {
            let folders = [SUDO_FOLDER, GPU_LIBRARIES].into_iter().filter_map(path);
            template.extend(folders.map(|at| Step::Directory { at }));
        }
        for (slot, name) in &gpu.libraries {
            let at = path(&format!("{GPU_LIBRARIES}/{name}"));
            template.extend(at.map(|at| Step::Show { slot: *slot, at }));
        }
        template
    }

    /// What is seen of the image. Where there are volumes, they lie over its own place for such.
    fn trees(&self) -> Vec<Tree> {
        let mut trees = self.image.trees();
        trees.retain(|tree| self.volumes.1.is_empty() || tree.at.as_str() != VOLUMES_AT);
        trees
    }

    /// The image's directories, which the root of a box may change. Not the host's own: their owner is not the box's to be.
    fn writable(&self) -> impl Iterator<Item = GuestPath> {
        let trees = match (self.sudo, self.image) {
            (None, _) | (_, Image::Host(_) | Image::Module(_)) => Vec::new(),
            (Some(_), Image::Directory(_) | Image::Stored(_)) => self.trees(),
        };
        trees.into_iter().filter(|tree| tree.is_directory).map(|tree| tree.at)
    }

    /// What belongs to this box alone.
    pub(super) fn own_steps(&self, bytes: u64, inodes: u64) -> Vec<Step> {
        let exec = self.exec();
        let mut steps = vec![Step::Scratch { bytes, inodes }];
        let mut scratch = |at: &str, owner, exec| {
            steps.extend(path(at).map(|at| Step::ScratchDirectory { at, owner, exec }));
        };
        scratch("/tmp", Owner::Everybody, exec);
        if self.has_places() {
            scratch("/home", Owner::Root, exec);
        }
        scratch("/home/user", Owner::Payload, exec);
        // Shared memory is never a place for programs, whatever the policy says about scratch space.
        scratch("/dev/shm", Owner::Everybody, Exec::Denied);
        if self.has_run() {
            scratch("/run", Owner::Root, exec);
        }
        match self.worksite {
            Worksite::Absent => {}
            Worksite::Scratch => scratch(WORKSPACE, Owner::Payload, exec),
            Worksite::Directory(access) => {
                let slot = self.slot;
                steps.extend(path(WORKSPACE).map(|at| Step::Workspace { slot, at, access, exec }));
            }
        }
        steps.extend(self.writable().map(|at| Step::Writable { at }));
        let (first, volumes) = self.volumes;
        if !volumes.is_empty() {
            let owner = Owner::Root;
            steps.extend(path(VOLUMES_AT).map(|at| Step::ScratchDirectory { at, owner, exec }));
        }
        steps.extend(volumes.iter().zip(first.0..).map(|(at, slot)| Step::Volume {
            slot: Slot(slot),
            at: at.clone(),
            exec,
        }));
        steps.extend([Step::Processes, Step::Terminals]);
        if self.trust == Trust::OwnAuthority {
            steps.push(Step::Trust { authority: String::new() });
        }
        steps
    }

    /// What may be done where. Nothing else may be done anywhere.
    pub(super) fn grants(&self) -> Vec<Grant> {
        let writable: Vec<GuestPath> = self.writable().collect();
        let trees = self.trees().into_iter().map(|tree| Grant {
            access: match tree.used_for {
                // Who may write there is for the owners of files to say: root of the box.
                _ if writable.contains(&tree.at) => GrantAccess::ReadWriteExecute,
                TreeUse::Programs => GrantAccess::ReadExecute,
                TreeUse::Settings => GrantAccess::Read,
            },
            at: tree.at,
        });
        let scratch = match self.exec {
            ScratchExec::Allowed => GrantAccess::ReadWriteExecute,
            ScratchExec::Denied => GrantAccess::ReadWrite,
        };
        let ours = [
            // Written to by programs about themselves: comm, oom_score_adj. Other processes are not to be seen.
            ("/proc", GrantAccess::ReadWrite),
            ("/dev", GrantAccess::Devices),
            ("/dev/pts", GrantAccess::Terminals),
            ("/dev/tty", GrantAccess::Terminals),
            ("/dev/shm", GrantAccess::ReadWrite),
            ("/tmp", scratch),
            ("/home/user", scratch),
        ];
        let worksite = match (self.worksite, self.exec) {
            (Worksite::Absent, _) => None,
            (Worksite::Directory(WorkspaceAccess::ReadOnly), ScratchExec::Allowed) => {
                Some(GrantAccess::ReadExecute)
            }
            (Worksite::Directory(WorkspaceAccess::ReadOnly), ScratchExec::Denied) => Some(GrantAccess::Read),
            (Worksite::Scratch | Worksite::Directory(WorkspaceAccess::CopyOnWrite), _) => Some(scratch),
        };
        let bundle = (self.trust == Trust::OwnAuthority).then_some((BUNDLE, GrantAccess::Read));
        let sudo = self.sudo.map(|_| (SUDO_PROGRAM, GrantAccess::ReadExecute));
        // Calls into a driver are ioctls: the same access as a terminal's.
        let devices = self.gpu.iter().flat_map(|_| DeviceName::GPU);
        let devices = devices.map(|name| (format!("/dev/{}", name.as_str()), GrantAccess::Terminals));
        let libraries = self.gpu.iter().filter(|gpu| !gpu.libraries.is_empty());
        let libraries = libraries.map(|_| (GPU_LIBRARIES.to_owned(), GrantAccess::ReadExecute));
        let gpu: Vec<_> = devices.chain(libraries).collect();
        let run = self.has_run().then_some(("/run", scratch));
        let home = self.has_places().then_some(("/home", scratch));
        let bundle = bundle.into_iter().chain(sudo).chain(run).chain(home);
        let ours = ours.into_iter().chain(worksite.map(|access| (WORKSPACE, access))).chain(bundle);
        let ours = ours.chain(gpu.iter().map(|(at, access)| (at.as_str(), *access)));
        let volumes = self.volumes.1.iter().map(|at| Grant { at: at.clone(), access: GrantAccess::Shared });
        let ours = ours.filter_map(|(at, access)| path(at).map(|at| Grant { at, access }));
        trees.chain(ours).chain(volumes).collect()
    }

    /// Whether there is a /run to write to: where the image's programs expect one, and nothing of ours lies there.
    fn has_run(&self) -> bool {
        self.has_places() && self.trust == Trust::AsImage
    }

    /// Whether root of the box has places where an image's programs expect them: /home for users that it makes, /run.
    fn has_places(&self) -> bool {
        self.writable().next().is_some()
    }

    fn exec(&self) -> Exec {
        match self.exec {
            ScratchExec::Allowed => Exec::Allowed,
            ScratchExec::Denied => Exec::Denied,
        }
    }
}

/// Every path here is written by us and plain; a test counts what comes out.
fn path(text: &str) -> Option<GuestPath> {
    text.parse().ok()
}
