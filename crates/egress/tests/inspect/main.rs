//! Connections that are read: real TLS on loopback, real servers, and what each side saw.

// `cfg(test)` says nothing new here; by it the lints know that all of this is test code.
#[cfg(test)]
mod carried;
#[cfg(test)]
mod clients;
#[cfg(test)]
mod lent;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod lines;
#[cfg(test)]
mod recorded;
#[cfg(test)]
mod refused;
#[cfg(test)]
mod rig;
#[cfg(test)]
mod server;
#[cfg(test)]
mod websocket;
