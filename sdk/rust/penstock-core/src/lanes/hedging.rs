//! When a read that takes long is asked for a second time, and how often that may happen.

use std::time::Duration;

use crate::stats::HistogramSnapshot;

/// Share of all reads that may be asked for twice.
pub const SHARE: f64 = 0.05;
/// What may be spent at once: what several lanes have on their way when they turn slow together. Reads that wait for them
/// keep others from being asked for, and those from earning anything (measured at 150 ms: when a quarter of the lanes fell
/// to a tenth of their rate, batches came unevenly for 0.9 s, and for 3 to 5 s with an eighth of this).
const MOST: f64 = 512.0;
/// Fewer answers of the other lanes say nothing about their slowest.
const LEAST_ANSWERS: u64 = 50;
/// Nobody gains by asking again sooner.
const LEAST_WAIT: Duration = Duration::from_millis(20);

/// Counts what reads have earned and second reads have spent.
#[derive(Debug)]
pub struct Budget {
    share: f64,
    saved: f64,
}

impl Budget {
    /// This share of all reads.
    pub const fn of(share: f64) -> Self {
        Self { share, saved: 0.0 }
    }

    pub fn earn(&mut self) {
        self.saved = (self.saved + self.share).min(MOST);
    }

    pub fn spend(&mut self) -> bool {
        let is_enough = self.saved >= 1.0;
        if is_enough {
            self.saved -= 1.0;
        }
        is_enough
    }
}

/// For each lane: the time after which 99 of 100 answers of the *other* lanes are there. A slow lane would
/// otherwise call its own slowness normal.
pub fn patience(delays: &[HistogramSnapshot]) -> Vec<Option<Duration>> {
    let Some(all) = delays.iter().cloned().reduce(|sum, each| sum.plus(&each)) else {
        return Vec::new();
    };
    delays
        .iter()
        .map(|own| {
            let others = all.minus(own);
            if others.count() < LEAST_ANSWERS {
                return None;
            }
            let p99 = Duration::from_micros(others.quantile_microseconds(0.99));
            Some(p99.max(LEAST_WAIT))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Histogram;

    fn delays(milliseconds: u64, count: u64) -> HistogramSnapshot {
        let histogram = Histogram::default();
        (0..count).for_each(|_| histogram.record(Duration::from_millis(milliseconds)));
        histogram.snapshot()
    }

    #[test]
    fn one_read_in_twenty_may_be_hedged() {
        let mut budget = Budget::of(SHARE);
        let hedged = (0..1000).filter(|_| {
            budget.earn();
            budget.spend()
        });
        assert_eq!(hedged.count(), 50);
    }

    #[test]
    fn what_was_saved_in_good_times_is_bounded() {
        let mut budget = Budget::of(SHARE);
        (0..1_000_000).for_each(|_| budget.earn());
        assert_eq!((0..1000).filter(|_| budget.spend()).count(), 512);
    }

    #[test]
    fn a_slow_lane_is_measured_by_the_others() {
        let waits = patience(&[delays(100, 200), delays(110, 200), delays(900, 200)]);
        assert!(waits[2].unwrap() < Duration::from_millis(160), "{waits:?}");
        assert!(waits[0].unwrap() > Duration::from_millis(800), "{waits:?}");
    }

    #[test]
    fn a_lone_lane_has_nobody_to_be_measured_by() {
        assert_eq!(patience(&[delays(100, 1000)]), vec![None]);
        assert!(patience(&[]).is_empty());
    }
}
