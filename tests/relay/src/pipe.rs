//! One direction of one connection: bytes that have been read and wait until they are due at the other end.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::faults::{Break, Faults};
use crate::link::{CHUNK_BYTES, Clock, own_chunk_bytes};
use crate::random::Random;
use crate::settings::{Direction, Settings, milliseconds};

/// Bytes that may wait although they are due, because the receiver takes none. Without a delay a few chunks, which
/// stay in the CPU's cache; with one, enough to ride out a late timer.
const BACKLOG_BYTES: usize = 2 * CHUNK_BYTES;
const DELAYED_BACKLOG_BYTES: usize = 4 << 20;
const BACKLOG_LATE: Duration = Duration::from_millis(5);
/// A window that is nearly used up is not filled in crumbs.
const CRUMB_BYTES: u64 = 16 * 1024;

pub struct Chunk {
    pub buffer: Box<[u8]>,
    pub length: usize,
}

pub enum What {
    Data(Chunk),
    /// The source has closed its side.
    Close,
    Break(Break),
}

/// What was done to some bytes: flipped bits, exchanged answers, and a break with its place.
pub struct Damage {
    pub flips: u64,
    pub swaps: u64,
    pub breaks: Option<(usize, Break)>,
}

struct Item {
    due: Instant,
    what: What,
}

/// What the reader may do now.
pub enum Room {
    Take { most_bytes: usize, is_late: bool },
    Until(Instant),
    WaitForWriter,
}

pub struct Pipe {
    pub direction: Direction,
    pub reader_wake: Notify,
    pub writer_wake: Notify,
    pub clock: Clock,
    queue: RefCell<VecDeque<Item>>,
    queued_bytes: Cell<usize>,
    in_flight_bytes: Cell<u64>,
    /// Bytes that arrived, and when the sender hears of it.
    credits: RefCell<VecDeque<(Instant, u64)>>,
    faults: RefCell<Faults>,
    carried_bytes: Cell<u64>,
    delivered_bytes: Cell<u64>,
    last_due: Cell<Instant>,
}

impl Pipe {
    pub fn new(direction: Direction, random: Random) -> Self {
        Self {
            direction,
            reader_wake: Notify::new(),
            writer_wake: Notify::new(),
            clock: Clock::new(),
            queue: RefCell::default(),
            queued_bytes: Cell::new(0),
            in_flight_bytes: Cell::new(0),
            credits: RefCell::default(),
            faults: RefCell::new(Faults::new(random)),
            carried_bytes: Cell::new(0),
            delivered_bytes: Cell::new(0),
            last_due: Cell::new(Instant::now()),
        }
    }

    pub fn queued_bytes(&self) -> usize {
        self.queued_bytes.get()
    }

    pub fn delivered_bytes(&self) -> u64 {
        self.delivered_bytes.get()
    }

    /// `is_late`: the reader has already waited for the clock of this connection.
    pub fn room(&self, settings: &Settings, is_slow: bool, is_late: bool) -> Room {
        let now = Instant::now();
        if settings.is_stalled || self.is_backed_up(now, settings.delay_of(is_slow)) {
            return Room::WaitForWriter;
        }
        let mut most_bytes = CHUNK_BYTES;
        self.take_back_credits(now);
        if let Some(window) = settings.window() {
            let free = window.saturating_sub(self.in_flight_bytes.get());
            if free < window.min(CRUMB_BYTES) {
                return self.credits.borrow().front().map_or(Room::WaitForWriter, |(at, _)| Room::Until(*at));
            }
            most_bytes = most_bytes.min(usize::try_from(free).unwrap_or(CHUNK_BYTES));
        }
        if let Some(rate) = settings.rate_of(is_slow) {
            if self.clock.free_at() > now {
                return Room::Until(self.clock.free_at());
            }
            most_bytes = most_bytes.min(own_chunk_bytes(rate));
        }
        Room::Take { most_bytes, is_late }
    }

    fn is_backed_up(&self, now: Instant, delay: Duration) -> bool {
        let (bytes, late) =
            if delay.is_zero() { (BACKLOG_BYTES, Duration::ZERO) } else { (DELAYED_BACKLOG_BYTES, BACKLOG_LATE) };
        self.queued_bytes.get() > bytes && self.queue.borrow().front().is_some_and(|item| item.due + late < now)
    }

    fn take_back_credits(&self, now: Instant) {
        let mut credits = self.credits.borrow_mut();
        while let Some(bytes) = credits.front().filter(|(at, _)| *at <= now).map(|(_, bytes)| *bytes) {
            self.in_flight_bytes.set(self.in_flight_bytes.get().saturating_sub(bytes));
            credits.pop_front();
        }
    }

    /// Put faults into what was just read.
    pub fn damage(&self, settings: &Settings, bytes: &mut [u8]) -> Damage {
        let mut faults = self.faults.borrow_mut();
        let carried = self.carried_bytes.get();
        if settings.direction == self.direction {
            faults.follow(settings, carried);
        } else {
            faults.follow(&Settings::default(), carried);
        }
        // Answers are told apart before a flip may hit a header.
        let swaps = faults.swap(carried, bytes);
        Damage { swaps, flips: faults.flip(carried, bytes), breaks: faults.next_break(carried, bytes.len()) }
    }

    /// When bytes that leave at `departure` arrive.
    pub fn arrival(&self, settings: &Settings, is_slow: bool, departure: Instant) -> Instant {
        let jitter = milliseconds(self.faults.borrow_mut().jitter(settings.jitter_ms));
        let is_first_answer = self.direction == Direction::Down && self.carried_bytes.get() == 0;
        let extra = if is_first_answer { milliseconds(settings.first_byte_ms) } else { Duration::ZERO };
        let due = (departure + settings.delay_of(is_slow) + jitter + extra).max(self.last_due.get());
        self.last_due.set(due);
        due
    }

    pub fn push(&self, due: Instant, what: What) {
        if let What::Data(chunk) = &what {
            self.queued_bytes.set(self.queued_bytes.get() + chunk.length);
            self.in_flight_bytes.set(self.in_flight_bytes.get() + chunk.length as u64);
            self.carried_bytes.set(self.carried_bytes.get() + chunk.length as u64);
        }
        self.queue.borrow_mut().push_back(Item { due, what });
        self.writer_wake.notify_one();
    }

    pub fn next_due(&self) -> Option<Instant> {
        self.queue.borrow().front().map(|item| item.due)
    }

    pub fn pop(&self) -> Option<What> {
        self.queue.borrow_mut().pop_front().map(|item| item.what)
    }

    /// These bytes are out; their place in the window comes back after the way of the acknowledgement.
    pub fn delivered(&self, bytes: usize, way_back: Duration) {
        self.queued_bytes.set(self.queued_bytes.get() - bytes);
        self.delivered_bytes.set(self.delivered_bytes.get() + bytes as u64);
        self.credits.borrow_mut().push_back((Instant::now() + way_back, bytes as u64));
        self.reader_wake.notify_one();
    }

    /// Settings have changed: nothing waits longer than it would under the new ones.
    pub fn follow(&self, settings: &Settings, is_slow: bool) {
        let extra = milliseconds(settings.jitter_ms + settings.first_byte_ms);
        let latest = Instant::now() + settings.delay_of(is_slow) + extra;
        for item in self.queue.borrow_mut().iter_mut() {
            item.due = item.due.min(latest);
        }
        for (at, _) in self.credits.borrow_mut().iter_mut() {
            *at = (*at).min(latest);
        }
        self.last_due.set(self.last_due.get().min(latest));
        self.reader_wake.notify_one();
        self.writer_wake.notify_one();
    }

    pub fn discard(&self) {
        self.queue.borrow_mut().clear();
        self.queued_bytes.set(0);
    }
}
