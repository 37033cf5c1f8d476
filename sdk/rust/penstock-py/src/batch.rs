//! The `Batch` class.

use std::sync::Arc;

use penstock_core::engine::{Batch, Content};
use pyo3::exceptions::{PyKeyError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::arena::PyArena;
use crate::sample::PySampleBytes;

/// One step of a rank: ids, positions and flags of its samples, and for each field an arena or a list.
#[pyclass(name = "Batch", module = "penstock._native", frozen, weakref)]
#[derive(Debug)]
pub struct PyBatch {
    batch: Batch,
}

impl PyBatch {
    pub fn new(batch: Batch) -> Self {
        Self { batch }
    }

    fn content(&self, name: &str) -> PyResult<&Content> {
        let fields = &self.batch.fields;
        let found = fields.iter().find(|field| &*field.name == name);
        found.map(|field| &field.content).ok_or_else(|| {
            let names: Vec<&str> = fields.iter().map(|field| &*field.name).collect();
            PyKeyError::new_err(format!(
                "this batch has no field {name:?}; its fields are {names:?}"
            ))
        })
    }
}

#[pymethods]
impl PyBatch {
    /// Counts over the life of the engine; give it to `Engine.ack`.
    #[getter]
    fn seq(&self) -> u64 {
        self.batch.seq
    }

    #[getter]
    fn epoch(&self) -> u64 {
        self.batch.epoch
    }

    /// Counts over the steps of the epoch.
    #[getter]
    fn step(&self) -> u64 {
        self.batch.step
    }

    /// Samples in the batch.
    #[getter]
    fn size(&self) -> usize {
        self.batch.len()
    }

    fn __len__(&self) -> usize {
        self.batch.len()
    }

    /// Sample ids, 16 bytes each.
    #[getter]
    fn ids<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.batch.ids)
    }

    /// Positions in the subset's member order, little-endian u64 each.
    #[getter]
    fn positions<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        words(py, &self.batch.positions)
    }

    /// One byte a sample: 0 for padding and replacements, else 1.
    #[getter]
    fn valid<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        let flags: Vec<u8> = self.batch.valid.iter().copied().map(u8::from).collect();
        PyBytes::new(py, &flags)
    }

    /// The arena of a field, and where its samples start in it: little-endian u64, one more than samples.
    fn field<'py>(&self, py: Python<'py>, name: &str) -> PyResult<(PyArena, Bound<'py, PyBytes>)> {
        let Content::Arena { block, offsets } = self.content(name)? else {
            return Err(PyTypeError::new_err(
                "this engine gives lists (form='list'): use samples() instead of field()",
            ));
        };
        Ok((PyArena::new(Arc::clone(block)), words(py, offsets)?))
    }

    /// The samples of a field, each for itself; of engines that give lists.
    fn samples<'py>(&self, py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyList>> {
        let Content::List(samples) = self.content(name)? else {
            return Err(PyTypeError::new_err(
                "this engine gives arenas (form='arena'): use field() instead of samples()",
            ));
        };
        let samples = samples
            .iter()
            .map(|bytes| PySampleBytes::new(bytes.clone()));
        let samples: PyResult<Vec<_>> = samples.map(|sample| Bound::new(py, sample)).collect();
        PyList::new(py, samples?)
    }

    fn __repr__(&self) -> String {
        let batch = &self.batch;
        format!(
            "<penstock Batch, epoch {}, step {}, {} samples>",
            batch.epoch,
            batch.step,
            batch.len()
        )
    }
}

fn words<'py>(py: Python<'py>, values: &[u64]) -> PyResult<Bound<'py, PyBytes>> {
    PyBytes::new_with(py, values.len() * 8, |target| {
        for (place, value) in target.chunks_exact_mut(8).zip(values) {
            place.copy_from_slice(&value.to_le_bytes());
        }
        Ok(())
    })
}
