/// `SplitMix64`: the same seed gives the same faults on every machine.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64, connection: u64, direction: u64) -> Self {
        let mut random = Self(seed ^ connection.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ (direction << 63));
        random.next();
        random
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// In [0, 1).
    #[expect(clippy::cast_precision_loss, reason = "53 bits fit")]
    pub fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A distance with this mean, at least 1.
    #[expect(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a draw")]
    pub fn distance(&mut self, mean: u64) -> u64 {
        (-(1.0 - self.share()).ln() * mean as f64).max(1.0) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_gives_the_same_numbers_and_another_connection_others() {
        let draw = |connection| {
            let mut random = Random::new(7, connection, 1);
            (0..4).map(|_| random.next()).collect::<Vec<_>>()
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    #[test]
    fn distances_have_the_mean_that_was_asked() {
        let mut random = Random::new(1, 0, 0);
        let sum: u64 = (0..10_000).map(|_| random.distance(1000)).sum();
        assert!((900..1100).contains(&(sum / 10_000)), "mean {}", sum / 10_000);
    }
}
