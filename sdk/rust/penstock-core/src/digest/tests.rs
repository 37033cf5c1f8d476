use std::sync::Arc;

use arrow_array::types::Int8Type;
use arrow_array::{
    Array, BinaryArray, BooleanArray, DictionaryArray, FixedSizeBinaryArray, FixedSizeListArray,
    Float32Array, Float64Array, Int8Array, Int32Array, Int64Array, LargeStringArray, ListArray,
    StringArray, StringViewArray, Time32SecondArray, TimestampMicrosecondArray,
    TimestampNanosecondArray, TimestampSecondArray, UInt64Array,
};
use arrow_schema::Field;
use proptest::prelude::*;

use super::*;

fn batch(columns: Vec<(&str, ArrayRef)>) -> RecordBatch {
    RecordBatch::try_from_iter_with_nullable(
        columns.into_iter().map(|(name, array)| (name, array, true)),
    )
    .unwrap()
}

fn hashes(columns: Vec<(&str, ArrayRef)>) -> Vec<u8> {
    let batch = batch(columns);
    let mut hasher = RowHasher::new(&batch.schema()).unwrap();
    hasher.update(&batch).unwrap();
    hasher.finish()
}

fn one(array: impl Array + 'static) -> Vec<u8> {
    hashes(vec![("x", Arc::new(array))])
}

/// The encoding written out by hand: what `docs/formats.md` says, not what the code above does.
fn by_hand(columns: &[(&str, u8)], rows: &[&[u8]]) -> Vec<u8> {
    let mut key_input = b"penstock-family-1".to_vec();
    for (name, kind) in columns {
        key_input.extend(u32::try_from(name.len()).unwrap().to_le_bytes());
        key_input.extend(name.as_bytes());
        key_input.push(*kind);
    }
    let key = *blake3::hash(&key_input).as_bytes();
    rows.iter()
        .flat_map(|row| blake3::keyed_hash(&key, row).as_bytes()[..16].to_vec())
        .collect()
}

#[test]
fn integers_and_nulls_have_the_documented_encoding() {
    let expected = by_hand(
        &[("x", 1)],
        &[
            &[1, 5, 0, 0, 0, 0, 0, 0, 0],
            &[0],
            &[1, 0xfe, 255, 255, 255, 255, 255, 255, 255],
        ],
    );
    assert_eq!(
        one(Int32Array::from(vec![Some(5), None, Some(-2)])),
        expected
    );
    assert_eq!(
        one(Int8Array::from(vec![Some(5), None, Some(-2)])),
        expected
    );
    assert_eq!(
        one(Int64Array::from(vec![Some(5), None, Some(-2)])),
        expected
    );
}

#[test]
fn high_unsigned_numbers_keep_their_bits() {
    assert_eq!(
        one(UInt64Array::from(vec![u64::MAX])),
        one(Int64Array::from(vec![-1]))
    );
}

#[test]
fn floats_have_one_nan_and_one_zero() {
    let expected = by_hand(
        &[("x", 2)],
        &[
            &[2, 0, 0, 0, 0, 0, 0, 0xf8, 0x7f],
            &[2, 0, 0, 0, 0, 0, 0, 0, 0],
        ],
    );
    let odd_nan = f64::from_bits(0xfff8_0000_0000_0001);
    assert_eq!(one(Float64Array::from(vec![odd_nan, -0.0])), expected);
    assert_eq!(one(Float32Array::from(vec![f32::NAN, 0.0])), expected);
}

#[test]
fn booleans_text_and_bytes_have_the_documented_encoding() {
    let hash = hashes(vec![
        ("flag", Arc::new(BooleanArray::from(vec![true]))),
        ("name", Arc::new(StringArray::from(vec!["ä"]))),
        (
            "raw",
            Arc::new(BinaryArray::from(vec![b"\x00z".as_slice()])),
        ),
    ]);
    let row = [3, 1, 4, 2, 0, 0, 0, 0xc3, 0xa4, 5, 2, 0, 0, 0, 0, b'z'];
    assert_eq!(
        hash,
        by_hand(&[("flag", 3), ("name", 4), ("raw", 5)], &[&row])
    );
}

#[test]
fn lists_and_times_have_the_documented_encoding() {
    let list = ListArray::from_iter_primitive::<arrow_array::types::Int32Type, _, _>(vec![
        Some(vec![Some(1), None]),
        Some(vec![]),
        None,
    ]);
    let full = [6, 2, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(
        one(list.clone()),
        by_hand(&[("x", 6)], &[&full, &[6, 0, 0, 0, 0], &[0]])
    );
    // A slice starts in the middle of the items.
    assert_eq!(
        one(list.slice(1, 2)),
        by_hand(&[("x", 6)], &[&[6, 0, 0, 0, 0], &[0]])
    );
    let expected = by_hand(&[("x", 7)], &[&[7, 0x40, 0x42, 0x0f, 0, 0, 0, 0, 0]]);
    assert_eq!(one(TimestampSecondArray::from(vec![1])), expected);
    assert_eq!(
        one(TimestampMicrosecondArray::from(vec![1_000_000])),
        expected
    );
    assert_eq!(
        one(TimestampNanosecondArray::from(vec![1_000_000_000])),
        expected
    );
}

#[test]
fn a_dictionary_hashes_as_its_values() {
    let plain = one(StringArray::from(vec![
        Some("a"),
        Some("b"),
        None,
        Some("a"),
    ]));
    let coded: DictionaryArray<Int8Type> = vec![Some("a"), Some("b"), None, Some("a")]
        .into_iter()
        .collect();
    assert_eq!(one(coded.clone()), plain);
    assert_eq!(one(coded.slice(1, 2)), plain[16..48]);
    assert_eq!(
        one(LargeStringArray::from(vec![
            Some("a"),
            Some("b"),
            None,
            Some("a")
        ])),
        plain
    );
    assert_eq!(
        one(StringViewArray::from(vec![
            Some("a"),
            Some("b"),
            None,
            Some("a")
        ])),
        plain
    );
}

#[test]
fn fixed_and_variable_binary_hash_alike() {
    let fixed = FixedSizeBinaryArray::try_from_iter([b"ab".as_slice(), b"cd"].into_iter()).unwrap();
    assert_eq!(
        one(fixed),
        one(BinaryArray::from(vec![b"ab".as_slice(), b"cd"]))
    );
}

#[test]
fn names_and_kinds_are_part_of_the_hash() {
    let array: ArrayRef = Arc::new(Int32Array::from(vec![1]));
    assert_ne!(
        hashes(vec![("x", array.clone())]),
        hashes(vec![("y", array)])
    );
    // All values null: only the kind differs.
    assert_ne!(
        one(Int32Array::from(vec![None])),
        one(Float64Array::from(vec![None]))
    );
}

#[test]
fn a_type_without_encoding_is_named() {
    let schema = Schema::new(vec![Field::new(
        "clock",
        DataType::Time32(arrow_schema::TimeUnit::Second),
        true,
    )]);
    let message = RowHasher::new(&schema).unwrap_err().to_string();
    assert!(
        message.contains("\"clock\"") && message.contains("Time32"),
        "{message}"
    );
    let list_of_time = Arc::new(Field::new(
        "item",
        DataType::Time32(arrow_schema::TimeUnit::Second),
        true,
    ));
    let items: ArrayRef = Arc::new(Time32SecondArray::from(vec![1]));
    let list = FixedSizeListArray::try_new(list_of_time, 1, items, None).unwrap();
    let batch = batch(vec![("clocks", Arc::new(list))]);
    let mut hasher = RowHasher::new(&batch.schema()).unwrap();
    assert!(
        hasher
            .update(&batch)
            .unwrap_err()
            .to_string()
            .contains("clocks")
    );
}

#[test]
fn a_time_below_a_microsecond_is_refused_with_its_row() {
    let batch = batch(vec![(
        "t",
        Arc::new(TimestampNanosecondArray::from(vec![0, 1])),
    )]);
    let mut hasher = RowHasher::new(&batch.schema()).unwrap();
    let message = hasher.update(&batch).unwrap_err().to_string();
    assert!(message.contains("row 1"), "{message}");
}

#[test]
fn version_digest_has_the_documented_encoding() {
    let ids = [[2_u8; 16], [1; 16]].concat();
    let facts = [[20_u8; 16], [10; 16]].concat();
    let labels = [[22_u8; 16], [11; 16]].concat();
    let mut input = b"penstock-version-1".to_vec();
    input.extend(2_u64.to_le_bytes());
    for name in ["facts", "labels"] {
        input.extend(u32::try_from(name.len()).unwrap().to_le_bytes());
        input.extend(name.as_bytes());
    }
    for row in [
        [[1_u8; 16], [10; 16], [11; 16]],
        [[2; 16], [20; 16], [22; 16]],
    ] {
        input.extend(row.concat());
    }
    let digest = digest_in_id_order(&ids, &[("labels", &labels), ("facts", &facts)]).unwrap();
    assert_eq!(digest, *blake3::hash(&input).as_bytes());
}

#[test]
fn version_digest_refuses_wrong_shapes() {
    let ids = [[1_u8; 16], [1; 16]].concat();
    let message = |ids: &[u8], families: &[(&str, &[u8])]| {
        digest_in_id_order(ids, families).unwrap_err().to_string()
    };
    assert!(message(&ids, &[]).contains("rows 0 and 1"));
    assert!(message(&ids[..15], &[]).contains("no multiple of 16"));
    assert!(message(&ids[..16], &[("f", &ids)]).contains("2 row hashes for 1 ids"));
    assert!(message(&ids[..16], &[("f", &ids[..16]), ("f", &ids[..16])]).contains("twice"));
}

proptest! {
    #[test]
    fn the_cut_into_batches_does_not_matter(values in prop::collection::vec(prop::option::of(any::<i64>()), 0..50), cut in 0_usize..50) {
        let whole = one(Int64Array::from(values.clone()));
        let all = batch(vec![("x", Arc::new(Int64Array::from(values.clone())))]);
        let cut = cut.min(values.len());
        let mut hasher = RowHasher::new(&all.schema()).unwrap();
        hasher.update(&all.slice(0, cut)).unwrap();
        hasher.update(&all.slice(cut, values.len() - cut)).unwrap();
        prop_assert_eq!(hasher.finish(), whole);
    }

    #[test]
    fn the_order_of_rows_does_not_matter(count in 1_usize..60, turn in 0_usize..60) {
        let row = |i: usize| *blake3::hash(&i.to_le_bytes()).as_bytes();
        let id_of = |i: usize| row(i)[..16].to_vec();
        let hash_of = |i: usize| row(i)[16..].to_vec();
        let digest = |order: Vec<usize>| {
            let ids: Vec<u8> = order.iter().flat_map(|i| id_of(*i)).collect();
            let hashes: Vec<u8> = order.iter().flat_map(|i| hash_of(*i)).collect();
            digest_in_id_order(&ids, &[("facts", &hashes)]).unwrap()
        };
        let mut turned: Vec<usize> = (0..count).collect();
        turned.rotate_left(turn % count);
        prop_assert_eq!(digest((0..count).collect()), digest(turned));
    }
}
