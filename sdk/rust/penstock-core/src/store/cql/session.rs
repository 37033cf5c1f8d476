//! Opening a session to a cluster, and saying precisely why it cannot be opened.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use futures::future::join_all;
use futures::stream::FuturesUnordered;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use scylla::client::PoolSize;
use scylla::client::execution_profile::{ExecutionProfile, ExecutionProfileHandle};
use scylla::client::session::Session;
use scylla::client::session_builder::SessionBuilder;
use scylla::errors::{
    ConnectionError, ConnectionPoolError, ConnectionSetupRequestErrorKind, DbError, MetadataError,
    NewSessionError,
};
use scylla::policies::host_filter::DcHostFilter;
use scylla::policies::load_balancing::DefaultPolicy;
use scylla::policies::retry::FallthroughRetryPolicy;
use scylla::statement::Consistency;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{Instant, timeout, timeout_at};

use super::MOST_LANES_A_NODE;
use super::connection::{Connection, Entrance};
use crate::errors::OpenError;
use crate::store::CqlConfig;

/// A wrong address or password has to be reported within five seconds: what takes connections and says nothing is asked
/// for a second by us, and then by the driver, whose errors are precise.
const TCP_PATIENCE: Duration = Duration::from_secs(3);
const ANSWER_PATIENCE: Duration = Duration::from_secs(1);
const OPEN_PATIENCE: Duration = Duration::from_millis(3500);
/// An answer takes two to four round trips, opening about twenty: far clusters get more time, in proportion.
const ANSWER_ROUND_TRIPS: u32 = 10;
const OPEN_ROUND_TRIPS: u32 = 40;
/// Where somebody speaks CQL the driver can take its time: it waits for all nodes, for a frozen one twice KEEPALIVE.
const MAX_OPEN_PATIENCE: Duration = Duration::from_secs(20);
/// For writes and questions about the cluster; samples are read through lanes. A Cassandra node is one shard.
const CONNECTIONS_A_SHARD: NonZeroUsize = NonZeroUsize::new(2).unwrap();
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// A node that froze is dropped after twice this time.
const KEEPALIVE: Duration = Duration::from_secs(5);
const DEFAULT_PORT: &str = "9042";

/// A session, and how data connections enter the same nodes.
pub(super) struct Opened {
    pub session: Session,
    pub entrance: Entrance,
}

pub(super) async fn open(config: &CqlConfig) -> Result<Opened, OpenError> {
    check(config)?;
    let tls = config.ca_pem.as_deref().map(tls_config).transpose()?;
    let way = find_way(config, tls.as_ref()).await?;
    let mut builder = SessionBuilder::new()
        .known_nodes(&way.points)
        // The others are never asked, and need not be reachable from here.
        .host_filter(Arc::new(DcHostFilter::new(config.local_dc.clone())))
        .pool_size(PoolSize::PerShard(CONNECTIONS_A_SHARD))
        .connection_timeout(TCP_PATIENCE)
        .keepalive_interval(KEEPALIVE)
        .keepalive_timeout(KEEPALIVE)
        // The replication of our own keyspace says which nodes own an object.
        .keyspaces_to_fetch([&config.keyspace])
        .default_execution_profile_handle(profile(config))
        .tls_context(tls.clone());
    if let (Some(user), Some(password)) = (&config.username, &config.password) {
        builder = builder.user(user, password.reveal());
    }
    let session = timeout(way.patience, builder.build())
        .await
        .map_err(|_| silent(config, &way))?
        .map_err(|error| explain(config, &error))?;
    let login = config.username.clone().zip(config.password.clone());
    Ok(Opened {
        session,
        entrance: Entrance { tls, login },
    })
}

fn profile(config: &CqlConfig) -> ExecutionProfileHandle {
    let policy = DefaultPolicy::builder()
        .prefer_datacenter(config.local_dc.clone())
        .permit_dc_failover(false)
        .build();
    ExecutionProfile::builder()
        .load_balancing_policy(policy)
        // We try again ourselves: the driver would go on to dead nodes, and report them instead of what a live one said.
        .retry_policy(Arc::new(FallthroughRetryPolicy::new()))
        .consistency(Consistency::LocalQuorum)
        .request_timeout(Some(REQUEST_TIMEOUT))
        .build()
        .into_handle()
}

fn check(config: &CqlConfig) -> Result<(), OpenError> {
    let refuse = |message: &str| {
        Err(OpenError::Config {
            message: format!("the store configuration is wrong: {message}"),
        })
    };
    if config.contact_points.is_empty() {
        return refuse("contact_points names no node, give at least one host:port");
    }
    if config.local_dc.is_empty() {
        return refuse(
            "local_dc is empty, give the name of the data centre (`nodetool status` shows it)",
        );
    }
    let is_identifier = config.keyspace.len() <= 48
        && config
            .keyspace
            .starts_with(|first: char| first.is_ascii_lowercase())
        && config
            .keyspace
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_');
    if !is_identifier {
        return refuse("keyspace has to be lower-case letters, digits and _, at most 48");
    }
    if config.username.is_some() != config.password.is_some() {
        return refuse("username and password belong together, one of them is missing");
    }
    if let Some(lanes) = config.lanes
        && !(1..=MOST_LANES_A_NODE).contains(&lanes)
    {
        return refuse(&format!(
            "lanes is {lanes}, give 1 to {MOST_LANES_A_NODE} connections a node, or nothing to have them found"
        ));
    }
    Ok(())
}

fn tls_config(ca_pem: &str) -> Result<Arc<ClientConfig>, OpenError> {
    let refuse = |reason: String| OpenError::Config {
        message: format!("ca_pem cannot be used: {reason}"),
    };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(ca_pem.as_bytes()) {
        let certificate = certificate.map_err(|error| refuse(error.to_string()))?;
        roots
            .add(certificate)
            .map_err(|error| refuse(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(refuse("it holds no certificate in PEM form".to_owned()));
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| refuse(error.to_string()))?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(Arc::new(config))
}

/// Where the driver shall try to get in, and for how long.
struct Way {
    points: Vec<String>,
    patience: Duration,
    speaks_cql: bool,
}

/// What a contact point did when it was knocked at; durations are those of connecting.
enum Knock {
    Answered(Duration),
    /// It took the connection and said nothing, or nothing that we understand.
    Taken(Duration),
    Failed(String),
}

/// Knocks at all contact points at once and leaves those out that do not answer while others do: the driver asks one
/// after the other, and waits long for one that is frozen.
async fn find_way(config: &CqlConfig, tls: Option<&Arc<ClientConfig>>) -> Result<Way, OpenError> {
    let (doors, mut failed) = find_doors(&config.contact_points).await;
    let (mut answered, mut taken) = (Vec::new(), Vec::new());
    let addresses = doors.iter().flat_map(|door| door.addresses.iter().copied());
    let mut knocks: FuturesUnordered<_> = addresses
        .collect::<BTreeSet<_>>()
        .into_iter()
        .map(|address| async move { (address, knock(address, tls.cloned()).await) })
        .collect();
    // No knock takes longer by itself.
    let mut end_at = Instant::now() + 2 * TCP_PATIENCE;
    while let Ok(Some((address, knock))) = timeout_at(end_at, knocks.next()).await {
        match knock {
            Knock::Answered(round_trip) => {
                end_at = end_at.min(Instant::now() + answer_patience(round_trip));
                answered.push((round_trip, address));
            }
            Knock::Taken(round_trip) => taken.push((round_trip, address)),
            Knock::Failed(reason) => failed.push(reason),
        }
    }
    let speaks_cql = !answered.is_empty();
    let reached = if speaks_cql { answered } else { taken };
    let nearest = reached.iter().map(|(round_trip, _)| *round_trip).min();
    let nearest = nearest.ok_or_else(|| OpenError::Unavailable {
        message: format!(
            "no node of the store can be reached: {}. Check the addresses and that the cluster runs",
            failed.join("; ")
        ),
    })?;
    let reached = reached.into_iter().map(|(_, address)| address).collect();
    Ok(Way {
        points: doors.iter().flat_map(|door| door.open(&reached)).collect(),
        patience: if speaks_cql {
            MAX_OPEN_PATIENCE
        } else {
            (nearest * OPEN_ROUND_TRIPS).clamp(OPEN_PATIENCE, MAX_OPEN_PATIENCE)
        },
        speaks_cql,
    })
}

/// A contact point and all of its addresses: one name may stand for many nodes, of which the first is frozen.
struct Door {
    point: String,
    addresses: Vec<SocketAddr>,
}

impl Door {
    /// What the driver is told of it. The name, where all behind it can be reached: should all nodes get new addresses,
    /// the driver looks it up again.
    fn open(&self, reached: &BTreeSet<SocketAddr>) -> Vec<String> {
        let is_open = |address: &&SocketAddr| reached.contains(address);
        let open: Vec<String> = self
            .addresses
            .iter()
            .filter(is_open)
            .map(ToString::to_string)
            .collect();
        if open.len() == self.addresses.len() {
            return vec![self.point.clone()];
        }
        open
    }
}

/// The contact points, and why some of them lead nowhere.
async fn find_doors(points: &[String]) -> (Vec<Door>, Vec<String>) {
    let (mut doors, mut failed) = (Vec::new(), Vec::new());
    for found in join_all(points.iter().map(|point| look_up(with_port(point)))).await {
        match found {
            Ok(door) => doors.push(door),
            Err(reason) => failed.push(reason),
        }
    }
    (doors, failed)
}

async fn look_up(point: String) -> Result<Door, String> {
    let found = async { Ok(lookup_host(&point).await?.collect()) };
    let found: Result<Result<_, io::Error>, _> = timeout(TCP_PATIENCE, found).await;
    match found {
        Ok(Ok(addresses)) => Ok(Door { point, addresses }),
        Ok(Err(error)) => Err(format!("no address was found for {point}: {error}")),
        Err(_) => Err(format!(
            "no address was found for {point} within {} s",
            TCP_PATIENCE.as_secs()
        )),
    }
}

async fn knock(address: SocketAddr, tls: Option<Arc<ClientConfig>>) -> Knock {
    let started = Instant::now();
    let stream = match timeout(TCP_PATIENCE, TcpStream::connect(address)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) if error.kind() == io::ErrorKind::ConnectionRefused => {
            return Knock::Failed(format!("nothing listens on {address}"));
        }
        Ok(Err(error)) => return Knock::Failed(format!("{address}: {error}")),
        Err(_) => {
            return Knock::Failed(format!(
                "{address} does not answer within {} s",
                TCP_PATIENCE.as_secs()
            ));
        }
    };
    let round_trip = started.elapsed();
    let answer = Connection::is_answered(stream, tls);
    match timeout(answer_patience(round_trip), answer).await {
        Ok(true) => Knock::Answered(round_trip),
        _ => Knock::Taken(round_trip),
    }
}

fn answer_patience(round_trip: Duration) -> Duration {
    (round_trip * ANSWER_ROUND_TRIPS).clamp(ANSWER_PATIENCE, TCP_PATIENCE)
}

fn with_port(point: &str) -> String {
    let has_port = point.rsplit_once(':').is_some_and(|(host, port)| {
        port.parse::<u16>().is_ok() && (!host.contains(':') || host.ends_with(']'))
    });
    if has_port {
        return point.to_owned();
    }
    format!("{point}:{DEFAULT_PORT}")
}

fn points(config: &CqlConfig) -> String {
    config.contact_points.join(", ")
}

fn silent(config: &CqlConfig, way: &Way) -> OpenError {
    let hint = if way.speaks_cql {
        " It speaks CQL, so most likely its nodes are overloaded"
    } else if config.ca_pem.is_none() {
        " Perhaps it is no CQL port, or it wants TLS: then give the certificate (ca_pem)"
    } else {
        " Perhaps it is no CQL port, or it has no TLS"
    };
    OpenError::Unavailable {
        message: format!(
            "the store at {} takes connections but did not answer within {:.1} s.{hint}",
            points(config),
            way.patience.as_secs_f64()
        ),
    }
}

fn explain(config: &CqlConfig, error: &NewSessionError) -> OpenError {
    let at = points(config);
    let unavailable = |message: String| OpenError::Unavailable { message };
    match error {
        NewSessionError::MetadataError(MetadataError::ConnectionPoolError(
            ConnectionPoolError::Broken {
                last_connection_error,
            },
        )) => explain_connection(config, last_connection_error),
        other => unavailable(format!("the store at {at} cannot be used: {other}")),
    }
}

fn explain_connection(config: &CqlConfig, error: &ConnectionError) -> OpenError {
    let at = points(config);
    let refuse = |message: String| OpenError::Config { message };
    match error {
        ConnectionError::ConnectionSetupRequestError(setup) => match setup.get_error() {
            ConnectionSetupRequestErrorKind::DbError(DbError::AuthenticationError, _) => {
                refuse(format!(
                    "the store at {at} refused user {:?}: wrong user name or password",
                    config.username.as_deref().unwrap_or_default()
                ))
            }
            ConnectionSetupRequestErrorKind::MissingAuthentication => refuse(format!(
                "the store at {at} wants a user name and a password: give username and password"
            )),
            ConnectionSetupRequestErrorKind::BrokenConnection(_) if config.ca_pem.is_none() => {
                OpenError::Unavailable {
                    message: format!(
                        "the store at {at} closed the connection at once. It wants TLS, most likely: give the certificate \
                         that signed its own (ca_pem)"
                    ),
                }
            }
            other => OpenError::Unavailable {
                message: format!("the store at {at} refused the connection: {other}"),
            },
        },
        ConnectionError::IoError(error) if is_tls(error) => refuse(format!(
            "no TLS connection to the store at {at}: {error}. Check that the port speaks TLS, that ca_pem signed the \
             node's certificate, that it is in date and names the node's address"
        )),
        other => OpenError::Unavailable {
            message: format!("the store at {at} cannot be reached: {other}"),
        },
    }
}

fn is_tls(error: &io::Error) -> bool {
    error
        .get_ref()
        .is_some_and(<dyn std::error::Error + Send + Sync>::is::<rustls::Error>)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_port_is_added_where_none_is() {
        assert_eq!(with_port("127.0.0.1"), "127.0.0.1:9042");
        assert_eq!(with_port("127.0.0.1:9043"), "127.0.0.1:9043");
        assert_eq!(with_port("[::1]:9043"), "[::1]:9043");
    }

    #[test]
    fn the_driver_hears_of_those_behind_a_name_that_can_be_reached() {
        let door = Door {
            point: "store:9042".to_owned(),
            addresses: [1, 2].map(|last| ([127, 0, 0, last], 9042).into()).to_vec(),
        };
        let both = door.addresses.iter().copied().collect();
        assert_eq!(door.open(&both), ["store:9042"]);
        let second = door.addresses[1..].iter().copied().collect();
        assert_eq!(door.open(&second), ["127.0.0.2:9042"]);
        assert!(door.open(&BTreeSet::new()).is_empty());
    }

    #[tokio::test]
    async fn a_name_that_nobody_knows_is_said() {
        let reason = look_up("no-such-host.invalid:9042".to_owned())
            .await
            .err()
            .unwrap();
        let expected = "no address was found for no-such-host.invalid:9042: ";
        assert!(reason.starts_with(expected), "{reason}");
        let door = look_up("localhost:77".to_owned()).await.ok().unwrap();
        assert!(door.addresses.contains(&([127, 0, 0, 1], 77).into()));
    }

    #[test]
    fn a_number_of_lanes_that_cannot_work_is_refused() {
        let config = |lanes| CqlConfig {
            contact_points: vec!["127.0.0.1".to_owned()],
            local_dc: "d".to_owned(),
            keyspace: "k".to_owned(),
            username: None,
            password: None,
            ca_pem: None,
            lanes,
        };
        for lanes in [None, Some(1), Some(64)] {
            assert!(check(&config(lanes)).is_ok(), "{lanes:?}");
        }
        for lanes in [0, 65] {
            let message = check(&config(Some(lanes))).unwrap_err().to_string();
            let expected = format!("lanes is {lanes}, give 1 to 64");
            assert!(message.contains(&expected), "{message}");
        }
    }
}
