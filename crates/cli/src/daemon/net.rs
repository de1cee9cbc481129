//! `blastbox net`: what boxes do with their network, and what they may reach.

use blastbox_policy::{NetworkRules, parse};
use blastbox_server::ask::RuleChanges;
use blastbox_wire::BoxId;
use clap::{Args, Subcommand};
use hyper::Method;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Where;
use super::events::{Stream, tell};
use super::table::moment;
use crate::output::{self, plain};
use crate::problem::Problem;
use crate::reach::{Answer, Method as Asked, Url, Wanted, would_allow};

pub(crate) const HELP: &str = "Examples:\n  blastbox net                       what is still remembered, of all boxes\n  \
blastbox net BOX --follow          every connection and question of a box, as it happens\n  \
blastbox net allow BOX HOST:PORT   from now on the box may reach it\n  \
blastbox net deny BOX HOST         from now on it may not; open connections are cut\n  \
blastbox net would-allow BOX URL   whether it may, by which rule\n\n\
Rules change from outside only. New connections are held against them; the ledger has a record of every change.";

#[derive(Debug, Args)]
pub(crate) struct NetArgs {
    #[command(subcommand)]
    verb: Option<NetVerb>,
    /// Of this box only
    #[arg(value_name = "BOX")]
    id: Option<BoxId>,
    /// Go on with what happens from now on, also across a broken connection
    #[arg(long, short)]
    follow: bool,
    /// Of every tenant, not only of this socket's own boxes
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    place: Where,
    /// Print JSON, one document per line
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum NetVerb {
    /// Let a box reach more: HTTPS carried unread, or raw TCP on another port than 443
    #[command(after_help = "Example:\n  blastbox net allow BOX api.github.com db.example.com:5432")]
    Allow(ChangeArgs),
    /// Remove rules; open connections that nothing allows any more are cut
    #[command(after_help = "Example:\n  blastbox net deny BOX api.github.com")]
    Deny(ChangeArgs),
    /// Print the policy of a box as it is now
    #[command(after_help = "Example:\n  blastbox net rules BOX")]
    Rules(RulesArgs),
    /// Whether a box may reach a URL now, by which rule
    #[command(
        after_help = "Example:\n  blastbox net would-allow BOX https://api.github.com/user --method POST\n\nExit codes: 0 allowed, 1 denied."
    )]
    WouldAllow(WouldAllowArgs),
}

#[derive(Debug, Args)]
struct ChangeArgs {
    /// The box
    #[arg(value_name = "BOX")]
    id: BoxId,
    /// What
    #[arg(value_name = "HOST[:PORT]", required = true)]
    hosts: Vec<String>,
    #[command(flatten)]
    place: Where,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct RulesArgs {
    /// The box
    #[arg(value_name = "BOX")]
    id: BoxId,
    #[command(flatten)]
    place: Where,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
struct WouldAllowArgs {
    /// The box
    #[arg(value_name = "BOX")]
    id: BoxId,
    /// Where to
    #[arg(value_name = "URL")]
    url: String,
    /// The method of the request (default: GET), where requests are read
    #[arg(long, value_name = "METHOD")]
    method: Option<Asked>,
    #[command(flatten)]
    place: Where,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// The rules of a box, as the daemon tells them.
#[derive(Debug, Serialize, Deserialize)]
struct BoxRules {
    policy: String,
    text: String,
}

impl BoxRules {
    fn network(&self) -> Result<NetworkRules, Problem> {
        Ok(parse(&self.text)?.network_rules().clone())
    }
}

pub(crate) async fn net(args: NetArgs) -> Result<u8, Problem> {
    match &args.verb {
        Some(NetVerb::Allow(change)) => {
            let asked = RuleChanges { allow: change.hosts.clone(), deny: Vec::new() };
            changed(change, &asked).await
        }
        Some(NetVerb::Deny(change)) => {
            let asked = RuleChanges { allow: Vec::new(), deny: change.hosts.clone() };
            changed(change, &asked).await
        }
        Some(NetVerb::Rules(args)) => {
            let rules: BoxRules = args.place.client()?.get(&path(&args.id)).await?;
            if args.json {
                output::print_json(&rules)?;
            } else {
                output::print(&rules.text)?;
            }
            Ok(0)
        }
        Some(NetVerb::WouldAllow(args)) => {
            let url: Url = args.url.parse().map_err(Problem::BadUrl)?;
            let rules: BoxRules = args.place.client()?.get(&path(&args.id)).await?;
            would_allow(&rules.network()?, &Wanted::new(url, args.method.clone())).tell(args.json)
        }
        None => follow(&args).await,
    }
}

fn path(id: &BoxId) -> String {
    format!("/v1/boxes/{}/network", id.as_str())
}

async fn changed(args: &ChangeArgs, asked: &RuleChanges) -> Result<u8, Problem> {
    let rules: BoxRules = args.place.client()?.ask(Method::POST, &path(&args.id), Some(asked)).await?;
    if args.json {
        output::print_json(&rules)?;
        return Ok(0);
    }
    let network = rules.network()?;
    let mut said = format!("{} {}\n", plain(args.id.as_str()), plain(&rules.policy));
    for host in &args.hosts {
        said.push_str(&format!("{}: {}\n", plain(host), plain(&standing(&network, host))));
    }
    output::print(&said)?;
    Ok(0)
}

/// Whether it may be reached now, in words. A wildcard stands for itself: no URL could.
fn standing(rules: &NetworkRules, host: &str) -> String {
    let named = |host: &str| rules.allow.iter().any(|rule| rule.host().to_string() == host);
    let url = match host.rsplit_once(':') {
        Some((name, port)) if port != "443" && !name.is_empty() => format!("tcp://{host}"),
        _ => format!("https://{host}/"),
    };
    match url.parse::<Url>().map(|url| would_allow(rules, &Wanted::new(url, None))) {
        Ok(Answer::Allowed(by)) => format!("allowed: {by}"),
        Ok(Answer::Denied(why)) => format!("denied: {}", why.lines().next().unwrap_or_default()),
        Err(_) if named(host) => "allowed".to_owned(),
        Err(_) => "no rule names it".to_owned(),
    }
}

async fn follow(args: &NetArgs) -> Result<u8, Problem> {
    let of = args.id.as_ref().map(|id| format!("&box={}", id.as_str())).unwrap_or_default();
    let path = format!("/v1/network?follow={}&all={}{of}", args.follow, args.all);
    let head = Some(row(["TIME", "BOX", "VERDICT", "WHAT", "TARGET", "MORE"]));
    tell(&args.place.client()?, &Stream { path, follow: args.follow, json: args.json, head }, line).await
}

/// Columns of a fixed width: nobody knows what comes next.
fn row(cells: [&str; 6]) -> String {
    let [time, id, verdict, what, target, more] = cells;
    format!("{time:<20}  {id:<23}  {verdict:<7}  {what:<8}  {target:<32}  {more}").trim_end().to_owned()
}

/// One event for people.
fn line(name: &str, data: &Value) -> String {
    if name == "missed" {
        return format!("… {} events were missed", data.get("events").unwrap_or(&Value::Null));
    }
    let text = |key: &str| data.get(key).and_then(Value::as_str).map(plain).unwrap_or_default();
    let number = |key: &str| data.get(key).and_then(Value::as_u64).unwrap_or(0);
    let list = |key: &str| {
        let words = data.get(key).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
        words.map(plain).collect::<Vec<_>>().join(" ")
    };
    let times = |more: String| match number("count") {
        0 | 1 => more,
        count => format!("{more} ({count}×)"),
    };
    let place = format!("{}:{}", text("target"), number("port"));
    let carried = format!("{} B out, {} B in, {} ms", number("sent"), number("received"), number("millis"));
    // Packets are the usual way.
    let by_door = behind(" via ", Some(text("door")).filter(|door| door != "link"));
    let (verdict, what, target, more) = match text("event").as_str() {
        "name_asked" => ("allowed", "dns", text("target"), times(kind(number("kind_asked")))),
        "network_denied" if data.get("kind_asked").is_some() => {
            let more = format!("{} {}", kind(number("kind_asked")), text("reason"));
            ("denied", "dns", text("target"), times(more))
        }
        "network_denied" => {
            let found = behind(" at ", Some(text("address")).filter(|address| *address != text("target")));
            let of = match number("flow") {
                0 if number("millis") == 0 => String::new(),
                0 => format!(", {carried}"),
                flow => format!(", {carried} #{flow}"),
            };
            ("denied", "connect", place, format!("{}{found}{by_door}{of}", times(text("reason"))))
        }
        "network_opened" => (
            "allowed",
            "connect",
            place,
            format!("{} by \"{}\"{by_door} #{}", text("address"), text("rule"), number("flow")),
        ),
        "network_closed" => {
            let why = behind(" ", Some(text("reason")));
            ("-", "closed", place, format!("{carried}{why} #{}", number("flow")))
        }
        "secret_lent" => ("allowed", "secret", place, format!("{}: {}", text("secret"), text("request"))),
        "rules_changed" => {
            let more = format!("allow [{}] deny [{}] {}", list("allowed"), list("denied"), text("policy"));
            ("-", "rules", String::new(), more)
        }
        "network_untold" => ("-", "untold", String::new(), format!("{} records", number("count"))),
        other => ("-", "", other.to_owned(), String::new()),
    };
    row([&moment(&text("at")), &text("box_id"), verdict, what, &target, &more])
}

/// A word with something before it, where there is one.
fn behind(before: &str, word: Option<String>) -> String {
    word.filter(|word| !word.is_empty()).map(|word| format!("{before}{word}")).unwrap_or_default()
}

/// The usual types of questions by name.
fn kind(number: u64) -> String {
    match number {
        1 => "A".to_owned(),
        16 => "TXT".to_owned(),
        12 => "PTR".to_owned(),
        28 => "AAAA".to_owned(),
        65 => "HTTPS".to_owned(),
        other => format!("type {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_whatever_is_in_it() {
        let data = serde_json::json!({
            "seq": 1, "at": "2026-01-31T12:00:00.123Z", "tenant": "local", "box_id": "bx_00000000000000000000",
            "event": "network_denied", "target": "evil\n\u{1b}[2J.test", "port": 53, "kind_asked": 28,
            "reason": "bad-name", "count": 3,
        });
        let line = line("event", &data);
        assert!(line.contains("denied") && line.contains("dns"), "{line}");
        assert!(line.ends_with("AAAA bad-name (3×)"), "{line}");
        assert!(!line.contains(['\n', '\u{1b}']), "{line}");
    }

    #[test]
    fn a_denial_says_as_much_as_a_connection() {
        let said = |flow: u64, door: &str, millis: u64| {
            let data = serde_json::json!({
                "event": "network_denied", "flow": flow, "door": door, "target": "a.test", "port": 443,
                "address": "10.0.0.1", "reason": "forbidden-address", "count": 1, "sent": 517, "received": 0,
                "millis": millis,
            });
            let line = line("event", &data);
            line.split_once("a.test:443").unwrap().1.trim_start().to_owned()
        };
        assert_eq!(said(7, "link", 3), "forbidden-address at 10.0.0.1, 517 B out, 0 B in, 3 ms #7");
        assert_eq!(said(0, "socks", 0), "forbidden-address at 10.0.0.1 via socks");
    }

    #[test]
    fn what_a_change_means_is_said_in_the_words_of_would_allow() {
        let rules = parse(
            "[network]\nmode = \"allow\"\nallow = [{ host = \"a.example.com\" }, { host = \"*.example.org\" }]",
        );
        let rules = rules.unwrap().network_rules().clone();
        assert!(standing(&rules, "a.example.com").starts_with("allowed: rule 1 "));
        assert!(
            standing(&rules, "a.example.com:5432")
                .starts_with("denied: rules name a.example.com, but not port")
        );
        assert_eq!(standing(&rules, "*.example.org"), "allowed");
        assert_eq!(standing(&rules, "*.example.net"), "no rule names it");
    }
}
