//! One LMDB environment: opened once a process, grown when full, followed when another process grew it.
//!
//! LMDB writes, locks and keeps the pages of open transactions in place; reading is done here, because LMDB
//! trusts its file and a damaged one crashes it (see `pages`). It writes only after the whole file was checked.
#![allow(unsafe_code)] // LMDB maps a file that other processes write: opening and resizing it cannot be proven safe

use std::collections::HashMap;
use std::fs;
use std::io;
use std::mem::ManuallyDrop;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, RwLock, TryLockError, Weak};
use std::time::{Duration, Instant};

use heed::types::Bytes;
use heed::{Database, Env, EnvFlags, EnvOpenOptions, MdbError, RwTxn, WithoutTls};

mod check;
mod file_systems;
mod pages;
mod snapshot;

use pages::Damage;
pub(super) use pages::{Value, damage};
pub(super) use snapshot::Snapshot;
use snapshot::{DataFile, FileIdentity};

use crate::process::Owner;

/// Sparse: costs address space, not disk.
pub(super) const FIRST_MAP_BYTES: usize = 1 << 30;
/// A multiple of every page size there is.
const MAP_STEP_BYTES: usize = 1 << 16;
const MAX_MAP_BYTES: usize = 1 << 46;
const MAX_READERS: u32 = 2048;
/// What the lock file needs. It is written through a mapping, where a full disk is a bus error and not an error code.
const LOCK_FILE_BYTES: u64 = 1 << 20;

/// A head that a commit is writing at this moment is read again so often, with this pause.
const HEAD_TRIES: u32 = 20;
const HEAD_PAUSE: Duration = Duration::from_millis(1);

/// How long opening waits for other threads of this process, and how often it looks.
const OPEN_PATIENCE: Duration = Duration::from_secs(5);
const OPEN_PAUSE: Duration = Duration::from_millis(1);

type Raw = Database<Bytes, Bytes>;

pub(super) type Result<T> = std::result::Result<T, EnvironmentError>;

#[derive(Debug)]
pub(super) enum EnvironmentError {
    Lmdb(heed::Error),
    /// The file is not what LMDB has written: no retry helps.
    Damaged(String),
    /// The name of the network file system that the folder is on.
    OnNetwork(String),
}

impl From<Damage> for EnvironmentError {
    fn from(Damage(what): Damage) -> Self {
        Self::Damaged(what)
    }
}

impl From<heed::Error> for EnvironmentError {
    fn from(error: heed::Error) -> Self {
        match error {
            heed::Error::Mdb(
                damage @ (MdbError::Corrupted | MdbError::PageNotFound | MdbError::Invalid),
            ) => Self::Damaged(damage.to_string()),
            other => Self::Lmdb(other),
        }
    }
}

impl From<io::Error> for EnvironmentError {
    fn from(error: io::Error) -> Self {
        Self::Lmdb(error.into())
    }
}

#[derive(Debug)]
pub(super) struct Environment {
    owner: Owner,
    env: ManuallyDrop<Env<WithoutTls>>,
    database: Raw,
    data: DataFile,
    page_bytes: usize,
    /// Whether every page has been looked at, so that LMDB may write.
    is_checked: AtomicBool,
    /// Shared by transactions, alone for a resize: LMDB moves the map under open transactions.
    gate: RwLock<()>,
}

/// What a process has opened, or has inherited from its parent.
#[derive(Debug)]
struct Opened {
    owner: Owner,
    /// The folder that it is known by to heed, which opens no folder twice.
    folder: PathBuf,
    environment: Weak<Environment>,
}

/// By the data file and not by the folder, of which a mount makes a second name: LMDB loses its locks on a file that a
/// process opens twice.
type Registry = HashMap<FileIdentity, Opened>;

static OPENED: LazyLock<Mutex<Registry>> = LazyLock::new(Mutex::default);

impl Environment {
    /// The environment in `folder`, shared by everything in this process that asks for it.
    pub(super) fn open(folder: &Path, first_map_bytes: usize) -> Result<Arc<Self>> {
        let folder = folder.canonicalize()?;
        let deadline = Instant::now() + OPEN_PATIENCE;
        loop {
            if let Some(environment) = Self::try_open(&folder, first_map_bytes)? {
                return Ok(environment);
            }
            if Instant::now() >= deadline {
                return Err(io::Error::other(
                    "this process still has the files open that were in the folder before: close the stores that use them",
                )
                .into());
            }
            std::thread::sleep(OPEN_PAUSE);
        }
    }

    /// `None` as long as this process has a handle on the files, or on the folder, that nobody can share any more.
    fn try_open(folder: &Path, first_map_bytes: usize) -> Result<Option<Arc<Self>>> {
        let mut registry = lock_registry()?;
        if let Some(file) = DataFile::identity_in(folder)?
            && let Some(known) = registry.get(&file)
            && known.owner.is_current()
        {
            let shared = known.environment.upgrade();
            if shared.is_some() || heed::env_closing_event(&known.folder).is_some() {
                return Ok(shared);
            }
        }
        refuse_network(folder)?;
        refuse_full_disk(folder)?;
        check_heads(folder)?;
        let env = match open_env(folder, first_map_bytes) {
            Err(heed::Error::EnvAlreadyOpened) if is_opened_here(&registry, folder) => {
                return Ok(None);
            }
            // The parent of this process had it open when it forked. Its handle is dead here, so the files are
            // opened once more under another name of their folder.
            Err(heed::Error::EnvAlreadyOpened) => open_under_alias(folder, first_map_bytes)?,
            other => other?,
        };
        let environment = Arc::new(Self::new(env, folder)?);
        let opened = Opened {
            owner: environment.owner,
            folder: environment.env.path().to_owned(),
            environment: Arc::downgrade(&environment),
        };
        registry.insert(environment.data.identity()?, opened);
        Ok(Some(environment))
    }

    fn new(env: Env<WithoutTls>, folder: &Path) -> Result<Self> {
        env.clear_stale_readers()?;
        let data = DataFile::open(folder)?;
        let page_bytes = data.page_bytes()?;
        let database = loop {
            match open_database(&env) {
                // Another process has grown the file since its size was looked at.
                Err(heed::Error::Mdb(MdbError::MapResized)) => {
                    let map_bytes = data.map_bytes(page_bytes)?;
                    probe_address_space(map_bytes)?;
                    // SAFETY: nobody else has this environment yet, so no transaction of it is open.
                    unsafe { env.resize(map_bytes) }?;
                }
                other => break other?,
            }
        };
        Ok(Self {
            owner: Owner::current("store"),
            env: ManuallyDrop::new(env),
            database,
            page_bytes,
            data,
            is_checked: AtomicBool::new(false),
            gate: RwLock::new(()),
        })
    }

    /// Runs `job` on the latest commit, in a short read transaction: a long one makes the file grow.
    pub(super) fn read<T>(&self, mut job: impl FnMut(&Snapshot<'_>) -> Result<T>) -> Result<T> {
        let mut may_clear_readers = true;
        let mut tries = 0;
        loop {
            match self.read_once(&mut job) {
                Ok(Some(result)) => return Ok(result),
                Ok(None) if tries < HEAD_TRIES => {
                    tries += 1;
                    std::thread::sleep(HEAD_PAUSE);
                }
                Ok(None) => return Ok(damage("the head of the last commit is not there")?),
                Err(EnvironmentError::Lmdb(heed::Error::Mdb(MdbError::ReadersFull)))
                    if may_clear_readers =>
                {
                    may_clear_readers = false;
                    self.clear_killed_readers()?;
                }
                Err(EnvironmentError::Lmdb(heed::Error::Mdb(MdbError::MapResized))) => {
                    self.follow_growth()?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// `None` when the commit was overtaken before it could be looked at.
    fn read_once<T>(&self, job: impl FnMut(&Snapshot<'_>) -> Result<T>) -> Result<Option<T>> {
        let _shared = self.gate.read().unwrap_or_else(PoisonError::into_inner);
        let txn = self.env.read_txn()?;
        let snapshot = self.data.snapshot(txn.id() as u64, self.page_bytes)?;
        snapshot.as_ref().map(job).transpose()
    }

    /// Runs `job` in a write transaction and commits it durably; repeats it in a larger map when the map is full.
    /// `job` gets the commit before, too.
    pub(super) fn write(
        &self,
        job: impl Fn(&mut RwTxn<'_>, &Raw, &Snapshot<'_>) -> Result<()>,
    ) -> Result<()> {
        if !self.is_checked.load(Ordering::Relaxed) {
            self.read(check::check)?;
            self.is_checked.store(true, Ordering::Relaxed);
        }
        loop {
            let (map_bytes, result) = {
                let _shared = self.gate.read().unwrap_or_else(PoisonError::into_inner);
                // Inside of the gate even this: LMDB looks into the map to answer.
                (self.env.info().map_size, self.write_once(&job))
            };
            match result {
                Err(EnvironmentError::Lmdb(heed::Error::Mdb(MdbError::MapFull)))
                    if map_bytes < MAX_MAP_BYTES =>
                {
                    // What a killed reader held back may be room enough.
                    if !self.clear_killed_readers()? {
                        self.grow(map_bytes)?;
                    }
                }
                Err(EnvironmentError::Lmdb(heed::Error::Mdb(MdbError::MapResized))) => {
                    self.follow_growth()?;
                }
                other => return other,
            }
        }
    }

    fn write_once(
        &self,
        job: &impl Fn(&mut RwTxn<'_>, &Raw, &Snapshot<'_>) -> Result<()>,
    ) -> Result<()> {
        let mut txn = self.env.write_txn()?;
        let commit_before = (txn.id() as u64).wrapping_sub(1);
        let Some(before) = self.data.snapshot(commit_before, self.page_bytes)? else {
            return Ok(damage("the head of the last commit is not there")?);
        };
        job(&mut txn, &self.database, &before)?;
        Ok(txn.commit()?)
    }

    /// Whether there were any. Until then no page that one of them could have seen is used again.
    fn clear_killed_readers(&self) -> Result<bool> {
        let _shared = self.gate.read().unwrap_or_else(PoisonError::into_inner);
        Ok(self.env.clear_stale_readers()? > 0)
    }

    fn grow(&self, full_map_bytes: usize) -> Result<()> {
        let _alone = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        // Another thread may have grown it while this one waited.
        if self.env.info().map_size > full_map_bytes {
            return Ok(());
        }
        self.move_map((full_map_bytes * 2).next_multiple_of(MAP_STEP_BYTES))
    }

    /// Takes the size that another process has written into the file.
    fn follow_growth(&self) -> Result<()> {
        let _alone = self.gate.write().unwrap_or_else(PoisonError::into_inner);
        self.move_map(self.data.map_bytes(self.page_bytes)?)
    }

    fn move_map(&self, map_bytes: usize) -> Result<()> {
        // LMDB gives the old map up before it asks for the new one: without either it would crash.
        probe_address_space(map_bytes)?;
        // SAFETY: the callers hold the gate alone, so no transaction of this process is open.
        Ok(unsafe { self.env.resize(map_bytes) }?)
    }
}

impl Drop for Environment {
    fn drop(&mut self) {
        // Closing the parent's files in a forked child would release the locks that the child itself has on them.
        if self.owner.is_current() {
            // SAFETY: dropped once, here, and not used afterwards.
            unsafe { ManuallyDrop::drop(&mut self.env) }
        }
    }
}

/// Waits a bounded time: a lock held by another thread at a fork is never released in the child.
fn lock_registry() -> io::Result<std::sync::MutexGuard<'static, Registry>> {
    let deadline = Instant::now() + OPEN_PATIENCE;
    loop {
        match OPENED.try_lock() {
            Ok(guard) => return Ok(guard),
            Err(TryLockError::Poisoned(poisoned)) => return Ok(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) if Instant::now() < deadline => {
                std::thread::sleep(OPEN_PAUSE);
            }
            Err(TryLockError::WouldBlock) => {
                return Err(io::Error::other(
                    "another thread was opening a store when this process was forked: start workers with the `spawn` method",
                ));
            }
        }
    }
}

/// Whether this very process has opened a folder under its own name.
fn is_opened_here(registry: &Registry, folder: &Path) -> bool {
    let mut all = registry.values();
    all.any(|opened| opened.owner.is_current() && opened.folder == folder)
}

/// A commit may write a head at the moment when it is looked at.
fn check_heads(folder: &Path) -> Result<()> {
    let data = match DataFile::open(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    let mut tries = 0;
    loop {
        match data.check_heads() {
            Err(EnvironmentError::Damaged(_)) if tries < HEAD_TRIES => tries += 1,
            other => return other,
        }
        std::thread::sleep(HEAD_PAUSE);
    }
}

fn probe_address_space(bytes: usize) -> io::Result<()> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping that nobody can use, given back at once.
    unsafe {
        let start = libc::mmap(std::ptr::null_mut(), bytes, libc::PROT_NONE, flags, -1, 0);
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        libc::munmap(start, bytes);
    }
    Ok(())
}

fn open_env(folder: &Path, first_map_bytes: usize) -> heed::Result<Env<WithoutTls>> {
    let mut options = EnvOpenOptions::new().read_txn_without_tls();
    options.max_readers(MAX_READERS);
    if !folder.join("data.mdb").exists() {
        options.map_size(first_map_bytes.next_multiple_of(MAP_STEP_BYTES));
    }
    // SAFETY: the files are changed through LMDB only, and once a process (see `Environment::open`).
    // Read-ahead stays on: without it a cold read of 100 KB is 25 page faults in sequence.
    match unsafe { options.open(folder) } {
        Err(heed::Error::Io(error)) if is_read_only(&error) => {
            // SAFETY: as above; the flag only takes rights away.
            unsafe { options.flags(EnvFlags::READ_ONLY).open(folder) }
        }
        other => other,
    }
}

fn open_database(env: &Env<WithoutTls>) -> heed::Result<Raw> {
    let txn = env.read_txn()?;
    let found = env.open_database::<Bytes, Bytes>(&txn, None)?;
    txn.commit()?;
    found.ok_or_else(|| heed::Error::Io(io::Error::other("the unnamed database cannot be opened")))
}

fn open_under_alias(folder: &Path, first_map_bytes: usize) -> heed::Result<Env<WithoutTls>> {
    let alias = std::env::temp_dir().join(format!(
        "penstock-{}-{}",
        std::process::id(),
        crate::retry::Random::from_entropy().next_u64()
    ));
    fs::create_dir(&alias)?;
    let opened = (|| {
        for name in ["data.mdb", "lock.mdb"] {
            std::os::unix::fs::symlink(folder.join(name), alias.join(name))?;
        }
        open_env(&alias, first_map_bytes)
    })();
    // LMDB has the files open by now and never needs their names again.
    fs::remove_dir_all(&alias)?;
    opened
}

fn is_read_only(error: &io::Error) -> bool {
    matches!(
        error.raw_os_error(),
        Some(libc::EACCES | libc::EROFS | libc::EPERM)
    )
}

/// The store's own folder was looked at before, but this one may be a link or a mount.
fn refuse_network(folder: &Path) -> Result<()> {
    match network_file_system(folder)? {
        Some(name) => Err(EnvironmentError::OnNetwork(name)),
        None => Ok(()),
    }
}

fn refuse_full_disk(folder: &Path) -> io::Result<()> {
    if folder.join("lock.mdb").exists() || !is_full(&disk_of(folder)?) {
        return Ok(());
    }
    Err(io::Error::from_raw_os_error(libc::ENOSPC))
}

/// Whether there is no room for a lock file. A read-only medium never has any: LMDB reads it without locks.
const fn is_full(disk: &libc::statvfs) -> bool {
    disk.f_flag & libc::ST_RDONLY == 0 && disk.f_bavail * disk.f_frsize < LOCK_FILE_BYTES
}

pub(super) fn free_bytes(folder: &Path) -> io::Result<u64> {
    let disk = disk_of(folder)?;
    Ok(disk.f_bavail * disk.f_frsize)
}

fn disk_of(folder: &Path) -> io::Result<libc::statvfs> {
    let path = std::ffi::CString::new(std::os::unix::ffi::OsStrExt::as_bytes(folder.as_os_str()))?;
    // SAFETY: `path` ends with a zero byte and `answer` is a plain structure that the call fills.
    let (code, answer) = unsafe {
        let mut answer: libc::statvfs = std::mem::zeroed();
        (libc::statvfs(path.as_ptr(), &raw mut answer), answer)
    };
    if code != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(answer)
}

/// The name of the network file system that `folder` is on, if it is on one: LMDB's locks and maps break there.
pub(super) fn network_file_system(folder: &Path) -> io::Result<Option<String>> {
    let path = std::ffi::CString::new(std::os::unix::ffi::OsStrExt::as_bytes(folder.as_os_str()))?;
    // SAFETY: `path` ends with a zero byte and `answer` is a plain structure that the call fills.
    let (code, answer) = unsafe {
        let mut answer: libc::statfs = std::mem::zeroed();
        (libc::statfs(path.as_ptr(), &raw mut answer), answer)
    };
    if code != 0 {
        return Err(io::Error::last_os_error());
    }
    file_systems::network_name(answer.f_type, folder)
}

#[cfg(test)]
mod tests;
