//! The `Order` class.

use penstock_core::order::{ALGORITHM, Order};
use pyo3::exceptions::PyIndexError;
use pyo3::prelude::*;

use crate::engine::whole;

/// The order of one epoch: a permutation of `range(n)` that every rank and machine computes alike.
#[pyclass(name = "Order", module = "penstock._native", frozen)]
#[derive(Debug)]
pub struct PyOrder {
    order: Order,
}

impl PyOrder {
    fn checked(&self, what: &str, index: u64) -> PyResult<u64> {
        if index < self.order.len() {
            return Ok(index);
        }
        Err(PyIndexError::new_err(format!(
            "{what} {index} is outside an order of {}",
            self.order.len()
        )))
    }
}

#[pymethods]
impl PyOrder {
    /// Name and version of the permutation, as it stands in saved states.
    #[classattr]
    const ALGORITHM: &'static str = ALGORITHM;

    #[new]
    #[pyo3(signature = (n, *, seed, epoch, shuffle = true))]
    fn new(
        n: &Bound<'_, PyAny>,
        seed: &Bound<'_, PyAny>,
        epoch: &Bound<'_, PyAny>,
        shuffle: bool,
    ) -> PyResult<Self> {
        let n = whole("n", n)?;
        let (seed, epoch) = (whole("seed", seed)?, whole("epoch", epoch)?);
        let order = if shuffle {
            Order::shuffled(n, seed, epoch)
        } else {
            Order::identity(n)
        };
        Ok(Self { order })
    }

    fn __len__(&self) -> PyResult<usize> {
        Ok(usize::try_from(self.order.len())?)
    }

    /// The position that stands at place `index` of the plan.
    fn at(&self, index: u64) -> PyResult<u64> {
        Ok(self.order.at(self.checked("place", index)?))
    }

    /// The place of the plan at which `position` stands.
    fn inverse(&self, position: u64) -> PyResult<u64> {
        Ok(self.order.inverse(self.checked("position", position)?))
    }
}
