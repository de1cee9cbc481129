//! Why a server gave no answer, in words for whoever asked: what it was, and what can be done. The codes are those of every refusal.

use blastbox_wire::egress::Reason;
use http::StatusCode;
use rustls::CertificateError;

/// No answer, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Unreached {
    pub(super) reason: Reason,
    /// What more is known than the reason says.
    more: Option<&'static str>,
}

impl From<Reason> for Unreached {
    fn from(reason: Reason) -> Self {
        Self { reason, more: None }
    }
}

impl Unreached {
    /// TLS did not come about.
    pub(super) fn in_tls(error: Option<&rustls::Error>) -> Self {
        match error {
            Some(rustls::Error::InvalidCertificate(why)) => {
                let (reason, more) = of_certificate(why);
                Self { reason, more }
            }
            Some(_) | None => Reason::BrokenUpstream.into(),
        }
    }

    pub(super) fn status(self) -> StatusCode {
        match self.reason {
            Reason::Timeout => StatusCode::GATEWAY_TIMEOUT,
            Reason::FlowLimit | Reason::RateLimit => StatusCode::TOO_MANY_REQUESTS,
            _ => StatusCode::BAD_GATEWAY,
        }
    }

    pub(super) fn detail(self) -> &'static str {
        self.more.unwrap_or(match self.reason {
            Reason::Timeout => "the server did not answer in time",
            Reason::BadCertificate => "the server's certificate does not hold",
            Reason::BrokenUpstream => "the server ended the connection or broke its protocol",
            Reason::FlowLimit | Reason::RateLimit => {
                "the server needs another connection for it, and this box may have no more of them now"
            }
            Reason::NameNotFound => "the server cannot be reached: its name has no address",
            Reason::ForbiddenAddress => {
                "the server cannot be reached: its name leads to private or reserved addresses only, where the rules of this box let \
                 nothing go; private ones open by network.dangerously_allow_private in its policy"
            }
            Reason::MetadataAddress => {
                "the server cannot be reached: its name leads to a cloud's metadata service, which no policy opens"
            }
            Reason::OwnAddress => {
                "the server cannot be reached: its name leads to an address of the host that this box runs on; private ones open by \
                 network.dangerously_allow_private in its policy"
            }
            Reason::Unreachable => "the server cannot be reached: nothing there takes the connection",
            _ => "the server cannot be reached",
        })
    }
}

/// What is wrong with a certificate, where whoever asked can do something about it.
fn of_certificate(why: &CertificateError) -> (Reason, Option<&'static str>) {
    let text = match why {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => Some(
            "the server's certificate has expired: whoever runs the server has to renew it, unless the clock of this host is wrong",
        ),
        CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => Some(
            "the server's certificate does not hold yet: the clock of this host is behind, or the certificate was made for later",
        ),
        CertificateError::UnknownIssuer => Some(
            "the server's certificate has an issuer that the gateway of this box does not believe: add that authority to those of the host \
             (the gateway reads them when a box is made), or have the server send the certificates in between",
        ),
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => Some(
            "the server's certificate is for other names than this one: ask for a name that is in it, or have it made for this one, too",
        ),
        CertificateError::Revoked => {
            Some("the server's certificate was revoked: whoever runs the server has to replace it")
        }
        _ => None,
    };
    let reason = match why {
        CertificateError::Expired | CertificateError::ExpiredContext { .. } => Reason::CertificateExpired,
        CertificateError::UnknownIssuer => Reason::CertificateIssuer,
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            Reason::CertificateName
        }
        _ => Reason::BadCertificate,
    };
    (reason, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_wrong_with_a_certificate_is_named() {
        for (why, word, code) in [
            (CertificateError::Expired, "expired", "certificate-expired"),
            (CertificateError::NotValidYet, "not hold yet", "bad-certificate"),
            (CertificateError::UnknownIssuer, "issuer", "certificate-issuer-unknown"),
            (CertificateError::NotValidForName, "other names", "certificate-name-mismatch"),
            (CertificateError::Revoked, "revoked", "bad-certificate"),
            (CertificateError::BadSignature, "does not hold", "bad-certificate"),
        ] {
            let unreached = Unreached::in_tls(Some(&rustls::Error::InvalidCertificate(why)));
            assert_eq!(unreached.reason.as_str(), code);
            assert_eq!(unreached.status(), StatusCode::BAD_GATEWAY);
            assert!(unreached.detail().contains(word), "{}", unreached.detail());
        }
        assert_eq!(Unreached::in_tls(None), Reason::BrokenUpstream.into());
    }

    #[test]
    fn each_way_of_not_being_reached_is_told_by_itself() {
        use Reason::*;
        let ways = [NameNotFound, ForbiddenAddress, MetadataAddress, OwnAddress, Unreachable];
        let said: std::collections::BTreeSet<&str> =
            ways.iter().map(|reason| Unreached::from(*reason).detail()).collect();
        assert_eq!(said.len(), ways.len());
        assert!(said.iter().all(|text| text.starts_with("the server cannot be reached: ")), "{said:?}");
    }
}
