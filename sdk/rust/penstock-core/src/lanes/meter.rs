//! What a lane has shown of itself: how much is on its way, how long answers take, how fast they come in.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::outlook::{Ahead, Outlook};
use crate::stats::{Histogram, HistogramSnapshot, as_float};

/// The smallest delay counts for one to two of these: long enough for several answers, and so short that a lane that
/// turned slow is soon seen to be (with a second, batches come unevenly for another second; measured).
const MEMORY: Duration = Duration::from_millis(250);
/// Weight of the last answer in the rate.
const SMOOTHING: f64 = 0.1;
/// The same for one that had the lane to itself: those are few, and show best whether a slow lane has recovered.
const ALONE_SMOOTHING: f64 = 0.5;
/// What a lane may have on its way before it has shown anything, and afterwards at least.
const FIRST_BYTES: u64 = 512 << 10;
const LEAST_STRETCH: Duration = Duration::from_millis(5);
/// An ordinary answer, for rates that were not measured by one.
const USUAL_BYTES: u64 = 100_000;
/// The rate of a lane that has not answered yet: enough to try it, too little to send it everything.
const FIRST_RATE: f64 = 20e6;
/// Smaller answers say nothing about a rate.
const TELLING_BYTES: u64 = 8 << 10;
/// A transfer that took no measurable time came in one piece with its head.
const LEAST_TRANSFER: Duration = Duration::from_micros(20);
/// Delays for the hedge are remembered for one to two of these.
const DELAYS_MEMORY: Duration = Duration::from_secs(3);

/// Counted by the connection when bytes come in, read by whoever chooses a lane.
#[derive(Debug)]
pub struct Meter {
    state: Mutex<State>,
    /// From question to end of answer, of all answers.
    answer_times: Histogram,
}

#[derive(Debug)]
struct State {
    /// When questions were asked that still wait. Which of them an answer belongs to makes no difference here: the one that
    /// has waited longest goes.
    asked: VecDeque<Instant>,
    outstanding_bytes: u64,
    asked_at: Option<Instant>,
    /// When the latest question was asked that has been answered.
    answered_until: Option<Instant>,
    /// When something was last heard, or asked for while nothing was on its way.
    waiting_since: Instant,
    /// None before the first answer.
    least_delay: Option<Duration>,
    delay_now: Option<Duration>,
    delay_since: Instant,
    /// Smoothed bytes and seconds of transfers; their quotient is the rate.
    transferred: f64,
    transfer_seconds: f64,
    /// Bytes that came in this stretch of time and in the one before, each as long as an answer takes.
    came: u64,
    came_before: u64,
    came_since: Instant,
    /// Bytes a second that came in the stretch before.
    delivery_rate: f64,
    delays: Histogram,
    delays_before: Option<HistogramSnapshot>,
    delays_since: Instant,
    answers: u64,
    bytes: u64,
    failures: u64,
}

/// A meter at one moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reading {
    pub outstanding: u64,
    pub outstanding_bytes: u64,
    pub delay: Duration,
    /// Bytes a second.
    pub rate: f64,
    pub answers: u64,
    pub bytes: u64,
    pub failures: u64,
}

/// An answer as it came in.
#[derive(Debug, Clone, Copy)]
pub struct Arrival {
    /// What the question had announced.
    pub asked_bytes: u64,
    pub bytes: u64,
    pub asked_at: Instant,
    pub head_at: Instant,
    pub end_at: Instant,
}

impl Arrival {
    fn whole(&self) -> Duration {
        self.end_at.saturating_duration_since(self.asked_at)
    }
}

impl Meter {
    pub fn new(now: Instant) -> Self {
        Self {
            answer_times: Histogram::default(),
            state: Mutex::new(State {
                asked: VecDeque::new(),
                outstanding_bytes: 0,
                asked_at: None,
                answered_until: None,
                waiting_since: now,
                least_delay: None,
                delay_now: None,
                delay_since: now,
                transferred: 0.0,
                transfer_seconds: 0.0,
                came: 0,
                came_before: 0,
                came_since: now,
                delivery_rate: 0.0,
                delays: Histogram::default(),
                delays_before: None,
                delays_since: now,
                answers: 0,
                bytes: 0,
                failures: 0,
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins with the rate that others have shown, until it shows its own.
    pub fn expect_rate(&self, rate: f64) {
        let mut state = self.state();
        state.transferred = as_float(USUAL_BYTES);
        state.transfer_seconds = as_float(USUAL_BYTES) / rate;
    }

    pub fn asked(&self, now: Instant, size_bytes: u64) {
        let mut state = self.state();
        if state.asked.is_empty() {
            state.waiting_since = now;
        }
        state.asked_at = Some(now);
        state.asked.push_back(now);
        state.outstanding_bytes += size_bytes;
    }

    /// Bytes came in, of whatever answer.
    pub fn heard(&self, now: Instant) {
        self.state().waiting_since = now;
    }

    pub fn answered(&self, arrival: &Arrival) {
        self.answer_times.record(arrival.whole());
        let mut state = self.state();
        state.leave(arrival.asked_bytes);
        state.answers += 1;
        state.bytes += arrival.bytes;
        state.answered_until = state.answered_until.max(Some(arrival.asked_at));
        state.see_delay(arrival);
        state.see_delivery(arrival);
        if arrival.bytes < TELLING_BYTES {
            return;
        }
        let transfer = arrival.end_at.saturating_duration_since(arrival.head_at);
        let seconds = transfer.max(LEAST_TRANSFER).as_secs_f64();
        let is_first = state.transfer_seconds == 0.0;
        let is_alone = state.asked.is_empty();
        let weight = match (is_first, is_alone) {
            (true, _) => 1.0,
            (false, true) => ALONE_SMOOTHING,
            (false, false) => SMOOTHING,
        };
        state.transferred += weight * (as_float(arrival.bytes) - state.transferred);
        state.transfer_seconds += weight * (seconds - state.transfer_seconds);
    }

    pub fn failed(&self, asked_bytes: u64) {
        let mut state = self.state();
        state.leave(asked_bytes);
        state.failures += 1;
    }

    pub fn reading(&self) -> Reading {
        let state = self.state();
        Reading {
            outstanding: state.asked.len() as u64,
            outstanding_bytes: state.outstanding_bytes,
            delay: state.delay(),
            rate: state.rate(),
            answers: state.answers,
            bytes: state.bytes,
            failures: state.failures,
        }
    }

    /// How long all answers so far have taken, each from its question to its end.
    pub fn answer_times(&self) -> HistogramSnapshot {
        self.answer_times.snapshot()
    }

    /// How long it has been silent although something is on its way.
    pub fn silence(&self, now: Instant) -> Duration {
        self.state().silence(now)
    }

    /// What an answer of this size would have to expect, were it asked for now.
    pub fn outlook(&self, now: Instant, size_bytes: u64) -> Outlook {
        let state = self.state();
        let outstanding_bytes = state.outstanding_bytes + size_bytes;
        Outlook {
            delay: state.delay().max(state.silence(now)).as_secs_f64(),
            rate: state.rate(),
            size_bytes: as_float(size_bytes),
            outstanding_bytes: as_float(outstanding_bytes),
            ahead: state.ahead(now),
            // One answer at a time any lane may carry, however large: else large samples would never prove a lane.
            is_proven: state.asked.is_empty() || outstanding_bytes <= state.proven_bytes(),
            answered_until: state.answered_until,
        }
    }

    /// Whether it has had nothing to do for so long that its numbers may be out of date.
    pub fn is_forgotten(&self, now: Instant, after: Duration) -> bool {
        let state = self.state();
        let is_old = |at: Instant| now.saturating_duration_since(at) >= after;
        state.asked.is_empty() && state.asked_at.is_none_or(is_old)
    }

    /// Delays from question to end of answer, of the last seconds.
    pub fn recent_delays(&self, now: Instant) -> HistogramSnapshot {
        let mut state = self.state();
        let snapshot = state.delays.snapshot();
        let recent = match &state.delays_before {
            Some(before) => before.plus(&snapshot),
            None => snapshot.clone(),
        };
        if now.saturating_duration_since(state.delays_since) >= DELAYS_MEMORY {
            state.delays_since = now;
            state.delays_before = Some(snapshot);
            state.delays = Histogram::default();
        }
        recent
    }
}

impl State {
    fn leave(&mut self, asked_bytes: u64) {
        self.asked.pop_front();
        self.outstanding_bytes = self.outstanding_bytes.saturating_sub(asked_bytes);
    }

    fn ahead(&self, now: Instant) -> Option<Ahead> {
        let ago = |at: &Instant| now.saturating_duration_since(*at).as_secs_f64();
        Some(Ahead {
            first: ago(self.asked.front()?),
            last: ago(self.asked.back()?),
        })
    }

    fn silence(&self, now: Instant) -> Duration {
        if self.asked.is_empty() {
            return Duration::ZERO;
        }
        now.saturating_duration_since(self.waiting_since)
    }

    fn see_delay(&mut self, arrival: &Arrival) {
        let delay = arrival.head_at.saturating_duration_since(arrival.asked_at);
        self.delays.record(arrival.whole());
        if arrival.end_at.saturating_duration_since(self.delay_since) >= MEMORY {
            // The smallest of the stretch that ends; a better one counts at once, see below.
            self.least_delay = self.delay_now;
            self.delay_now = None;
            self.delay_since = arrival.end_at;
        }
        for least in [&mut self.delay_now, &mut self.least_delay] {
            *least = Some(least.map_or(delay, |known| known.min(delay)));
        }
    }

    fn see_delivery(&mut self, arrival: &Arrival) {
        let stretch = arrival.end_at.saturating_duration_since(self.came_since);
        let whole = arrival.whole().max(LEAST_STRETCH);
        if stretch >= whole {
            self.came_before = if stretch >= 2 * whole { 0 } else { self.came };
            self.delivery_rate = as_float(self.came_before) / stretch.as_secs_f64();
            self.came = 0;
            self.came_since = arrival.end_at;
        }
        self.came += arrival.bytes;
    }

    /// What it may have on its way: twice what came during the time that an answer takes, as TCP's slow start does. A
    /// new lane looks fast as long as nothing queues on it, and would be given too much for seconds.
    fn proven_bytes(&self) -> u64 {
        (2 * self.came.max(self.came_before)).max(FIRST_BYTES)
    }

    fn delay(&self) -> Duration {
        self.least_delay.unwrap_or_default()
    }

    /// That of single answers, or that of all that came where this is more: where several lanes take turns, the end of
    /// one answer waits for a turn that brings the beginning of the next.
    fn rate(&self) -> f64 {
        if self.transfer_seconds == 0.0 {
            return FIRST_RATE;
        }
        let single = self.transferred / self.transfer_seconds;
        single.max(self.delivery_rate).max(1.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn answer(meter: &Meter, asked_at: Instant, delay: Duration, transfer: Duration) -> Instant {
        let head_at = asked_at + delay;
        meter.answered(&Arrival {
            asked_bytes: 100_000,
            bytes: 100_000,
            asked_at,
            head_at,
            end_at: head_at + transfer,
        });
        head_at + transfer
    }

    #[test]
    fn a_silent_lane_is_taken_for_a_far_one() {
        let asked_at = Instant::now();
        let now = asked_at + 20 * MS;
        let meter = Meter::new(asked_at);
        answer(&meter, asked_at, 10 * MS, 5 * MS);
        let delay = |now| meter.outlook(now, 100_000).delay;
        assert!((delay(now + 500 * MS) - 0.01).abs() < 1e-9);
        meter.asked(now, 1_000_000);
        assert!((delay(now + 500 * MS) - 0.5).abs() < 1e-9);
        meter.failed(1_000_000);
        assert_eq!(meter.reading().outstanding_bytes, 0);
        assert_eq!(meter.silence(now + 500 * MS), Duration::ZERO);
    }

    #[test]
    fn a_rate_is_what_transfers_show_not_what_was_asked_for() {
        let mut now = Instant::now();
        let meter = Meter::new(now);
        for _ in 0..50 {
            meter.asked(now, 100_000);
            now = answer(&meter, now, 150 * MS, 10 * MS);
        }
        let rate = meter.reading().rate;
        assert!((rate - 10e6).abs() < 1e5, "{rate}");
        for _ in 0..50 {
            meter.asked(now, 100_000);
            now = answer(&meter, now, 150 * MS, MS);
        }
        assert!(meter.reading().rate > 50e6);
    }

    #[test]
    fn answers_that_come_side_by_side_show_the_rate_together() {
        let start = Instant::now();
        let meter = Meter::new(start);
        for turn in 0..500 {
            // Each takes two turns of 5 ms, and the next begins with the second of them.
            let end_at = start + 100 * MS + turn * 5 * MS;
            meter.answered(&Arrival {
                asked_bytes: 100_000,
                bytes: 100_000,
                asked_at: end_at.checked_sub(100 * MS).unwrap(),
                head_at: end_at.checked_sub(10 * MS).unwrap(),
                end_at,
            });
        }
        let rate = meter.reading().rate;
        assert!((19e6..21e6).contains(&rate), "{rate}");
    }

    #[test]
    fn an_idle_lane_may_carry_any_answer_and_then_twice_what_came() {
        let now = Instant::now();
        let meter = Meter::new(now);
        let large = 8 << 20;
        assert!(meter.outlook(now, large).is_proven);
        meter.asked(now, large);
        assert!(!meter.outlook(now, large).is_proven);
        let end_at = now + 200 * MS;
        meter.answered(&Arrival {
            asked_bytes: large,
            bytes: large,
            asked_at: now,
            head_at: now + 100 * MS,
            end_at,
        });
        meter.asked(end_at, large);
        assert!(meter.outlook(end_at, large).is_proven);
        meter.asked(end_at, large);
        assert!(!meter.outlook(end_at, large).is_proven);
    }

    #[test]
    fn what_is_ahead_is_told_by_the_questions_that_still_wait() {
        let begin = Instant::now();
        let meter = Meter::new(begin);
        let ahead = |now| meter.outlook(now, 100_000).ahead;
        assert_eq!(ahead(begin), None);
        meter.asked(begin, 100_000);
        meter.asked(begin + 80 * MS, 100_000);
        let seen = ahead(begin + 100 * MS).unwrap();
        assert!((seen.first - 0.1).abs() < 1e-9 && (seen.last - 0.02).abs() < 1e-9);
        answer(&meter, begin, 100 * MS, 20 * MS);
        let seen = ahead(begin + 120 * MS).unwrap();
        assert!((seen.first - 0.04).abs() < 1e-9 && (seen.last - 0.04).abs() < 1e-9);
        meter.failed(100_000);
        assert_eq!(ahead(begin + 130 * MS), None);
    }

    #[test]
    fn all_answers_are_timed_from_question_to_end() {
        let mut now = Instant::now();
        let meter = Meter::new(now);
        for _ in 0..10 {
            now = answer(&meter, now + DELAYS_MEMORY, 30 * MS, 10 * MS);
            meter.recent_delays(now);
        }
        let times = meter.answer_times();
        assert_eq!((times.count(), times.max_microseconds), (10, 40_000));
    }

    #[test]
    fn a_delay_that_falls_counts_at_once_and_one_that_grows_within_half_a_second() {
        let mut now = Instant::now();
        let meter = Meter::new(now);
        let mut answer_for = |stretch: Duration, delay| {
            let end = now + stretch;
            while now < end {
                now += 10 * MS;
                answer(&meter, now.checked_sub(delay).unwrap(), delay, MS);
            }
            meter.reading().delay
        };
        assert_eq!(answer_for(3000 * MS, 150 * MS), 150 * MS);
        assert_eq!(answer_for(20 * MS, 750 * MS), 150 * MS);
        assert_eq!(answer_for(500 * MS, 750 * MS), 750 * MS);
        assert_eq!(answer_for(10 * MS, 30 * MS), 30 * MS);
    }
}
