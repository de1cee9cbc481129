//! What a gateway still has in memory of a secret when the requests that had it are over: what it had before them, and nothing of theirs.
//! The memory of the process is read as root reads it, or as somebody who has got into the gateway.

use blastbox_tests::internet::{Internet, PUBLIC, Visitor};
use blastbox_tests::{Caller, both_ways, remembered, text, wait_until};
use serde_json::json;

use super::watched::{Watched, private_file};

both_ways!(a_gateway_has_no_more_of_a_secret_after_requests_than_before_them);

const TOKEN: &str = "a-token-that-nothing-else-is-called-0123456789";
const HOSTS: [&str; 2] = ["bearer.example.com", "basic.example.com"];
/// Only in the answers: what a server said is not kept either.
const ANSWER: &str = "an-answer-that-nothing-else-is-called-9876543210";

fn serve(visitor: &mut Visitor<'_>) {
    while let Some(head) = visitor.head() {
        let Some(_) = visitor.body(&head) else { return };
        let length = ANSWER.len();
        visitor.say(format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{ANSWER}").as_bytes());
    }
}

fn a_gateway_has_no_more_of_a_secret_after_requests_than_before_them(caller: &Caller) {
    let Some(internet) = Internet::build(caller) else { return };
    for name in HOSTS {
        internet.name(name, &[&[PUBLIC]]);
    }
    if !internet.secure_server(caller, &HOSTS, serve) {
        return;
    }
    let secret = private_file(caller, "token", TOKEN);
    let sources = format!("[secrets.token]\nhosts = {HOSTS:?}\nfile = {secret:?}\n");
    let sources = private_file(caller, "secrets.toml", &sources);
    let policy = "[network]\nmode = \"allow\"\nallow = [{ host = \"bearer.example.com\", tls = \"inspect\" }, \
                  { host = \"basic.example.com\", tls = \"inspect\" }]\n[credentials]\nmode = \"brokered\"\n\
                  bind = [{ secret = \"token\", host = \"bearer.example.com\", as = \"bearer\" }, \
                  { secret = \"token\", host = \"basic.example.com\", as = \"basic\", user = \"me\" }]\n";
    let code = format!(
        "tell('ready')\nwait()\n\
         heard = [get(host)[1] == b'{ANSWER}' for _ in range(20) for host in {HOSTS:?}]\n\
         tell(all(heard), len(heard))\nwait()\n"
    );
    let mut watched = Watched::start(&internet, caller, policy, &["--secrets", text(&sources)], &code);
    assert_eq!(watched.says(caller), json!(["ready"]));
    let gateway = watched.gateway_pid();
    let Some(before) = remembered(gateway, TOKEN) else {
        return caller.skip("the memory of another user's process is not for this one to read");
    };
    assert!(before > 0, "it has the secret, which is lent from there");
    watched.go_on();
    assert_eq!(watched.says(caller), json!([true, 2 * 20]));
    let left = || (remembered(gateway, TOKEN).unwrap(), remembered(gateway, ANSWER).unwrap());
    // Its ends of the connections go a moment later than the box's.
    assert!(wait_until(|| left().0 <= before && left().1 == 0), "{before} before, then {:?}", left());
    watched.go_on();
    watched.end();
    assert_eq!(internet.requests().iter().filter(|head| head.contains(TOKEN)).count(), 20);
}
