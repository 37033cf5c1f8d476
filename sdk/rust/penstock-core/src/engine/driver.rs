//! The task that owns an engine's state: it asks, receives, cuts batches and lays them down.
//!
//! Nothing here is shared: reads and copies are futures that report back, the consumer sends commands.
//! A read is never dropped while the engine lives: what nobody waits for any more is received and
//! discarded, because requests given up in bulk cost a connection.

mod idle;
mod verdict;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinError;

use verdict::Verdict;

use super::EngineError;
use super::assembly::Assembly;
use super::batch::{Batch, Laid};
use super::config::{BatchForm, EngineConfig};
use super::donors::{Donor, Fallback};
use super::exchange::Exchange;
use super::failures::Failures;
use super::laying::{Cut, Rooms};
use super::reads::{Outcome, Payload, ReadDone, Reader, Requests, SLOT_COST_BYTES};
use super::run::Run;
use super::window::Window;
use crate::arena::Pool;
use crate::plan::{Done, EpochPlan, Slot};
use crate::stats::{Stats, add, set};

/// A connection has a limited number of stream ids; the bytes are limited by the window.
const MAX_READS: usize = 4096;
/// Batches filled at the same time from a store on this machine: that is bound by memory, not by the number of threads.
const MAX_COPIES: usize = 2;
const TICK: Duration = Duration::from_secs(1);
const SHORTEST_TICK: Duration = Duration::from_millis(1);
/// Blocks that nobody has used for so long are given back to the system.
const BLOCK_IDLE: Duration = Duration::from_secs(10);
/// After the end, answers under way are still received for so long.
const DRAIN: Duration = Duration::from_secs(30);

/// What the consumer tells the driver.
#[derive(Debug)]
pub(super) enum Command {
    Start {
        ticket: u64,
        epoch: u64,
        plan: Box<EpochPlan>,
    },
    /// Batches of so many bytes have left the exchange.
    Taken {
        held_bytes: u64,
    },
    /// What may be held from now on.
    Budget {
        prefetch_bytes: u64,
    },
    /// What was given up because nobody asked is wanted again.
    Resume {
        ticket: u64,
    },
    Close,
}

#[derive(Debug)]
pub(super) struct Driver {
    pub config: Arc<EngineConfig>,
    pub reader: Arc<Reader>,
    pub exchange: Arc<Exchange>,
    pub stats: Arc<Stats>,
    pub failures: Arc<Failures>,
    pub pool: Pool,
    pub commands: UnboundedReceiver<Command>,
    pub window: Box<dyn Window>,
    pub names: Arc<[Arc<str>]>,
    pub work: Work,
}

/// What is under way.
#[derive(Debug)]
pub(super) struct Work {
    reads: FuturesUnordered<BoxFuture<'static, ReadDone>>,
    copies: FuturesUnordered<BoxFuture<'static, Copy>>,
    /// Searches for a sample that stands in for others, at most one a run.
    searches: FuturesUnordered<BoxFuture<'static, Copy>>,
    requests: Requests,
    /// The epoch that the consumer is in, and the next one while it is read ahead.
    runs: VecDeque<Run>,
    generation: u64,
    held_bytes: u64,
    /// What may be held; it changes with the number of loaders in the process.
    budget_bytes: u64,
    /// What the next batches will need in the arena.
    rooms: Rooms,
    /// How often all was given up because nobody asked.
    parks: u32,
}

impl Work {
    pub fn new(config: &EngineConfig) -> Self {
        Self {
            reads: FuturesUnordered::new(),
            copies: FuturesUnordered::new(),
            searches: FuturesUnordered::new(),
            requests: Requests::default(),
            runs: VecDeque::new(),
            generation: 0,
            held_bytes: 0,
            budget_bytes: config.prefetch_bytes,
            rooms: Rooms::new(config.expected_field_bytes()),
            parks: 0,
        }
    }
}

/// What came of a batch that was to be made.
struct Copy {
    generation: u64,
    made: Result<Made, JoinError>,
}

enum Made {
    Batch(Box<Batch>),
    /// Its samples, all read: it could not be made without a decision about some of them.
    Returned(Cut),
    /// Not a batch yet, but what may stand in for all of the samples of one.
    Sought(Option<Donor>),
}

impl From<Result<Batch, Cut>> for Made {
    fn from(run: Result<Batch, Cut>) -> Self {
        match run {
            Ok(batch) => Self::Batch(Box::new(batch)),
            Err(cut) => Self::Returned(cut),
        }
    }
}

enum Event {
    Read(Box<ReadDone>),
    Copied(Copy),
    Command(Command),
    Tick,
}

impl Driver {
    /// Runs until the consumer closes the engine or goes away.
    pub async fn run(mut self) {
        let mut ticks = tokio::time::interval(TICK.min(self.config.idle / 2).max(SHORTEST_TICK));
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            self.admit();
            self.cut();
            // Before the consumer gets what it may ask about.
            self.show();
            self.publish();
            let ready = self.exchange.ready_len() as u64;
            set(&self.stats.gauges.ready_batches, ready);
            let event = tokio::select! {
                Some(done) = self.work.reads.next() => Event::Read(Box::new(done)),
                Some(copy) = self.work.copies.next() => Event::Copied(copy),
                Some(search) = self.work.searches.next() => Event::Copied(search),
                command = self.commands.recv() => Event::Command(command.unwrap_or(Command::Close)),
                _ = ticks.tick() => Event::Tick,
            };
            match event {
                Event::Read(done) => self.on_reads(*done),
                Event::Copied(copy) => match copy.made {
                    Ok(made) => self.on_made(copy.generation, made),
                    Err(error) => return self.on_panic(error),
                },
                Event::Command(command) => {
                    if !self.on_commands(command) {
                        break;
                    }
                }
                Event::Tick => self.tick(),
            }
        }
        self.drain().await;
    }

    /// Lets go of everything but the reads under way, says so, and receives those.
    async fn drain(self) {
        let Self {
            exchange,
            pool,
            work,
            config,
            ..
        } = self;
        let mut reads = work.reads;
        drop((work.copies, work.searches, work.runs, config));
        pool.close();
        exchange.driver_ended();
        let all = async { while reads.next().await.is_some() {} };
        // What still has not answered by then is dropped: the store has its own, shorter time limits.
        let _ = tokio::time::timeout(DRAIN, all).await;
    }

    /// Sends what window and budget allow.
    fn admit(&mut self) {
        let now = Instant::now();
        while self.work.reads.len() < MAX_READS {
            let Some((index, slot)) = self.admitting() else {
                return;
            };
            let size_bytes = self.config.members.size_bytes(slot.position);
            let cost_bytes = size_bytes + SLOT_COST_BYTES;
            let is_in_place = self.names.is_empty() || self.reader.store.near().is_some();
            let may_ask = is_in_place || self.window.admits(size_bytes.max(1));
            if !may_ask || !self.has_room(index, cost_bytes) {
                return;
            }
            let generation = self.work.runs[index].generation;
            self.work.runs[index].advance();
            self.work.held_bytes += cost_bytes;
            let members = &self.config.members;
            if self.names.is_empty() {
                let sample_id = members.id(slot.position);
                let nothing = Payload::Here(Vec::new());
                let outcome = Outcome::of(slot, sample_id, cost_bytes, nothing);
                self.take_in(index, outcome);
                continue;
            }
            let requests = &mut self.work.requests;
            let request = requests.sample(members, slot, generation, cost_bytes);
            if is_in_place {
                let sample_id = request.sample_id;
                let payload = Payload::Near(Box::new(request));
                let outcome = Outcome::of(slot, sample_id, cost_bytes, payload);
                self.take_in(index, outcome);
                continue;
            }
            self.window.requested(now, request.window_bytes);
            let read = Arc::clone(&self.reader).read(request);
            self.work.reads.push(read.boxed());
        }
    }

    /// The run and slot to be asked for next; opens the next epoch when this one is wholly asked for.
    fn admitting(&mut self) -> Option<(usize, Slot)> {
        let members = &self.config.members;
        let current = self.work.runs.front_mut()?;
        if let Some(slot) = current.upcoming(members) {
            return Some((0, slot));
        }
        let current = self.work.runs.front()?;
        if self.work.runs.len() == 1
            && self.config.is_next_epoch_prefetched
            && current.is_all_admitted()
            && !self.is_consumer_idle()
        {
            let epoch = current.epoch + 1;
            let plan = self.config.plan(epoch, Done::default()).ok()?;
            self.open(epoch, plan);
        }
        let slot = self.work.runs.get_mut(1)?.upcoming(&self.config.members)?;
        Some((1, slot))
    }

    fn open(&mut self, epoch: u64, plan: EpochPlan) {
        self.work.generation += 1;
        let displacement = self.config.displacement();
        self.work
            .runs
            .push_back(Run::new(self.work.generation, epoch, plan, displacement));
    }

    /// Whether the budget allows another sample. When the consumer has nothing to take and nothing is
    /// on its way into a batch, the batch it waits for may go over: a batch larger than the budget
    /// would never come otherwise.
    fn has_room(&self, index: usize, cost_bytes: u64) -> bool {
        let after = self.work.held_bytes + cost_bytes;
        if after <= self.work.budget_bytes {
            return true;
        }
        let run = &self.work.runs[index];
        index == 0
            && run.lacks_slots()
            && run.ready.is_empty()
            && !run.has_returned()
            && self.work.copies.is_empty()
            && self.exchange.ready_len() == 0
    }

    fn cut(&mut self) {
        for index in 0..self.work.runs.len() {
            while self.work.copies.len() < MAX_COPIES {
                let Some(cut) = self.work.runs[index].cut() else {
                    break;
                };
                self.assemble(index, cut);
            }
        }
    }

    fn assemble(&mut self, index: usize, cut: Cut) {
        let donor = match self.judge(index, &cut) {
            Verdict::Made(donor) => donor,
            Verdict::LacksDonor => return self.seek_donor(index, cut),
            Verdict::Lost(error) => {
                let lost = Laid::lost(error, &cut.outcomes);
                self.work.held_bytes -= cut.cost_bytes() - lost.held_bytes();
                self.work.runs[index].ready.insert(cut.step, lost);
                return;
            }
            Verdict::Over(over) => {
                self.work.held_bytes -= cut.cost_bytes();
                self.work.runs[index].over = Some(over);
                return;
            }
        };
        let is_full = cut.outcomes.len() as u64 == self.config.batch_size;
        if let Some(laying) = cut.laying.as_ref().filter(|_| is_full) {
            self.work.rooms.note(laying);
        }
        let run = &self.work.runs[index];
        let generation = run.generation;
        let is_settled = cut.is_settled;
        let assembly = Assembly {
            epoch: run.epoch,
            cut,
            names: Arc::clone(&self.names),
            donor,
            form: self.config.form,
            reader: Arc::clone(&self.reader),
            pool: self.pool.clone(),
            stats: Arc::clone(&self.stats),
        };
        if is_settled {
            return self.on_made(generation, assembly.run().into());
        }
        let reader = Arc::clone(&self.reader);
        let copy = async move {
            let made = match tokio::task::spawn_blocking(move || assembly.run()).await {
                Ok(Err(cut)) => Ok(Made::Returned(reader.read_again(cut).await)),
                other => other.map(Made::from),
            };
            Copy { generation, made }
        };
        self.work.copies.push(copy.boxed());
    }

    /// The batch waits for a sample of its epoch that can stand in; one search serves all batches of the run.
    fn seek_donor(&mut self, index: usize, cut: Cut) {
        let run = &mut self.work.runs[index];
        run.give_back(cut);
        if matches!(run.fallback, Fallback::Sought) {
            return;
        }
        run.fallback = Fallback::Sought;
        let (epoch, generation) = (run.epoch, run.generation);
        let (config, reader) = (Arc::clone(&self.config), Arc::clone(&self.reader));
        let search = async move {
            let made = Ok(Made::Sought(Donor::of_epoch(&config, &reader, epoch).await));
            Copy { generation, made }
        };
        self.work.searches.push(search.boxed());
    }

    fn publish(&mut self) {
        let Some(run) = self.work.runs.front_mut() else {
            return;
        };
        let Some(ticket) = run.ticket else { return };
        while let Some(laid) = run.take_ready() {
            let done = laid.done().to_vec();
            match self.exchange.push(ticket, laid) {
                Ok(untaken) => run.laid_down(done, untaken),
                Err(refused) => self.work.held_bytes -= refused.held_bytes(),
            }
        }
        if let Some((error, missed)) = run.take_end() {
            add(&self.stats.counters.errors, missed.unread.len() as u64);
            // Nobody will acknowledge this step.
            self.failures.record(run.epoch, missed);
            self.exchange.fail(ticket, error);
        }
    }

    /// Takes one answer and all others that are there already.
    fn on_reads(&mut self, first: ReadDone) {
        self.on_read(first);
        while let Some(Some(done)) = self.work.reads.next().now_or_never() {
            self.on_read(done);
        }
    }

    fn on_read(&mut self, done: ReadDone) {
        self.window
            .answered(Instant::now(), done.window_bytes, done.delay);
        let of_generation = |run: &Run| run.generation == done.generation;
        if let Some(index) = self.work.runs.iter().position(of_generation) {
            self.take_in(index, done.outcome);
        } else {
            self.work.held_bytes -= done.outcome.cost_bytes;
            add(&self.stats.counters.discarded, 1);
        }
    }

    /// Puts an outcome into its batch, and its bytes into the arena.
    fn take_in(&mut self, index: usize, outcome: Outcome) {
        let batch = self.work.runs[index].answered(outcome);
        if self.config.form == BatchForm::Arena {
            batch.lay(&self.work.rooms, &self.pool, self.config.on_error);
        }
    }

    fn on_made(&mut self, generation: u64, made: Made) {
        let of_generation = |run: &Run| run.generation == generation;
        let Some(index) = self.work.runs.iter().position(of_generation) else {
            self.work.held_bytes -= match made {
                Made::Batch(batch) => batch.held_bytes,
                Made::Returned(cut) => cut.cost_bytes(),
                Made::Sought(_) => 0,
            };
            return;
        };
        let run = &mut self.work.runs[index];
        match made {
            Made::Batch(batch) => _ = run.ready.insert(batch.step, Laid::Batch(batch)),
            Made::Returned(cut) => run.give_back(cut),
            Made::Sought(donor) => run.fallback = donor.into(),
        }
        while let Some(cut) = self.work.runs[index].take_returned() {
            self.assemble(index, cut);
        }
    }

    fn on_panic(&self, error: JoinError) {
        let reason = match error.try_into_panic() {
            Ok(payload) => EngineError::of_panic(&*payload),
            Err(error) => EngineError::Panicked {
                message: error.to_string(),
            },
        };
        self.exchange.end(reason);
        self.exchange.driver_ended();
    }

    /// Takes one command and all others that are there already, so that the end does not wait behind what it makes
    /// needless. False when it has come.
    fn on_commands(&mut self, first: Command) -> bool {
        let mut next = Some(first);
        while let Some(command) = next {
            if matches!(command, Command::Close) {
                return false;
            }
            self.on_command(command);
            next = self.commands.try_recv().ok();
        }
        true
    }

    fn on_command(&mut self, command: Command) {
        match command {
            Command::Start {
                ticket,
                epoch,
                plan,
            } => self.start(ticket, epoch, *plan),
            Command::Taken { held_bytes } => self.work.held_bytes -= held_bytes,
            Command::Budget { prefetch_bytes } => {
                self.work.budget_bytes = prefetch_bytes;
                self.window.set_cap(prefetch_bytes);
            }
            Command::Resume { ticket } => {
                let of_ticket = |run: &&mut Run| run.ticket == Some(ticket);
                if let Some(run) = self.work.runs.front_mut().filter(of_ticket) {
                    run.is_parked = false;
                }
            }
            Command::Close => {}
        }
    }

    /// Goes over to an epoch: to the one read ahead when it is that, else to a new one.
    fn start(&mut self, ticket: u64, epoch: u64, plan: EpochPlan) {
        while let Some(run) = self.work.runs.front() {
            let is_wanted =
                run.ticket.is_none() && run.epoch == epoch && run.plan().done() == plan.done();
            if is_wanted && run.over.is_none() {
                break;
            }
            self.work.held_bytes -= run.held_bytes();
            self.work.runs.pop_front();
        }
        if self.work.runs.is_empty() {
            self.open(epoch, plan);
        }
        if let Some(run) = self.work.runs.front_mut() {
            run.ticket = Some(ticket);
        }
    }

    /// Gives memory back that nobody has used for a while.
    fn tick(&mut self) {
        self.pool.trim(BLOCK_IDLE);
        self.park_if_idle();
    }

    fn show(&self) {
        let gauges = &self.stats.gauges;
        let held = self.work.held_bytes;
        let in_flight = self.window.in_flight_bytes();
        let arrived: usize = self.work.runs.iter().map(Run::arrived_len).sum();
        set(&gauges.held_bytes, held);
        set(&gauges.window_bytes, self.window.limit_bytes());
        set(&gauges.inflight_bytes, in_flight);
        set(&gauges.inflight_samples, self.work.reads.len() as u64);
        set(&gauges.arrived_samples, arrived as u64);
        gauges.raise_peaks(held, in_flight);
    }
}
