//! Copies into memory that nobody reads for a while: past the cache, which has better things to hold.
//!
//! An ordinary store first fetches the line that it then overwrites, and puts another one out of the cache. A batch of
//! some megabytes is in no cache when its turn comes, so that buys nothing and halves the speed of the copy.

#![allow(unsafe_code)]

/// Smaller copies gain nothing.
#[cfg(target_arch = "x86_64")]
const LEAST_BYTES: usize = 8 << 10;

/// Copies `source` to `target`, which has the same length.
pub fn copy(target: &mut [u8], source: &[u8]) {
    assert_eq!(target.len(), source.len());
    #[cfg(target_arch = "x86_64")]
    if source.len() >= LEAST_BYTES && is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has these instructions.
        unsafe { x86::copy(target, source) };
        return;
    }
    target.copy_from_slice(source);
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::{__m256i, _mm_sfence, _mm256_loadu_si256, _mm256_stream_si256};

    /// Bytes of a register, and of the four that are on their way at once.
    const LANE: usize = size_of::<__m256i>();
    const STRIDE: usize = 4 * LANE;

    // Sources may lie anywhere, which the loads allow; targets are aligned, as said below.
    #[allow(clippy::cast_ptr_alignment)]
    #[target_feature(enable = "avx2")]
    pub unsafe fn copy(target: &mut [u8], source: &[u8]) {
        let start = target.as_ptr().align_offset(LANE).min(target.len());
        let (head, body) = target.split_at_mut(start);
        let (source_head, source) = source.split_at(start);
        head.copy_from_slice(source_head);
        let mut targets = body.chunks_exact_mut(STRIDE);
        let mut sources = source.chunks_exact(STRIDE);
        for (target, source) in targets.by_ref().zip(sources.by_ref()) {
            let from = source.as_ptr().cast::<__m256i>();
            let to = target.as_mut_ptr().cast::<__m256i>();
            // SAFETY: both chunks have four registers; the target is aligned, because it begins at an aligned place
            // and every chunk is a whole number of registers.
            unsafe {
                let registers = [
                    _mm256_loadu_si256(from),
                    _mm256_loadu_si256(from.add(1)),
                    _mm256_loadu_si256(from.add(2)),
                    _mm256_loadu_si256(from.add(3)),
                ];
                for (index, register) in registers.into_iter().enumerate() {
                    _mm256_stream_si256(to.add(index), register);
                }
            }
        }
        targets
            .into_remainder()
            .copy_from_slice(sources.remainder());
        // Such stores may become visible to other threads after later ones, unless told otherwise.
        _mm_sfence();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_byte_arrives_and_none_beside_it(
            length in 0_usize..40_000, before in 0_usize..70, from in 0_usize..70, seed: u8,
        ) {
            let byte = |index: usize| seed.wrapping_add(u8::try_from(index * 31 % 251).unwrap());
            let source: Vec<u8> = (0..from + length).map(byte).collect();
            let mut target = vec![0xee; before + length + 70];
            copy(&mut target[before..before + length], &source[from..]);
            prop_assert!(target[..before].iter().all(|byte| *byte == 0xee));
            prop_assert_eq!(&target[before..before + length], &source[from..]);
            prop_assert!(target[before + length..].iter().all(|byte| *byte == 0xee));
        }
    }
}
