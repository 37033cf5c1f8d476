//! `penstock._native`: Python classes over `penstock-core`. Conversions only, no logic.

use mimalloc::MiMalloc;
use pyo3::pymodule;

mod arena;
mod batch;
mod buffers;
mod digest;
mod engine;
mod errors;
mod order;
mod sample;
mod stats;
mod store;
mod waiting;

// glibc's allocator costs twice the CPU time for blobs of this size (measured).
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

/// The native core of Penstock: stores, digests and the engine.
#[pymodule]
mod _native {
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::arena::PyArena;
    #[pymodule_export]
    use super::batch::PyBatch;
    #[pymodule_export]
    use super::digest::{blake3, digest_in_id_order, row_hashes, xxh3_64};
    #[pymodule_export]
    use super::engine::PyEngine;
    #[pymodule_export]
    use super::order::PyOrder;
    #[pymodule_export]
    use super::sample::PySampleBytes;
    #[pymodule_export]
    use super::store::PyStore;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
