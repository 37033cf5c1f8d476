//! What an engine has measured, as the dict that `docs/stats.md` describes.

use penstock_core::engine::EngineSnapshot;
use penstock_core::lanes::LaneStats;
use penstock_core::stats::HistogramSnapshot;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

pub fn dict<'py>(py: Python<'py>, snapshot: &EngineSnapshot) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (name, value) in snapshot.counters.named() {
        match name.strip_suffix("_microseconds") {
            Some(stem) => dict.set_item(format!("{stem}_seconds"), scaled(value, 1e-6))?,
            None => dict.set_item(name, value)?,
        }
    }
    for (name, value) in snapshot.gauges.named() {
        dict.set_item(name, value)?;
    }
    dict.set_item("escalations", snapshot.store.escalations)?;
    dict.set_item("hedges", snapshot.store.hedges)?;
    dict.set_item("hedge_wins", snapshot.store.hedge_wins)?;
    dict.set_item("silences", snapshot.store.silences)?;
    dict.set_item("probes", snapshot.store.probes)?;
    dict.set_item("damaged", snapshot.store.damaged)?;
    dict.set_item("lanes", snapshot.lanes.len())?;
    dict.set_item("lane_stats", lane_list(py, &snapshot.lanes)?)?;
    dict.set_item("arena_idle_bytes", snapshot.pool.idle_bytes)?;
    dict.set_item("arena_lent_bytes", snapshot.pool.lent_bytes)?;
    dict.set_item("snapshot_ms", snapshot.taken_in.as_secs_f64() * 1e3)?;
    for (name, histogram) in &snapshot.stages {
        dict.set_item(*name, stage(py, histogram)?)?;
    }
    Ok(dict)
}

#[allow(clippy::cast_precision_loss)] // counts of microseconds stay far below 2**53
fn scaled(value: u64, factor: f64) -> f64 {
    value as f64 * factor
}

fn stage<'py>(py: Python<'py>, snapshot: &HistogramSnapshot) -> PyResult<Bound<'py, PyDict>> {
    let milliseconds = |microseconds| scaled(microseconds, 1e-3);
    let dict = PyDict::new(py);
    dict.set_item("count", snapshot.count())?;
    dict.set_item("sum_ms", milliseconds(snapshot.sum_microseconds))?;
    dict.set_item("max_ms", milliseconds(snapshot.max_microseconds))?;
    for (name, share) in [("p50_ms", 0.5), ("p90_ms", 0.9), ("p99_ms", 0.99)] {
        dict.set_item(name, milliseconds(snapshot.quantile_microseconds(share)))?;
    }
    let buckets: Vec<(f64, u64)> = snapshot
        .filled()
        .map(|(end, count)| (milliseconds(end), count))
        .collect();
    dict.set_item("buckets", buckets)?;
    Ok(dict)
}

fn lane_list<'py>(py: Python<'py>, lanes: &[LaneStats]) -> PyResult<Bound<'py, PyList>> {
    let list = PyList::empty(py);
    for lane in lanes {
        let dict = PyDict::new(py);
        let reading = &lane.reading;
        dict.set_item("node", lane.node.to_string())?;
        dict.set_item("state", lane.state)?;
        dict.set_item("delay_ms", reading.delay.as_secs_f64() * 1e3)?;
        dict.set_item("rate", reading.rate)?;
        dict.set_item("outstanding_bytes", reading.outstanding_bytes)?;
        dict.set_item("outstanding", reading.outstanding)?;
        dict.set_item("answers", reading.answers)?;
        dict.set_item("bytes", reading.bytes)?;
        dict.set_item("failures", reading.failures)?;
        dict.set_item("hedged", lane.hedged)?;
        let patience = lane.patience.map(|wait| wait.as_secs_f64() * 1e3);
        dict.set_item("patience_ms", patience)?;
        dict.set_item("shard", lane.shard.map(|shard| shard.index))?;
        dict.set_item("answer", stage(py, &lane.answer_times)?)?;
        list.append(dict)?;
    }
    Ok(list)
}
