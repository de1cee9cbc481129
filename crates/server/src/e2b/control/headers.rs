//! Headers that a sandbox's owner has put into its requests (`network.rules`): secrets of the owner's own, which the sandbox's gateway
//! holds and the sandbox never has. They open nothing: their hosts are among those that are named.

use std::collections::BTreeMap;

use blastbox_engine::leases::GivenSecret;
use blastbox_policy::{Binding, BindingParts, Host, MOST_BINDINGS, SealedPolicy, SecretName};
use serde::Deserialize;

use super::network::Asked;
use crate::e2b::no::{No, echo};
use crate::e2b::secrets::{Hidden, LENGTHS, is_usable};
use crate::trouble::line;

const HTTPS: u16 = 443;
/// How the names of owners' secrets begin.
const OWN: &str = "own-";
/// How what is filled in later begins, and what of it is: `${e2b.secrets.NAME}`.
const FILLED: &str = "${e2b.";
const SECRETS: &str = "${e2b.secrets.";

/// Where a secret's value comes from, by its name.
pub(super) type Fill<'a> = &'a dyn Fn(&str) -> Result<Hidden, No>;

/// Whether a sandbox has such headers.
pub(super) fn are_bound(policy: &SealedPolicy) -> bool {
    policy.credentials().bind.iter().any(|binding| binding.secret().as_str().starts_with(OWN))
}

/// SandboxNetworkRule.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Rule {
    transform: Option<Transform>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Transform {
    headers: Option<BTreeMap<String, Hidden>>,
}

/// The headers of one sandbox.
#[derive(Debug, Default)]
pub(super) struct Headers(Vec<Header>);

#[derive(Debug)]
struct Header {
    binding: Binding,
    value: Hidden,
}

impl Headers {
    /// Those that were asked for.
    pub(super) fn of(asked: Option<&Asked>, fill: Fill<'_>) -> Result<Self, No> {
        let rules = asked.and_then(|asked| asked.rules.as_ref());
        let mut all = Vec::new();
        for (host, rules) in rules.into_iter().flatten() {
            let transforms = rules.iter().filter_map(|rule| rule.transform.as_ref());
            for (name, value) in transforms.filter_map(|transform| transform.headers.as_ref()).flatten() {
                // Before it is filled in: a few bytes that name a secret become all of it.
                if all.len() >= MOST_BINDINGS {
                    return Err(refused(format!(
                        "network.rules: at most {MOST_BINDINGS} headers can be set"
                    )));
                }
                all.push(Header::new(all.len(), host, name, value.expose(), fill)?);
            }
        }
        Ok(Self(all))
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The same policy with them: requests to their hosts are read by the gateway.
    pub(super) fn bound(&self, policy: SealedPolicy) -> Result<SealedPolicy, No> {
        if self.is_empty() {
            return Ok(policy);
        }
        let mut draft = policy.draft();
        for Header { binding, .. } in &self.0 {
            let host = binding.host();
            let leads = policy
                .network()
                .allow
                .iter()
                .any(|rule| rule.ports().contains(&HTTPS) && rule.host().covers(host));
            if !leads {
                return Err(refused(format!(
                    "network.rules: \"{host}\": headers open nothing: name the host in network.allowOut too"
                )));
            }
            draft = draft.read(host.clone()).map_err(|error| refused(line(&error)))?.lend(binding.clone());
        }
        draft.seal().map_err(|error| refused(format!("network.rules: {}", line(&error))))
    }

    /// What the gateway is to be given.
    pub(super) fn secrets(self) -> Vec<GivenSecret> {
        let given = |Header { binding, value }| {
            GivenSecret::new(binding.secret().clone(), binding.host().clone(), value.give_away())
        };
        self.0.into_iter().map(given).collect()
    }
}

impl Header {
    fn new(place: usize, host: &str, name: &str, value: &str, fill: Fill<'_>) -> Result<Self, No> {
        let of = format!("network.rules: \"{}\": header \"{}\"", echo(host), echo(name));
        let host: Host = host.to_ascii_lowercase().parse().map_err(|_| {
            refused(format!(
                "{of}: only a host with a name of its own gets headers, no wildcard and no address"
            ))
        })?;
        let name = name.to_ascii_lowercase();
        // The scheme is no secret: without it the secret is found in answers however it is given back.
        let bearer = |value: &str| match name == "authorization" {
            true => value.strip_prefix("Bearer ").map(|rest| Hidden::new(rest.to_owned())),
            false => None,
        };
        let written = bearer(value);
        let is_written = written.is_some();
        let value = match referred(written.as_ref().map_or(value, Hidden::expose)) {
            Refers::ToNothing => written.unwrap_or_else(|| Hidden::new(value.to_owned())),
            Refers::To(secret) => fill(secret)?,
            Refers::InPart => {
                return Err(refused(format!(
                    "{of}: a secret is the whole value of a header, or all that follows `Bearer ` in Authorization: so it is struck out of answers however it is given back"
                )));
            }
            Refers::Elsewhere => {
                return Err(refused(format!("{of}: only ${{e2b.secrets.NAME}} is filled in here")));
            }
        };
        // Also where the secret was kept with it.
        let kept = if is_written { None } else { bearer(value.expose()) };
        let parts = match is_written || kept.is_some() {
            true => BindingParts::default(),
            false => {
                let (slot, header) = (Some("header".to_owned()), Some(name.clone()));
                BindingParts { slot, header, ..BindingParts::default() }
            }
        };
        let value = kept.unwrap_or(value);
        if !is_usable(value.expose()) {
            let (least, most) = (LENGTHS.start(), LENGTHS.end());
            return Err(refused(format!(
                "{of}: its value has to have {least} to {most} printable characters: whatever is put into requests is struck out of answers"
            )));
        }
        let secret = format!("{OWN}{place}-{name}").chars().take(64).collect::<String>().parse();
        let secret: SecretName = secret.map_err(|_| refused(format!("{of}: no such header can be set")))?;
        let binding =
            Binding::new(secret, host, parts).map_err(|error| refused(format!("{of}: {}", line(&error))))?;
        Ok(Self { binding, value })
    }
}

/// What a header's value refers to.
enum Refers<'a> {
    ToNothing,
    To(&'a str),
    InPart,
    Elsewhere,
}

fn referred(value: &str) -> Refers<'_> {
    let name = value.strip_prefix(SECRETS).and_then(|rest| rest.strip_suffix('}'));
    match name {
        Some(name) if !name.is_empty() && !name.contains(['{', '}']) => Refers::To(name),
        _ if value.contains(SECRETS) => Refers::InPart,
        _ if value.contains(FILLED) => Refers::Elsewhere,
        _ => Refers::ToNothing,
    }
}

fn refused(why: String) -> No {
    No::bad(why).coded("sandbox_create_refused")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Internet;

    const SECRET: &str = "sk-real-value";

    fn policy(allow: &str, rules: &str) -> Result<SealedPolicy, No> {
        let asked: Asked =
            serde_json::from_str(&format!(r#"{{"allowOut":{allow},"rules":{rules}}}"#)).unwrap();
        let fill = |name: &str| match name {
            "key" => Ok(Hidden::new(SECRET.to_owned())),
            _ => Err(refused(format!("secret {name} not found"))),
        };
        let headers = Headers::of(Some(&asked), &fill)?;
        assert!(!format!("{asked:?}{headers:?}").contains("sk-real"));
        let draft = blastbox_policy::Profile::Default.draft().unwrap();
        let open = asked.reaches(None, Internet::Closed)?.open(draft).unwrap().seal().unwrap();
        let bound = headers.bound(open)?;
        assert_eq!(are_bound(&bound), !headers.is_empty());
        assert_eq!(headers.secrets().len(), bound.credentials().bind.len());
        Ok(bound)
    }

    fn headers(host: &str, headers: &str) -> String {
        format!(r#"{{"{host}":[{{"transform":{{"headers":{headers}}}}}]}}"#)
    }

    #[test]
    fn headers_are_bindings_of_hosts_whose_requests_are_read() {
        let two = format!(r#"{{"Authorization":"Bearer {SECRET}","X-Api-Key":"{SECRET}"}}"#);
        for allow in [r#"["a.test"]"#, r#"["*.test.example","a.test"]"#] {
            let policy = policy(allow, &headers("A.test", &two)).unwrap();
            let bound: Vec<_> =
                policy.credentials().bind.iter().map(|binding| binding.slot().as_str()).collect();
            assert_eq!(bound, ["bearer", "header"]);
        }
        let below = policy(r#"["*.example.com"]"#, &headers("api.example.com", &two)).unwrap();
        assert_eq!(below.network().allow.len(), 3, "what the wildcard opens stays as it was");
        let strict = blastbox_policy::AllowRule::new(
            "a.test".parse().unwrap(),
            blastbox_policy::RuleParts {
                tls: blastbox_policy::TlsMode::Inspect,
                methods: vec!["GET".to_owned()],
                ..blastbox_policy::RuleParts::default()
            },
        );
        let draft = blastbox_policy::Profile::Default.draft().unwrap().allow(strict.unwrap());
        let kept = draft.read("a.test".parse().unwrap()).unwrap();
        assert_eq!(
            kept.network_rules().allow[0].methods(),
            ["GET"],
            "what the operator says of requests stays"
        );
        assert_eq!(kept.network_rules().allow.len(), 1);
        for none in ["{}", r#"{"a.test":[]}"#, r#"{"a.test":[{}]}"#, &headers("b.test", "{}")] {
            assert!(policy(r#"["a.test"]"#, none).unwrap().credentials().bind.is_empty());
        }
    }

    #[test]
    fn a_name_of_a_secret_becomes_its_value_for_the_gateway_alone() {
        let two = r#"{"Authorization":"Bearer ${e2b.secrets.key}","X-Api-Key":"${e2b.secrets.key}"}"#;
        let asked = format!(r#"{{"rules":{}}}"#, headers("a.test", two));
        let asked: Asked = serde_json::from_str(&asked).unwrap();
        let filled = Headers::of(Some(&asked), &|name| {
            assert_eq!(name, "key");
            Ok(Hidden::new(SECRET.to_owned()))
        });
        let filled = filled.unwrap();
        assert!(filled.0.iter().all(|header| header.value.expose() == SECRET));
        assert_eq!(policy(r#"["a.test"]"#, &headers("a.test", two)).unwrap().credentials().bind.len(), 2);
        // With its scheme, as some are kept: that is no part of what is struck out.
        let kept =
            r#"{"rules":{"a.test":[{"transform":{"headers":{"Authorization":"${e2b.secrets.key}"}}}]}}"#;
        let kept: Asked = serde_json::from_str(kept).unwrap();
        let kept = Headers::of(Some(&kept), &|_| Ok(Hidden::new(format!("Bearer {SECRET}")))).unwrap();
        assert_eq!(kept.0[0].value.expose(), SECRET);
        assert_eq!(kept.0[0].binding, filled.0[0].binding);
        // What is filled in is held against the same rules.
        assert!(Headers::of(Some(&asked), &|_| Ok(Hidden::new("two\r\nlines".to_owned()))).is_err());
    }

    #[test]
    fn a_body_that_names_one_secret_a_thousand_times_is_refused_before_it_is_all_of_them() {
        let many: Vec<String> = (0..1000).map(|n| format!(r#""x-{n}":"${{e2b.secrets.key}}""#)).collect();
        let asked = format!(r#"{{"rules":{}}}"#, headers("a.test", &format!("{{{}}}", many.join(","))));
        let asked: Asked = serde_json::from_str(&asked).unwrap();
        let filled = std::cell::Cell::new(0);
        let no = Headers::of(Some(&asked), &|_| {
            filled.set(filled.get() + 1);
            Ok(Hidden::new(SECRET.to_owned()))
        });
        assert!(format!("{:?}", no.unwrap_err()).contains("at most 32 headers"));
        assert_eq!(filled.get(), MOST_BINDINGS);
    }

    #[test]
    fn a_secret_in_the_wrong_place_is_not_repeated() {
        for wrong in [
            r#"{"rules":{"a.test":[{"transform":{"headers":"sk-real, expected"}}]}}"#,
            r#"{"rules":{"a.test":"sk-real"}}"#,
        ] {
            let no = crate::e2b::control::body::parse::<Asked>(wrong.as_bytes()).unwrap_err();
            let said = format!("{no:?}");
            assert!(
                said.contains("expected") && said.contains("line 1") && !said.contains("sk-real"),
                "{said}"
            );
        }
    }

    #[test]
    fn what_cannot_be_lent_is_refused_by_name_and_never_said() {
        let one = format!(r#"{{"X-Api-Key":"{SECRET}"}}"#);
        for (allow, rules, word) in [
            (r#"["a.test"]"#, headers("b.test", &one), "allowOut"),
            (r#"["*.example.com"]"#, headers("*.example.com", &one), "wildcard"),
            (r#"["8.8.8.8"]"#, headers("8.8.8.8", &one), "address"),
            (r#"["a.test"]"#, headers("a.test", r#"{"X-Api-Key":"short"}"#), "printable"),
            (r#"["a.test"]"#, headers("a.test", r#"{"X-Api-Key":"sk-real\r\nX-Other: 1"}"#), "printable"),
            (r#"["a.test"]"#, headers("a.test", &format!(r#"{{"Host":"{SECRET}"}}"#)), "host"),
            (r#"["a.test"]"#, headers("a.test", &format!(r#"{{"X Y":"{SECRET}"}}"#)), "x y"),
            (
                r#"["a.test"]"#,
                headers("a.test", &format!(r#"{{"X-A":"{SECRET}","x-a":"{SECRET}"}}"#)),
                "same header",
            ),
            (r#"["a.test"]"#, headers("a.test", r#"{"X-A":"${e2b.secrets.other}"}"#), "other not found"),
            (r#"["a.test"]"#, headers("a.test", r#"{"X-A":"token ${e2b.secrets.key}"}"#), "whole value"),
            (
                r#"["a.test"]"#,
                headers("a.test", r#"{"X-A":"${e2b.secrets.key}${e2b.secrets.key}"}"#),
                "whole value",
            ),
            (r#"["a.test"]"#, headers("a.test", r#"{"X-A":"${e2b.secrets.}"}"#), "whole value"),
            (r#"["a.test"]"#, headers("a.test", r#"{"X-A":"Bearer ${e2b.secrets.key}"}"#), "whole value"),
            (r#"["a.test"]"#, headers("a.test", r#"{"X-A":"${e2b.identity.tokens.aws}"}"#), "filled in"),
        ] {
            let no = policy(allow, &rules).unwrap_err();
            let said = format!("{no:?}").to_ascii_lowercase();
            assert!(no.status() == 400 && said.contains(&word.to_ascii_lowercase()), "{rules}: {no:?}");
            assert!(!said.contains("sk-real"), "{no:?}");
        }
    }
}
