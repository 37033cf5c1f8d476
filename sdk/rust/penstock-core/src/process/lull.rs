//! A moment's sleep between two looks at the sockets, while much comes in.
//!
//! The worker of the runtime has little to do for each answer. Woken for every one of them it spends a good part of its
//! time on waking up, on calls of the system and on fetching its own code back into the cache. A network card has the
//! same trouble with interrupts, and the same way out. Nothing comes later by it than it may: the sleep is over before
//! half of what was asked for has come, so that the other side always has something to send.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

use crate::stats::as_float;

/// At lower rates there is nothing to save.
const LEAST_RATE: f64 = 64e6;
/// So many bytes make a look worth it.
const WORTHWHILE_BYTES: u64 = 1 << 20;
/// Nobody notices that something came so much later.
const MOST: Duration = Duration::from_millis(1);
/// A shorter sleep costs more than it saves.
const LEAST: Duration = Duration::from_micros(100);
/// Weight of the last look in the rate.
const SMOOTHING: f64 = 0.25;

/// What data connections have asked for and received.
#[derive(Debug)]
pub struct Lull {
    outstanding_bytes: AtomicU64,
    /// Since the last look.
    came_bytes: AtomicU64,
    looks: Mutex<Looks>,
}

#[derive(Debug)]
struct Looks {
    last_at: Option<Instant>,
    /// Smoothed bytes and seconds between two looks that found something; their quotient is the rate.
    bytes: f64,
    seconds: f64,
}

impl Looks {
    const NONE: Self = Self {
        last_at: None,
        bytes: 0.0,
        seconds: 0.0,
    };
}

impl Lull {
    pub const fn new() -> Self {
        Self {
            outstanding_bytes: AtomicU64::new(0),
            came_bytes: AtomicU64::new(0),
            looks: Mutex::new(Looks::NONE),
        }
    }

    pub fn asked(&self, bytes: u64) {
        self.outstanding_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// What was asked for has come, or never will.
    pub fn settled(&self, bytes: u64) {
        let left = |outstanding: u64| Some(outstanding.saturating_sub(bytes));
        let bytes = &self.outstanding_bytes;
        let _ = bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, left);
    }

    pub fn came(&self, bytes: u64) {
        self.came_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Forgets everything: the connections of a parent process are not ours.
    pub fn reset(&self) {
        self.outstanding_bytes.store(0, Ordering::Relaxed);
        self.came_bytes.store(0, Ordering::Relaxed);
        if let Some(mut looks) = self.looks() {
            *looks = Looks::NONE;
        }
    }

    /// Only the worker looks, so nobody ever waits here; but if it was just looking when a child was forked, the lock is
    /// never released in the child, which then does without.
    fn looks(&self) -> Option<MutexGuard<'_, Looks>> {
        self.looks.try_lock().ok()
    }

    /// How long to sleep before the next look, when all that this one has found is done.
    pub fn pause(&self, now: Instant) -> Option<Duration> {
        let came = self.came_bytes.swap(0, Ordering::Relaxed);
        if came == 0 {
            return None;
        }
        let rate = self.looks()?.rate(now, came)?;
        if rate < LEAST_RATE {
            return None;
        }
        let waited_for = self.outstanding_bytes.load(Ordering::Relaxed) / 2;
        let seconds = as_float(waited_for.min(WORTHWHILE_BYTES)) / rate;
        let pause = Duration::from_secs_f64(seconds).min(MOST);
        (pause >= LEAST).then_some(pause)
    }
}

impl Looks {
    /// Bytes a second; none at the first look.
    fn rate(&mut self, now: Instant, came: u64) -> Option<f64> {
        let last_at = self.last_at.replace(now)?;
        let seconds = now.saturating_duration_since(last_at).as_secs_f64();
        self.bytes += SMOOTHING * (as_float(came) - self.bytes);
        self.seconds += SMOOTHING * (seconds - self.seconds);
        Some(self.bytes / self.seconds.max(f64::MIN_POSITIVE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: u64 = 4 << 20;

    /// The pause after a second of looks, a millisecond apart, that find so much each.
    fn pause_after(outstanding: u64, came: u64) -> Option<Duration> {
        let lull = Lull::new();
        let begin = Instant::now();
        lull.asked(outstanding);
        let looks = (0..1000_u64).map(|number| {
            lull.came(came);
            lull.pause(begin + Duration::from_millis(number))
        });
        looks.last().flatten()
    }

    #[test]
    fn the_faster_it_comes_the_shorter_it_sleeps() {
        assert_eq!(pause_after(WINDOW, 300_000), Some(MOST));
        let pause = pause_after(WINDOW, 4 << 20).unwrap();
        assert!(
            pause.abs_diff(MOST / 4) < Duration::from_micros(5),
            "{pause:?}"
        );
        assert_eq!(pause_after(WINDOW, 20 << 20), None, "not worth it");
    }

    #[test]
    fn what_comes_slowly_is_not_kept_waiting() {
        assert_eq!(pause_after(WINDOW, 50_000), None);
    }

    #[test]
    fn the_other_side_never_runs_out_of_questions() {
        let pause = pause_after(800_000, 2_000_000).unwrap();
        assert!(pause.as_secs_f64() * 2e9 <= 400_000.0, "{pause:?}");
        assert_eq!(pause_after(100_000, 2_000_000), None);
        assert_eq!(pause_after(0, 2_000_000), None);
    }

    #[test]
    fn nothing_found_and_the_first_after_a_pause_are_no_reason_to_sleep() {
        let lull = Lull::new();
        let begin = Instant::now();
        let second = Duration::from_secs(1);
        lull.asked(WINDOW);
        assert_eq!(lull.pause(begin), None);
        for number in 1..10 {
            lull.came(2 << 20);
            assert_eq!(lull.pause(begin + number * second), None, "2 MiB a second");
        }
        lull.settled(WINDOW + 1);
        assert_eq!(lull.outstanding_bytes.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_lock_that_was_held_at_a_fork_holds_up_nobody() {
        let lull = Lull::new();
        let held = lull.looks.lock().unwrap();
        lull.reset();
        lull.came(1);
        assert_eq!(lull.pause(Instant::now()), None);
        drop(held);
    }
}
