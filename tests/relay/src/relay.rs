//! What all connections share.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use serde::Serialize;
use serde_json::{Map, Value};
use tokio::sync::Notify;

use crate::connection::Connection;
use crate::link::{CHUNK_BYTES, Link};
use crate::settings::{Direction, Settings};

const POOL_CHUNKS: usize = 4096;

#[derive(Default)]
pub struct Counters {
    pub accepted: Cell<u64>,
    pub open: Cell<u64>,
    pub refused: Cell<u64>,
    pub resets: Cell<u64>,
    pub truncations: Cell<u64>,
    pub flips: Cell<u64>,
    pub swaps: Cell<u64>,
    bytes_up: Cell<u64>,
    bytes_down: Cell<u64>,
    queued_bytes: Cell<usize>,
    peak_queued_bytes: Cell<usize>,
}

pub fn add(counter: &Cell<u64>, amount: u64) {
    counter.set(counter.get() + amount);
}

impl Counters {
    pub fn queued(&self, bytes: usize) {
        self.queued_bytes.set(self.queued_bytes.get() + bytes);
        self.peak_queued_bytes.set(self.peak_queued_bytes.get().max(self.queued_bytes.get()));
    }

    pub fn delivered(&self, direction: Direction, bytes: usize) {
        let counter = if direction == Direction::Up { &self.bytes_up } else { &self.bytes_down };
        add(counter, bytes as u64);
        self.discarded(bytes);
    }

    pub fn discarded(&self, bytes: usize) {
        self.queued_bytes.set(self.queued_bytes.get().saturating_sub(bytes));
    }
}

/// The answer to `"stats"`.
#[derive(Serialize)]
pub struct Stats {
    accepted: u64,
    open: u64,
    refused: u64,
    resets: u64,
    truncations: u64,
    flips: u64,
    swaps: u64,
    bytes_up: u64,
    bytes_down: u64,
    queued_bytes: usize,
    peak_queued_bytes: usize,
    connections: Vec<ConnectionStats>,
}

#[derive(Serialize)]
pub struct ConnectionStats {
    pub index: u64,
    pub is_slow: bool,
    pub is_half_open: bool,
    pub bytes_up: u64,
    pub bytes_down: u64,
    pub queued_bytes: usize,
}

pub struct Relay {
    settings: RefCell<Rc<Settings>>,
    pub changed: Notify,
    pub up: Link,
    pub down: Link,
    pub counters: Counters,
    pub connections: RefCell<BTreeMap<u64, Rc<Connection>>>,
    pool: RefCell<Vec<Box<[u8]>>>,
}

impl Relay {
    pub fn new(settings: Settings) -> Self {
        Self {
            settings: RefCell::new(Rc::new(settings)),
            changed: Notify::new(),
            up: Link::new(),
            down: Link::new(),
            counters: Counters::default(),
            connections: RefCell::default(),
            pool: RefCell::default(),
        }
    }

    pub fn settings(&self) -> Rc<Settings> {
        Rc::clone(&self.settings.borrow())
    }

    pub fn link(&self, direction: Direction) -> &Link {
        if direction == Direction::Up { &self.up } else { &self.down }
    }

    pub fn change(&self, changes: Map<String, Value>) -> Result<(), String> {
        let settings = self.settings().changed(changes)?;
        self.replace(settings);
        Ok(())
    }

    pub fn replace(&self, settings: Settings) {
        self.settings.replace(Rc::new(settings));
        let settings = self.settings();
        for connection in self.connections.borrow().values() {
            connection.follow(&settings);
        }
        self.changed.notify_waiters();
    }

    pub fn reset_all(&self) {
        for connection in self.connections.borrow().values() {
            connection.reset();
        }
    }

    /// The chunk that was used last comes first: it is the one still in the CPU's cache.
    pub fn take_chunk(&self) -> Box<[u8]> {
        self.pool.borrow_mut().pop().unwrap_or_else(|| vec![0; CHUNK_BYTES].into_boxed_slice())
    }

    pub fn give_chunk(&self, chunk: Box<[u8]>) {
        let mut pool = self.pool.borrow_mut();
        if chunk.len() == CHUNK_BYTES && pool.len() < POOL_CHUNKS {
            pool.push(chunk);
        }
    }

    pub fn stats(&self) -> Stats {
        let counters = &self.counters;
        let settings = self.settings();
        Stats {
            accepted: counters.accepted.get(),
            open: counters.open.get(),
            refused: counters.refused.get(),
            resets: counters.resets.get(),
            truncations: counters.truncations.get(),
            flips: counters.flips.get(),
            swaps: counters.swaps.get(),
            bytes_up: counters.bytes_up.get(),
            bytes_down: counters.bytes_down.get(),
            queued_bytes: counters.queued_bytes.get(),
            peak_queued_bytes: counters.peak_queued_bytes.get(),
            connections: self.connections.borrow().values().map(|each| each.stats(&settings)).collect(),
        }
    }
}
