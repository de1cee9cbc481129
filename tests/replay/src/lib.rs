//! What a fuzz target is written against, without a fuzzer: the target becomes a function of one seed. Needs no nightly
//! compiler, so that `make test` runs it.

/// Makes a function `run` of a fuzz target, which takes the bytes of one seed and says whether they were one for it.
#[macro_export]
macro_rules! fuzz_target {
    (|$input:ident: $kind:ty| $body:block) => {
        pub(crate) fn run(seed: &[u8]) -> bool {
            let Some($input) = <$kind as $crate::Seed<'_>>::read(seed) else { return false };
            let $input: $kind = $input;
            // A target that has seen enough returns from here.
            let target = || $body;
            target();
            true
        }
    };
}

/// What a target can ask for.
pub trait Seed<'a>: Sized {
    /// Reads it from a seed; `None`: this seed holds none.
    fn read(seed: &'a [u8]) -> Option<Self>;
}

impl<'a> Seed<'a> for &'a [u8] {
    fn read(seed: &'a [u8]) -> Option<Self> {
        Some(seed)
    }
}

/// As the fuzzer does: up to the first byte that is no text.
impl<'a> Seed<'a> for &'a str {
    fn read(seed: &'a [u8]) -> Option<Self> {
        let text = seed.utf8_chunks().next();
        Some(text.map_or("", |text| text.valid()))
    }
}

impl<'a> Seed<'a> for (u8, &'a [u8]) {
    fn read(seed: &'a [u8]) -> Option<Self> {
        seed.split_first().map(|(first, rest)| (*first, rest))
    }
}

/// The fuzzer cuts in two at a length that it keeps at the end; half and half is as good for a seed.
impl<'a> Seed<'a> for (u8, Vec<u8>, &'a [u8]) {
    fn read(seed: &'a [u8]) -> Option<Self> {
        let (first, rest) = seed.split_first()?;
        let (one, other) = rest.split_at(rest.len() / 2);
        Some((*first, one.to_vec(), other))
    }
}
