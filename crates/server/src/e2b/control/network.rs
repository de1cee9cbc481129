//! What a sandbox's owner says about its network, as rules for its gateway. It is closed until hosts are named; what a
//! policy cannot hold is refused by name, never left out.

use std::collections::BTreeMap;

use blastbox_policy::{AllowRule, BadRule, Draft, HostPattern, Network, Protocol, RuleParts, below_floor};
use serde::Deserialize;
use serde_json::{Value, json};

use super::headers::Rule;
use crate::config::Internet;
use crate::e2b::no::{No, echo};
use crate::e2b::ports::Front;
use crate::trouble::line;

/// Names of one sandbox. Each is two rules: TLS on its port, HTTP on its own.
const MOST_NAMES: usize = 120;
/// What E2B calls everything.
const EVERYTHING: [&str; 2] = ["0.0.0.0/0", "::/0"];
/// Where an address may be dialled: E2B's gateway tells names apart on these ports, and ours does no more for addresses.
const PORTS: [u16; 2] = [80, 443];

/// SandboxNetworkConfig, and what may be updated of it. Clients write the wire's names; their users' own spelling is taken
/// too.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Asked {
    #[serde(alias = "allow_public_traffic")]
    pub(super) allow_public_traffic: Option<bool>,
    #[serde(alias = "allow_out")]
    allow_out: Option<Vec<String>>,
    #[serde(alias = "deny_out")]
    deny_out: Option<Vec<String>>,
    #[serde(alias = "dns_servers")]
    dns_servers: Option<Vec<String>>,
    #[serde(alias = "egress_proxy")]
    egress_proxy: Option<Value>,
    #[serde(alias = "mask_request_host")]
    mask_request_host: Option<String>,
    #[serde(alias = "https_ports")]
    https_ports: Option<Vec<u16>>,
    pub(super) rules: Option<BTreeMap<String, Vec<Rule>>>,
    #[serde(rename = "allow_internet_access")]
    pub(super) allow_internet_access: Option<bool>,
}

/// What a sandbox reaches. Two that are equal are the same to its gateway.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) enum Reaches {
    /// Nothing.
    #[default]
    Nothing,
    /// What is named here, in order.
    Named(Vec<HostPattern>),
    /// Everything public: what the operator let the owner have.
    Everything,
}

impl Reaches {
    /// Writes it into a policy.
    pub(crate) fn open(&self, draft: Draft) -> Result<Draft, BadRule> {
        match self {
            Self::Nothing => Ok(draft),
            Self::Everything => Ok(draft.dangerously_open_network()),
            Self::Named(hosts) => {
                let rules = hosts.iter().map(rules_for).collect::<Result<Vec<_>, _>>()?;
                Ok(rules.into_iter().flatten().fold(draft, Draft::allow))
            }
        }
    }

    /// As E2B shows it.
    pub(super) fn show(&self) -> Value {
        match self {
            Self::Nothing => json!({ "denyOut": EVERYTHING }),
            Self::Everything => json!({}),
            Self::Named(hosts) => {
                let hosts: Vec<String> = hosts.iter().map(ToString::to_string).collect();
                json!({ "allowOut": hosts, "denyOut": EVERYTHING })
            }
        }
    }
}

/// A name is reached as E2B's own gateway reaches it: over TLS and over HTTP, each on its port. An address has no name
/// that could be looked at.
pub(super) fn rules_for(host: &HostPattern) -> Result<Vec<AllowRule>, BadRule> {
    let parts =
        |protocol, ports: &[u16]| RuleParts { protocol, ports: ports.to_vec(), ..RuleParts::default() };
    match host {
        HostPattern::Address(_) => Ok(vec![AllowRule::new(host.clone(), parts(Protocol::Tcp, &PORTS))?]),
        HostPattern::Exact(_) | HostPattern::Under(_) | HostPattern::Any => Ok(vec![
            AllowRule::new(host.clone(), parts(Protocol::Https, &[443]))?,
            AllowRule::new(host.clone(), parts(Protocol::Http, &[80]))?,
        ]),
    }
}

/// These hosts, as an owner would name them.
pub(crate) fn named(hosts: &[String]) -> Result<Reaches, No> {
    let asked = Asked { allow_out: Some(hosts.to_vec()), ..Asked::default() };
    asked.reaches(Some(false), Internet::Closed)
}

impl Asked {
    /// Whether a way out is refused in so many words.
    pub(super) fn closes(&self) -> bool {
        self.allow_internet_access == Some(false) || matches!(self.denied(), Ok(Denied::Everything))
    }

    /// What the sandbox shall reach, where this daemon can have it so.
    pub(super) fn reaches(&self, internet: Option<bool>, operator: Internet) -> Result<Reaches, No> {
        self.refuse_what_is_not_there()?;
        let denied = self.denied()?;
        let mut hosts = Vec::new();
        let mut everything = false;
        for text in self.allow_out.iter().flatten() {
            match host(text)? {
                Some(host) if !hosts.contains(&host) => hosts.push(host),
                Some(_) => {}
                None => everything = true,
            }
        }
        if hosts.len() > MOST_NAMES {
            return Err(refused(&format!("network.allowOut with more than {MOST_NAMES} hosts")));
        }
        let wanted = match (internet.or(self.allow_internet_access), denied) {
            (Some(false), _) | (_, Denied::Everything) => everything,
            (Some(true), Denied::Nothing) => true,
            (None, Denied::Nothing) => {
                everything || operator == Internet::DangerouslyOpen && hosts.is_empty()
            }
        };
        match (wanted, operator) {
            (true, Internet::DangerouslyOpen) => Ok(Reaches::Everything),
            (true, Internet::Closed) => Err(No::bad(
                "allow_internet_access: true is refused: sandboxes of this daemon reach the hosts that network.allowOut \
                 names and nothing else; name them, or have the operator write internet = \"dangerously-open\" under [e2b]",
            )
            .coded("sandbox_create_refused")),
            (false, _) if hosts.is_empty() => Ok(Reaches::Nothing),
            (false, _) => Ok(Reaches::Named(hosts)),
        }
    }

    /// What is denied beyond what is never reached anyway.
    fn denied(&self) -> Result<Denied, No> {
        let mut denied = Denied::Nothing;
        for text in self.deny_out.iter().flatten() {
            if EVERYTHING.contains(&text.as_str()) {
                denied = Denied::Everything;
                continue;
            }
            let address = text.parse().ok().map(|address| below_floor(address).is_some());
            let range = || text.parse::<Network>().ok().map(|range| is_below(&range));
            match address.or_else(range) {
                // Private, local and metadata addresses are never dialled.
                Some(true) => {}
                Some(false)
                    if self.deny_out.iter().flatten().any(|other| EVERYTHING.contains(&other.as_str())) => {}
                Some(false) => {
                    let what = format!("network.denyOut: \"{}\"", echo(text));
                    return Err(No::bad(format!(
                        "{what} is refused: a policy names what is reached, not what is not; deny \"0.0.0.0/0\" and name \
                         hosts in network.allowOut"
                    ))
                    .coded("sandbox_create_refused"));
                }
                None => {
                    return Err(No::bad(format!(
                        "network.denyOut: \"{}\" is neither an address nor a range",
                        echo(text)
                    )));
                }
            }
        }
        Ok(denied)
    }

    /// How servers inside are to be spoken to.
    pub(super) fn front(&self) -> Result<Front, No> {
        Front::of(self.mask_request_host.as_deref(), self.https_ports.as_deref())
    }

    fn refuse_what_is_not_there(&self) -> Result<(), No> {
        let asked = [
            (self.egress_proxy.as_ref().is_some_and(|proxy| !proxy.is_null()), "network.egressProxy"),
            (self.dns_servers.as_ref().is_some_and(|servers| !servers.is_empty()), "network.dnsServers"),
        ];
        match asked.iter().find(|(asked, _)| *asked) {
            Some((_, what)) => Err(refused(what)),
            None => Ok(()),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Denied {
    Nothing,
    Everything,
}

/// A host that may be reached; `None` for everything.
fn host(text: &str) -> Result<Option<HostPattern>, No> {
    if EVERYTHING.contains(&text) {
        return Ok(None);
    }
    let bad = |error: BadRule| {
        let what = format!("network.allowOut: \"{}\" is refused: {}", echo(text), line(&error));
        No::bad(what).coded("sandbox_create_refused")
    };
    let one = text.strip_suffix("/32").or_else(|| text.strip_suffix("/128")).unwrap_or(text);
    let host: HostPattern = one.to_ascii_lowercase().parse().map_err(bad)?;
    // A private address is told now, not when the box is made.
    rules_for(&host).map_err(bad)?;
    if let HostPattern::Address(address) = host
        && let Some(class) = below_floor(address)
    {
        let what = format!("network.allowOut: \"{}\" is refused: it is a {class} address", echo(text));
        return Err(No::bad(what).coded("sandbox_create_refused"));
    }
    Ok(Some(host))
}

/// Whether nothing in a range is ever dialled.
fn is_below(range: &Network) -> bool {
    [
        "10.0.0.0/8",
        "172.16.0.0/12",
        "192.168.0.0/16",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "169.254.0.0/16",
        "fc00::/7",
        "fe80::/10",
    ]
    .iter()
    .any(|whole| whole.parse::<Network>().is_ok_and(|whole| whole.contains(range)))
}

fn refused(what: &str) -> No {
    No::bad(format!(
        "{what} is refused: blastbox has nothing that would hold it; leave it out, or see docs/e2b.md"
    ))
    .coded("sandbox_create_refused")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(text: &str) -> Asked {
        serde_json::from_str(text).unwrap()
    }

    fn closed(text: &str) -> Result<Reaches, No> {
        asked(text).reaches(None, Internet::Closed)
    }

    fn open(text: &str) -> Result<Reaches, No> {
        asked(text).reaches(None, Internet::DangerouslyOpen)
    }

    fn named(hosts: &[&str]) -> Reaches {
        Reaches::Named(hosts.iter().map(|host| host.parse().unwrap()).collect())
    }

    #[test]
    fn nothing_is_reached_until_hosts_are_named() {
        assert_eq!(closed("{}").unwrap(), Reaches::Nothing);
        assert_eq!(
            closed(r#"{"denyOut":["0.0.0.0/0"],"allow_internet_access":false}"#).unwrap(),
            Reaches::Nothing
        );
        let both = [
            r#"{"allowOut":["a.test","*.example.com","8.8.8.8/32","a.test"]}"#,
            r#"{"allow_out":["A.test","*.example.com","8.8.8.8"],"deny_out":["0.0.0.0/0"]}"#,
        ];
        for text in both {
            assert_eq!(closed(text).unwrap(), named(&["a.test", "*.example.com", "8.8.8.8"]), "{text}");
        }
        assert_eq!(closed(r#"{"allow_internet_access":true}"#).unwrap_err().status(), 400);
        assert_eq!(closed(r#"{"allowOut":["0.0.0.0/0"]}"#).unwrap_err().status(), 400);
    }

    #[test]
    fn the_operator_may_give_what_e2b_gives() {
        assert_eq!(open("{}").unwrap(), Reaches::Everything);
        assert_eq!(
            open(r#"{"allow_internet_access":true,"denyOut":["10.0.0.0/8","169.254.169.254"]}"#).unwrap(),
            Reaches::Everything
        );
        assert_eq!(open(r#"{"allow_internet_access":false}"#).unwrap(), Reaches::Nothing);
        assert_eq!(open(r#"{"denyOut":["0.0.0.0/0"]}"#).unwrap(), Reaches::Nothing);
        assert_eq!(
            open(r#"{"denyOut":["0.0.0.0/0","8.8.8.8"],"allowOut":["a.test"]}"#).unwrap(),
            named(&["a.test"])
        );
        assert_eq!(open(r#"{"denyOut":["8.8.8.0/24"]}"#).unwrap_err().status(), 400);
    }

    #[test]
    fn what_a_policy_cannot_hold_is_refused_by_name() {
        for (text, words) in [
            (r#"{"allowOut":["8.8.8.0/24"]}"#, "8.8.8.0/24"),
            (r#"{"allowOut":["*.com"]}"#, "*.com"),
            (r#"{"allowOut":["10.0.0.1"]}"#, "10.0.0.1"),
            (r#"{"allowOut":["169.254.169.254"]}"#, "169.254.169.254"),
            (r#"{"allowOut":["a b"]}"#, "a b"),
            (r#"{"egressProxy":{"address":"a:1"}}"#, "network.egressProxy"),
            (r#"{"dnsServers":["8.8.8.8"]}"#, "network.dnsServers"),
            (r#"{"denyOut":["nonsense"]}"#, "nonsense"),
        ] {
            let no = closed(text).unwrap_err();
            assert!(no.status() == 400 && format!("{no:?}").contains(words), "{text}: {no:?}");
        }
        assert!(closed(r#"{"rules":{"a.test":[{}]},"egressProxy":null,"dnsServers":[]}"#).is_ok());
    }

    #[test]
    fn names_become_rules_that_seal() {
        let draft = || blastbox_policy::Profile::Default.draft().unwrap();
        let policy = named(&["a.test", "*.example.com", "8.8.8.8"]).open(draft()).unwrap().seal().unwrap();
        assert_eq!(policy.network().allow.len(), 5);
        assert!(Reaches::Everything.open(draft()).unwrap().seal().is_ok());
        assert_eq!(Reaches::Nothing.open(draft()).unwrap().seal().unwrap().network().allow.len(), 0);
    }
}
