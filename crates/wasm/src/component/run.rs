//! One component, begun, run once, and gone.

use std::sync::Arc;

use blastbox_wire::agent::{ExecSpec, Exit};
use wasmtime::Store;
use wasmtime::component::{Component, ComponentExportIndex, InstancePre};

use super::RUN;
use super::handles::MOST;
use crate::engine::COMPONENT;
use crate::guests::{self, Broken, Room, Used};
use crate::shelf::Loaded;
use crate::streams::Streams;
use crate::tools;
use crate::wasi::Guest;

/// Bytes that one call of a component may hand over. Lists are measured against a smaller limit of their own before they are copied.
/// A text is not: Wasmtime says how long it is only when it has been made UTF-8, which for a component that writes another encoding is
/// a copy in no budget, of three times as much at most.
const MOST_HANDED: usize = 4 << 20;

/// Runs a command to its end. Unlike an interpreter it begins with its command: all of it is the command's work.
pub(crate) fn run(
    room: &Room,
    guest: &Loaded,
    ready: &InstancePre<Guest>,
    spec: ExecSpec,
    streams: Arc<Streams>,
) -> (Result<u8, Broken>, Used) {
    let mut store = match guests::store(room, guest, COMPONENT, Some(streams)) {
        Ok(store) => store,
        Err(broken) => return (Err(broken), Used::default()),
    };
    let offered = tools::offered(&spec.environment);
    let host = &mut store.data_mut().host;
    host.arguments = spec.arguments;
    host.environment = spec.environment;
    host.directory = spec.directory;
    store.set_hostcall_fuel(MOST_HANDED);
    store.set_max_component_handles(MOST);
    let ended = match begin(&mut store, ready, (offered, room.http)) {
        Ok(code) => Ok(code),
        Err(error) => match guests::broken(&store, &error) {
            Broken { exit: Exit::Code(0), .. } => Ok(0),
            broken => Err(broken),
        },
    };
    let burnt = room.fuel.map(|fuel| fuel.saturating_sub(store.get_fuel().unwrap_or(0)));
    let used = Used { peak_bytes: store.data().limiter.peak(), fuel: burnt };
    (ended, used)
}

fn begin(
    store: &mut Store<Guest>,
    ready: &InstancePre<Guest>,
    (tools, http): (bool, bool),
) -> wasmtime::Result<u8> {
    let instance = ready.instantiate(&mut *store)?;
    // As of a module: code that runs while it is put together is offered nothing.
    let host = &mut store.data_mut().host;
    (host.tools, host.http) = (tools, http);
    let command =
        command(ready.component()).ok_or_else(|| wasmtime::Error::msg(format!("it has no {RUN}")))?;
    let run = instance.get_typed_func::<(), (Result<(), ()>,)>(&mut *store, command)?;
    let (ended,) = run.call(&mut *store, ())?;
    Ok(u8::from(ended.is_err()))
}

/// The function that a command is run by.
pub(crate) fn command(component: &Component) -> Option<ComponentExportIndex> {
    let interface = component.get_export_index(None, RUN)?;
    component.get_export_index(Some(&interface), "run")
}
