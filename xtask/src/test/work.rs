//! How much of the host's processors a test program took.

/// The kernel counts in hundredths of a second on every Linux that we know.
const TICKS: u64 = 100;

/// Whole seconds of a process that has not been waited for, with everybody whom it has waited for; 0: nobody knows.
pub(super) fn seconds(process: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    ticks(&stat).unwrap_or(0) / TICKS
}

/// Its own in user mode and in the kernel, and both of its children; the name in front of them may hold anything.
fn ticks(stat: &str) -> Option<u64> {
    let fields = stat.rsplit_once(')')?.1.split_whitespace();
    fields.skip(11).take(4).map(|field| field.parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_that_of_a_process_and_of_its_children() {
        assert_eq!(ticks("12 (a) b) S 7 12 12 0 -1 0 1 2 3 4 500 60 7000 80000 20 0"), Some(87_560));
        assert_eq!(ticks("12 (sh"), None);
        assert_eq!(seconds(0), 0);
    }
}
