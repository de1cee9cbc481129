//! A question from the box and an answer from a resolver: neither can make us panic, and no name is given out that no rule allows.
#![no_main]

use blastbox_egress::dns::names::Names;
use blastbox_egress::dns::upstream::{self, Kind};
use blastbox_egress::dns::{self, Asked};
use blastbox_policy::{NetworkRules, parse};
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

static RULES: LazyLock<NetworkRules> = LazyLock::new(|| {
    let text =
        "[network]\nmode = \"allow\"\nallow = [{ host = \"a.example.com\" }, { host = \"*.example.org\" }]";
    parse(text).expect("a policy").network_rules().clone()
});

fuzz_target!(|bytes: &[u8]| {
    let name = "a.example.com".parse().expect("a name");
    upstream::answer(bytes, 0x6161, &name, Kind::A).ok();
    if let Asked::Question(question) = dns::read(bytes) {
        let reply = question.answer(&RULES, &mut Names::default(), 4);
        assert!(reply.bytes.len() <= bytes.len() + 300, "an answer is no larger than its question needs");
        let allowed =
            reply.name.trim_end_matches('.') == "a.example.com" || reply.name.ends_with(".example.org");
        assert!(reply.denied.is_some() || allowed, "{}", reply.name);
    }
});
