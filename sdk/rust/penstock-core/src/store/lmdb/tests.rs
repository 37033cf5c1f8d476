//! Values as a damaged file could hold them.

use proptest::prelude::*;

use super::*;

const OBJECT: Id = Id::new([3; 16]);

fn key() -> Vec<u8> {
    key_of(Table::Samples, OBJECT, "image")
}

/// A sound value, as docs/formats.md describes it.
fn value_of(field: &[u8]) -> Vec<u8> {
    let mut value = vec![1, 0, 0, 0, 0, 0, 0, 0];
    value.extend((field.len() as u64).to_le_bytes());
    value.extend(xxh3_64(field).to_le_bytes());
    let sum = xxh3_64(&[key(), value.clone()].concat());
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
