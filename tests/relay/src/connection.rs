//! One accepted connection: two pipes, each with a task that reads and one that writes.

use std::cell::Cell;
use std::io::ErrorKind;
use std::net::Shutdown;
use std::rc::Rc;
use std::time::Duration;

use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until};

use crate::faults::Break;
use crate::link::{CHUNK_BYTES, chunk_bytes};
use crate::pipe::{Chunk, Pipe, Room, What};
use crate::random::Random;
use crate::relay::{ConnectionStats, Relay, add};
use crate::settings::{Direction, Settings};

/// Smaller reads are copied out, so that a long delay does not hold a whole chunk for each of them.
const SMALL_BYTES: usize = 16 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Normal,
    /// The receiver has been told that this was the end; whatever still comes is swallowed.
    Truncated,
    /// Bytes are swallowed and neither side hears of the other any more.
    HalfOpen,
}

pub struct Connection {
    index: u64,
    client: TcpStream,
    target: TcpStream,
    up: Pipe,
    down: Pipe,
    mode: Cell<Mode>,
    end: Notify,
}

/// Serve one accepted connection until both sides are done with it.
pub async fn serve(relay: Rc<Relay>, client: TcpStream, target: String) {
    let index = relay.counters.accepted.get();
    add(&relay.counters.accepted, 1);
    if relay.settings().max_connections.is_some_and(|most| relay.counters.open.get() >= most) {
        add(&relay.counters.refused, 1);
        close_with_reset(&client);
        return;
    }
    add(&relay.counters.open, 1);
    serve_accepted(&relay, client, &target, index).await;
    relay.counters.open.set(relay.counters.open.get() - 1);
}

async fn serve_accepted(relay: &Rc<Relay>, client: TcpStream, target: &str, index: u64) {
    while relay.settings().is_stalled {
        relay.changed.notified().await;
    }
    if relay.settings().is_half_open {
        swallow(&client).await;
        return;
    }
    let target = match TcpStream::connect(target).await {
        Ok(stream) => stream,
        Err(error) => {
            eprintln!("connection {index}: {target} cannot be reached: {error}");
            close_with_reset(&client);
            return;
        }
    };
    for stream in [&client, &target] {
        // A socket that cannot be set up this way is broken already; the pipes will find out.
        let _ = stream.set_nodelay(true);
    }
    let seed = relay.settings().seed;
    let connection = Rc::new(Connection {
        index,
        client,
        target,
        up: Pipe::new(Direction::Up, Random::new(seed, index, 0)),
        down: Pipe::new(Direction::Down, Random::new(seed, index, 1)),
        mode: Cell::new(Mode::Normal),
        end: Notify::new(),
    });
    relay.connections.borrow_mut().insert(index, Rc::clone(&connection));
    connection.run(relay).await;
    relay.connections.borrow_mut().remove(&index);
    relay.counters.discarded(connection.up.queued_bytes() + connection.down.queued_bytes());
}

impl Connection {
    async fn run(self: &Rc<Self>, relay: &Rc<Relay>) {
        let mut tasks = JoinSet::new();
        for direction in [Direction::Up, Direction::Down] {
            let (connection, shared) = (Rc::clone(self), Rc::clone(relay));
            tasks.spawn_local(async move { connection.read_side(&shared, direction).await });
            let (connection, shared) = (Rc::clone(self), Rc::clone(relay));
            tasks.spawn_local(async move { connection.write_side(&shared, direction).await });
        }
        loop {
            tokio::select! {
                done = tasks.join_next() => if done.is_none() { break },
                () = self.end.notified() => break,
            }
        }
        tasks.shutdown().await;
    }

    pub fn follow(&self, settings: &Settings) {
        if settings.is_half_open && self.mode.get() == Mode::Normal {
            self.mode.set(Mode::HalfOpen);
        }
        let is_slow = settings.is_slow(self.index);
        self.up.follow(settings, is_slow);
        self.down.follow(settings, is_slow);
    }

    /// End it now; both sides see a reset.
    pub fn reset(&self) {
        close_with_reset(&self.client);
        close_with_reset(&self.target);
        self.end.notify_one();
    }

    pub fn stats(&self, settings: &Settings) -> ConnectionStats {
        ConnectionStats {
            index: self.index,
            is_slow: settings.is_slow(self.index),
            is_half_open: self.mode.get() == Mode::HalfOpen,
            bytes_up: self.up.delivered_bytes(),
            bytes_down: self.down.delivered_bytes(),
            queued_bytes: self.up.queued_bytes() + self.down.queued_bytes(),
        }
    }

    fn side(&self, direction: Direction) -> (&TcpStream, &TcpStream, &Pipe) {
        match direction {
            Direction::Up => (&self.client, &self.target, &self.up),
            Direction::Down => (&self.target, &self.client, &self.down),
        }
    }

    async fn read_side(&self, relay: &Relay, direction: Direction) {
        let (source, _, pipe) = self.side(direction);
        while self.mode.get() == Mode::Normal {
            let Some((most_bytes, is_late)) = self.wait_for_room(relay, pipe).await else { break };
            if source.readable().await.is_err() {
                break;
            }
            if self.mode.get() != Mode::Normal || relay.settings().is_stalled {
                continue;
            }
            if !self.take(relay, direction, most_bytes, is_late).await {
                return;
            }
            // Let the writer have its turn while the bytes are still in the CPU's cache.
            tokio::task::yield_now().await;
        }
        swallow(source).await;
        // Of a half-open connection the other side hears nothing; a truncated one is over when the receiver left.
        if self.mode.get() == Mode::Truncated {
            self.end.notify_one();
        }
    }

    async fn wait_for_room(&self, relay: &Relay, pipe: &Pipe) -> Option<(usize, bool)> {
        let mut is_late = false;
        while self.mode.get() == Mode::Normal {
            let settings = relay.settings();
            match pipe.room(&settings, settings.is_slow(self.index), is_late) {
                Room::Take { most_bytes, is_late } => return Some((most_bytes, is_late)),
                Room::WaitForWriter => pipe.reader_wake.notified().await,
                Room::Until(instant) => {
                    is_late = true;
                    tokio::select! {
                        () = sleep_until(instant) => {},
                        () = pipe.reader_wake.notified() => {},
                    }
                }
            }
        }
        None
    }

    /// Read one chunk through the link and queue it; false when there is nothing more to read.
    async fn take(&self, relay: &Relay, direction: Direction, most_bytes: usize, is_late: bool) -> bool {
        let (source, _, pipe) = self.side(direction);
        let link = relay.link(direction);
        let turn =
            if relay.settings().link_rate().is_some() { Some(wait_for_turn(relay, direction).await) } else { None };
        let settings = relay.settings();
        let is_slow = settings.is_slow(self.index);
        let link_rate = settings.link_rate();
        let most_bytes = most_bytes.min(chunk_bytes(link_rate));
        let mut buffer = relay.take_chunk();
        let length = match source.try_read(&mut buffer[..most_bytes]) {
            Ok(length) => length,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                relay.give_chunk(buffer);
                return true;
            }
            Err(_) => {
                pipe.push(pipe.arrival(&settings, is_slow, Instant::now()), What::Break(Break::Reset));
                return false;
            }
        };
        let now = Instant::now();
        if length == 0 {
            pipe.push(pipe.arrival(&settings, is_slow, now), What::Close);
            return false;
        }
        let mut departure = now;
        if let Some(rate) = settings.rate_of(is_slow) {
            departure = departure.max(pipe.clock.charge(now, length, rate, is_late));
        }
        if let Some(rate) = link_rate {
            let has_waited = turn.as_ref().is_some_and(|(_, has_waited)| *has_waited);
            departure = departure.max(link.clock.charge(now, length, rate, has_waited));
        }
        drop(turn);
        let due = pipe.arrival(&settings, is_slow, departure);
        self.queue(relay, pipe, &settings, due, buffer, length)
    }

    fn queue(
        &self,
        relay: &Relay,
        pipe: &Pipe,
        settings: &Settings,
        due: Instant,
        mut buffer: Box<[u8]>,
        length: usize,
    ) -> bool {
        let damage = pipe.damage(settings, &mut buffer[..length]);
        add(&relay.counters.flips, damage.flips);
        add(&relay.counters.swaps, damage.swaps);
        let Some((place, kind)) = damage.breaks else {
            relay.counters.queued(length);
            let chunk = if length < SMALL_BYTES {
                let copy = Box::from(&buffer[..length]);
                relay.give_chunk(buffer);
                copy
            } else {
                buffer
            };
            pipe.push(due, What::Data(Chunk { buffer: chunk, length }));
            return true;
        };
        eprintln!("connection {}: {kind:?} in the {:?} direction", self.index, pipe.direction);
        push_copy(relay, pipe, due, &buffer[..place]);
        pipe.push(due, What::Break(kind));
        if kind == Break::Stall {
            push_copy(relay, pipe, due, &buffer[place..length]);
        }
        relay.give_chunk(buffer);
        kind == Break::Stall
    }

    async fn write_side(&self, relay: &Relay, direction: Direction) {
        let (_, sink, pipe) = self.side(direction);
        while self.mode.get() == Mode::Normal {
            let due = pipe.next_due();
            if due.is_none() || relay.settings().is_stalled {
                pipe.writer_wake.notified().await;
                continue;
            }
            if let Some(due) = due.filter(|due| *due > Instant::now()) {
                tokio::select! {
                    () = sleep_until(due) => {},
                    () = pipe.writer_wake.notified() => {},
                }
                continue;
            }
            match pipe.pop() {
                Some(What::Data(chunk)) => {
                    if !write_all(sink, &chunk.buffer[..chunk.length]).await {
                        add(&relay.counters.resets, 1);
                        self.reset();
                        return;
                    }
                    let settings = relay.settings();
                    pipe.delivered(chunk.length, settings.delay_of(settings.is_slow(self.index)));
                    relay.counters.delivered(direction, chunk.length);
                    relay.give_chunk(chunk.buffer);
                }
                Some(What::Close) => {
                    let _ = SockRef::from(sink).shutdown(Shutdown::Write);
                    return;
                }
                Some(What::Break(kind)) => self.break_now(relay, pipe, sink, kind).await,
                None => {}
            }
        }
        relay.counters.discarded(pipe.queued_bytes());
        pipe.discard();
    }

    async fn break_now(&self, relay: &Relay, pipe: &Pipe, sink: &TcpStream, kind: Break) {
        match kind {
            Break::Reset => {
                add(&relay.counters.resets, 1);
                self.reset();
            }
            Break::Truncate => {
                add(&relay.counters.truncations, 1);
                self.mode.set(Mode::Truncated);
                let _ = SockRef::from(sink).shutdown(Shutdown::Write);
                self.up.reader_wake.notify_one();
                self.up.writer_wake.notify_one();
                self.down.writer_wake.notify_one();
            }
            Break::Stall => {
                while relay.settings().stall().is_some() && self.mode.get() == Mode::Normal {
                    pipe.writer_wake.notified().await;
                }
            }
        }
    }
}

async fn wait_for_turn(relay: &Relay, direction: Direction) -> (tokio::sync::MutexGuard<'_, ()>, bool) {
    let link = relay.link(direction);
    let (turn, mut has_waited) = match link.turn.try_lock() {
        Ok(turn) => (turn, false),
        Err(_) => (link.turn.lock().await, true),
    };
    // In short steps, because the rate may be changed or taken away meanwhile.
    while relay.settings().link_rate().is_some() && link.clock.free_at() > Instant::now() {
        has_waited = true;
        sleep_until(link.clock.free_at().min(Instant::now() + Duration::from_millis(50))).await;
    }
    (turn, has_waited)
}

fn push_copy(relay: &Relay, pipe: &Pipe, due: Instant, bytes: &[u8]) {
    if !bytes.is_empty() {
        relay.counters.queued(bytes.len());
        pipe.push(due, What::Data(Chunk { buffer: Box::from(bytes), length: bytes.len() }));
    }
}

async fn write_all(sink: &TcpStream, bytes: &[u8]) -> bool {
    let mut sent = 0;
    while sent < bytes.len() {
        match sink.try_write(&bytes[sent..]) {
            Ok(length) => sent += length,
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                if sink.writable().await.is_err() {
                    return false;
                }
            }
            Err(_) => return false,
        }
    }
    true
}

/// Read and forget until the source closes or breaks.
async fn swallow(source: &TcpStream) {
    let mut buffer = vec![0; CHUNK_BYTES];
    while source.readable().await.is_ok() {
        match source.try_read(&mut buffer) {
            Ok(0) => return,
            Err(error) if error.kind() != ErrorKind::WouldBlock => return,
            _ => {}
        }
    }
}

/// The next close of this socket is a reset.
fn close_with_reset(stream: &TcpStream) {
    let _ = SockRef::from(stream).set_linger(Some(Duration::ZERO));
}
