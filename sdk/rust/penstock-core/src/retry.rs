//! Bounded retries: six tries, 50 ms doubling, with jitter so that many readers do not come back in step.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

/// Tries of one request in all, the first one included.
pub const MAX_TRIES: u32 = 6;

const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// The pauses between the tries of one request.
#[derive(Debug)]
pub struct Backoff {
    tries: u32,
    random: Random,
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            tries: 1,
            random: Random::from_entropy(),
        }
    }
}

impl Backoff {
    /// Tries made so far; the first try is one before any pause was asked for.
    pub const fn tries(&self) -> u32 {
        self.tries
    }

    /// How long to wait before the next try, or `None` when there have been enough.
    pub fn next_pause(&mut self) -> Option<Duration> {
        if self.tries >= MAX_TRIES {
            return None;
        }
        let full = FIRST_PAUSE * (1 << (self.tries - 1));
        self.tries += 1;
        // Between half and all of the step: spread enough, and never zero.
        Some(full.mul_f64(0.5 + 0.5 * self.random.next_unit()))
    }
}

/// A small generator (splitmix64) for jitter and for seeded faults in tests; not for secrets.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn from_entropy() -> Self {
        Self(RandomState::new().build_hasher().finish())
    }

    pub const fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Evenly spread in 0..1.
    #[allow(clippy::cast_precision_loss)] // 53 bits are exactly what a double holds
    pub fn next_unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_and_end_after_six_tries() {
        let mut backoff = Backoff::default();
        let pauses: Vec<Duration> = std::iter::from_fn(|| backoff.next_pause()).collect();
        assert_eq!(pauses.len(), 5);
        assert_eq!(backoff.tries(), MAX_TRIES);
        for (step, pause) in (0..).zip(&pauses) {
            let full = FIRST_PAUSE * (1 << step);
            assert!(*pause >= full / 2 && *pause <= full, "{pause:?}");
        }
    }

    #[test]
    fn readers_that_failed_together_do_not_come_back_in_step() {
        let first = |_| Backoff::default().next_pause().unwrap();
        let pauses: std::collections::HashSet<Duration> = (0..20).map(first).collect();
        assert!(pauses.len() > 10, "{pauses:?}");
    }

    #[test]
    fn splitmix_gives_the_published_sequence() {
        let mut random = Random::new(1_234_567);
        assert_eq!(random.next_u64(), 6_457_827_717_110_365_317);
        assert_eq!(random.next_u64(), 3_203_168_211_198_807_973);
    }
}
