//! Clocks that say when bytes may leave, so that a rate holds whatever the timers do.

use std::cell::Cell;
use std::time::Duration;

use tokio::sync::Mutex;
use tokio::time::Instant;

/// How far a late wake-up may be made good; more would be a burst that no link gives.
const LATE: Duration = Duration::from_millis(50);

pub const CHUNK_BYTES: usize = 128 * 1024;

/// A clock that is behind is used again within this time, or nobody had anything to send.
const BUSY: Duration = Duration::from_millis(2);

/// The line of one rate: it is free again when the last byte given to it has left.
pub struct Clock {
    free_at: Cell<Instant>,
    /// When it was last used and still was behind: timers wake a millisecond late, which is several chunks of a fast
    /// link, and all of them are made good, not only the first.
    behind_at: Cell<Option<Instant>>,
}

impl Clock {
    pub fn new() -> Self {
        Self { free_at: Cell::new(Instant::now()), behind_at: Cell::new(None) }
    }

    pub fn free_at(&self) -> Instant {
        self.free_at.get()
    }

    /// Send these bytes; returns when the last of them has left. Who had to wait for the clock (`is_late`) starts
    /// where the one before ended, not at the late moment when a timer woke it.
    #[expect(clippy::cast_precision_loss, reason = "a chunk is small")]
    pub fn charge(&self, now: Instant, bytes: usize, rate: f64, is_late: bool) -> Instant {
        let is_late = is_late || self.behind_at.get().is_some_and(|at| now < at + BUSY);
        let earliest = if is_late { now.checked_sub(LATE).unwrap_or(now) } else { now };
        let end = self.free_at.get().max(earliest) + Duration::from_secs_f64(bytes as f64 / rate);
        self.free_at.set(end);
        self.behind_at.set((is_late && end < now).then_some(now));
        end
    }
}

/// What all connections share in one direction; the turn is handed on first come, first served.
pub struct Link {
    pub clock: Clock,
    pub turn: Mutex<()>,
}

impl Link {
    pub fn new() -> Self {
        Self { clock: Clock::new(), turn: Mutex::new(()) }
    }
}

/// Bytes to take at once at the rate of the link: about two milliseconds' worth, so that a narrow one is smooth and fair.
pub fn chunk_bytes(rate: Option<f64>) -> usize {
    rate.map_or(CHUNK_BYTES, |rate| worth(rate, 0.002))
}

/// The same for the rate of one connection. Before each chunk it waits until all others have had their turn on the link,
/// some ten milliseconds, and shall not be slower for that than it was asked to be.
pub fn own_chunk_bytes(rate: f64) -> usize {
    worth(rate, 0.02)
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped")]
fn worth(rate: f64, seconds: f64) -> usize {
    ((rate * seconds) as usize).clamp(1024, CHUNK_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_makes_good_a_late_wake_up_but_saves_nothing_while_idle() {
        let clock = Clock::new();
        let start = clock.free_at();
        let second = Duration::from_secs(1);
        assert_eq!(clock.charge(start, 1000, 1000.0, false), start + second);
        let late = start + second + Duration::from_millis(10);
        assert_eq!(clock.charge(late, 1000, 1000.0, true), start + 2 * second);
        let later = start + 2 * second + Duration::from_millis(3);
        for end_ms in [1, 2, 3, 4] {
            let is_first = end_ms == 1;
            let end = clock.charge(later, 1, 1000.0, is_first);
            assert_eq!(end, start + 2 * second + Duration::from_millis(end_ms));
        }
        let idle = start + 10 * second;
        assert_eq!(clock.charge(idle, 1000, 1000.0, false), idle + second);
    }
}
