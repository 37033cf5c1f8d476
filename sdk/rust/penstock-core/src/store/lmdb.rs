//! The embedded store: one LMDB environment a dataset, in folders named by the dataset's id.

mod entries;
mod filling;
mod finding;

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use heed::MdbError;

use self::entries::{HEADER_BYTES, decode, encode_header, key_of};
use self::finding::{Values, check_replaced, read_values, scan_ids};
use super::lmdb_environment::{
    Environment, EnvironmentError, FIRST_MAP_BYTES, free_bytes, network_file_system,
};
use super::{
    Fields, LmdbConfig, NearStore, NewObject, ReadRequest, Record, Store, StoreCounters, Table,
    WriteRequest,
};
use crate::arena::Pool;
use crate::codec::{self, Header};
use crate::errors::{OpenError, StoreError};
use crate::id::Id;

/// Memory of values kept for the next reads: fresh memory costs more than the copy into it (measured).
const IDLE_BYTES: usize = 16 << 20;
/// A transaction keeps its dirty pages in memory until it commits.
const TRANSACTION_BYTES: usize = 64 << 20;
/// The same for deleting, which touches a page or two an object: LMDB gives a transaction up that touches too many.
const TRANSACTION_DELETIONS: usize = 4096;

#[derive(Debug, Clone)]
pub struct LmdbStore {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    folder: PathBuf,
    is_read_only: bool,
    first_map_bytes: usize,
    is_closed: AtomicBool,
    pool: Pool,
    environments: Mutex<HashMap<Id, Arc<Environment>>>,
    damaged: AtomicU64,
}

impl LmdbStore {
    pub fn open(config: LmdbConfig) -> Result<Self, OpenError> {
        check_folder(&config)?;
        let first_map_bytes = config.first_map_bytes.unwrap_or(FIRST_MAP_BYTES);
        Ok(Self {
            shared: Arc::new(Shared {
                folder: config.path,
                is_read_only: config.is_read_only,
                first_map_bytes,
                is_closed: AtomicBool::new(false),
                pool: Pool::new(IDLE_BYTES),
                environments: Mutex::default(),
                damaged: AtomicU64::new(0),
            }),
        })
    }

    /// LMDB blocks on the disk and on its write lock, so it never runs on the runtime's own worker.
    fn blocking<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Shared) -> Result<T, StoreError> + Send + 'static,
    ) -> BoxFuture<'_, Result<T, StoreError>> {
        let shared = Arc::clone(&self.shared);
        Box::pin(async move {
            if shared.is_closed.load(Ordering::Relaxed) {
                return Err(StoreError::Closed);
            }
            match tokio::task::spawn_blocking(move || job(&shared)).await {
                Ok(result) => result,
                Err(error) => match error.try_into_panic() {
                    Ok(panic) => std::panic::resume_unwind(panic),
                    Err(_) => Err(StoreError::Closed),
                },
            }
        })
    }
}

fn check_folder(config: &LmdbConfig) -> Result<(), OpenError> {
    let path = &config.path;
    let shown = path.display();
    let refuse = |message: String| Err(OpenError::Config { message });
    if !path.is_absolute() {
        return refuse(format!(
            "the path of an LMDB store has to be absolute, not {shown}"
        ));
    }
    if config.is_read_only && !path.is_dir() {
        return refuse(format!("there is no store folder {shown} on this machine"));
    }
    if !config.is_read_only
        && let Err(error) = fs::create_dir_all(path).and_then(|()| probe_write(path))
    {
        return match error.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT) => Err(OpenError::Unavailable {
                message: format!("the disk of the store folder {shown} is full: free some room"),
            }),
            _ => refuse(format!(
                "the store folder {shown} cannot be written to ({error}): check its owner and rights, or choose another folder"
            )),
        };
    }
    match network_file_system(path) {
        Ok(None) => Ok(()),
        Ok(Some(name)) => refuse(on_network(path, &name)),
        Err(error) => refuse(format!(
            "the store folder {shown} cannot be examined: {error}"
        )),
    }
}

fn on_network(folder: &Path, name: &str) -> String {
    let shown = folder.display();
    format!(
        "the store folder {shown} is on {name}, a network file system, where LMDB loses data: choose a folder on a local disk"
    )
}

fn probe_write(path: &Path) -> io::Result<()> {
    let probe = path.join(format!(
        ".probe-{}-{:016x}",
        std::process::id(),
        crate::retry::Random::from_entropy().next_u64()
    ));
    fs::write(&probe, b"x")?;
    fs::remove_file(&probe)
}

impl Shared {
    /// `None` when nothing has been written to the dataset yet.
    fn existing(&self, dataset_id: Id) -> Result<Option<Arc<Environment>>, EnvironmentError> {
        if let Some(known) = self.environments().get(&dataset_id) {
            return Ok(Some(Arc::clone(known)));
        }
        let folder = self.folder_of(dataset_id);
        if !folder.join("data.mdb").exists() {
            return Ok(None);
        }
        self.open_environment(dataset_id, &folder).map(Some)
    }

    fn existing_or_new(&self, dataset_id: Id) -> Result<Arc<Environment>, EnvironmentError> {
        if let Some(known) = self.existing(dataset_id)? {
            return Ok(known);
        }
        let folder = self.folder_of(dataset_id);
        fs::create_dir_all(&folder)?;
        self.open_environment(dataset_id, &folder)
    }

    fn open_environment(
        &self,
        dataset_id: Id,
        folder: &Path,
    ) -> Result<Arc<Environment>, EnvironmentError> {
        let environment = Environment::open(folder, self.first_map_bytes)?;
        self.environments()
            .insert(dataset_id, Arc::clone(&environment));
        Ok(environment)
    }

    fn environments(&self) -> std::sync::MutexGuard<'_, HashMap<Id, Arc<Environment>>> {
        self.environments
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn folder_of(&self, dataset_id: Id) -> PathBuf {
        self.folder.join(dataset_id.to_hex())
    }

    fn failure(&self, operation: &str, dataset_id: Id, error: EnvironmentError) -> StoreError {
        let folder = self.folder.display();
        let unavailable = |reason: String| StoreError::Unavailable {
            operation: operation.to_owned(),
            reason,
            node: None,
            attempts: 1,
            waited: Duration::ZERO,
        };
        let refused = |reason: String| StoreError::Refused {
            operation: operation.to_owned(),
            reason,
            node: None,
            attempts: 1,
        };
        match error {
            EnvironmentError::Damaged(what) => {
                self.damaged.fetch_add(1, Ordering::Relaxed);
                unavailable(self.damage(dataset_id, &what))
            }
            EnvironmentError::OnNetwork(name) => {
                refused(on_network(&self.folder_of(dataset_id), &name))
            }
            EnvironmentError::Lmdb(heed::Error::Io(io)) if is_full(&io) => StoreError::Full {
                reason: format!("no room is left on the disk of {folder}: free some and try again"),
            },
            EnvironmentError::Lmdb(heed::Error::Mdb(MdbError::MapFull)) => StoreError::Full {
                reason: format!("a dataset in {folder} has reached the largest size of LMDB"),
            },
            EnvironmentError::Lmdb(heed::Error::Io(io))
                if io.kind() == io::ErrorKind::PermissionDenied =>
            {
                refused(format!(
                    "no right to write in {folder}; readers too need it for LMDB's lock file: check the folder's owner and rights"
                ))
            }
            EnvironmentError::Lmdb(other) => unavailable(format!("{other} (LMDB store {folder})")),
        }
    }

    fn damage(&self, dataset_id: Id, what: &str) -> String {
        let file = self.folder_of(dataset_id).join("data.mdb");
        format!(
            "the file {} is damaged ({what}): check the disk, then restore the file or ingest the dataset anew",
            file.display()
        )
    }

    fn read(&self, request: &ReadRequest) -> Result<Record, StoreError> {
        let missing = |field: Option<&str>| StoreError::Missing {
            dataset_id: request.dataset_id,
            object_id: request.object_id,
            field: field.map(str::to_owned),
            node: None,
            attempts: 1,
        };
        let corrupt = |field: String, reason: String| {
            self.damaged.fetch_add(1, Ordering::Relaxed);
            StoreError::Corrupt {
                dataset_id: request.dataset_id,
                object_id: request.object_id,
                field,
                reason,
                node: None,
                attempts: 1,
            }
        };
        let values = self
            .existing(request.dataset_id)
            .and_then(|environment| {
                environment.map_or_else(
                    || Ok(Values::new()),
                    |found| found.read(|snapshot| read_values(snapshot, request, &self.pool)),
                )
            })
            .map_err(|error| match error {
                EnvironmentError::Damaged(what) => {
                    corrupt(names_of(request), self.damage(request.dataset_id, &what))
                }
                other => self.failure("reading an object", request.dataset_id, other),
            })?;
        let mut fields = Vec::with_capacity(values.len());
        for (name, value) in values {
            let value = value.ok_or_else(|| missing(Some(&name)))?;
            let key = key_of(request.table, request.object_id, &name);
            let field = decode(&key, Arc::clone(&name), &value)
                .map_err(|reason| corrupt(name.to_string(), reason))?;
            fields.push(field);
        }
        if fields.is_empty() {
            return Err(missing(None));
        }
        Ok(Record {
            object_id: request.object_id,
            fields,
            node: None,
            attempts: 1,
        })
    }

    fn write(&self, request: &WriteRequest) -> Result<(), StoreError> {
        self.refuse_read_only()?;
        for object in &request.objects {
            codec::check_object(object)?;
        }
        if request.objects.is_empty() {
            return Ok(());
        }
        let environment = self
            .existing_or_new(request.dataset_id)
            .map_err(|error| self.failure("opening a dataset", request.dataset_id, error))?;
        for portion in portions(&request.objects) {
            environment
                .write(|txn, database, before| {
                    for object in portion {
                        for (name, data) in &object.fields {
                            let key = key_of(request.table, object.object_id, name);
                            check_replaced(before, &key)?;
                            let header = encode_header(&key, &Header::of(data));
                            database.put_reserved(
                                txn,
                                &key,
                                HEADER_BYTES + data.len(),
                                |space| {
                                    io::Write::write_all(space, &header)?;
                                    io::Write::write_all(space, data)
                                },
                            )?;
                        }
                    }
                    Ok(())
                })
                .map_err(|error| self.write_failure(request.dataset_id, portion, error))?;
        }
        Ok(())
    }

    fn write_failure(
        &self,
        dataset_id: Id,
        portion: &[NewObject],
        error: EnvironmentError,
    ) -> StoreError {
        // LMDB reports a write that the disk took only half of as an input/output error.
        if let EnvironmentError::Lmdb(heed::Error::Io(io)) = &error
            && io.raw_os_error() == Some(libc::EIO)
            && free_bytes(&self.folder).is_ok_and(|free| free < size_of_objects(portion) as u64)
        {
            let full = io::Error::from_raw_os_error(libc::ENOSPC);
            return self.failure("writing objects", dataset_id, full.into());
        }
        self.failure("writing objects", dataset_id, error)
    }

    fn delete(&self, table: Table, dataset_id: Id, object_ids: &[Id]) -> Result<(), StoreError> {
        self.refuse_read_only()?;
        let delete = |environment: &Environment, portion: &[Id]| {
            environment.write(|txn, database, before| {
                for object_id in portion {
                    let prefix = key_of(table, *object_id, "");
                    let mut cursor = before.seek(&prefix)?;
                    while let Some((key, value)) = cursor.entry_of(&prefix)? {
                        before.read_start(value, 0)?;
                        database.delete(txn, key)?;
                        cursor.advance()?;
                    }
                }
                Ok(())
            })
        };
        let failure = |error| self.failure("deleting objects", dataset_id, error);
        let Some(environment) = self.existing(dataset_id).map_err(failure)? else {
            return Ok(());
        };
        let mut portions = object_ids.chunks(TRANSACTION_DELETIONS);
        portions.try_for_each(|portion| delete(&environment, portion).map_err(failure))
    }

    fn scan(&self, table: Table, dataset_id: Id) -> Result<Vec<Id>, StoreError> {
        self.existing(dataset_id)
            .and_then(|found| {
                found.map_or_else(
                    || Ok(Vec::new()),
                    |environment| environment.read(|snapshot| scan_ids(snapshot, table)),
                )
            })
            .map_err(|error| self.failure("listing objects", dataset_id, error))
    }

    fn refuse_read_only(&self) -> Result<(), StoreError> {
        if self.is_read_only {
            return Err(StoreError::Invalid {
                reason: format!(
                    "the store {} was opened for reading only",
                    self.folder.display()
                ),
            });
        }
        Ok(())
    }
}

fn names_of(request: &ReadRequest) -> String {
    match &request.fields {
        Fields::All => String::new(),
        Fields::Named(names) => names.join(", "),
    }
}

fn size_of_objects(objects: &[NewObject]) -> usize {
    let fields = objects.iter().flat_map(|object| &object.fields);
    fields.map(|(_, data)| data.len()).sum()
}

/// Cuts a request into transactions of bounded size; a single object is never cut. No transaction has an object twice:
/// LMDB would give the second, shorter value the pages of the first, and its length could not be checked.
fn portions(objects: &[NewObject]) -> impl Iterator<Item = &[NewObject]> {
    let mut rest = objects;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let mut count = 0;
        let mut ids = HashSet::new();
        for object in rest {
            bytes += size_of_objects(std::slice::from_ref(object));
            let is_repeated = !ids.insert(object.object_id);
            if count > 0 && (is_repeated || bytes > TRANSACTION_BYTES) {
                break;
            }
            count += 1;
        }
        let (portion, later) = rest.split_at(count);
        rest = later;
        (!portion.is_empty()).then_some(portion)
    })
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT))
}

impl Store for LmdbStore {
    fn kind(&self) -> &'static str {
        "lmdb"
    }

    fn read(&self, request: ReadRequest) -> BoxFuture<'_, Result<Record, StoreError>> {
        self.blocking(move |shared| shared.read(&request))
    }

    fn write(&self, request: WriteRequest) -> BoxFuture<'_, Result<(), StoreError>> {
        self.blocking(move |shared| shared.write(&request))
    }

    fn delete(
        &self,
        table: Table,
        dataset_id: Id,
        object_ids: Vec<Id>,
    ) -> BoxFuture<'_, Result<(), StoreError>> {
        self.blocking(move |shared| shared.delete(table, dataset_id, &object_ids))
    }

    fn scan(&self, table: Table, dataset_id: Id) -> BoxFuture<'_, Result<Vec<Id>, StoreError>> {
        self.blocking(move |shared| shared.scan(table, dataset_id))
    }

    fn ping(&self) -> BoxFuture<'_, Result<(), StoreError>> {
        self.blocking(|shared| {
            fs::read_dir(&shared.folder).map(drop).map_err(|error| {
                shared.failure(
                    "looking into the store's folder",
                    Id::default(),
                    error.into(),
                )
            })
        })
    }

    /// What a batch could not be filled with is read again and counted then.
    fn counters(&self) -> StoreCounters {
        StoreCounters {
            damaged: self.shared.damaged.load(Ordering::Relaxed),
            ..StoreCounters::default()
        }
    }

    fn near(&self) -> Option<&dyn NearStore> {
        Some(self)
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.shared.is_closed.store(true, Ordering::Relaxed);
            self.shared.environments().clear();
            self.shared.pool.close();
        })
    }
}

#[cfg(test)]
mod tests;
