//! The engine: streams the members of a subset through a store into batches.
//!
//! The consumer's face is [`Engine`]; behind it one task (`driver`) owns all state. A slot of the plan
//! is asked for (`reads`), its answer joins its epoch (`run`), finds its batch (`places`) and goes into the
//! arena (`laying`); a full batch is completed (`assembly`) and laid down where the consumer takes it (`exchange`).

mod assembly;
mod batch;
mod config;
mod donors;
mod driver;
mod exchange;
mod failures;
mod laying;
mod places;
mod reads;
mod run;
mod saving;
mod snapshot;
mod tail;
mod window;

#[cfg(test)]
mod tests;

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::FutureExt;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

pub use batch::{Batch, BatchField, Content};
pub use config::{BatchForm, EngineConfig, OnError};
use driver::{Command, Driver, Work};
use exchange::{Exchange, Taken};
pub use failures::{Cause, Failure};
use failures::{Failures, Missed};
use reads::Reader;
pub use saving::Resumed;
pub use snapshot::EngineSnapshot;
use window::{AdaptiveWindow, FixedWindow};

use crate::arena::{NoMemory, Pool};
use crate::errors::{ProcessError, StoreError};
use crate::id::Id;
use crate::members::MembersError;
use crate::plan::{Done, LastBatch, PlanError};
use crate::process::{self, Owner};
use crate::state::{Entry, Ledger, StateError, UnknownBatch};
use crate::stats::{Stats, add, set};
use crate::store::Store;

/// How long `close` waits for the driver; it only has to notice.
const CLOSE_PATIENCE: Duration = Duration::from_millis(1500);
/// How often a waiting consumer looks for a reason to stop.
const POLL: Duration = Duration::from_millis(50);

/// A sample that could not be read.
#[derive(Debug, Clone, thiserror::Error)]
#[error("sample {sample_id}, {}: {source}", field_names(.fields))]
pub struct SampleError {
    pub sample_id: Id,
    pub fields: Arc<[Arc<str>]>,
    pub source: Box<StoreError>,
}

/// What an engine cannot do.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Members(#[from] MembersError),
    #[error("{reason}")]
    Config { reason: String },
    #[error(transparent)]
    Process(#[from] ProcessError),
    /// Stands in the place of a batch: the next call goes on behind it. `seq` is the number that the batch
    /// would have had, for `ack`; `besides` are the other samples of that batch, which do not come again either.
    #[error("{sample}{}", besides_note(.besides.len()))]
    Sample {
        seq: u64,
        sample: SampleError,
        besides: Arc<[Id]>,
    },
    #[error(
        "{failed} of {outcomes} samples of this epoch could not be read, more than the share of {limit} that is allowed; the last was {last}"
    )]
    TooManyFailures {
        failed: u64,
        outcomes: u64,
        limit: f64,
        last: SampleError,
    },
    #[error(transparent)]
    State(#[from] StateError),
    #[error(transparent)]
    UnknownBatch(#[from] UnknownBatch),
    #[error("no epoch has been started: call start_epoch first")]
    NotStarted,
    #[error("this engine is closed: make a new one")]
    Closed,
    #[error("the native core failed: {message}. This is a bug of Penstock; please report it")]
    Panicked { message: String },
    #[error("{0}: use a smaller batch or smaller prefetch_bytes, or give the process more memory")]
    NoMemory(NoMemory),
}

impl EngineError {
    fn of_panic(payload: &(dyn Any + Send)) -> Self {
        if let Some(memory) = payload.downcast_ref::<NoMemory>() {
            return Self::NoMemory(*memory);
        }
        let text = payload
            .downcast_ref::<&str>()
            .map(|text| (*text).to_owned());
        let message = text.or_else(|| payload.downcast_ref::<String>().cloned());
        Self::Panicked {
            message: message.unwrap_or_else(|| "panic without a message".to_owned()),
        }
    }
}

/// Ends the engine from wherever a block cannot be had: no batch can be made any more.
fn end_for_want_of(memory: NoMemory) -> ! {
    std::panic::resume_unwind(Box::new(memory))
}

fn field_names(fields: &[Arc<str>]) -> String {
    let names: Vec<String> = fields.iter().map(|name| format!("{name:?}")).collect();
    let noun = if names.len() == 1 { "field" } else { "fields" };
    format!("{noun} {}", names.join(", "))
}

fn besides_note(count: usize) -> String {
    match count {
        0 => String::new(),
        1 => "; the other sample of its batch is lost with it".to_owned(),
        _ => format!("; the {count} other samples of its batch are lost with it"),
    }
}

/// Why there is no next batch.
#[derive(Debug, thiserror::Error)]
pub enum NextError<E> {
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// The caller's own reason.
    #[error("interrupted")]
    Interrupted(E),
}

/// A running stream of one subset into one process.
#[derive(Debug)]
pub struct Engine {
    owner: Owner,
    store: Arc<dyn Store>,
    config: Arc<EngineConfig>,
    exchange: Arc<Exchange>,
    commands: UnboundedSender<Command>,
    books: Mutex<Books>,
    stats: Arc<Stats>,
    failures: Arc<Failures>,
    pool: Pool,
    steps: u64,
}

/// The consumer's own books.
#[derive(Debug, Default)]
struct Books {
    ledger: Ledger,
    /// The start that the ledger is about.
    ticket: u64,
    epoch: u64,
    next_seq: u64,
    /// Where the next start of its epoch goes on.
    armed: Option<Entry>,
    /// What is missed of batches that are not acknowledged, by their number; with the epoch.
    missed: BTreeMap<u64, (u64, Missed)>,
}

impl Engine {
    /// Checks the configuration and starts the driver; nothing is read before the first epoch.
    pub fn new(store: Arc<dyn Store>, mut config: EngineConfig) -> Result<Self, EngineError> {
        config.check()?;
        config.prefetch_bytes = config.budget_bytes(config.prefetch_bytes, store.near().is_some());
        let runtime = process::runtime()?;
        let steps = config.plan(0, Done::default())?.division().steps;
        let config = Arc::new(config);
        let stats = Arc::new(Stats::default());
        set(&stats.gauges.steps, steps);
        set(&stats.gauges.prefetch_bytes, config.prefetch_bytes);
        let exchange = Arc::new(Exchange::default());
        let failures = Arc::new(Failures::default());
        let pool = Pool::new(config.idle_blocks_bytes());
        let (sender, commands) = unbounded_channel();
        let driver = Driver {
            reader: Arc::new(Reader {
                store: Arc::clone(&store),
                stats: Arc::clone(&stats),
                dataset_id: config.dataset_id,
                store_wait: config.store_wait,
            }),
            names: config.members.fields().into(),
            window: match config.window_bytes {
                Some(limit_bytes) => Box::new(FixedWindow::new(limit_bytes)),
                None => Box::new(AdaptiveWindow::new(config.prefetch_bytes)),
            },
            work: Work::new(&config),
            config: Arc::clone(&config),
            exchange: Arc::clone(&exchange),
            stats: Arc::clone(&stats),
            failures: Arc::clone(&failures),
            pool: pool.clone(),
            commands,
        };
        let watched = Arc::clone(&exchange);
        runtime.spawn(async move {
            if let Err(payload) = AssertUnwindSafe(driver.run()).catch_unwind().await {
                watched.end(EngineError::of_panic(&*payload));
                watched.driver_ended();
            }
        });
        Ok(Self {
            owner: Owner::current("loader engine"),
            store,
            config,
            exchange,
            commands: sender,
            books: Mutex::default(),
            stats,
            failures,
            pool,
            steps,
        })
    }

    /// Samples of the subset, over all ranks.
    pub fn sample_count(&self) -> u64 {
        self.config.members.len()
    }

    /// Steps of a whole epoch, equal on all ranks.
    pub fn steps(&self) -> u64 {
        self.steps
    }

    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Goes to the beginning of an epoch, or to the place that `resume` has set for it; what is under way
    /// of another is dropped. Starting an epoch again of which nothing has been taken changes nothing.
    pub fn start_epoch(&self, epoch: u64) -> Result<(), EngineError> {
        self.owner.check()?;
        let mut books = self.books();
        let armed = books.armed.take();
        let is_told_where = armed.is_some();
        let armed = armed.filter(|entry| entry.epoch == epoch);
        if armed.is_none() && self.exchange.go_on(epoch) {
            return Ok(());
        }
        let entry = armed.unwrap_or(Entry {
            epoch,
            ..Entry::default()
        });
        let plan = self.plan_from(&entry)?;
        let steps = plan.division().steps;
        let (ticket, freed_bytes) = self.exchange.start(epoch, entry.steps, steps)?;
        set(&self.stats.gauges.epoch, epoch);
        set(&self.stats.gauges.step, entry.steps);
        set(&self.stats.gauges.steps, entry.steps + steps);
        books.ticket = ticket;
        books.epoch = epoch;
        // What is not acknowledged of the same epoch comes again; of the one before, it may still be acknowledged.
        books.missed.retain(|_, (of, _)| *of + 1 == epoch);
        let may_end_short = self.config.last_batch != LastBatch::Drop;
        if is_told_where {
            books.ledger = Ledger::default();
        }
        books.ledger.start(entry, steps, may_end_short);
        self.tell(Command::Taken {
            held_bytes: freed_bytes,
        });
        self.tell(Command::Start {
            ticket,
            epoch,
            plan: Box::new(plan),
        });
        Ok(())
    }

    /// The next batch of the epoch, or `None` when all of its steps have been handed out, or after `interrupt`. An
    /// [`EngineError::Sample`] is handed out in the place of its batch; any other error stays. `interrupt` is
    /// asked every 50 ms whether to go on waiting. Safe to call from several threads.
    pub fn next_batch<E>(
        &self,
        mut interrupt: impl FnMut() -> Result<(), E>,
    ) -> Result<Option<Batch>, NextError<E>> {
        self.owner.check().map_err(EngineError::from)?;
        let started = Instant::now();
        let mut is_first = true;
        let taken = loop {
            match self
                .exchange
                .take(if is_first { Duration::ZERO } else { POLL })
            {
                Ok(Taken::Parked { ticket }) => {
                    self.tell(Command::Resume { ticket });
                    continue;
                }
                Ok(Taken::Nothing) if is_first => add(&self.stats.counters.stalls, 1),
                Ok(Taken::Nothing) => interrupt().map_err(NextError::Interrupted)?,
                other => break other,
            }
            is_first = false;
        };
        let waited = started.elapsed();
        let micros = u64::try_from(waited.as_micros()).unwrap_or(u64::MAX);
        add(&self.stats.counters.wait_microseconds, micros);
        match taken? {
            Taken::Batch { ticket, mut batch } => {
                self.stats.stages.wait.record(waited);
                self.stats.stages.deliver.record(batch.ready_at.elapsed());
                self.account(&batch);
                let missed = std::mem::take(&mut batch.missed);
                self.account_missed(&missed);
                self.hand_out(ticket, batch.seq, batch.step, batch.done.clone(), missed);
                Ok(Some(*batch))
            }
            Taken::Lost {
                ticket,
                seq,
                step,
                lost,
            } => {
                let lost = *lost;
                self.tell(Command::Taken {
                    held_bytes: lost.held_bytes,
                });
                let sample = lost.error;
                let besides = lost.missed.besides(sample.sample_id);
                self.account_missed(&lost.missed);
                self.hand_out(ticket, seq, step, lost.done, lost.missed);
                let error = EngineError::Sample {
                    seq,
                    sample,
                    besides,
                };
                Err(error.into())
            }
            Taken::Finished | Taken::Interrupted | Taken::Nothing | Taken::Parked { .. } => {
                Ok(None)
            }
        }
    }

    /// Ends the wait for a batch that is under way, or else the next one before the next start: it gives `None`.
    pub fn interrupt(&self) -> Result<(), EngineError> {
        self.owner.check()?;
        self.exchange.interrupt();
        Ok(())
    }

    fn account(&self, batch: &Batch) {
        let counters = &self.stats.counters;
        add(&counters.batches, 1);
        add(&counters.samples, batch.len() as u64);
        add(&counters.bytes, batch.size_bytes());
        self.tell(Command::Taken {
            held_bytes: batch.held_bytes,
        });
    }

    /// When the consumer has the step: what is read ahead may be given up and come again.
    fn account_missed(&self, missed: &Missed) {
        let counters = &self.stats.counters;
        let unread = missed.unread.len() as u64;
        add(&counters.errors, unread);
        match (&missed.lost, self.config.on_error) {
            (Some(lost), _) => add(&counters.lost, lost.ids.len() as u64),
            (None, OnError::Replace) => add(&counters.replaced, unread),
            (None, _) => add(&counters.skipped, unread),
        }
    }

    /// Writes a step down that the consumer has, be it a batch or the error in its place.
    fn hand_out(&self, ticket: u64, seq: u64, step: u64, done: Vec<(u64, u64)>, missed: Missed) {
        set(&self.stats.gauges.step, step + 1);
        let mut books = self.books();
        books.next_seq = books.next_seq.max(seq + 1);
        if books.ticket == ticket {
            books.ledger.hand_out(seq, step, done);
            if !missed.is_empty() {
                let epoch = books.epoch;
                books.missed.insert(seq, (epoch, missed));
            }
        }
    }

    /// The batch with this number has reached its user.
    pub fn ack(&self, seq: u64) -> Result<(), EngineError> {
        self.owner.check()?;
        let mut books = self.books();
        let next_seq = books.next_seq;
        if books.ledger.acknowledge(seq, next_seq)? {
            add(&self.stats.counters.acknowledged, 1);
        }
        if let Some((epoch, missed)) = books.missed.remove(&seq) {
            self.failures.record(epoch, missed);
        }
        Ok(())
    }

    /// The budget from now on, when none was chosen by hand. What is held above it is not dropped but used up.
    /// Returns what is in force.
    pub fn set_prefetch_bytes(&self, prefetch_bytes: u64) -> Result<u64, EngineError> {
        self.owner.check()?;
        let is_near = self.store.near().is_some();
        let prefetch_bytes = self.config.budget_bytes(prefetch_bytes, is_near);
        set(&self.stats.gauges.prefetch_bytes, prefetch_bytes);
        self.tell(Command::Budget { prefetch_bytes });
        Ok(prefetch_bytes)
    }

    /// What acknowledged steps did not deliver: samples that could not be read, the last thousand of them, and sound
    /// ones that were lost with them (`on_error = raise`), the last 65,536. The batch for which the engine gave an epoch
    /// up because of too many failures is in it too.
    pub fn failures(&self) -> Result<Vec<Failure>, EngineError> {
        self.owner.check()?;
        Ok(self.failures.to_vec())
    }

    /// Ends all work; batches that were handed out stay whole. Closing twice, or in a forked child, does
    /// nothing.
    pub fn close(&self) {
        self.close_within(CLOSE_PATIENCE);
    }

    /// The same, with another limit on the wait; zero only gives the signal.
    pub fn close_within(&self, patience: Duration) {
        if !self.owner.is_current() {
            return;
        }
        self.exchange.end(EngineError::Closed);
        self.tell(Command::Close);
        self.exchange.wait_for_driver(patience);
    }

    /// Whether it has been told to end, or has failed.
    pub fn is_ended(&self) -> bool {
        self.exchange.is_ended()
    }

    /// Whether this process made the engine; in a forked child not even its memory may be given back.
    pub fn is_own(&self) -> bool {
        self.owner.is_current()
    }

    fn tell(&self, command: Command) {
        // The driver is gone only after `close` or a panic, which the exchange reports.
        let _ = self.commands.send(command);
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        self.close();
    }
}
