//! What virtual machines start from: a kernel, the first files that it unpacks, and an image as a disk.

mod cpio;
mod drivers;
mod error;
mod fresh;
mod kernels;
mod parts;
mod squashfs;
#[cfg(test)]
mod tests;

pub use error::MachineError;
pub use kernels::{Kernel, KernelFacts, Kernels, NewKernel};
pub use parts::Parts;
pub(crate) use parts::{Workshop, forget_disk};
