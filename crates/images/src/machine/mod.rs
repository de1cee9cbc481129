//! What virtual machines start from: a kernel, the first files that it unpacks, and an image as a disk.

mod cpio;
mod drivers;
mod error;
mod fresh;
mod kernels;
mod looks;
mod parts;
mod snapshots;
mod squashfs;
mod template;
#[cfg(test)]
mod template_tests;
mod templates;
#[cfg(test)]
mod tests;
mod workspace;

pub use error::MachineError;
pub use kernels::{Kernel, KernelFacts, Kernels, NewKernel};
pub(crate) use parts::forget_disk;
pub use parts::{Parts, Workshop};
pub use snapshots::{SnapshotFault, Snapshots};
pub use squashfs::CopyCaps;
pub use template::{Template, blank};
pub use templates::{TemplateError, Templates};
pub use workspace::copy_workspace;
