//! Files of a box: content as it comes, names as they are, and nothing outside the box.

use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::Bytes;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use crate::caller::{Caller, PATIENCE};
use crate::rig::{Daemon, skip};

impl Caller {
    async fn put(&self, path: &str, body: impl Into<Bytes>) -> (u16, Value) {
        let answer = self.send("PUT", path, body).await;
        (answer.status, answer.body)
    }

    /// Runs a script to its end, which must be good.
    async fn script(&self, of: &str, script: &str) -> String {
        let exec = self.shell(of, script).await;
        let (text, ended) = self.ended(&exec).await;
        assert_eq!(ended, json!({ "how": "exited", "code": 0, "timed_out": false }), "{text}");
        text
    }
}

fn kinds(list: &Value) -> Vec<(String, String)> {
    let entries = list["entries"].as_array().unwrap();
    let field = |entry: &Value, name: &str| entry[name].as_str().unwrap().to_owned();
    let mut all: Vec<_> = entries.iter().map(|entry| (field(entry, "path"), field(entry, "kind"))).collect();
    all.sort();
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn files_go_in_and_out_and_about() {
    let Some(daemon) = Daemon::start("files_go_in_and_out_and_about").await else { return };
    let me = daemon.local();
    let made = me.create(json!({})).await;
    let files = format!("{made}/files");
    assert_eq!(me.put(&format!("{files}?path=a/b/c.txt"), "x").await.0, 404, "parents are not made unasked");
    let written = me.put(&format!("{files}?path=a/b/c.txt&parents=true&mode=600"), "content").await;
    assert_eq!(written, (200, json!({ "bytes": 7, "path": "/workspace/a/b/c.txt" })));
    assert_eq!(me.bytes(&format!("{files}?path=/workspace/a/b/c.txt")).await, (200, "content".into()));
    assert_eq!(me.bytes(&format!("{files}?path=a/b/c.txt&offset=3&length=2")).await, (200, "te".into()));
    assert_eq!(me.bytes(&format!("{files}?path=a/b/c.txt&offset=99")).await, (200, "".into()));
    assert_eq!(me.script(&made, "stat -c %a:%u a/b/c.txt; cat a/b/c.txt").await, "600:1000\ncontent");
    assert_eq!(
        me.put(&format!("{files}?path=a/b/c.txt&if_exists=fail"), "").await.1["error"]["code"],
        "file_exists"
    );
    assert_eq!(me.put(&format!("{files}?path=a/b/c.txt&if_exists=append"), "!").await.0, 200);

    let stat = me.get(&format!("{files}/stat?path=a/b/c.txt")).await.body;
    assert_eq!((&stat["kind"], &stat["size"], &stat["mode"]), (&json!("file"), &json!(8), &json!("0600")));
    assert_eq!(me.send("POST", &format!("{files}/directory?path=a/new&mode=700"), "").await.status, 204);
    assert_eq!(me.send("POST", &format!("{files}/directory?path=a/new"), "").await.code(), "file_exists");
    let moved = format!("{files}/move?path=a/b/c.txt&to=a/new/d");
    assert_eq!(me.send("POST", &moved, "").await.status, 204);
    assert_eq!(me.send("POST", &moved, "").await.code(), "file_not_found");
    me.script(&made, "ln -s ../../../etc a/up; ln -s nowhere a/none").await;
    let list = me.get(&format!("{files}/list?path=a&depth=5")).await.body;
    let expected =
        [("b", "directory"), ("new", "directory"), ("new/d", "file"), ("none", "link"), ("up", "link")];
    assert_eq!(kinds(&list), expected.map(|(path, kind)| (path.to_owned(), kind.to_owned())));
    assert_eq!((&list["complete"], &list["skipped"]), (&json!(true), &json!(0)));
    let cut = me.get(&format!("{files}/list?path=a&depth=5&limit=2")).await.body;
    assert_eq!((cut["entries"].as_array().unwrap().len(), &cut["complete"]), (2, &json!(false)));
    let empty = me.get(&format!("{files}/list?path=a/b")).await.body;
    assert_eq!(empty, json!({ "entries": [], "skipped": 0, "complete": true }));

    let (status, archive) = me.bytes(&format!("{files}/tar?path=a")).await;
    assert_eq!(status, 200);
    let unpacked = me.put(&format!("{files}/tar?path=/tmp/copy&parents=true"), archive).await;
    assert_eq!(unpacked, (200, json!({ "bytes": 8, "path": "/tmp/copy" })));
    assert_eq!(
        me.script(&made, "cat /tmp/copy/new/d; readlink /tmp/copy/up").await,
        "content!../../../etc\n"
    );
    assert_eq!(me.delete(&format!("{files}?path=a")).await.code(), "not_empty");
    assert_eq!(me.delete(&format!("{files}?path=a&recursive=true")).await.body, json!({ "entries": 6 }));
    assert_eq!(me.get(&format!("{files}/stat?path=a")).await.code(), "file_not_found");
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn each_wrong_path_has_its_code_and_none_leaves_the_box() {
    let Some(daemon) = Daemon::start("each_wrong_path_has_its_code_and_none_leaves_the_box").await else {
        return;
    };
    let me = daemon.local();
    let made = me.create(json!({})).await;
    me.script(&made, "mkdir d; mkfifo pipe; echo x > file; ln -s loop loop").await;
    let (long, deep) = ("a".repeat(256), "a/".repeat(2100));
    let name = format!("?path={long}");
    let path = format!("?path={deep}");
    for (method, rest, status, code) in [
        ("GET", "", 400, "bad_query"),
        ("GET", "?path=%zz", 400, "bad_query"),
        ("GET", "?path=a&path=b", 400, "bad_query"),
        ("GET", "?path=a&offset=-1", 400, "bad_query"),
        ("GET", "?path=a&ofset=1", 400, "bad_query"),
        ("PUT", "?path=a&mode=4755", 400, "bad_query"),
        ("PUT", "?path=a&if_exists=maybe", 400, "bad_query"),
        ("GET", "/list?path=/&limit=0", 400, "bad_query"),
        ("GET", "/list?path=/&depth=x", 400, "bad_query"),
        ("GET", "?path=", 422, "bad_path"),
        ("GET", "?path=a%00b", 422, "bad_path"),
        ("PUT", "?path=a%00b", 422, "bad_path"),
        ("POST", "/move?path=file&to=a%00b", 422, "bad_path"),
        ("GET", name.as_str(), 422, "name_too_long"),
        ("GET", path.as_str(), 422, "name_too_long"),
        ("GET", "?path=loop", 422, "too_many_links"),
        ("GET", "?path=none", 404, "file_not_found"),
        ("GET", "?path=d", 409, "is_a_directory"),
        ("PUT", "?path=d", 409, "is_a_directory"),
        ("GET", "?path=file/x", 409, "not_a_directory"),
        ("GET", "/list?path=file", 409, "not_a_directory"),
        ("GET", "/watch?path=file", 409, "not_a_directory"),
        ("GET", "/tar?path=none", 404, "file_not_found"),
        ("GET", "?path=pipe", 409, "not_a_file"),
        ("GET", "?path=/dev/zero", 409, "not_a_file"),
        ("PUT", "/tar?path=none", 404, "file_not_found"),
        ("GET", "/nonsense?path=a", 404, "no_such_route"),
        ("POST", "?path=a", 405, "method_not_allowed"),
    ] {
        let answer = me.send(method, &format!("{made}/files{rest}"), "").await;
        assert_eq!((answer.status, answer.code()), (status, code), "{method} {rest}: {answer:?}");
    }
    let no_archive = me.put(&format!("{made}/files/tar?path=d"), vec![b'x'; 2000]).await;
    assert_eq!((no_archive.0, &no_archive.1["error"]["code"]), (422, &json!("bad_archive")));
    for path in ["/etc/passwd", "../../../../../../etc/passwd"] {
        let refused = me.put(&format!("{made}/files?path={path}"), "x").await;
        assert_eq!(refused.0, 403, "{path}: {refused:?}");
        // What is read is the box's own, however many steps up are asked for.
        let (_, read) = me.bytes(&format!("{made}/files?path={path}")).await;
        assert_eq!(read, me.script(&made, "cat /etc/passwd").await);
    }
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn names_and_trees_that_nobody_expects_are_taken_as_they_are() {
    let Some(daemon) = Daemon::start("names_and_trees_that_nobody_expects_are_taken_as_they_are").await
    else {
        return;
    };
    let me = daemon.local();
    let made = me.create(json!({})).await;
    let files = format!("{made}/files");
    assert_eq!(me.put(&format!("{files}?path=odd/a%0ab&parents=true"), "1").await.0, 200);
    assert_eq!(me.put(&format!("{files}?path=odd/%ff%22"), "2").await.0, 200);
    let list = me.get(&format!("{files}/list?path=odd")).await.body;
    let mut names: Vec<_> = list["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| (&entry["path"], &entry["path_base64"]))
        .collect();
    names.sort_by_key(|(path, _)| path.is_null());
    assert_eq!(names, [(&json!("a\nb"), &Value::Null), (&Value::Null, &json!("/yI="))]);
    assert_eq!(me.bytes(&format!("{files}?path=odd/%FF%22")).await.1, "2");
    assert_eq!(me.bytes(&format!("{files}?path=odd/a%0Ab")).await.1, "1");

    me.script(
        &made,
        "mkdir deep; cd deep; i=0; while [ $i -lt 1500 ]; do mkdir d; cd d; i=$((i+1)); done; echo x > end",
    )
    .await;
    let list = me.get(&format!("{files}/list?path=deep&depth=2000")).await.body;
    assert_eq!((list["entries"].as_array().unwrap().len(), &list["complete"]), (1501, &json!(true)));
    let (status, archive) = me.bytes(&format!("{files}/tar?path=deep")).await;
    assert_eq!(status, 200);
    assert_eq!(me.put(&format!("{files}/tar?path=again&parents=true"), archive).await.0, 200);
    for tree in ["deep", "again"] {
        let removed = me.delete(&format!("{files}?path={tree}&recursive=true")).await;
        assert_eq!(removed.body, json!({ "entries": 1502 }), "{tree}");
    }
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terabyte_of_nothing_holds_up_nobody() {
    let Some(daemon) = Daemon::start("a_terabyte_of_nothing_holds_up_nobody").await else { return };
    let me = daemon.local();
    let work = daemon.socket().parent().unwrap().join("work");
    std::fs::create_dir(&work).unwrap();
    if let Err(error) = std::fs::File::create(work.join("hole")).unwrap().set_len(1 << 40) {
        let reason = format!("no file of a terabyte here: {error}");
        return skip("a_terabyte_of_nothing_holds_up_nobody", &reason).unwrap_or(());
    }
    let made = me.create(json!({ "workspace": { "path": work, "access": "read-only" } })).await;
    let files = format!("{made}/files");
    // The box's own disk has a limit, holes or not.
    let exec = me.shell(&made, "truncate -s 1T /tmp/hole").await;
    assert_ne!(me.ended(&exec).await.1["code"], 0);
    assert_eq!(me.get(&format!("{files}/stat?path=/workspace/hole")).await.body["size"], 1_u64 << 40);
    let end = (1_u64 << 40) - 3;
    assert_eq!(
        me.bytes(&format!("{files}?path=/workspace/hole&offset={end}")).await,
        (200, vec![0; 3].into())
    );
    for path in ["?path=/workspace/hole", "/tar?path=/workspace"] {
        let response = me.open("GET", &format!("{files}{path}"), &[], Bytes::new()).await;
        assert_eq!(response.status(), 200);
        let mut body = response.into_body();
        let mut seen = 0;
        // Some of it is enough: whoever goes away ends it.
        while seen < 4 << 20 {
            let frame = tokio::time::timeout(PATIENCE, body.frame()).await.unwrap().unwrap().unwrap();
            seen += frame.into_data().unwrap().len();
        }
    }
    assert_eq!(me.script(&made, "echo here").await, "here\n");
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_file_goes_through_and_a_broken_one_leaves_nothing() {
    let Some(daemon) = Daemon::start("a_large_file_goes_through_and_a_broken_one_leaves_nothing").await
    else {
        return;
    };
    let me = daemon.local();
    let made = me.create(json!({ "limits": { "memory": "512MiB", "disk": "256MiB" } })).await;
    let files = format!("{made}/files");
    let content: Bytes = (0..32_000_000_u32).map(|at| at.to_le_bytes()[1]).collect();
    assert_eq!(me.put(&format!("{files}?path=big"), content.clone()).await.0, 200);
    assert!(me.bytes(&format!("{files}?path=big")).await.1 == content);
    let full = me.put(&format!("{files}?path=/dev/shm/big"), content).await;
    assert!([200, 403, 404, 413, 507].contains(&full.0), "{full:?}");

    let mut torn = me.connect().await;
    let head = format!("PUT {files}?path=big HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\nhalf");
    torn.write_all(head.as_bytes()).await.unwrap();
    drop(torn);
    // The old one stays, and what was begun beside it goes.
    let waiting = async {
        while kinds(&me.get(&format!("{files}/list?path=.")).await.body)
            .iter()
            .filter(|(_, kind)| kind == "file")
            .count()
            > 1
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.unwrap();
    assert_eq!(me.get(&format!("{files}/stat?path=big")).await.body["size"], 32_000_000);
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_watches_hears_of_each_change_and_of_the_end() {
    let Some(daemon) = Daemon::start("whoever_watches_hears_of_each_change_and_of_the_end").await else {
        return;
    };
    let me = daemon.local();
    let made = me.create(json!({})).await;
    me.script(&made, "mkdir -p /tmp/w/sub").await;
    // The watch stands when the answer has begun.
    let watching =
        me.open("GET", &format!("{made}/files/watch?path=/tmp/w&recursive=true"), &[], Bytes::new()).await;
    assert_eq!(watching.status(), 200);
    me.script(&made, "echo 1 > '/tmp/w/sub/a\nb'; rm -r /tmp/w").await;
    let all =
        tokio::time::timeout(PATIENCE, watching.into_body().collect()).await.unwrap().unwrap().to_bytes();
    let text = String::from_utf8(all.to_vec()).unwrap();
    let told: Vec<Value> = text
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|data| serde_json::from_str(data).unwrap())
        .collect();
    let has =
        |kind: &str, path: &str| told.iter().any(|change| change["kind"] == kind && change["path"] == path);
    assert!(has("created", "sub/a\nb") && has("removed", "sub") && has("ended", ""), "{text}");
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_of_a_box_that_stands_still_or_is_gone_are_not_reached() {
    let Some(daemon) = Daemon::start("files_of_a_box_that_stands_still_or_is_gone_are_not_reached").await
    else {
        return;
    };
    let me = daemon.local();
    let made = me.create(json!({})).await;
    let stat = format!("{made}/files/stat?path=/");
    if me.send("POST", &format!("{made}/pause"), "").await.status == 200 {
        assert_eq!(me.get(&stat).await.code(), "wrong_phase");
        assert_eq!(me.send("POST", &format!("{made}/resume"), "").await.status, 200);
    }
    assert_eq!(me.get(&stat).await.body["kind"], "directory");
    // A watcher hears the end of its box as the end of the stream.
    let watching = me.open("GET", &format!("{made}/files/watch?path=/tmp"), &[], Bytes::new()).await;
    assert_eq!(me.delete(&made).await.status, 200);
    tokio::time::timeout(PATIENCE, watching.into_body().collect()).await.unwrap().unwrap();
    assert_eq!(me.get(&stat).await.code(), "gone");
    daemon.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_archive_says_at_its_end_what_is_not_in_it() {
    let Some(daemon) = Daemon::start("an_archive_says_at_its_end_what_is_not_in_it").await else { return };
    let me = daemon.local();
    let made = me.create(json!({})).await;
    me.script(
        &made,
        "mkdir d; echo 1 > d/good; echo 2 > d/secrét; chmod 0 d/*t; mkfifo \"d/$(printf '\\377')\"",
    )
    .await;
    for (headers, told) in [(&[("te", "trailers")][..], true), (&[], false)] {
        let response = me.open("GET", &format!("{made}/files/tar?path=d"), headers, Bytes::new()).await;
        let collected =
            tokio::time::timeout(PATIENCE, response.into_body().collect()).await.unwrap().unwrap();
        let trailers = collected.trailers().cloned().unwrap_or_default();
        assert_eq!(trailers.get("blastbox-skipped").is_some(), told, "{trailers:?}");
        if told {
            assert_eq!(trailers["blastbox-skipped"], "2");
            let names = trailers["blastbox-left-out"].to_str().unwrap();
            let mut names: Vec<Value> = serde_json::from_str(names).unwrap();
            names.sort_by_key(|name| name["path"].is_null());
            assert_eq!(names, [json!({ "path": "secrét" }), json!({ "path_base64": "/w==" })]);
        }
    }
    daemon.stop().await;
}
