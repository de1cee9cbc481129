//! SHA-1, for the mark at the end of Java's stores alone.
//!
//! Own code: what is linked here lies in the program that makes boxes as root, and the mark protects nothing.

/// The digest of `bytes`.
pub(super) fn sha1(bytes: &[u8]) -> [u8; 20] {
    let mut state = [0x6745_2301u32, 0xEFCD_AB89, 0x98BA_DCFE, 0x1032_5476, 0xC3D2_E1F0];
    let (blocks, rest) = bytes.as_chunks::<64>();
    for block in blocks {
        mix(&mut state, block);
    }
    let mut end = rest.to_vec();
    end.push(0x80);
    end.resize(if end.len() > 56 { 120 } else { 56 }, 0);
    end.extend((bytes.len() as u64).wrapping_mul(8).to_be_bytes());
    for block in end.as_chunks::<64>().0 {
        mix(&mut state, block);
    }
    let mut digest = [0; 20];
    for (into, word) in digest.as_chunks_mut::<4>().0.iter_mut().zip(state) {
        *into = word.to_be_bytes();
    }
    digest
}

#[expect(
    clippy::indexing_slicing,
    clippy::many_single_char_names,
    reason = "as the standard writes it: FIPS 180-4"
)]
fn mix(state: &mut [u32; 5], block: &[u8; 64]) {
    let mut words = [0u32; 80];
    for (word, bytes) in words.iter_mut().zip(block.as_chunks::<4>().0) {
        *word = u32::from_be_bytes(*bytes);
    }
    for t in 16..80 {
        words[t] = (words[t - 3] ^ words[t - 8] ^ words[t - 14] ^ words[t - 16]).rotate_left(1);
    }
    let [mut a, mut b, mut c, mut d, mut e] = *state;
    for (t, word) in words.iter().enumerate() {
        let (mixed, constant) = match t {
            0..20 => (b & c | !b & d, 0x5A82_7999),
            20..40 => (b ^ c ^ d, 0x6ED9_EBA1),
            40..60 => (b & c | b & d | c & d, 0x8F1B_BCDC),
            _ => (b ^ c ^ d, 0xCA62_C1D6u32),
        };
        let next =
            [mixed, e, constant, *word].iter().fold(a.rotate_left(5), |sum, part| sum.wrapping_add(*part));
        (a, b, c, d, e) = (next, a, b.rotate_left(30), c, d);
    }
    for (word, change) in state.iter_mut().zip([a, b, c, d, e]) {
        *word = word.wrapping_add(change);
    }
}

#[cfg(test)]
mod tests {
    use super::sha1;

    fn hex(bytes: &[u8]) -> String {
        sha1(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn the_standards_own_examples() {
        assert_eq!(hex(b""), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
        assert_eq!(hex(b"abc"), "a9993e364706816aba3e25717850c26c9cd0d89d");
        let two_blocks = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
        assert_eq!(hex(two_blocks), "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
        assert_eq!(hex(&[b'a'; 1_000_000]), "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
    }
}
