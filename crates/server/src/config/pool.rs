//! `[pool]`: boxes that wait for somebody.

use std::time::Duration;

use blastbox_engine::keeper::{MOST_WARM, PoolConfig};
use blastbox_policy::Seconds;
use serde::Deserialize;

use super::{ConfigError, set};
use crate::warm::WarmText;

/// The shortest time for which a member of a pool waits: one whose time is over when it is made would be made for ever.
pub(super) const SHORTEST_TTL: Duration = Duration::from_secs(5);

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Pool {
    min: Option<usize>,
    max: Option<usize>,
    ttl: Option<Seconds>,
    warm: Vec<WarmText>,
}

impl Pool {
    pub(super) fn apply(self, config: &mut PoolConfig) -> Result<Vec<(WarmText, usize)>, ConfigError> {
        let Self { min, max, ttl, warm } = self;
        set(&mut config.min, min);
        set(&mut config.max, max);
        set(&mut config.ttl, ttl.map(|ttl| Duration::from_secs(ttl.0)));
        if config.min > config.max {
            return Err(ConfigError::Pool);
        }
        if config.ttl < SHORTEST_TTL {
            return Err(ConfigError::PoolTtl);
        }
        if warm.len() > MOST_WARM {
            return Err(ConfigError::Warm("it has more than 32 entries"));
        }
        let least = |warm: WarmText| {
            let least = warm.min.unwrap_or(config.min.max(1));
            match () {
                () if warm.is_mixed() => Err(ConfigError::Warm(
                    "a `template` says all; only `min`, `kernel`, `imports` and `prewarm` can stand beside it",
                )),
                () if warm.has_stray_kernel() => {
                    Err(ConfigError::Warm("a `kernel` is a template's: name the `template`"))
                }
                () if warm.has_bad_imports() => Err(ConfigError::Warm(
                    "`imports` names modules, at most 64, that a kernel has imported: not with `kernel = \"none\"`",
                )),
                () if !(1..=config.max).contains(&least) => {
                    Err(ConfigError::Warm("`min` of an entry is at least 1 and at most `pool.max`"))
                }
                () => Ok((warm, least)),
            }
        };
        warm.into_iter().map(least).collect()
    }
}
