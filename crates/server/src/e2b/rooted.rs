//! Which sandboxes have a root of their own: uid 0 of the box, by `sudo` and `user="root"`.
//!
//! Must not: give anybody a weaker boundary for it. Only a jail has a root, so that asking for one keeps a box out of every stronger
//! tier: unless the operator has asked, it is given where the box is in a jail anyway.

use blastbox_engine::keeper::Keeper;
use blastbox_images::Image;
use blastbox_policy::{BoxRoot, PolicyError, SealedPolicy, Tier, tiers_for};

use crate::config::Roots;

/// The policy of a box that is made of this image: with a root, where it has one.
pub(crate) async fn settle(
    keeper: &Keeper,
    roots: Roots,
    plain: SealedPolicy,
    image: &Image,
) -> Result<SealedPolicy, PolicyError> {
    // In a directory of the host root would read what that directory keeps from everybody but the host's root.
    if matches!(image, Image::Directory(_)) {
        return Ok(plain);
    }
    match roots {
        Roots::Nowhere => Ok(plain),
        Roots::Ordered => ordered(plain),
        // Known without asking what this host can have.
        Roots::InJails if !tiers_for(&plain).contains(&Tier::Jail) => Ok(plain),
        Roots::InJails => {
            let Ok(rooted) = ordered(plain.clone()) else { return Ok(plain) };
            let in_jail = keeper.tier_of(&plain, image).await == Some(Tier::Jail);
            // Where this host can have none (no root, an old kernel), nobody is refused for it.
            let given = in_jail && keeper.tier_of(&rooted, image).await == Some(Tier::Jail);
            Ok(if given { rooted } else { plain })
        }
    }
}

/// Where a policy never comes to a jail, asking for a root would refuse every sandbox.
fn ordered(plain: SealedPolicy) -> Result<SealedPolicy, PolicyError> {
    if tiers_for(&plain).contains(&Tier::Jail) {
        plain.draft().root(BoxRoot::Allowed).seal()
    } else {
        Ok(plain)
    }
}

#[cfg(test)]
mod tests {
    use blastbox_policy::{Profile, TierChoice};

    use super::*;

    #[test]
    fn only_what_may_be_in_a_jail_is_given_a_root_and_nothing_else_changes() {
        let root = |profile: Profile, tier: Option<Tier>| {
            let draft = profile.draft().unwrap();
            let draft = tier.map_or(draft.clone(), |tier| draft.tier(TierChoice::Exactly(tier)));
            let plain = draft.seal().unwrap();
            let rooted = ordered(plain.clone()).unwrap();
            assert_eq!(rooted.draft().root(BoxRoot::None).seal().unwrap(), plain, "{profile}");
            rooted.kernel().root
        };
        for profile in [Profile::Default, Profile::Medium, Profile::Low] {
            assert_eq!(root(profile, None), BoxRoot::Allowed, "{profile}");
            assert_eq!(root(profile, Some(Tier::Microvm)), BoxRoot::None, "{profile}");
        }
        for profile in [Profile::Strict, Profile::Critical] {
            assert_eq!(root(profile, None), BoxRoot::None, "{profile}");
        }
    }
}
