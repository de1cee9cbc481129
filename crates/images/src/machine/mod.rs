//! What virtual machines start from: a kernel, the first files that it unpacks, and an image as a disk.

mod cpio;
mod drivers;
mod error;
mod fresh;
mod kernels;
mod looks;
mod parts;
mod squashfs;
#[cfg(test)]
mod tests;

pub use error::MachineError;
pub use kernels::{Kernel, KernelFacts, Kernels, NewKernel};
pub(crate) use parts::forget_disk;
pub use parts::{Parts, Workshop};
