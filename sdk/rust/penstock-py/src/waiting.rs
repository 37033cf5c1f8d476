//! Waiting for the core from Python: without the GIL, and awake for Ctrl-C.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::time::Duration;

use futures::FutureExt;
use penstock_core::process;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::errors;

/// How long a Ctrl-C may go unnoticed.
pub const SIGNAL_POLL: Duration = Duration::from_millis(50);

/// Runs a future on the core's runtime and waits for it. A signal handler that raises cancels it.
pub fn block_on<T, F>(py: Python<'_>, future: F) -> PyResult<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let runtime = process::runtime().map_err(|error| errors::process(&error))?;
    let (sender, receiver) = sync_channel(1);
    let task = runtime.spawn(async move {
        let outcome = AssertUnwindSafe(future).catch_unwind().await;
        // Nobody listens any more after a signal.
        _ = sender.send(outcome);
    });
    let mut receiver = Some(receiver);
    let outcome = wait(py, || {
        let channel = receiver.take()?;
        match channel.recv_timeout(SIGNAL_POLL) {
            Err(RecvTimeoutError::Timeout) => {
                receiver = Some(channel);
                None
            }
            other => Some(other),
        }
    });
    match outcome.inspect_err(|_| task.abort())? {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(panic)) => Err(errors::panicked(&*panic)),
        Err(_) => Err(errors::panicked(&"the task disappeared")),
    }
}

/// Starts a future on the core's runtime and waits for it no longer than this; it goes on by itself then.
pub fn run_on<F>(py: Python<'_>, future: F, patience: Duration) -> PyResult<()>
where
    F: Future<Output = ()> + Send + 'static,
{
    let runtime = process::runtime().map_err(|error| errors::process(&error))?;
    let (sender, receiver) = sync_channel(1);
    runtime.spawn(async move {
        future.await;
        // Nobody may listen any more.
        _ = sender.send(());
    });
    py.detach(move || _ = receiver.recv_timeout(patience));
    Ok(())
}

/// A time to wait that somebody has given in seconds.
pub fn patience(seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|error| PyValueError::new_err(format!("patience_seconds is {seconds}: {error}")))
}

/// Calls `step` without the GIL until it gives a value; between two calls Python handles its signals.
/// A step has to come back within about `SIGNAL_POLL`.
pub fn wait<T: Send>(py: Python<'_>, mut step: impl FnMut() -> Option<T> + Send) -> PyResult<T> {
    loop {
        if let Some(value) = py.detach(&mut step) {
            return Ok(value);
        }
        py.check_signals()?;
    }
}
