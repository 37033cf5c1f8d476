//! Memory of batches: page-aligned blocks that go back to a pool when the last holder lets go.
//!
//! A block is handed out twice: first as [`BlockMut`], which the copying thread alone may write, then
//! frozen as [`Block`], whose bytes belong to whoever the block is exported to. Nothing in Rust reads
//! or writes a frozen block, so a consumer that writes into its views races with no one but itself.

#![allow(unsafe_code)]

pub(crate) mod streaming;

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::BTreeMap;
use std::io;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::process::Owner;

/// Alignment of every block.
pub const PAGE_BYTES: usize = 4096;

/// Blocks from this size on come from the system and go back to it: an allocator would keep what an idle loader has given
/// up until somebody asks it for something.
const MAPPED_BYTES: usize = 256 << 10;

/// Steps between two powers of two: a block is at most a quarter larger than asked for.
const CLASSES_PER_DOUBLING: usize = 4;

/// There is not so much memory.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("there is no memory for {bytes} bytes")]
pub struct NoMemory {
    bytes: usize,
}

impl From<NoMemory> for io::Error {
    fn from(error: NoMemory) -> Self {
        Self::new(io::ErrorKind::OutOfMemory, error)
    }
}

/// A pool of blocks. Cloning gives another handle of the same pool.
#[derive(Debug, Clone)]
pub struct Pool(Arc<PoolInner>);

#[derive(Debug)]
struct PoolInner {
    state: Mutex<PoolState>,
    idle_limit_bytes: usize,
    owner: Owner,
}

#[derive(Debug, Default)]
struct PoolState {
    /// Free memory by capacity; the most recently returned last.
    free: BTreeMap<usize, Vec<(Instant, Memory)>>,
    idle_bytes: usize,
    lent_bytes: usize,
    reused: u64,
    allocated: u64,
    is_closed: bool,
}

/// What a pool holds at a moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolStats {
    pub idle_bytes: usize,
    pub lent_bytes: usize,
    pub reused: u64,
    pub allocated: u64,
}

impl Pool {
    /// Keeps at most `idle_limit_bytes` of returned blocks for reuse.
    pub fn new(idle_limit_bytes: usize) -> Self {
        Self(Arc::new(PoolInner {
            state: Mutex::default(),
            idle_limit_bytes,
            owner: Owner::current("arena"),
        }))
    }

    /// A block of exactly `len` bytes, for one writer.
    pub fn take(&self, len: usize) -> Result<BlockMut, NoMemory> {
        let mut block = self.take_at_least(len)?;
        block.truncate(len);
        Ok(block)
    }

    /// A block of `len` bytes, or of as many more as cost nothing.
    pub fn take_at_least(&self, len: usize) -> Result<BlockMut, NoMemory> {
        let capacity = class_bytes(len).ok_or(NoMemory { bytes: len })?;
        let memory = match self.0.reuse(capacity) {
            Some(memory) => memory,
            None => self.0.allocate(capacity)?,
        };
        Ok(BlockMut(Block {
            len: capacity,
            memory: Some(memory),
            pool: Arc::downgrade(&self.0),
        }))
    }

    /// Gives back what has lain idle for `age` or longer. Returns the bytes given back.
    pub fn trim(&self, age: Duration) -> usize {
        let now = Instant::now();
        let mut freed = Vec::new();
        let mut state = self.0.lock();
        for memories in state.free.values_mut() {
            let keep = memories.partition_point(|(since, _)| now.duration_since(*since) >= age);
            freed.extend(memories.drain(..keep));
        }
        state.free.retain(|_, memories| !memories.is_empty());
        let freed_bytes = freed.iter().map(|(_, memory)| memory.capacity).sum();
        state.idle_bytes -= freed_bytes;
        drop(state);
        freed_bytes
    }

    /// Gives back everything idle; blocks still lent are freed when they come back.
    pub fn close(&self) {
        self.0.lock().is_closed = true;
        self.trim(Duration::ZERO);
    }

    pub fn stats(&self) -> PoolStats {
        let state = self.0.lock();
        PoolStats {
            idle_bytes: state.idle_bytes,
            lent_bytes: state.lent_bytes,
            reused: state.reused,
            allocated: state.allocated,
        }
    }
}

impl PoolInner {
    fn lock(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn reuse(&self, capacity: usize) -> Option<Memory> {
        let mut state = self.lock();
        let (_, memory) = state.free.get_mut(&capacity)?.pop()?;
        state.idle_bytes -= capacity;
        state.lent_bytes += capacity;
        state.reused += 1;
        Some(memory)
    }

    fn allocate(&self, capacity: usize) -> Result<Memory, NoMemory> {
        let memory = Memory::new(capacity).ok_or(NoMemory { bytes: capacity })?;
        let mut state = self.lock();
        state.lent_bytes += capacity;
        state.allocated += u64::from(capacity > 0);
        Ok(memory)
    }

    fn give_back(&self, memory: Memory) {
        let mut state = self.lock();
        let capacity = memory.capacity;
        state.lent_bytes -= capacity;
        if capacity > 0 && !state.is_closed && state.idle_bytes + capacity <= self.idle_limit_bytes
        {
            state.idle_bytes += capacity;
            let returned = (Instant::now(), memory);
            state.free.entry(capacity).or_default().push(returned);
        }
    }
}

/// The smallest class that holds `len` bytes; none when no memory could.
fn class_bytes(len: usize) -> Option<usize> {
    if len == 0 {
        return Some(0);
    }
    let doubling = len.checked_next_power_of_two()?;
    let step = (doubling / 2 / CLASSES_PER_DOUBLING).max(PAGE_BYTES);
    len.div_ceil(step).checked_mul(step)
}

/// Zeroed when new, so that every byte of a block is initialised whatever its writer does.
#[derive(Debug)]
struct Memory {
    start: NonNull<u8>,
    capacity: usize,
}

// SAFETY: the memory is owned by this value alone, a plain byte range without thread affinity.
unsafe impl Send for Memory {}
// SAFETY: through a shared reference only the address can be had.
unsafe impl Sync for Memory {}

impl Memory {
    fn new(capacity: usize) -> Option<Self> {
        let start = if capacity == 0 {
            NonNull::dangling()
        } else if capacity >= MAPPED_BYTES {
            Self::map(capacity)?
        } else {
            let layout = Self::layout(capacity)?;
            // SAFETY: the layout has a size above zero.
            NonNull::new(unsafe { alloc_zeroed(layout) })?
        };
        Some(Self { start, capacity })
    }

    /// Pages of the system, zeroed as all of them are.
    fn map(capacity: usize) -> Option<NonNull<u8>> {
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: new pages at a place that the system chooses touch nothing that exists.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), capacity, access, kind, -1, 0) };
        NonNull::new(start.cast()).filter(|_| start != libc::MAP_FAILED)
    }

    fn layout(capacity: usize) -> Option<Layout> {
        Layout::from_size_align(capacity, PAGE_BYTES).ok()
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.capacity >= MAPPED_BYTES {
            // SAFETY: mapped in `new` with this very length and given back once, here. The length is a multiple of a
            // page, so this cannot fail.
            unsafe { libc::munmap(self.start.as_ptr().cast(), self.capacity) };
        } else if self.capacity > 0
            && let Some(layout) = Self::layout(self.capacity)
        {
            // SAFETY: allocated in `new` with this very layout and freed once, here.
            unsafe { dealloc(self.start.as_ptr(), layout) }
        }
    }
}

/// A block that is being filled.
#[derive(Debug)]
pub struct BlockMut(Block);

impl BlockMut {
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        let start = self.0.as_ptr();
        // SAFETY: the range is allocated and initialised; `&mut self` is the only way to it before `freeze`.
        unsafe { std::slice::from_raw_parts_mut(start, self.0.len) }
    }

    /// Leaves out what is behind `len`.
    pub fn truncate(&mut self, len: usize) {
        self.0.len = self.0.len.min(len);
    }

    /// Ends the writing: from here on the bytes belong to whoever the block is exported to.
    pub fn freeze(self) -> Arc<Block> {
        Arc::new(self.0)
    }

    /// Ends the writing for good: bytes that Rust shares, and that return to the pool with their last handle.
    pub fn into_bytes(self) -> Bytes {
        Bytes::from_owner(self)
    }
}

impl AsRef<[u8]> for BlockMut {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: the range is allocated and initialised; whoever writes it borrows `self` alone.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr(), self.0.len) }
    }
}

/// A filled block; its memory returns to the pool when the last handle is dropped.
#[derive(Debug)]
pub struct Block {
    len: usize,
    memory: Option<Memory>,
    pool: Weak<PoolInner>,
}

impl Block {
    pub fn len(&self) -> usize {
        self.len
    }

    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Where the bytes start: aligned to a page unless the block is empty.
    pub fn as_ptr(&self) -> *mut u8 {
        self.memory
            .as_ref()
            .map_or(NonNull::dangling(), |memory| memory.start)
            .as_ptr()
    }

    /// A copy of the bytes, for callers that hold the only view of them.
    #[cfg(test)]
    pub(crate) fn to_vec(&self) -> Vec<u8> {
        // SAFETY: tests export nothing while they look.
        unsafe { std::slice::from_raw_parts(self.as_ptr(), self.len) }.to_vec()
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        if let (Some(memory), Some(pool)) = (self.memory.take(), self.pool.upgrade()) {
            if pool.owner.is_current() {
                pool.give_back(memory);
            } else {
                // In a forked child the pool's lock may be held by a thread that is not there.
                std::mem::forget(memory);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn blocks_are_page_aligned_zeroed_and_exact() {
        let pool = Pool::new(MIB);
        for len in [1, 4095, 4096, 4097, 70_000, MIB + 1] {
            let mut block = pool.take(len).unwrap();
            assert_eq!(block.as_mut_slice().len(), len);
            assert!(block.as_mut_slice().iter().all(|b| *b == 0));
            assert_eq!(block.freeze().as_ptr().addr() % PAGE_BYTES, 0);
        }
    }

    #[test]
    fn a_block_returns_only_when_the_last_handle_is_gone() {
        let pool = Pool::new(MIB);
        let mut block = pool.take(5000).unwrap();
        block.as_mut_slice().fill(7);
        let first = block.freeze();
        let second = Arc::clone(&first);
        let address = first.as_ptr();
        drop(first);
        assert_eq!(pool.stats().idle_bytes, 0);
        assert_ne!(pool.take(5000).unwrap().freeze().as_ptr(), address);
        assert_eq!(second.to_vec(), vec![7; 5000]);
        drop(second);
        assert_eq!(pool.take(5000).unwrap().freeze().as_ptr(), address);
    }

    #[test]
    fn shared_bytes_hold_their_block_until_the_last_slice_is_gone() {
        let pool = Pool::new(MIB);
        let mut block = pool.take(5000).unwrap();
        block.as_mut_slice().fill(7);
        let bytes = block.into_bytes();
        let slice = bytes.slice(4000..);
        drop(bytes);
        assert_eq!(pool.stats().idle_bytes, 0);
        assert_eq!(slice, vec![7; 1000]);
        drop(slice);
        assert_eq!(pool.stats().lent_bytes, 0);
        assert!(pool.stats().idle_bytes >= 5000);
    }

    #[test]
    fn classes_waste_at_most_a_quarter() {
        for len in (1..40 * MIB).step_by(12_345) {
            let class = class_bytes(len).unwrap();
            assert!(class >= len && class.is_multiple_of(PAGE_BYTES));
            assert!(
                class <= len + (len / 4).max(PAGE_BYTES),
                "{len} got {class}"
            );
        }
    }

    #[test]
    fn idle_memory_is_bounded_and_given_back() {
        let pool = Pool::new(3 * PAGE_BYTES);
        let blocks: Vec<_> = (0..5)
            .map(|_| pool.take(PAGE_BYTES).unwrap().freeze())
            .collect();
        assert_eq!(pool.stats().lent_bytes, 5 * PAGE_BYTES);
        drop(blocks);
        assert_eq!(pool.stats().idle_bytes, 3 * PAGE_BYTES);
        assert_eq!(pool.stats().lent_bytes, 0);
        assert_eq!(pool.trim(Duration::from_secs(60)), 0);
        assert_eq!(pool.trim(Duration::ZERO), 3 * PAGE_BYTES);
        assert_eq!(pool.stats().idle_bytes, 0);
    }

    #[test]
    fn a_closed_pool_keeps_nothing_and_lent_blocks_stay_whole() {
        let pool = Pool::new(MIB);
        let mut block = pool.take(100).unwrap();
        block.as_mut_slice().fill(9);
        let block = block.freeze();
        pool.close();
        drop(pool);
        assert_eq!(block.to_vec(), vec![9; 100]);
    }

    #[test]
    fn what_no_memory_can_hold_is_refused() {
        let pool = Pool::new(MIB);
        for len in [usize::MAX, usize::MAX - PAGE_BYTES, usize::MAX / 2, 1 << 62] {
            assert!(pool.take(len).is_err(), "{len}");
        }
        assert_eq!(pool.stats(), PoolStats::default());
    }

    #[test]
    fn empty_blocks_cost_nothing() {
        let pool = Pool::new(MIB);
        let block = pool.take(0).unwrap().freeze();
        assert!(block.is_empty());
        drop(block);
        assert_eq!(pool.stats(), PoolStats::default());
    }

    #[test]
    fn blocks_cross_threads() {
        let pool = Pool::new(MIB);
        std::thread::scope(|scope| {
            for value in 0..8_u8 {
                let pool = pool.clone();
                scope.spawn(move || {
                    for len in 1..200 {
                        let mut block = pool.take(len * 100).unwrap();
                        block.as_mut_slice().fill(value);
                        let block = block.freeze();
                        assert!(block.to_vec().iter().all(|b| *b == value));
                    }
                });
            }
        });
        assert_eq!(pool.stats().lent_bytes, 0);
    }
}
