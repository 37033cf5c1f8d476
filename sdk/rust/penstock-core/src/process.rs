//! Which process owns what, and the one tokio runtime of a process.
//!
//! Threads do not survive a fork: a child that used its parent's runtime would wait for ever. So everything
//! that needs the runtime remembers its process, and a child gets a runtime of its own.
#![allow(unsafe_code)] // one leaked pointer, see `runtime`

mod lull;

use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::Instant;
use std::{process, ptr, thread};

use tokio::runtime::{Builder, Runtime};

use lull::Lull;

use crate::errors::ProcessError;

/// LMDB reads block, on threads of this pool; more of them only compete for the same disk.
pub const MAX_BLOCKING_THREADS: usize = 8;

/// Remembers the process that made a thing.
#[derive(Debug, Clone, Copy)]
pub struct Owner {
    what: &'static str,
    pid: u32,
}

impl Owner {
    pub fn current(what: &'static str) -> Self {
        Self {
            what,
            pid: process::id(),
        }
    }

    pub fn is_current(&self) -> bool {
        self.pid == process::id()
    }

    pub fn check(&self) -> Result<(), ProcessError> {
        if self.is_current() {
            return Ok(());
        }
        Err(ProcessError::Forked {
            what: self.what,
            owner: self.pid,
            current: process::id(),
        })
    }
}

struct OwnedRuntime {
    owner: Owner,
    runtime: Runtime,
}

/// Of the runtime of this process.
pub(crate) static LULL: Lull = Lull::new();

static CURRENT: AtomicPtr<OwnedRuntime> = AtomicPtr::new(ptr::null_mut());

/// The runtime of this process, made on first use: one worker, which costs less CPU than two (measured).
pub fn runtime() -> Result<&'static Runtime, ProcessError> {
    loop {
        let seen = CURRENT.load(Ordering::Acquire);
        // SAFETY: a pointer stored in CURRENT comes from `Box::leak` below and is never freed.
        if let Some(owned) = unsafe { seen.as_ref() }
            && owned.owner.is_current()
        {
            return Ok(&owned.runtime);
        }
        // No lock anywhere here: one that another thread held at the fork would never be released in the child.
        let made = Box::leak(Box::new(build()?));
        if CURRENT
            .compare_exchange(seen, made, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
        {
            return Ok(&made.runtime);
        }
        // Another thread was first; its runtime is taken in the next round, ours stays idle.
    }
}

fn build() -> Result<OwnedRuntime, ProcessError> {
    LULL.reset();
    let runtime = Builder::new_multi_thread()
        .worker_threads(1)
        .max_blocking_threads(MAX_BLOCKING_THREADS)
        .thread_name("penstock")
        .on_thread_park(|| {
            if let Some(pause) = LULL.pause(Instant::now()) {
                thread::sleep(pause);
            }
        })
        .enable_all()
        .build()
        .map_err(|error| ProcessError::NoThread {
            reason: error.to_string(),
        })?;
    Ok(OwnedRuntime {
        owner: Owner::current("runtime"),
        runtime,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_runtime_is_given_twice() {
        assert!(ptr::eq(runtime().unwrap(), runtime().unwrap()));
    }

    #[test]
    fn an_owner_of_another_process_is_refused() {
        let owner = Owner {
            what: "store",
            pid: process::id() + 1,
        };
        let message = owner.check().unwrap_err().to_string();
        assert!(message.contains("forked child"), "{message}");
        assert!(Owner::current("store").check().is_ok());
    }
}
