//! The order of an epoch: a keyed permutation of `0..n` that every rank computes alike.
//!
//! The algorithm is part of the saved state, so its name changes whenever one of its outputs would.

use blake3::{Hasher, OutputReader};

/// Name and version of the permutation, as it stands in saved states.
pub const ALGORITHM: &str = "penstock-feistel-1";

/// Up to this length the shuffle is an exact Fisher-Yates table; above it, it is computed.
pub const EXACT_LIMIT: u64 = 65_536;

const ROUNDS: usize = 8;

/// A permutation of `0..len()` in memory that does not grow with its length.
#[derive(Debug, Clone)]
pub struct Order {
    n: u64,
    kind: Kind,
}

#[derive(Debug, Clone)]
enum Kind {
    Identity,
    Table {
        forward: Box<[u32]>,
        backward: Box<[u32]>,
    },
    Feistel(Feistel),
}

impl Order {
    /// The shuffled order of one epoch.
    pub fn shuffled(n: u64, seed: u64, epoch: u64) -> Self {
        let mut stream = KeyStream::new(n, seed, epoch);
        let kind = if n <= EXACT_LIMIT {
            exact_table(n, &mut stream)
        } else {
            Kind::Feistel(Feistel::new(n, &mut stream))
        };
        Self { n, kind }
    }

    /// The order of the members themselves.
    pub fn identity(n: u64) -> Self {
        Self {
            n,
            kind: Kind::Identity,
        }
    }

    /// How many positions are permuted.
    pub fn len(&self) -> u64 {
        self.n
    }

    /// Whether nothing is permuted at all.
    pub fn is_empty(&self) -> bool {
        self.n == 0
    }

    /// What stands at place `i` of the plan.
    ///
    /// # Panics
    /// When `i` is not below [`Order::len`].
    pub fn at(&self, i: u64) -> u64 {
        assert!(i < self.n, "place {i} is outside an order of {}", self.n);
        match &self.kind {
            Kind::Identity => i,
            Kind::Table { forward, .. } => u64::from(forward[table_index(i)]),
            Kind::Feistel(feistel) => feistel.walk(i, Feistel::forward),
        }
    }

    /// The place of the plan at which `p` stands: `at(inverse(p)) == p`.
    ///
    /// # Panics
    /// When `p` is not below [`Order::len`].
    pub fn inverse(&self, p: u64) -> u64 {
        assert!(p < self.n, "position {p} is outside an order of {}", self.n);
        match &self.kind {
            Kind::Identity => p,
            Kind::Table { backward, .. } => u64::from(backward[table_index(p)]),
            Kind::Feistel(feistel) => feistel.walk(p, Feistel::backward),
        }
    }
}

fn table_index(i: u64) -> usize {
    usize::try_from(i).unwrap_or(usize::MAX)
}

/// Little-endian words of the BLAKE3 output keyed by (algorithm, seed, epoch, n).
struct KeyStream(OutputReader);

impl KeyStream {
    fn new(n: u64, seed: u64, epoch: u64) -> Self {
        let mut hasher = Hasher::new();
        hasher.update(ALGORITHM.as_bytes());
        for word in [seed, epoch, n] {
            hasher.update(&word.to_le_bytes());
        }
        Self(hasher.finalize_xof())
    }

    fn word(&mut self) -> u64 {
        let mut bytes = [0; 8];
        self.0.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }

    /// Uniform below `bound`: words of the incomplete last cycle are thrown away.
    fn below(&mut self, bound: u64) -> u64 {
        let limit = u64::MAX - (u64::MAX % bound + 1) % bound;
        loop {
            let word = self.word();
            if word <= limit {
                return word % bound;
            }
        }
    }
}

fn exact_table(n: u64, stream: &mut KeyStream) -> Kind {
    let count = u32::try_from(n).unwrap_or(u32::MAX);
    let mut forward: Box<[u32]> = (0..count).collect();
    for i in (1..forward.len()).rev() {
        let j = stream.below(i as u64 + 1);
        forward.swap(i, table_index(j));
    }
    let mut backward = vec![0; forward.len()].into_boxed_slice();
    for (i, &p) in (0..count).zip(forward.iter()) {
        backward[p as usize] = i;
    }
    Kind::Table { forward, backward }
}

/// Balanced Feistel network over the smallest even number of bits that holds `n`,
/// walked along its cycles until the value falls below `n` (fewer than four steps on average).
#[derive(Debug, Clone)]
struct Feistel {
    n: u64,
    half_bits: u32,
    keys: [(u64, u64); ROUNDS],
}

impl Feistel {
    fn new(n: u64, stream: &mut KeyStream) -> Self {
        let bits = u64::BITS - (n - 1).leading_zeros();
        let keys = std::array::from_fn(|_| {
            let offset = stream.word();
            (offset, stream.word() | 1)
        });
        Self {
            n,
            half_bits: bits.div_ceil(2),
            keys,
        }
    }

    fn walk(&self, start: u64, step: impl Fn(&Self, u64) -> u64) -> u64 {
        let mut value = step(self, start);
        while value >= self.n {
            value = step(self, value);
        }
        value
    }

    fn mask(&self) -> u64 {
        (1 << self.half_bits) - 1
    }

    fn forward(&self, value: u64) -> u64 {
        let (mut left, mut right) = (value >> self.half_bits, value & self.mask());
        for key in &self.keys {
            (left, right) = (right, left ^ self.round(right, *key));
        }
        (left << self.half_bits) | right
    }

    fn backward(&self, value: u64) -> u64 {
        let (mut left, mut right) = (value >> self.half_bits, value & self.mask());
        for key in self.keys.iter().rev() {
            (left, right) = (right ^ self.round(left, *key), left);
        }
        (left << self.half_bits) | right
    }

    fn round(&self, half: u64, (offset, factor): (u64, u64)) -> u64 {
        let mut mixed = half.wrapping_add(offset);
        mixed = (mixed ^ (mixed >> 32)).wrapping_mul(factor);
        mixed = (mixed ^ (mixed >> 29)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ (mixed >> 32)) & self.mask()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Upper 1e-6 quantile of chi-square by the Wilson-Hilferty approximation: seeds are fixed, so a
    /// test either always passes or always fails, and an even permutation fails with that chance.
    fn chi_square_limit(degrees: f64) -> f64 {
        let c = 2.0 / (9.0 * degrees);
        degrees * (1.0 - c + 4.753 * c.sqrt()).powi(3)
    }

    #[allow(clippy::cast_precision_loss)]
    fn assert_even(counts: &[u64], what: &str) {
        let expected = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
        let chi: f64 = counts
            .iter()
            .map(|&c| (c as f64 - expected).powi(2) / expected)
            .sum();
        let limit = chi_square_limit((counts.len() - 1) as f64);
        assert!(chi < limit, "{what}: chi-square {chi:.1} above {limit:.1}");
    }

    #[test]
    fn test_vectors_are_those_of_the_published_algorithm() {
        let small = Order::shuffled(10, 7, 3);
        let small: Vec<u64> = (0..10).map(|i| small.at(i)).collect();
        let large = Order::shuffled(1_000_000, 7, 3);
        let large: Vec<u64> = (0..5).map(|i| large.at(i)).collect();
        let huge = Order::shuffled(1 << 40, u64::MAX, 0);
        let huge: Vec<u64> = (0..3).map(|i| huge.at(i)).collect();
        assert_eq!(
            (small, large, huge),
            (
                vec![2, 6, 3, 0, 7, 8, 5, 9, 1, 4],
                vec![916_803, 883_708, 756_119, 948_162, 778_823],
                vec![299_092_248_637, 998_958_648_055, 110_728_314_169],
            )
        );
    }

    #[test]
    fn test_vectors_hold_on_both_sides_of_the_limit_and_backwards() {
        let vectors = |n: u64| {
            let order = Order::shuffled(n, 7, 3);
            let forward: Vec<u64> = (0..5).map(|i| order.at(i)).collect();
            let backward: Vec<u64> = (0..5).map(|p| order.inverse(p)).collect();
            (forward, backward)
        };
        let exact = (
            vec![25_472, 13_447, 56_097, 6_157, 30_527],
            vec![5_292, 56_676, 3_604, 45_842, 54_021],
        );
        let computed = (
            vec![42_579, 62_115, 21_771, 55_926, 8_666],
            vec![35_990, 32_992, 20_317, 18_275, 53_632],
        );
        assert_eq!(
            (vectors(EXACT_LIMIT), vectors(EXACT_LIMIT + 1)),
            (exact, computed)
        );
    }

    #[test]
    fn every_position_comes_once_at_lengths_around_the_limit() {
        for n in [1, 2, 3, 64, EXACT_LIMIT, EXACT_LIMIT + 1, 100_003] {
            let order = Order::shuffled(n, 5, 1);
            let mut seen = vec![false; usize::try_from(n).unwrap()];
            for i in 0..n {
                let p = order.at(i);
                assert!(
                    !std::mem::replace(&mut seen[usize::try_from(p).unwrap()], true),
                    "{p} twice"
                );
                assert_eq!(order.inverse(p), i);
            }
        }
    }

    #[test]
    fn positions_are_uniform_over_epochs() {
        for n in [16, 70_000] {
            let buckets = 16;
            let mut first = vec![0; 16];
            let mut middle = vec![0; 16];
            for epoch in 0..6_400 {
                let order = Order::shuffled(n, 1, epoch);
                first[usize::try_from(order.at(0) * buckets / n).unwrap()] += 1;
                middle[usize::try_from(order.at(n / 2) * buckets / n).unwrap()] += 1;
            }
            assert_even(&first, "first place over epochs");
            assert_even(&middle, "middle place over epochs");
        }
    }

    #[test]
    fn positions_are_uniform_over_seeds() {
        let n = 100_000;
        let mut counts = vec![0; 25];
        for seed in 0..5_000 {
            let order = Order::shuffled(n, seed, 0);
            counts[usize::try_from(order.at(seed % n) * 25 / n).unwrap()] += 1;
        }
        assert_even(&counts, "places over seeds");
    }

    #[test]
    fn whole_small_permutations_are_uniform() {
        let mut counts = vec![0_u64; 24];
        for seed in 0..24_000 {
            let order = Order::shuffled(4, seed, 9);
            let code = (0..4).fold(0, |code, i| code * 4 + order.at(i));
            let rank = ALL_OF_FOUR.iter().position(|&c| c == code).unwrap();
            counts[rank] += 1;
        }
        assert_even(&counts, "permutations of four");
    }

    const ALL_OF_FOUR: [u64; 24] = [
        27, 30, 39, 45, 54, 57, 75, 78, 99, 108, 114, 120, 135, 141, 147, 156, 177, 180, 198, 201,
        210, 216, 225, 228,
    ];

    #[test]
    fn neighbours_are_unrelated() {
        for n in [EXACT_LIMIT, 1 << 20, 1_000_003] {
            let order = Order::shuffled(n, 11, 2);
            let mut pairs = vec![0; 64];
            let mut steps = vec![0; 32];
            for i in 0..60_000 {
                let (here, next) = (order.at(i), order.at(i + 1));
                pairs[usize::try_from((here * 8 / n) * 8 + next * 8 / n).unwrap()] += 1;
                steps[usize::try_from((next + n - here) % n * 32 / n).unwrap()] += 1;
            }
            assert_even(&pairs, "pairs of neighbours");
            assert_even(&steps, "distance of neighbours");
        }
    }

    /// Sixteen times sixteen buckets for a pair of positions.
    fn pair(n: u64, first: u64, second: u64) -> usize {
        usize::try_from((first * 16 / n) * 16 + second * 16 / n).unwrap()
    }

    #[test]
    fn neighbours_and_epochs_are_unrelated_over_many_seeds() {
        for n in [EXACT_LIMIT, EXACT_LIMIT + 1] {
            let mut neighbours = vec![0; 256];
            let mut epochs = vec![0; 256];
            for seed in 0..8 {
                let orders: Vec<Order> = (0..5).map(|e| Order::shuffled(n, seed, e)).collect();
                for (this, next) in orders.iter().zip(&orders[1..]) {
                    for i in (0..n - 1).step_by(13) {
                        neighbours[pair(n, this.at(i), this.at(i + 1))] += 1;
                        epochs[pair(n, this.at(i), next.at(i))] += 1;
                    }
                }
            }
            assert_even(&neighbours, "pairs of neighbours over seeds and epochs");
            assert_even(&epochs, "one place in two epochs");
        }
    }

    #[test]
    fn low_bits_are_even_too() {
        let order = Order::shuffled(1 << 20, 3, 4);
        let mut counts = vec![0; 64];
        for i in (0..1 << 20).step_by(16) {
            counts[usize::try_from(order.at(i) % 64).unwrap()] += 1;
        }
        assert_even(&counts, "low bits");
    }

    #[test]
    fn epochs_and_seeds_are_unrelated() {
        let n = 200_000;
        let fixed = |a: &Order, b: &Order| (0..n).filter(|&i| a.at(i) == b.at(i)).count();
        let base = Order::shuffled(n, 1, 1);
        assert!(fixed(&base, &Order::shuffled(n, 1, 2)) < 10);
        assert!(fixed(&base, &Order::shuffled(n, 2, 1)) < 10);
        assert_eq!(
            fixed(&base, &Order::shuffled(n, 1, 1)),
            usize::try_from(n).unwrap()
        );
    }

    proptest! {
        #[test]
        fn inverse_undoes_at(n in 1_u64..u64::MAX / 4, seed: u64, epoch: u64, pick: u64) {
            let order = Order::shuffled(n, seed, epoch);
            let i = pick % n;
            prop_assert!(order.at(i) < n);
            prop_assert_eq!(order.inverse(order.at(i)), i);
            prop_assert_eq!(order.at(order.inverse(i)), i);
        }

        #[test]
        fn identity_is_the_identity(n in 1_u64..u64::MAX, pick: u64) {
            let order = Order::identity(n);
            prop_assert_eq!(order.at(pick % n), pick % n);
            prop_assert_eq!(order.inverse(pick % n), pick % n);
        }
    }
}
