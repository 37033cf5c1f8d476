//! Which nodes own which objects, as the driver knows the ring.

use std::net::SocketAddr;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use scylla::client::session::Session;
use scylla::cluster::{ClusterState, Node};

use super::connection::{Connection, Entrance};
use crate::arena::Pool;
use crate::lanes::{Connector, Opening};
use crate::store::Table;

/// The ring, cut at its tokens: all keys between two of them have the same owners.
#[derive(Debug, Default)]
pub(super) struct Ring {
    /// (last token of the range, owners in the local data centre), in the order of tokens.
    ranges: Vec<(i64, Arc<[SocketAddr]>)>,
    nodes: Arc<[SocketAddr]>,
}

impl Ring {
    fn of(cluster: &ClusterState, keyspace: &str, local_dc: &str) -> Self {
        let is_local = |node: &Arc<Node>| node.datacenter.as_deref() == Some(local_dc);
        let address = |node: &Arc<Node>| SocketAddr::new(node.address.ip(), node.address.port());
        let nodes = cluster
            .get_nodes_info()
            .iter()
            .filter(|node| is_local(node));
        let nodes: Arc<[SocketAddr]> = nodes.map(address).collect();
        let tokens = cluster
            .replica_locator()
            .ring()
            .iter()
            .map(|(token, _)| *token);
        let ranges = tokens
            .map(|token| {
                let owners = cluster.get_token_endpoints(keyspace, Table::Samples.name(), token);
                let owners = owners
                    .iter()
                    .map(|(node, _)| node)
                    .filter(|node| is_local(node));
                (token.value(), owners.map(address).collect())
            })
            .collect();
        Self { ranges, nodes }
    }

    /// The nodes that have the bytes; all nodes when nothing is known.
    pub fn owners(&self, token: Option<i64>) -> Arc<[SocketAddr]> {
        let found = token.and_then(|token| {
            let place = self.ranges.partition_point(|(last, _)| *last < token);
            // Behind the last token the ring begins anew.
            let (_, owners) = self.ranges.get(place).or_else(|| self.ranges.first())?;
            (!owners.is_empty()).then(|| Arc::clone(owners))
        });
        found.unwrap_or_else(|| Arc::clone(&self.nodes))
    }
}

/// Memory of answers kept for the next ones, and for how long: fresh memory costs as much as the copy into it.
const IDLE_BYTES: usize = 32 << 20;
const IDLE: Duration = Duration::from_secs(5);

/// Follows the driver's view of the cluster and opens data connections to its nodes.
#[derive(Debug)]
pub(super) struct Topology {
    session: Arc<Session>,
    keyspace: String,
    local_dc: String,
    entrance: Entrance,
    seen: Mutex<(Arc<ClusterState>, Arc<Ring>)>,
}

impl Topology {
    pub fn new(session: Arc<Session>, keyspace: &str, local_dc: &str, entrance: Entrance) -> Self {
        let cluster = session.get_cluster_state();
        let ring = Arc::new(Ring::of(&cluster, keyspace, local_dc));
        Self {
            session,
            keyspace: keyspace.to_owned(),
            local_dc: local_dc.to_owned(),
            entrance,
            seen: Mutex::new((cluster, ring)),
        }
    }

    /// The ring as it is now; worked out anew only when the driver has a new view.
    pub fn ring(&self) -> Arc<Ring> {
        let cluster = self.session.get_cluster_state();
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if !Arc::ptr_eq(&seen.0, &cluster) {
            let ring = Ring::of(&cluster, &self.keyspace, &self.local_dc);
            *seen = (cluster, Arc::new(ring));
        }
        Arc::clone(&seen.1)
    }
}

/// Opens lanes to the nodes of the ring; they all receive into memory of one pool.
#[derive(Debug)]
pub(super) struct NodeConnector {
    topology: Arc<Topology>,
    pool: Pool,
    /// Damaged answers of all lanes there have been.
    damaged: Arc<AtomicU64>,
}

impl NodeConnector {
    pub fn new(topology: Arc<Topology>, damaged: Arc<AtomicU64>) -> Self {
        Self {
            topology,
            pool: Pool::new(IDLE_BYTES),
            damaged,
        }
    }
}

impl Connector for NodeConnector {
    type Lane = Connection;

    fn nodes(&self) -> Vec<SocketAddr> {
        self.topology.ring().nodes.to_vec()
    }

    fn connect(&self, node: SocketAddr) -> Opening<Connection> {
        let entrance = self.topology.entrance.clone();
        let damaged = Arc::clone(&self.damaged);
        Box::pin(Connection::open(node, entrance, self.pool.clone(), damaged))
    }

    fn tidy(&self) {
        self.pool.trim(IDLE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(last: u8) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, last], 9042))
    }

    #[test]
    fn a_token_belongs_to_the_range_that_ends_at_or_after_it() {
        let ranges = [(-100, 1), (0, 2), (100, 3)];
        let ring = Ring {
            ranges: ranges
                .map(|(last, n)| (last, Arc::from([node(n)])))
                .to_vec(),
            nodes: Arc::from([node(1), node(2), node(3)]),
        };
        for (token, owner) in [(-200, 1), (-100, 1), (-99, 2), (0, 2), (1, 3), (101, 1)] {
            assert_eq!(&*ring.owners(Some(token)), &[node(owner)], "{token}");
        }
        assert_eq!(ring.owners(None).len(), 3);
        assert_eq!(Ring::default().owners(Some(5)).len(), 0);
    }
}
