//! How many bytes may be in flight. The driver asks before each request and tells of each answer.

mod adaptive;

use std::fmt;
use std::time::{Duration, Instant};

pub use adaptive::AdaptiveWindow;

/// A controller of bytes in flight. It learns from what it is told and never sees a sample.
pub trait Window: fmt::Debug + Send {
    /// Whether a request of this size may go out now. A request larger than the whole window is
    /// admitted when nothing else is in flight.
    fn admits(&self, size_bytes: u64) -> bool;

    /// A request went out.
    fn requested(&mut self, now: Instant, size_bytes: u64);

    /// Its answer came, good or bad, `delay` after it went out.
    fn answered(&mut self, now: Instant, size_bytes: u64, delay: Duration);

    /// The bytes that may be in flight at the moment.
    fn limit_bytes(&self) -> u64;

    fn in_flight_bytes(&self) -> u64;

    /// The most that the limit may become from now on; one set by hand stays.
    fn set_cap(&mut self, _cap_bytes: u64) {}
}

/// A window that somebody has set by hand.
#[derive(Debug)]
pub struct FixedWindow {
    limit_bytes: u64,
    in_flight_bytes: u64,
}

impl FixedWindow {
    pub fn new(limit_bytes: u64) -> Self {
        Self {
            limit_bytes,
            in_flight_bytes: 0,
        }
    }
}

impl Window for FixedWindow {
    fn admits(&self, size_bytes: u64) -> bool {
        let after = self.in_flight_bytes.saturating_add(size_bytes);
        self.in_flight_bytes == 0 || after <= self.limit_bytes
    }

    fn requested(&mut self, _now: Instant, size_bytes: u64) {
        self.in_flight_bytes += size_bytes;
    }

    fn answered(&mut self, _now: Instant, size_bytes: u64, _delay: Duration) {
        self.in_flight_bytes -= size_bytes;
    }

    fn limit_bytes(&self) -> u64 {
        self.limit_bytes
    }

    fn in_flight_bytes(&self) -> u64 {
        self.in_flight_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fixed_window_admits_up_to_its_limit() {
        let now = Instant::now();
        let mut window = FixedWindow::new(100);
        window.requested(now, 60);
        assert!(window.admits(40));
        assert!(!window.admits(41));
        window.answered(now, 60, Duration::ZERO);
        assert_eq!(window.in_flight_bytes(), 0);
    }

    #[test]
    fn a_sample_larger_than_the_window_goes_alone() {
        let now = Instant::now();
        let mut window = FixedWindow::new(100);
        assert!(window.admits(1000));
        window.requested(now, 1000);
        assert!(!window.admits(1));
    }
}
