//! Java of the host in a box: it starts, and it believes the box's own gateway.

use std::path::Path;

use blastbox_tests::{Caller, both_ways};

both_ways!(java_believes_the_gateway);

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

fn java_believes_the_gateway(caller: &Caller) {
    let store = "/etc/ssl/certs/java/cacerts";
    // The one that compiles what it is given is in the larger of Debian's packages.
    if !Path::new("/usr/bin/javac").exists() || !Path::new(store).exists() {
        return caller.skip("no Java that compiles (apt-get install default-jdk-headless)");
    }
    let policy = caller.file("policy.toml", POLICY);
    let policy = policy.to_str().unwrap_or_default();
    let script = format!("cat > /tmp/Ask.java && java -XX:+UseSerialGC /tmp/Ask.java {store}");
    let words = ["run", "-i", "--memory", "1G", "--policy", policy, "--", "sh", "-c", &script];
    let ended = caller.blastbox(words).input(PROGRAM).end();
    if ended.err.contains("/dev/net/tun") {
        return caller.skip("boxes with network need /dev/net/tun");
    }
    let said = ended.text();
    assert_eq!(ended.code, 0, "{said}\n{}", ended.err);
    assert!(said.contains("403") && said.contains("\"reason\":\"method-not-allowed\""), "{said}");
    assert!(said.ends_with("ours true, others true\n"), "{said}");
}
