//! Variables that every command of a box has, unless it brings its own.

use blastbox_images::{Image, ImageConfig};
use blastbox_policy::{BoxRoot, SealedPolicy};
use blastbox_wire::plan::GPU_LIBRARIES;

use crate::live::USUAL_PATH;

/// The search path of a box that has a root. The host's programs stay as they are: `sudo` lies beside them.
pub(super) fn path_of_root(policy: &SealedPolicy, image: &Image) -> Option<(String, String)> {
    match (policy.kernel().root, image) {
        (BoxRoot::Allowed, Image::Host(_)) => Some(("PATH".to_owned(), format!("/.blastbox:{USUAL_PATH}"))),
        (BoxRoot::None, _)
        | (BoxRoot::Allowed, Image::Directory(_) | Image::Stored(_) | Image::Module(_)) => None,
    }
}

/// Where programs of an image find the libraries of the host's GPU driver: before what the image itself says, which is made for
/// another driver. In the host's own view they lie where they always do.
pub(super) fn libraries_of_gpu(image: &Image, variables: &mut Vec<(String, String)>) {
    const NAME: &str = "LD_LIBRARY_PATH";
    match (image, variables.iter_mut().find(|(name, _)| name == NAME)) {
        (Image::Host(_) | Image::Module(_), _) => {}
        (Image::Directory(_) | Image::Stored(_), Some((_, value))) => {
            *value = format!("{GPU_LIBRARIES}:{value}")
        }
        (Image::Directory(_) | Image::Stored(_), None) => {
            variables.push((NAME.to_owned(), GPU_LIBRARIES.to_owned()));
        }
    }
}

/// The variables that an image asks for. Who the user is and where it is at home is the box's to say.
pub(super) fn wishes(config: &ImageConfig) -> impl Iterator<Item = (String, String)> {
    let ours = |name: &str| matches!(name, "HOME" | "USER" | "LOGNAME");
    config.env.iter().filter(move |(name, _)| !ours(name)).map(|(name, value)| (name.clone(), value.clone()))
}
