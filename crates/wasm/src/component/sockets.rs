//! `wasi:sockets`: there is no network. What can be reached without a socket says so; a component that imports the rest begins
//! all the same, as those do that are made from Rust or Python.

use wasmtime::component::{ComponentType, Lift, Linker, Lower, Resource, WasmStr};

use super::{kinds, offer};
use crate::wasi::Guest;

/// What names a network that leads nowhere.
#[derive(Debug)]
struct Nowhere;
/// Of these there is never one.
#[derive(Debug)]
struct NoTcp;
#[derive(Debug)]
struct NoUdp;
#[derive(Debug)]
struct NoIncoming;
#[derive(Debug)]
struct NoOutgoing;
#[derive(Debug)]
struct NoAnswer;

/// Why there is no socket. All that WASI names, in its order.
#[derive(Debug, Clone, Copy, ComponentType, Lift, Lower)]
#[component(enum)]
#[repr(u8)]
#[expect(dead_code, reason = "the type is WASI's")]
enum ErrorCode {
    #[component(name = "unknown")]
    Unknown,
    #[component(name = "access-denied")]
    AccessDenied,
    #[component(name = "not-supported")]
    NotSupported,
    #[component(name = "invalid-argument")]
    InvalidArgument,
    #[component(name = "out-of-memory")]
    OutOfMemory,
    #[component(name = "timeout")]
    Timeout,
    #[component(name = "concurrency-conflict")]
    ConcurrencyConflict,
    #[component(name = "not-in-progress")]
    NotInProgress,
    #[component(name = "would-block")]
    WouldBlock,
    #[component(name = "invalid-state")]
    InvalidState,
    #[component(name = "new-socket-limit")]
    NewSocketLimit,
    #[component(name = "address-not-bindable")]
    AddressNotBindable,
    #[component(name = "address-in-use")]
    AddressInUse,
    #[component(name = "remote-unreachable")]
    RemoteUnreachable,
    #[component(name = "connection-refused")]
    ConnectionRefused,
    #[component(name = "connection-reset")]
    ConnectionReset,
    #[component(name = "connection-aborted")]
    ConnectionAborted,
    #[component(name = "datagram-too-large")]
    DatagramTooLarge,
    #[component(name = "name-unresolvable")]
    NameUnresolvable,
    #[component(name = "temporary-resolver-failure")]
    TemporaryResolverFailure,
    #[component(name = "permanent-resolver-failure")]
    PermanentResolverFailure,
}

#[derive(Debug, Clone, Copy, ComponentType, Lift)]
#[component(enum)]
#[repr(u8)]
#[expect(dead_code, reason = "guests say it")]
enum Family {
    #[component(name = "ipv4")]
    Ipv4,
    #[component(name = "ipv6")]
    Ipv6,
}

type Answer<T> = Result<T, ErrorCode>;

/// What could be done with a socket. All need one, and there is none, so that none is ever called.
const TCP: [&str; 28] = [
    "start-bind",
    "finish-bind",
    "start-connect",
    "finish-connect",
    "start-listen",
    "finish-listen",
    "accept",
    "local-address",
    "remote-address",
    "is-listening",
    "address-family",
    "set-listen-backlog-size",
    "keep-alive-enabled",
    "set-keep-alive-enabled",
    "keep-alive-idle-time",
    "set-keep-alive-idle-time",
    "keep-alive-interval",
    "set-keep-alive-interval",
    "keep-alive-count",
    "set-keep-alive-count",
    "hop-limit",
    "set-hop-limit",
    "receive-buffer-size",
    "set-receive-buffer-size",
    "send-buffer-size",
    "set-send-buffer-size",
    "subscribe",
    "shutdown",
];
const UDP: [&str; 13] = [
    "start-bind",
    "finish-bind",
    "stream",
    "local-address",
    "remote-address",
    "address-family",
    "unicast-hop-limit",
    "set-unicast-hop-limit",
    "receive-buffer-size",
    "set-receive-buffer-size",
    "send-buffer-size",
    "set-send-buffer-size",
    "subscribe",
];
const INCOMING: [&str; 2] = ["receive", "subscribe"];
const OUTGOING: [&str; 3] = ["check-send", "send", "subscribe"];
const LOOKUP: [&str; 2] = ["resolve-next-address", "subscribe"];

pub(super) fn link(linker: &mut Linker<Guest>) -> wasmtime::Result<()> {
    kinds! { linker, "wasi:sockets/network@0.2.0"; "network" => Nowhere, }
    kinds! { linker, "wasi:sockets/tcp@0.2.0"; "tcp-socket" => NoTcp, }
    kinds! { linker, "wasi:sockets/udp@0.2.0";
        "udp-socket" => NoUdp, "incoming-datagram-stream" => NoIncoming, "outgoing-datagram-stream" => NoOutgoing,
    }
    kinds! { linker, "wasi:sockets/ip-name-lookup@0.2.0"; "resolve-address-stream" => NoAnswer, }
    offer! { linker, "wasi:sockets/instance-network@0.2.0";
        "instance-network" => |_call| -> Resource<Nowhere> { Resource::new_own(NOWHERE) }
    }
    offer! { linker, "wasi:sockets/tcp-create-socket@0.2.0";
        "create-tcp-socket" => |_call, _family: Family| -> Answer<Resource<NoTcp>> { Err(ErrorCode::AccessDenied) }
    }
    offer! { linker, "wasi:sockets/udp-create-socket@0.2.0";
        "create-udp-socket" => |_call, _family: Family| -> Answer<Resource<NoUdp>> { Err(ErrorCode::AccessDenied) }
    }
    offer! { linker, "wasi:sockets/ip-name-lookup@0.2.0";
        "resolve-addresses" => |_call, _network: Resource<Nowhere>, _name: WasmStr| -> Answer<Resource<NoAnswer>> {
            Err(ErrorCode::AccessDenied)
        }
    }
    let methods = [
        ("wasi:sockets/tcp@0.2.0", "tcp-socket", TCP.as_slice()),
        ("wasi:sockets/udp@0.2.0", "udp-socket", &UDP),
        ("wasi:sockets/udp@0.2.0", "incoming-datagram-stream", &INCOMING),
        ("wasi:sockets/udp@0.2.0", "outgoing-datagram-stream", &OUTGOING),
        ("wasi:sockets/ip-name-lookup@0.2.0", "resolve-address-stream", &LOOKUP),
    ];
    for (interface, kind, methods) in methods {
        let mut interface = linker.instance(interface)?;
        for method in methods {
            let name = format!("[method]{kind}.{method}");
            interface.func_new(&name, |_, _, _, _| {
                Err(wasmtime::Error::msg("the guest calls a socket, and there is none"))
            })?;
        }
    }
    Ok(())
}

/// The number of the network: none of [`super::Handles`], whatever closes it.
const NOWHERE: u32 = u32::MAX;
