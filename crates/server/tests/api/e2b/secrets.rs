//! `/secrets`: exact statuses, bounds, nobody else's, and no value in any answer.

use serde_json::{Value, json};

use super::wire::{Client, Heard};
use crate::rig::Daemon;

const VALUE: &str = "sk-real-value";
const ON: &str = "[e2b.secrets]\ncount = 3\n";

fn error_code(heard: &Heard) -> &str {
    heard.body["error_code"].as_str().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secret_is_made_listed_found_renewed_and_deleted_by_id_or_name_and_never_shown() {
    let Some(daemon) = Daemon::written("e2b::a_secret_is_made", ON).await else { return };
    let (ann, bob) = (Client::of(&daemon, "ann"), Client::of(&daemon, "bob"));
    let made = ann.ask("POST", "/secrets", json!({ "name": "Api Key/ü", "value": VALUE })).await;
    assert_eq!(made.status, 201, "{made:?}");
    let mut fields: Vec<&String> = made.body.as_object().unwrap().keys().collect();
    fields.sort();
    assert_eq!(fields, ["createdAt", "currentVersion", "metadata", "name", "secretID", "updatedAt"]);
    assert_eq!((&made.body["name"], &made.body["currentVersion"]), (&json!("api key/ü"), &json!(1)));
    assert_eq!(made.body["metadata"], json!({}));
    let id = made.body["secretID"].as_str().unwrap();
    assert!(id.starts_with("sec_"));
    for called in [id, "api%20key%2F%C3%BC", "API%20KEY%2F%C3%9C"] {
        let path = format!("/secrets/{called}");
        assert_eq!(ann.ask("GET", &path, Value::Null).await.body, made.body, "{called}");
        for (method, body) in
            [("GET", Value::Null), ("POST", json!({ "value": "sk-of-bob" })), ("DELETE", Value::Null)]
        {
            assert_eq!(bob.ask(method, &path, body).await.status, 404, "{method} {path}");
        }
    }
    assert_eq!(bob.ask("GET", "/secrets", Value::Null).await.body, json!([]));
    let path = format!("/secrets/{id}");
    let again = ann.ask("POST", &path, json!({ "value": "sk-other-value", "metadata": { "a": "b" } })).await;
    assert_eq!((again.status, &again.body["currentVersion"]), (200, &json!(2)), "{again:?}");
    let kept = ann.ask("POST", &path, json!({ "value": VALUE })).await;
    assert_eq!((&kept.body["currentVersion"], &kept.body["metadata"]), (&json!(3), &json!({ "a": "b" })));
    for name in ["second", "third"] {
        assert_eq!(ann.ask("POST", "/secrets", json!({ "name": name, "value": VALUE })).await.status, 201);
    }
    let full = ann.ask("POST", "/secrets", json!({ "name": "fourth", "value": VALUE })).await;
    assert_eq!((full.status, error_code(&full)), (429, "secret_limit_reached"), "{full:?}");
    // A page each, until there is no next.
    let (mut token, mut names) = (String::new(), Vec::new());
    for page in 0..3 {
        let listed = ann.ask("GET", &format!("/secrets?limit=1{token}"), Value::Null).await;
        assert!(listed.status == 200 && listed.body.as_array().unwrap().len() == 1, "{listed:?}");
        names.push(listed.body[0]["name"].as_str().unwrap().to_owned());
        let next = listed.header("x-next-token");
        assert_eq!(next.is_empty(), page == 2, "{listed:?}");
        token = format!("&nextToken={next}");
    }
    names.sort();
    assert_eq!(names, ["api key/ü", "second", "third"]);
    assert_eq!(ann.ask("GET", "/secrets", Value::Null).await.body.as_array().unwrap().len(), 3);
    assert_eq!(ann.ask("DELETE", "/secrets/SECOND", Value::Null).await.status, 204);
    assert_eq!(ann.ask("DELETE", "/secrets/second", Value::Null).await.status, 404);
    assert_eq!(ann.ask("GET", "/secrets/second", Value::Null).await.status, 404);
    assert_eq!(ann.ask("PUT", "/secrets/third", Value::Null).await.status, 405);
    assert_eq!(ann.ask("GET", "/secrets/third/value", Value::Null).await.status, 404);
    assert_eq!(ann.raw("GET", "/secrets", &[], b"").await.status, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_secret_is_refused_and_not_repeated() {
    let Some(daemon) = Daemon::written("e2b::what_is_no_secret", ON).await else { return };
    let client = Client::of(&daemon, "ann");
    let notes = |count: usize, key: usize, value: usize| -> Value {
        (0..count).map(|at| (format!("{at:0>key$}"), json!("x".repeat(value)))).collect()
    };
    for (body, words) in [
        (json!({ "name": "", "value": VALUE }), "name of a secret"),
        (json!({ "name": "sec_mine", "value": VALUE }), "name of a secret"),
        (json!({ "name": "SEC_mine", "value": VALUE }), "name of a secret"),
        (json!({ "name": "a}", "value": VALUE }), "name of a secret"),
        (json!({ "name": "a\n", "value": VALUE }), "name of a secret"),
        (json!({ "name": "x".repeat(129), "value": VALUE }), "name of a secret"),
        (json!({ "name": "a", "value": "sk-real" }), "8 to 8192"),
        (json!({ "name": "a", "value": "sk-real-".repeat(1_025) }), "8 to 8192"),
        (json!({ "name": "a", "value": "sk-real\r\nX-B: c" }), "printable"),
        (json!({ "name": "a" }), "line 1"),
        (json!({ "name": "a", "value": [VALUE] }), "line 1"),
        (json!({ "name": "a", "value": VALUE, "metadata": VALUE }), "line 1"),
        (json!(VALUE), "line 1"),
        (json!({ "name": "a", "value": VALUE, "metadata": notes(33, 2, 1) }), "metadata"),
        (json!({ "name": "a", "value": VALUE, "metadata": notes(1, 129, 1) }), "metadata"),
        (json!({ "name": "a", "value": VALUE, "metadata": notes(1, 1, 1_025) }), "metadata"),
        (json!({ "name": "a", "value": VALUE, "metadata": notes(9, 1, 1_000) }), "metadata"),
    ] {
        let heard = client.ask("POST", "/secrets", body.clone()).await;
        assert!(heard.status == 400 && heard.message().contains(words), "{body}: {heard:?}");
        assert!(!heard.message().contains("sk-real"), "{heard:?}");
    }
    // The largest of everything.
    let body =
        json!({ "name": "x".repeat(128), "value": "v".repeat(8_192), "metadata": notes(8, 24, 1_000) });
    assert_eq!(client.ask("POST", "/secrets", body.clone()).await.status, 201);
    let taken = client.ask("POST", "/secrets", json!({ "name": "X".repeat(128), "value": VALUE })).await;
    assert_eq!(taken.status, 409, "{taken:?}");
    let path = format!("/secrets/{}", "x".repeat(128));
    assert_eq!(client.ask("POST", &path, json!({ "value": "short" })).await.status, 400);
    assert_eq!(client.ask("GET", &path, Value::Null).await.body["currentVersion"], json!(1));
    for query in ["limit=0", "limit=101", "nextToken=%25"] {
        assert_eq!(client.ask("GET", &format!("/secrets?{query}"), Value::Null).await.status, 400, "{query}");
    }
    let rules = |value: &str| {
        json!({ "templateID": "base", "network": { "allowOut": ["a.test"],
            "rules": { "a.test": [{ "transform": { "headers": { "X-Key": value } } }] } } })
    };
    for (value, words) in [
        ("${e2b.secrets.nobodys}", "secret \"nobodys\" not found"),
        ("key ${e2b.secrets.nobodys}", "whole value"),
        ("${e2b.identity.tokens.aws}", "filled in"),
    ] {
        let heard = client.ask("POST", "/v2/sandboxes", rules(value)).await;
        assert_eq!((heard.status, error_code(&heard)), (400, "sandbox_create_refused"), "{heard:?}");
        assert!(heard.message().contains(words), "{heard:?}");
    }
}
