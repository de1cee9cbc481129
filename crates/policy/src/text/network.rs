//! The network section of a policy text.

use super::{Source, Value};
use crate::error::Section;
use crate::{
    AllowRule, BadRule, HostPattern, NetworkLimits, NetworkRules, PathPattern, PolicyError, PrivateOpening,
    RuleParts,
};
use std::str::FromStr;
use toml::de::DeValue;

pub(super) const NETWORK: &[&str] = &["mode", "loopback", "allow", "dangerously_allow_private", "limits"];
pub(super) const RULE: &[&str] = &["host", "ports", "protocol", "tls", "methods", "paths", "resolver"];
pub(super) const OPENING: &[&str] = &["cidr", "ports"];
pub(super) const LIMITS: &[&str] = &[
    "flows",
    "connections_per_second",
    "questions_per_second",
    "names_per_wildcard",
    "bandwidth",
    "bytes",
    "bytes_per_host",
];

impl Source<'_> {
    pub(super) fn network(&self, section: &Value<'_>, rules: &mut NetworkRules) -> Result<(), PolicyError> {
        for (key, value) in self.section("network", section)? {
            match key.get_ref().as_ref() {
                "mode" => rules.mode = self.word("network.mode", value)?,
                "loopback" => rules.loopback = self.word("network.loopback", value)?,
                "allow" => rules.allow = self.each("network.allow", value, |rule| self.rule(rule))?,
                "dangerously_allow_private" => {
                    let key = "network.dangerously_allow_private";
                    rules.dangerously_allow_private = self.each(key, value, |open| self.opening(open))?;
                }
                "limits" => self.network_limits(value, &mut rules.limits)?,
                _ => return Err(self.unknown_key(key, Section::Named("network"), NETWORK)),
            }
        }
        Ok(())
    }

    fn rule(&self, value: &Value<'_>) -> Result<AllowRule, PolicyError> {
        let (mut host, mut parts) = (None, RuleParts::default());
        for (key, value) in self.section("network.allow", value)? {
            match key.get_ref().as_ref() {
                "host" => host = Some(self.parsed::<HostPattern>("network.allow.host", value)?),
                "ports" => parts.ports = self.ports("network.allow.ports", value)?,
                "protocol" => parts.protocol = self.word("network.allow.protocol", value)?,
                "tls" => parts.tls = self.word("network.allow.tls", value)?,
                "methods" => {
                    let key = "network.allow.methods";
                    parts.methods = self.each(key, value, |word| Ok(self.string(key, word)?.to_owned()))?;
                }
                "paths" => {
                    let key = "network.allow.paths";
                    parts.paths = self.each(key, value, |path| self.parsed::<PathPattern>(key, path))?;
                }
                "resolver" => parts.resolver = self.word("network.allow.resolver", value)?,
                _ => return Err(self.unknown_key(key, Section::Named("network.allow"), RULE)),
            }
        }
        let host = host.ok_or_else(|| self.wrong_kind("network.allow", "a rule with a host", value))?;
        AllowRule::new(host, parts).map_err(|problem| self.bad_rule("network.allow", value, problem))
    }

    fn opening(&self, value: &Value<'_>) -> Result<PrivateOpening, PolicyError> {
        const KEY: &str = "network.dangerously_allow_private";
        let (mut range, mut ports) = (None, Vec::new());
        for (key, value) in self.section(KEY, value)? {
            match key.get_ref().as_ref() {
                "cidr" => range = Some(self.string("network.dangerously_allow_private.cidr", value)?),
                "ports" => ports = self.ports("network.dangerously_allow_private.ports", value)?,
                _ => return Err(self.unknown_key(key, Section::Named(KEY), OPENING)),
            }
        }
        let range = range.ok_or_else(|| self.wrong_kind(KEY, "a range with its cidr", value))?;
        PrivateOpening::new(range, ports).map_err(|problem| self.bad_rule(KEY, value, problem))
    }

    fn network_limits(&self, section: &Value<'_>, limits: &mut NetworkLimits) -> Result<(), PolicyError> {
        for (key, value) in self.section("network.limits", section)? {
            match key.get_ref().as_ref() {
                "flows" => limits.flows = self.count("network.limits.flows", value)?,
                "connections_per_second" => {
                    limits.connections_per_second =
                        self.count("network.limits.connections_per_second", value)?;
                }
                "questions_per_second" => {
                    limits.questions_per_second = self.count("network.limits.questions_per_second", value)?;
                }
                "names_per_wildcard" => {
                    limits.names_per_wildcard = self.count("network.limits.names_per_wildcard", value)?;
                }
                "bandwidth" => limits.bandwidth = self.amount("network.limits.bandwidth", value)?,
                "bytes" => limits.bytes = self.amount("network.limits.bytes", value)?,
                "bytes_per_host" => {
                    limits.bytes_per_host = self.amount("network.limits.bytes_per_host", value)?
                }
                _ => return Err(self.unknown_key(key, Section::Named("network.limits"), LIMITS)),
            }
        }
        Ok(())
    }

    fn ports(&self, key: &'static str, value: &Value<'_>) -> Result<Vec<u16>, PolicyError> {
        self.each(key, value, |port| self.count(key, port))
    }

    pub(super) fn each<'d, 't, T>(
        &self,
        key: &'static str,
        value: &'d Value<'t>,
        mut each: impl FnMut(&'d Value<'t>) -> Result<T, PolicyError>,
    ) -> Result<Vec<T>, PolicyError> {
        match value.get_ref() {
            DeValue::Array(items) => {
                let items = items.iter().enumerate();
                items
                    .map(|(index, item)| {
                        self.note(format!("{key}[{index}]"), item);
                        each(item)
                    })
                    .collect()
            }
            _ => Err(self.wrong_kind(key, "a list", value)),
        }
    }

    pub(super) fn string<'d>(&self, key: &'static str, value: &'d Value<'_>) -> Result<&'d str, PolicyError> {
        match value.get_ref() {
            DeValue::String(text) => Ok(text.as_ref()),
            _ => Err(self.wrong_kind(key, "a string", value)),
        }
    }

    pub(super) fn parsed<T: FromStr<Err = BadRule>>(
        &self,
        key: &'static str,
        value: &Value<'_>,
    ) -> Result<T, PolicyError> {
        self.string(key, value)?.parse().map_err(|problem| self.bad_rule(key, value, problem))
    }

    fn bad_rule(&self, key: &'static str, value: &Value<'_>, problem: BadRule) -> PolicyError {
        PolicyError::BadRule { at: self.place(value.span().start), key, problem }
    }
}
