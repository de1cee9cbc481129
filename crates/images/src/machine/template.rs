//! A machine that has booted and sleeps: its memory, which copies share until they write to it, and the state of its devices.
//!
//! The memory lies in a sealed memory file: nobody can write to it any more, whatever has become of the programs that it is
//! lent to, and what was checked when it was read is what copies begin with.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::fs::{
    FallocateFlags, MemfdFlags, SealFlags, SeekFrom, fallocate, fcntl_add_seals, ftruncate, memfd_create,
    seek,
};
use rustix::io::Errno;

/// The least that memory is looked at.
pub(super) const PAGE: usize = 4096;
/// More than the devices of any machine of ours have.
pub(super) const MOST_STATE: usize = 16 << 20;
/// How long the kernel may have pages of a memory in its own hands, and the pause between two looks. It takes some to move or to count
/// them, and waits 0.15 s itself until it has given them back: a busy host was seen to need longer.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(50);
/// So many copies in a row that end without a word say something about their template. One says nothing: somebody may have killed it.
const DEATHS: u8 = 2;

/// A machine that sleeps.
#[derive(Debug)]
pub struct Template {
    memory: OwnedFd,
    bytes: u64,
    state: Vec<u8>,
    spoilt: AtomicBool,
    /// Copies that have ended without a word since one spoke.
    deaths: AtomicU8,
}

/// An empty memory for a machine that others will be copies of.
pub fn blank(bytes: u64) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    // Kernels from 6.3 on can be told that it is never to be executed.
    let memory = memfd_create("machine", flags | MemfdFlags::NOEXEC_SEAL)
        .or_else(|_| memfd_create("machine", flags))?;
    ftruncate(&memory, bytes)?;
    Ok(memory)
}

/// Seals a file in memory that nobody but this process has ever had: there is nobody to wait for, whatever the kernel does with its
/// pages. From now on nobody can write, and before now nobody could but us.
pub(super) fn seal_own(file: &impl AsFd) -> io::Result<()> {
    match add_seals(file, SealFlags::WRITE) {
        Err(Errno::BUSY) => Ok(add_seals(file, SealFlags::FUTURE_WRITE)?),
        sealed => Ok(sealed?),
    }
}

fn add_seals(file: &impl AsFd, against_writes: SealFlags) -> Result<(), Errno> {
    fcntl_add_seals(file, against_writes | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)
}

impl Template {
    /// Seals the memory of a machine that has ended. Fails where somebody still has it mapped for writing. May block for seconds.
    pub fn seal(memory: OwnedFd, state: Vec<u8>) -> io::Result<Self> {
        let began = Instant::now();
        while let Err(errno) = add_seals(&memory, SealFlags::WRITE) {
            if errno != Errno::BUSY || began.elapsed() > PATIENCE {
                return Err(errno.into());
            }
            sleep(PAUSE);
        }
        Self::new(memory, state)
    }

    /// The same for a memory that nobody but this process has ever had.
    pub(super) fn seal_own(memory: OwnedFd, state: Vec<u8>) -> io::Result<Self> {
        seal_own(&memory)?;
        Self::new(memory, state)
    }

    /// Of a memory that is sealed.
    fn new(memory: OwnedFd, state: Vec<u8>) -> io::Result<Self> {
        let bytes = u64::try_from(rustix::fs::fstat(&memory)?.st_size).unwrap_or(0);
        if state.is_empty() || state.len() > MOST_STATE || bytes == 0 {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(Self { memory, bytes, state, spoilt: AtomicBool::new(false), deaths: AtomicU8::new(0) })
    }

    /// Seals a copy of the memory of a machine that has ended, in which what is empty takes no room: a machine that was handed its
    /// memory by another one has touched all of it.
    pub fn seal_sparse(memory: OwnedFd, state: Vec<u8>) -> io::Result<Self> {
        let bytes = u64::try_from(rustix::fs::fstat(&memory)?.st_size).unwrap_or(0);
        let (spoilt, deaths) = (AtomicBool::new(false), AtomicU8::new(0));
        let full = Self { memory, bytes, state: Vec::new(), spoilt, deaths };
        let sparse = File::from(blank(bytes)?);
        let mut freed = 0;
        full.each_run(&mut vec![0; 1 << 20], |place, run| {
            sparse.write_all_at(run, place)?;
            // What was copied is given back at once: the host never has both.
            let end = place.saturating_add(run.len() as u64);
            let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(&full.memory, punch, freed, end.saturating_sub(freed))?;
            freed = end;
            Ok(())
        })?;
        Self::seal_own(sparse.into(), state)
    }

    /// Takes room for all of its memory, also for what is empty. Whoever reads all of a copy's memory makes the kernel do that, and
    /// the copy pay for it, which would have too little left for itself then.
    pub fn fill(&self) -> io::Result<()> {
        Ok(fallocate(&self.memory, FallocateFlags::empty(), 0, self.bytes)?)
    }

    /// Its memory, which nobody can change.
    #[must_use]
    pub fn memory(&self) -> BorrowedFd<'_> {
        self.memory.as_fd()
    }

    /// How large that is.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The state of its devices.
    #[must_use]
    pub fn state(&self) -> &[u8] {
        &self.state
    }

    /// The same as a file, for one reader: who reads it moves its place.
    pub fn state_file(&self) -> io::Result<OwnedFd> {
        let mut file = File::from(blank(0)?);
        file.write_all(&self.state)?;
        seek(&file, SeekFrom::Start(0))?;
        Ok(file.into())
    }

    /// A copy of it has ended without a word. Whether that was one too many: then nobody begins with it any more.
    pub fn copy_died(&self) -> bool {
        let died = self.deaths.fetch_add(1, Ordering::Relaxed).saturating_add(1);
        if died >= DEATHS {
            self.spoil();
        }
        died >= DEATHS
    }

    /// A copy of it has spoken. Whether one before had not.
    pub fn copy_spoke(&self) -> bool {
        self.deaths.swap(0, Ordering::Relaxed) > 0
    }

    /// The last copy of it that another process had has ended without a word.
    pub(super) fn doubt(&self) {
        self.deaths.store(DEATHS - 1, Ordering::Relaxed);
    }

    /// It is useless: nobody begins with it any more.
    pub fn spoil(&self) {
        self.spoilt.store(true, Ordering::Relaxed);
    }

    /// Whether that has happened.
    #[must_use]
    pub fn is_spoilt(&self) -> bool {
        self.spoilt.load(Ordering::Relaxed)
    }

    /// Every stretch of memory that is not empty, in order, none longer than `buffer`.
    pub(super) fn each_run(
        &self,
        buffer: &mut [u8],
        mut each: impl FnMut(u64, &[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut at = 0;
        while at < self.bytes {
            at = match seek(&self.memory, SeekFrom::Data(at)) {
                // A place between two pages is none that a stretch could begin at.
                Ok(data) => data - data % PAGE as u64,
                Err(rustix::io::Errno::NXIO) => return Ok(()),
                Err(errno) => return Err(errno.into()),
            };
            let left = usize::try_from(self.bytes - at).unwrap_or(usize::MAX).min(buffer.len());
            let Some(chunk) = buffer.get_mut(..left) else { return Ok(()) };
            let mut filled = 0;
            while filled < left {
                let place = at.saturating_add(filled as u64);
                match rustix::io::pread(&self.memory, chunk.get_mut(filled..).unwrap_or_default(), place)? {
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    count => filled += count,
                }
            }
            let mut begin = None;
            for (number, page) in chunk.chunks(PAGE).enumerate() {
                let empty = page == ZEROES.get(..page.len()).unwrap_or_default();
                match (begin, empty) {
                    (None, false) => begin = Some(number * PAGE),
                    (Some(first), true) => {
                        each(at + first as u64, chunk.get(first..number * PAGE).unwrap_or_default())?;
                        begin = None;
                    }
                    _ => {}
                }
            }
            if let Some(first) = begin {
                each(at + first as u64, chunk.get(first..).unwrap_or_default())?;
            }
            at += left as u64;
        }
        Ok(())
    }
}

static ZEROES: [u8; PAGE] = [0; PAGE];
