//! What the engine makes of a store's errors: what is waited for, and what the report says.

use std::net::SocketAddr;
use std::sync::Mutex;

use futures::FutureExt;
use futures::future::BoxFuture;

use super::*;
use crate::store::{Consistency, ReadRequest, Record};

type Answer = BoxFuture<'static, Result<Record, StoreError>>;

/// A store whose reads do what the test says.
struct Scripted<F>(F);

impl<F> std::fmt::Debug for Scripted<F> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Scripted")
    }
}

impl<F: Fn(ReadRequest) -> Answer + Send + Sync + 'static> Store for Scripted<F> {
    fn kind(&self) -> &'static str {
        "scripted"
    }

    fn read(&self, request: ReadRequest) -> BoxFuture<'_, Result<Record, StoreError>> {
        self.0(request)
    }

    fn write(&self, _: WriteRequest) -> BoxFuture<'_, Result<(), StoreError>> {
        std::future::ready(Ok(())).boxed()
    }

    fn delete(&self, _: Table, _: Id, _: Vec<Id>) -> BoxFuture<'_, Result<(), StoreError>> {
        std::future::ready(Ok(())).boxed()
    }

    fn scan(&self, _: Table, _: Id) -> BoxFuture<'_, Result<Vec<Id>, StoreError>> {
        std::future::ready(Ok(Vec::new())).boxed()
    }

    fn ping(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        std::future::ready(Ok(())).boxed()
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        std::future::ready(()).boxed()
    }
}

const NODE: &str = "127.0.0.9:9042";

/// The error of the first sample that cannot be read.
fn first_error(
    config: EngineConfig,
    read: impl Fn(ReadRequest) -> Answer + Send + Sync + 'static,
) -> SampleError {
    let engine = Engine::new(Arc::new(Scripted(read)), config).unwrap();
    engine.start_epoch(0).unwrap();
    match next(&engine).unwrap_err() {
        EngineError::Sample { sample, .. } => sample,
        other => panic!("{other}"),
    }
}

fn away(attempts: u32) -> StoreError {
    StoreError::Unavailable {
        operation: "reading".to_owned(),
        reason: "nobody answers".to_owned(),
        node: Some(NODE.to_owned()),
        attempts,
        waited: Duration::ZERO,
    }
}

fn failing(error: StoreError) -> impl Fn(ReadRequest) -> Answer + Send + Sync + 'static {
    move |_| std::future::ready(Err(error.clone())).boxed()
}

#[test]
fn what_is_refused_is_not_waited_for() {
    let world = World::new(6, 100);
    let refused = StoreError::Refused {
        operation: "reading".to_owned(),
        reason: "no right".to_owned(),
        node: Some(NODE.to_owned()),
        attempts: 1,
    };
    let started = Instant::now();
    let error = first_error(world.config(2), failing(refused));
    assert!(started.elapsed() < Duration::from_secs(5));
    let text = error.to_string();
    for part in ["sample ", "\"image\"", NODE, "refused", "1 tries"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_wait_in_vain_is_reported_with_all_of_its_tries() {
    let world = World::new(1, 100);
    let mut config = world.config(1);
    config.members = world.members(&[0]);
    config.is_next_epoch_prefetched = false;
    config.store_wait = Duration::from_millis(300);
    let reads = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&reads);
    let error = first_error(config, move |_| {
        count.fetch_add(1, Ordering::Relaxed);
        std::future::ready(Err(away(6))).boxed()
    });
    let reads = u32::try_from(reads.load(Ordering::Relaxed)).unwrap();
    assert!(reads > 1);
    assert_eq!(error.source.attempts(), Some(6 * reads));
    let text = error.to_string();
    assert!(text.contains(&error.sample_id.to_string()), "{text}");
    let said = format!("failed after {} tries, waited 0.", 6 * reads);
    assert!(text.contains(&said), "{text}");
    assert!(text.contains(NODE) && text.contains("\"image\""), "{text}");
}

#[test]
fn tries_of_a_wait_count_for_what_comes_after_it() {
    let world = World::new(1, 100);
    let mut config = world.config(1);
    config.members = world.members(&[0]);
    config.is_next_epoch_prefetched = false;
    let is_away = AtomicU64::new(2);
    let error = first_error(config, move |request| {
        let is_away = is_away
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(1)
            })
            .is_ok();
        let missing = StoreError::Missing {
            dataset_id: request.dataset_id,
            object_id: request.object_id,
            field: Some("image".to_owned()),
            node: Some(NODE.to_owned()),
            attempts: 4,
        };
        let error = if is_away { away(6) } else { missing };
        std::future::ready(Err(error)).boxed()
    });
    let text = error.to_string();
    assert!(text.contains("asked 16 times"), "{text}");
    assert!(text.contains(NODE), "{text}");
}

#[test]
fn a_record_that_contradicts_the_members_names_its_node() {
    let world = World::new(6, 100);
    let inner = world.store(delays(0.0));
    let mut part = world.part(&[0], 0..6);
    part.fields[0].checksums = Bytes::from(vec![1; 48]);
    let mut config = world.config(2);
    config.members = Members::new(vec!["image".into()], vec![part]).unwrap();
    let node: SocketAddr = NODE.parse().unwrap();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let levels = Arc::clone(&asked);
    let error = first_error(config, move |request| {
        let level = (request.object_id, request.consistency);
        levels.lock().unwrap().push(level);
        let inner = Arc::clone(&inner);
        async move {
            let mut record = inner.read(request).await?;
            record.node = Some(node);
            Ok(record)
        }
        .boxed()
    });
    let text = error.to_string();
    assert!(text.contains("read 2 times"), "{text}");
    // One replica may be wrong; only a quorum can say that all are.
    let asked = asked.lock().unwrap();
    let index = (0..6).find(|index| id("sample", *index) == error.sample_id);
    let object = id("object", index.unwrap());
    let levels = asked.iter().filter(|(of, _)| *of == object);
    let levels: Vec<_> = levels.map(|(_, level)| *level).take(2).collect();
    assert_eq!(levels, [Consistency::One, Consistency::Quorum]);
    assert!(text.contains(NODE) && text.contains("\"image\""), "{text}");
}
