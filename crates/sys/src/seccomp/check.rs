//! What a line of the table can say: a plain verdict, or a decision over the arguments.
//!
//! A check is data, so that the same text is evaluated ([`Check::decide`]), compiled (`tree`) and tested against each
//! other. Tests on values look at the low 32 bits of an argument, because that is what the kernel uses of an `int` or
//! `unsigned int` parameter (and of the flags of `clone`): a test on all 64 bits could be dodged by setting high ones.

/// What happens to a system call.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The kernel carries it out.
    Allow,
    /// Not carried out, and answered with this errno, unseen: libraries try these calls and fall back. 0 tells the
    /// caller that it was done, which is for settings that the box already has in a stricter form.
    Errno(i32),
    /// Refused with this errno and reported to the holder of the listener.
    Notify(i32),
    /// Carried out as if it were allowed. Where writes are reported the holder of the listener hears of it first, and lets it go on.
    Watch,
    /// The process dies: a call through a foreign interface has no honest reason.
    Kill,
}

/// A decision over the arguments of one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Check {
    /// Decided.
    Then(Verdict),
    /// Is `arg & mask` (low 32 bits) one of `values`?
    Is { arg: u8, mask: u32, values: &'static [u32], yes: &'static Check, no: &'static Check },
    /// Is the whole argument, all 64 bits, zero? For pointers: one with a zero low half is still a pointer.
    Null { arg: u8, yes: &'static Check, no: &'static Check },
}

impl Check {
    /// Whether the call is carried out whatever its arguments are.
    pub(super) fn never_refuses(&self) -> bool {
        match *self {
            Self::Then(verdict) => matches!(verdict, Verdict::Allow | Verdict::Watch),
            Self::Is { yes, no, .. } | Self::Null { yes, no, .. } => {
                yes.never_refuses() && no.never_refuses()
            }
        }
    }

    /// The verdict for these arguments.
    pub(super) fn decide(&self, args: &[u64; 6]) -> Verdict {
        match *self {
            Self::Then(verdict) => verdict,
            Self::Is { arg, mask, values, yes, no } => {
                let low = args.get(usize::from(arg)).map_or(0, |&value| low_half(value));
                if values.contains(&(low & mask)) { yes.decide(args) } else { no.decide(args) }
            }
            Self::Null { arg, yes, no } => {
                let null = args.get(usize::from(arg)).is_none_or(|&value| value == 0);
                if null { yes.decide(args) } else { no.decide(args) }
            }
        }
    }
}

#[expect(clippy::cast_possible_truncation, reason = "the low half is what the kernel looks at")]
const fn low_half(value: u64) -> u32 {
    value as u32
}
