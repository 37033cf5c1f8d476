//! All that an engine has measured, at one moment.

use std::time::{Duration, Instant};

use super::{Engine, EngineError};
use crate::arena::PoolStats;
use crate::lanes::LaneStats;
use crate::stats::{CounterSnapshot, GaugeSnapshot, StageSnapshots};
use crate::store::StoreCounters;

/// What an engine has done and how it stands; `docs/stats.md` explains every number.
#[derive(Debug, Clone)]
pub struct EngineSnapshot {
    pub counters: CounterSnapshot,
    pub gauges: GaugeSnapshot,
    pub stages: StageSnapshots,
    /// What the store has done; other engines on the same store are in it.
    pub store: StoreCounters,
    /// The connections of the store; other engines use them too.
    pub lanes: Vec<LaneStats>,
    pub pool: PoolStats,
    /// How long all of this took to be taken.
    pub taken_in: Duration,
}

impl Engine {
    /// Cheap enough to be taken many times a second while training.
    pub fn snapshot(&self) -> Result<EngineSnapshot, EngineError> {
        self.owner.check()?;
        let started = Instant::now();
        let mut snapshot = EngineSnapshot {
            counters: self.stats.counters.snapshot(),
            gauges: self.stats.gauges.snapshot(),
            stages: self.stats.stages.snapshot(),
            store: self.store.counters(),
            lanes: self.store.lanes(),
            pool: self.pool.stats(),
            taken_in: Duration::ZERO,
        };
        snapshot.taken_in = started.elapsed();
        Ok(snapshot)
    }
}
