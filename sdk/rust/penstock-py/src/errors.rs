//! The one place where errors of the core become Python exceptions. The classes live in `penstock._errors`.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use penstock_core::digest::DigestError;
use penstock_core::errors::{OpenError, ProcessError, StoreError};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyType;

/// An exception of the named class of `penstock._errors`.
pub fn named(class: &str, message: String) -> PyErr {
    Python::attach(|py| {
        let found = py
            .import("penstock._errors")
            .and_then(|module| module.getattr(class))
            .and_then(|class| Ok(class.cast_into::<PyType>()?));
        match found {
            Ok(class) => PyErr::from_type(class, (message,)),
            Err(error) => error,
        }
    })
}

pub fn store(error: &StoreError) -> PyErr {
    let message = error.to_string();
    match error {
        StoreError::Missing { .. } => named("SampleMissing", message),
        StoreError::Corrupt { .. } => named("SampleCorrupt", message),
        StoreError::Full { .. } => named("StoreFull", message),
        StoreError::Refused { .. } => named("StoreRefused", message),
        StoreError::Invalid { .. } => PyValueError::new_err(message),
        StoreError::Closed => named("EngineClosed", message),
        _ => named("StoreUnavailable", message),
    }
}

pub fn open(error: &OpenError) -> PyErr {
    let message = error.to_string();
    match error {
        OpenError::Config { .. } => named("ConfigError", message),
        OpenError::Process(reason) => process(reason),
        _ => named("StoreUnavailable", message),
    }
}

pub fn process(error: &ProcessError) -> PyErr {
    let class = match error {
        ProcessError::Forked { .. } => "ForkedProcess",
        _ => "EngineError",
    };
    named(class, error.to_string())
}

pub fn digest(error: &DigestError) -> PyErr {
    PyValueError::new_err(error.to_string())
}

pub fn panicked(panic: &(dyn Any + Send)) -> PyErr {
    let reason = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned());
    named(
        "CorePanicked",
        format!("the native core hit a bug in itself ({reason}): please report it"),
    )
}

/// Runs native code that may have a bug; a panic becomes an ordinary Python exception.
pub fn guard<T>(job: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    catch_unwind(AssertUnwindSafe(job)).unwrap_or_else(|panic| Err(panicked(&*panic)))
}
