//! What a daemon does without being asked: boxes wait for whoever comes, and somebody hears what happens in them.

use blastbox_tests::census::Census;
use blastbox_tests::daemon::Daemon;
use blastbox_tests::{Caller, both_ways, wait_until};

both_ways!(
    boxes_that_the_configuration_names_wait_before_anybody_asks,
    what_cannot_be_kept_warm_keeps_the_daemon_from_starting,
);

/// A daemon with this configuration, which is started and may not come up.
fn daemon<'a>(caller: &'a Caller, config: &str) -> Daemon<'a> {
    let config = caller.file("daemon.toml", config).display().to_string();
    let mut daemon = Daemon::shipped(caller).with_config(config);
    daemon.start(None);
    daemon
}

fn boxes_that_the_configuration_names_wait_before_anybody_asks(caller: &Caller) {
    let mut census = Census::begin(caller);
    let warm = "[pool]\nmax = 2\n[[pool.warm]]\nmin = 2\nlimits = { memory = \"64MiB\" }\n";
    let mut daemon = daemon(caller, warm);
    assert!(daemon.await_answer());
    let waiting = || daemon.ask(&["metrics"]).contains("blastbox_pool_boxes 2");
    assert!(wait_until(waiting), "{}", daemon.ask(&["metrics"]));
    let made = daemon.ask(&["create", "--memory", "64MiB"]);
    let hits = daemon.ask(&["metrics"]);
    assert!(hits.contains("blastbox_pool_hits_total 1"), "the first one was there already: {hits}");
    daemon.ask(&["kill", &made]);
    daemon.stop();
    census.accept_files();
    census.expect_nothing("boxes that were kept warm");
}

fn what_cannot_be_kept_warm_keeps_the_daemon_from_starting(caller: &Caller) {
    let mut census = Census::begin(caller);
    for (config, why) in [
        ("[[pool.warm]]\nimage = \"/usr\"\n", "entry 1: such a box is made only when somebody asks"),
        ("[[pool.warm]]\n[[pool.warm]]\nimage = \"nobody\"\n", "entry 2: `image` is neither"),
        ("[[pool.warm]]\ntemplate = \"nobody\"\n", "entry 1: template 'nobody' not found"),
        ("[[pool.warm]]\nprofile = \"strict\"\ntier = \"jail\"\n", "entry 1: refused"),
    ] {
        let mut daemon = daemon(caller, config);
        let ended = daemon.end();
        assert_eq!(ended.code, 125, "{}", ended.err);
        assert!(ended.err.contains(why), "{why}: {}", ended.err);
    }
    census.accept_files();
    census.expect_nothing("a daemon that did not start");
}
