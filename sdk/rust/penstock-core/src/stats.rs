//! What the engine has done, in counters and histograms that any thread may read at any time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Steps between two powers of two: a bucket is at most a quarter wider than its lower end.
const PER_DOUBLING: u64 = 4;
/// Microseconds up to four are exact; 2^33 of them are more than two hours.
const DOUBLINGS: u64 = 32;
#[allow(clippy::cast_possible_truncation)]
const BUCKETS: usize = (PER_DOUBLING * DOUBLINGS) as usize;

/// For rates and shares.
#[allow(clippy::cast_precision_loss)] // bytes far below 2**53
pub(crate) fn as_float(bytes: u64) -> f64 {
    bytes as f64
}

/// Durations in buckets that grow with the duration.
#[derive(Debug)]
pub struct Histogram {
    buckets: [AtomicU64; BUCKETS],
    sum_microseconds: AtomicU64,
    max_microseconds: AtomicU64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            buckets: std::array::from_fn(|_| AtomicU64::new(0)),
            sum_microseconds: AtomicU64::new(0),
            max_microseconds: AtomicU64::new(0),
        }
    }
}

impl Histogram {
    pub fn record(&self, duration: Duration) {
        self.record_shares(duration, 1);
    }

    /// Records `count` durations that were measured together: each is an equal share, and their sum is exact.
    pub fn record_shares(&self, together: Duration, count: u64) {
        if count == 0 {
            return;
        }
        let together = u64::try_from(together.as_micros()).unwrap_or(u64::MAX);
        let share = together / count;
        self.buckets[bucket_of(share)].fetch_add(count, Ordering::Relaxed);
        self.sum_microseconds.fetch_add(together, Ordering::Relaxed);
        self.max_microseconds.fetch_max(share, Ordering::Relaxed);
    }

    pub fn snapshot(&self) -> HistogramSnapshot {
        HistogramSnapshot {
            buckets: std::array::from_fn(|i| self.buckets[i].load(Ordering::Relaxed)),
            sum_microseconds: self.sum_microseconds.load(Ordering::Relaxed),
            max_microseconds: self.max_microseconds.load(Ordering::Relaxed),
        }
    }
}

fn bucket_of(microseconds: u64) -> usize {
    let bucket = if microseconds < PER_DOUBLING {
        microseconds
    } else {
        let doubling = u64::from(microseconds.ilog2());
        let within = (microseconds >> (doubling - 2)) % PER_DOUBLING;
        (doubling - 1) * PER_DOUBLING + within
    };
    usize::try_from(bucket).map_or(BUCKETS - 1, |b| b.min(BUCKETS - 1))
}

/// One past the largest value of a bucket.
fn bucket_end(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < PER_DOUBLING {
        return bucket + 1;
    }
    let (doubling, within) = (bucket / PER_DOUBLING + 1, bucket % PER_DOUBLING);
    (PER_DOUBLING + within + 1) << (doubling - 2)
}

/// A histogram at one moment.
#[derive(Debug, Clone)]
pub struct HistogramSnapshot {
    buckets: [u64; BUCKETS],
    pub sum_microseconds: u64,
    pub max_microseconds: u64,
}

impl HistogramSnapshot {
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The upper end of the bucket in which the given share of all durations lies; 0 when there are none.
    pub fn quantile_microseconds(&self, share: f64) -> u64 {
        let count = self.count();
        #[allow(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss
        )]
        let wanted = ((count as f64 * share).ceil() as u64).clamp(1, count.max(1));
        let mut seen = 0;
        for (bucket, times) in self.buckets.iter().enumerate() {
            seen += times;
            if seen >= wanted {
                return bucket_end(bucket).min(self.max_microseconds);
            }
        }
        0
    }

    /// Both together; the largest value is that of the larger one.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        Self {
            buckets: std::array::from_fn(|i| self.buckets[i] + other.buckets[i]),
            sum_microseconds: self.sum_microseconds + other.sum_microseconds,
            max_microseconds: self.max_microseconds.max(other.max_microseconds),
        }
    }

    /// Without the durations of `part`; the largest value stays, as nobody knows whose it was.
    #[must_use]
    pub fn minus(&self, part: &Self) -> Self {
        Self {
            buckets: std::array::from_fn(|i| self.buckets[i].saturating_sub(part.buckets[i])),
            sum_microseconds: self.sum_microseconds.saturating_sub(part.sum_microseconds),
            max_microseconds: self.max_microseconds,
        }
    }

    /// (upper end in microseconds, count) of the buckets that are not empty.
    pub fn filled(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.buckets
            .iter()
            .enumerate()
            .filter(|(_, times)| **times > 0)
            .map(|(bucket, times)| (bucket_end(bucket), *times))
    }
}

macro_rules! numbers {
    ($(#[$outer:meta])* $shared:ident, $snapshot:ident { $($(#[$doc:meta])* $name:ident),* $(,)? }) => {
        $(#[$outer])*
        #[derive(Debug, Default)]
        pub struct $shared { $($(#[$doc])* pub $name: AtomicU64),* }

        #[doc = concat!("[`", stringify!($shared), "`] at one moment.")]
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        pub struct $snapshot { $($(#[$doc])* pub $name: u64),* }

        impl $shared {
            pub fn snapshot(&self) -> $snapshot {
                $snapshot { $($name: self.$name.load(Ordering::Relaxed)),* }
            }
        }

        impl $snapshot {
            /// Name and value of each, in the order of declaration.
            pub fn named(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name)),*]
            }
        }
    };
}

numbers! {
    /// Totals since the engine was made; they never fall.
    Counters, CounterSnapshot {
        /// Samples handed to the consumer, padding and replacements included.
        samples,
        /// Bytes of fields handed to the consumer.
        bytes,
        batches,
        /// Batches the consumer has acknowledged.
        acknowledged,
        /// Reads sent to the store; a sample whose fields lie in two objects takes two.
        requests,
        /// Further tries and escalations inside the store, and re-reads of the engine.
        retries,
        /// Samples that could not be read.
        errors,
        /// Sound samples of batches that an error took the place of.
        lost,
        skipped,
        replaced,
        /// Answers that came for an epoch nobody waits for any more.
        discarded,
        /// Times that what was read ahead was given up because the consumer asked for nothing.
        parks,
        /// Calls of the consumer that found no batch ready.
        stalls,
        /// Time the consumer spent waiting.
        wait_microseconds,
    }
}

numbers! {
    /// How things stand now.
    Gauges, GaugeSnapshot {
        epoch,
        /// Batches handed out of this epoch.
        step,
        steps,
        /// What the window allows in flight.
        window_bytes,
        /// What `held_bytes` may reach; less than was asked for where a store on this machine needs no more.
        prefetch_bytes,
        inflight_bytes,
        inflight_samples,
        /// Samples that have arrived and whose batch is not full yet.
        arrived_samples,
        ready_batches,
        /// Requested, arrived and assembled bytes that nobody has taken: what `prefetch_bytes` limits.
        held_bytes,
        peak_held_bytes,
        peak_inflight_bytes,
    }
}

impl Gauges {
    pub fn raise_peaks(&self, held_bytes: u64, inflight_bytes: u64) {
        self.peak_held_bytes
            .fetch_max(held_bytes, Ordering::Relaxed);
        self.peak_inflight_bytes
            .fetch_max(inflight_bytes, Ordering::Relaxed);
    }
}

/// The parts of a sample's way that are timed.
#[derive(Debug, Default)]
pub struct Stages {
    /// From the request to the answer, per sample. Samples that a store on this machine puts into a batch are timed
    /// together and count with equal shares, here and in `verify`.
    pub request: Histogram,
    /// The consumer's wait, per batch.
    pub wait: Histogram,
    /// Checking a sample against the members.
    pub verify: Histogram,
    /// Copying the samples of a batch into the arena, all of them together.
    pub copy: Histogram,
    /// From a batch being ready to the consumer taking it.
    pub deliver: Histogram,
}

impl Stages {
    pub fn snapshot(&self) -> StageSnapshots {
        [
            ("request", &self.request),
            ("wait", &self.wait),
            ("verify", &self.verify),
            ("copy", &self.copy),
            ("deliver", &self.deliver),
        ]
        .map(|(name, histogram)| (name, histogram.snapshot()))
    }
}

/// Name and histogram of each stage.
pub type StageSnapshots = [(&'static str, HistogramSnapshot); 5];

/// Everything that is measured, shared between the driver, the copying threads and the consumer.
#[derive(Debug, Default)]
pub struct Stats {
    pub counters: Counters,
    pub gauges: Gauges,
    pub stages: Stages,
}

/// Adds to a counter.
pub fn add(counter: &AtomicU64, value: u64) {
    counter.fetch_add(value, Ordering::Relaxed);
}

/// Sets a gauge.
pub fn set(gauge: &AtomicU64, value: u64) {
    gauge.store(value, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quantiles_of_a_thousand_even_durations() {
        let histogram = Histogram::default();
        for i in 1..=1000 {
            histogram.record(Duration::from_micros(i * 100));
        }
        let snapshot = histogram.snapshot();
        assert_eq!(snapshot.count(), 1000);
        assert_eq!(snapshot.max_microseconds, 100_000);
        assert_eq!(snapshot.sum_microseconds, 50_050_000);
        let median = snapshot.quantile_microseconds(0.5);
        assert!((50_000..=62_500).contains(&median), "{median}");
        assert_eq!(snapshot.quantile_microseconds(1.0), 100_000);
        assert_eq!(snapshot.filled().map(|(_, times)| times).sum::<u64>(), 1000);
    }

    #[test]
    fn durations_measured_together_count_one_by_one() {
        let histogram = Histogram::default();
        histogram.record_shares(Duration::from_micros(6403), 64);
        histogram.record_shares(Duration::from_micros(5), 0);
        let snapshot = histogram.snapshot();
        assert_eq!((snapshot.count(), snapshot.sum_microseconds), (64, 6403));
        assert_eq!(
            (
                snapshot.max_microseconds,
                snapshot.quantile_microseconds(0.5)
            ),
            (100, 100)
        );
    }

    #[test]
    fn an_empty_histogram_has_quantile_zero() {
        assert_eq!(
            Histogram::default().snapshot().quantile_microseconds(0.99),
            0
        );
    }

    #[test]
    fn counters_have_their_names() {
        let counters = Counters::default();
        add(&counters.samples, 3);
        let named = counters.snapshot().named();
        assert_eq!(named[0], ("samples", 3));
        assert!(named.contains(&("wait_microseconds", 0)));
    }

    proptest! {
        #[test]
        fn a_duration_lies_in_its_bucket(microseconds in 0_u64..1 << 32) {
            let bucket = bucket_of(microseconds);
            prop_assert!(microseconds < bucket_end(bucket));
            prop_assert!(bucket == 0 || microseconds >= bucket_end(bucket - 1));
        }
    }
}
