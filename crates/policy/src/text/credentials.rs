//! The credentials section of a policy text.

use super::{Source, Value};
use crate::error::Section;
use crate::words::clip;
use crate::{BadBinding, Binding, BindingParts, CredentialRules, Host, PathPattern, PolicyError, SecretName};

pub(super) const CREDENTIALS: &[&str] = &["mode", "bind"];
pub(super) const BINDING: &[&str] =
    &["secret", "host", "port", "methods", "paths", "as", "user", "header", "placeholder", "env"];
const KEY: &str = "credentials.bind";

impl Source<'_> {
    pub(super) fn credentials(
        &self,
        section: &Value<'_>,
        rules: &mut CredentialRules,
    ) -> Result<(), PolicyError> {
        for (key, value) in self.section("credentials", section)? {
            match key.get_ref().as_ref() {
                "mode" => rules.mode = self.word("credentials.mode", value)?,
                "bind" => rules.bind = self.each(KEY, value, |binding| self.binding(binding))?,
                _ => return Err(self.unknown_key(key, Section::Named("credentials"), CREDENTIALS)),
            }
        }
        Ok(())
    }

    fn binding(&self, value: &Value<'_>) -> Result<Binding, PolicyError> {
        let (mut secret, mut host, mut parts) = (None, None, BindingParts::default());
        for (key, value) in self.section(KEY, value)? {
            let text = |key| self.string(key, value).map(|text| Some(text.to_owned()));
            match key.get_ref().as_ref() {
                "secret" => secret = Some(self.secret_name(value)?),
                "host" => host = Some(self.bound_host(value)?),
                "port" => parts.port = Some(self.count("credentials.bind.port", value)?),
                "methods" => {
                    let key = "credentials.bind.methods";
                    parts.methods = self.each(key, value, |word| Ok(self.string(key, word)?.to_owned()))?;
                }
                "paths" => {
                    let key = "credentials.bind.paths";
                    parts.paths = self.each(key, value, |path| self.parsed::<PathPattern>(key, path))?;
                }
                "as" => parts.slot = text("credentials.bind.as")?,
                "user" => parts.user = text("credentials.bind.user")?,
                "header" => parts.header = text("credentials.bind.header")?,
                "placeholder" => parts.placeholder = text("credentials.bind.placeholder")?,
                "env" => parts.env = text("credentials.bind.env")?,
                _ => return Err(self.unknown_key(key, Section::Named(KEY), BINDING)),
            }
        }
        let secret =
            secret.ok_or_else(|| self.wrong_kind(KEY, "a binding with the name of a secret", value))?;
        let host = host.ok_or_else(|| self.wrong_kind(KEY, "a binding with a host", value))?;
        Binding::new(secret, host, parts).map_err(|problem| self.bad_binding(KEY, value, problem))
    }

    fn secret_name(&self, value: &Value<'_>) -> Result<SecretName, PolicyError> {
        let key = "credentials.bind.secret";
        self.string(key, value)?.parse().map_err(|problem| self.bad_binding(key, value, problem))
    }

    fn bound_host(&self, value: &Value<'_>) -> Result<Host, PolicyError> {
        let key = "credentials.bind.host";
        let text = self.string(key, value)?;
        text.parse().map_err(|_| self.bad_binding(key, value, BadBinding::Host { text: clip(text) }))
    }

    fn bad_binding(&self, key: &'static str, value: &Value<'_>, problem: BadBinding) -> PolicyError {
        PolicyError::BadBinding { at: self.place(value.span().start), key, problem }
    }
}
