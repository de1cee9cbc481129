//! What the configuration says and what it refuses.

use blastbox_engine::keeper::Quota;

use super::*;

#[test]
fn nothing_is_what_this_host_can_give() {
    assert_eq!(Config::parse("").unwrap().keeper.pool, KeeperConfig::default().pool);
}

#[test]
fn what_is_written_is_taken_and_the_rest_follows_the_host() {
    let text = "
        [host]\nboxes = 50\nmemory = \"2GiB\"\ncpus = \"4\"\npatience = \"3s\"
        [default_quota]\nboxes = 5
        [quotas.team-7]\nmemory = \"512MiB\"
        [pool]\nmin = 1\nmax = 2\nttl = \"30s\"
        [images]\ntools = \"/srv/tools\"
        [workspaces]\nteam-7 = [\"/srv/team-7\"]
        [doors]\nconnections = 90\ntenant_connections = 9\norigins = [\"https://console.example:8443\"]
    ";
    let Config { keeper, images, roots, patience, origins, .. } = Config::parse(text).unwrap();
    assert_eq!((keeper.host.boxes, keeper.host.memory, keeper.host.millicpus), (50, 2 << 30, 4_000));
    assert_eq!(keeper.tenant_default, Quota { boxes: 5, memory: 2 << 30, millicpus: 4_000 });
    let team = keeper.quotas[&"team-7".parse().unwrap()];
    assert_eq!(team, Quota { boxes: 5, memory: 512 << 20, millicpus: 4_000 });
    assert_eq!((keeper.pool.min, keeper.pool.max, keeper.pool.ttl.as_secs()), (1, 2, 30));
    assert_eq!((patience.connections, patience.per_tenant), (90, 9));
    assert_eq!(origins, ["https://console.example:8443"]);
    assert_eq!(images["tools"], PathBuf::from("/srv/tools"));
    assert_eq!(roots[&"team-7".parse().unwrap()], [PathBuf::from("/srv/team-7")]);
}

#[test]
fn what_is_kept_warm_has_its_own_least_or_that_of_the_pool() {
    let text = "
        [pool]\nmin = 2\nmax = 4
        [[pool.warm]]
        [[pool.warm]]\nmin = 4\nimage = \"tools\"\nthreat = \"high\"\nlimits = { memory = \"64MiB\", cpus = 1 }
        [[pool.warm]]\ntemplate = \"base\"\nmin = 1
    ";
    let least = |text: &str| {
        let warm = Config::parse(text).unwrap().warm;
        warm.into_iter().map(|(_, least)| least).collect::<Vec<_>>()
    };
    assert_eq!(least(text), [2, 4, 1]);
    assert_eq!(least("[[pool.warm]]\n"), [1]);
}

#[test]
fn orders_are_read_and_say_which_files_they_need() {
    let text = "
        [[sinks]]\nkind = \"http\"\nname = \"siem\"\nurl = \"https://siem.example/in\"\nrequire_ack = true
        [[sinks]]\nkind = \"file\"\nname = \"copy\"\npath = \"/mnt/copy.jsonl\"
        [[sinks]]\nkind = \"syslog\"
        [webhook]\nurl = \"http://127.0.0.1:9/\"\nsecret_file = \"/etc/secret\"\nleast = \"high\"
    ";
    let orders = Config::parse(text).unwrap().orders;
    assert_eq!(orders.written(), [std::path::Path::new("/mnt/copy.jsonl")]);
    assert_eq!(orders.read(), [std::path::Path::new("/etc/secret")]);
    assert!(orders.reach_out() && !Config::parse("").unwrap().orders.reach_out());
}

#[test]
fn two_sinks_of_one_name_or_one_file_are_refused_with_the_line_of_the_second() {
    let sink = |name: &str, path: &str| {
        format!("[[sinks]]\nkind = \"file\"\nname = \"{name}\"\npath = \"{path}\"\n")
    };
    let syslog = "[[sinks]]\nkind = \"syslog\"\n".to_owned();
    for (text, expected) in [
        (sink("a", "/1") + &sink("a", "/2"), "line 5: sinks.a: its name"),
        (sink("a", "/1") + &sink("b", "/1"), "line 5: sinks.b: its path"),
        (syslog.clone() + &sink("syslog", "/1"), "line 3: sinks.syslog: its name"),
        (syslog.clone() + &syslog, "line 3: sinks.syslog: its name"),
    ] {
        let shown = Config::parse(&text).unwrap_err().to_string();
        assert!(shown.starts_with(expected), "{shown}");
    }
    let apart = syslog + &sink("a", "/1") + &sink("b", "/2");
    assert_eq!(Config::parse(&apart).unwrap().orders.written().len(), 2);
}

#[test]
fn the_example_in_the_docs_is_a_configuration() {
    let docs = include_str!("../../../../docs/api.md");
    let example = docs.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let config = Config::parse(example).unwrap();
    assert_eq!((config.keeper.host.boxes, config.keeper.quotas.len(), config.images.len()), (200, 1, 1));
}

#[test]
fn sandboxes_reach_nothing_by_themselves_unless_the_operator_says_so() {
    assert_eq!(Config::parse("").unwrap().internet, Internet::Closed);
    let open =
        Config::parse("[e2b]\ninternet = \"dangerously-open\"\ndomain = \"sbx.localhost:7080\"\n").unwrap();
    assert_eq!(
        (open.internet, open.domain.as_deref()),
        (Internet::DangerouslyOpen, Some("sbx.localhost:7080"))
    );
}

#[test]
fn the_sdks_have_what_needs_no_word_of_the_operator_and_each_of_it_can_be_switched_off() {
    let usual = Config::parse("").unwrap();
    assert!(usual.builds.is_some() && usual.secrets.is_some());
    assert!(usual.volumes.is_none(), "nothing in the kernel holds their size");
    assert_eq!(usual.roots_of_boxes, Roots::InJails);
    for (text, builds, secrets, volumes) in [
        ("[e2b.builds]\nenabled = false\n", false, true, false),
        ("[e2b.secrets]\nenabled = false\n", true, false, false),
        ("[e2b.volumes]\n", true, true, true),
        ("[e2b.volumes]\nenabled = false\n", true, true, false),
        ("[e2b.builds]\nenabled = true\nallow = [\"pypi.org\"]\n", true, true, false),
    ] {
        let said = Config::parse(text).unwrap();
        let on = (said.builds.is_some(), said.secrets.is_some(), said.volumes.is_some());
        assert_eq!(on, (builds, secrets, volumes), "{text}");
    }
}

#[test]
fn steps_of_builds_have_a_root_where_sandboxes_have_one_unless_it_is_said() {
    let roots = |text: &str| {
        let config = Config::parse(text).unwrap();
        (config.roots_of_boxes, config.builds.unwrap().roots)
    };
    let (none, allowed) = ("[e2b]\nroot = \"none\"\n", "[e2b]\nroot = \"allowed\"\n");
    assert_eq!(roots(""), (Roots::InJails, Roots::InJails));
    assert_eq!(roots(none), (Roots::Nowhere, Roots::Nowhere));
    assert_eq!(roots(allowed), (Roots::Ordered, Roots::Ordered));
    let builds =
        |of_sandboxes: &str, root: &str| roots(&format!("{of_sandboxes}[e2b.builds]\nroot = \"{root}\"\n"));
    assert_eq!(builds(allowed, "none"), (Roots::Ordered, Roots::Nowhere));
    assert_eq!(builds(none, "allowed"), (Roots::Nowhere, Roots::Ordered));
    assert_eq!(builds("", "none"), (Roots::InJails, Roots::Nowhere));
}

#[test]
fn what_is_misspelt_is_refused_with_its_place() {
    let shown = Config::parse("[host]\nboxs = 5\n").unwrap_err().to_string();
    assert!(shown.starts_with("line 2, column 1: ") && shown.contains("boxs"), "{shown}");
    for bad in [
        "[hosts]\n",
        "[quotas.\"../x\"]\nboxes = 1\n",
        "[quotas.a]\nbox = 1\n",
        "[pool]\nmin = 9\nmax = 1\n",
        "[pool]\nttl = \"0s\"\n",
        "[pool]\nttl = \"4s\"\n[[pool.warm]]\n",
        "[[pool.warm]]\nkernel = \"python\"\n",
        "[[pool.warm]]\nimports = [\"pandas\"]\n",
        "[[pool.warm]]\ntemplate = \"base\"\nkernel = \"none\"\nimports = [\"pandas\"]\n",
        "[[pool.warm]]\ntemplate = \"base\"\nimports = [\"pandas; import os\"]\n",
        "[e2b.builds]\nallow = [\"10.0.0.1\"]\n",
        "[[pool.warm]]\nmin = 0\n",
        "[[pool.warm]]\nmin = 9\n",
        "[pool]\nmax = 0\n[[pool.warm]]\n",
        "[[pool.warm]]\nworkspace = \"/x\"\n",
        "[[pool.warm]]\ntemplate = \"base\"\nimage = \"host\"\n",
        "[images]\nhost = \"/x\"\n",
        "[images]\ntools = \"x\"\n",
        "[workspaces]\na = [\"/\"]\n",
        "[workspaces]\na = [\"srv\"]\n",
        "[workspaces]\na = [\"/srv/../etc\"]\n",
        "[workspaces]\n\"../x\" = [\"/srv\"]\n",
        "[host]\nmemory = 5\n",
        "[doors]\nconnections = 0\n",
        "[[sinks]]\nname = \"a\"\nkind = \"fax\"\n",
        "[[sinks]]\nkind = \"syslog\"\nrequire_ack = true\n",
        "[[sinks]]\nname = \"a\"\nkind = \"http\"\nurl = \"http://x/\"\nrequire_ak = true\n",
        "[webhook]\nurl = \"http://x/\"\n",
        "[otlp]\nevery = \"15s\"\n",
        "[doors]\norigins = [\"*\"]\n",
        "[doors]\norigins = [\"https://a/b\"]\n",
        "[e2b]\ninternet = \"open\"\n",
        "[e2b]\ndomain = \"http://x\"\n",
        "[e2b]\ndomain = \"a.b:x\"\n",
        "[e2b.https]\nlisten = \"127.0.0.1:7443\"\n",
        "[e2b]\ndomain = \"a.b\"\n[e2b.https]\nlisten = \"here\"\n",
        "[e2b]\ndomain = \"a.b\"\n[e2b.https]\nlisten = \"7443\"\nkey = \"/x\"\n",
        "boxes",
    ] {
        assert!(Config::parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn a_template_is_described_by_what_it_is_made_of_and_one_that_cannot_be_had_is_refused() {
    let text = "[e2b.templates.machine]\nimage = \"tools\"\ntier = \"microvm\"\naccept = [\"emulated-cpu\"]\nmemory = \"512MiB\"\n";
    let templates = Config::parse(text).unwrap().templates;
    let machine = &templates["machine"];
    assert_eq!((machine.image.as_deref(), machine.accept.len()), (Some("tools"), 1));
    for (text, words) in [
        ("[e2b.templates.host]\n", "templates.host"),
        ("[e2b.templates.\"a/b\"]\n", "a-z, 0-9"),
        ("[e2b.templates.a]\ntier = \"none\"\n", "line 2"),
        ("[e2b.templates.a]\nmemory = \"1KiB\"\n", "templates.a"),
        ("[e2b.templates.a]\nimages = \"b\"\n", "unknown field"),
    ] {
        let error = Config::parse(text).unwrap_err().to_string();
        assert!(error.contains(words), "{text}: {error}");
    }
}
