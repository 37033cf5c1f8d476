//! When an answer is to be expected on a lane, from what all lanes have shown of themselves.

use std::time::Instant;

/// How far the delays of equal lanes lie apart, and their rates.
const USUAL_DELAYS: f64 = 1.5;
const USUAL_RATES: f64 = 1.5;
/// Where two lanes would answer at the same time, the one with less to do is the safer: so much of the time that its
/// queue takes is added.
const BUSY: f64 = 0.1;

/// A lane as it would be with one more answer on its way.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Outlook {
    /// Seconds before an answer begins to come.
    pub delay: f64,
    /// Bytes a second.
    pub rate: f64,
    /// Of this answer, and of all that is on its way with it.
    pub size_bytes: f64,
    pub outstanding_bytes: f64,
    /// What is on its way before it.
    pub ahead: Option<Ahead>,
    /// Whether the lane has lately carried nearly as much as it would have on its way then.
    pub is_proven: bool,
    /// When the latest question was asked that it has answered.
    pub answered_until: Option<Instant>,
}

/// When questions were asked that still wait, in seconds before now.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ahead {
    pub first: f64,
    pub last: f64,
}

/// What is usual among the lanes that a read may go to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Usual {
    pub least_delay: f64,
    pub middle_rate: f64,
}

impl Usual {
    /// None without lanes.
    pub fn of<'a>(outlooks: impl Iterator<Item = &'a Outlook> + Clone) -> Option<Self> {
        let delays = outlooks.clone().map(|outlook| outlook.delay);
        let mut rates: Vec<f64> = outlooks.map(|outlook| outlook.rate).collect();
        if rates.is_empty() {
            return None;
        }
        let middle = rates.len() / 2;
        let (_, middle_rate, _) = rates.select_nth_unstable_by(middle, f64::total_cmp);
        Some(Self {
            least_delay: delays.fold(f64::INFINITY, f64::min),
            middle_rate: *middle_rate,
        })
    }

    /// Delays are the smallest of a short time, so where lanes always have something to do they differ by what queued:
    /// up to half above the least of all that says nothing about the way.
    fn delay_of(&self, outlook: &Outlook) -> f64 {
        let is_usual = outlook.delay <= USUAL_DELAYS * self.least_delay;
        if is_usual {
            self.least_delay
        } else {
            outlook.delay
        }
    }

    /// Rates are measured on single answers: they differ by a tenth where nothing differs, and by much more where lanes
    /// have little to do and answers come in one piece. By such rates queues would differ as much, and the last answers
    /// of an epoch come a whole batch apart. So only a lane that is slower than usual has a rate of its own; a faster one
    /// is done sooner with a queue of the same length, and gets more that way.
    fn rate_of(&self, outlook: &Outlook) -> f64 {
        if self.is_slow(outlook) {
            outlook.rate
        } else {
            self.middle_rate
        }
    }

    fn is_slow(&self, outlook: &Outlook) -> bool {
        outlook.rate * USUAL_RATES < self.middle_rate
    }
}

impl Outlook {
    /// Seconds until the end of the answer: when all that is on its way has come, most of which may be near already, but
    /// not before its own way is done, nor earlier than what is ahead of it lets it. On a slow lane that is known to within
    /// an answer only, and an answer takes long there: it gets what would come in time even then. Where one took as long
    /// as ten batches, those that came later than expected held batches up for up to 160 ms.
    pub fn finish(&self, usual: &Usual) -> f64 {
        let rate = usual.rate_of(self);
        let delay = usual.delay_of(self);
        let own = self.size_bytes / rate;
        let turn = self.outstanding_bytes / rate;
        let alone = delay + own;
        let behind = self.ahead.map_or(turn, |ahead| {
            let still = |asked_ago: f64| (delay - asked_ago).max(0.0);
            let behind_all = still(ahead.first) + turn;
            let behind_last = still(ahead.last) + 2.0 * own;
            behind_all.max(behind_last)
        });
        let doubt = if usual.is_slow(self) { own } else { 0.0 };
        alone.max(behind) + BUSY * turn + doubt
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: f64 = 100_000.0;

    /// A lane with this many answers of one size before the next, all of which are about to come.
    fn lane(delay: f64, rate: f64, queued: f64) -> Outlook {
        Outlook {
            delay,
            rate,
            size_bytes: SIZE,
            outstanding_bytes: (queued + 1.0) * SIZE,
            ahead: (queued > 0.0).then_some(Ahead {
                first: delay,
                last: delay,
            }),
            is_proven: true,
            answered_until: None,
        }
    }

    fn finishes<const N: usize>(lanes: [Outlook; N]) -> [f64; N] {
        let usual = Usual::of(lanes.iter()).unwrap();
        lanes.map(|lane| lane.finish(&usual))
    }

    #[test]
    fn what_is_on_its_way_puts_the_end_off_when_it_takes_longer_than_the_way() {
        let [idle, short, long] = finishes([0.0, 4.0, 30.0].map(|queued| lane(0.15, 10e6, queued)));
        assert!((idle - 0.16).abs() < 0.002, "{idle}");
        assert!((short - 0.16).abs() < 0.006, "{short}");
        assert!(short > idle, "of two in time the one with less to do");
        assert!((0.31..0.36).contains(&long), "{long}");
    }

    #[test]
    fn an_idle_lane_of_a_tenth_of_the_rate_gets_an_answer_that_may_be_late_and_not_a_queue() {
        let ends = |healthy_queued, narrow_queued| {
            let healthy = lane(0.15, 10e6, healthy_queued);
            let [usual, .., narrow] = finishes([healthy, healthy, lane(0.15, 1e6, narrow_queued)]);
            (usual, narrow)
        };
        let (usual, narrow) = ends(35.0, 0.0);
        assert!(narrow < usual, "{narrow} {usual}");
        let (usual, narrow) = ends(35.0, 2.0);
        assert!(narrow > usual, "{narrow} {usual}");
        // In time by a little, as far as is known, and by less than it may be late.
        let (usual, narrow) = ends(25.0, 0.0);
        assert!(narrow > usual, "{narrow} {usual}");
    }

    #[test]
    fn a_slow_lane_gets_its_next_read_when_the_one_ahead_is_nearly_there() {
        let healthy = lane(0.15, 14e6, 45.0);
        let asked_ago = |first, last, queued| Outlook {
            ahead: Some(Ahead { first, last }),
            ..lane(0.15, 1.25e6, queued)
        };
        let ends = |narrow| finishes([healthy, healthy, narrow]);
        let [usual, .., at_once] = ends(asked_ago(0.0, 0.0, 1.0));
        assert!(at_once > usual, "{at_once} {usual}");
        let [usual, .., later] = ends(asked_ago(0.08, 0.08, 1.0));
        assert!(later < usual, "{later} {usual}");
        // The first is nearly there, and still the second is not.
        let [usual, .., third] = ends(asked_ago(0.14, 0.01, 2.0));
        assert!(third > usual, "{third} {usual}");
    }

    #[test]
    fn a_far_lane_gets_nothing_while_the_others_are_in_time() {
        let healthy = lane(0.15, 10e6, 40.0);
        let [usual, .., far] = finishes([healthy, healthy, lane(0.75, 100e6, 0.0)]);
        assert!(far > 1.5 * usual, "{far} {usual}");
    }

    #[test]
    fn among_lanes_of_about_one_delay_and_rate_the_shortest_queue_ends_first() {
        let lanes = [
            lane(0.20, 11e6, 31.0),
            lane(0.15, 12e6, 32.0),
            lane(0.21, 9e6, 30.0),
            lane(0.17, 900e6, 33.0),
        ];
        let ends = finishes(lanes);
        assert!(
            ends[2] < ends[0] && ends[0] < ends[1] && ends[1] < ends[3],
            "{ends:?}"
        );
    }

    #[test]
    fn without_lanes_nothing_is_usual() {
        assert_eq!(Usual::of([].iter()), None);
    }
}
