//! Making a batch of its samples. Those that came over a network are in the arena already, or stay as they are when the
//! batch is a list; what lies in a store on this machine is read straight into its place.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::batch::{Batch, BatchField, Content};
use super::config::BatchForm;
use super::donors::Donor;
use super::end_for_want_of;
use super::failures::Missed;
use super::laying::{Cut, LaidField, Laying};
use super::reads::{Outcome, Payload, Reader};
use crate::arena::Pool;
use crate::id::Id;
use crate::stats::Stats;
use crate::store::FieldData;

/// A batch to be made.
#[derive(Debug)]
pub(super) struct Assembly {
    pub epoch: u64,
    pub cut: Cut,
    pub names: Arc<[Arc<str>]>,
    /// Given when failures are replaced instead of left out.
    pub donor: Option<Donor>,
    pub form: BatchForm,
    pub reader: Arc<Reader>,
    pub pool: Pool,
    pub stats: Arc<Stats>,
}

/// One row of the batch.
#[derive(Debug)]
struct Row<'a> {
    sample_id: Id,
    position: u64,
    is_valid: bool,
    payload: &'a Payload,
}

impl Assembly {
    fn rows(&self) -> Vec<Row<'_>> {
        let outcomes = self.cut.outcomes.iter();
        outcomes
            .filter_map(|outcome| match (&outcome.answer, &self.donor) {
                (Ok(payload), _) => Some(Row {
                    sample_id: outcome.sample_id,
                    position: outcome.slot.position,
                    is_valid: !outcome.slot.is_padding,
                    payload,
                }),
                (Err(_), Some(donor)) => Some(Row {
                    sample_id: donor.sample_id,
                    position: donor.position,
                    is_valid: false,
                    payload: &donor.payload,
                }),
                (Err(_), None) => None,
            })
            .collect()
    }

    /// The batch, or its samples when a store on this machine could not fill it with them.
    pub fn run(mut self) -> Result<Batch, Cut> {
        let started = Instant::now();
        let laying = self.cut.laying.take();
        let copied_before = laying.as_ref().map_or(Duration::ZERO, Laying::spent);
        let rows = self.rows();
        let Some(fields) = self.fields(&rows, laying) else {
            drop(rows);
            return Err(self.cut);
        };
        let batch = Batch {
            seq: 0,
            epoch: self.epoch,
            step: self.cut.step,
            ids: rows.iter().flat_map(|r| *r.sample_id.as_bytes()).collect(),
            positions: rows.iter().map(|row| row.position).collect(),
            valid: rows.iter().map(|row| row.is_valid).collect(),
            done: done_ranges(&self.cut.outcomes),
            missed: Missed::unread(&self.cut.outcomes),
            held_bytes: self.cut.cost_bytes(),
            ready_at: Instant::now(),
            fields,
        };
        let copying = copied_before + started.elapsed();
        self.stats.stages.copy.record(copying);
        Ok(batch)
    }

    fn fields(&self, rows: &[Row<'_>], laying: Option<Laying>) -> Option<Vec<BatchField>> {
        let named = |contents: Vec<Content>| {
            let named = self.names.iter().cloned().zip(contents);
            named.map(|(name, content)| BatchField { name, content })
        };
        if self.form == BatchForm::List
            && let Some(lists) = self.lists(rows)
        {
            return Some(named(lists).collect());
        }
        let laid = match laying {
            Some(laying) => self.lay_rest(rows, laying),
            None => self.fill(rows)?,
        };
        let contents = laid.into_iter().map(|field| match self.form {
            BatchForm::Arena => Content::Arena {
                block: field.block.freeze(),
                offsets: field.offsets,
            },
            BatchForm::List => {
                let bytes = field.block.into_bytes();
                let samples = field.offsets.windows(2).map(range);
                Content::List(samples.map(|range| bytes.slice(range)).collect())
            }
        });
        Some(named(contents.collect()).collect())
    }

    /// The samples as they came; none when some have not come yet.
    fn lists(&self, rows: &[Row<'_>]) -> Option<Vec<Content>> {
        let samples = rows.iter().map(|row| match row.payload {
            Payload::Here(fields) => Some(fields),
            Payload::Near(_) | Payload::Laid => None,
        });
        let samples: Vec<&Vec<FieldData>> = samples.collect::<Option<_>>()?;
        let list = |field: usize| samples.iter().map(move |fields| fields[field].to_bytes());
        let lists = (0..self.names.len()).map(|field| Content::List(list(field).collect()));
        Some(lists.collect())
    }

    /// Adds what could not be copied before all outcomes were known.
    fn lay_rest(&self, rows: &[Row<'_>], mut laying: Laying) -> Vec<LaidField> {
        for row in &rows[laying.rows()..] {
            if let Payload::Here(fields) = row.payload {
                laying.add(fields, &self.pool);
            }
        }
        debug_assert_eq!(laying.rows(), rows.len());
        laying.finish()
    }

    fn fill(&self, rows: &[Row<'_>]) -> Option<Vec<LaidField>> {
        let mut laid: Vec<LaidField> = (0..self.names.len())
            .map(|field| self.take_block(rows.iter().map(|row| row.payload.size_bytes(field))))
            .collect();
        let mut targets: Vec<Vec<&mut [u8]>> = rows.iter().map(|_| Vec::new()).collect();
        for field in &mut laid {
            let mut rest = field.block.as_mut_slice();
            for (targets, pair) in targets.iter_mut().zip(field.offsets.windows(2)) {
                let (target, behind) = rest.split_at_mut(range(pair).len());
                targets.push(target);
                rest = behind;
            }
        }
        let mut near = Vec::new();
        let mut near_samples = 0;
        for (row, targets) in rows.iter().zip(targets) {
            match row.payload {
                Payload::Near(request) => {
                    near.extend(request.near_reads(targets));
                    near_samples += 1;
                }
                Payload::Here(fields) => {
                    for (data, target) in fields.iter().zip(targets) {
                        data.copy_to(target);
                    }
                }
                Payload::Laid => {}
            }
        }
        let is_whole = near.is_empty() || self.reader.fill(&mut near, near_samples);
        is_whole.then_some(laid)
    }

    fn take_block(&self, sizes: impl Iterator<Item = u64>) -> LaidField {
        let mut offsets = vec![0];
        let mut end = 0;
        for size_bytes in sizes {
            end += size_bytes;
            offsets.push(end);
        }
        let block = self.pool.take(usize::try_from(end).unwrap_or(usize::MAX));
        let block = block.unwrap_or_else(|memory| end_for_want_of(memory));
        LaidField { block, offsets }
    }
}

fn range(pair: &[u64]) -> std::ops::Range<usize> {
    let [start, end] = [pair[0], pair[1]].map(|place| usize::try_from(place).unwrap_or(usize::MAX));
    start..end
}

/// The slots that a batch uses up as ranges; repeats that only pad use up none.
pub(super) fn done_ranges(outcomes: &[Outcome]) -> Vec<(u64, u64)> {
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
