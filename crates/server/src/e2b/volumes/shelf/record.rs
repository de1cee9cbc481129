//! What is written down of a volume: its name, its tenant, its token.
//!
//! Must not: repeat in words of ours what is in a file that cannot be read. A token may be in it.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use blastbox_engine::keeper::Tenant;
use serde::{Deserialize, Serialize};

use super::Volume;
use crate::e2b::token::Token;

#[derive(Serialize, Deserialize)]
struct Record {
    name: String,
    tenant: String,
    token: String,
}

/// A record that says of no volume what it is. What can still be made out keeps others from taking its name.
#[derive(Debug)]
pub(super) struct Damaged {
    name: Option<String>,
    /// None: perhaps anybody's.
    tenant: Option<Tenant>,
    why: String,
}

impl Damaged {
    pub(super) fn may_belong_to(&self, tenant: &Tenant) -> bool {
        self.tenant.as_ref().is_none_or(|owner| owner == tenant)
    }

    pub(super) fn belongs_to(&self, tenant: &Tenant) -> bool {
        self.tenant.as_ref() == Some(tenant)
    }

    pub(super) fn is_called(&self, name: &str) -> bool {
        self.name.as_deref() == Some(name)
    }
}

impl fmt::Display for Damaged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)?;
        match &self.name {
            Some(name) => write!(f, " (its name was {name:?})"),
            None => Ok(()),
        }
    }
}

/// Either the whole of it is there afterwards, or nothing.
pub(super) fn write(volume: &Volume, draft: &Path, at: &Path) -> io::Result<()> {
    let record = Record {
        name: volume.name.clone(),
        tenant: volume.tenant.to_string(),
        token: volume.token.show_to_owner().to_owned(),
    };
    let text = serde_json::to_vec(&record)?;
    let mut file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(draft)?;
    file.write_all(&text)?;
    file.sync_all()?;
    fs::rename(draft, at)
}

pub(super) fn read(path: &Path, id: &str) -> Result<Volume, Damaged> {
    let unread = |error: io::Error| Damaged { name: None, tenant: None, why: error.to_string() };
    let bytes = fs::read(path).map_err(unread)?;
    let damaged = |why: String| {
        let text = String::from_utf8_lossy(&bytes);
        let tenant = field(&text, "tenant").and_then(|tenant| tenant.parse().ok());
        Damaged { name: field(&text, "name").map(str::to_owned), tenant, why }
    };
    let Record { name, tenant, token } = serde_json::from_slice(&bytes).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        damaged(format!("it is no description of a volume (line {line}, column {column})"))
    })?;
    let tenant = tenant.parse::<Tenant>().map_err(|error| damaged(error.to_string()))?;
    Ok(Volume { id: id.to_owned(), name, tenant, token: Token::kept(token) })
}

/// What stands behind this word, also where what follows is cut off. Names need no escapes.
fn field<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(&format!("\"{word}\""))?;
    let value = rest.trim_start().strip_prefix(':')?.trim_start().strip_prefix('"')?;
    value.split_once('"').map(|(value, _)| value)
}
