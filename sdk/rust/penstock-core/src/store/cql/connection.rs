//! One data connection to one node: many reads on their way, answers in any order, received without a copy.

mod incoming;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use futures::future::{BoxFuture, join};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use uuid::Uuid;

use self::incoming::{Incoming, cut_off, invalid};
use super::shards::Sharding;
use super::wire::{self, Answer, Ask, Damaged, Execute, Frame, Head, Page};
use crate::arena::Pool;
use crate::lanes::{Arrival, Condition, Lane, Meter, Shard};
use crate::process::LULL;
use crate::store::Secret;

/// Opening takes two or three round trips, four with TLS.
const OPEN_PATIENCE: Duration = Duration::from_secs(5);
/// Whatever stands between forgets connections that nobody uses. Probes keep it from that, or show that it has happened.
const KEEPALIVE: TcpKeepalive = TcpKeepalive::new()
    .with_time(Duration::from_secs(30))
    .with_interval(Duration::from_secs(10))
    .with_retries(3);
/// Stream ids are the numbers of two bytes that are not negative.
const MAX_STREAMS: usize = 1 << 15;
/// The one that events come under.
const EVENT_STREAM: i16 = -1;
/// What small requests count for.
const SMALL_BYTES: u64 = 256;

/// How to reach and enter any node.
#[derive(Clone)]
pub(super) struct Entrance {
    pub tls: Option<Arc<ClientConfig>>,
    pub login: Option<(String, Secret)>,
}

impl fmt::Debug for Entrance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entrance").finish_non_exhaustive()
    }
}

/// A statement that the driver has prepared on all nodes.
#[derive(Debug)]
pub(super) struct Prepared {
    pub id: Bytes,
    pub text: String,
    pub page_rows: i32,
}

/// A read of one object at one level.
#[derive(Debug, Clone)]
pub(super) struct Read {
    pub statement: Arc<Prepared>,
    pub level: u16,
    pub dataset_id: Uuid,
    pub object_id: Uuid,
    /// Where the object lies on the ring.
    pub token: i64,
    pub fields: Option<Arc<[Arc<str>]>>,
    pub size_bytes: u64,
}

/// Why a connection gave no answer.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum LaneError {
    #[error("connection lost: {0}")]
    Broken(Arc<str>),
    #[error("it has as many reads on their way as it can tell apart")]
    Full,
    #[error("{message}")]
    Refused { code: i32, message: String },
    #[error(transparent)]
    Damaged(#[from] Damaged),
}

pub(super) struct Connection {
    shared: Arc<Shared>,
    tasks: [AbortHandle; 2],
    sharding: Option<Sharding>,
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}

struct Shared {
    state: Mutex<State>,
    has_outgoing: Notify,
    meter: Arc<Meter>,
    /// Damaged answers of all connections of the store.
    damaged: Arc<AtomicU64>,
}

#[derive(Default)]
struct State {
    /// Reads on their way, by stream id.
    pending: Vec<Option<Pending>>,
    free: Vec<i16>,
    outgoing: BytesMut,
    broken: Option<Arc<str>>,
}

struct Pending {
    waiter: oneshot::Sender<Result<Answer, LaneError>>,
    asked_at: Instant,
    asked_bytes: u64,
}

impl Connection {
    /// Connects and logs in; the meter begins with the delay that this has shown.
    pub async fn open(
        node: SocketAddr,
        entrance: Entrance,
        pool: Pool,
        damaged: Arc<AtomicU64>,
    ) -> Result<(Self, Arc<Meter>), String> {
        timeout(OPEN_PATIENCE, Self::enter(node, entrance, pool, damaged))
            .await
            .map_err(|_| format!("no connection within {} s", OPEN_PATIENCE.as_secs()))?
    }

    async fn enter(
        node: SocketAddr,
        entrance: Entrance,
        pool: Pool,
        damaged: Arc<AtomicU64>,
    ) -> Result<(Self, Arc<Meter>), String> {
        let meter = Arc::new(Meter::new(Instant::now()));
        let text = |error: io::Error| error.to_string();
        let stream = TcpStream::connect(node).await.map_err(text)?;
        let connection = Self::over(stream, entrance.tls, pool, Arc::clone(&meter), damaged).await;
        let mut connection = connection.map_err(text)?;
        connection.sharding = connection.log_in(entrance.login).await?;
        Ok((connection, meter))
    }

    /// Whether a node speaks CQL: it says what it can do before it wants to know who asks.
    pub async fn is_answered(stream: TcpStream, tls: Option<Arc<ClientConfig>>) -> bool {
        let meter = Arc::new(Meter::new(Instant::now()));
        match Self::over(stream, tls, Pool::new(0), meter, Arc::default()).await {
            Ok(connection) => connection.small(&Ask::Options).await.is_ok(),
            Err(_) => false,
        }
    }

    async fn over(
        stream: TcpStream,
        tls: Option<Arc<ClientConfig>>,
        pool: Pool,
        meter: Arc<Meter>,
        damaged: Arc<AtomicU64>,
    ) -> io::Result<Self> {
        set_options(&stream)?;
        let Some(config) = tls else {
            let (source, sink) = stream.into_split();
            let source = Incoming::new(source, pool);
            return Ok(Self::start(source, sink, meter, damaged));
        };
        let name = ServerName::from(stream.peer_addr()?.ip());
        let stream = TlsConnector::from(config).connect(name, stream).await?;
        let (source, sink) = tokio::io::split(stream);
        let source = Incoming::new(source, pool);
        Ok(Self::start(source, sink, meter, damaged))
    }

    fn start(
        source: Incoming<impl AsyncRead + Unpin + Send + 'static>,
        sink: impl AsyncWrite + Unpin + Send + 'static,
        meter: Arc<Meter>,
        damaged: Arc<AtomicU64>,
    ) -> Self {
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            has_outgoing: Notify::new(),
            meter,
            damaged,
        });
        let reader = tokio::spawn(Arc::clone(&shared).receive(source));
        let writer = tokio::spawn(Arc::clone(&shared).send(sink));
        Self {
            shared,
            tasks: [reader.abort_handle(), writer.abort_handle()],
            sharding: None,
        }
    }

    /// Also asks at which shard the connection ends, in the same packet: it costs no round trip. That question comes
    /// first, because a node that wants a password takes nothing else after the beginning.
    async fn log_in(&self, login: Option<(String, Secret)>) -> Result<Option<Sharding>, String> {
        let (options, begun) = join(self.small(&Ask::Options), self.small(&Ask::Startup)).await;
        match begun? {
            Answer::Ready => {}
            Answer::Authenticate => self.authenticate(login).await?,
            Answer::Error { message, .. } => return Err(message),
            _ => return Err("it does not speak CQL".to_owned()),
        }
        Ok(match options {
            Ok(Answer::Supported(options)) => Sharding::of(&options),
            _ => None,
        })
    }

    async fn authenticate(&self, login: Option<(String, Secret)>) -> Result<(), String> {
        let (user, password) = login.ok_or("it wants a user name and a password")?;
        let ask = Ask::Login {
            user: &user,
            password: password.reveal(),
        };
        match self.small(&ask).await? {
            Answer::Ready => Ok(()),
            Answer::Error { message, .. } => Err(message),
            _ => Err("it wants a way to log in that is not known here".to_owned()),
        }
    }

    async fn small(&self, ask: &Ask<'_>) -> Result<Answer, String> {
        let text = |error: LaneError| error.to_string();
        self.shared.ask(ask, SMALL_BYTES).await.map_err(text)
    }

    /// All pages of a read.
    async fn read(&self, read: &Read) -> Result<Vec<Page>, LaneError> {
        let mut pages: Vec<Page> = Vec::with_capacity(1);
        let mut has_prepared = false;
        loop {
            let execute = Execute {
                statement_id: &read.statement.id,
                level: read.level,
                dataset_id: read.dataset_id,
                object_id: read.object_id,
                fields: read.fields.as_deref(),
                page_rows: read.statement.page_rows,
                page: pages.last().and_then(|page| page.next.as_deref()),
            };
            let answer = self
                .shared
                .ask(&Ask::Execute(&execute), read.size_bytes)
                .await?;
            match answer {
                Answer::Rows(page) => {
                    let is_last = page.next.is_none();
                    pages.push(page);
                    if is_last {
                        return Ok(pages);
                    }
                }
                Answer::Error { code, .. } if code == wire::UNPREPARED && !has_prepared => {
                    has_prepared = true;
                    self.prepare(&read.statement.text).await?;
                }
                Answer::Error { code, message } => {
                    return Err(LaneError::Refused { code, message });
                }
                _ => return Err(self.shared.damage("not the answer to a read")),
            }
        }
    }

    async fn prepare(&self, text: &str) -> Result<(), LaneError> {
        match self.shared.ask(&Ask::Prepare(text), SMALL_BYTES).await? {
            Answer::Prepared => Ok(()),
            Answer::Error { code, message } => Err(LaneError::Refused { code, message }),
            _ => Err(self.shared.damage("not the answer to a preparation")),
        }
    }
}

fn set_options(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    socket.set_tcp_keepalive(&KEEPALIVE)?;
    // Nor is what was sent, and never acknowledged, sent again for the minutes that systems allow.
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(crate::lanes::GIVE_UP))?;
    Ok(())
}

impl Lane for Connection {
    type Question = Read;
    type Answer = Vec<Page>;
    type Error = LaneError;

    fn ask<'a>(&'a self, question: &'a Read) -> BoxFuture<'a, Result<Vec<Page>, LaneError>> {
        Box::pin(self.read(question))
    }

    fn condition(&self) -> Condition {
        let state = self.shared.state();
        if state.broken.is_some() {
            Condition::Broken
        } else if state.is_full() {
            Condition::Full
        } else {
            Condition::Ready
        }
    }

    fn shard(&self) -> Option<Shard> {
        self.sharding.as_ref().map(|sharding| sharding.shard)
    }

    fn is_home_of(&self, question: &Read) -> bool {
        let sharding = self.sharding.as_ref();
        sharding.is_none_or(|sharding| sharding.is_home_of(question.token))
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.tasks.iter().for_each(AbortHandle::abort);
        self.shared.break_off("closed");
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn damage(&self, reason: &'static str) -> LaneError {
        self.count_damage();
        Damaged(reason).into()
    }

    fn count_damage(&self) {
        self.damaged.fetch_add(1, Ordering::Relaxed);
    }

    async fn ask(&self, ask: &Ask<'_>, asked_bytes: u64) -> Result<Answer, LaneError> {
        let (waiter, answer) = oneshot::channel();
        let asked_at = Instant::now();
        {
            let mut state = self.state();
            if let Some(reason) = &state.broken {
                return Err(LaneError::Broken(Arc::clone(reason)));
            }
            let pending = Pending {
                waiter,
                asked_at,
                asked_bytes,
            };
            let stream = state.enter(pending).ok_or(LaneError::Full)?;
            // Before anybody can send it, so that no answer is counted before its question.
            self.meter.asked(asked_at, asked_bytes);
            LULL.asked(asked_bytes);
            ask.write(stream, &mut state.outgoing);
        }
        self.has_outgoing.notify_one();
        answer
            .await
            .unwrap_or_else(|_| Err(LaneError::Broken(Arc::from("closed"))))
    }

    async fn send(self: Arc<Self>, mut sink: impl AsyncWrite + Unpin) {
        loop {
            self.has_outgoing.notified().await;
            let outgoing = std::mem::take(&mut self.state().outgoing);
            if outgoing.is_empty() {
                continue;
            }
            let sent = async {
                sink.write_all(&outgoing).await?;
                sink.flush().await
            };
            if let Err(error) = sent.await {
                return self.break_off(&error.to_string());
            }
        }
    }

    async fn receive(self: Arc<Self>, mut source: Incoming<impl AsyncRead + Unpin>) {
        loop {
            if let Err(error) = self.receive_one(&mut source).await {
                // Of a connection that was lost between two answers nothing was damaged.
                if error.kind() == io::ErrorKind::InvalidData {
                    self.count_damage();
                }
                return self.break_off(&error.to_string());
            }
        }
    }

    /// Whatever fails here is the end of the connection; where the next answer begins is not known any more.
    async fn receive_one(&self, source: &mut Incoming<impl AsyncRead + Unpin>) -> io::Result<()> {
        let head = source.head(&self.meter).await?;
        let head_at = Instant::now();
        let head = Head::parse(&head).map_err(invalid)?;
        let body = source.body(head.body_bytes, &self.meter).await;
        let body = body.map_err(cut_off)?;
        let end_at = Instant::now();
        if head.stream == EVENT_STREAM {
            // Nobody has asked for any.
            return Ok(());
        }
        let pending = self.state().leave(head.stream);
        let pending = pending.ok_or_else(|| invalid(Damaged("it answers no question")))?;
        LULL.settled(pending.asked_bytes);
        self.meter.answered(&Arrival {
            asked_bytes: pending.asked_bytes,
            bytes: body.len() as u64,
            asked_at: pending.asked_at,
            head_at,
            end_at,
        });
        if pending.waiter.is_closed() {
            // Whoever asked has gone, for instance because another lane was faster.
            return Ok(());
        }
        let answer = Frame { head, body }.parse();
        let answer = answer.inspect_err(|_| self.count_damage());
        let _ = pending.waiter.send(answer.map_err(LaneError::from));
        Ok(())
    }

    fn break_off(&self, reason: &str) {
        let pending = {
            let mut state = self.state();
            state.broken.get_or_insert_with(|| Arc::from(reason));
            std::mem::take(&mut state.pending)
        };
        for pending in pending.into_iter().flatten() {
            self.meter.failed(pending.asked_bytes);
            LULL.settled(pending.asked_bytes);
            let _ = pending
                .waiter
                .send(Err(LaneError::Broken(Arc::from(reason))));
        }
    }
}

impl State {
    fn is_full(&self) -> bool {
        self.free.is_empty() && self.pending.len() >= MAX_STREAMS
    }

    fn enter(&mut self, pending: Pending) -> Option<i16> {
        if let Some(stream) = self.free.pop() {
            *self.pending.get_mut(usize::try_from(stream).ok()?)? = Some(pending);
            return Some(stream);
        }
        if self.is_full() {
            return None;
        }
        let stream = i16::try_from(self.pending.len()).ok()?;
        self.pending.push(Some(pending));
        Some(stream)
    }

    fn leave(&mut self, stream: i16) -> Option<Pending> {
        let place = self.pending.get_mut(usize::try_from(stream).ok()?)?;
        let pending = place.take()?;
        self.free.push(stream);
        Some(pending)
    }
}

#[cfg(test)]
mod tests;
