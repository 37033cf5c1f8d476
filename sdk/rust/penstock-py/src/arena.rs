//! Memory that crosses the border without a copy: blocks of batches out to Python, columns of members in.
#![allow(unsafe_code)] // the buffer protocol is made of raw pointers

use std::ffi::c_int;
use std::sync::Arc;

use bytes::Bytes;
use penstock_core::arena::Block;
use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::{PyBufferError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;

use crate::buffers::shared_bytes;

mod dlpack;

/// The bytes of one field of a batch, end to end, in writable page-aligned memory.
///
/// Supports the buffer protocol and `DLPack`: `memoryview(arena)`, `numpy.frombuffer(arena, "u1")`,
/// `torch.from_dlpack(arena)`. The memory is used again only when this object, its batch and every view are gone.
#[pyclass(name = "Arena", module = "penstock._native", frozen, weakref)]
#[derive(Debug)]
pub struct PyArena {
    block: Arc<Block>,
}

impl PyArena {
    pub fn new(block: Arc<Block>) -> Self {
        Self { block }
    }
}

#[pymethods]
impl PyArena {
    fn __len__(&self) -> usize {
        self.block.len()
    }

    fn __repr__(&self) -> String {
        format!("<penstock Arena, {} bytes>", self.block.len())
    }

    /// The bytes as a tensor, without a copy; `max_version` of 1 or more asks for the versioned form.
    #[pyo3(signature = (*, stream = None, max_version = None, dl_device = None, copy = None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<&Bound<'py, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if stream.is_some() || dl_device.is_some_and(|device| device != dlpack::CPU) {
            return Err(PyBufferError::new_err(
                "an arena is memory of this machine: take it without device and stream, then move it",
            ));
        }
        if copy == Some(true) {
            return Err(PyBufferError::new_err(
                "an arena hands out its own memory: take it without copy=True, then copy it",
            ));
        }
        match max_version {
            Some((1.., _)) => dlpack::versioned(py, &self.block),
            _ => dlpack::unversioned(py, &self.block),
        }
    }

    #[allow(clippy::unused_self)] // the protocol asks an object
    fn __dlpack_device__(&self) -> (i32, i32) {
        dlpack::CPU
    }

    #[allow(clippy::needless_pass_by_value)] // the form that the class macro calls
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let block = &slf.get().block;
        let length = ffi::Py_ssize_t::try_from(block.len())?;
        // SAFETY: the block lives as long as this object, of which the view takes a reference; nothing in Rust
        // reads or writes it any more (see `penstock_core::arena`).
        let status = unsafe {
            ffi::PyBuffer_FillInfo(view, slf.as_ptr(), block.as_ptr().cast(), length, 0, flags)
        };
        if status == 0 {
            return Ok(());
        }
        Err(PyErr::fetch(slf.py()))
    }
}

/// A read-only Python buffer, held for as long as its bytes are used.
struct Borrowed(PyUntypedBuffer);

impl AsRef<[u8]> for Borrowed {
    fn as_ref(&self) -> &[u8] {
        if self.0.len_bytes() == 0 {
            return &[];
        }
        // SAFETY: contiguous and read-only (checked in `column`), and the exporter keeps it in place while it is held.
        unsafe { std::slice::from_raw_parts(self.0.buf_ptr().cast(), self.0.len_bytes()) }
    }
}

/// A column of members: borrowed when nobody can write it, else copied.
pub fn column(object: &Bound<'_, PyAny>) -> PyResult<Bytes> {
    let buffer = PyUntypedBuffer::get(object).map_err(|error| {
        let kind = object.get_type();
        let message = format!("columns of members are buffers, not {kind}");
        let type_error = PyTypeError::new_err(message);
        type_error.set_cause(object.py(), Some(error));
        type_error
    })?;
    if buffer.readonly() && buffer.is_c_contiguous() {
        return Ok(Bytes::from_owner(Borrowed(buffer)));
    }
    shared_bytes(object)
}
