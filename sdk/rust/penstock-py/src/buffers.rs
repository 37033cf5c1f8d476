//! Bytes that come from Python.

use bytes::Bytes;
use penstock_core::id::Id;
use penstock_core::store::Table;
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyMemoryView};

/// The content of a contiguous buffer. `bytes` is shared, anything that could change meanwhile is copied.
pub fn bytes_of(object: &Bound<'_, PyAny>) -> PyResult<PyBackedBytes> {
    if let Ok(bytes) = object.cast::<PyBytes>() {
        return Ok(bytes.clone().into());
    }
    let view = PyMemoryView::from(object)?;
    if !view.getattr("c_contiguous")?.is_truthy()? {
        return Err(PyTypeError::new_err(
            "the buffer is not contiguous: make a contiguous copy first",
        ));
    }
    let copy = view.call_method0("tobytes")?.cast_into::<PyBytes>()?;
    Ok(copy.into())
}

/// As `bytes_of`, in the form that the core takes.
pub fn shared_bytes(object: &Bound<'_, PyAny>) -> PyResult<Bytes> {
    Ok(Bytes::from_owner(bytes_of(object)?))
}

pub fn id_of(what: &str, bytes: &[u8]) -> PyResult<Id> {
    Id::from_slice(bytes).ok_or_else(|| {
        PyValueError::new_err(format!(
            "{what} has to be 16 bytes (the `bytes` of a UUID), not {}",
            bytes.len()
        ))
    })
}

pub fn table_of(name: &str) -> PyResult<Table> {
    Table::parse(name).ok_or_else(|| {
        PyValueError::new_err(format!("table is 'samples' or 'objects', not {name:?}"))
    })
}
