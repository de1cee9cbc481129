//! A WASI command: any module with `_start`.

use blastbox_wire::agent::{ExecSpec, Exit};

use super::{Broken, Seat};
use crate::files::ROOT;
use crate::wasi::Descriptor;

pub(super) fn run(seat: &mut Seat, spec: ExecSpec) -> Result<u8, Broken> {
    let host = &mut seat.store.data_mut().host;
    host.arguments = spec.arguments;
    host.environment = spec.environment;
    let here = host.tree().find(ROOT, &spec.directory);
    if let Ok(ino) = here {
        // Names that do not begin with a slash begin here.
        host.descriptors.open(Descriptor::Directory { ino, given: Some(b".".to_vec()) }).ok();
    }
    match seat.call::<(), ()>("_start", ()) {
        Ok(()) | Err(Broken { exit: Exit::Code(0), .. }) => Ok(0),
        Err(broken) => Err(broken),
    }
}
