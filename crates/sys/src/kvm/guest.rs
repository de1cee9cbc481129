//! The smallest virtual machine that can be timed: one page, one real-mode CPU, two writes to a port.
//!
//! x86-64 only; another architecture needs other register blocks and another guest.

use super::Failed;
use std::cell::Cell;
use std::ffi::c_void;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::NonNull;
use std::time::{Duration, Instant};

const GET_API_VERSION: libc::Ioctl = 0xAE00;
const CREATE_VM: libc::Ioctl = 0xAE01;
const GET_VCPU_MMAP_SIZE: libc::Ioctl = 0xAE04;
const CREATE_VCPU: libc::Ioctl = 0xAE41;
const SET_USER_MEMORY_REGION: libc::Ioctl = 0x4020_AE46;
const SET_TSS_ADDR: libc::Ioctl = 0xAE47;
const RUN: libc::Ioctl = 0xAE80;
const GET_REGS: libc::Ioctl = 0x8090_AE81;
const SET_REGS: libc::Ioctl = 0x4090_AE82;
const GET_SREGS: libc::Ioctl = 0x8138_AE83;
const SET_SREGS: libc::Ioctl = 0x4138_AE84;
const SET_SIGNAL_MASK: libc::Ioctl = 0x4004_AE8B;

/// The only API version there has ever been since 2007.
const API_VERSION: i32 = 12;
const EXIT_IO: u32 = 2;
const PAGE: usize = 4096;
/// Where the page lies in the guest, and where it starts to run.
const START: u64 = 0x1000;

/// `struct kvm_userspace_memory_region`.
#[repr(C)]
struct Region {
    slot: u32,
    flags: u32,
    guest: u64,
    len: u64,
    host: u64,
}

/// `struct kvm_signal_mask` with the kernel's eight-byte signal set.
#[repr(C)]
struct SignalMask {
    len: u32,
    set: [u8; 8],
}

/// A timer that ends `KVM_RUN`, and nothing else, in the calling thread.
///
/// Its signal is blocked here and let through by `KVM_RUN` only, so no handler is needed: a run that is under way, and
/// every later one, returns at once. The mask stays changed: make one in a thread that is about to end.
pub(super) struct Alarm {
    timer: libc::timer_t,
    until: Cell<Instant>,
}

impl Alarm {
    pub(super) fn after(patience: Duration) -> Result<Self, Failed> {
        let signal = libc::SIGRTMAX();
        // SAFETY: a signal set is plain data and all zero is the empty set.
        let mut blocked: libc::sigset_t = unsafe { std::mem::zeroed() };
        // SAFETY: `blocked` is a valid signal set and `signal` a valid signal number.
        unsafe { libc::sigaddset(&raw mut blocked, signal) };
        let no_old = std::ptr::null_mut();
        // SAFETY: `blocked` outlives the call; the old mask is not asked for.
        let errno = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const blocked, no_old) };
        if errno != 0 {
            return Err(Failed("block the alarm signal", errno));
        }

        // SAFETY: plain data; all zero is a valid value.
        let mut event: libc::sigevent = unsafe { std::mem::zeroed() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = signal;
        event.sigev_notify_thread_id = rustix::thread::gettid().as_raw_nonzero().get();
        let mut timer: libc::timer_t = std::ptr::null_mut();
        // SAFETY: both structures outlive the call.
        let made = unsafe { libc::timer_create(libc::CLOCK_MONOTONIC, &raw mut event, &raw mut timer) };
        if made != 0 {
            return Err(Failed::last("make a timer"));
        }
        let alarm = Self { timer, until: Cell::new(Instant::now()) };
        alarm.set(patience)?;
        Ok(alarm)
    }

    /// Rings after this, and not as it was set before.
    fn set(&self, patience: Duration) -> Result<(), Failed> {
        self.until.set(Instant::now() + patience);
        let never = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let once = libc::timespec {
            tv_sec: libc::time_t::try_from(patience.as_secs()).unwrap_or(1),
            tv_nsec: libc::c_long::from(patience.subsec_nanos().cast_signed()),
        };
        let when = libc::itimerspec { it_interval: never, it_value: once };
        // SAFETY: `timer` exists until `self` is dropped; `when` outlives the call; the old value is not asked for.
        let set = unsafe { libc::timer_settime(self.timer, 0, &raw const when, std::ptr::null_mut()) };
        if set == 0 { Ok(()) } else { Err(Failed::last("set a timer")) }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        // SAFETY: the timer was made by `after` and is deleted only here.
        unsafe { libc::timer_delete(self.timer) };
    }
}

/// Memory from `mmap`, given back at the end.
struct Mapping {
    at: NonNull<c_void>,
    len: usize,
}

impl Mapping {
    /// Shared and writable: of a descriptor, or of nothing.
    fn new(len: usize, of: Option<&OwnedFd>) -> Result<Self, Failed> {
        let (protection, shared) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        let (flags, fd) = of.map_or((shared | libc::MAP_ANONYMOUS, -1), |fd| (shared, fd.as_raw_fd()));
        // SAFETY: a fresh mapping at an address of the kernel's choice touches no existing memory.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, fd, 0) };
        match NonNull::new(at) {
            Some(at) if at.as_ptr() != libc::MAP_FAILED => Ok(Self { at, len }),
            _ => Err(Failed::last("map memory")),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: exactly what `new` mapped, unmapped once; nothing borrows from it.
        unsafe { libc::munmap(self.at.as_ptr(), self.len) };
    }
}

/// A virtual machine that is ready to run. Fields are dropped in this order: the CPU before what it runs on.
pub(super) struct Guest<'a> {
    cpu: OwnedFd,
    shared: Mapping,
    _machine: OwnedFd,
    _memory: Mapping,
    alarm: &'a Alarm,
}

impl<'a> Guest<'a> {
    /// The guest that is timed: write a byte, count to zero in two instructions a turn, write a byte, halt.
    pub(super) fn new(kvm: &OwnedFd, alarm: &'a Alarm, turns: u32) -> Result<Self, Failed> {
        let [a, b, c, d] = turns.to_le_bytes();
        #[rustfmt::skip]
        let code = [
            0xBA, 0xF8, 0x03,       // mov dx, 0x3f8
            0x66, 0xB9, a, b, c, d, // mov ecx, turns
            0xEE,                   // out dx, al
            0x66, 0x49,             // dec ecx
            0x75, 0xFC,             // jnz back to dec
            0xEE,                   // out dx, al
            0xF4,                   // hlt
        ];
        Self::with_code(kvm, alarm, &code)
    }

    /// A guest that runs this real-mode code.
    pub(super) fn with_code(kvm: &OwnedFd, alarm: &'a Alarm, code: &[u8]) -> Result<Self, Failed> {
        if number(kvm, GET_API_VERSION, 0, "ask for the API version")? != API_VERSION {
            return Err(Failed("ask for the API version", libc::EPROTO));
        }
        let machine = owned(number(kvm, CREATE_VM, 0, "create a machine")?);
        // Older Intel processors need three pages for real mode; anywhere outside the guest's memory will do.
        number(&machine, SET_TSS_ADDR, 0xFFFB_D000, "place the task state segment")?;

        let memory = Mapping::new(PAGE, None)?;
        let len = code.len().min(PAGE);
        // SAFETY: `len` bytes are readable in `code` and writable in the mapping, which is new and cannot overlap.
        unsafe { std::ptr::copy_nonoverlapping(code.as_ptr(), memory.at.as_ptr().cast(), len) };
        let host = memory.at.as_ptr().addr() as u64;
        let mut region = Region { slot: 0, flags: 0, guest: START, len: PAGE as u64, host };
        // The region stays mapped as long as the machine exists: see the order of the fields.
        with(&machine, SET_USER_MEMORY_REGION, &mut region, "give it memory")?;

        let size = number(kvm, GET_VCPU_MMAP_SIZE, 0, "ask for the size of a CPU")?;
        let size = usize::try_from(size).unwrap_or(0).max(PAGE);
        let cpu = owned(number(&machine, CREATE_VCPU, 0, "create a CPU")?);
        let shared = Mapping::new(size, Some(&cpu))?;

        // Special registers: the code segment comes first, as base, then limit (32 bits), selector (16) and type.
        let mut special = [0u64; 0x138 / 8];
        with(&cpu, GET_SREGS, &mut special, "read special registers")?;
        let [base, limits, ..] = &mut special;
        *base = 0;
        *limits &= !(0xFFFF << 32);
        with(&cpu, SET_SREGS, &mut special, "set special registers")?;

        // General registers: sixteen, then the instruction pointer and the flags, of which bit 1 is always set.
        let mut registers = [0u64; 18];
        let [.., pointer, flags] = &mut registers;
        (*pointer, *flags) = (START, 2);
        with(&cpu, SET_REGS, &mut registers, "set registers")?;

        let alone = !(1u64 << (libc::SIGRTMAX() - 1));
        let mut mask = SignalMask { len: 8, set: alone.to_ne_bytes() };
        with(&cpu, SET_SIGNAL_MASK, &mut mask, "let the alarm through")?;
        Ok(Self { cpu, shared, _machine: machine, _memory: memory, alarm })
    }

    /// From one write to the port to the next: how long that took, and the processor time that went into it. After `enough` it is
    /// stopped; then what all of its turns would have taken, by how far it came.
    pub(super) fn time(&mut self, turns: u32, enough: Duration) -> Result<(Duration, Duration), Failed> {
        self.run_to_port()?;
        self.alarm.set(enough)?;
        let (started, before) = (Instant::now(), worked());
        let ended = self.run_to_port();
        let (took, worked) = (started.elapsed(), worked().saturating_sub(before));
        match ended {
            Err(Failed(_, libc::ETIMEDOUT)) => {}
            whole => return whole.map(|()| (took, worked)),
        }
        let mut registers = [0u64; 18];
        with(&self.cpu, GET_REGS, &mut registers, "read registers")?;
        // rax, rbx, and the turns that are left. Where none was made the true time is longer still.
        let [_, _, left, ..] = registers;
        let made = turns.saturating_sub(u32::try_from(left).unwrap_or(u32::MAX)).max(1);
        Ok((took.saturating_mul(turns) / made, worked))
    }

    fn run_to_port(&mut self) -> Result<(), Failed> {
        const STEP: &str = "run the guest";
        while let Err(failed) = number(&self.cpu, RUN, 0, STEP) {
            if failed.1 != libc::EINTR {
                return Err(failed);
            }
            if Instant::now() >= self.alarm.until.get() {
                return Err(Failed(STEP, libc::ETIMEDOUT));
            }
        }
        // `struct kvm_run`: the reason is the third 32-bit word.
        let reason = self.shared.at.cast::<u32>().as_ptr().wrapping_add(2);
        // SAFETY: aligned, inside the shared page, and the kernel writes it only during KVM_RUN, which has returned.
        let reason = unsafe { reason.read_volatile() };
        if reason == EXIT_IO { Ok(()) } else { Err(Failed(STEP, libc::EIO)) }
    }
}

/// Processor time of this thread.
fn worked() -> Duration {
    rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime).try_into().unwrap_or_default()
}

/// An ioctl whose argument is a number and whose answer is one.
fn number(fd: &OwnedFd, request: libc::Ioctl, value: u64, step: &'static str) -> Result<i32, Failed> {
    // SAFETY: `fd` is open and none of the requests given to this function takes a pointer. KVM_RUN writes to
    // memory that is mapped as long as the CPU's descriptor is open.
    let answer = unsafe { libc::ioctl(fd.as_raw_fd(), request, value) };
    if answer >= 0 { Ok(answer) } else { Err(Failed::last(step)) }
}

/// An ioctl that reads or writes one `T`, whose size is part of the request.
fn with<T>(fd: &OwnedFd, request: libc::Ioctl, value: &mut T, step: &'static str) -> Result<(), Failed> {
    // SAFETY: `fd` is open, and `T` is the structure (or an equal number of bytes) that the request names.
    let answer = unsafe { libc::ioctl(fd.as_raw_fd(), request, std::ptr::from_mut(value)) };
    if answer >= 0 { Ok(()) } else { Err(Failed::last(step)) }
}

fn owned(fd: i32) -> OwnedFd {
    // SAFETY: the kernel has just made this descriptor for us and nobody else knows its number.
    unsafe { OwnedFd::from_raw_fd(fd) }
}
