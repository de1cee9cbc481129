//! How much memory the host has free.

/// Assumed where it does not say.
const SMALL_HOST: u64 = 1 << 30;

/// Bytes that are free now, or can be freed.
pub(crate) fn free() -> u64 {
    let meminfo = std::fs::read_to_string("/proc/meminfo").ok();
    meminfo.and_then(|text| available(&text)).unwrap_or(SMALL_HOST)
}

/// The bytes that a `/proc/meminfo` calls available.
fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_free_memory_is_read_and_nonsense_is_not() {
        assert_eq!(available("MemTotal: 9 kB\nMemAvailable:   12345 kB\n"), Some(12_345 * 1024));
        for bad in ["", "MemAvailable: kB", "MemAvailable: 99999999999999999999 kB", "MemAvailable: 1 MB"] {
            assert_eq!(available(bad), None, "{bad}");
        }
        assert!(free() > 0);
    }
}
