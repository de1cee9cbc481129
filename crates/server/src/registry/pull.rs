//! From a reference to an image of the store.

use std::path::Path;
use std::time::Duration;

use blastbox_images::oci::oci_text::{self, Descriptor, Document, MOST_DOCUMENT};
use blastbox_images::oci::{OciError, Platform, assemble, choose};
use blastbox_images::store::{BlobDraft, Blobs, Kept, Progress, Source};
use blastbox_images::tree::Caps;
use blastbox_images::{ImageName, Store};
use blastbox_wire::event::Hash;
use hyper::StatusCode;
use hyper::header::HeaderValue;

use super::auth::{self, Login};
use super::line::{Answer, Lines};
use super::{Reference, RegistryError};

const MANIFESTS: &str = "application/vnd.oci.image.index.v1+json, application/vnd.oci.image.manifest.v1+json, \
application/vnd.docker.distribution.manifest.list.v2+json, application/vnd.docker.distribution.manifest.v2+json";
const ANYTHING: &str = "application/octet-stream, */*";
/// How often something is tried.
const TRIES: u32 = 4;
/// Between the first try and the second; then twice as long each time.
const PAUSE: Duration = Duration::from_millis(250);
/// How many indexes may lead to each other.
const MOST_INDEXES: usize = 4;

/// What is to be pulled.
#[derive(Debug)]
pub struct Pull<'a> {
    /// Which image.
    pub reference: &'a Reference,
    /// The name that it shall have.
    pub name: &'a ImageName,
    /// For which machine.
    pub platform: Platform,
    /// How much it may be.
    pub caps: Caps,
    /// Who asks.
    pub login: Option<Login>,
    /// Certificates to trust instead of the host's.
    pub ca: Option<&'a Path>,
    /// Whether other machines may be asked without encryption, where the reference itself begins with `http://`.
    pub insecure: bool,
}

/// How far a pull is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PullProgress {
    /// Bytes of layers that have arrived.
    Downloading {
        /// So many.
        bytes: u64,
        /// Of so many.
        of: u64,
    },
    /// Everything is there and is being unpacked.
    Storing(Progress),
}

/// Pulls an image. What has arrived whole stays for the next try; nothing else does.
pub async fn pull(
    store: &Store,
    what: &Pull<'_>,
    tell: &mut (dyn FnMut(PullProgress) + Send),
) -> Result<Kept, RegistryError> {
    let lines = Lines::new(what.ca, what.insecure && what.reference.asks_in_the_open())?;
    let mut registry = Registry { lines, what, token: None };
    let mut blobs = store.blobs()?;
    let top = registry.top(&mut blobs).await?;
    let mut at = top.clone();
    let mut manifest = None;
    for _ in 0..MOST_INDEXES {
        match oci_text::document(&blobs.read(&at)?)? {
            Document::Index(all) => {
                at = choose(&all, &what.platform)?.clone();
                registry.fetch_document(&mut blobs, "manifests", &at).await?;
            }
            Document::Manifest(found) => {
                manifest = Some(found);
                break;
            }
        }
    }
    if let Some(manifest) = manifest {
        let of = manifest.layers.iter().fold(0_u64, |sum, layer| sum.saturating_add(layer.size));
        if of > what.caps.bytes {
            let error = blastbox_images::tree::TreeError::TooLarge { most: what.caps.bytes };
            return Err(RegistryError::Store(error.into()));
        }
        registry.fetch_document(&mut blobs, "blobs", &manifest.config).await?;
        let mut before = 0_u64;
        for layer in &manifest.layers {
            let mut tell =
                |bytes: u64| tell(PullProgress::Downloading { bytes: before.saturating_add(bytes), of });
            registry.fetch(&mut blobs, "blobs", layer, &mut tell).await?;
            before = before.saturating_add(layer.size);
        }
    }
    let draft = store.begin()?;
    let mut writer = draft.writer(what.caps)?;
    let made = assemble(&mut writer, &blobs, &top, &what.platform, &mut |bytes| {
        tell(PullProgress::Storing(Progress::Reading { bytes, of: None }));
    })?;
    let source = Source::Registry { reference: what.reference.to_string(), manifest: made.manifest };
    let kept = draft.keep(writer.made(), source, made.config, Some(what.name), &mut |bytes| {
        tell(PullProgress::Storing(Progress::Checking { bytes }));
    })?;
    // The tree is there: what it was made from is worth nothing any more.
    blobs.discard();
    Ok(kept)
}

/// A registry, while something is pulled from it.
#[derive(Debug)]
struct Registry<'a> {
    lines: Lines,
    what: &'a Pull<'a>,
    token: Option<HeaderValue>,
}

impl Registry<'_> {
    /// The document that the reference means, stored under the digest that it has.
    async fn top(&mut self, blobs: &mut Blobs<'_>) -> Result<Descriptor, RegistryError> {
        let reference = self.what.reference;
        let path = format!("/manifests/{}", reference.wanted());
        let mut tried = 0;
        let (body, host) = loop {
            tried += 1;
            match self.document(&path).await {
                Err(error) if error.is_passing() && tried < TRIES => pause(tried).await,
                outcome => break outcome?,
            }
        };
        let digest = Hash::of([body.as_slice()]);
        if let Some(wanted) = reference.digest()
            && wanted != digest
        {
            let why = format!("expected {wanted}, found {digest}");
            return Err(RegistryError::Lie { host, what: "the manifest".to_owned(), why });
        }
        let size = u64::try_from(body.len()).unwrap_or(u64::MAX);
        let found = Descriptor { media_type: String::new(), digest, size, platform: None, annotations: None };
        let mut draft = blobs.begin(&found)?;
        draft.write(&body)?;
        blobs.keep(draft, &found)?;
        Ok(found)
    }

    async fn document(&mut self, path: &str) -> Result<(Vec<u8>, String), RegistryError> {
        let mut answer = self.ask(path, MANIFESTS, "the manifest").await?;
        let body = answer.whole("the manifest", MOST_DOCUMENT).await?;
        Ok((body, answer.host))
    }

    /// A manifest or a configuration. Its size is the registry's word, so that it is weighed before anything is asked for;
    /// what comes is cut off at that size.
    async fn fetch_document(
        &mut self,
        blobs: &mut Blobs<'_>,
        kind: &str,
        blob: &Descriptor,
    ) -> Result<(), RegistryError> {
        if blob.size > MOST_DOCUMENT {
            let what = format!("{kind} {}", blob.digest);
            return Err(OciError::TooLong { what, most: MOST_DOCUMENT }.into());
        }
        self.fetch(blobs, kind, blob, &mut |_| {}).await
    }

    /// One blob, tried again where that may help. One that is there already is not asked for.
    async fn fetch(
        &mut self,
        blobs: &mut Blobs<'_>,
        kind: &str,
        blob: &Descriptor,
        tell: &mut (dyn FnMut(u64) + Send),
    ) -> Result<(), RegistryError> {
        if blobs.has(blob)? {
            return Ok(());
        }
        let mut tried = 0;
        loop {
            tried += 1;
            let mut draft = blobs.begin(blob)?;
            match self.download(&mut draft, kind, blob, tell).await {
                Ok(()) => return Ok(blobs.keep(draft, blob)?),
                Err(error) if error.is_passing() && tried < TRIES => pause(tried).await,
                Err(error) => return Err(error),
            }
        }
    }

    async fn download(
        &mut self,
        draft: &mut BlobDraft,
        kind: &str,
        blob: &Descriptor,
        tell: &mut (dyn FnMut(u64) + Send),
    ) -> Result<(), RegistryError> {
        let what = format!("{kind} {}", blob.digest);
        let accept = if kind == "manifests" { MANIFESTS } else { ANYTHING };
        let mut answer = self.ask(&format!("/{kind}/{}", blob.digest), accept, &what).await?;
        let lie =
            |host: &str, why: String| RegistryError::Lie { host: host.to_owned(), what: what.clone(), why };
        while let Some(piece) = answer.piece().await? {
            draft.write(&piece)?;
            // More than was promised is not waited for.
            if draft.written() > blob.size {
                return Err(lie(&answer.host, format!("it is longer than the promised {} bytes", blob.size)));
            }
            tell(draft.written());
        }
        let found = draft.digest();
        if draft.written() != blob.size {
            let why = format!("{} of the promised {} bytes came", draft.written(), blob.size);
            return Err(lie(&answer.host, why));
        }
        if found != blob.digest {
            return Err(lie(&answer.host, format!("expected {}, found {found}", blob.digest)));
        }
        Ok(())
    }

    /// A question to the registry, with whatever it asks for first.
    async fn ask(&mut self, path: &str, accept: &str, what: &str) -> Result<Answer, RegistryError> {
        let reference = self.what.reference;
        let address = format!("{}{path}", reference.base());
        let mut answer = self.lines.get(&address, accept, self.token.as_ref()).await?;
        if answer.response.status() == StatusCode::UNAUTHORIZED {
            let token = auth::answer(&self.lines, reference, &answer, self.what.login.as_ref()).await?;
            answer = self.lines.get(&address, accept, Some(&token)).await?;
            self.token = Some(token);
        }
        match answer.response.status() {
            StatusCode::OK => Ok(answer),
            status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => Err(RegistryError::Auth {
                host: answer.host,
                why: format!("{status} for {what}; is the user right, and may it read this repository?"),
            }),
            status => Err(RegistryError::Status { host: answer.host, what: what.to_owned(), status }),
        }
    }
}

async fn pause(tried: u32) {
    tokio::time::sleep(PAUSE.saturating_mul(1 << tried.min(6))).await;
}
