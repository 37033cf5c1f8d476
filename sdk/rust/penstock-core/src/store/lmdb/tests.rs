//! What the store does with LMDB's transactions and errors, and with values as a damaged file could hold them.

use bytes::Bytes;
use proptest::prelude::*;

use super::entries::number_at;
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

const OBJECT: Id = Id::new([3; 16]);

fn key() -> Vec<u8> {
    key_of(Table::Samples, OBJECT, "image")
}

/// A sound value, as docs/formats.md describes it.
fn value_of(field: &[u8]) -> Vec<u8> {
    let mut value = vec![1, 0, 0, 0, 0, 0, 0, 0];
    value.extend((field.len() as u64).to_le_bytes());
    value.extend(crate::checksum::xxh3(field).to_le_bytes());
    let sum = crate::checksum::xxh3(&[key(), value.clone()].concat());
    value.extend(sum.to_le_bytes());
    value.extend(field);
    value
}

fn decoded(value: Vec<u8>) -> Result<Bytes, String> {
    let field = decode(&key(), Arc::from("image"), &Bytes::from(value))?;
    assert_eq!(field.size_bytes, field.to_bytes().len() as u64);
    Ok(field.to_bytes())
}

proptest! {
    #[test]
    fn a_sound_value_is_read_and_a_changed_or_cut_one_is_refused(
        field: Vec<u8>, at: prop::sample::Index, change in 1_u8..,
    ) {
        let sound = value_of(&field);
        prop_assert_eq!(decoded(sound.clone()).unwrap(), field);
        let at = at.index(sound.len());
        let mut changed = sound.clone();
        changed[at] ^= change;
        prop_assert!(decoded(changed).is_err());
        prop_assert!(decoded(sound[..at].to_vec()).is_err());
        let longer = [sound, vec![change]].concat();
        prop_assert!(decoded(longer).is_err());
    }

    #[test]
    fn any_bytes_are_refused_without_a_panic(value: Vec<u8>) {
        prop_assert!(decoded(value.clone()).is_err());
        let mut framed = value_of(&[]);
        framed.extend(&value);
        prop_assert!(decoded(framed).is_err() || value.is_empty());
    }

    #[test]
    fn a_value_of_another_key_is_refused(field: Vec<u8>, other in "[a-z]{1,9}") {
        prop_assume!(other != "image");
        let key = key_of(Table::Samples, OBJECT, &other);
        let value = Bytes::from(value_of(&field));
        prop_assert!(decode(&key, Arc::from(other), &value).is_err());
    }
}
