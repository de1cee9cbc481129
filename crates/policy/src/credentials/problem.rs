//! Why a binding of the credentials section means nothing, or too much.

use super::SecretName;
use crate::{Host, Protocol};

/// Why a binding means nothing, or too much. Each says what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadBinding {
    /// Bindings that the mode ignores.
    #[error("bindings are given while credentials.mode = \"none\"; write mode = \"brokered\" or remove them")]
    BindingsWhileNone,
    /// A mode without what it is for.
    #[error(
        "credentials.mode = \"brokered\" without a binding; add one to credentials.bind or write mode = \"none\""
    )]
    NothingBound,
    /// More than any honest policy.
    #[error("more than {most} bindings")]
    TooMany {
        /// How many are permitted.
        most: usize,
    },
    /// Bindings that are too long together.
    #[error("the hosts, methods and paths of all bindings have more than {most} characters together")]
    TooLong {
        /// How many are permitted.
        most: usize,
    },
    /// No rule leads there.
    #[error(
        "secret {secret} is bound to {host}:{port}, which no rule allows: a binding opens nothing; add \
         {{ host = \"{host}\", ports = [{port}], tls = \"inspect\" }} to network.allow"
    )]
    Unreachable {
        /// The secret.
        secret: SecretName,
        /// Where it is bound.
        host: Host,
        /// The port.
        port: u16,
    },
    /// Nobody reads requests there.
    #[error(
        "secret {secret} is bound to {host}, whose rule says tls = \"passthrough\": nothing can be put into requests \
         that are not read; write tls = \"inspect\" in that rule"
    )]
    Passthrough {
        /// The secret.
        secret: SecretName,
        /// Where it is bound.
        host: Host,
    },
    /// It would travel in the clear, or not as a request.
    #[error(
        "secret {secret} is bound to {host}, whose rule says protocol = \"{protocol}\": secrets travel only in https"
    )]
    NotTls {
        /// The secret.
        secret: SecretName,
        /// Where it is bound.
        host: Host,
        /// What the rule says.
        protocol: Protocol,
    },
    /// Which one?
    #[error(
        "secrets {one} and {other} are bound to the same header of requests to {host}; give them methods or paths that do \
         not overlap"
    )]
    Ambiguous {
        /// One of them.
        one: SecretName,
        /// The other.
        other: SecretName,
        /// Where.
        host: Host,
    },
    /// Not a name.
    #[error("{text:?} is not the name of a secret; permitted are 1 to 64 of a-z, 0-9, - and _")]
    Name {
        /// As written.
        text: String,
    },
    /// Not a host.
    #[error(
        "{text:?} is not a host that a secret can be bound to: it needs one exact name, no wildcard and no address"
    )]
    Host {
        /// As written.
        text: String,
    },
    /// Port zero.
    #[error("port 0 is no port")]
    Port,
    /// Not a method.
    #[error("{text:?} is not a method; write it in capitals, as in \"GET\"")]
    Method {
        /// As written.
        text: String,
    },
    /// Not a header that can carry a secret.
    #[error(
        "{text:?} cannot carry a secret: it is not a header's name, or one that says how a message is carried"
    )]
    Header {
        /// As written.
        text: String,
    },
    /// A key that the form does not have.
    #[error("as = \"{slot}\" {problem}")]
    Slot {
        /// The form.
        slot: &'static str,
        /// What is missing or too much.
        problem: &'static str,
    },
    /// Not a login.
    #[error("{text:?} cannot be a user of a Basic login: 1 to 128 printable characters without a colon")]
    User {
        /// As written.
        text: String,
    },
    /// Not a prefix.
    #[error("{text:?} cannot begin a placeholder: at most 32 of letters, digits, - and _")]
    Prefix {
        /// As written.
        text: String,
    },
    /// Not a variable.
    #[error(
        "{text:?} is not a variable that a placeholder can be put into: capitals, digits and _, not one that blastbox or the loader reads"
    )]
    Variable {
        /// As written.
        text: String,
    },
    /// A variable for nothing.
    #[error("env is given without placeholder: what is put in by the gateway needs no variable in the box")]
    EnvWithoutPlaceholder,
}
