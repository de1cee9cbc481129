//! How a box comes to believe its own authority: files that programs read, and variables that name them.

/// Where programs look for authorities, by distribution. In a box that has network and whose requests are read, each of
/// these that exists is the host's bundle with the box's authority behind it.
pub const BUNDLE_FILES: &[&str] = &[
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
    "/etc/ssl/ca-bundle.pem",
];

/// Where Java's own store of authorities lies, by distribution; each that exists has the box's authority too.
pub const JAVA_STORES: &[&str] = &["/etc/ssl/certs/java/cacerts", "/etc/pki/ca-trust/extracted/java/cacerts"];

/// The one that the variables name; it is there in every box whose requests are read, whatever its image has.
pub const BUNDLE: &str = "/run/authorities.crt";
/// Longest authority of a box, as text.
pub const MAX_AUTHORITY: usize = 8 * 1024;

/// Variables that name the bundle, for programs that bring their own or look elsewhere.
pub const BUNDLE_VARIABLES: &[&str] = &[
    // OpenSSL, and with it Python's ssl, Ruby, PHP; Go reads it too
    "SSL_CERT_FILE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    // Python
    "REQUESTS_CA_BUNDLE",
    "PIP_CERT",
    "HTTPLIB2_CA_CERTS",
    // Node and Deno
    "NODE_EXTRA_CA_CERTS",
    "DENO_CERT",
    // others
    "AWS_CA_BUNDLE",
    "CARGO_HTTP_CAINFO",
    "NIX_SSL_CERT_FILE",
    "BUNDLE_SSL_CA_CERT",
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH",
    "PERL_LWP_SSL_CA_FILE",
    "COMPOSER_CAFILE",
];
