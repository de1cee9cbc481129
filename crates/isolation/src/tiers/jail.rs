//! The tier `jail`: the host's kernel behind namespaces, seccomp, Landlock and cgroups.
//!
//! Must not: do I/O. Everything that it knows is in its arguments.

mod gaps;
mod places;
mod report;

pub(super) use gaps::owner_map_missing;
pub(super) use report::INTERFACE;
pub(super) use report::allowed;
pub use report::ends_after;
#[cfg(test)]
mod tests;

use std::path::PathBuf;

use blastbox_images::Image;
use blastbox_policy::{
    BoxRoot, CredentialMode, CredentialRules, FileRules, Gpu, KernelRules, LifetimeRules, Loopback,
    NetworkMode, NetworkRules, OnDenied, Refusal, ScratchExec, SealedPolicy, SurvivesDaemon, Tier,
};
use blastbox_wire::limits::MAX_PIDS;
use blastbox_wire::plan::{Cgroups, Denials, First, Ids, Landlock, Limits, Network, Plan, Slot};

use crate::facts::Tun;
use crate::request::Worksite;
use crate::{CgroupKind, Facts, KernelVersion, Lowered, Request};

/// The Landlock interface whose rights a box should have: the first that keeps abstract sockets and signals inside.
pub const WANTED_LANDLOCK_ABI: u32 = 6;

/// The first kernel with everything that a jail cannot do without.
pub(crate) const OLDEST_KERNEL: KernelVersion = KernelVersion::new(5, 13);

/// What the jail makes of the policy. Its gaps are reported, not judged.
pub fn lower(policy: &SealedPolicy, facts: &Facts, request: &Request<'_>) -> Result<Lowered, Refusal> {
    // Afterwards: what no host could give is told before what this one lacks.
    let lowered = lower_around(policy, facts, request)?;
    if policy.network().mode != NetworkMode::Off {
        fit_network(facts)?;
    }
    Ok(lowered)
}

/// The same around a monitor, which may have another way to the gateway than an interface of the host.
pub(super) fn lower_around(
    policy: &SealedPolicy,
    facts: &Facts,
    request: &Request<'_>,
) -> Result<Lowered, Refusal> {
    // No `..` in any of these: a rule that is added does not compile until the jail says what it does with it.
    // The tier was chosen before; how long the box lives and how much it says is held by the engine.
    // Whether it is to be deterministic or metered is judged before, for every tier.
    let KernelRules {
        tier: _,
        cpus,
        memory,
        pids,
        on_denied_syscall,
        root,
        gpu,
        deterministic: _,
        fuel: _,
        guest: _,
        gvisor_platform: _,
    } = policy.kernel();
    let FileRules { workspace: _, disk, inodes, file_size, open_files, exec, report_writes } = policy.files();
    // What passes the gateway is the gateway's to judge; here it is only whether there is one.
    let NetworkRules { mode, loopback, allow: _, dangerously_allow_private: _, limits: _ } = policy.network();
    // Secrets are lent by the gateway too: a policy that binds one has rules for it, so there is one.
    let CredentialRules { mode: CredentialMode::None | CredentialMode::Brokered, bind: _ } =
        policy.credentials();
    let LifetimeRules { timeout: _, output: _, survives_daemon } = policy.lifetime();

    fit(facts)?;
    if !request.volumes.is_empty() && facts.landlock_abi == 0 {
        // Two boxes that have one volume would make a socket in it, and hand each other what each was given.
        let why =
            "a box with volumes needs Landlock: nothing else keeps sockets and pipes out of them".to_owned();
        let fix =
            "leave volumes out, or boot a kernel with landlock among its modules (lsm=landlock,…)".to_owned();
        return Err(Refusal::HostUnfit { why, fix });
    }
    let worksite = request.worksite(policy)?;
    if *survives_daemon == SurvivesDaemon::Yes {
        can_survive(*mode, worksite, request)?;
    }
    let denials = denials(*on_denied_syscall, *report_writes, facts)?;
    let mut shows = match root {
        BoxRoot::None => Vec::new(),
        BoxRoot::Allowed => vec![fit_root(policy, facts)?],
    };
    let gpu = match gpu {
        Gpu::None => None,
        Gpu::One => Some(fit_gpu(facts, request, policy, &mut shows)?),
    };
    let places = places::Places {
        image: request.image,
        worksite,
        slot: request.workspace_slot(),
        volumes: (request.first_volume(), request.volumes),
        exec: *exec,
        trust: trust(policy),
        sudo: (*root == BoxRoot::Allowed).then(|| request.first_show(policy)),
        gpu,
    };
    let plan = Plan {
        box_id: request.box_id.clone(),
        template: places.with_gpu(
            places.with_sudo(places.with_bundle(places.with_volumes(places::template(request.image, *mode)))),
        ),
        own: places.own_steps(disk.0, *inodes),
        ids: match (facts.privileged, root) {
            (true, BoxRoot::None) => Ids::OwnRange,
            (true, BoxRoot::Allowed) => Ids::OwnBlock,
            (false, _) => Ids::CallerOnly,
        },
        network: network(*mode, *loopback, request),
        cgroups: cgroups(facts),
        limits: Limits {
            millicpus: cpus.millis(),
            memory: memory.0,
            // Whoever reports writes has a second thread in the agent, which is none of the payload's.
            pids: pids.saturating_add(u32::from(*report_writes)).min(MAX_PIDS),
            open_files: *open_files,
            file_size: file_size.0,
        },
        landlock: Landlock {
            least_abi: facts.landlock_abi.min(WANTED_LANDLOCK_ABI),
            grants: places.grants(),
        },
        denials,
        first: First::Agent,
    };
    if let Err(wrong) = plan.clone().check(request.descriptors(policy) + shows.len()) {
        return Err(Refusal::TierUnavailable {
            tier: Tier::Jail,
            why: format!("its plan does not hold: {wrong}"),
        });
    }
    let gaps = gaps::find(&plan, facts, request.image, worksite);
    let report = report::write(policy, facts, &plan, worksite, &gaps);
    Ok(Lowered::new(Tier::Jail, plan, shows, report, gaps))
}

/// What a box with a root cannot do without. The program that is `sudo` there.
fn fit_root(policy: &SealedPolicy, facts: &Facts) -> Result<PathBuf, Refusal> {
    let no = |why: &str| Err(Refusal::RootUnavailable { why: why.to_owned() });
    if !facts.privileged {
        return no("without root on the host a box has one user, its caller's, and no second one to be root");
    }
    if facts.version < gaps::OVERLAY_OWNER_MAP {
        return no("this kernel is older than 5.19 and cannot show an image's files as the box's own");
    }
    if policy.files().exec == ScratchExec::Denied {
        return no(
            "its policy lets nothing be executed that the box wrote, and root writes where programs lie",
        );
    }
    match &facts.gvisor.agent {
        Some(agent) => Ok(agent.clone()),
        None => no("blastbox-agent, which is sudo there, is not installed beside blastbox"),
    }
}

/// What a box with a GPU cannot do without, and the driver's libraries where its image is not the host's: they travel last.
fn fit_gpu(
    facts: &Facts,
    request: &Request<'_>,
    policy: &SealedPolicy,
    shows: &mut Vec<PathBuf>,
) -> Result<places::GpuPlaces, Refusal> {
    let no = |why: &str| Err(Refusal::GpuUnavailable { why: why.to_owned() });
    let Some(gpu) = &facts.gpu else {
        return no(
            "/dev/nvidia0, /dev/nvidiactl and /dev/nvidia-uvm are not all there, or this user may not open them",
        );
    };
    let mut libraries = Vec::new();
    match request.image {
        // It sees the host's /usr, and the driver's libraries there.
        Image::Host(_) | Image::Module(_) => {}
        Image::Directory(_) | Image::Stored(_) => {
            for path in &gpu.libraries {
                let slot = usize::from(request.first_show(policy).0) + shows.len();
                let (Ok(slot), Some(name)) =
                    (u8::try_from(slot), path.file_name().and_then(|name| name.to_str()))
                else {
                    return no("its driver's libraries cannot be handed over");
                };
                libraries.push((Slot(slot), name.to_owned()));
                shows.push(path.clone());
            }
            if !gpu.has_cuda() {
                return no("libcuda.so.1 of the host's driver was not found");
            }
        }
    }
    Ok(places::GpuPlaces { libraries })
}

/// What a box cannot have that outlives its daemon: whatever would go with the daemon.
fn can_survive(mode: NetworkMode, worksite: Worksite, request: &Request<'_>) -> Result<(), Refusal> {
    let why = match (mode, worksite) {
        (NetworkMode::Off, Worksite::Absent | Worksite::Scratch) if request.volumes.is_empty() => {
            return Ok(());
        }
        (NetworkMode::Allow | NetworkMode::Open, _) => "its gateway, which ends with the daemon",
        (NetworkMode::Off, _) => "a directory of the host, which a new daemon would not know",
    };
    let why = format!("a box that outlives its daemon (lifetime.survives_daemon) cannot have {why}");
    Err(Refusal::TierUnavailable { tier: Tier::Jail, why })
}

/// Where a box that outlives its daemon is asked of a tier that cannot have one.
pub(super) fn ends_with_daemon(policy: &SealedPolicy, tier: Tier) -> Result<(), Refusal> {
    match policy.lifetime().survives_daemon {
        SurvivesDaemon::No => Ok(()),
        SurvivesDaemon::Yes => Err(Refusal::TierUnavailable {
            tier,
            why: "only a box of the jail can outlive its daemon (lifetime.survives_daemon)".to_owned(),
        }),
    }
}

/// Where writes are to be reported by a tier whose own kernel or engine hands no call to the agent.
pub(super) fn reports_no_writes(policy: &SealedPolicy, tier: Tier) -> Result<(), Refusal> {
    if !policy.files().report_writes {
        return Ok(());
    }
    let why = "it cannot report writes (files.report_writes): nothing in it hands a system call to the agent";
    Err(Refusal::TierUnavailable { tier, why: why.to_owned() })
}

/// What no jail can do without, whatever is accepted.
pub(super) fn fit(facts: &Facts) -> Result<(), Refusal> {
    let unfit = |why: String, fix: &str| Err(Refusal::HostUnfit { why, fix: fix.to_owned() });
    if facts.version < OLDEST_KERNEL {
        return unfit(format!("its kernel {} is older than 5.13", facts.kernel), "boot Linux 5.13 or newer");
    }
    if facts.user_namespaces.most == Some(0) {
        return unfit(
            "user namespaces are switched off (user.max_user_namespaces is 0)".to_owned(),
            "sysctl -w user.max_user_namespaces=15000",
        );
    }
    if facts.privileged && facts.user_namespaces.few_ids {
        return unfit(
            "root here is root of a user namespace (as `unshare -r` and rootless containers make one), which has not the user ids \
             that root gives to boxes"
                .to_owned(),
            "run blastbox outside of that namespace, or as an ordinary user",
        );
    }
    if !facts.privileged && facts.user_namespaces.switched_off {
        return unfit(
            "ordinary users may not make user namespaces (kernel.unprivileged_userns_clone is 0)".to_owned(),
            "sysctl -w kernel.unprivileged_userns_clone=1, or run blastbox as root",
        );
    }
    Ok(())
}

fn denials(on_denied: OnDenied, report_writes: bool, facts: &Facts) -> Result<Denials, Refusal> {
    let no = |why: &str| Err(Refusal::TierUnavailable { tier: Tier::Jail, why: why.to_owned() });
    match (on_denied, facts.seccomp_user_notif) {
        (OnDenied::Record | OnDenied::Kill, true) if report_writes && !facts.reads_own_children => no(
            "the policy has writes reported (files.report_writes), and this host lets nobody look at the names that its own \
                children use (kernel.yama.ptrace_scope is 2 or more)",
        ),
        // Before it, a signal breaks off whatever waits to be looked at, and calls would fail that never do.
        (OnDenied::Record | OnDenied::Kill, true)
            if report_writes && facts.version < KernelVersion::new(5, 19) =>
        {
            no("the policy has writes reported (files.report_writes), which needs Linux 5.19")
        }
        (OnDenied::Record | OnDenied::Kill, true) if report_writes => Ok(Denials::WithWrites),
        (OnDenied::Record | OnDenied::Kill, true) => Ok(Denials::Reported),
        (OnDenied::Record, false) if report_writes => no(
            "the policy has writes reported (files.report_writes), and this kernel cannot report a system call",
        ),
        (OnDenied::Record, false) => Ok(Denials::Silent),
        // Accepting that nobody learns of a denied call is not accepting that the box goes on.
        (OnDenied::Kill, false) => {
            no("the policy ends the box at a denied system call, and this kernel cannot report one")
        }
    }
}

/// What a box with network cannot do without.
fn fit_network(facts: &Facts) -> Result<(), Refusal> {
    let unfit = |why: &str, fix: &str| Err(Refusal::HostUnfit { why: why.to_owned(), fix: fix.to_owned() });
    match facts.tun {
        Tun::Usable => Ok(()),
        Tun::Forbidden => unfit(
            "a box with network needs /dev/net/tun, which this user may not open",
            "chmod 0666 /dev/net/tun (what udev sets on most distributions), or run blastbox as root",
        ),
        Tun::Absent => unfit("a box with network needs /dev/net/tun, which is not there", "modprobe tun"),
    }
}

fn network(mode: NetworkMode, loopback: Loopback, request: &Request<'_>) -> Network {
    match (mode, loopback) {
        (NetworkMode::Off, Loopback::None) => Network::Empty,
        (NetworkMode::Off, Loopback::Own) => Network::Loopback,
        (NetworkMode::Allow | NetworkMode::Open, loopback) => {
            Network::Gateway { slot: request.gateway_slot(), loopback: loopback == Loopback::Own }
        }
    }
}

fn trust(policy: &SealedPolicy) -> places::Trust {
    if policy.network().needs_authority() { places::Trust::OwnAuthority } else { places::Trust::AsImage }
}

pub(super) fn cgroups(facts: &Facts) -> Cgroups {
    let Facts { memory, cpu, pids, .. } = *facts;
    match facts.cgroups {
        CgroupKind::None => Cgroups::Absent,
        CgroupKind::V1 | CgroupKind::V2 | CgroupKind::Hybrid if memory || cpu || pids => {
            Cgroups::Enforce { memory, cpu, pids }
        }
        CgroupKind::V1 | CgroupKind::V2 | CgroupKind::Hybrid => Cgroups::Absent,
    }
}

/// Which of memory, processor time and processes the plan has limits for.
pub(super) fn held(cgroups: Cgroups) -> (bool, bool, bool) {
    match cgroups {
        Cgroups::Enforce { memory, cpu, pids } => (memory, cpu, pids),
        Cgroups::Absent => (false, false, false),
    }
}
