//! Where in the bytes of one direction of one connection something breaks.

use crate::frames::{Frames, exchange};
use crate::random::Random;
use crate::settings::{Place, Settings};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Break {
    Reset,
    Truncate,
    Stall,
}

/// One kind of fault: what was asked for and the byte at which it comes next.
#[derive(Default)]
struct Trigger {
    asked: Option<Place>,
    at: Option<u64>,
}

impl Trigger {
    /// A fault that is asked for while a connection is open counts from there.
    fn follow(&mut self, asked: Option<Place>, carried: u64, random: &mut Random) {
        if self.asked != asked {
            self.asked = asked;
            self.plan(carried, random);
        }
    }

    fn plan(&mut self, carried: u64, random: &mut Random) {
        self.at = self.asked.map(|place| match place {
            Place::At(bytes) => carried + bytes,
            Place::Mean(mean) => carried + random.distance(mean),
        });
    }

    /// After it happened: a fault at random places comes again.
    fn again(&mut self, carried: u64, random: &mut Random) {
        self.at = None;
        if matches!(self.asked, Some(Place::Mean(_))) {
            self.plan(carried, random);
        }
    }
}

pub struct Faults {
    random: Random,
    breaks: [(Break, Trigger); 3],
    flip: Trigger,
    swap: Trigger,
    frames: Frames,
}

impl Faults {
    pub fn new(random: Random) -> Self {
        let breaks = [Break::Reset, Break::Truncate, Break::Stall].map(|kind| (kind, Trigger::default()));
        Self { random, breaks, flip: Trigger::default(), swap: Trigger::default(), frames: Frames::default() }
    }

    pub fn follow(&mut self, settings: &Settings, carried: u64) {
        for (kind, trigger) in &mut self.breaks {
            let asked = match kind {
                Break::Reset => settings.reset(),
                Break::Truncate => settings.truncate(),
                Break::Stall => settings.stall(),
            };
            trigger.follow(asked, carried, &mut self.random);
        }
        self.flip.follow(settings.flip(), carried, &mut self.random);
        self.swap.follow(settings.swap(), carried, &mut self.random);
    }

    /// The break that comes inside these bytes, or right after them, and how many of them still pass.
    pub fn next_break(&mut self, carried: u64, length: usize) -> Option<(usize, Break)> {
        let end = carried + length as u64;
        let first = self
            .breaks
            .iter_mut()
            .filter(|(_, trigger)| trigger.at.is_some_and(|at| at <= end))
            .min_by_key(|(_, trigger)| trigger.at)?;
        let at = first.1.at.take()?;
        Some((usize::try_from(at.saturating_sub(carried)).unwrap_or(length), first.0))
    }

    /// Turn over the bits that are due in these bytes; returns how many.
    pub fn flip(&mut self, carried: u64, bytes: &mut [u8]) -> u64 {
        let mut count = 0;
        while let Some(offset) = self.flip.at.and_then(|at| usize::try_from(at.checked_sub(carried)?).ok()) {
            let Some(byte) = bytes.get_mut(offset) else { break };
            *byte ^= 1 << (self.random.next() % 8);
            count += 1;
            self.flip.again(carried + offset as u64 + 1, &mut self.random);
        }
        count
    }

    /// Exchange two answers of CQL when that is due and both begin in these bytes; returns how often.
    pub fn swap(&mut self, carried: u64, bytes: &mut [u8]) -> u64 {
        let results = self.frames.results(bytes);
        let end = carried + bytes.len() as u64;
        let (Some(at), [first, .., last]) = (self.swap.at, results.as_slice()) else { return 0 };
        if at > end {
            return 0;
        }
        exchange(bytes, *first, *last);
        self.swap.again(end, &mut self.random);
        1
    }

    pub fn jitter(&mut self, most_ms: f64) -> f64 {
        if most_ms > 0.0 { self.random.share() * most_ms } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(settings: &Settings) -> Faults {
        let mut faults = Faults::new(Random::new(3, 0, 0));
        faults.follow(settings, 0);
        faults
    }

    #[test]
    fn break_comes_once_and_exactly_at_its_byte() {
        let mut faults = faults(&Settings { reset_after_bytes: Some(150), ..Settings::default() });
        assert_eq!(faults.next_break(0, 100), None);
        assert_eq!(faults.next_break(100, 100), Some((50, Break::Reset)));
        assert_eq!(faults.next_break(150, 1000), None);
    }

    #[test]
    fn one_flip_changes_one_bit_of_the_named_byte() {
        let mut faults = faults(&Settings { flip_after_bytes: Some(5), ..Settings::default() });
        let mut bytes = [0u8; 10];
        assert_eq!(faults.flip(0, &mut bytes), 1);
        assert_eq!(bytes[5].count_ones(), 1);
        assert_eq!(bytes.iter().filter(|byte| **byte != 0).count(), 1);
        assert_eq!(faults.flip(10, &mut bytes), 0);
    }

    #[test]
    fn mean_flips_come_again_and_again() {
        let mut faults = faults(&Settings { flip_mean_bytes: Some(100), ..Settings::default() });
        let count = faults.flip(0, &mut vec![0u8; 100_000]);
        assert!((800..1200).contains(&count), "{count} flips");
    }

    #[test]
    fn swap_waits_until_two_answers_come_together() {
        let result = |stream| [0x84, 0, 0, stream, 8, 0, 0, 0, 1, stream];
        let mut faults = faults(&Settings { swap_after_bytes: Some(5), ..Settings::default() });
        assert_eq!(faults.swap(0, &mut result(1)), 0);
        let mut pair = [result(2), result(3)].concat();
        assert_eq!(faults.swap(10, &mut pair), 1);
        assert_eq!((pair[3], pair[9], pair[13], pair[19]), (3, 2, 2, 3));
        assert_eq!(faults.swap(30, &mut pair), 0);
    }
}
