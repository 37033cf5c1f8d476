//! A connection with a server that does what the test says.

use futures::{FutureExt, poll};
use tokio::io::{AsyncReadExt, DuplexStream, ReadHalf};
use tokio::net::TcpListener;

use super::*;
use crate::store::cql::wire::HEADER_BYTES;

const SUPPORTED: u8 = 0x06;
const READY: u8 = 0x02;
const AUTHENTICATE: u8 = 0x03;
const AUTH_SUCCESS: u8 = 0x10;

fn connect() -> (Connection, DuplexStream) {
    let (near, far) = tokio::io::duplex(16 << 20);
    let (source, sink) = tokio::io::split(near);
    let source: Incoming<ReadHalf<DuplexStream>> = Incoming::new(source, Pool::new(0));
    let meter = Arc::new(Meter::new(Instant::now()));
    let connection = Connection::start(source, sink, meter, Arc::default());
    (connection, far)
}

/// The kind and the stream of the next question.
async fn next_question(server: &mut (impl AsyncRead + Unpin)) -> (u8, i16) {
    let mut head = [0; HEADER_BYTES];
    server.read_exact(&mut head).await.unwrap();
    let length = u32::from_be_bytes(head[5..].try_into().unwrap());
    let mut body = vec![0; length as usize];
    server.read_exact(&mut body).await.unwrap();
    (head[4], i16::from_be_bytes([head[2], head[3]]))
}

async fn answer(server: &mut (impl AsyncWrite + Unpin), kind: u8, stream: i16, body: &[u8]) {
    let mut frame = vec![0x84, 0];
    frame.extend(stream.to_be_bytes());
    frame.push(kind);
    frame.extend(u32::try_from(body.len()).unwrap().to_be_bytes());
    frame.extend(body);
    server.write_all(&frame).await.unwrap();
}

impl Connection {
    fn damaged(&self) -> u64 {
        self.shared.damaged.load(Ordering::Relaxed)
    }
}

fn string(text: &str) -> Vec<u8> {
    let length = u16::try_from(text.len()).unwrap().to_be_bytes();
    [&length[..], text.as_bytes()].concat()
}

fn supported(pairs: &[(&str, &str)]) -> Vec<u8> {
    let mut body = u16::try_from(pairs.len()).unwrap().to_be_bytes().to_vec();
    for (name, value) in pairs {
        body.extend(string(name));
        body.extend([0, 1]);
        body.extend(string(value));
    }
    body
}

#[tokio::test]
async fn all_stream_ids_are_used_and_one_read_more_breaks_nothing() {
    let (connection, mut server) = connect();
    let shared = &connection.shared;
    let mut reads: Vec<_> = (0..MAX_STREAMS)
        .map(|_| Box::pin(shared.ask(&Ask::Options, 10)))
        .collect();
    for read in &mut reads {
        assert_eq!(connection.condition(), Condition::Ready);
        assert!(poll!(read).is_pending());
    }
    assert_eq!(connection.condition(), Condition::Full);
    let more = shared.ask(&Ask::Options, 10).await;
    assert!(matches!(more, Err(LaneError::Full)), "{more:?}");
    let reading = shared.meter.reading();
    assert_eq!(reading.outstanding, MAX_STREAMS as u64);
    answer(&mut server, READY, 777, &[]).await;
    reads.swap_remove(777).await.unwrap();
    assert_eq!(connection.condition(), Condition::Ready);
    assert!(poll!(Box::pin(shared.ask(&Ask::Options, 10))).is_pending());
    assert_eq!(connection.condition(), Condition::Full);
}

#[tokio::test]
async fn a_shard_is_learnt_without_a_round_trip_more() {
    let (connection, mut server) = connect();
    let said = supported(&[
        ("COMPRESSION", "lz4"),
        ("SCYLLA_SHARD", "5"),
        ("SCYLLA_NR_SHARDS", "8"),
        ("SCYLLA_SHARDING_IGNORE_MSB", "12"),
    ]);
    let serve = async {
        // Both questions are there before anything was answered.
        let (first, options) = next_question(&mut server).await;
        let (second, startup) = next_question(&mut server).await;
        answer(&mut server, AUTHENTICATE, startup, &string("any")).await;
        answer(&mut server, SUPPORTED, options, &said).await;
        let (third, login) = next_question(&mut server).await;
        answer(&mut server, AUTH_SUCCESS, login, &[0xff; 4]).await;
        [first, second, third]
    };
    let login = Some(("user".to_owned(), Secret::new("password".to_owned())));
    let (sharding, questions) = join(connection.log_in(login), serve).await;
    assert_eq!(questions, [0x05, 0x01, 0x0f]);
    let shard = sharding.unwrap().unwrap().shard;
    assert_eq!(shard, Shard { index: 5, count: 8 });
}

#[tokio::test]
async fn a_node_without_shards_is_entered_alike() {
    let (connection, mut server) = connect();
    let serve = async {
        let (_, options) = next_question(&mut server).await;
        let (_, startup) = next_question(&mut server).await;
        let said = supported(&[("CQL_VERSION", "3.4.7")]);
        answer(&mut server, SUPPORTED, options, &said).await;
        answer(&mut server, READY, startup, &[]).await;
    };
    let (sharding, ()) = join(connection.log_in(None), serve).await;
    assert_eq!(sharding, Ok(None));
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_connection_that_is_dead_is_found_out_while_nobody_uses_it() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).await;
    let stream = stream.unwrap();
    set_options(&stream).unwrap();
    let socket = SockRef::from(&stream);
    assert!(stream.nodelay().unwrap() && socket.keepalive().unwrap());
    let first = socket.tcp_keepalive_time().unwrap();
    let interval = socket.tcp_keepalive_interval().unwrap();
    assert_eq!([first, interval].map(|time| time.as_secs()), [30, 10]);
    assert_eq!(socket.tcp_keepalive_retries().unwrap(), 3);
    let patience = socket.tcp_user_timeout().unwrap();
    assert_eq!(patience, Some(Duration::from_secs(12)));
}

/// A node that takes one connection and does with it what the test says.
async fn reach<F: Future<Output = ()>>(serve: impl FnOnce(TcpStream) -> F) -> bool {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let stream = TcpStream::connect(listener.local_addr().unwrap()).await;
    let serve = async {
        let (server, _) = listener.accept().await.unwrap();
        serve(server).await;
    };
    let (is_answered, ()) = join(Connection::is_answered(stream.unwrap(), None), serve).await;
    is_answered
}

#[tokio::test]
async fn a_node_answers_before_it_knows_who_asks_and_anything_else_is_no_answer() {
    let node = |mut server: TcpStream| async move {
        let (question, stream) = next_question(&mut server).await;
        assert_eq!(question, 0x05);
        answer(&mut server, SUPPORTED, stream, &supported(&[])).await;
    };
    assert!(reach(node).await);
    let web_server = |mut server: TcpStream| async move {
        next_question(&mut server).await;
        server.write_all(b"HTTP/1.1 400 Bad").await.unwrap();
    };
    assert!(!reach(web_server).await);
    let closing = |mut server: TcpStream| async move {
        next_question(&mut server).await;
    };
    assert!(!reach(closing).await);
}

/// What a read is told, and how often damage was counted, when these bytes come instead of its answer, then the end.
async fn told(bytes: &[u8]) -> (Result<Answer, LaneError>, u64) {
    let (connection, mut server) = connect();
    let serve = async {
        next_question(&mut server).await;
        server.write_all(bytes).await.unwrap();
        drop(server);
    };
    let (answer, ()) = join(connection.shared.ask(&Ask::Options, 10), serve).await;
    (answer, connection.damaged())
}

#[tokio::test]
async fn damage_that_ends_a_connection_is_counted_once_and_its_mere_end_is_not() {
    const SOUND: [u8; HEADER_BYTES] = [0x84, 0, 0, 0, READY, 0, 0, 0, 1];
    let with = |place: usize, byte: u8| {
        let mut frame = [&SOUND[..], b"x"].concat();
        frame[place] = byte;
        frame
    };
    let damaged = [
        ("another version", with(0, 0x85), "not an answer of"),
        ("too long", with(5, 0x7f), "length cannot be right"),
        ("nobody's stream", with(3, 1), "answers no question"),
        ("a negative stream", with(2, 0x80), "answers no question"),
        ("half a head", SOUND[..5].to_vec(), "cut off"),
        ("no body", SOUND.to_vec(), "cut off"),
    ];
    for (what, bytes, reason) in damaged {
        let (answer, count) = told(&bytes).await;
        let error = answer.unwrap_err();
        assert!(matches!(error, LaneError::Broken(_)), "{what}: {error}");
        assert!(error.to_string().contains(reason), "{what}: {error}");
        assert_eq!(count, 1, "{what}");
    }
    let (answer, count) = told(&[]).await;
    assert!(matches!(answer, Err(LaneError::Broken(_))), "{answer:?}");
    assert_eq!(count, 0);
    let (answer, count) = told(&with(9, 0)).await;
    assert!(matches!(answer, Ok(Answer::Ready)), "{answer:?}");
    assert_eq!(count, 0);
}

fn read() -> Read {
    Read {
        statement: Arc::new(Prepared {
            id: Bytes::from_static(b"id"),
            text: String::new(),
            page_rows: 16,
        }),
        level: wire::LOCAL_ONE,
        dataset_id: Uuid::nil(),
        object_id: Uuid::nil(),
        token: 0,
        fields: None,
        size_bytes: 10,
    }
}

#[tokio::test]
async fn a_damaged_body_is_counted_while_somebody_waits_for_it_and_the_connection_goes_on() {
    const UNKNOWN: u8 = 0x77;
    let (connection, mut server) = connect();
    let question = read();
    for (kind, count) in [(UNKNOWN, 1), (READY, 2)] {
        let serve = async {
            let (_, stream) = next_question(&mut server).await;
            answer(&mut server, kind, stream, &[]).await;
        };
        let (told, ()) = join(connection.ask(&question), serve).await;
        assert!(matches!(told, Err(LaneError::Damaged(_))), "{told:?}");
        assert_eq!(connection.damaged(), count);
    }
    // Sent, and given up before the answer is there.
    assert!(connection.ask(&question).now_or_never().is_none());
    let (_, stream) = next_question(&mut server).await;
    answer(&mut server, UNKNOWN, stream, &[]).await;
    let serve = async {
        let (_, stream) = next_question(&mut server).await;
        answer(&mut server, READY, stream, &[]).await;
    };
    let (told, ()) = join(connection.shared.ask(&Ask::Options, 10), serve).await;
    assert!(matches!(told, Ok(Answer::Ready)), "{told:?}");
    assert_eq!(connection.damaged(), 2);
    assert_eq!(connection.condition(), Condition::Ready);
}
