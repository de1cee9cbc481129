//! Which coding a client takes, and which it means. Pure.

/// How a file is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Coding {
    Identity,
    Gzip,
}

/// No coding that we have is acceptable.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct NoneFits;

/// Chooses. Compression is for whoever asks for it and nothing else: libraries that list every coding they know get the
/// bytes as they are, which is faster on one machine.
pub(super) fn choose(accepted: Option<&str>) -> Result<Coding, NoneFits> {
    let Some(accepted) = accepted.filter(|text| !text.trim().is_empty()) else { return Ok(Coding::Identity) };
    let (mut gzip, mut identity, mut any, mut others) = (None, None, None, 0_u32);
    for item in accepted.split(',') {
        let (name, parameters) = item.split_once(';').unwrap_or((item, ""));
        let wanted = quality(parameters);
        match name.trim().to_ascii_lowercase().as_str() {
            "" => {}
            "gzip" | "x-gzip" => gzip = Some(wanted),
            "identity" => identity = Some(wanted),
            "*" => any = Some(wanted),
            _ => others += 1,
        }
    }
    let gzip_fits = gzip.or(any).unwrap_or(false);
    let identity_fits = identity.or(any.filter(|any| !any)).unwrap_or(true);
    let only_gzip = gzip == Some(true) && others == 0 && any.is_none() && identity != Some(true);
    match (gzip_fits, identity_fits) {
        (true, _) if only_gzip => Ok(Coding::Gzip),
        (_, true) => Ok(Coding::Identity),
        (true, false) => Ok(Coding::Gzip),
        (false, false) => Err(NoneFits),
    }
}

/// Whether a quality is above zero. What cannot be read is.
fn quality(parameters: &str) -> bool {
    let value = parameters.split(';').filter_map(|part| part.trim().strip_prefix("q=")).next();
    value.and_then(|text| text.trim().parse::<f32>().ok()).is_none_or(|quality| quality > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_asks_for_gzip_alone_gets_it_and_nobody_else() {
        for (accepted, coding) in [
            (None, Ok(Coding::Identity)),
            (Some(""), Ok(Coding::Identity)),
            (Some("gzip"), Ok(Coding::Gzip)),
            (Some("GZIP;q=0.5"), Ok(Coding::Gzip)),
            (Some("gzip, deflate, br"), Ok(Coding::Identity)),
            (Some("gzip, identity"), Ok(Coding::Identity)),
            (Some("gzip;q=0"), Ok(Coding::Identity)),
            (Some("*"), Ok(Coding::Identity)),
            (Some("identity;q=0, gzip, br"), Ok(Coding::Gzip)),
            (Some("*;q=0, gzip"), Ok(Coding::Gzip)),
            (Some("br"), Ok(Coding::Identity)),
            (Some("identity;q=0"), Err(NoneFits)),
            (Some("*;q=0"), Err(NoneFits)),
            (Some("br, identity;q=0"), Err(NoneFits)),
        ] {
            assert_eq!(choose(accepted), coding, "{accepted:?}");
        }
    }
}
