//! What the store does with LMDB's transactions and errors.

use super::*;

fn open(folder: &Path) -> LmdbStore {
    LmdbStore::open(LmdbConfig {
        path: folder.to_owned(),
        is_read_only: false,
        first_map_bytes: None,
    })
    .unwrap()
}

/// The number of the last commit: the larger one of the two heads, whose last number it is.
fn commits(folder: &Path, dataset_id: Id) -> u64 {
    const COMMIT_AT: usize = 144;
    let file = fs::read(folder.join(dataset_id.to_hex()).join("data.mdb")).unwrap();
    let page_bytes = 4096;
    let heads = [COMMIT_AT, page_bytes + COMMIT_AT].map(|at| number_at(&file, at));
    heads.into_iter().max().unwrap()
}

#[test]
fn many_deletions_are_cut_into_transactions() {
    let folder = tempfile::tempdir().unwrap();
    let shared = open(folder.path()).shared;
    let dataset_id = Id::new([1; 16]);
    let count = TRANSACTION_DELETIONS * 2 + 10;
    let ids: Vec<Id> = (0..count as u128)
        .map(|number| Id::new(number.to_be_bytes()))
        .collect();
    let objects = ids.iter().map(|id| NewObject {
        object_id: *id,
        fields: vec![("image".into(), Bytes::from_static(b"x"))],
    });
    let request = WriteRequest {
        table: Table::Samples,
        dataset_id,
        objects: objects.collect(),
    };
    shared.write(&request).unwrap();
    let before = commits(folder.path(), dataset_id);
    let (kept, deleted) = ids.split_first().unwrap();
    shared.delete(Table::Samples, dataset_id, deleted).unwrap();
    assert_eq!(commits(folder.path(), dataset_id) - before, 3);
    assert_eq!(shared.scan(Table::Samples, dataset_id).unwrap(), [*kept]);
    shared
        .delete(Table::Samples, Id::new([2; 16]), &ids)
        .unwrap();
}

#[test]
fn a_missing_right_is_refused_and_not_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let shared = open(folder.path()).shared;
    let denied = io::Error::from_raw_os_error(libc::EACCES);
    let error = shared.failure("reading an object", Id::default(), denied.into());
    assert!(matches!(error, StoreError::Refused { .. }), "{error}");
    assert!(error.to_string().contains("owner and rights"), "{error}");
    let lost = io::Error::from_raw_os_error(libc::EIO);
    let error = shared.failure("reading an object", Id::default(), lost.into());
    assert!(matches!(error, StoreError::Unavailable { .. }), "{error}");
}
