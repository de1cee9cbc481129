//! Real programs through the gateway, with the variables that a box has and nothing else: they believe the box's
//! authority, and a secret that none of them has reaches the server.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;

use blastbox_wire::egress::BUNDLE_VARIABLES;
use http::StatusCode;

use crate::rig::World;
use crate::server::{Seen, answering, ok};

const ALLOW: &str = r#"{ host = "localhost", ports = [PORT], tls = "inspect" }"#;
const BIND: &str = r#"{ secret = "token", host = "localhost", port = PORT }"#;
const TOKEN: &str = "the-secret-that-no-client-has-42";

struct Scene {
    world: Arc<World>,
    seen: Seen,
    room: PathBuf,
    bundle: PathBuf,
}

impl Drop for Scene {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.room).ok();
    }
}

/// A server that gives files of a directory to whoever has the token.
async fn scene(name: &str) -> Scene {
    let world = Arc::new(World::new(ALLOW, BIND, &[("token", TOKEN)]).await);
    let room = std::env::temp_dir().join(format!("blastbox-egress-{}-{name}", std::process::id()));
    std::fs::create_dir_all(room.join("served")).unwrap();
    let bundle = room.join("bundle.crt");
    std::fs::write(&bundle, &world.pem).unwrap();
    std::fs::write(room.join("served/hello"), "hello from the server\n").unwrap();
    let files = room.join("served");
    let seen = answering(&world, &["localhost"], &[b"h2", b"http/1.1"], move |parts, body| {
        let mut response = ok("");
        if parts.headers.get("authorization").is_none_or(|value| value != &format!("Bearer {TOKEN}")) {
            *response.status_mut() = StatusCode::UNAUTHORIZED;
        } else if parts.method == "POST" {
            response = ok(format!("{} bytes", body.len()));
        } else {
            let path = parts.uri.path().trim_start_matches('/').trim_end_matches('/');
            match std::fs::read(files.join(path)) {
                Ok(file) => {
                    response = ok(file);
                    if path.starts_with("simple/") {
                        response
                            .headers_mut()
                            .insert("content-type", http::HeaderValue::from_static("text/html"));
                    }
                }
                Err(_) => *response.status_mut() = StatusCode::NOT_FOUND,
            }
        }
        response
    });
    world.open_for("localhost");
    Scene { world, seen, room, bundle }
}

impl Scene {
    fn url(&self, path: &str) -> String {
        format!("https://localhost:{}{path}", self.world.port)
    }

    /// Runs a program as a box would: an empty environment with the variables that name the bundle.
    async fn run(&self, program: &str, args: &[&str]) -> Option<Output> {
        if !Path::new(program).exists() {
            blastbox_skips::skip_this(&format!("{program} is not installed"));
            return None;
        }
        #[expect(clippy::disallowed_methods, reason = "the programs that the gateway must suit")]
        let mut command = Command::new("/usr/bin/timeout");
        command
            .args(["300", program])
            .args(args)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", &self.room);
        command.current_dir(&self.room);
        for variable in BUNDLE_VARIABLES {
            command.env(variable, &self.bundle);
        }
        let output = tokio::task::spawn_blocking(move || command.output()).await.unwrap().unwrap();
        Some(output)
    }

    /// What a program printed; it must have succeeded.
    async fn says(&self, program: &str, args: &[&str]) -> Option<String> {
        let output = self.run(program, args).await?;
        let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{program} {args:?}: {}\n{out}\n{err}", output.status);
        assert!(!out.contains(TOKEN) && !err.contains(TOKEN));
        Some(out.into_owned())
    }

    fn served(&self) -> usize {
        self.seen.lock().unwrap().len()
    }
}

#[tokio::test]
async fn curl_speaks_both_versions_and_uploads() {
    let scene = scene("curl").await;
    for version in ["--http1.1", "--http2"] {
        let Some(said) = scene.says("/usr/bin/curl", &["-sS", version, &scene.url("/hello")]).await else {
            return;
        };
        assert_eq!(said, "hello from the server\n", "{version}");
    }
    std::fs::write(scene.room.join("large"), vec![b'x'; 5_000_000]).unwrap();
    let upload = scene.says("/usr/bin/curl", &["-sS", "--data-binary", "@large", &scene.url("/up")]).await;
    assert_eq!(upload.as_deref(), Some("5000000 bytes"));
    assert_eq!(scene.served(), 3);
}

#[tokio::test]
async fn python_reads_with_its_own_library() {
    let scene = scene("urllib").await;
    let script =
        "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1]).read().decode(), end='')";
    let Some(said) = scene.says("/usr/bin/python3", &["-I", "-c", script, &scene.url("/hello")]).await else {
        return;
    };
    assert_eq!(said, "hello from the server\n");
}

#[tokio::test]
async fn python_reads_with_requests() {
    let scene = scene("requests").await;
    // Debian's pip carries it, where it is not installed by itself.
    let script = "import sys\ntry:\n import requests\nexcept ImportError:\n try:\n  from pip._vendor import requests\n except ImportError:\n  print('skipped'); sys.exit()\nprint(requests.get(sys.argv[1]).text, end='')";
    let Some(said) = scene.says("/usr/bin/python3", &["-c", script, &scene.url("/hello")]).await else {
        return;
    };
    if said.starts_with("skipped") {
        return blastbox_skips::skip_this("Python has no requests");
    }
    assert_eq!(said, "hello from the server\n");
}

#[tokio::test]
async fn node_reads_with_fetch() {
    let scene = scene("node").await;
    let script = "fetch(process.argv[1]).then(r => r.text()).then(t => process.stdout.write(t))";
    let Some(said) = scene.says("/usr/bin/node", &["-e", script, &scene.url("/hello")]).await else { return };
    assert_eq!(said, "hello from the server\n");
}

#[tokio::test]
async fn git_clones_over_https() {
    let scene = scene("git").await;
    let git = "/usr/bin/git";
    let who = ["-c", "user.name=t", "-c", "user.email=t@t", "-c", "init.defaultBranch=main"];
    let with = |rest: &[&'static str]| [&who[..], rest].concat();
    if scene.says(git, &with(&["init", "-q", "work"])).await.is_none() {
        return;
    }
    std::fs::write(scene.room.join("work/file"), "content\n").unwrap();
    scene.says(git, &with(&["-C", "work", "add", "file"])).await;
    scene.says(git, &with(&["-C", "work", "commit", "-q", "-m", "first"])).await;
    scene.says(git, &with(&["clone", "-q", "--bare", "work", "served/repo.git"])).await;
    scene.says(git, &with(&["-C", "served/repo.git", "update-server-info"])).await;
    scene.says(git, &["clone", "-q", &scene.url("/repo.git"), "copy"]).await;
    assert_eq!(std::fs::read_to_string(scene.room.join("copy/file")).unwrap(), "content\n");
}

#[tokio::test]
async fn pip_downloads_from_an_index() {
    let scene = scene("pip").await;
    let make = "import zipfile\nz = zipfile.ZipFile('served/tiny-1.0-py3-none-any.whl', 'w')\n\
                z.writestr('tiny.py', '')\nz.writestr('tiny-1.0.dist-info/METADATA', 'Metadata-Version: 2.1\\nName: tiny\\nVersion: 1.0\\n')\n\
                z.writestr('tiny-1.0.dist-info/WHEEL', 'Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n')\n\
                z.writestr('tiny-1.0.dist-info/RECORD', '')\nz.close()";
    if scene.says("/usr/bin/python3", &["-c", make]).await.is_none() {
        return;
    }
    std::fs::create_dir_all(scene.room.join("served/simple")).unwrap();
    // The server gives files: the index is one, under the name that the client asks for without its slash.
    let link = "<a href=\"/tiny-1.0-py3-none-any.whl\">tiny-1.0-py3-none-any.whl</a>";
    std::fs::write(
        scene.room.join("served/simple/tiny"),
        format!("<!DOCTYPE html><html><body>{link}</body></html>"),
    )
    .unwrap();
    let index = scene.url("/simple/");
    let args = [
        "-m",
        "pip",
        "--disable-pip-version-check",
        "download",
        "-q",
        "--no-deps",
        "--no-cache-dir",
        "-i",
        &index,
        "-d",
        "got",
        "tiny",
    ];
    let Some(output) = scene.run("/usr/bin/python3", &args).await else { return };
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    if error.contains("No module named pip") {
        return blastbox_skips::skip_this("Python has no pip");
    }
    assert!(output.status.success(), "{error}");
    assert!(scene.room.join("got/tiny-1.0-py3-none-any.whl").exists());
}

#[tokio::test]
async fn without_the_bundle_nobody_believes_the_gateway() {
    let scene = scene("stranger").await;
    std::fs::write(&scene.bundle, "").unwrap();
    let Some(output) = scene.run("/usr/bin/curl", &["-sS", &scene.url("/hello")]).await else { return };
    assert!(!output.status.success());
    assert_eq!(scene.served(), 0);
}
