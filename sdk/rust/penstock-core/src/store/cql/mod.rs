//! The store on Cassandra and ScyllaDB.
//!
//! Reads go over lanes of our own to one replica and, when its answer is empty, short or damaged, to a quorum;
//! writes and everything else go through the driver, to a quorum with a bounded number of bytes under way. The tables are those of `migrations/cql`.

mod connection;
mod failures;
mod reads;
mod rows;
mod session;
mod shards;
mod topology;
mod wire;
mod writes;

use std::collections::HashSet;
use std::fmt;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use futures::future::{BoxFuture, join};
use scylla::client::session::Session;
use scylla::errors::{DbError, PrepareError, RequestAttemptError};
use scylla::response::PagingState;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use self::failures::{failure, is_passing};
use self::rows::{Ask, Statements, TryError};
use self::topology::{NodeConnector, Topology};
use self::writes::finish_all;
use super::{CqlConfig, ReadRequest, Record, Store, StoreCounters, Table, WriteRequest};
use crate::errors::{OpenError, StoreError};
use crate::id::Id;
use crate::lanes::{LaneLimits, LaneStats, Lanes};
use crate::retry::Backoff;

/// Each node takes a fortieth of its heap from one client before it stops reading: 12.8 MB of 512 MB. Writes spread over
/// the nodes, and more of them are under way where there are more, as far as a client's memory may be used for it.
const WRITE_BYTES_A_NODE: usize = 8 << 20;
const WRITE_NODES: usize = 4;
const WRITE_UNIT_BYTES: usize = 1 << 10;
const SCAN_RANGES: u64 = 64;
const SCANS_AT_ONCE: usize = 4;
const PING_PATIENCE: Duration = Duration::from_secs(5);
/// A connection carries one TCP window a round trip, 4 MB on an ordinary system: these carry 1.7 GB/s over 150 ms, and
/// more than half of it while some are slow.
const MOST_LANES_A_NODE: usize = 64;

pub struct CqlStore {
    open: RwLock<Option<Arc<Open>>>,
    retries: Arc<AtomicU64>,
    escalations: Arc<AtomicU64>,
    damaged: Arc<AtomicU64>,
}

impl fmt::Debug for CqlStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CqlStore").finish_non_exhaustive()
    }
}

struct Open {
    session: Arc<Session>,
    topology: Arc<Topology>,
    lanes: Arc<Lanes<NodeConnector>>,
    samples: Statements,
    objects: Statements,
    write_room: Semaphore,
    retries: Arc<AtomicU64>,
    escalations: Arc<AtomicU64>,
    damaged: Arc<AtomicU64>,
}

impl CqlStore {
    pub async fn open(config: CqlConfig) -> Result<Self, OpenError> {
        let opened = session::open(&config).await?;
        let cluster = opened.session.get_cluster_state();
        let nodes = cluster.get_nodes_info().iter();
        let centres = nodes.filter_map(|node| node.datacenter.as_deref());
        check_data_centre(centres.collect(), &config.local_dc)?;
        let session = Arc::new(opened.session);
        let topology = Arc::new(Topology::new(
            Arc::clone(&session),
            &config.keyspace,
            &config.local_dc,
            opened.entrance,
        ));
        let local_nodes = topology.ring().owners(None).len();
        let write_bytes = WRITE_BYTES_A_NODE * local_nodes.clamp(1, WRITE_NODES);
        let damaged = Arc::new(AtomicU64::new(0));
        let lanes = Lanes::start(
            NodeConnector::new(Arc::clone(&topology), Arc::clone(&damaged)),
            lane_limits(&config),
        );
        let retries = Arc::new(AtomicU64::new(0));
        let escalations = Arc::new(AtomicU64::new(0));
        let open = Open {
            session,
            topology,
            lanes,
            samples: Statements::new(&config.keyspace, Table::Samples),
            objects: Statements::new(&config.keyspace, Table::Objects),
            write_room: Semaphore::new(write_bytes / WRITE_UNIT_BYTES),
            retries: Arc::clone(&retries),
            escalations: Arc::clone(&escalations),
            damaged: Arc::clone(&damaged),
        };
        let (checked, ()) = join(open.check_tables(&config), open.lanes.settled()).await;
        checked?;
        Ok(Self {
            open: RwLock::new(Some(Arc::new(open))),
            retries,
            escalations,
            damaged,
        })
    }

    fn get(&self) -> Result<Arc<Open>, StoreError> {
        let open = self.open.read().unwrap_or_else(PoisonError::into_inner);
        open.clone().ok_or(StoreError::Closed)
    }
}

impl Open {
    /// One prepared read finds a wrong keyspace or a missing right at once instead of in the first epoch.
    async fn check_tables(&self, config: &CqlConfig) -> Result<(), OpenError> {
        let keyspace = &config.keyspace;
        match self.samples.get(&self.session, Ask::NamedFields).await {
            Ok(_) => Ok(()),
            Err(PrepareError::AllAttemptsFailed {
                first_attempt: RequestAttemptError::DbError(DbError::Invalid, reason),
            }) => Err(OpenError::Config {
                message: format!(
                    "keyspace {keyspace} has no tables of Penstock ({reason}): check the name, and that the server has \
                     set up this project"
                ),
            }),
            Err(error) => Err(OpenError::Unavailable {
                message: format!("keyspace {keyspace} cannot be used: {error}"),
            }),
        }
    }

    const fn statements(&self, table: Table) -> &Statements {
        match table {
            Table::Samples => &self.samples,
            Table::Objects => &self.objects,
        }
    }

    /// Walks the whole table, because a dataset is only half of the partition key.
    async fn scan(&self, table: Table, dataset_id: Id) -> Result<Vec<Id>, StoreError> {
        let jobs = token_ranges().map(|range| {
            self.retrying(
                || "listing objects".to_owned(),
                move || self.scan_range(table, Uuid::from(dataset_id), range),
            )
        });
        let parts: Vec<Vec<Id>> = finish_all(jobs, SCANS_AT_ONCE).await?;
        let mut ids: Vec<Id> = parts.into_iter().flatten().collect();
        ids.sort_unstable();
        Ok(ids)
    }

    async fn scan_range(
        &self,
        table: Table,
        dataset_id: Uuid,
        range: (i64, i64),
    ) -> Result<Vec<Id>, TryError> {
        let columns = |error: &dyn fmt::Display| TryError::Columns(error.to_string());
        let statement = self.statements(table).get(&self.session, Ask::Keys).await?;
        let mut ids = Vec::new();
        let mut page = PagingState::start();
        loop {
            let (result, next) = self
                .session
                .execute_single_page(statement, range, page)
                .await?;
            let result = result.into_rows_result().map_err(|error| columns(&error))?;
            for row in result
                .rows::<(Uuid, Uuid)>()
                .map_err(|error| columns(&error))?
            {
                let (dataset, object) = row.map_err(|error| columns(&error))?;
                if dataset == dataset_id {
                    ids.push(Id::from(object));
                }
            }
            match next.into_paging_control_flow() {
                std::ops::ControlFlow::Break(()) => return Ok(ids),
                std::ops::ControlFlow::Continue(state) => page = state,
            }
        }
    }

    /// A node answers, and the two tables are there: every node knows that by itself, so it is as cheap as any answer.
    async fn ping(&self) -> Result<(), StoreError> {
        let operation = || "asking the store for a sign of life".to_owned();
        let unavailable = |reason: String| StoreError::Unavailable {
            operation: operation(),
            reason,
            node: None,
            attempts: 1,
            waited: Duration::ZERO,
        };
        let keyspace = self.samples.keyspace();
        let question = self.session.query_unpaged(
            "SELECT table_name FROM system_schema.tables WHERE keyspace_name = ?",
            (keyspace,),
        );
        let rows = match timeout(PING_PATIENCE, question).await {
            Ok(Ok(answer)) => answer
                .into_rows_result()
                .map_err(|error| unavailable(error.to_string()))?,
            Ok(Err(error)) => return Err(unavailable(error.to_string())),
            Err(_) => {
                let waited = PING_PATIENCE.as_secs();
                return Err(unavailable(format!("no answer within {waited} s")));
            }
        };
        let names = rows
            .rows::<(String,)>()
            .map_err(|error| unavailable(error.to_string()))?;
        let names: HashSet<String> = names.flatten().map(|(name,)| name).collect();
        let tables = [Table::Samples, Table::Objects].map(Table::name);
        let Some(missing) = tables.into_iter().find(|name| !names.contains(*name)) else {
            return Ok(());
        };
        Err(StoreError::Refused {
            operation: operation(),
            reason: format!(
                "keyspace {keyspace} has no table {missing} any more: restore it from a backup of the store, or \
                 restart the server, which makes empty tables"
            ),
            node: None,
            attempts: 1,
        })
    }

    async fn retrying<T, F: Future<Output = Result<T, TryError>>>(
        &self,
        operation: impl Fn() -> String,
        job: impl Fn() -> F,
    ) -> Result<T, StoreError> {
        let mut backoff = Backoff::default();
        loop {
            match job().await {
                Ok(value) => return Ok(value),
                Err(error) => {
                    let attempts = backoff.tries();
                    self.wait_or_fail(&mut backoff, &error, attempts, &operation)
                        .await?;
                }
            }
        }
    }

    async fn wait_or_fail(
        &self,
        backoff: &mut Backoff,
        error: &TryError,
        attempts: u32,
        operation: impl Fn() -> String,
    ) -> Result<(), StoreError> {
        if self.lanes.is_closed() {
            return Err(StoreError::Closed);
        }
        let pause = if is_passing(error) {
            backoff.next_pause()
        } else {
            None
        };
        let Some(pause) = pause else {
            return Err(failure(operation(), error, attempts));
        };
        self.retries.fetch_add(1, Ordering::Relaxed);
        sleep(pause).await;
        Ok(())
    }
}

fn lane_limits(config: &CqlConfig) -> LaneLimits {
    LaneLimits {
        least: config.lanes.unwrap_or(1),
        most: config.lanes.unwrap_or(MOST_LANES_A_NODE),
    }
}

fn check_data_centre(mut known: Vec<&str>, local_dc: &str) -> Result<(), OpenError> {
    if known.contains(&local_dc) {
        return Ok(());
    }
    if known.is_empty() {
        // The driver goes on without when its question about the nodes fails.
        return Err(OpenError::Unavailable {
            message: "the cluster did not say which nodes it has: try again when it is less busy"
                .to_owned(),
        });
    }
    known.sort_unstable();
    known.dedup();
    Err(OpenError::Config {
        message: format!(
            "the cluster has no data centre {local_dc:?}, it has {}: set local_dc to one of them",
            known.join(", ")
        ),
    })
}

/// The whole ring, cut into ranges that leave out their first token and have their last one.
fn token_ranges() -> impl Iterator<Item = (i64, i64)> {
    let step = u64::MAX / SCAN_RANGES;
    (0..SCAN_RANGES).map(move |index| {
        let after = i64::MIN.wrapping_add_unsigned(index * step);
        let is_last = index == SCAN_RANGES - 1;
        (
            after,
            if is_last {
                i64::MAX
            } else {
                after.wrapping_add_unsigned(step)
            },
        )
    })
}

impl Store for CqlStore {
    fn kind(&self) -> &'static str {
        "cql"
    }

    fn read(&self, request: ReadRequest) -> BoxFuture<'_, Result<Record, StoreError>> {
        Box::pin(async move { self.get()?.read(&request).await })
    }

    fn write(&self, request: WriteRequest) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move { self.get()?.write(request).await })
    }

    fn delete(
        &self,
        table: Table,
        dataset_id: Id,
        object_ids: Vec<Id>,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move { self.get()?.delete(table, dataset_id, object_ids).await })
    }

    fn scan(&self, table: Table, dataset_id: Id) -> BoxFuture<'_, Result<Vec<Id>, StoreError>> {
        Box::pin(async move { self.get()?.scan(table, dataset_id).await })
    }

    fn ping(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        Box::pin(async move { self.get()?.ping().await })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            let open = self
                .open
                .write()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
            if let Some(open) = open {
                open.lanes.close();
            }
        })
    }

    fn counters(&self) -> StoreCounters {
        let mut counters = StoreCounters {
            retries: self.retries.load(Ordering::Relaxed),
            escalations: self.escalations.load(Ordering::Relaxed),
            damaged: self.damaged.load(Ordering::Relaxed),
            ..StoreCounters::default()
        };
        if let Ok(open) = self.get() {
            let extra = open.lanes.extra();
            counters.hedges = extra.hedges.load(Ordering::Relaxed);
            counters.hedge_wins = extra.hedge_wins.load(Ordering::Relaxed);
            counters.silences = extra.silences.load(Ordering::Relaxed);
            counters.probes = extra.probes.load(Ordering::Relaxed);
        }
        counters
    }

    fn lanes(&self) -> Vec<LaneStats> {
        self.get()
            .map(|open| open.lanes.stats())
            .unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_ranges_cover_the_ring_without_gap_or_overlap() {
        let ranges: Vec<(i64, i64)> = token_ranges().collect();
        // No partition has the smallest token.
        assert_eq!(ranges.first().map(|range| range.0), Some(i64::MIN));
        assert_eq!(ranges.last().map(|range| range.1), Some(i64::MAX));
        assert!(ranges.iter().all(|(after, last)| after < last));
        assert!(ranges.windows(2).all(|pair| pair[0].1 == pair[1].0));
    }

    #[test]
    fn only_a_cluster_that_names_its_data_centres_can_show_that_one_is_wrong() {
        assert!(check_data_centre(vec!["east", "west"], "west").is_ok());
        let wrong = check_data_centre(vec!["west", "east", "west"], "north").unwrap_err();
        assert!(matches!(&wrong, OpenError::Config { .. }), "{wrong}");
        assert!(wrong.to_string().contains("it has east, west"), "{wrong}");
        let unknown = check_data_centre(vec![], "north").unwrap_err();
        assert!(
            matches!(unknown, OpenError::Unavailable { .. }),
            "{unknown}"
        );
    }
}
