//! Files, variables and programs.

use blastbox_engine::leases::{Broker, MintError, Sources};

use crate::rig::{Room, bind, box_id, deaf};

async fn mint(text: &str) -> Result<Vec<u8>, MintError> {
    let broker = Broker::new(Sources::parse(text).unwrap(), None);
    let lent = broker.mint(&box_id(), &[bind("s", "api.example.com")], &deaf()).await?;
    Ok(lent[0].value.expose_to_gateway().to_vec())
}

fn entry(source: &str) -> String {
    format!("[secrets.s]\nhosts = [\"api.example.com\"]\n{source}\n")
}

#[tokio::test]
async fn a_secret_is_read_from_a_file_that_others_cannot_read() {
    let room = Room::new();
    let path = room.file("token", "file-secret-value\n", 0o600);
    let text = entry(&format!("file = {path:?}"));
    assert_eq!(mint(&text).await.unwrap(), b"file-secret-value\n");
    room.file("token", "file-secret-value\n", 0o604);
    let error = mint(&text).await.unwrap_err();
    assert!(matches!(error, MintError::Exposed { .. }) && error.to_string().contains("chmod"), "{error}");
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(mint(&text).await, Err(MintError::File { .. })));
    room.file("token", "", 0o600);
    assert!(matches!(mint(&text).await, Err(MintError::Size(_))));
    room.file("token", &"x".repeat(9000), 0o600);
    assert!(matches!(mint(&text).await, Err(MintError::Size(_))));
}

#[tokio::test]
async fn a_secret_is_read_from_a_variable_of_the_daemon() {
    // PATH is there in every test.
    let path = std::env::var("PATH").unwrap();
    assert_eq!(mint(&entry("env = \"PATH\"")).await.unwrap(), path.as_bytes());
    let error = mint(&entry("env = \"BLASTBOX_TEST_NO_SUCH_VARIABLE\"")).await.unwrap_err();
    assert_eq!(error.to_string(), "secret s: the daemon has no variable BLASTBOX_TEST_NO_SUCH_VARIABLE");
}

#[tokio::test]
async fn a_secret_is_what_a_program_prints() {
    let text = entry(r#"command = ["/bin/echo", "printed $HOME; `id`"]"#);
    assert_eq!(mint(&text).await.unwrap(), b"printed $HOME; `id`\n", "no shell reads it");
    let json = entry(r#"command = ["/bin/echo", '{"secret": "in-json-value", "ttl": 60}']"#);
    let broker = Broker::new(Sources::parse(&json).unwrap(), None);
    let lent = broker.mint(&box_id(), &[bind("s", "api.example.com")], &deaf()).await.unwrap();
    assert_eq!(lent[0].value.expose_to_gateway(), b"in-json-value");
    assert_eq!(lent[0].ttl, Some(std::time::Duration::from_secs(60)));
}

#[tokio::test]
async fn a_program_that_fails_gives_nothing_and_its_words_stay_unseen() {
    let error =
        mint(&entry(r#"command = ["/bin/sh", "-c", "echo leaked-secret; echo leaked-too >&2; exit 3"]"#))
            .await;
    let text = format!("{:?} {}", error.as_ref().unwrap_err(), error.as_ref().unwrap_err());
    assert!(text.contains("exit status: 3") && !text.contains("leaked"), "{text}");
    assert!(matches!(mint(&entry(r#"command = ["/no/such/program"]"#)).await, Err(MintError::Start { .. })));
    assert!(matches!(
        mint(&entry(r#"command = ["/bin/echo", "{\"other\": 1}"]"#)).await,
        Err(MintError::Answer { .. })
    ));
    let endless =
        mint(&entry(r#"command = ["/bin/sh", "-c", "while :; do echo xxxxxxxxxxxxxxxxxxxxxxxxxxx; done"]"#))
            .await;
    assert!(matches!(endless, Err(MintError::Size(_))));
}

#[tokio::test]
async fn a_policy_cannot_send_a_secret_where_the_operator_does_not_let_it_go() {
    let broker = Broker::new(Sources::parse(&entry("env = \"PATH\"")).unwrap(), None);
    for host in ["evil.test", "api.example.com.evil.test", "example.com", "x.api.example.com"] {
        let error = broker.permit(&[bind("s", host)]).unwrap_err();
        assert!(matches!(error, MintError::HostNotPermitted { .. }), "{host}: {error}");
    }
    assert!(matches!(broker.permit(&[bind("other", "api.example.com")]), Err(MintError::Unknown(_))));
    assert!(broker.permit(&[bind("s", "api.example.com")]).is_ok());
}

#[test]
fn a_file_of_sources_that_means_nothing_is_refused_with_what_to_write() {
    for (text, words) in [
        ("[secrets.s]\nenv = \"X\"\n", "name each host"),
        ("[secrets.s]\nhosts = [\"*.example.com\"]\nenv = \"X\"\n", "name each host"),
        ("[secrets.s]\nhosts = [\"a.test\"]\n", "exactly one of"),
        ("[secrets.s]\nhosts = [\"a.test\"]\nenv = \"X\"\nfile = \"/x\"\n", "exactly one of"),
        ("[secrets.s]\nhosts = [\"a.test\"]\ncommand = [\"mint\"]\n", "absolute path"),
        ("[secrets.s]\nhosts = [\"a.test\"]\ncommand = []\n", "absolute path"),
        ("[secrets.S]\nhosts = [\"a.test\"]\nenv = \"X\"\n", "not a name"),
        ("[secrets.s]\nhosts = [\"a.test\"]\nvalue = \"x\"\n", "unknown field"),
        (
            "[secrets.s]\nhosts = [\"a.test\"]\nvault = { path = \"a\", field = \"b\" }\n",
            "no [vault] section",
        ),
        ("[vault]\naddress = \"ftp://x\"\ntoken_file = \"/x\"\n", "vault.address"),
        (
            "[vault]\naddress = \"http://127.0.0.1:1\"\ntoken_file = \"/x\"\n[secrets.s]\nhosts = [\"a.test\"]\nvault = { path = \"a/../sys\", field = \"b\" }\n",
            "vault.path",
        ),
    ] {
        let error = Sources::parse(text).unwrap_err().to_string();
        assert!(error.contains(words), "{text}: {error}");
    }
    let room = Room::new();
    let path = room.file("secrets.toml", "", 0o666);
    assert!(Sources::load(&path).unwrap_err().to_string().contains("chmod"));
    assert!(Sources::load(&room.0.join("none")).is_err());
}
