//! Hashes and digests, computed without the GIL.
#![allow(unsafe_code)] // Arrow's C stream arrives as a pointer in a capsule

use arrow_array::RecordBatchReader;
use arrow_array::ffi_stream::{FFI_ArrowArrayStream, RecordBatchStreamReader};
use penstock_core::digest::{self, RowHasher};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::{PyBytes, PyCapsule};

use crate::buffers::bytes_of;
use crate::errors;

/// The BLAKE3 hash of a buffer: 32 bytes.
#[pyfunction]
#[pyo3(signature = (data, /))]
pub fn blake3<'py>(py: Python<'py>, data: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyBytes>> {
    let data = bytes_of(data)?;
    let hash = py.detach(|| ::blake3::hash(&data));
    Ok(PyBytes::new(py, hash.as_bytes()))
}

/// The XXH3 checksum of a buffer: an unsigned number of 64 bits.
#[pyfunction]
#[pyo3(signature = (data, /))]
pub fn xxh3_64(py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<u64> {
    let data = bytes_of(data)?;
    Ok(py.detach(|| penstock_core::checksum::xxh3(&data)))
}

/// The canonical hash of every row of an Arrow table: 16 bytes a row.
///
/// `table` is anything with `__arrow_c_stream__`: a pyarrow table or record batch, a polars frame.
#[pyfunction]
#[pyo3(signature = (table, /))]
pub fn row_hashes<'py>(
    py: Python<'py>,
    table: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyBytes>> {
    let reader = open_stream(table)?;
    let hashes = py.detach(|| {
        errors::guard(|| {
            let mut hasher = RowHasher::new(&reader.schema()).map_err(|e| errors::digest(&e))?;
            for batch in reader {
                let batch = batch.map_err(|error| errors::digest(&error.into()))?;
                hasher.update(&batch).map_err(|e| errors::digest(&e))?;
            }
            Ok(hasher.finish())
        })
    })?;
    Ok(PyBytes::new(py, &hashes))
}

fn open_stream(table: &Bound<'_, PyAny>) -> PyResult<RecordBatchStreamReader> {
    let not_arrow = || {
        PyTypeError::new_err(format!(
            "row_hashes takes an Arrow table (an object with __arrow_c_stream__), not {}",
            table
                .get_type()
                .name()
                .map_or_else(|_| "this".to_owned(), |name| name.to_string())
        ))
    };
    if !table.hasattr("__arrow_c_stream__")? {
        return Err(not_arrow());
    }
    let capsule = table
        .call_method0("__arrow_c_stream__")?
        .cast_into::<PyCapsule>()
        .map_err(|_| not_arrow())?;
    let pointer = capsule
        .pointer_checked(Some(c"arrow_array_stream"))
        .map_err(|_| not_arrow())?;
    // SAFETY: the Arrow PyCapsule interface says that a capsule of this name holds a valid stream; it is moved out
    // of the capsule, which is left with an empty one.
    let reader = unsafe {
        RecordBatchStreamReader::from_raw(pointer.cast::<FFI_ArrowArrayStream>().as_ptr())
    };
    reader.map_err(|error| errors::digest(&error.into()))
}

/// The digest of a version: over ids and the row hashes of its families, in the order of the ids.
///
/// `ids` has 16 bytes a row; `families` are pairs of a name and row hashes in the same order as the ids.
#[pyfunction]
#[pyo3(signature = (ids, families, /))]
pub fn digest_in_id_order<'py>(
    py: Python<'py>,
    ids: &Bound<'py, PyAny>,
    families: Vec<(PyBackedStr, Bound<'py, PyAny>)>,
) -> PyResult<Bound<'py, PyBytes>> {
    let ids = bytes_of(ids)?;
    let families = families
        .into_iter()
        .map(|(name, hashes)| Ok((name, bytes_of(&hashes)?)))
        .collect::<PyResult<Vec<(PyBackedStr, PyBackedBytes)>>>()?;
    let digest = py.detach(|| {
        errors::guard(|| {
            let families: Vec<(&str, &[u8])> = families
                .iter()
                .map(|(name, hashes)| (&**name, &**hashes))
                .collect();
            digest::digest_in_id_order(&ids, &families).map_err(|e| errors::digest(&e))
        })
    })?;
    Ok(PyBytes::new(py, &digest))
}
