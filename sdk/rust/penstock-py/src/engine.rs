//! The `Engine` class.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use penstock_core::engine::{
    BatchForm, Cause, Engine, EngineConfig, EngineError, NextError, OnError, SampleError,
};
use penstock_core::errors::StoreError;
use penstock_core::id::Id;
use penstock_core::members::{FieldColumns, Members, Part};
use penstock_core::plan::{LastBatch, Rank};
use penstock_core::state::{State, merge};
use pyo3::exceptions::{PyMemoryError, PyOverflowError, PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyBytes, PyCFunction, PyDict, PyList, PyTuple};

use crate::arena::column;
use crate::batch::PyBatch;
use crate::buffers::id_of;
use crate::errors;
use crate::stats;
use crate::store::PyStore;
use crate::waiting::patience;

/// How long all engines together may take to end when the interpreter does.
const EXIT_PATIENCE: Duration = Duration::from_millis(1500);

type Buffer<'py> = Bound<'py, PyAny>;
type PyPart<'py> = (Buffer<'py>, Vec<(Buffer<'py>, Buffer<'py>, Buffer<'py>)>);

/// A running stream of one subset into this process: every sample of an epoch exactly once, as batches.
///
/// `parts` are the columns of the members: sample ids, and for each field object ids, sizes and checksums; read-only
/// buffers are used in place. Nothing is read before the first `start_epoch`.
#[pyclass(name = "Engine", module = "penstock._native", frozen, weakref)]
#[derive(Debug)]
pub struct PyEngine {
    engine: Arc<Engine>,
}

#[pymethods]
impl PyEngine {
    #[new]
    #[pyo3(signature = (
        store, *, dataset_id, fields, parts, batch_size, shuffle, seed, rank, world_size, last_batch, in_order,
        window_bytes, prefetch_bytes, on_error = "raise", max_displacement = None, max_failed_share = 0.01,
        store_wait_seconds = 60.0, prefetch_next_epoch = true, form = "arena", split_digest = "",
        is_prefetch_fixed = true, idle_seconds = 60.0,
    ))]
    #[allow(
        clippy::too_many_arguments,
        clippy::fn_params_excessive_bools,
        clippy::needless_pass_by_value
    )] // keyword arguments of a Python constructor
    fn new(
        py: Python<'_>,
        store: &PyStore,
        dataset_id: PyBackedBytes,
        fields: Vec<String>,
        parts: Vec<PyPart<'_>>,
        batch_size: Bound<'_, PyAny>,
        shuffle: bool,
        seed: Bound<'_, PyAny>,
        rank: Bound<'_, PyAny>,
        world_size: Bound<'_, PyAny>,
        last_batch: &str,
        in_order: bool,
        window_bytes: Option<Bound<'_, PyAny>>,
        prefetch_bytes: Bound<'_, PyAny>,
        on_error: &str,
        max_displacement: Option<Bound<'_, PyAny>>,
        max_failed_share: f64,
        store_wait_seconds: f64,
        prefetch_next_epoch: bool,
        form: &str,
        split_digest: &str,
        is_prefetch_fixed: bool,
        idle_seconds: f64,
    ) -> PyResult<Self> {
        let rank = Rank::new(whole("rank", &rank)?, whole("world_size", &world_size)?)
            .map_err(|error| failure(&error.into()))?;
        let mut config = EngineConfig::new(
            id_of("dataset_id", &dataset_id)?,
            members(fields, &parts)?,
            whole("batch_size", &batch_size)?,
            rank,
        );
        config.is_shuffled = shuffle;
        config.seed = whole("seed", &seed)?;
        config.last_batch = choice(
            "last_batch",
            last_batch,
            LastBatch::parse,
            "drop, partial or pad",
        )?;
        config.is_in_order = in_order;
        config.window_bytes = window_bytes
            .map(|w| whole("window_bytes", &w))
            .transpose()?;
        config.prefetch_bytes = whole("prefetch_bytes", &prefetch_bytes)?;
        config.is_prefetch_fixed = is_prefetch_fixed;
        config.on_error = choice(
            "on_error",
            on_error,
            OnError::parse,
            "raise, skip or replace",
        )?;
        if let Some(batches) = max_displacement {
            config.max_displacement = whole("max_displacement", &batches)?;
        }
        config.max_failed_share = max_failed_share;
        config.store_wait = seconds("store_wait_seconds", store_wait_seconds)?;
        config.idle = seconds("idle_seconds", idle_seconds)?;
        config.is_next_epoch_prefetched = prefetch_next_epoch;
        config.form = choice("form", form, BatchForm::parse, "arena or list")?;
        config.split_digest = Arc::from(split_digest);
        let store = store.shared()?;
        let engine = Arc::new(guarded(py, || Engine::new(store, config))?);
        close_at_exit(py, &engine)?;
        Ok(Self { engine })
    }

    /// Samples of the subset, over all ranks.
    #[getter]
    fn sample_count(&self) -> u64 {
        self.engine.sample_count()
    }

    /// Steps of this rank in a whole epoch; equal on all ranks.
    fn steps(&self) -> u64 {
        self.engine.steps()
    }

    /// Goes to the beginning of an epoch; what is under way of another one is dropped.
    fn start_epoch(&self, py: Python<'_>, epoch: &Bound<'_, PyAny>) -> PyResult<()> {
        let epoch = whole("epoch", epoch)?;
        guarded(py, || self.engine.start_epoch(epoch))
    }

    /// The next batch, or `None` when all steps of the epoch have been handed out, or after `interrupt`. A `StoreError`
    /// stands in the place of a batch: acknowledge its `seq`, and the next call goes on behind it. Any other error stays.
    fn next_batch(&self, py: Python<'_>) -> PyResult<Option<PyBatch>> {
        #[allow(clippy::redundant_closure_for_method_calls)]
        // the method alone has a fixed lifetime
        let signals = || Python::attach(|py| py.check_signals());
        let next = py.detach(|| errors::guard(|| Ok(self.engine.next_batch(signals))))?;
        match next {
            Ok(batch) => Ok(batch.map(PyBatch::new)),
            Err(NextError::Engine(error)) => Err(failure(&error)),
            Err(NextError::Interrupted(signal)) => Err(signal),
        }
    }

    /// Ends the wait for a batch in another thread, or else the next one before the next `start_epoch`: it gives `None`.
    fn interrupt(&self, py: Python<'_>) -> PyResult<()> {
        guarded(py, || self.engine.interrupt())
    }

    /// Says that the batch with this number has reached its user.
    fn ack(&self, py: Python<'_>, seq: &Bound<'_, PyAny>) -> PyResult<()> {
        let seq = whole("seq", seq)?;
        guarded(py, || self.engine.ack(seq))
    }

    /// Where the acknowledged batches stand, as one line of text; batches not acknowledged come again.
    fn state(&self, py: Python<'_>) -> PyResult<String> {
        guarded(py, || Ok(self.engine.state()?.encode()))
    }

    /// The state before the first sample of an epoch.
    fn start_of(&self, epoch: &Bound<'_, PyAny>) -> PyResult<String> {
        let number = whole("epoch", epoch)?;
        guarded(epoch.py(), || Ok(self.engine.start_of(number).encode()))
    }

    /// Lets the next `start_epoch` of the state's epoch go on where the state stands. Returns the epoch, its steps
    /// done and its steps left.
    fn resume(&self, py: Python<'_>, state: &str) -> PyResult<(u64, u64, u64)> {
        let resumed = guarded(py, || self.engine.resume(&State::decode(state)?))?;
        Ok((resumed.epoch, resumed.steps_done, resumed.steps_left))
    }

    /// The states of all ranks as one that fits any number of ranks. With `allow_skew` ranks may be missing or stand
    /// at different steps.
    #[staticmethod]
    #[pyo3(signature = (states, *, allow_skew = false))]
    #[allow(clippy::needless_pass_by_value)] // the form that the class macro calls
    fn merge_states(py: Python<'_>, states: Vec<String>, allow_skew: bool) -> PyResult<String> {
        guarded(py, || {
            let decoded = states.iter().map(|text| State::decode(text));
            let decoded = decoded.collect::<Result<Vec<_>, _>>()?;
            Ok(merge(&decoded, allow_skew)?.encode())
        })
    }

    /// Counters since the engine was made, how things stand now, and a histogram for each stage: see docs/stats.md.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let snapshot = guarded(py, || self.engine.snapshot())?;
        stats::dict(py, &snapshot)
    }

    /// What acknowledged steps did not deliver: epoch, sample id, fields, node, attempts, reason, or for a sound sample
    /// the one that it was lost with.
    fn failures<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        let failures = guarded(py, || self.engine.failures())?;
        let rows = failures.iter().map(|failed| {
            let sample_id = PyBytes::new(py, failed.sample_id.as_bytes());
            match &failed.cause {
                Cause::Unread(SampleError { fields, source, .. }) => {
                    let fields: Vec<&str> = fields.iter().map(|name| &**name).collect();
                    let (node, attempts) = (source.node(), source.attempts());
                    let reason = source.to_string();
                    (
                        failed.epoch,
                        sample_id,
                        fields,
                        node,
                        attempts,
                        reason,
                        None,
                    )
                }
                Cause::LostWith(other) => {
                    let other = Some(PyBytes::new(py, other.as_bytes()));
                    (
                        failed.epoch,
                        sample_id,
                        Vec::new(),
                        None,
                        None,
                        String::new(),
                        other,
                    )
                }
            }
        });
        PyList::new(py, rows.collect::<Vec<_>>())
    }

    /// The bytes that may be held ahead from now on, with those on their way. Returns what is in force: a store on
    /// this machine needs less, and no sample may be larger.
    fn set_prefetch_bytes(
        &self,
        py: Python<'_>,
        prefetch_bytes: &Bound<'_, PyAny>,
    ) -> PyResult<u64> {
        let prefetch_bytes = whole("prefetch_bytes", prefetch_bytes)?;
        guarded(py, || self.engine.set_prefetch_bytes(prefetch_bytes))
    }

    /// Ends all work; batches that were handed out stay whole. Waits until that is done, for 1.5 seconds at the most
    /// or as long as is said. Closing twice is fine.
    #[pyo3(signature = (patience_seconds = None))]
    fn close(&self, py: Python<'_>, patience_seconds: Option<f64>) -> PyResult<()> {
        let patience = patience_seconds.map(patience).transpose()?;
        guarded(py, || {
            match patience {
                None => self.engine.close(),
                Some(patience) => self.engine.close_within(patience),
            }
            Ok(())
        })
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
        format!(
            "<penstock Engine, {} samples, {} steps>",
            self.engine.sample_count(),
            self.engine.steps()
        )
    }
}

impl Drop for PyEngine {
    fn drop(&mut self) {
        if self.engine.is_own() {
            // There is nobody to tell when it fails.
            let _ = Python::attach(|py| self.close(py, None));
        } else {
            // A forked child has no thread that could answer, and locks may be held for ever: leave all as it is.
            std::mem::forget(Arc::clone(&self.engine));
        }
    }
}

/// Engines that are still open when the interpreter ends are closed while it can still run.
fn close_at_exit(py: Python<'_>, engine: &Arc<Engine>) -> PyResult<()> {
    static OPEN: Mutex<Vec<Weak<Engine>>> = Mutex::new(Vec::new());
    static REGISTERED: PyOnceLock<()> = PyOnceLock::new();
    REGISTERED.get_or_try_init(py, || {
        let close_all = PyCFunction::new_closure(py, None, None, |args, _| {
            let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
            let engines: Vec<_> = open.drain(..).filter_map(|weak| weak.upgrade()).collect();
            drop(open);
            // Whoever has closed one before has waited for it too; those of a parent process are not ours.
            let open: Vec<_> = engines
                .iter()
                .filter(|engine| engine.is_own() && !engine.is_ended())
                .collect();
            args.py().detach(|| {
                for engine in &open {
                    engine.close_within(Duration::ZERO);
                }
                let started = Instant::now();
                for engine in open {
                    engine.close_within(EXIT_PATIENCE.saturating_sub(started.elapsed()));
                }
            });
        })?;
        py.import("atexit")?
            .call_method1("register", (close_all,))?;
        Ok::<_, PyErr>(())
    })?;
    let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    open.retain(|weak| weak.strong_count() > 0);
    open.push(Arc::downgrade(engine));
    Ok(())
}

fn members(fields: Vec<String>, parts: &[PyPart<'_>]) -> PyResult<Members> {
    let parts = parts
        .iter()
        .map(|(ids, columns)| {
            let of_field =
                |(object_ids, sizes, checksums): &(Buffer<'_>, Buffer<'_>, Buffer<'_>)| {
                    Ok(FieldColumns {
                        object_ids: column(object_ids)?,
                        sizes: column(sizes)?,
                        checksums: column(checksums)?,
                    })
                };
            Ok(Part {
                ids: column(ids)?,
                fields: columns.iter().map(of_field).collect::<PyResult<_>>()?,
            })
        })
        .collect::<PyResult<_>>()?;
    let fields = fields.into_iter().map(Arc::from).collect();
    Members::new(fields, parts).map_err(|error| failure(&error.into()))
}

/// A number that cannot be negative; Python's own error would not say which argument it was.
pub fn whole(name: &str, value: &Bound<'_, PyAny>) -> PyResult<u64> {
    value.extract().map_err(|error: PyErr| {
        if error.is_instance_of::<PyOverflowError>(value.py()) {
            PyValueError::new_err(format!(
                "{name} is {value}: it has to be from 0 to 2**64 - 1"
            ))
        } else {
            PyTypeError::new_err(format!("{name} has to be a whole number, not {value:?}"))
        }
    })
}

fn choice<T>(
    name: &str,
    value: &str,
    parse: impl Fn(&str) -> Option<T>,
    choices: &str,
) -> PyResult<T> {
    parse(value).ok_or_else(|| PyValueError::new_err(format!("{name} is {choices}, not {value:?}")))
}

fn seconds(name: &str, value: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(value)
        .map_err(|error| PyValueError::new_err(format!("{name} is {value}: {error}")))
}

/// Runs a call of the core without the GIL; its errors, and bugs in it, become Python exceptions.
fn guarded<T: Send>(
    py: Python<'_>,
    call: impl FnOnce() -> Result<T, EngineError> + Send,
) -> PyResult<T> {
    py.detach(|| errors::guard(|| Ok(call())))?
        .map_err(|error| failure(&error))
}

fn failure(error: &EngineError) -> PyErr {
    let message = error.to_string();
    match error {
        EngineError::Process(reason) => errors::process(reason),
        EngineError::Sample {
            seq,
            sample,
            besides,
        } => in_place_of(*seq, sample, besides, unreadable(sample, message)),
        EngineError::TooManyFailures { last, .. } => too_many(last, message),
        EngineError::Closed => errors::named("EngineClosed", message),
        EngineError::Panicked { .. } => errors::named("CorePanicked", message),
        EngineError::NoMemory(_) => PyMemoryError::new_err(message),
        _ => PyValueError::new_err(message),
    }
}

/// Tells which batch the error stands for, so that it can be acknowledged, and what was in it.
fn in_place_of(seq: u64, sample: &SampleError, besides: &[Id], error: PyErr) -> PyErr {
    let told = Python::attach(|py| {
        let value = error.value(py);
        value.setattr("seq", seq)?;
        value.setattr("sample_id", sample.sample_id.to_string())?;
        value.setattr(
            "lost_ids",
            PyTuple::new(py, besides.iter().map(Id::to_string))?,
        )
    });
    told.err().unwrap_or(error)
}

fn unreadable(sample: &SampleError, message: String) -> PyErr {
    match &*sample.source {
        StoreError::Missing { .. } => errors::named("SampleMissing", message),
        StoreError::Corrupt { .. } => errors::named("SampleCorrupt", message),
        StoreError::Refused { .. } => errors::named("StoreRefused", message),
        StoreError::Closed => errors::named("EngineClosed", message),
        _ => errors::named("StoreUnavailable", message),
    }
}

/// `LoaderFailure` is an exception group: it takes the message and its members.
fn too_many(last: &SampleError, message: String) -> PyErr {
    Python::attach(|py| {
        let member = unreadable(last, last.to_string()).into_value(py);
        let group = py
            .import("penstock._errors")
            .and_then(|module| module.getattr("LoaderFailure"))
            .and_then(|class| class.call1((message, vec![member])));
        group.map_or_else(|error| error, PyErr::from_value)
    })
}
