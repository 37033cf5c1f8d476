//! Making a batch of its samples: one copy into the arena, on a thread that neither reads nor runs Python.

use std::sync::Arc;
use std::time::Instant;

use super::batch::{Batch, FieldBlock};
use super::reads::Outcome;
use crate::arena::Pool;
use crate::id::Id;
use crate::stats::Stats;
use crate::store::FieldData;

/// A sample that stands in for one that could not be read.
#[derive(Debug, Clone)]
pub(super) struct Donor {
    pub sample_id: Id,
    pub position: u64,
    pub fields: Vec<FieldData>,
}

/// A batch to be made.
#[derive(Debug)]
pub(super) struct Assembly {
    pub generation: u64,
    pub epoch: u64,
    pub step: u64,
    pub names: Arc<[Arc<str>]>,
    pub outcomes: Vec<Outcome>,
    /// Given when failures are replaced instead of left out.
    pub donor: Option<Donor>,
    pub pool: Pool,
    pub stats: Arc<Stats>,
}

/// A batch that has been made.
#[derive(Debug)]
pub(super) struct Assembled {
    pub generation: u64,
    pub batch: Batch,
    /// What its samples counted against `prefetch_bytes` before they were copied.
    pub source_bytes: u64,
}

/// One row of the batch.
#[derive(Debug)]
struct Row<'a> {
    sample_id: Id,
    position: u64,
    is_valid: bool,
    fields: &'a [FieldData],
}

impl Assembly {
    /// What the batch will need in the arena.
    pub fn arena_bytes(&self) -> u64 {
        self.rows()
            .iter()
            .flat_map(|row| row.fields)
            .map(|data| data.size_bytes)
            .sum()
    }

    fn rows(&self) -> Vec<Row<'_>> {
        self.outcomes
            .iter()
            .filter_map(|outcome| match (&outcome.answer, &self.donor) {
                (Ok(fields), _) => Some(Row {
                    sample_id: outcome.sample_id,
                    position: outcome.slot.position,
                    is_valid: !outcome.slot.is_padding,
                    fields,
                }),
                (Err(_), Some(donor)) => Some(Row {
                    sample_id: donor.sample_id,
                    position: donor.position,
                    is_valid: false,
                    fields: &donor.fields,
                }),
                (Err(_), None) => None,
            })
            .collect()
    }

    pub fn run(self) -> Assembled {
        let started = Instant::now();
        let rows = self.rows();
        let fields: Vec<FieldBlock> = (0..self.names.len())
            .map(|field| self.copy_field(field, &rows))
            .collect();
        let batch = Batch {
            seq: 0,
            epoch: self.epoch,
            step: self.step,
            ids: rows.iter().flat_map(|r| *r.sample_id.as_bytes()).collect(),
            positions: rows.iter().map(|row| row.position).collect(),
            valid: rows.iter().map(|row| row.is_valid).collect(),
            done: done_ranges(&self.outcomes),
            held_bytes: fields.iter().map(|f| f.block.len() as u64).sum(),
            ready_at: Instant::now(),
            fields,
        };
        self.stats.stages.copy.record(started.elapsed());
        Assembled {
            generation: self.generation,
            batch,
            source_bytes: self.outcomes.iter().map(|o| o.cost_bytes).sum(),
        }
    }

    fn copy_field(&self, field: usize, rows: &[Row<'_>]) -> FieldBlock {
        let mut offsets = Vec::with_capacity(rows.len() + 1);
        let mut end = 0;
        offsets.push(0);
        for row in rows {
            end += row.fields[field].size_bytes;
            offsets.push(end);
        }
        let mut block = self.pool.take(usize::try_from(end).unwrap_or(usize::MAX));
        let mut rest = block.as_mut_slice();
        for row in rows {
            let data = &row.fields[field];
            let size = usize::try_from(data.size_bytes).unwrap_or(usize::MAX);
            let (target, behind) = rest.split_at_mut(size);
            data.copy_to(target);
            rest = behind;
        }
        FieldBlock {
            name: self.names[field].clone(),
            block: block.freeze(),
            offsets,
        }
    }
}

/// The slots that a batch uses up as ranges; repeats that only pad use up none.
fn done_ranges(outcomes: &[Outcome]) -> Vec<(u64, u64)> {
    let mut slots: Vec<u64> = outcomes
        .iter()
        .filter(|outcome| !outcome.slot.is_padding)
        .map(|outcome| outcome.slot.own)
        .collect();
    slots.sort_unstable();
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for slot in slots {
        match ranges.last_mut() {
            Some((start, length)) if *start + *length == slot => *length += 1,
            _ => ranges.push((slot, 1)),
        }
    }
    ranges
}
