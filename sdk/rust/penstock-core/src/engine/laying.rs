//! A batch while its samples come in. Each is copied into the arena when it arrives, while the processor still has it
//! at hand, and the memory it was received in is free for the next answer.

use std::time::{Duration, Instant};

use super::config::OnError;
use super::donors::Donor;
use super::end_for_want_of;
use super::reads::{Outcome, Payload};
use crate::arena::{BlockMut, Pool};
use crate::store::FieldData;

/// The outcomes of a batch that is not full yet, each at its place.
#[derive(Debug)]
pub(super) struct OpenBatch {
    pub step: u64,
    places: Vec<Option<Outcome>>,
    taken: usize,
    /// What has been copied so far.
    laying: Option<Laying>,
    /// The first places whose samples are in the arena, or are left out of the batch.
    settled: usize,
    /// The first sample that was copied, where one may be needed in the place of others.
    donor: Option<Donor>,
}

/// What a full batch is made of.
#[derive(Debug)]
pub(super) struct Cut {
    pub step: u64,
    /// In the order of the batch.
    pub outcomes: Vec<Outcome>,
    /// What of it is in the arena: the samples of the first outcomes, failures left out.
    pub laying: Option<Laying>,
    pub donor: Option<Donor>,
    /// Whether nothing is left to be copied.
    pub is_settled: bool,
}

impl Cut {
    /// What its samples count against `prefetch_bytes`.
    pub fn cost_bytes(&self) -> u64 {
        self.outcomes.iter().map(|outcome| outcome.cost_bytes).sum()
    }
}

impl OpenBatch {
    pub fn new(step: u64, batch_len: usize) -> Self {
        let mut places = Vec::new();
        places.resize_with(batch_len, || None);
        Self {
            step,
            places,
            taken: 0,
            laying: None,
            settled: 0,
            donor: None,
        }
    }

    pub fn len(&self) -> usize {
        self.taken
    }

    pub fn is_full(&self) -> bool {
        self.taken == self.places.len()
    }

    /// At the place given, or at the next one.
    pub fn put(&mut self, place: Option<usize>, outcome: Outcome) {
        let place = place.unwrap_or(self.taken);
        debug_assert!(
            self.places[place].is_none(),
            "two outcomes at place {place}"
        );
        self.places[place] = Some(outcome);
        self.taken += 1;
    }

    /// Copies what has come, up to the first gap. A failure that has to be replaced, or that spoils the batch, stops it:
    /// what becomes of the batch is known when it is full.
    pub fn lay(&mut self, rooms: &Rooms, pool: &Pool, on_error: OnError) {
        while let Some(Some(outcome)) = self.places.get_mut(self.settled) {
            match &outcome.answer {
                Ok(Payload::Here(fields)) => {
                    if on_error == OnError::Replace && self.donor.is_none() {
                        self.donor = Donor::of(outcome);
                    }
                    let laying = self.laying.get_or_insert_with(|| rooms.begin(pool));
                    laying.add(fields, pool);
                    outcome.answer = Ok(Payload::Laid);
                }
                Err(_) if on_error == OnError::Skip => {}
                Ok(_) | Err(_) => return,
            }
            self.settled += 1;
        }
    }

    pub fn into_cut(self) -> Cut {
        Cut {
            step: self.step,
            is_settled: self.settled == self.places.len(),
            outcomes: self.places.into_iter().flatten().collect(),
            laying: self.laying,
            donor: self.donor,
        }
    }

    pub fn outcomes(&self) -> impl Iterator<Item = &Outcome> {
        self.places.iter().flatten()
    }
}

/// Part of the room that a batch gets beyond what others have needed.
const SPARE: usize = 8;
/// Weight of a batch that needed less, one in so many; one that needed more counts for half.
const MEMORY: usize = 8;

/// What full batches have lately needed for each field. Sizes differ: a block that turns out too small has to be moved,
/// one that is too large holds memory that counts for nobody.
#[derive(Debug)]
pub(super) struct Rooms(Vec<usize>);

impl Rooms {
    /// Begins with what is to be expected of each field.
    pub fn new(expected_bytes: impl Iterator<Item = u64>) -> Self {
        let bytes = expected_bytes.map(|bytes| usize::try_from(bytes).unwrap_or(usize::MAX));
        Self(bytes.collect())
    }

    fn begin(&self, pool: &Pool) -> Laying {
        let fields = self.0.iter().map(|room| LaidField {
            block: take(pool, room + room / SPARE),
            offsets: vec![0],
        });
        Laying {
            fields: fields.collect(),
            rows: 0,
            spent: Duration::ZERO,
        }
    }

    /// Learns from a full batch.
    pub fn note(&mut self, laying: &Laying) {
        for (room, field) in self.0.iter_mut().zip(&laying.fields) {
            let needed = field.end();
            *room = if needed > *room {
                *room + (needed - *room).div_ceil(2)
            } else {
                *room - (*room - needed) / MEMORY
            };
        }
    }
}

/// The arena's side of a batch: the samples of each field end to end.
#[derive(Debug)]
pub(super) struct Laying {
    fields: Vec<LaidField>,
    rows: usize,
    /// Time spent on copies.
    spent: Duration,
}

#[derive(Debug)]
pub(super) struct LaidField {
    pub block: BlockMut,
    /// Where each sample starts, and where the next one will.
    pub offsets: Vec<u64>,
}

impl Laying {
    /// One more sample.
    pub fn add(&mut self, fields: &[FieldData], pool: &Pool) {
        self.rows += 1;
        if fields.is_empty() {
            return;
        }
        let started = Instant::now();
        for (laid, data) in self.fields.iter_mut().zip(fields) {
            laid.add(data, pool);
        }
        self.spent += started.elapsed();
    }

    /// How many samples there are.
    pub fn rows(&self) -> usize {
        self.rows
    }

    pub fn spent(&self) -> Duration {
        self.spent
    }

    /// Exactly the samples, nothing behind them.
    pub fn finish(self) -> Vec<LaidField> {
        let finished = self.fields.into_iter().map(|mut field| {
            field.block.truncate(field.end());
            field
        });
        finished.collect()
    }
}

impl LaidField {
    fn end(&self) -> usize {
        let end = self.offsets.last().copied().unwrap_or_default();
        usize::try_from(end).unwrap_or(usize::MAX)
    }

    fn add(&mut self, data: &FieldData, pool: &Pool) {
        let start = self.end();
        let end = start + usize::try_from(data.size_bytes).unwrap_or(usize::MAX);
        if end > self.block.as_ref().len() {
            let mut larger = take(pool, end.max(start + start / 4));
            larger.as_mut_slice()[..start].copy_from_slice(&self.block.as_ref()[..start]);
            self.block = larger;
        }
        data.copy_to(&mut self.block.as_mut_slice()[start..end]);
        self.offsets.push(end as u64);
    }
}

/// A block of at least this size.
fn take(pool: &Pool, bytes: usize) -> BlockMut {
    let block = pool.take_at_least(bytes);
    block.unwrap_or_else(|memory| end_for_want_of(memory))
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn field(content: Vec<u8>) -> FieldData {
        FieldData {
            name: "image".into(),
            size_bytes: content.len() as u64,
            chunks: vec![Bytes::from(content)],
            xxh3: 0,
            is_verified: true,
        }
    }

    #[test]
    fn a_block_that_turns_out_too_small_is_moved_with_all_that_is_in_it() {
        let pool = Pool::new(1 << 20);
        let mut rooms = Rooms::new([5_000, 0].into_iter());
        let mut laying = rooms.begin(&pool);
        let sizes = [3_000_usize, 0, 4_000, 90_000, 1, 50_000];
        for (row, size) in (1..).zip(sizes) {
            laying.add(&[field(vec![row; size]), field(vec![row; 7])], &pool);
        }
        assert_eq!(laying.rows(), sizes.len());
        (0..100).for_each(|_| rooms.note(&laying));
        let wide: usize = sizes.iter().sum();
        for (room, needed) in rooms.0.iter().zip([wide, 7 * sizes.len()]) {
            assert!(room.abs_diff(needed) < MEMORY, "{room} for {needed}");
        }
        let fields = laying.finish();
        for (laid, sizes) in fields.iter().zip([sizes, [7; 6]]) {
            let expected: Vec<u8> = (1..)
                .zip(sizes)
                .flat_map(|(row, size)| vec![row; size])
                .collect();
            assert_eq!(laid.block.as_ref(), expected);
            let lengths = laid.offsets.windows(2).map(|pair| pair[1] - pair[0]);
            assert!(lengths.eq(sizes.iter().map(|size| *size as u64)));
        }
    }
}
