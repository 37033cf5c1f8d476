//! The engine: streams the members of a subset through a store into batches.
//!
//! The consumer's face is [`Engine`]; behind it one task (`driver`) owns all state. A slot of the plan
//! is asked for (`reads`), its answer joins its epoch (`run`), a batch is cut from what has come and
//! copied (`assembly`), and laid down where the consumer takes it (`exchange`).

mod assembly;
mod batch;
mod config;
mod driver;
mod exchange;
mod failures;
mod reads;
mod run;
mod window;

#[cfg(test)]
mod tests;

use std::any::Any;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::FutureExt;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

pub use batch::{Batch, BatchField, Content};
pub use config::{BatchForm, EngineConfig, OnError};
use driver::{Command, Driver, Work};
use exchange::{Exchange, Taken};
pub use failures::Failure;
use failures::Failures;
use reads::Reader;
use window::{AdaptiveWindow, FixedWindow};

use crate::arena::{Pool, PoolStats};
use crate::errors::{ProcessError, StoreError};
use crate::id::Id;
use crate::lanes::LaneStats;
use crate::members::MembersError;
use crate::plan::{Done, EpochPlan, PlanError};
use crate::process::{self, Owner};
use crate::state::{Entry, Ledger, Share, State, StateError, UnknownBatch};
use crate::stats::{Stats, add, set};
use crate::store::{Store, StoreCounters};

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
    #[error(transparent)]
    Sample(SampleError),
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
}

fn field_names(fields: &[Arc<str>]) -> String {
    let names: Vec<String> = fields.iter().map(|name| format!("{name:?}")).collect();
    let noun = if names.len() == 1 { "field" } else { "fields" };
    format!("{noun} {}", names.join(", "))
}

fn panic_message(payload: &(dyn Any + Send)) -> String {
    payload
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| payload.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "panic without a message".to_owned())
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
    next_seq: u64,
    /// Where the next start of its epoch goes on.
    armed: Option<Entry>,
}

/// Where a resumed epoch stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Resumed {
    pub epoch: u64,
    pub steps_done: u64,
    pub steps_left: u64,
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
                let message = panic_message(&*payload);
                watched.end(EngineError::Panicked { message });
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
        let armed = books.armed.take().filter(|entry| entry.epoch == epoch);
        if armed.is_none() && self.exchange.is_untouched(epoch) {
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
        books.ledger.start(entry, steps);
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

    fn plan_from(&self, entry: &Entry) -> Result<EpochPlan, EngineError> {
        let done = Done {
            base: entry.base.clone(),
            own: entry.delivered.to_runs(),
        };
        Ok(self.config.plan(entry.epoch, done)?)
    }

    /// What the acknowledged batches add up to. Unacknowledged ones will be delivered again.
    pub fn state(&self) -> Result<State, EngineError> {
        self.owner.check()?;
        let books = self.books();
        let entry = books.armed.clone().unwrap_or_else(|| books.ledger.entry());
        drop(books);
        Ok(self.state_of(entry))
    }

    /// The place before the first sample of an epoch.
    pub fn start_of(&self, epoch: u64) -> State {
        self.state_of(Entry {
            epoch,
            ..Entry::default()
        })
    }

    fn state_of(&self, entry: Entry) -> State {
        let config = &self.config;
        State {
            split_digest: config.split_digest.to_string(),
            sample_count: config.members.len(),
            is_shuffled: config.is_shuffled,
            seed: config.seed,
            epoch: entry.epoch,
            steps: entry.steps,
            base: entry.base,
            share: Some(Share {
                rank: config.rank.rank(),
                world_size: config.rank.world_size(),
                frontier: entry.delivered.frontier(),
                holes: entry.delivered.holes().collect(),
            }),
        }
    }

    /// Lets the next `start_epoch` of the state's epoch go on where the state stands.
    pub fn resume(&self, state: &State) -> Result<Resumed, EngineError> {
        self.owner.check()?;
        self.check_state(state)?;
        let entry = state.entry(self.config.rank)?;
        let steps_left = self.plan_from(&entry)?.division().steps;
        let resumed = Resumed {
            epoch: entry.epoch,
            steps_done: entry.steps,
            steps_left,
        };
        self.books().armed = Some(entry);
        Ok(resumed)
    }

    fn check_state(&self, state: &State) -> Result<(), StateError> {
        let config = &self.config;
        let other =
            |what, saved: String, here: String| Err(StateError::Other { what, saved, here });
        if *state.split_digest != *config.split_digest {
            let here = config.split_digest.to_string();
            return other("split", state.split_digest.clone(), here);
        }
        if state.sample_count != config.members.len() {
            let (saved, here) = (state.sample_count, config.members.len());
            return other("number of samples", saved.to_string(), here.to_string());
        }
        if state.is_shuffled != config.is_shuffled {
            let (saved, here) = (state.is_shuffled, config.is_shuffled);
            return other("choice of shuffle", saved.to_string(), here.to_string());
        }
        if state.is_shuffled && state.seed != config.seed {
            return other("seed", state.seed.to_string(), config.seed.to_string());
        }
        Ok(())
    }

    /// The next batch of the epoch, or `None` when all of its steps have been handed out. `interrupt` is
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
                Ok(Taken::Nothing) if is_first => add(&self.stats.counters.stalls, 1),
                Ok(Taken::Nothing) => interrupt().map_err(NextError::Interrupted)?,
                other => break other,
            }
            is_first = false;
        };
        let waited = started.elapsed();
        let micros = u64::try_from(waited.as_micros()).unwrap_or(u64::MAX);
        add(&self.stats.counters.wait_microseconds, micros);
        let Taken::Batch { ticket, batch } = taken? else {
            return Ok(None);
        };
        self.stats.stages.wait.record(waited);
        self.stats.stages.deliver.record(batch.ready_at.elapsed());
        self.account(ticket, &batch);
        Ok(Some(*batch))
    }

    fn account(&self, ticket: u64, batch: &Batch) {
        let counters = &self.stats.counters;
        add(&counters.batches, 1);
        add(&counters.samples, batch.len() as u64);
        add(&counters.bytes, batch.size_bytes());
        set(&self.stats.gauges.step, batch.step + 1);
        let mut books = self.books();
        books.next_seq = books.next_seq.max(batch.seq + 1);
        if books.ticket == ticket {
            books.ledger.hand_out(batch.seq, batch.done.clone());
        }
        drop(books);
        self.tell(Command::Taken {
            held_bytes: batch.held_bytes,
        });
    }

    /// The batch with this number has reached its user.
    pub fn ack(&self, seq: u64) -> Result<(), EngineError> {
        self.owner.check()?;
        let mut books = self.books();
        let next_seq = books.next_seq;
        if books.ledger.acknowledge(seq, next_seq)? {
            add(&self.stats.counters.acknowledged, 1);
        }
        Ok(())
    }

    pub fn stats(&self) -> Result<&Stats, EngineError> {
        self.owner.check()?;
        Ok(&self.stats)
    }

    /// What the store has done; other engines on the same store are in it.
    pub fn store_counters(&self) -> StoreCounters {
        self.store.counters()
    }

    /// The connections of the store; other engines use them too.
    pub fn lanes(&self) -> Vec<LaneStats> {
        self.store.lanes()
    }

    /// The budget from now on, when none was chosen by hand. What is held above it is not dropped but used up.
    /// Returns what is in force.
    pub fn set_prefetch_bytes(&self, prefetch_bytes: u64) -> Result<u64, EngineError> {
        self.owner.check()?;
        let is_near = self.store.near().is_some();
        let prefetch_bytes = self.config.budget_bytes(prefetch_bytes, is_near);
        self.tell(Command::Budget { prefetch_bytes });
        Ok(prefetch_bytes)
    }

    pub fn pool_stats(&self) -> PoolStats {
        self.pool.stats()
    }

    /// The samples that could not be read, the last thousand of them.
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
