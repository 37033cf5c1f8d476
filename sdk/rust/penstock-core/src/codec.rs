//! How a field becomes chunks in a store and chunks become a field again.

use std::sync::Arc;

use bytes::Bytes;

use crate::checksum::{xxh3, xxh3_of_chunks};
use crate::errors::StoreError;
use crate::store::{FieldData, NewObject};

/// The version of the layout described here and in `docs/formats.md`.
pub const LAYOUT: i8 = 1;

/// Cells above this size stall ScyllaDB and fill Cassandra's heap.
pub const CHUNK_BYTES: usize = 512 * 1024;

/// One field has to fit the memory of a reader several times over.
pub const MAX_FIELD_BYTES: usize = 1 << 30;

/// What stands beside the first chunk of a field: the reader knows from it what has to follow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    pub layout: i8,
    pub chunk_bytes: u32,
    pub total_bytes: u64,
    pub xxh3: u64,
}

impl Header {
    pub fn of(data: &[u8]) -> Self {
        Self {
            layout: LAYOUT,
            chunk_bytes: u32::try_from(CHUNK_BYTES).unwrap_or(u32::MAX),
            total_bytes: data.len() as u64,
            xxh3: xxh3(data),
        }
    }

    /// An empty field still has one (empty) chunk, because the first chunk carries this header.
    pub fn chunk_count(&self) -> u64 {
        self.total_bytes
            .div_ceil(u64::from(self.chunk_bytes.max(1)))
            .max(1)
    }
}

/// The chunks of a field, slices of the same buffer.
pub fn split(data: &Bytes) -> Vec<Bytes> {
    if data.is_empty() {
        return vec![Bytes::new()];
    }
    (0..data.len())
        .step_by(CHUNK_BYTES)
        .map(|start| data.slice(start..data.len().min(start + CHUNK_BYTES)))
        .collect()
}

/// Puts a field together from what a store gave back. The error says what does not fit.
pub fn assemble(
    name: Arc<str>,
    header: Header,
    chunks: Vec<(i32, Bytes)>,
) -> Result<FieldData, String> {
    assemble_summed(name, header, chunks, None)
}

/// The same, where the checksum of these very bytes may have been worked out before.
pub fn assemble_summed(
    name: Arc<str>,
    header: Header,
    chunks: Vec<(i32, Bytes)>,
    known_xxh3: Option<u64>,
) -> Result<FieldData, String> {
    if header.layout != LAYOUT {
        return Err(format!(
            "layout {} is not known to this version (it knows {LAYOUT}): upgrade penstock",
            header.layout
        ));
    }
    if chunks.len() as u64 != header.chunk_count() {
        return Err(format!(
            "{} chunks of {} are there",
            chunks.len(),
            header.chunk_count()
        ));
    }
    for (position, (index, _)) in chunks.iter().enumerate() {
        if usize::try_from(*index) != Ok(position) {
            return Err(format!("chunk {position} is not there"));
        }
    }
    let chunks: Vec<Bytes> = chunks.into_iter().map(|(_, data)| data).collect();
    let field = FieldData {
        name,
        size_bytes: chunks.iter().map(|chunk| chunk.len() as u64).sum(),
        xxh3: known_xxh3.unwrap_or_else(|| xxh3_of_chunks(&chunks)),
        chunks,
        is_verified: true,
    };
    if field.size_bytes != header.total_bytes {
        return Err(format!(
            "{} bytes of {} are there",
            field.size_bytes, header.total_bytes
        ));
    }
    if field.xxh3 != header.xxh3 {
        return Err(format!(
            "checksum is {:016x}, written was {:016x}",
            field.xxh3, header.xxh3
        ));
    }
    Ok(field)
}

/// Field names are letters, digits and underscores, at most 63 of them, and start with no digit.
pub fn is_field_name(name: &str) -> bool {
    let mut letters = name.bytes();
    let starts_well = letters
        .next()
        .is_some_and(|first| first.is_ascii_alphabetic() || first == b'_');
    starts_well
        && name.len() <= 63
        && letters.all(|letter| letter.is_ascii_alphanumeric() || letter == b'_')
}

/// Refuses what no store may hold, before anything of a request is written.
pub fn check_object(object: &NewObject) -> Result<(), StoreError> {
    let refuse = |reason: String| Err(StoreError::Invalid { reason });
    let object_id = object.object_id;
    if object.fields.is_empty() {
        return refuse(format!(
            "object {object_id} has no fields: give it at least one"
        ));
    }
    for (position, (name, data)) in object.fields.iter().enumerate() {
        if !is_field_name(name) {
            return refuse(format!(
                "object {object_id}: {name:?} is no field name (letters, digits and _, at most 63, no digit first)"
            ));
        }
        if object.fields[..position]
            .iter()
            .any(|(other, _)| other == name)
        {
            return refuse(format!("object {object_id} has field {name:?} twice"));
        }
        if data.len() > MAX_FIELD_BYTES {
            return refuse(format!(
                "object {object_id}, field {name:?}: {} bytes are above the limit of {MAX_FIELD_BYTES} bytes a field",
                data.len()
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn chunks_of(data: &Bytes) -> Vec<(i32, Bytes)> {
        (0..).zip(split(data)).collect()
    }

    #[test]
    fn empty_field_has_one_empty_chunk() {
        let data = Bytes::new();
        assert_eq!(Header::of(&data).chunk_count(), 1);
        let field = assemble("image".into(), Header::of(&data), chunks_of(&data)).unwrap();
        assert_eq!(field.size_bytes, 0);
        assert_eq!(field.to_bytes(), data);
    }

    #[test]
    fn field_of_exactly_two_chunks_has_two() {
        let data = Bytes::from(vec![7; 2 * CHUNK_BYTES]);
        assert_eq!(split(&data).len(), 2);
        assert_eq!(Header::of(&data).chunk_count(), 2);
    }

    #[test]
    fn missing_chunk_is_named() {
        let data = Bytes::from(vec![7; 3 * CHUNK_BYTES]);
        let mut chunks = chunks_of(&data);
        chunks.remove(1);
        let reason = assemble("image".into(), Header::of(&data), chunks).unwrap_err();
        assert_eq!(reason, "2 chunks of 3 are there");
    }

    #[test]
    fn newer_layout_is_refused() {
        let data = Bytes::from_static(b"x");
        let header = Header {
            layout: 2,
            ..Header::of(&data)
        };
        assert!(
            assemble("image".into(), header, chunks_of(&data))
                .unwrap_err()
                .contains("upgrade")
        );
    }

    #[test]
    fn hostile_field_names_are_refused() {
        for name in ["", "1a", "a b", "a\"", "é", "a;drop", &"x".repeat(64)] {
            assert!(!is_field_name(name), "{name:?}");
        }
        assert!(is_field_name("_mask2"));
    }

    proptest! {
        #[test]
        fn any_field_survives_the_round_trip(length in 0_usize..3 * CHUNK_BYTES, seed: u8) {
            let data: Bytes = (0..=u8::MAX).cycle().take(length).map(|i| i.wrapping_mul(seed)).collect();
            let field = assemble("f".into(), Header::of(&data), chunks_of(&data)).unwrap();
            prop_assert_eq!(field.xxh3, crate::checksum::xxh3(&data));
            let mut copy = vec![0; length];
            field.copy_to(&mut copy);
            prop_assert_eq!(copy, data);
        }

        #[test]
        fn any_flipped_bit_is_seen(length in 1_usize..2 * CHUNK_BYTES, place: usize, bit in 0_u8..8) {
            let data = Bytes::from(vec![3; length]);
            let mut damaged = data.to_vec();
            damaged[place % length] ^= 1 << bit;
            let result = assemble("f".into(), Header::of(&data), chunks_of(&Bytes::from(damaged)));
            prop_assert!(result.unwrap_err().contains("checksum"));
        }

        #[test]
        fn mutated_rows_are_refused_or_give_the_very_bytes(
            length in 0_usize..3 * CHUNK_BYTES,
            mutations in prop::collection::vec(mutation(), 1..4),
        ) {
            let data: Bytes = (0..=u8::MAX).cycle().take(length).collect();
            let mut header = Header::of(&data);
            let mut chunks = chunks_of(&data);
            for mutation in mutations {
                mutation.apply(&mut header, &mut chunks);
            }
            if let Ok(field) = assemble("f".into(), header, chunks) {
                prop_assert_eq!(field.to_bytes(), data);
            }
        }

        #[test]
        fn arbitrary_rows_never_panic_and_never_pass_unless_they_fit_their_header(
            header in (any::<i8>(), any::<u32>(), any::<u64>(), any::<u64>()),
            indices in prop::collection::vec(any::<i32>(), 0..6),
            data in prop::collection::vec(any::<u8>(), 0..64),
        ) {
            let (layout, chunk_bytes, total_bytes, xxh3) = header;
            let chunks: Vec<_> = indices.into_iter().map(|index| (index, Bytes::from(data.clone()))).collect();
            for layout in [layout, LAYOUT] {
                for total_bytes in [total_bytes, (chunks.len() * data.len()) as u64] {
                    let header = Header { layout, chunk_bytes, total_bytes, xxh3 };
                    if let Ok(field) = assemble("f".into(), header, chunks.clone()) {
                        prop_assert_eq!(crate::checksum::xxh3(&field.to_bytes()), xxh3);
                    }
                }
            }
        }
    }

    /// What a disk, a network or a bug may do to the rows of a field.
    #[derive(Debug, Clone)]
    enum Mutation {
        Layout(i8),
        ChunkBytes(u32),
        TotalBytes(u64),
        Checksum(u64),
        Drop(prop::sample::Index),
        Repeat(prop::sample::Index),
        Swap(prop::sample::Index, prop::sample::Index),
        SwapIndices(prop::sample::Index, prop::sample::Index),
        Flip(prop::sample::Index, prop::sample::Index, u8),
        Cut(prop::sample::Index, prop::sample::Index),
    }

    fn mutation() -> impl Strategy<Value = Mutation> {
        let index = any::<prop::sample::Index>;
        prop_oneof![
            any::<i8>().prop_map(Mutation::Layout),
            any::<u32>().prop_map(Mutation::ChunkBytes),
            any::<u64>().prop_map(Mutation::TotalBytes),
            any::<u64>().prop_map(Mutation::Checksum),
            index().prop_map(Mutation::Drop),
            index().prop_map(Mutation::Repeat),
            (index(), index()).prop_map(|(one, other)| Mutation::Swap(one, other)),
            (index(), index()).prop_map(|(one, other)| Mutation::SwapIndices(one, other)),
            (index(), index(), 1_u8..)
                .prop_map(|(chunk, place, mask)| Mutation::Flip(chunk, place, mask)),
            (index(), index()).prop_map(|(chunk, place)| Mutation::Cut(chunk, place)),
        ]
    }

    impl Mutation {
        fn apply(&self, header: &mut Header, chunks: &mut Vec<(i32, Bytes)>) {
            let count = chunks.len();
            match self {
                Self::Layout(layout) => header.layout = *layout,
                Self::ChunkBytes(bytes) => header.chunk_bytes = *bytes,
                Self::TotalBytes(bytes) => header.total_bytes = *bytes,
                Self::Checksum(xxh3) => header.xxh3 = *xxh3,
                _ if count == 0 => {}
                Self::Drop(chunk) => drop(chunks.remove(chunk.index(count))),
                Self::Repeat(chunk) => chunks.push(chunks[chunk.index(count)].clone()),
                Self::Swap(one, other) => chunks.swap(one.index(count), other.index(count)),
                Self::SwapIndices(one, other) => {
                    let (one, other) = (one.index(count), other.index(count));
                    let index = chunks[one].0;
                    chunks[one].0 = chunks[other].0;
                    chunks[other].0 = index;
                }
                Self::Flip(chunk, place, mask) => {
                    let data = &mut chunks[chunk.index(count)].1;
                    let mut bytes = data.to_vec();
                    if !bytes.is_empty() {
                        let place = place.index(bytes.len());
                        bytes[place] ^= mask;
                        *data = Bytes::from(bytes);
                    }
                }
                Self::Cut(chunk, place) => {
                    let data = &mut chunks[chunk.index(count)].1;
                    data.truncate(place.index(data.len() + 1));
                }
            }
        }
    }
}
