//! What is sent, as those hear it who get it: a real listener on a loopback port.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use blastbox_engine::ledger::{Entry, Sink, SinkError};
use blastbox_wire::event::Hash;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::target::SendError;
use super::*;
use crate::testing::Scratch;

/// Answers every request with the next of these, the last one for ever, and keeps what it heard.
async fn listener(answers: Vec<&'static str>) -> (SocketAddr, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (address, heard) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Vec::new())));
    let to = Arc::clone(&heard);
    tokio::spawn(async move {
        let mut answers = answers.into_iter().peekable();
        loop {
            let (mut line, _) = listener.accept().await.unwrap();
            let asked = request(&mut line).await.unwrap();
            to.lock().unwrap().push(asked);
            let answer = *answers.peek().unwrap();
            if answers.len() > 1 {
                answers.next();
            }
            line.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    (address, heard)
}

/// One request, head and body.
async fn request(line: &mut tokio::net::TcpStream) -> io::Result<String> {
    let mut bytes = Vec::new();
    loop {
        let mut room = [0; 4096];
        let count = line.read(&mut room).await?;
        bytes.extend_from_slice(&room[..count]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        if count == 0 || length.is_some_and(|length| length.parse() == Ok(body.len())) {
            return Ok(text);
        }
    }
}

const YES: &str = "HTTP/1.1 200 OK\r\ncontent-length: 11\r\n\r\n{\"acked\":4}";

fn entry(seq: u64) -> Entry {
    Entry { seq, prev: Hash::NOTHING, hash: Hash::NOTHING, line: format!("{{\"seq\":{seq}}}").into_bytes() }
}

#[test]
fn only_an_address_is_one() {
    for good in ["http://127.0.0.1:9/x?y=1", "http://siem.example", "http://[::1]:80/"] {
        assert!(Target::parse(good, None).is_ok(), "{good}");
    }
    for bad in ["", "siem", "ftp://a/", "http://", "http://user:secret@host/", "/path", "http://a b/"] {
        assert!(Target::parse(bad, None).is_err(), "{bad}");
    }
    let shown = format!("{:?}", Target::parse("http://host/path?token=secret", None).unwrap());
    assert_eq!(shown, "Target(host:80)");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sink_has_what_it_acknowledges_and_a_mere_yes_is_none() {
    let empty = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
    let no = "HTTP/1.1 503 No\r\ncontent-length: 11\r\n\r\n{\"acked\":4}";
    let liar = "HTTP/1.1 200 OK\r\ncontent-length: 12\r\n\r\n{\"acked\":99}";
    let (address, heard) = listener(vec![YES, empty, no, liar]).await;
    let scratch = Scratch::new("sink");
    std::fs::write(scratch.path().join("token"), "very-secret\n").unwrap();
    let target = Target::parse(&format!("http://{address}/in"), None).unwrap();
    let target = target.with_token(&scratch.path().join("token")).unwrap();
    assert!(!format!("{target:?}").contains("secret"));
    let mut sink = HttpSink::new("siem".to_owned(), target);
    let outcomes = tokio::task::spawn_blocking(move || {
        let mut once = || sink.deliver(&[entry(3), entry(4)]);
        [once(), once(), once(), once()]
    });
    let [good, bare, refused, lied] = outcomes.await.unwrap();
    assert_eq!(good.unwrap(), 4);
    assert!(
        matches!(bare, Err(SinkError::Unreachable(_))) && matches!(refused, Err(SinkError::Unreachable(_)))
    );
    assert!(matches!(lied, Err(SinkError::NoProgress)));
    let heard = heard.lock().unwrap();
    assert!(heard[0].starts_with("POST /in HTTP/1.1\r\n"), "{}", heard[0]);
    for part in ["x-blastbox-first-seq: 3", "x-blastbox-last-seq: 4", "authorization: Bearer very-secret\r\n"]
    {
        assert!(heard[0].contains(part), "{part} in {}", heard[0]);
    }
    assert!(heard[0].ends_with("\r\n\r\n{\"seq\":3}\n{\"seq\":4}\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_without_end_and_nobody_at_all_are_failures() {
    let long: &'static str =
        Box::leak(format!("HTTP/1.1 200 OK\r\n\r\n{}", "x".repeat(100_000)).into_boxed_str());
    let (address, _) = listener(vec![long]).await;
    let target = Target::parse(&format!("http://{address}/"), None).unwrap();
    assert!(matches!(target.post("text/plain", &[], b"x".to_vec()).await, Err(SendError::Answer)));
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let target = Target::parse(&format!("http://{free}/"), None).unwrap();
    assert!(matches!(target.post("text/plain", &[], b"x".to_vec()).await, Err(SendError::Connect(_))));
}

fn pem(der: &[u8]) -> String {
    use base64::Engine as _;
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn with_tls_only_who_proves_its_name_gets_anything() {
    let scratch = Scratch::new("tls");
    let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let ca = scratch.path().join("ca.pem");
    std::fs::write(&ca, pem(made.cert.der())).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (line, _) = listener.accept().await.unwrap();
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                // Whoever does not trust us breaks off.
                if let Ok(mut line) = acceptor.accept(line).await
                    && matches!(line.read(&mut [0; 4096]).await, Ok(1..))
                {
                    line.write_all(YES.as_bytes()).await.ok();
                    line.shutdown().await.ok();
                }
            });
        }
    });
    let post = async |url: String, ca: &std::path::Path| {
        Target::parse(&url, Some(ca)).unwrap().post("text/plain", &[], b"x".to_vec()).await
    };
    assert_eq!(post(format!("https://localhost:{port}/"), &ca).await.unwrap(), "{\"acked\":4}");
    // Another name, and another authority.
    assert!(matches!(post(format!("https://127.0.0.1:{port}/"), &ca).await, Err(SendError::Connect(_))));
    let other = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let foreign = scratch.path().join("other.pem");
    std::fs::write(&foreign, pem(other.cert.der())).unwrap();
    assert!(matches!(post(format!("https://localhost:{port}/"), &foreign).await, Err(SendError::Connect(_))));
    std::fs::write(&foreign, "no certificate").unwrap();
    assert!(matches!(
        Target::parse("https://localhost/", Some(&foreign)),
        Err(BadTarget::NoCertificate { .. })
    ));
}

#[test]
fn numbers_are_told_as_opentelemetry_has_them() {
    let page = "# HELP a_total How often.\n# TYPE a_total counter\na_total{code=\"x\"} 3\n\
        # HELP b Now.\n# TYPE b gauge\nb 7\n\
        # HELP c_seconds How long.\n# TYPE c_seconds histogram\nc_seconds_bucket{le=\"0.5\"} 1\n\
        c_seconds_bucket{le=\"1\"} 3\nc_seconds_bucket{le=\"+Inf\"} 4\nc_seconds_sum 2.5\nc_seconds_count 4\n\
        # HELP d Now.\n# TYPE d gauge\nd{tier=\"jail\",state=\"ready\"} 5\n\
        # HELP e_seconds How long.\n# TYPE e_seconds histogram\ne_seconds_bucket{phase=\"queue\",le=\"1\"} 1\n\
        e_seconds_bucket{phase=\"queue\",le=\"+Inf\"} 1\ne_seconds_sum{phase=\"queue\"} 0.5\n\
        e_seconds_count{phase=\"queue\"} 1\ne_seconds_bucket{phase=\"exec\",le=\"1\"} 0\n\
        e_seconds_bucket{phase=\"exec\",le=\"+Inf\"} 2\ne_seconds_sum{phase=\"exec\"} 9\ne_seconds_count{phase=\"exec\"} 2\n";
    let begun = SystemTime::UNIX_EPOCH + Duration::from_secs(1);
    let paper = otlp::paper(page, begun, begun + Duration::from_secs(1));
    let metrics = &paper["resourceMetrics"][0]["scopeMetrics"][0]["metrics"];
    assert_eq!(metrics.as_array().unwrap().len(), 5);
    let sum = &metrics[0]["sum"];
    assert_eq!((&sum["isMonotonic"], &sum["dataPoints"][0]["asInt"]), (&true.into(), &"3".into()));
    assert_eq!(sum["dataPoints"][0]["attributes"][0]["value"]["stringValue"], "x");
    assert_eq!(metrics[1]["gauge"]["dataPoints"][0]["asInt"], "7");
    let histogram = &metrics[2]["histogram"]["dataPoints"][0];
    assert_eq!(histogram["bucketCounts"], serde_json::json!(["1", "2", "1"]));
    assert_eq!(histogram["explicitBounds"], serde_json::json!([0.5, 1.0]));
    assert_eq!((&histogram["count"], &histogram["sum"]), (&"4".into(), &2.5.into()));
    assert_eq!(histogram["timeUnixNano"], "2000000000");
    let both = metrics[3]["gauge"]["dataPoints"][0]["attributes"].as_array().unwrap();
    assert_eq!((&both[0]["key"], &both[1]["value"]["stringValue"]), (&"tier".into(), &"ready".into()));
    let phases = metrics[4]["histogram"]["dataPoints"].as_array().unwrap();
    assert_eq!(phases.len(), 2);
    assert_eq!(phases[0]["attributes"][0]["value"]["stringValue"], "queue");
    assert_eq!(
        (&phases[1]["bucketCounts"], &phases[1]["sum"]),
        (&serde_json::json!(["0", "2"]), &9.0.into())
    );
}
