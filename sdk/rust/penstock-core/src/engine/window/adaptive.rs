//! A window that finds itself: it grows by a quarter for what has been delivered, up to one and a half times the best
//! rate times the smallest delay, and looks again now and then whether these two still hold.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::Window;
use crate::stats::as_float;

/// Where it starts: some samples more than its least, which no path minds at once and which save six round trips.
const START_BYTES: u64 = 4 << 20;
/// What it never falls below.
const LEAST_BYTES: u64 = 1 << 20;
/// One times the product gives 0.95 of the rate, one and a half 0.99; what is more only queues, and what queues comes
/// at times that are further apart (measured: at twice the gap at the end of an epoch is longer by a half).
const TARGET_FACTOR: f64 = 1.5;
/// The same while the rate still rises. What was measured is the rate of half a round trip ago, of requests that went
/// out a round trip before: by then the window has grown by a third, and would wait for its own measure.
const RISING_FACTOR: f64 = 1.85;
/// A rate that grows by less than this within a round trip has arrived.
const RISING: f64 = 1.1;
/// Bytes requested for each byte delivered while it grows, above the one that replaces it.
const GROWTH: f64 = 0.25;
/// How far the two ways to measure a rate differ on a path where nothing is wrong.
const UNEVENNESS: f64 = 1.25;
/// Rates and delays are averages over a round trip, and at least this long and this many answers.
const LEAST_STRETCH: Duration = Duration::from_millis(10);
const LEAST_ANSWERS: u32 = 8;
/// So often in a round trip they are measured.
const MARKS: u32 = 8;
/// What was seen is forgotten after one to two of these, and the delay is then measured with a short queue.
const MEMORY: Duration = Duration::from_secs(30);
const PROBE_ROUNDS: u32 = 5;
/// So much of the product is in flight then. With all of it, a delay that was measured too long would confirm itself:
/// what is held for it queues for as long.
const PROBE_FACTOR: f64 = 0.75;
/// Bytes requested for each byte delivered, above the one that replaces it, until it is again what it was before.
const RETURN: f64 = 1.0;
/// After a pause of this length the path may have changed.
const PAUSE: Duration = Duration::from_secs(1);

/// A window controlled by what comes back.
#[derive(Debug)]
pub struct AdaptiveWindow {
    cap_bytes: u64,
    limit_bytes: f64,
    in_flight_bytes: u64,
    came: Came,
    /// Up to when what was held has been counted.
    held_until: Option<Instant>,
    /// How much had come at moments of the last round trip.
    marks: VecDeque<Mark>,
    last_answer: Option<Instant>,
    best_rate: Recent,
    least_delay: Recent,
    round: Option<Round>,
    is_rising: bool,
    remembered_since: Option<Instant>,
    probing: u32,
    /// What the limit was when it began to look again, until it has come back.
    limit_before: f64,
}

/// All answers so far, or those between two moments.
#[derive(Debug, Clone, Copy, Default)]
struct Came {
    bytes: u64,
    answers: u32,
    delays: Duration,
    /// Bytes in flight times the seconds that they were.
    held: f64,
}

#[derive(Debug, Clone, Copy)]
struct Mark {
    at: Instant,
    came: Came,
}

/// A stretch of about a round trip.
#[derive(Debug, Clone, Copy)]
struct Round {
    since: Instant,
    /// The best rate that was known when it began.
    best_rate: f64,
}

/// What came within a stretch of time.
#[derive(Debug, Clone, Copy)]
struct Stretch {
    lasted: Duration,
    came: Came,
}

impl Stretch {
    fn between(mark: &Mark, now: Instant, came: Came) -> Self {
        Self {
            lasted: now.saturating_duration_since(mark.at),
            came: Came {
                bytes: came.bytes - mark.came.bytes,
                // Counters that have come around differ rightly all the same.
                answers: came.answers.wrapping_sub(mark.came.answers),
                delays: came.delays.saturating_sub(mark.came.delays),
                held: came.held - mark.came.held,
            },
        }
    }

    fn mean_delay(&self) -> Duration {
        self.came.delays / self.came.answers.max(1)
    }

    /// Whether averages over it mean something: it is as long as the way of an answer.
    fn is_enough(&self) -> bool {
        self.came.answers >= LEAST_ANSWERS && self.lasted >= self.mean_delay().max(LEAST_STRETCH)
    }

    /// What came a second, and not much more than what was in flight could yield with the delay that it had: after a
    /// stall of the consumer all comes at once that has piled up, faster than any link.
    fn rate(&self) -> f64 {
        let seconds = self.lasted.as_secs_f64();
        let in_flight = self.came.held / seconds;
        let came = as_float(self.came.bytes) / seconds;
        came.min(UNEVENNESS * in_flight / self.mean_delay().as_secs_f64())
    }
}

/// The best value of this stretch of memory and of the one before.
#[derive(Debug, Clone, Copy, Default)]
struct Recent {
    now: Option<f64>,
    before: Option<f64>,
}

impl Recent {
    fn see(&mut self, value: f64, better: fn(f64, f64) -> f64) {
        self.now = Some(self.now.map_or(value, |now| better(now, value)));
    }

    fn best(&self, better: fn(f64, f64) -> f64) -> Option<f64> {
        match (self.now, self.before) {
            (Some(now), Some(before)) => Some(better(now, before)),
            (now, before) => now.or(before),
        }
    }

    fn turn_over(&mut self) {
        *self = Self {
            now: None,
            before: self.now,
        };
    }
}

impl AdaptiveWindow {
    /// Never more than `cap_bytes`.
    pub fn new(cap_bytes: u64) -> Self {
        Self {
            cap_bytes,
            limit_bytes: as_float(START_BYTES.min(cap_bytes)),
            in_flight_bytes: 0,
            came: Came::default(),
            held_until: None,
            marks: VecDeque::new(),
            last_answer: None,
            best_rate: Recent::default(),
            least_delay: Recent::default(),
            round: None,
            is_rising: true,
            remembered_since: None,
            probing: 0,
            limit_before: 0.0,
        }
    }

    /// What it grows or shrinks to; as much as it may before anything has been measured.
    fn target_bytes(&self) -> f64 {
        let rate = self.best_rate.best(f64::max);
        let delay = self.least_delay.best(f64::min);
        let factor = match (self.probing, self.is_rising) {
            (0, false) => TARGET_FACTOR,
            (0, true) => RISING_FACTOR,
            _ => PROBE_FACTOR,
        };
        let wanted = match (rate, delay) {
            (Some(rate), Some(delay)) => factor * rate * delay,
            _ => f64::INFINITY,
        };
        wanted.clamp(self.least_bytes(), as_float(self.cap_bytes))
    }

    fn least_bytes(&self) -> f64 {
        as_float(LEAST_BYTES.min(self.cap_bytes))
    }

    /// Sets a mark when it is time, and measures from the last one that lies a round trip back.
    fn measure(&mut self, now: Instant) {
        let came = self.came;
        if let (Some(first), Some(last)) = (self.marks.front(), self.marks.back()) {
            let mean_delay = Stretch::between(first, now, came).mean_delay();
            let since_last = now.saturating_duration_since(last.at);
            if since_last < mean_delay.max(LEAST_STRETCH) / MARKS {
                return;
            }
        }
        self.marks.push_back(Mark { at: now, came });
        let is_enough = |mark: &Mark| Stretch::between(mark, now, came).is_enough();
        while self.marks.get(1).is_some_and(is_enough) {
            self.marks.pop_front();
        }
        let stretch = self
            .marks
            .front()
            .map(|mark| Stretch::between(mark, now, came));
        if let Some(stretch) = stretch.filter(Stretch::is_enough) {
            self.best_rate.see(stretch.rate(), f64::max);
            self.least_delay
                .see(stretch.mean_delay().as_secs_f64(), f64::min);
            self.end_round(now, stretch.lasted);
        }
    }

    /// What is looked at once a round trip.
    fn end_round(&mut self, now: Instant, lasts: Duration) {
        let best_rate = self.best_rate.best(f64::max).unwrap_or_default();
        let next = Round {
            since: now,
            best_rate,
        };
        let round = *self.round.get_or_insert(next);
        if now.saturating_duration_since(round.since) < lasts {
            return;
        }
        self.round = Some(next);
        self.is_rising = best_rate >= RISING * round.best_rate;
        self.probing = self.probing.saturating_sub(1);
        let since = *self.remembered_since.get_or_insert(now);
        if now.duration_since(since) >= MEMORY {
            self.remembered_since = Some(now);
            self.best_rate.turn_over();
            self.least_delay.turn_over();
            self.probing = PROBE_ROUNDS;
            self.limit_before = self.limit_bytes;
        }
    }

    fn count_held(&mut self, now: Instant) {
        let since = self.held_until.replace(now).unwrap_or(now);
        let held_for = now.saturating_duration_since(since).as_secs_f64();
        self.came.held += as_float(self.in_flight_bytes) * held_for;
    }

    fn approach_target(&mut self, size_bytes: u64) {
        let target = self.target_bytes();
        let is_returning = self.probing == 0 && self.limit_bytes < self.limit_before;
        let size_bytes = as_float(size_bytes);
        let growth = if is_returning { RETURN } else { GROWTH } * size_bytes;
        // Were it small at once, nothing would be requested for a while, and nothing come a delay later.
        let decline = GROWTH * size_bytes;
        self.limit_bytes = target.clamp(self.limit_bytes - decline, self.limit_bytes + growth);
        if self.probing == 0 && self.limit_bytes >= target.min(self.limit_before) {
            // From here on it grows into what it does not know.
            self.limit_before = 0.0;
        }
    }
}

impl Window for AdaptiveWindow {
    fn admits(&self, size_bytes: u64) -> bool {
        let after = self.in_flight_bytes.saturating_add(size_bytes);
        self.in_flight_bytes == 0 || after <= self.limit_bytes()
    }

    fn requested(&mut self, now: Instant, size_bytes: u64) {
        let is_after_pause = self.in_flight_bytes == 0
            && self
                .last_answer
                .is_some_and(|at| now.duration_since(at) >= PAUSE);
        if is_after_pause {
            // No burst into a path that nobody has used for a while, and a fresh look at it.
            self.limit_bytes = (self.limit_bytes / 4.0).max(self.least_bytes());
            self.limit_before = 0.0;
            self.best_rate.turn_over();
            self.least_delay.turn_over();
            self.remembered_since = Some(now);
            self.marks.clear();
            self.round = None;
        }
        self.count_held(now);
        self.in_flight_bytes += size_bytes;
    }

    fn answered(&mut self, now: Instant, size_bytes: u64, delay: Duration) {
        self.count_held(now);
        self.in_flight_bytes -= size_bytes;
        self.last_answer = Some(now);
        self.came.bytes += size_bytes;
        self.came.answers = self.came.answers.wrapping_add(1);
        self.came.delays += delay;
        self.measure(now);
        self.approach_target(size_bytes);
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // between 0 and the cap
    fn limit_bytes(&self) -> u64 {
        (self.limit_bytes as u64).min(self.cap_bytes)
    }

    fn in_flight_bytes(&self) -> u64 {
        self.in_flight_bytes
    }

    fn set_cap(&mut self, cap_bytes: u64) {
        self.cap_bytes = cap_bytes;
        self.limit_bytes = self
            .limit_bytes
            .clamp(self.least_bytes(), as_float(cap_bytes));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BinaryHeap;

    use super::*;
    use crate::retry::Random;

    const MB: u64 = 1_000_000;

    /// A link with one queue: an answer takes the delay, then its turn at the rate of the link.
    struct Link {
        rate: f64,
        delay: Duration,
        jitter: f64,
        random: Random,
        free_at: Duration,
    }

    impl Link {
        fn new(rate_mb: u64, delay_ms: u64, jitter: f64) -> Self {
            Self {
                rate: as_float(rate_mb * MB),
                delay: Duration::from_millis(delay_ms),
                jitter,
                random: Random::new(1),
                free_at: Duration::ZERO,
            }
        }

        fn arrival(&mut self, now: Duration, size_bytes: u64) -> Duration {
            let delay = self
                .delay
                .mul_f64(1.0 + self.jitter * self.random.next_unit());
            let begins = (now + delay).max(self.free_at);
            self.free_at = begins + Duration::from_secs_f64(as_float(size_bytes) / self.rate);
            self.free_at
        }
    }

    struct Play {
        start: Instant,
        now: Duration,
        window: AdaptiveWindow,
        under_way: BinaryHeap<std::cmp::Reverse<(Duration, Duration, u64)>>,
        delivered: u64,
        peak: u64,
    }

    impl Play {
        fn new(cap_bytes: u64) -> Self {
            Self {
                start: Instant::now(),
                now: Duration::ZERO,
                window: AdaptiveWindow::new(cap_bytes),
                under_way: BinaryHeap::new(),
                delivered: 0,
                peak: 0,
            }
        }

        /// The rate in MB/s of the emptiest of stretches of so many seconds.
        fn emptiest(&mut self, link: &mut Link, stretches: u32, seconds: f64) -> f64 {
            let rates = (0..stretches).map(|_| self.run(link, seconds, 100_000));
            rates.fold(f64::INFINITY, f64::min)
        }

        /// Runs for a while and returns the rate in MB/s.
        fn run(&mut self, link: &mut Link, seconds: f64, size_bytes: u64) -> f64 {
            let end = self.now + Duration::from_secs_f64(seconds);
            let before = self.delivered;
            while self.now < end {
                let at = self.start + self.now;
                while self.window.admits(size_bytes) {
                    self.window.requested(at, size_bytes);
                    let arrives = link.arrival(self.now, size_bytes);
                    self.under_way
                        .push(std::cmp::Reverse((arrives, self.now, size_bytes)));
                }
                self.peak = self.peak.max(self.window.in_flight_bytes());
                let std::cmp::Reverse((arrives, sent, size)) = self.under_way.pop().unwrap();
                // Later than it arrived, when nobody looked.
                self.now = arrives.max(self.now);
                self.delivered += size;
                let delay = self.now.checked_sub(sent).unwrap();
                self.window.answered(self.start + self.now, size, delay);
            }
            as_float(self.delivered - before) / seconds / as_float(MB)
        }

        fn pause(&mut self, seconds: u64) {
            while let Some(std::cmp::Reverse((arrives, sent, size))) = self.under_way.pop() {
                self.now = arrives;
                let delay = arrives.checked_sub(sent).unwrap();
                self.window.answered(self.start + arrives, size, delay);
            }
            self.now += Duration::from_secs(seconds);
        }
    }

    #[test]
    fn it_fills_a_long_link_within_three_seconds_without_overshoot() {
        for (rate, delay) in [(200, 150), (100, 20), (50, 150), (400, 80)] {
            let mut link = Link::new(rate, delay, 0.05);
            let mut play = Play::new(1 << 30);
            play.run(&mut link, 2.5, 100_000);
            let rate_mb = play.run(&mut link, 0.25, 100_000);
            assert!(
                rate_mb >= 0.8 * as_float(rate),
                "{rate_mb:.0} of {rate} MB/s at {delay} ms"
            );
            let rate_mb = play.run(&mut link, 6.0, 100_000);
            assert!(
                rate_mb >= 0.97 * as_float(rate),
                "{rate_mb:.0} of {rate} MB/s at {delay} ms"
            );
            let steady = play.window.limit_bytes();
            assert!(
                play.peak <= steady + steady / 4,
                "peak {} over {steady}",
                play.peak
            );
            let product = rate * MB * delay / 1000;
            assert!(
                steady <= 3 * product.max(START_BYTES),
                "{steady} for {product}"
            );
        }
    }

    #[test]
    fn it_stays_where_it_is_for_minutes() {
        let mut link = Link::new(100, 100, 0.1);
        let mut play = Play::new(1 << 30);
        play.run(&mut link, 20.0, 100_000);
        let early = play.window.limit_bytes();
        let rate_mb = play.run(&mut link, 300.0, 100_000);
        let late = play.window.limit_bytes();
        assert!(rate_mb >= 97.0, "{rate_mb:.1} MB/s");
        assert!(late <= early + early / 3, "{early} became {late}");
        assert!(late >= early - early / 3, "{early} became {late}");
    }

    #[test]
    fn while_it_looks_again_the_link_is_never_empty() {
        let mut link = Link::new(300, 150, 0.05);
        let mut play = Play::new(1 << 30);
        play.run(&mut link, 10.0, 100_000);
        let emptiest = play.emptiest(&mut link, 1400, 0.05);
        assert!(emptiest >= 150.0, "{emptiest:.0} of 300 MB/s");
    }

    #[test]
    fn a_consumer_that_stalls_does_not_make_it_larger() {
        let mut link = Link::new(200, 150, 0.05);
        let mut play = Play::new(1 << 30);
        play.run(&mut link, 10.0, 100_000);
        let before = play.window.limit_bytes();
        for _ in 0..60 {
            play.now += Duration::from_millis(300);
            play.run(&mut link, 2.0, 100_000);
        }
        let after = play.window.limit_bytes();
        assert!(after <= before + before / 4, "{before} became {after}");
        assert!(after >= before - before / 8, "{before} became {after}");
    }

    #[test]
    fn it_follows_a_path_that_becomes_shorter() {
        let mut link = Link::new(100, 150, 0.05);
        let mut play = Play::new(1 << 30);
        play.run(&mut link, 5.0, 100_000);
        link.delay = Duration::from_millis(75);
        play.run(&mut link, 150.0, 100_000);
        let product = 100 * MB * 75 / 1000;
        let limit = play.window.limit_bytes();
        assert!(limit <= 2 * product, "{limit} for {product}");
    }

    #[test]
    fn after_it_found_a_slower_link_it_grows_as_gently_as_ever() {
        let product = |rate_mb: u64| rate_mb * MB * 150 / 1000;
        let mut link = Link::new(300, 150, 0.05);
        let mut play = Play::new(1 << 30);
        play.run(&mut link, 10.0, 100_000);
        link.rate = as_float(100 * MB);
        while play.window.limit_bytes() > 2 * product(100) {
            play.run(&mut link, 0.1, 100_000);
        }
        play.run(&mut link, 10.0, 100_000);
        link.rate = as_float(300 * MB);
        let (limit, delivered) = (play.window.limit_bytes(), play.delivered);
        play.run(&mut link, 0.5, 100_000);
        let grown = play.window.limit_bytes() - limit;
        let came = play.delivered - delivered;
        assert!(grown >= came / 10, "{grown} for {came}");
        assert!(grown <= came / 3, "{grown} for {came}");
    }

    #[test]
    fn it_follows_a_path_that_becomes_longer() {
        let mut link = Link::new(100, 20, 0.05);
        let mut play = Play::new(1 << 30);
        play.run(&mut link, 5.0, 100_000);
        link.delay = Duration::from_millis(150);
        play.run(&mut link, 70.0, 100_000);
        let rate_mb = play.run(&mut link, 10.0, 100_000);
        assert!(rate_mb >= 90.0, "{rate_mb:.1} MB/s");
    }

    #[test]
    fn a_near_store_keeps_it_small_and_a_cap_is_kept() {
        let mut near = Play::new(1 << 30);
        near.run(&mut Link::new(2000, 1, 0.5), 3.0, 100_000);
        assert!(
            near.window.limit_bytes() <= 16 * MB,
            "{}",
            near.window.limit_bytes()
        );
        let mut capped = Play::new(5 * MB);
        capped.run(&mut Link::new(200, 150, 0.0), 5.0, 100_000);
        assert_eq!(capped.window.limit_bytes(), 5 * MB);
        assert!(capped.peak <= 5 * MB);
        capped.window.set_cap(2 * MB);
        assert_eq!(capped.window.limit_bytes(), 2 * MB);
        capped.window.set_cap(20 * MB);
        capped.run(&mut Link::new(200, 150, 0.0), 5.0, 100_000);
        assert_eq!(capped.window.limit_bytes(), 20 * MB);
    }

    #[test]
    fn after_a_pause_it_starts_gently_and_comes_back() {
        let mut link = Link::new(200, 150, 0.05);
        let mut play = Play::new(1 << 30);
        play.run(&mut link, 8.0, 100_000);
        let before = play.window.limit_bytes();
        play.pause(5);
        let at = play.start + play.now;
        play.window.requested(at, 1);
        assert!(play.window.limit_bytes() <= before / 3);
        play.window.answered(at, 1, Duration::from_millis(150));
        play.run(&mut link, 3.0, 100_000);
        assert!(play.run(&mut link, 2.0, 100_000) >= 190.0);
    }

    #[test]
    fn samples_of_any_size_go_through() {
        for size in [100, 10_000, 5 * MB] {
            let mut play = Play::new(1 << 30);
            let seconds = if size < 1000 { 0.5 } else { 6.0 };
            let rate_mb = play.run(&mut Link::new(100, 50, 0.0), seconds, size);
            assert!(rate_mb > 5.0, "{rate_mb:.1} MB/s with {size} bytes");
        }
    }
}
