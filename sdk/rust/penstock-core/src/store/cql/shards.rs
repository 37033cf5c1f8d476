//! How a ScyllaDB node has cut its part of the ring into shards, and at which of them a connection ends.

use std::num::NonZeroU16;

use scylla::routing::{Sharder, Token};

use super::wire::Options;
use crate::lanes::Shard;

/// The only ways that are known here; with any other the shards are left alone.
const ALGORITHM: &str = "biased-token-round-robin";
const PARTITIONER: &str = "org.apache.cassandra.dht.Murmur3Partitioner";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Sharding {
    pub shard: Shard,
    sharder: Sharder,
}

impl Sharding {
    /// What a node says about the connection that it was asked on. Cassandra says nothing of the kind.
    pub fn of(options: &Options) -> Option<Self> {
        let value = |name: &str| options.first_value(name);
        let is_unknown = |name: &str, known: &str| value(name).is_some_and(|said| said != known);
        if is_unknown("SCYLLA_SHARDING_ALGORITHM", ALGORITHM)
            || is_unknown("SCYLLA_PARTITIONER", PARTITIONER)
        {
            return None;
        }
        let count: NonZeroU16 = value("SCYLLA_NR_SHARDS")?.parse().ok()?;
        let index: u16 = value("SCYLLA_SHARD")?.parse().ok()?;
        let ignored_bits: u8 = value("SCYLLA_SHARDING_IGNORE_MSB")?.parse().ok()?;
        let is_possible = index < count.get() && ignored_bits < 64;
        is_possible.then(|| Self {
            shard: Shard {
                index: index.into(),
                count: count.get().into(),
            },
            sharder: Sharder::new(count, ignored_bits),
        })
    }

    pub fn is_home_of(&self, token: i64) -> bool {
        self.sharder.shard_of(Token::new(token)) == self.shard.index
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(pairs: &[(&str, &str)]) -> Options {
        Options::from_pairs(pairs)
    }

    fn scylla<'a>(shard: &'a str, count: &'a str, bits: &'a str) -> [(&'a str, &'a str); 5] {
        [
            ("SCYLLA_SHARD", shard),
            ("SCYLLA_NR_SHARDS", count),
            ("SCYLLA_SHARDING_IGNORE_MSB", bits),
            ("SCYLLA_SHARDING_ALGORITHM", ALGORITHM),
            ("SCYLLA_PARTITIONER", PARTITIONER),
        ]
    }

    #[test]
    fn a_node_that_says_nothing_or_nonsense_has_no_shards() {
        assert_eq!(Sharding::of(&options(&[("COMPRESSION", "lz4")])), None);
        for wrong in [
            scylla("8", "8", "12"),
            scylla("0", "0", "12"),
            scylla("0", "8", "64"),
            scylla("-1", "8", "12"),
        ] {
            assert_eq!(Sharding::of(&options(&wrong)), None, "{wrong:?}");
        }
        let mut other = scylla("1", "8", "12");
        other[3].1 = "tomorrow's";
        assert_eq!(Sharding::of(&options(&other)), None);
    }

    #[test]
    fn every_token_has_its_home_on_one_shard() {
        let shards: Vec<Sharding> = ["0", "1", "2"]
            .iter()
            .map(|shard| Sharding::of(&options(&scylla(shard, "3", "12"))).unwrap())
            .collect();
        let mut random = crate::retry::Random::new(4);
        let mut homes = [0; 3];
        for _ in 0..3000 {
            let token = random.next_u64().cast_signed();
            // As ScyllaDB documents it: bias, shift, multiply.
            let biased = (token.cast_unsigned() ^ (1 << 63)) << 12;
            let expected = usize::try_from((u128::from(biased) * 3) >> 64).unwrap();
            let home: Vec<usize> = (0..3).filter(|i| shards[*i].is_home_of(token)).collect();
            assert_eq!(home, [expected]);
            homes[expected] += 1;
        }
        assert!(homes.iter().all(|count| *count > 800), "{homes:?}");
    }
}
