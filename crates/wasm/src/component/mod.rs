//! Components: what a WASI 0.2 command may call, made here, in memory, and narrow; and how one is run.
//!
//! Beneath it lie the same files, streams, clocks and chance as beneath preview 1. Wasmtime's own layer is not linked: it reaches
//! files and sockets of the host.
//!
//! Trust: every number, text and list is a guest's. Handles are looked up and counted, lists are measured before they are
//! copied, texts are bounded (`run`) and paid for, and nothing waits without hearing that it is to end. Sockets are offered as far as a component that imports them begins:
//! none can be made.

mod about;
mod calls;
mod codes;
mod files;
mod handles;
mod names;
mod poll;
mod run;
mod sockets;
mod streams;

use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, Resource};

pub(crate) use self::handles::Handles;
#[cfg(feature = "compiler")]
pub(crate) use self::run::command;
pub(crate) use self::run::run;
use crate::wasi::Guest;

/// What a command exports. Any version 0.2 answers to the name of the first one, and so do the interfaces below.
pub(crate) const RUN: &str = "wasi:cli/run@0.2.0";

/// A call of a guest.
type Call<'a> = StoreContextMut<'a, Guest>;

/// What handles stand for, told apart by Wasmtime already: a stream is never taken for a file.
#[derive(Debug)]
struct FileHandle;
#[derive(Debug)]
struct EntriesHandle;
#[derive(Debug)]
struct InputHandle;
#[derive(Debug)]
struct OutputHandle;
#[derive(Debug)]
struct PollHandle;
#[derive(Debug)]
struct ErrorHandle;

/// Defines functions of one interface: name, arguments, what it gives, and how. An error ends the guest.
macro_rules! offer {
    ($linker:expr, $interface:literal; $($name:literal => |$call:ident $(, $arg:ident: $kind:ty)*| -> $gives:ty $body:block)*) => {{
        let mut interface = $linker.instance($interface)?;
        $(interface.func_wrap(
            $name,
            |mut $call: crate::component::Call<'_>, ($($arg,)*): ($($kind,)*)| -> wasmtime::Result<($gives,)> {
                // Not every one looks at what is the guest's.
                let _ = &mut $call;
                let given: $gives = $body;
                Ok((given,))
            },
        )?;)*
    }};
}
use offer;

/// Defines what handles of an interface are; one that goes is forgotten.
macro_rules! kinds {
    ($linker:expr, $interface:literal; $($name:literal => $kind:ty,)*) => {{
        let mut interface = $linker.instance($interface)?;
        $(interface.resource(
            $name,
            wasmtime::component::ResourceType::host::<$kind>(),
            |mut call: crate::component::Call<'_>, number| {
                call.data_mut().host.handles.close(number);
                Ok(())
            },
        )?;)*
    }};
}
use kinds;

/// Puts everything within a component's reach.
pub(crate) fn link(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    poll::link(linker)?;
    streams::link(linker)?;
    about::link(linker)?;
    files::link(linker)?;
    names::link(linker)?;
    calls::link(linker)?;
    sockets::link(linker)
}

/// A handle of this number that is the guest's from now on.
fn owned<T: 'static>(number: u32) -> Resource<T> {
    Resource::new_own(number)
}
