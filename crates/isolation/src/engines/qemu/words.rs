//! QEMU's words for a machine.

use blastbox_wire::BoxId;

use crate::tiers::microvm::spec::{
    self, CONTROL_AT, DISK, FIRST_FILES, Form, KERNEL, MEMORY_AT, ORDERS_AT, PORT, Processor, VmSpec,
};

/// A card that does what a packet needs and nothing else: no firmware of its own, no queue for orders about itself.
const CARD: &str = "virtio-net-pci,netdev=wire,romfile=,mq=off,ctrl_vq=off,ctrl_rx=off,ctrl_rx_extra=off,ctrl_vlan=off,\
                    ctrl_mac_addr=off,ctrl_guest_offloads=off,guest_announce=off";
const MIB: u64 = 1 << 20;

/// The kernel's command line. Nothing in it makes the guest weaker; what only speed is for stands under an emulated
/// processor alone.
fn command_line(machine: &VmSpec, form: Form, box_id: &BoxId) -> String {
    // A kernel that gives up starts again at once, which ends the machine. A port for a console is there only where somebody hears it.
    // All devices are on the first bus; looking for others on 255 more leaves the guest eight thousand times.
    let mut words = match machine.console {
        false => vec!["quiet", "8250.nr_uarts=0"],
        true => vec!["console=ttyS0"],
    };
    words.extend(["panic=-1", "pci=lastbus=0", "vsyscall=none", "slab_nomerge"]);
    if machine.processor == Processor::Emulated {
        // The last leaves out what a kernel tries of its ciphers each time it starts: a seventh of an emulated boot.
        words.extend(["tsc=reliable", "no_timer_check", "cryptomgr.notests"]);
    }
    words.push("--");
    let told = machine.told(form, box_id);
    words.extend(told.iter().map(String::as_str));
    words.join(" ")
}

/// QEMU's arguments, its own name first: no default device, no settings of the host; a console only where somebody hears it, a line
/// for orders only where somebody has to say when it falls asleep, or from what it wakes.
pub(in crate::engines) fn arguments(machine: &VmSpec, form: Form, box_id: &BoxId) -> Vec<String> {
    let (accelerator, model) = match machine.processor {
        // No machine in the machine: what the host's kernel would do for one is its hardest part, and no box is offered it.
        Processor::Kvm => ("kvm", "host,vmx=off,svm=off"),
        // The size of what it makes of the guest's instructions, in MiB: counted in the overhead.
        Processor::Emulated => ("tcg,tb-size=48", "max"),
    };
    let mut words = Vec::new();
    let mut say = |option: &str, value: &str| words.extend([option.to_owned(), value.to_owned()]);
    let board = "q35,usb=off,vmport=off,smbus=off,sata=off,i8042=off,hpet=off,graphics=off";
    let memory = machine.memory / MIB;
    // Copies have the template's memory as a private view: what they write is their own. What it comes from is sealed, so
    // it does not matter that QEMU opens it for writing.
    let share = match form {
        Form::Alone => None,
        Form::Template | Form::Heir => Some("on"),
        Form::Copy => Some("off"),
    };
    match share {
        None => say("-machine", board),
        Some(share) => {
            say("-machine", &format!("{board},memory-backend=memory"));
            let file =
                format!("memory-backend-file,id=memory,size={memory}M,mem-path=/proc/self/fd/{MEMORY_AT}");
            say("-object", &format!("{file},share={share}"));
            say("-chardev", &format!("socket,id=orders,fd={ORDERS_AT}"));
            say("-mon", "chardev=orders,mode=control");
        }
    }
    // Kernels that know it draw new randomness by themselves; the agent sees to it for all. Also where nothing is copied: one list of
    // devices for all machines.
    say("-device", "vmgenid,guid=auto");
    if matches!(form, Form::Copy | Form::Heir) {
        say("-incoming", "defer");
    }
    say("-accel", accelerator);
    say("-cpu", model);
    say("-smp", &machine.processors.to_string());
    say("-m", &format!("{memory}M"));
    say("-display", "none");
    say("-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny");
    // One that takes over from another has all of this in its memory. QEMU would keep a copy of the kernel for each.
    if matches!(form, Form::Alone | Form::Template) {
        say("-kernel", KERNEL);
        say("-initrd", FIRST_FILES);
        say("-append", &command_line(machine, form, box_id));
    }
    say("-device", "virtio-serial-pci,max_ports=2");
    say("-chardev", &format!("socket,id=control,fd={CONTROL_AT}"));
    say("-device", &format!("virtserialport,chardev=control,name={PORT}"));
    // All boxes of an image read the same disk: one that wakes has no reason to drop it from the host's memory.
    say(
        "-blockdev",
        &format!("driver=file,node-name=disk,filename={DISK},read-only=on,locking=off,drop-cache=off"),
    );
    say("-device", "virtio-blk-pci,drive=disk");
    if machine.workspace {
        let number = machine.workspace_at(form);
        let file = format!("driver=file,node-name=workspace,filename=/proc/self/fd/{number}");
        say("-blockdev", &format!("{file},read-only=on,locking=off"));
        say("-device", "virtio-blk-pci,drive=workspace");
    }
    if machine.console {
        let number = machine.console_at(form);
        say("-chardev", &format!("socket,id=console,fd={number}"));
        say("-device", "isa-serial,chardev=console");
    }
    say("-object", "rng-builtin,id=random");
    say("-device", "virtio-rng-pci,rng=random");
    if machine.card {
        // A stream of frames, each behind its length; whoever is at the other end of it is the gateway, or nobody.
        say("-netdev", &format!("socket,id=wire,fd={}", spec::card_at(form)));
        say("-device", CARD);
    }
    let alone = ["qemu-system-x86_64", "-nodefaults", "-no-user-config", "-no-reboot"];
    alone.iter().map(ToString::to_string).chain(words).collect()
}
