//! A connection with a server that does what the test says.

use futures::poll;
use tokio::io::{DuplexStream, ReadHalf};
use tokio::net::TcpListener;

use super::*;

const SUPPORTED: u8 = 0x06;
const READY: u8 = 0x02;
const AUTHENTICATE: u8 = 0x03;
const AUTH_SUCCESS: u8 = 0x10;

fn connect() -> (Connection, DuplexStream) {
    let (near, far) = tokio::io::duplex(16 << 20);
    let (source, sink) = tokio::io::split(near);
    let source: Incoming<ReadHalf<DuplexStream>> = Incoming::new(source, Pool::new(0));
    let meter = Arc::new(Meter::new(Instant::now()));
    (Connection::start(source, sink, meter), far)
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
