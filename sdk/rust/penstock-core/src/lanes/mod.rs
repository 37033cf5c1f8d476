//! Lanes: connections to the nodes of a store, and for every read the one with the earliest expected finish.
//!
//! A slow lane starves itself, because its expected finish is late; a silent one gets nothing until it is heard
//! again; a broken one is opened anew. What waits on a lane that turned slow or silent is asked for a second time
//! on another one, and the first answer wins. How many lanes there are follows the bytes that are on their way.

mod hedging;
mod meter;
mod outlook;
mod roster;

use std::fmt;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use crate::stats::HistogramSnapshot;

pub use meter::{Arrival, Meter, Reading};
pub use outlook::Outlook;
use roster::{Roster, Standing};

/// How often lanes are looked after, and how often a read that waits looks whether its lane still lives.
const TICK: Duration = Duration::from_millis(50);
/// Before anything is known about the other lanes.
const FIRST_PATIENCE: Duration = Duration::from_millis(500);
/// A silent lane is waited for so long when there is no other.
const SILENT_PATIENCE: Duration = Duration::from_secs(3);
/// A read without a lane is woken when there is one; so often it looks by itself.
const LOOK_AGAIN: Duration = Duration::from_millis(250);
/// No small answer is waited for longer; it got lost, and so did the one that was asked for in its place.
const ASK_PATIENCE: Duration = Duration::from_secs(15);
/// Bytes a second of the slowest line that is read over: a large answer is waited for in proportion.
const SLOWEST_RATE: u64 = 256 << 10;
/// What an answer of unknown size is taken for.
const UNKNOWN_BYTES: u64 = 64 << 20;
/// Lanes of which nothing is wrong are not further ahead of each other than this part of the time that an answer takes.
const LEAD: f64 = 0.25;
/// How long nodes without a lane are waited for at the start when another has one: reads can begin there.
const STRAGGLER_PATIENCE: Duration = Duration::from_secs(1);

/// A silent lane is given up then; a node that was frozen comes back before.
pub const GIVE_UP: Duration = Duration::from_secs(12);

/// Whether a lane can take one more read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    Ready,
    /// It has as many reads on their way as it can tell apart.
    Full,
    /// It will never answer again.
    Broken,
}

/// The part of a node that a lane ends in, one of `count`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shard {
    pub index: u32,
    pub count: u32,
}

/// One connection to one node.
pub trait Lane: fmt::Debug + Send + Sync + 'static {
    type Question: Sync;
    type Answer: Send;
    type Error: fmt::Display + Send;

    /// Asks and waits. A caller may go away at any time; the answer is then received and forgotten.
    fn ask<'a>(
        &'a self,
        question: &'a Self::Question,
    ) -> BoxFuture<'a, Result<Self::Answer, Self::Error>>;

    fn condition(&self) -> Condition;

    /// None when the node is one whole, or does not say.
    fn shard(&self) -> Option<Shard> {
        None
    }

    /// Whether the lane ends where the answer lies inside the node, as far as that is known. Any lane of a node can
    /// answer, but a wrong one costs the node a detour.
    fn is_home_of(&self, _question: &Self::Question) -> bool {
        true
    }
}

/// A connection that is being opened: the lane and its meter, or why there is none.
pub type Opening<L> = BoxFuture<'static, Result<(L, Arc<Meter>), String>>;

/// Knows the nodes and how to reach them.
pub trait Connector: fmt::Debug + Send + Sync + 'static {
    type Lane: Lane;

    /// The nodes that lanes shall lead to, as they are now.
    fn nodes(&self) -> Vec<SocketAddr>;

    /// Opens a connection and gives it its meter, which knows the delay from then on.
    fn connect(&self, node: SocketAddr) -> Opening<Self::Lane>;

    /// Called now and then, to give back what is not needed any more.
    fn tidy(&self) {}
}

/// Why no lane gave an answer.
#[derive(Debug, thiserror::Error)]
pub enum AskError<E: fmt::Display> {
    #[error("no node can be reached: {reason}")]
    NoLane { reason: String },
    #[error("node {node} does not answer")]
    Silent { node: SocketAddr },
    #[error("node {node}: {error}")]
    Lane { node: SocketAddr, error: E },
}

/// What the lanes have had to do beyond asking once.
#[derive(Debug, Default)]
pub struct Extra {
    pub hedges: AtomicU64,
    pub hedge_wins: AtomicU64,
    /// Reads that were moved because their lane was not heard any more.
    pub silences: AtomicU64,
    /// Copies of reads that only show how a lane is.
    pub probes: AtomicU64,
}

/// A lane at one moment, for people.
#[derive(Debug, Clone)]
pub struct LaneStats {
    pub node: SocketAddr,
    pub state: &'static str,
    pub reading: Reading,
    pub hedged: u64,
    /// From question to end of answer, of all answers since it was opened.
    pub answer_times: HistogramSnapshot,
    /// How long a read waits before it is asked for on another lane too; None while too little is known for that.
    pub patience: Option<Duration>,
    pub shard: Option<Shard>,
}

/// How many lanes a node gets.
#[derive(Debug, Clone, Copy)]
pub struct LaneLimits {
    pub least: usize,
    pub most: usize,
}

/// The lanes of one store.
#[derive(Debug)]
pub struct Lanes<C: Connector> {
    connector: C,
    roster: Mutex<Roster<C::Lane>>,
    /// Told when a read that waits for a lane may find one, or need not wait any longer.
    changed: Notify,
    extra: Extra,
}

/// A question, and where its answer may come from.
#[derive(Debug)]
struct Inquiry<'a, Q> {
    question: &'a Q,
    /// Zero when nobody knows.
    size_bytes: u64,
    owners: &'a [SocketAddr],
    /// A node whose answer was not good.
    not: Option<SocketAddr>,
}

impl<Q> Inquiry<'_, Q> {
    fn patience(&self) -> Duration {
        let size_bytes = match self.size_bytes {
            0 => UNKNOWN_BYTES,
            known => known,
        };
        ASK_PATIENCE + Duration::from_secs(size_bytes / SLOWEST_RATE)
    }
}

/// A lane that a read was given to.
#[derive(Debug)]
struct Chosen<L> {
    lane: Arc<L>,
    number: u64,
    node: SocketAddr,
    /// Seconds until its answer is to be expected.
    finish: f64,
    /// When the latest question was asked that it has answered.
    answered_until: Option<Instant>,
    patience: Option<Duration>,
    standing: Arc<Standing>,
}

impl<C: Connector> Lanes<C> {
    /// Opens the first lanes in the background; `settled` waits for them.
    pub fn start(connector: C, limits: LaneLimits) -> Arc<Self> {
        let lanes = Arc::new(Self {
            connector,
            roster: Mutex::new(Roster::new(limits)),
            changed: Notify::new(),
            extra: Extra::default(),
        });
        lanes.look_after();
        let weak = Arc::downgrade(&lanes);
        tokio::spawn(async move {
            loop {
                sleep(TICK).await;
                let Some(lanes) = weak.upgrade() else { return };
                if !lanes.look_after() {
                    return;
                }
            }
        });
        lanes
    }

    /// Waits until every node has a lane or has failed to give one, or has taken much longer than another.
    pub async fn settled(&self) {
        let mut first_at = None;
        while !self.roster().is_settled() {
            if self.roster().is_any_usable() {
                let first_at = *first_at.get_or_insert_with(now);
                if now() - first_at >= STRAGGLER_PATIENCE {
                    return;
                }
            }
            sleep(Duration::from_millis(2)).await;
        }
    }

    pub fn close(&self) {
        self.roster().close();
        self.changed.notify_waiters();
    }

    pub fn is_closed(&self) -> bool {
        self.roster().is_closed()
    }

    pub fn extra(&self) -> &Extra {
        &self.extra
    }

    pub fn stats(&self) -> Vec<LaneStats> {
        self.roster().stats()
    }

    fn roster(&self) -> MutexGuard<'_, Roster<C::Lane>> {
        self.roster.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One round of care; false when the lanes are closed.
    fn look_after(self: &Arc<Self>) -> bool {
        self.connector.tidy();
        let nodes = self.connector.nodes();
        let (openings, is_any_usable) = {
            let mut roster = self.roster();
            if roster.is_closed() {
                return false;
            }
            (roster.look_after(now(), &nodes), roster.is_any_usable())
        };
        if is_any_usable {
            self.changed.notify_waiters();
        }
        for (number, node) in openings {
            let opening = self.connector.connect(node);
            let lanes = Arc::clone(self);
            tokio::spawn(async move {
                let opened = opening.await;
                lanes.roster().opened(now(), number, opened);
                lanes.changed.notify_waiters();
            });
        }
        true
    }

    /// The answer to a question, from one of the owners when they can be reached, else from any node. `not` is a
    /// node whose answer was not good.
    pub async fn ask(
        &self,
        owners: &[SocketAddr],
        size_bytes: u64,
        not: Option<SocketAddr>,
        question: &Question<C>,
    ) -> Result<(Answer<C>, SocketAddr), AskError<Error<C>>> {
        let inquiry = Inquiry {
            question,
            size_bytes,
            owners,
            not,
        };
        let first = self.first(&inquiry).await?;
        let started = now();
        let mut answer = first.lane.ask(question);
        let mut wait = first.patience.unwrap_or(FIRST_PATIENCE);
        loop {
            if let Ok(answer) = timeout(wait, &mut answer).await {
                return first.result(answer);
            }
            wait = TICK;
            if let Some(second) = self.second(&inquiry, &first, started) {
                return self.race(started, &inquiry, (&first, answer), second).await;
            }
            let is_silent = first.standing.is_silent();
            let patience = if is_silent {
                SILENT_PATIENCE
            } else {
                inquiry.patience()
            };
            if now() - started >= patience {
                return Err(AskError::Silent { node: first.node });
            }
        }
    }

    async fn first(
        &self,
        inquiry: &Inquiry<'_, Question<C>>,
    ) -> Result<Chosen<C::Lane>, AskError<Error<C>>> {
        if let Some(chosen) = self.choose(inquiry) {
            return Ok(chosen);
        }
        let started = now();
        loop {
            let mut changed = pin!(self.changed.notified());
            // Before the look: what changes between it and the wait is not missed.
            changed.as_mut().enable();
            if let Some(chosen) = self.choose(inquiry) {
                return Ok(chosen);
            }
            let patience = {
                let roster = self.roster();
                let left = roster.worth_waiting().saturating_sub(now() - started);
                if left.is_zero() {
                    let reason = roster.why_none();
                    return Err(AskError::NoLane { reason });
                }
                left.min(LOOK_AGAIN)
            };
            let _ = timeout(patience, changed).await;
        }
    }

    /// The lane for a read. A copy of the read may go to another one, of which nothing has been heard for long.
    fn choose(&self, inquiry: &Inquiry<'_, Question<C>>) -> Option<Chosen<C::Lane>> {
        let (chosen, probed) = {
            let mut roster = self.roster();
            let chosen = roster.choose(now(), inquiry)?;
            let probed = roster.probe(inquiry, &chosen);
            (chosen, probed)
        };
        if let Some(lane) = probed {
            // Sent, and not waited for: the lane's meter sees the answer.
            let _ = lane.ask(inquiry.question).now_or_never();
            self.extra.probes.fetch_add(1, Ordering::Relaxed);
        }
        Some(chosen)
    }

    /// Another lane for a read that has waited longer than others do and was overtaken, or whose lane is not heard any
    /// more.
    fn second(
        &self,
        inquiry: &Inquiry<'_, Question<C>>,
        first: &Chosen<C::Lane>,
        started: Instant,
    ) -> Option<Chosen<C::Lane>> {
        let is_silent = first.standing.is_silent();
        if !is_silent && first.patience.is_none() {
            return None;
        }
        let mut roster = self.roster();
        let second = roster.choose_other(now(), inquiry, first.number)?;
        if is_silent {
            self.extra.silences.fetch_add(1, Ordering::Relaxed);
        } else if second.would_overtake(started) && roster.spend_hedge() {
            self.extra.hedges.fetch_add(1, Ordering::Relaxed);
            first.standing.count_hedge();
        } else {
            return None;
        }
        Some(second)
    }

    async fn race(
        &self,
        started: Instant,
        inquiry: &Inquiry<'_, Question<C>>,
        (first, first_answer): (&Chosen<C::Lane>, Asking<'_, C>),
        second: Chosen<C::Lane>,
    ) -> Result<(Answer<C>, SocketAddr), AskError<Error<C>>> {
        let mut answers = FuturesUnordered::new();
        answers.push(first_answer.map(|answer| (first, answer)).boxed());
        let second_answer = second.lane.ask(inquiry.question);
        answers.push(second_answer.map(|answer| (&second, answer)).boxed());
        let mut owing = vec![first, &second];
        // One failure is no answer yet: the other lane may still give one.
        let mut failure = None;
        loop {
            tokio::select! {
                Some((chosen, answer)) = answers.next() => {
                    let result = chosen.result(answer);
                    owing.retain(|lane| lane.number != chosen.number);
                    if result.is_ok() && chosen.number == second.number {
                        self.extra.hedge_wins.fetch_add(1, Ordering::Relaxed);
                    }
                    if result.is_ok() || owing.is_empty() {
                        return result;
                    }
                    failure = result.err();
                }
                () = sleep(TICK) => {
                    let is_lost = owing.iter().all(|lane| lane.standing.is_silent());
                    if is_lost || now() - started >= inquiry.patience() {
                        let node = second.node;
                        return Err(failure.unwrap_or(AskError::Silent { node }));
                    }
                }
            }
        }
    }
}

/// Tokio's clock, which tests can stop.
pub fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

type Question<C> = <<C as Connector>::Lane as Lane>::Question;
type Answer<C> = <<C as Connector>::Lane as Lane>::Answer;
type Error<C> = <<C as Connector>::Lane as Lane>::Error;
type Asking<'a, C> = BoxFuture<'a, Result<Answer<C>, Error<C>>>;

impl<L: Lane> Chosen<L> {
    /// Whether it is ahead of the lane on which a question has waited since then. When a new read would take as long, or
    /// nothing has come that was asked for much later, all have become slower, and asking twice only adds to it.
    fn would_overtake(&self, since: Instant) -> bool {
        let lead = Duration::from_secs_f64(LEAD * self.finish);
        let is_ahead = self.answered_until.is_some_and(|at| at >= since + lead);
        is_ahead && self.finish < (now() - since).as_secs_f64()
    }

    fn result(
        &self,
        answer: Result<L::Answer, L::Error>,
    ) -> Result<(L::Answer, SocketAddr), AskError<L::Error>> {
        let node = self.node;
        match answer {
            Ok(answer) => Ok((answer, node)),
            Err(error) => Err(AskError::Lane { node, error }),
        }
    }
}

#[cfg(test)]
mod tests;
