//! Reading one sample: one request for each object that its fields lie in, checked against the members.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;

use super::SampleError;
use super::laying::Cut;
use crate::checksum::xxh3_of_chunks;
use crate::errors::StoreError;
use crate::id::Id;
use crate::members::{Entry, Members};
use crate::plan::Slot;
use crate::retry::Random;
use crate::stats::{Stats, add};
use crate::store::{
    Consistency, FieldData, Fields, NearField, NearRead, ReadRequest, Record, Store, Table,
};

/// Pauses before a store that does not answer is asked again: from the first they double up to the last.
const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LAST_PAUSE: Duration = Duration::from_secs(1);

/// Counted for each sample besides its bytes, so that samples without bytes are bounded too, and what is said about
/// those that could not be read.
pub(super) const SLOT_COST_BYTES: u64 = 256;

/// What came of one slot.
#[derive(Debug)]
pub(super) struct Outcome {
    pub slot: Slot,
    pub sample_id: Id,
    /// What the sample counts against `prefetch_bytes`.
    pub cost_bytes: u64,
    pub answer: Result<Payload, SampleError>,
}

impl Outcome {
    pub fn of(slot: Slot, sample_id: Id, cost_bytes: u64, payload: Payload) -> Self {
        Self {
            slot,
            sample_id,
            cost_bytes,
            answer: Ok(payload),
        }
    }
}

/// Where the bytes of a sample are.
#[derive(Debug)]
pub(super) enum Payload {
    /// The fields in the order of the members.
    Here(Vec<FieldData>),
    /// In a store on this machine: whoever makes the batch reads them into it.
    Near(Box<SampleRequest>),
    /// In the batch that the sample is part of.
    Laid,
}

impl Payload {
    pub fn size_bytes(&self, field: usize) -> u64 {
        match self {
            Self::Here(fields) => fields[field].size_bytes,
            Self::Near(request) => request.entries[field].size_bytes,
            Self::Laid => 0,
        }
    }
}

/// An answered read, good or bad.
#[derive(Debug)]
pub(super) struct ReadDone {
    pub generation: u64,
    pub outcome: Outcome,
    /// What the window was told when the read went out.
    pub window_bytes: u64,
    pub delay: Duration,
}

/// One object and the fields wanted of it.
#[derive(Debug, Clone)]
struct ObjectRequest {
    object_id: Id,
    size_bytes: u64,
    group: FieldGroup,
}

/// Everything needed to read one sample, without the members: they belong to the consumer's memory.
#[derive(Debug, Clone)]
pub(super) struct SampleRequest {
    pub generation: u64,
    pub slot: Slot,
    pub sample_id: Id,
    pub cost_bytes: u64,
    pub window_bytes: u64,
    entries: Vec<Entry>,
    objects: Vec<ObjectRequest>,
}

impl SampleRequest {
    /// Asks a store on this machine for the fields; one target for each.
    pub fn near_reads<'a>(&self, targets: Vec<&'a mut [u8]>) -> Vec<NearRead<'a>> {
        let mut targets: Vec<_> = targets.into_iter().map(Some).collect();
        let mut field = |index: usize, name: &Arc<str>| {
            Some(NearField {
                name: Arc::clone(name),
                xxh3: self.entries[index].xxh3,
                target: targets[index].take()?,
            })
        };
        let read = |object: &ObjectRequest| NearRead {
            object_id: object.object_id,
            fields: object
                .group
                .fields
                .iter()
                .zip(&*object.group.names)
                .filter_map(|(index, name)| field(*index, name))
                .collect(),
            is_filled: false,
        };
        self.objects.iter().map(read).collect()
    }
}

/// Fields that lie in one object together: indices into the members' fields, and names.
#[derive(Debug, Clone)]
struct FieldGroup {
    /// The same indices as bits.
    mask: u64,
    fields: Arc<[usize]>,
    names: Arc<[Arc<str>]>,
}

/// Turns slots into requests. Groups of fields repeat, so they are made once.
#[derive(Debug, Default)]
pub(super) struct Requests {
    groups: Vec<FieldGroup>,
}

impl Requests {
    pub fn sample(
        &mut self,
        members: &Members,
        slot: Slot,
        generation: u64,
        cost_bytes: u64,
    ) -> SampleRequest {
        let entries: Vec<Entry> = (0..members.fields().len())
            .map(|field| members.entry(slot.position, field))
            .collect();
        let mut masks: Vec<(Id, u64)> = Vec::with_capacity(1);
        for (field, entry) in entries.iter().enumerate() {
            match masks.iter_mut().find(|(id, _)| *id == entry.object_id) {
                Some((_, mask)) => *mask |= 1 << field,
                None => masks.push((entry.object_id, 1 << field)),
            }
        }
        let objects = masks
            .into_iter()
            .map(|(object_id, mask)| {
                let group = self.group(mask, members.fields());
                let sizes = group.fields.iter().map(|field| entries[*field].size_bytes);
                ObjectRequest {
                    object_id,
                    size_bytes: sizes.sum(),
                    group,
                }
            })
            .collect();
        let size_bytes: u64 = entries.iter().map(|entry| entry.size_bytes).sum();
        SampleRequest {
            generation,
            slot,
            sample_id: members.id(slot.position),
            cost_bytes,
            window_bytes: size_bytes.max(1),
            entries,
            objects,
        }
    }

    fn group(&mut self, mask: u64, names: &[Arc<str>]) -> FieldGroup {
        if let Some(group) = self.groups.iter().find(|group| group.mask == mask) {
            return group.clone();
        }
        let fields: Arc<[usize]> = (0..names.len())
            .filter(|field| mask >> field & 1 == 1)
            .collect();
        let group = FieldGroup {
            mask,
            names: fields.iter().map(|field| names[*field].clone()).collect(),
            fields,
        };
        self.groups.push(group.clone());
        group
    }
}

/// What all reads of an engine share.
#[derive(Debug)]
pub(super) struct Reader {
    pub store: Arc<dyn Store>,
    pub stats: Arc<Stats>,
    pub dataset_id: Id,
    pub store_wait: Duration,
}

impl Reader {
    pub async fn read(self: Arc<Self>, request: SampleRequest) -> ReadDone {
        let started = Instant::now();
        let answer = self.fields(&request).await.map(Payload::Here);
        let delay = started.elapsed();
        self.stats.stages.request.record(delay);
        ReadDone {
            generation: request.generation,
            outcome: Outcome {
                slot: request.slot,
                sample_id: request.sample_id,
                cost_bytes: request.cost_bytes,
                answer,
            },
            window_bytes: request.window_bytes,
            delay,
        }
    }

    /// Fills a batch with so many samples from a store on this machine; whether all of it could be.
    pub fn fill(&self, reads: &mut [NearRead<'_>], samples: u64) -> bool {
        let started = Instant::now();
        let near = self.store.near();
        let verifying = near.map_or(Duration::ZERO, |near| near.fill(self.dataset_id, reads));
        let reading = started.elapsed().saturating_sub(verifying);
        self.stats.stages.request.record_shares(reading, samples);
        self.stats.stages.verify.record_shares(verifying, samples);
        add(&self.stats.counters.requests, reads.len() as u64);
        reads.iter().all(|read| read.is_filled)
    }

    /// Reads what a batch could not be filled with the ordinary way, which waits, tries again and says what is wrong.
    pub async fn read_again(&self, cut: Cut) -> Cut {
        let outcomes = cut.outcomes.into_iter().map(|outcome| async move {
            match outcome.answer {
                Ok(Payload::Near(request)) => Outcome {
                    answer: self.fields(&request).await.map(Payload::Here),
                    ..outcome
                },
                _ => outcome,
            }
        });
        Cut {
            outcomes: join_all(outcomes).await,
            ..cut
        }
    }

    /// The fields of a sample, in the order of the members.
    pub async fn fields(&self, request: &SampleRequest) -> Result<Vec<FieldData>, SampleError> {
        if let [only] = request.objects.as_slice() {
            return Ok(self.object(request, only).await?.fields);
        }
        let reads = request.objects.iter().map(|o| self.object(request, o));
        let mut by_field: Vec<Option<FieldData>> = vec![None; request.entries.len()];
        for (object, record) in request.objects.iter().zip(join_all(reads).await) {
            for (field, data) in object.group.fields.iter().zip(record?.fields) {
                by_field[*field] = Some(data);
            }
        }
        Ok(by_field.into_iter().flatten().collect())
    }

    /// A sound record of one object. Answers that contradict the members are asked for once more, at a
    /// quorum; a store that is away is waited for.
    async fn object(
        &self,
        request: &SampleRequest,
        object: &ObjectRequest,
    ) -> Result<Record, SampleError> {
        let started = Instant::now();
        let mut consistency = Consistency::One;
        let mut attempts = 0;
        let mut pause = FIRST_PAUSE;
        let mut has_waited = false;
        let error = loop {
            match self.ask(object, consistency).await {
                Ok(record) => {
                    attempts += record.attempts;
                    let Err((field, reason)) = self.check(request, object, &record) else {
                        return Ok(record);
                    };
                    if consistency == Consistency::Quorum {
                        break StoreError::Corrupt {
                            dataset_id: self.dataset_id,
                            object_id: object.object_id,
                            field,
                            reason,
                            node: record.node.map(|node| node.to_string()),
                            // Those of all answers are added below.
                            attempts: 0,
                        };
                    }
                    consistency = Consistency::Quorum;
                }
                Err(error @ StoreError::Unavailable { .. })
                    if started.elapsed() < self.store_wait =>
                {
                    attempts += error.attempts().unwrap_or_default();
                    has_waited = true;
                    let jitter = 0.5 + 0.5 * Random::from_entropy().next_unit();
                    tokio::time::sleep(pause.mul_f64(jitter)).await;
                    pause = (pause * 2).min(LAST_PAUSE);
                }
                Err(error) => break error,
            }
            add(&self.stats.counters.retries, 1);
        };
        let waited = if has_waited {
            started.elapsed()
        } else {
            Duration::ZERO
        };
        let error = error.after(attempts, waited);
        Err(SampleError {
            sample_id: request.sample_id,
            fields: object.group.names.clone(),
            source: Box::new(error),
        })
    }

    async fn ask(
        &self,
        object: &ObjectRequest,
        consistency: Consistency,
    ) -> Result<Record, StoreError> {
        add(&self.stats.counters.requests, 1);
        let read = ReadRequest {
            table: Table::Samples,
            dataset_id: self.dataset_id,
            object_id: object.object_id,
            fields: Fields::Named(object.group.names.clone()),
            consistency,
            size_bytes: object.size_bytes,
        };
        let record = self.store.read(read).await?;
        let retries = u64::from(record.attempts.saturating_sub(1));
        add(&self.stats.counters.retries, retries);
        Ok(record)
    }

    /// Compares with the members; computes a checksum only when the store has not.
    fn check(
        &self,
        request: &SampleRequest,
        object: &ObjectRequest,
        record: &Record,
    ) -> Result<(), (String, String)> {
        let started = Instant::now();
        let checked = check_record(&request.entries, object, record);
        self.stats.stages.verify.record(started.elapsed());
        checked
    }
}

fn check_record(
    entries: &[Entry],
    object: &ObjectRequest,
    record: &Record,
) -> Result<(), (String, String)> {
    if record.fields.len() != object.group.fields.len() {
        let reason = format!("{} fields came instead of these", record.fields.len());
        return Err((object.group.names.join(", "), reason));
    }
    for (field, data) in object.group.fields.iter().zip(&record.fields) {
        let entry = &entries[*field];
        let bad = |reason: String| Err((data.name.to_string(), reason));
        let found_bytes: u64 = data.chunks.iter().map(|chunk| chunk.len() as u64).sum();
        if found_bytes != entry.size_bytes {
            return bad(format!(
                "{found_bytes} bytes are stored, the split says {}",
                entry.size_bytes
            ));
        }
        let found = if data.is_verified {
            data.xxh3
        } else {
            xxh3_of_chunks(&data.chunks)
        };
        if found != entry.xxh3 {
            return bad(format!(
                "the checksum of the stored bytes is {found:016x}, the split says {:016x}",
                entry.xxh3
            ));
        }
    }
    Ok(())
}
