//! Templates that tenants build through E2B's SDKs: an image of the operator, steps in boxes, and a name.
//!
//! - [`ask`]: what is wanted, understood and bounded. [`uploads`]: files for a COPY. [`build`]: a whole build, [`step`]: one
//!   step of it, [`archive`]: what goes into its box and out of it, [`root`]: what of it needs root of that, [`begin`]: what its sandboxes begin with. [`book`]: what was built, [`record`]: one template of it, [`place`]: the files of that,
//!   [`trees`]: images that steps have changed.
//!   [`hand`]: builds that are at work. [`name`], [`tags`], [`log`], [`list`], [`show`]: how it is called and told.
//!
//! Trust: caller. A template is its tenant's: nobody else finds it, and its boxes count among that tenant's. Must not: reach a
//! registry, or give a step more of the network than the operator opened for builds.

mod archive;
mod ask;
mod begin;
mod book;
mod build;
mod hand;
mod list;
mod log;
mod name;
mod place;
mod record;
mod root;
mod show;
mod step;
mod tags;
mod trees;
mod uploads;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{Response, StatusCode};
use axum::response::IntoResponse;
use blastbox_engine::keeper::{Keeper, Tenant};
use blastbox_images::Image;
use blastbox_wire::BoxId;
use blastbox_wire::event::Hash;
use serde::Deserialize;
use serde_json::{Value, json};

use self::book::Book;
use self::hand::InHand;
use self::log::Logs;
pub(super) use self::name::Named;
use self::place::Place;
pub(super) use self::record::{Build, Made};
pub(super) use self::trees::Lying;
use self::trees::Trees;
use self::uploads::{Lanes, Passes};
use super::control::{body, page::Next};
use super::desk::Desk;
use super::no::{No, echo};
use super::{copies, edge, template};
use crate::Hall;
use crate::answer::Answer;
use crate::config::Builds;
use crate::gallery::Gallery;

/// All templates that were built here.
#[derive(Debug)]
pub(super) struct Templates {
    book: Book,
    place: Place,
    trees: Trees,
    lying: Lying,
    passes: Passes,
    lanes: Lanes,
    logs: Logs,
    in_hand: InHand,
    /// Held while something is written down, and while what nobody needs is taken away.
    sweeping: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Patch {
    public: Option<bool>,
}

impl Templates {
    /// Opens what is in this directory.
    pub(super) fn open(path: PathBuf, lying: Lying) -> io::Result<Self> {
        let (place, trees) = (Place::open(path.clone())?, Trees::open(&path.join("images"))?);
        let book = Book::open(path)?;
        // What builds of an earlier daemon left is nobody's. What cannot be taken away now is taken away the next time.
        let mut needed = book.needed();
        needed.extend(lying.parts());
        let _ = place.sweep(&needed).is_ok() && trees.sweep(&needed, &lying, |_| false).is_ok();
        Ok(Self {
            trees,
            lying,
            book,
            place,
            passes: Passes::default(),
            lanes: Lanes::default(),
            logs: Logs::default(),
            in_hand: InHand::default(),
            sweeping: tokio::sync::Mutex::default(),
        })
    }

    /// What a tenant's own template of this name is made of. `None`: it has none of that name.
    pub(super) fn made(&self, tenant: &Tenant, asked: &str) -> Result<Option<(Build, Made)>, No> {
        let Some(record) = self.book.find(tenant, asked) else { return Ok(None) };
        let tag =
            Named::parse(asked).map_or_else(|_| name::DEFAULT_TAG.to_owned(), |named| named.tag().to_owned());
        let found = record.tagged(&tag).and_then(|build| Some((build.clone(), build.made.clone()?)));
        match found {
            Some(found) => Ok(Some(found)),
            None => Err(No::new(
                404,
                format!("template '{}' has no finished build with the tag '{tag}'", echo(asked)),
            )),
        }
    }

    fn open_home(&self, tenant: &Tenant, made: &Made) -> io::Result<Option<File>> {
        made.home.as_ref().map(|home| self.place.open_home(tenant, home)).transpose()
    }

    /// The same with its home, opened: where the name comes to mean another build, nothing is taken from whoever has begun.
    pub(super) fn opened(
        &self,
        tenant: &Tenant,
        asked: &str,
    ) -> Result<Option<(Build, Made, Option<File>)>, No> {
        let mut again = 0..3;
        loop {
            let Some((build, made)) = self.made(tenant, asked)? else { return Ok(None) };
            match self.open_home(tenant, &made) {
                Ok(home) => return Ok(Some((build, made, home))),
                // The name came to mean another build in this moment.
                Err(error) if error.kind() == io::ErrorKind::NotFound && again.next().is_some() => {}
                Err(error) => {
                    let why = format!("the home of the template cannot be read: {error}");
                    return Err(No::new(500, why).coded("sandbox_create_failed"));
                }
            }
        }
    }

    /// The image of this tree: the operator's, or what steps made of it. Looks at the disk.
    pub(super) fn image(&self, tree: Option<Hash>, images: &Gallery) -> Result<Image, No> {
        let Some(tree) = tree else { return Ok(Image::host()) };
        let found = template::by_digest(&tree, images).or_else(|| self.trees.find(&tree));
        found.map(|image| Image::Stored(Box::new(image))).ok_or_else(|| {
            No::new(
                404,
                "the image that this template was built from is not in the store any more: build the template anew",
            )
        })
    }

    /// The same for a sandbox that goes on, or begins with a snapshot, by what its image was called.
    pub(super) fn labelled(&self, label: &str) -> Option<Image> {
        let tree = label.rsplit('@').next()?.parse().ok()?;
        self.trees.find(&tree).map(|image| Image::Stored(Box::new(image)))
    }

    /// Whether a tenant has one of this name.
    pub(super) fn has(&self, tenant: &Tenant, name: &str) -> bool {
        self.book.find(tenant, name).is_some()
    }

    /// Somebody has made a sandbox of it.
    pub(super) fn spawned(&self, tenant: &Tenant, asked: &str) {
        self.book.spawned(tenant, asked);
    }

    /// Gives a new sandbox what its template has.
    pub(super) async fn fill(
        (keeper, tenant, id): (&Keeper, &Tenant, &BoxId),
        made: &Made,
        home: Option<File>,
        variables: &BTreeMap<String, String>,
    ) -> Result<(), No> {
        let whose = begin::Whose { keeper, tenant, id };
        let filled = begin::fill(&whose, made, home, variables, begin::Wait::ForAnswers).await;
        filled.map_err(|why| {
            No::new(500, format!("the sandbox could not begin: {why}")).coded("sandbox_create_failed")
        })
    }
}

/// Whether a request is an upload, which brings no key but the address that it was given.
pub(super) fn is_upload(method: &str, parts: &[&str]) -> bool {
    matches!((method, parts), ("PUT", ["templates", _, "files", _]))
}

pub(super) async fn upload(desk: &Arc<Desk>, parts: &[&str], request: Request) -> Result<Response<Body>, No> {
    let hash =
        parts.get(3).filter(|hash| ask::is_hash(hash)).ok_or_else(|| No::bad("this is no hash of files"))?;
    uploads::put(desk.templates()?, &desk.hall().keys, hash, request).await
}

/// Whether a request is a part of building; everything else is about what was built.
fn builds(method: &str, parts: &[&str]) -> bool {
    matches!(
        (method, parts),
        ("POST", ["v3", "templates"] | ["v2", "templates", _, "builds", _])
            | ("GET", ["templates", _, "files", _])
    )
}

/// What builds may do, unless the operator wants none.
fn may_do(hall: &Hall) -> Result<&Builds, No> {
    hall.builds.as_ref().ok_or_else(|| {
        No::new(
            403,
            "templates are not built here: the operator has switched that off (`enabled` under [e2b.builds] of the daemon's \
             configuration); see docs/e2b.md",
        )
        .coded("template_builds_off")
    })
}

/// Answers what is asked about templates.
pub(super) async fn answer(
    desk: &Arc<Desk>,
    tenant: &Tenant,
    (method, parts): (&str, &[&str]),
    request: Request,
) -> Result<Response<Body>, No> {
    let templates = desk.templates()?;
    if builds(method, parts) {
        may_do(desk.hall())?;
    }
    match (method, parts) {
        ("POST", ["v3", "templates"]) => {
            let ask::Wanted { named, tags, size } = body::read::<ask::NewBuild>(request).await?.check()?;
            if template::is_the_operators(&named.name, &desk.hall().images) {
                return Err(No::new(
                    403,
                    format!("'{}' is a template of the operator; choose another name", named.name),
                ));
            }
            if copies::has_name(desk, tenant, &named.name).await? {
                return Err(No::new(
                    409,
                    format!("'{}' is a snapshot of yours; choose another name, or delete it", named.name),
                ));
            }
            let (template, build) =
                templates.book.begin(tenant, &named, tags.clone(), size, &|id| templates.in_hand.has(id))?;
            let names = [named.name];
            Ok(json(
                StatusCode::ACCEPTED,
                json!({
                    "templateID": template, "buildID": build, "public": false, "names": names, "tags": tags, "aliases": names,
                }),
            ))
        }
        ("GET", ["templates", id, "files", hash]) => {
            let key = edge::caller(&request)?.key;
            uploads::link(templates, (tenant, key.as_ref()), (id, hash), request.headers())
        }
        ("POST", ["v2", "templates", id, "builds", build_id]) => {
            let plan = body::read::<ask::StartBuild>(request).await?.check()?;
            build::start(desk, templates, tenant, (id, build_id), plan).await?;
            Ok(StatusCode::ACCEPTED.into_response())
        }
        ("GET", ["templates", id, "builds", build_id, "status"]) => {
            show::status(templates, tenant, (id, build_id), request.uri().query()).map(shown)
        }
        ("GET", ["templates", id, "builds", build_id, "logs"]) => {
            show::logs(templates, tenant, (id, build_id), request.uri().query()).map(shown)
        }
        ("GET", ["templates", "aliases", alias]) => {
            if let Some(record) = templates.book.find(tenant, alias) {
                return Ok(json(StatusCode::OK, json!({ "templateID": record.id, "public": false })));
            }
            let operators = template::is_the_operators(alias, &desk.hall().images);
            Err(No::new(
                if operators { 403 } else { 404 },
                format!("template '{}' is not yours", echo(alias)),
            ))
        }
        ("GET", ["templates"]) => Ok(shown(list::all(templates, tenant))),
        ("GET", ["v2", "templates"]) => list::one_page(templates, tenant, request.uri().query()).map(paged),
        ("GET", ["default-templates"]) => Ok(json(StatusCode::OK, json!([]))),
        (method, parts @ (["templates", _, "tags", ..] | ["templates", "tags"])) => {
            tags::answer(templates, tenant, (method, parts), request).await
        }
        ("GET", ["templates", id]) => {
            list::builds(&templates.book.own(tenant, id)?, request.uri().query()).map(paged)
        }
        ("PATCH", ["templates", id] | ["v2", "templates", id]) => {
            let Patch { public } = body::read(request).await?;
            let record = templates.book.own(tenant, id)?;
            if public == Some(true) {
                return Err(No::bad("no template is public here: each is its tenant's alone"));
            }
            Ok(json(StatusCode::OK, json!({ "names": [record.name] })))
        }
        ("DELETE", ["templates", id]) => {
            let gone = templates.book.remove(tenant, id)?;
            gone.builds.iter().for_each(|build| templates.in_hand.stop(&build.id));
            build::sweep(templates).await;
            Ok(StatusCode::NO_CONTENT.into_response())
        }
        _ => Err(No::defect()),
    }
}

fn json(status: StatusCode, value: Value) -> Response<Body> {
    Answer(status, value).into_response()
}

fn shown(value: Value) -> Response<Body> {
    json(StatusCode::OK, value)
}

fn paged((value, next): (Value, Next)) -> Response<Body> {
    let mut answer = shown(value);
    answer.headers_mut().extend(next);
    answer
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::*;
    use crate::e2b::templates::record::Status;
    use crate::testing::Scratch;

    #[tokio::test]
    async fn a_home_that_was_opened_is_whole_also_when_its_name_means_another_build() {
        let scratch = Scratch::new("templates-opened");
        let templates = Templates::open(scratch.path().to_owned(), Lying::known_by(Vec::new)).unwrap();
        let (ann, named) = ("ann".parse().unwrap(), Named::parse("one").unwrap());
        let build = |home: &'static [u8]| {
            let (id, build) = templates.book.begin(&ann, &named, Vec::new(), (1, 512), &|_| false).unwrap();
            let digest = blastbox_wire::event::Hash::of([home]);
            std::fs::write(templates.place.home(&ann, &digest).unwrap(), home).unwrap();
            let done = templates.book.change(&ann, &id, |record| {
                let (env, workdir, user) = (BTreeMap::new(), "/home/user".to_owned(), "user".to_owned());
                let (tree, base, home) = (None, None, Some(digest));
                let made = Made { tree, base, home, env, workdir, user, start: None, ready: None };
                let found = record.build_mut(&build).unwrap();
                (found.status, found.made) = (Status::Ready, Some(made));
                record.tag(&build, &["default".to_owned()])
            });
            done.unwrap();
            templates.place.sweep(&templates.book.needed()).unwrap();
        };
        let read = |home: Option<File>| {
            let mut text = Vec::new();
            home.unwrap().read_to_end(&mut text).unwrap();
            text
        };
        build(b"first");
        let (_, _, first) = templates.opened(&ann, "one").unwrap().unwrap();
        build(b"second");
        let (_, _, second) = templates.opened(&ann, "one").unwrap().unwrap();
        assert_eq!((read(first), read(second)), (b"first".to_vec(), b"second".to_vec()));
    }
}
