//! Ways to break a message that was whole.

/// Every beginning of it, every bit turned over, and one byte too many.
pub(crate) fn changed_and_cut(whole: &[u8], mut read: impl FnMut(&[u8])) {
    for at in 0..whole.len() {
        read(whole.get(..at).unwrap());
        for bit in 0..8 {
            let mut changed = whole.to_vec();
            *changed.get_mut(at).unwrap() ^= 1 << bit;
            read(&changed);
        }
    }
    read(&[whole, b"\0"].concat());
}

/// The same message with a length of all ones before `text`, at every place that it has.
pub(crate) fn lying(whole: &[u8], text: &str) -> Vec<Vec<u8>> {
    let length = u32::try_from(text.len()).unwrap().to_be_bytes();
    let sized = [&length[..], text.as_bytes()].concat();
    let places = (0..whole.len()).filter(|at| whole.get(*at..).unwrap().starts_with(&sized));
    let lie = |at: usize| [whole.get(..at).unwrap(), &[0xff; 4], whole.get(at + 4..).unwrap()].concat();
    places.map(lie).collect()
}
