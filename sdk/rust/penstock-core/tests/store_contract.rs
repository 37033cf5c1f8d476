//! One suite that every store has to pass. CQL joins when `PENSTOCK_TEST_CQL` names a node (`host:port`).
#![allow(clippy::unwrap_used)] // the steps of a test stand outside of `#[test]` functions here

use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use penstock_core::checksum::xxh3;
use penstock_core::codec::CHUNK_BYTES;
use penstock_core::errors::StoreError;
use penstock_core::id::Id;
use penstock_core::store::{
    self, Consistency, Expected, Fields, NewObject, ReadRequest, Record, Store, StoreConfig, Table,
    WriteRequest,
};
use tokio::time::timeout;

fn id(number: u8) -> Id {
    Id::new([number; 16])
}

fn object(number: u8, fields: &[(&str, &[u8])]) -> NewObject {
    NewObject {
        object_id: id(number),
        fields: fields
            .iter()
            .map(|(name, data)| (Arc::from(*name), Bytes::copy_from_slice(data)))
            .collect(),
    }
}

#[derive(Clone)]
struct Case {
    store: Arc<dyn Store>,
    table: Table,
    dataset_id: Id,
    consistency: Consistency,
}

impl Case {
    async fn write(&self, objects: Vec<NewObject>) -> Result<(), StoreError> {
        self.store
            .write(WriteRequest {
                table: self.table,
                dataset_id: self.dataset_id,
                objects,
            })
            .await
    }

    async fn read(&self, number: u8, fields: Option<&[&str]>) -> Result<Record, StoreError> {
        let fields = fields.map_or(Fields::All, |names| {
            Fields::Named(names.iter().map(|name| Arc::from(*name)).collect())
        });
        self.store
            .read(ReadRequest {
                table: self.table,
                dataset_id: self.dataset_id,
                object_id: id(number),
                fields,
                consistency: self.consistency,
                size_bytes: 0,
            })
            .await
    }

    async fn round_trip(&self) {
        let large: Vec<u8> = (0..251).cycle().take(CHUNK_BYTES * 2 + 7).collect();
        self.write(vec![object(1, &[("mask", b""), ("image", &large)])])
            .await
            .unwrap();
        let record = self.read(1, Some(&["mask", "image"])).await.unwrap();
        assert_eq!(record.object_id, id(1));
        let [mask, image] = &record.fields[..] else {
            panic!("{} fields", record.fields.len())
        };
        assert_eq!((&*mask.name, mask.size_bytes), ("mask", 0));
        assert_eq!(
            (&*image.name, image.size_bytes),
            ("image", large.len() as u64)
        );
        assert_eq!(image.to_bytes(), large);
        assert_eq!(image.xxh3, xxh3(&large));
        assert!(image.is_verified && mask.is_verified);
        let all = self.read(1, None).await.unwrap();
        let names: Vec<&str> = all.fields.iter().map(|field| &*field.name).collect();
        assert_eq!(names, ["image", "mask"]);
    }

    async fn absence(&self) {
        self.write(vec![object(2, &[("image", b"x")])])
            .await
            .unwrap();
        let error = self.read(3, None).await.unwrap_err();
        assert!(matches!(&error, StoreError::Missing { object_id, .. } if *object_id == id(3)));
        let error = self.read(2, Some(&["image", "mask"])).await.unwrap_err();
        assert!(matches!(&error, StoreError::Missing { field: Some(name), .. } if name == "mask"));
        assert!(error.to_string().contains("mask"), "{error}");
    }

    async fn rewriting(&self) {
        let same = || vec![object(4, &[("image", b"same")])];
        self.write(same()).await.unwrap();
        self.write(same()).await.unwrap();
        assert_eq!(
            self.read(4, None).await.unwrap().fields[0].to_bytes(),
            "same"
        );
    }

    /// Other content than before: of fewer chunks, of as many and of more.
    async fn replacing(&self) {
        let sizes = [2 * CHUNK_BYTES + 1, CHUNK_BYTES, 5, 0, CHUNK_BYTES + 1];
        for (seed, size) in (0_u8..).zip(sizes) {
            let content = vec![seed; size];
            self.write(vec![object(9, &[("image", &content)])])
                .await
                .unwrap();
            let record = self.read(9, Some(&["image"])).await.unwrap();
            assert_eq!(record.fields[0].to_bytes(), content, "{size} bytes");
        }
    }

    async fn refusal(&self) {
        let refused = [
            object(5, &[]),
            object(5, &[("a", b""), ("a", b"")]),
            object(5, &[("1bad", b"")]),
        ];
        for bad in refused {
            let result = self.write(vec![object(6, &[("image", b"x")]), bad]).await;
            assert!(
                matches!(result, Err(StoreError::Invalid { .. })),
                "{result:?}"
            );
        }
        assert!(
            self.read(6, None).await.is_err(),
            "a part of a refused request was written"
        );
    }

    async fn verification(&self) {
        self.write(vec![object(7, &[("a", b"one"), ("b", b"two")])])
            .await
            .unwrap();
        let expect = |number: u8, field: &str, size_bytes: u64, data: &[u8]| Expected {
            object_id: id(number),
            field: Arc::from(field),
            size_bytes,
            xxh3: xxh3(data),
        };
        let expected = vec![
            expect(7, "a", 3, b"one"),
            expect(7, "b", 3, b"owt"),
            expect(7, "c", 3, b"two"),
            expect(8, "a", 1, b"x"),
        ];
        let findings = self
            .store
            .verify(self.table, self.dataset_id, expected)
            .await
            .unwrap();
        assert_eq!(findings[0], None);
        assert!(findings[1].as_ref().unwrap().contains("checksum"));
        assert!(findings[2].as_ref().unwrap().contains("\"c\""));
        assert!(findings[3].as_ref().unwrap().contains(&id(8).to_string()));
    }

    async fn listing(&self) {
        let other = Self {
            dataset_id: Id::from(uuid::Uuid::from_bytes([0xee; 16])),
            ..self.clone()
        };
        let left = other.scan().await;
        other.delete(left).await;
        assert_eq!(other.scan().await, []);
        let objects = [3, 1, 2].map(|number| object(number, &[("a", b"x"), ("b", b"y")]));
        other.write(objects.to_vec()).await.unwrap();
        assert_eq!(other.scan().await, [id(1), id(2), id(3)]);
        other.delete(vec![id(1), id(3), id(200)]).await;
        assert_eq!(other.scan().await, [id(2)]);
        assert!(other.read(1, Some(&["b"])).await.is_err());
    }

    async fn scan(&self) -> Vec<Id> {
        self.store.scan(self.table, self.dataset_id).await.unwrap()
    }

    async fn delete(&self, object_ids: Vec<Id>) {
        self.store
            .delete(self.table, self.dataset_id, object_ids)
            .await
            .unwrap();
    }

    /// All of the above but the refusals holds for both tables, and neither knows of the other's objects.
    async fn tables_apart(&self) {
        let dataset_id = Id::new([0xab; 16]);
        let [samples, objects] = [Table::Samples, Table::Objects].map(|table| Self {
            table,
            dataset_id,
            ..self.clone()
        });
        objects.round_trip().await;
        objects.absence().await;
        objects.replacing().await;
        objects.verification().await;
        objects.listing().await;
        assert_eq!(samples.scan().await, []);
        assert!(matches!(
            samples.read(1, None).await,
            Err(StoreError::Missing { .. })
        ));
        samples
            .write(vec![object(1, &[("image", b"sample")])])
            .await
            .unwrap();
        objects.delete(objects.scan().await).await;
        assert_eq!(samples.scan().await, [id(1)]);
        let record = samples.read(1, None).await.unwrap();
        assert_eq!(record.fields[0].to_bytes(), "sample");
    }

    async fn quorum(&self) {
        let sure = Self {
            dataset_id: Id::new([0xcd; 16]),
            consistency: Consistency::Quorum,
            ..self.clone()
        };
        sure.round_trip().await;
        sure.absence().await;
        sure.replacing().await;
    }

    /// Writes and reads of many objects side by side: each gets its own bytes.
    async fn side_by_side(&self) {
        let case = Self {
            dataset_id: Id::new([0xef; 16]),
            ..self.clone()
        };
        let content = |number: u8| vec![number; 100 + 997 * usize::from(number)];
        let tasks = (0..64_u8).map(|number| {
            let case = case.clone();
            tokio::spawn(async move {
                let image = content(number);
                let written = case.write(vec![object(number, &[("image", &image)])]).await;
                written.unwrap();
                for other in [number, number / 2, number] {
                    match case.read(other, Some(&["image"])).await {
                        Ok(record) => assert_eq!(record.fields[0].to_bytes(), content(other)),
                        Err(StoreError::Missing { .. }) if other != number => {}
                        Err(error) => panic!("object {other}: {error}"),
                    }
                }
            })
        });
        for done in join_all(tasks).await {
            done.unwrap();
        }
        assert_eq!(case.scan().await, (0..64).map(id).collect::<Vec<_>>());
    }

    /// Reads that are under way when the store is closed end soon, with what they would have found or as closed.
    async fn closing_during_reads(&self) {
        let content = vec![7; CHUNK_BYTES];
        self.write(vec![object(10, &[("image", &content)])])
            .await
            .unwrap();
        self.store.ping().await.unwrap();
        // Every second one is of an object that is not there.
        let reads = (0..64).map(|number| self.read(10 + number % 2, Some(&["image"])));
        let mut reads = Box::pin(join_all(reads));
        // All are asked for by this; only memory answers at once.
        let begun = futures::poll!(&mut reads);
        self.store.close().await;
        let ended = match begun {
            Poll::Ready(results) => results,
            Poll::Pending => timeout(Duration::from_secs(10), reads).await.unwrap(),
        };
        for (number, result) in ended.into_iter().enumerate() {
            match result {
                Ok(record) => assert_eq!(record.fields[0].to_bytes(), content),
                Err(StoreError::Missing { .. }) if number % 2 == 1 => {}
                Err(error) => assert!(matches!(error, StoreError::Closed), "{error}"),
            }
        }
    }

    async fn closing(&self) {
        self.store.close().await;
        self.store.close().await;
        assert!(matches!(self.store.ping().await, Err(StoreError::Closed)));
        assert!(matches!(self.read(1, None).await, Err(StoreError::Closed)));
        assert!(matches!(self.write(vec![]).await, Err(StoreError::Closed)));
        assert!(self.store.lanes().is_empty());
    }
}

async fn hold_to_contract(config: serde_json::Value) {
    let config = StoreConfig::from_json(&config.to_string()).unwrap();
    let case = Case {
        store: store::open(config).await.unwrap(),
        table: Table::Samples,
        dataset_id: Id::new([0xda; 16]),
        consistency: Consistency::One,
    };
    case.round_trip().await;
    case.absence().await;
    case.rewriting().await;
    case.replacing().await;
    case.refusal().await;
    case.verification().await;
    case.listing().await;
    case.tables_apart().await;
    case.quorum().await;
    case.side_by_side().await;
    case.closing_during_reads().await;
    case.closing().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_holds_to_the_contract() {
    hold_to_contract(serde_json::json!({"kind": "memory", "name": "contract"})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lmdb_holds_to_the_contract() {
    let folder = tempfile::tempdir().unwrap();
    hold_to_contract(serde_json::json!({"kind": "lmdb", "path": folder.path()})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lmdb_holds_to_the_contract_in_a_map_that_grows() {
    let folder = tempfile::tempdir().unwrap();
    let config =
        serde_json::json!({"kind": "lmdb", "path": folder.path(), "first_map_bytes": 65536});
    hold_to_contract(config).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cql_holds_to_the_contract() {
    let Ok(node) = std::env::var("PENSTOCK_TEST_CQL") else {
        eprintln!("skipped: set PENSTOCK_TEST_CQL=host:port to run it");
        return;
    };
    let keyspace = format!(
        "ps_{}",
        Id::new(
            *blake3::hash(&std::process::id().to_le_bytes())
                .as_bytes()
                .first_chunk()
                .unwrap()
        )
        .to_hex()
    );
    let session = scylla::client::session_builder::SessionBuilder::new()
        .known_node(&node)
        .build()
        .await
        .unwrap();
    let run = async |text: String| session.query_unpaged(text, ()).await.unwrap();
    run(format!("CREATE KEYSPACE {keyspace} WITH replication = {{'class': 'SimpleStrategy', 'replication_factor': 1}}")).await;
    let migration = include_str!("../../../../migrations/cql/0001_objects.cql");
    let text: Vec<&str> = migration
        .lines()
        .filter(|line| !line.starts_with("--"))
        .collect();
    for statement in text.join("\n").replace("{keyspace}", &keyspace).split(';') {
        if !statement.trim().is_empty() {
            run(statement.to_owned()).await;
        }
    }
    let centre = session.get_cluster_state().get_nodes_info()[0]
        .datacenter
        .clone()
        .unwrap();
    hold_to_contract(serde_json::json!({
        "kind": "cql", "contact_points": [node], "local_dc": centre, "keyspace": keyspace,
    }))
    .await;
    run(format!("DROP KEYSPACE {keyspace}")).await;
}
