//! The `Store` class.

use std::collections::HashSet;
use std::future::Future;
use std::sync::Arc;

use futures::future::BoxFuture;
use futures::stream::{self, StreamExt, TryStreamExt};
use penstock_core::codec::is_field_name;
use penstock_core::errors::StoreError;
use penstock_core::id::Id;
use penstock_core::process::Owner;
use penstock_core::store::{
    self, Consistency, Expected, FieldData, Fields, NewObject, ReadRequest, Record, Store,
    StoreConfig, WriteRequest,
};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::{PyBytes, PyDict};

use crate::buffers::{id_of, shared_bytes, table_of};
use crate::errors;
use crate::waiting::{block_on, patience, run_on};

const READS_AT_ONCE: usize = 32;

type NamedBuffers<'py> = Vec<(PyBackedStr, Bound<'py, PyAny>)>;

/// An open store of objects: Cassandra or ScyllaDB, LMDB in a folder, or memory for tests.
///
/// All methods release the interpreter while they wait, can be called from many threads, and end early on Ctrl-C.
#[pyclass(name = "Store", module = "penstock._native", frozen)]
#[derive(Debug)]
pub struct PyStore {
    store: Arc<dyn Store>,
    owner: Owner,
}

impl PyStore {
    /// The store for use by the engine; fails in a forked child.
    pub fn shared(&self) -> PyResult<Arc<dyn Store>> {
        self.owner
            .check()
            .map_err(|error| errors::process(&error))?;
        Ok(Arc::clone(&self.store))
    }

    fn run<T, F, J>(&self, py: Python<'_>, job: J) -> PyResult<T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
        J: FnOnce(Arc<dyn Store>) -> F,
    {
        block_on(py, job(self.shared()?))?.map_err(|error| errors::store(&error))
    }
}

#[pymethods]
impl PyStore {
    /// Opens the store that a JSON configuration describes. Raises `ConfigError` or `StoreUnavailable`.
    ///
    /// `{"kind": "lmdb", "path": ..., "is_read_only"?, "first_map_bytes"?}`,
    /// `{"kind": "cql", "contact_points": [], "local_dc": ..., "keyspace": ..., "username"?, "password"?, "ca_pem"?,
    /// "lanes"?}`, where lanes are connections a node (found by itself when absent),
    /// or `{"kind": "memory", "name": ..., "faults"?}`, where faults are a plan of `seed`, `delay_ms` (least, most),
    /// `slow_share`, `slow_ms`, `unavailable_share`, `missing_share`, `corrupt_share`, `panic_share`, `faulty_reads`.
    #[staticmethod]
    fn open(py: Python<'_>, config_json: &str) -> PyResult<Self> {
        let config = StoreConfig::from_json(config_json).map_err(|error| errors::open(&error))?;
        let store = block_on(py, store::open(config))?.map_err(|error| errors::open(&error))?;
        Ok(Self {
            store,
            owner: Owner::current("store"),
        })
    }

    /// `lmdb`, `cql` or `memory`.
    #[getter]
    fn kind(&self) -> &'static str {
        self.store.kind()
    }

    /// Writes objects and returns when all of them are durable. Writing them again changes nothing.
    fn write(
        &self,
        py: Python<'_>,
        table: &str,
        dataset_id: &[u8],
        objects: Vec<(PyBackedBytes, NamedBuffers<'_>)>,
    ) -> PyResult<()> {
        let request = WriteRequest {
            table: table_of(table)?,
            dataset_id: id_of("dataset_id", dataset_id)?,
            objects: objects
                .into_iter()
                .map(|(object_id, fields)| new_object(&object_id, fields))
                .collect::<PyResult<_>>()?,
        };
        self.run(py, |store| async move { store.write(request).await })
    }

    /// Reads objects. `None` stands for an object that is absent, or has not all of the fields asked for. Raises
    /// `ValueError` when `fields` is empty or has a name twice.
    #[pyo3(signature = (table, dataset_id, object_ids, fields = None))]
    fn read<'py>(
        &self,
        py: Python<'py>,
        table: &str,
        dataset_id: &[u8],
        object_ids: Vec<PyBackedBytes>,
        fields: Option<Vec<PyBackedStr>>,
    ) -> PyResult<Vec<Option<Bound<'py, PyDict>>>> {
        let table = table_of(table)?;
        let dataset_id = id_of("dataset_id", dataset_id)?;
        let object_ids = ids_of(object_ids)?;
        let fields = fields_of(fields)?;
        let records: Vec<Option<Record>> = self.run(py, |store| async move {
            stream::iter(object_ids)
                .map(|object_id| {
                    let request = ReadRequest {
                        table,
                        dataset_id,
                        object_id,
                        fields: fields.clone(),
                        consistency: Consistency::One,
                        size_bytes: 0,
                    };
                    read_or_none(&store, request)
                })
                .buffered(READS_AT_ONCE)
                .try_collect()
                .await
        })?;
        records
            .into_iter()
            .map(|record| record.map(|record| as_dict(py, &record)).transpose())
            .collect()
    }

    /// Compares stored bytes with what a manifest says about them: `None`, or what is wrong.
    ///
    /// `expected` has tuples of object id, field, size in bytes and XXH3 checksum.
    fn verify(
        &self,
        py: Python<'_>,
        table: &str,
        dataset_id: &[u8],
        expected: Vec<(PyBackedBytes, PyBackedStr, u64, u64)>,
    ) -> PyResult<Vec<Option<String>>> {
        let table = table_of(table)?;
        let dataset_id = id_of("dataset_id", dataset_id)?;
        let expected = expected
            .into_iter()
            .map(|(object_id, field, size_bytes, xxh3)| {
                Ok(Expected {
                    object_id: id_of("object_id", &object_id)?,
                    field: Arc::from(&*field),
                    size_bytes,
                    xxh3,
                })
            })
            .collect::<PyResult<_>>()?;
        self.run(py, |store| async move {
            store.verify(table, dataset_id, expected).await
        })
    }

    /// Removes objects with all of their fields; those that are absent are passed over.
    fn delete(
        &self,
        py: Python<'_>,
        table: &str,
        dataset_id: &[u8],
        object_ids: Vec<PyBackedBytes>,
    ) -> PyResult<()> {
        let table = table_of(table)?;
        let dataset_id = id_of("dataset_id", dataset_id)?;
        let object_ids = ids_of(object_ids)?;
        self.run(py, |store| async move {
            store.delete(table, dataset_id, object_ids).await
        })
    }

    /// The ids of all objects of a dataset, sorted. Reads keys only, but all of them.
    fn scan<'py>(
        &self,
        py: Python<'py>,
        table: &str,
        dataset_id: &[u8],
    ) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let table = table_of(table)?;
        let dataset_id = id_of("dataset_id", dataset_id)?;
        let ids = self.run(
            py,
            |store| async move { store.scan(table, dataset_id).await },
        )?;
        Ok(ids
            .iter()
            .map(|id| PyBytes::new(py, id.as_bytes()))
            .collect())
    }

    /// Returns when the store answers and has its tables, raises when it does not.
    fn ping(&self, py: Python<'_>) -> PyResult<()> {
        self.run(py, |store| async move { store.ping().await })
    }

    /// Lets go of connections and files; closing twice is fine. With `patience_seconds` it goes on by itself after
    /// that time.
    #[pyo3(signature = (patience_seconds = None))]
    fn close(&self, py: Python<'_>, patience_seconds: Option<f64>) -> PyResult<()> {
        // What a forked child inherits is not its own to close.
        if !self.owner.is_current() {
            return Ok(());
        }
        let store = Arc::clone(&self.store);
        let close = async move { store.close().await };
        match patience_seconds {
            None => block_on(py, close),
            Some(seconds) => run_on(py, close, patience(seconds)?),
        }
    }

    /// What the store has had to do beyond plain reads: `retries`, `escalations` to a quorum, `hedges` (reads asked
    /// for a second time because others were faster), `hedge_wins` (those that the second won), `silences` (reads
    /// moved off a connection that was not heard any more), `probes` (copies of reads that only show how a connection
    /// is), `damaged` (answers, or values on a disk, that were found damaged) and planned `faults`.
    fn counters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let counters = self.shared()?.counters();
        let dict = PyDict::new(py);
        for (name, value) in counters.named() {
            dict.set_item(name, value)?;
        }
        Ok(dict)
    }

    fn __enter__(this: Py<Self>) -> Py<Self> {
        this
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _kind: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _traceback: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.close(py, None)
    }

    fn __repr__(&self) -> String {
        format!("<penstock Store, {}>", self.store.kind())
    }
}

impl Drop for PyStore {
    fn drop(&mut self) {
        if !self.owner.is_current() {
            // A forked child has none of the threads behind the connections, and locks may be held for ever: leave all
            // as it is.
            std::mem::forget(Arc::clone(&self.store));
        }
    }
}

/// Absence is an answer here, not an error.
fn read_or_none(
    store: &Arc<dyn Store>,
    request: ReadRequest,
) -> BoxFuture<'static, Result<Option<Record>, StoreError>> {
    let store = Arc::clone(store);
    Box::pin(async move {
        match store.read(request).await {
            Ok(record) => Ok(Some(record)),
            Err(StoreError::Missing { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    })
}

fn new_object(object_id: &[u8], fields: NamedBuffers<'_>) -> PyResult<NewObject> {
    Ok(NewObject {
        object_id: id_of("object_id", object_id)?,
        fields: fields
            .into_iter()
            .map(|(name, data)| Ok((Arc::from(&*name), shared_bytes(&data)?)))
            .collect::<PyResult<_>>()?,
    })
}

fn ids_of(object_ids: Vec<PyBackedBytes>) -> PyResult<Vec<Id>> {
    object_ids
        .into_iter()
        .map(|object_id| id_of("object_id", &object_id))
        .collect()
}

fn fields_of(fields: Option<Vec<PyBackedStr>>) -> PyResult<Fields> {
    let Some(fields) = fields else {
        return Ok(Fields::All);
    };
    if fields.is_empty() {
        return Err(PyValueError::new_err(
            "fields is empty: name at least one, or give None for all",
        ));
    }
    let mut seen = HashSet::with_capacity(fields.len());
    fields
        .iter()
        .map(|name| {
            if !is_field_name(name) {
                let message = format!("{:?} is no field name", &**name);
                return Err(PyValueError::new_err(message));
            }
            if !seen.insert(&**name) {
                let message = format!("fields has {:?} twice: name each field once", &**name);
                return Err(PyValueError::new_err(message));
            }
            Ok(Arc::from(&**name))
        })
        .collect::<PyResult<Arc<[Arc<str>]>>>()
        .map(Fields::Named)
}

fn as_dict<'py>(py: Python<'py>, record: &Record) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for field in &record.fields {
        dict.set_item(&*field.name, as_bytes(py, field)?)?;
    }
    Ok(dict)
}

fn as_bytes<'py>(py: Python<'py>, field: &FieldData) -> PyResult<Bound<'py, PyBytes>> {
    let length = field.chunks.iter().map(bytes::Bytes::len).sum();
    PyBytes::new_with(py, length, |target| {
        field.copy_to(target);
        Ok(())
    })
}
