//! Javas in a box: those of the host start and believe the box's own gateway, and the store that one of an image brings has its authority, too.
#![expect(clippy::expect_used, reason = "a test that cannot go on must fail at once")]

use std::fs;
use std::path::Path;

use blastbox_tests::{Caller, both_ways};

both_ways!(java_believes_the_gateway, a_store_that_a_java_of_an_image_brings_has_the_authority);

const POLICY: &str = "threat = \"medium\"\naccept = [\"shared-kernel\", \"host-image\"]\n[network]\nmode = \"allow\"\n\
    allow = [{ host = \"api.example.test\", tls = \"inspect\", methods = [\"POST\"] }]\n";

/// Compiled by Java itself: a request that the gateway refuses over TLS (so nothing is dialled), and the store with its password.
const PROGRAM: &str = r#"
import java.io.FileInputStream;
import java.net.HttpURLConnection;
import java.net.URL;
import java.security.KeyStore;

public class Ask {
    public static void main(String[] words) throws Exception {
        var asked = (HttpURLConnection) new URL("https://api.example.test/x").openConnection();
        System.out.println(asked.getResponseCode() + " " + new String(asked.getErrorStream().readAllBytes()));
        var store = KeyStore.getInstance("JKS");
        store.load(new FileInputStream(words[0]), "changeit".toCharArray());
        System.out.println("ours " + store.containsAlias("gateway-of-this-box") + ", others " + (store.size() > 20));
    }
}
"#;

/// Java as its distribution has it, and each other one that brings a store of its own.
fn javas() -> Vec<(String, String)> {
    let mut all = vec![("/usr".to_owned(), "/etc/ssl/certs/java/cacerts".to_owned())];
    let homes = fs::read_dir("/usr/lib/jvm").into_iter().flatten().flatten();
    for home in homes.filter(|home| home.file_type().is_ok_and(|kind| kind.is_dir())) {
        let home = home.path().display().to_string();
        let store = format!("{home}/lib/security/cacerts");
        if fs::symlink_metadata(&store).is_ok_and(|found| found.is_file()) {
            all.push((home, store));
        }
    }
    // The one that compiles what it is given is in the larger of Debian's packages.
    all.retain(|(home, store)| Path::new(&format!("{home}/bin/javac")).exists() && Path::new(store).exists());
    all
}

fn java_believes_the_gateway(caller: &Caller) {
    let javas = javas();
    if javas.is_empty() {
        return caller.skip("no Java that compiles (apt-get install default-jdk-headless)");
    }
    let policy = caller.file("policy.toml", POLICY);
    let policy = policy.to_str().unwrap_or_default();
    for (home, store) in javas {
        let script = format!("cat > /tmp/Ask.java && {home}/bin/java -XX:+UseSerialGC /tmp/Ask.java {store}");
        let words = ["run", "-i", "--memory", "1G", "--policy", policy, "--", "sh", "-c", &script];
        let ended = caller.blastbox(words).input(PROGRAM).end();
        if ended.err.contains("/dev/net/tun") {
            return caller.skip("boxes with network need /dev/net/tun");
        }
        let said = ended.text();
        assert_eq!(ended.code, 0, "{home}: {said}\n{}", ended.err);
        assert!(said.contains("403") && said.contains("\"reason\":\"method-not-allowed\""), "{home}: {said}");
        assert!(said.ends_with("ours true, others true\n"), "{home}: {said}");
    }
}

/// Read by Java's own tool, outside.
fn a_store_that_a_java_of_an_image_brings_has_the_authority(caller: &Caller) {
    let (store, bundle) = ("/etc/ssl/certs/java/cacerts", "/etc/ssl/certs/ca-certificates.crt");
    let (keytool, busybox) = (Path::new("/usr/bin/keytool"), Path::new("/usr/bin/busybox"));
    if let Some(missing) =
        [Path::new(store), Path::new(bundle), keytool, busybox].iter().find(|at| !at.exists())
    {
        return caller.skip(&format!(
            "needs {} (apt-get install default-jdk-headless busybox-static)",
            missing.display()
        ));
    }
    let image = caller.directory("image");
    let own = ["opt/java/openjdk/lib/security/cacerts", "usr/lib/jvm/other/lib/security/cacerts"];
    for at in ["bin/busybox", "etc/ssl/certs/ca-certificates.crt"].iter().chain(&own) {
        fs::create_dir_all(image.join(at).parent().unwrap_or(&image)).expect("a directory of the image");
    }
    fs::copy(busybox, image.join("bin/busybox")).expect("copy busybox");
    fs::copy(bundle, image.join("etc/ssl/certs/ca-certificates.crt")).expect("copy the bundle");
    fs::copy(store, image.join(own[0])).expect("copy a store");
    // The head of one of another form: it is written anew.
    fs::write(image.join(own[1]), [0x30, 0x82, 0x01, 0x00]).expect("write a store");
    let policy = caller.file("policy.toml", POLICY);
    let (policy, image) = (policy.display().to_string(), image.display().to_string());
    for at in own {
        let inside = format!("/{at}");
        let words =
            ["run", "-q", "--policy", &policy, "--image", &image, "--", "/bin/busybox", "cat", &inside];
        let ended = caller.blastbox(words).end();
        if ended.err.contains("/dev/net/tun") {
            return caller.skip("boxes with network need /dev/net/tun");
        }
        assert_eq!(ended.code, 0, "{at}: {}", ended.err);
        let seen = caller.file("seen", &ended.out).display().to_string();
        let listed = caller.program(keytool, ["-list", "-keystore", &seen, "-storepass", "changeit"]).end();
        let text = listed.text();
        assert_eq!(listed.code, 0, "{at}: {text}");
        assert!(text.contains("gateway-of-this-box,"), "{at}: {text}");
        assert!(text.matches("trustedCertEntry").count() > 20, "{at}: {text}");
    }
    assert_eq!(fs::read(Path::new(&image).join(own[1])).expect("the image's own"), [0x30, 0x82, 0x01, 0x00]);
}
