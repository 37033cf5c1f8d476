//! The `SampleBytes` class.
#![allow(unsafe_code)] // the buffer protocol is made of raw pointers

use std::ffi::c_int;

use bytes::Bytes;
use pyo3::ffi;
use pyo3::prelude::*;

/// The bytes of one field of one sample, in the memory in which they came from the store: a read-only buffer.
///
/// Several samples may share one piece of memory, which is given back when the last of them is gone.
#[pyclass(name = "SampleBytes", module = "penstock._native", frozen, weakref)]
#[derive(Debug)]
pub struct PySampleBytes {
    bytes: Bytes,
}

impl PySampleBytes {
    pub fn new(bytes: Bytes) -> Self {
        Self { bytes }
    }
}

#[pymethods]
impl PySampleBytes {
    fn __len__(&self) -> usize {
        self.bytes.len()
    }

    fn __repr__(&self) -> String {
        format!("<penstock SampleBytes, {} bytes>", self.bytes.len())
    }

    #[allow(clippy::needless_pass_by_value)] // the form that the class macro calls
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let bytes = &slf.get().bytes;
        let length = ffi::Py_ssize_t::try_from(bytes.len())?;
        let start = bytes.as_ptr().cast_mut().cast();
        // SAFETY: the bytes live as long as this object, of which the view takes a reference; the buffer is declared
        // read-only, so that a request for a writable one fails.
        let status = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, length, 1, flags) };
        if status == 0 {
            return Ok(());
        }
        Err(PyErr::fetch(slf.py()))
    }
}
