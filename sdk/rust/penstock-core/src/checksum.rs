//! The checksum of stored bytes: XXH3 with 64 bits, by whatever vector instructions the processor has.

use std::hash::Hasher;

use bytes::Bytes;
use twox_hash::XxHash3_64;

pub fn xxh3(data: &[u8]) -> u64 {
    XxHash3_64::oneshot(data)
}

/// Of all chunks as if they were one.
pub fn xxh3_of_chunks(chunks: &[Bytes]) -> u64 {
    if let [only] = chunks {
        return xxh3(only);
    }
    let mut hasher = XxHash3_64::new();
    for chunk in chunks {
        hasher.write(chunk);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Values of the reference implementation (`xxhsum -H3`): stored data depends on them.
    #[test]
    fn it_is_the_published_function() {
        assert_eq!(xxh3(b""), 0x2d06_8005_38d3_94c2);
        assert_eq!(xxh3(b"a"), 0xe6c6_32b6_1e96_4e1f);
        assert_eq!(
            xxh3(&vec![0; 100_000]),
            xxh3_of_chunks(&[Bytes::from(vec![0; 100_000])])
        );
    }

    proptest! {
        #[test]
        fn chunks_count_as_one(data in proptest::collection::vec(any::<u8>(), 0..5000), cut in 0_usize..5000) {
            let data = Bytes::from(data);
            let cut = cut.min(data.len());
            let chunks = [data.slice(..cut), data.slice(cut..)];
            prop_assert_eq!(xxh3_of_chunks(&chunks), xxh3(&data));
        }
    }
}
