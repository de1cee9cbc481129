//! Secrets that the owner of a box brings along, instead of naming the operator's.

use std::fmt;

use blastbox_policy::{Binding, Host, SecretName};
use zeroize::Zeroizing;

use super::value::SecretValue;

/// A secret for one box and one host. It is written nowhere: whoever made the box has it, and its gateway.
pub struct GivenSecret {
    name: SecretName,
    host: Host,
    value: SecretValue,
}

impl GivenSecret {
    /// One that goes to this host alone.
    #[must_use]
    pub fn new(name: SecretName, host: Host, value: Vec<u8>) -> Self {
        Self { name, host, value: SecretValue::new(Zeroizing::new(value)) }
    }

    /// Whether a binding means this one.
    pub(crate) fn is_for(&self, binding: &Binding) -> bool {
        self.name == *binding.secret() && self.host == *binding.host()
    }

    pub(crate) fn value(&self) -> &SecretValue {
        &self.value
    }
}

impl fmt::Debug for GivenSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GivenSecret")
            .field("name", &self.name)
            .field("host", &self.host)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_has_no_text_form_and_goes_to_its_host_alone() {
        let bytes = b"sk-real-value".to_vec();
        let given = GivenSecret::new("own".parse().unwrap(), "a.test".parse().unwrap(), bytes);
        assert!(!format!("{given:?}").contains("sk-real"));
        let bound = |name: &str, host: &str| {
            Binding::new(name.parse().unwrap(), host.parse().unwrap(), Default::default()).unwrap()
        };
        assert!(given.is_for(&bound("own", "a.test")));
        assert!(!given.is_for(&bound("own", "b.test")) && !given.is_for(&bound("other", "a.test")));
    }
}
