//! The documents of an OCI image: index, manifest, configuration.
//!
//! Trust: guest. Every byte is taken to be chosen by an attacker: documents are bounded, lists are counted, and what names
//! a file is a digest in its one spelling or nothing.

use std::collections::BTreeMap;

use blastbox_wire::event::Hash;
use serde::Deserialize;

use super::{OciError, Platform};
use crate::store::ImageConfig;

/// Longest document.
pub const MOST_DOCUMENT: u64 = 4 << 20;
const MOST_MANIFESTS: usize = 1_024;
const MOST_LAYERS: usize = 512;
const MOST_WORDS: usize = 256;
/// All variables, and all words of a command: every command of a box carries them.
const MOST_TEXT: usize = 64 * 1024;

/// The annotation that carries a tag.
pub(super) const REF_NAME: &str = "org.opencontainers.image.ref.name";

/// A blob, by what it must be.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// Its type.
    #[serde(default)]
    pub media_type: String,
    /// Its digest.
    pub digest: Hash,
    /// Its size.
    pub size: u64,
    /// What it is for.
    #[serde(default)]
    pub platform: Option<Platform>,
    /// Notes.
    #[serde(default)]
    pub annotations: Option<BTreeMap<String, String>>,
}

impl Descriptor {
    /// The tag that a layout gives it.
    #[must_use]
    pub fn tag(&self) -> Option<&str> {
        self.annotations.as_ref()?.get(REF_NAME).map(String::as_str)
    }
}

/// What a digest of an image may lead to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Document {
    /// A choice of manifests.
    Index(Vec<Descriptor>),
    /// One image.
    Manifest(Manifest),
}

/// One image.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Manifest {
    /// Its configuration.
    pub config: Descriptor,
    /// Its layers, lowest first.
    pub layers: Vec<Descriptor>,
}

#[derive(Deserialize)]
struct Either {
    manifests: Option<Vec<Descriptor>>,
    config: Option<Descriptor>,
    layers: Option<Vec<Descriptor>>,
}

/// Reads an index or a manifest.
pub fn document(bytes: &[u8]) -> Result<Document, OciError> {
    const WHAT: &str = "the manifest";
    let found: Either = read(WHAT, bytes)?;
    match found {
        Either { manifests: Some(manifests), config: None, layers: None } => {
            bounded("the index", manifests.len(), MOST_MANIFESTS)?;
            Ok(Document::Index(manifests))
        }
        Either { manifests: None, config: Some(config), layers: Some(layers) } => {
            bounded("the list of layers", layers.len(), MOST_LAYERS)?;
            Ok(Document::Manifest(Manifest { config, layers }))
        }
        Either { .. } => Err(bad(WHAT, "it is neither an index nor a manifest of layers")),
    }
}

/// One image of an archive that holds `manifest.json`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SavedImage {
    /// The path of its configuration in the archive. Nobody believes that it leads nowhere else.
    pub config: String,
    /// The tags of its names, without what comes before them; the whole names where several images have the tag.
    pub tags: Vec<String>,
    /// The paths of its layers, lowest first.
    pub layers: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SavedText {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

/// Reads the list of a saved image.
pub fn saved(bytes: &[u8]) -> Result<Vec<SavedImage>, OciError> {
    let all: Vec<SavedText> = read("manifest.json", bytes)?;
    bounded("the list of saved images", all.len(), MOST_MANIFESTS)?;
    let (mut found, mut entries, mut times) = (Vec::new(), 0_usize, BTreeMap::<&str, usize>::new());
    for SavedText { repo_tags, layers, .. } in &all {
        bounded("the list of layers", layers.len(), MOST_LAYERS)?;
        let names = repo_tags.as_deref().unwrap_or_default();
        // Each becomes an entry of one index, which has no more.
        entries = entries.saturating_add(names.len().max(1));
        bounded("the list of tags", entries, MOST_MANIFESTS)?;
        for tag in names.iter().filter_map(|name| tag_of(name)) {
            *times.entry(tag).or_default() += 1;
        }
    }
    for SavedText { config, repo_tags, layers } in &all {
        // A tag that several have chooses none of them: their whole names do.
        let called = |name: &String| {
            let tag = tag_of(name)?;
            Some(if times.get(tag) == Some(&1) { tag.to_owned() } else { name.clone() })
        };
        let tags = repo_tags.as_deref().unwrap_or_default().iter().filter_map(called).collect();
        found.push(SavedImage { config: config.clone(), tags, layers: layers.clone() });
    }
    Ok(found)
}

/// The tag of `HOST:PORT/REPOSITORY:TAG`.
fn tag_of(name: &str) -> Option<&str> {
    Some(name.rsplit('/').next()?.rsplit_once(':')?.1)
}

/// What a configuration says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// What it is for.
    pub platform: Platform,
    /// The digest of each layer without its compression, lowest first.
    pub layers: Vec<Hash>,
    /// How its programs are to be run.
    pub run: ImageConfig,
}

#[derive(Deserialize)]
struct ConfigText {
    #[serde(default)]
    os: String,
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    variant: Option<String>,
    #[serde(default)]
    config: Option<RunText>,
    rootfs: RootText,
}

#[derive(Deserialize)]
struct RootText {
    diff_ids: Vec<Hash>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
struct RunText {
    env: Option<Vec<String>>,
    working_dir: Option<String>,
    user: Option<String>,
    entrypoint: Option<Vec<String>>,
    cmd: Option<Vec<String>>,
}

/// Reads a configuration.
pub fn config(bytes: &[u8]) -> Result<Config, OciError> {
    let ConfigText { os, architecture, variant, config, rootfs } = read("the configuration", bytes)?;
    bounded("the list of layers", rootfs.diff_ids.len(), MOST_LAYERS)?;
    let RunText { env, working_dir, user, entrypoint, cmd } = config.unwrap_or_default();
    let given = env.unwrap_or_default();
    let command: Vec<String> = [entrypoint, cmd].into_iter().flatten().flatten().collect();
    for (what, words) in [("the environment", &given), ("the command", &command)] {
        bounded(what, words.len(), MOST_WORDS)?;
        bounded(what, words.iter().map(String::len).sum(), MOST_TEXT)?;
    }
    // What no program could be given is left out, not passed on.
    let plain = |text: &str| !text.contains('\0');
    let env = given.iter().filter(|line| plain(line)).filter_map(|line| line.split_once('='));
    let env =
        env.filter(|(name, _)| !name.is_empty()).map(|(name, value)| (name.to_owned(), value.to_owned()));
    let run = ImageConfig {
        env: env.collect(),
        workdir: working_dir.filter(|path| path.starts_with('/') && plain(path) && path.len() < 4_096),
        user: user.filter(|user| !user.is_empty() && user.len() <= 256 && plain(user)),
        command: if command.iter().all(|word| plain(word)) { command } else { Vec::new() },
    };
    Ok(Config { platform: Platform { os, architecture, variant }, layers: rootfs.diff_ids, run })
}

fn read<'de, T: Deserialize<'de>>(what: &str, bytes: &'de [u8]) -> Result<T, OciError> {
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > MOST_DOCUMENT {
        return Err(OciError::TooLong { what: what.to_owned(), most: MOST_DOCUMENT });
    }
    serde_json::from_slice(bytes).map_err(|error| bad(what, &error.to_string()))
}

fn bad(what: &str, why: &str) -> OciError {
    OciError::Document { what: what.to_owned(), why: why.chars().take(200).collect() }
}

pub(super) fn bounded(what: &str, count: usize, most: usize) -> Result<(), OciError> {
    if count > most {
        return Err(OciError::TooLong {
            what: what.to_owned(),
            most: u64::try_from(most).unwrap_or(u64::MAX),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(of: &str) -> String {
        Hash::of([of.as_bytes()]).to_string()
    }

    #[test]
    fn an_index_and_a_manifest_are_told_apart() {
        let one = format!(r#"{{"digest":"{}","size":3}}"#, digest("a"));
        let index = format!(r#"{{"schemaVersion":2,"manifests":[{one}]}}"#);
        assert!(matches!(document(index.as_bytes()), Ok(Document::Index(list)) if list.len() == 1));
        let manifest = format!(r#"{{"config":{one},"layers":[{one},{one}]}}"#);
        assert!(matches!(document(manifest.as_bytes()), Ok(Document::Manifest(it)) if it.layers.len() == 2));
        for bad in ["{}", "[]", "", "null", &format!(r#"{{"config":{one}}}"#)] {
            assert!(document(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_digest_that_could_name_another_file_is_no_digest() {
        for bad in ["sha256:../../../../etc/passwd", "sha512:ab", "md5:x", ""] {
            let text = format!(r#"{{"manifests":[{{"digest":"{bad}","size":1}}]}}"#);
            assert!(document(text.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn more_layers_than_anybody_has_are_refused() {
        let one = format!(r#"{{"digest":"{}","size":3}}"#, digest("a"));
        let many = vec![one.as_str(); MOST_LAYERS + 1].join(",");
        let text = format!(r#"{{"config":{one},"layers":[{many}]}}"#);
        assert!(matches!(document(text.as_bytes()), Err(OciError::TooLong { .. })));
        let long = vec![b' '; usize::try_from(MOST_DOCUMENT).unwrap() + 1];
        assert!(matches!(document(&long), Err(OciError::TooLong { .. })));
    }

    #[test]
    fn what_no_program_could_be_given_is_left_out() {
        let text = format!(
            r#"{{"os":"linux","architecture":"amd64","rootfs":{{"type":"layers","diff_ids":["{}"]}},
            "config":{{"Env":["A=1","B","=c","D=\u0000","PATH=/x:/y"],"WorkingDir":"relative","User":"app",
            "Entrypoint":["/bin/app"],"Cmd":["serve"]}}}}"#,
            digest("layer")
        );
        let found = config(text.as_bytes()).unwrap();
        let names: Vec<_> = found.run.env.keys().map(String::as_str).collect();
        assert_eq!(names, ["A", "PATH"]);
        assert_eq!(found.run.workdir, None);
        assert_eq!(found.run.user.as_deref(), Some("app"));
        assert_eq!(found.run.command, ["/bin/app", "serve"]);
        assert_eq!(found.platform.to_string(), "linux/amd64");
    }
}
