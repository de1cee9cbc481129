//! HMAC-SHA-256 (RFC 2104), so that whoever gets an alert knows who sent it.

use sha2::{Digest, Sha256};

const BLOCK: usize = 64;

/// The code of a message, in hexadecimal.
pub(super) fn hex(key: &[u8], message: &[&[u8]]) -> String {
    let short = |key: &[u8]| -> Vec<u8> {
        if key.len() > BLOCK { Sha256::digest(key).to_vec() } else { key.to_vec() }
    };
    let mut padded = short(key);
    padded.resize(BLOCK, 0);
    let with = |pad: u8| padded.iter().map(|byte| byte ^ pad).collect::<Vec<u8>>();
    let mut inner = Sha256::new_with_prefix(with(0x36));
    for part in message {
        inner.update(part);
    }
    let code = Sha256::new_with_prefix(with(0x5c)).chain_update(inner.finalize()).finalize();
    code.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_codes_are_those_of_rfc_4231() {
        assert_eq!(
            hex(b"Jefe", &[b"what do ya want ", b"for nothing?"]),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
        assert_eq!(
            hex(&[0xaa; 131], &[b"Test Using Larger Than Block-Size Key - Hash Key First"]),
            "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"
        );
    }
}
