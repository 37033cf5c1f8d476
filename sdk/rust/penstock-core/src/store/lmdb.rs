//! The embedded store: one LMDB environment a dataset, in folders named by the dataset's id.
//!
//! A key is the table (one byte), the object id and the field's name; a value is a header of 32 bytes and the field.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures::future::BoxFuture;
use heed::MdbError;
use heed::types::DecodeIgnore;

use super::lmdb_environment::{Environment, FIRST_MAP_BYTES, free_bytes, network_file_system};
use super::{
    FieldData, Fields, LmdbConfig, NewObject, ReadRequest, Record, Store, Table, WriteRequest,
};
use crate::codec::{self, Header};
use crate::errors::{OpenError, StoreError};
use crate::id::Id;

const HEADER_BYTES: usize = 32;
/// A transaction keeps its dirty pages in memory until it commits.
const TRANSACTION_BYTES: usize = 64 << 20;

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
    environments: Mutex<HashMap<Id, Arc<Environment>>>,
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
                environments: Mutex::default(),
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
        Ok(Some(name)) => refuse(format!(
            "the store folder {shown} is on {name}, a network file system, where LMDB loses data: choose a folder on a local disk"
        )),
        Err(error) => refuse(format!(
            "the store folder {shown} cannot be examined: {error}"
        )),
    }
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
    fn existing(&self, dataset_id: Id) -> Result<Option<Arc<Environment>>, StoreError> {
        if let Some(known) = self.environments().get(&dataset_id) {
            return Ok(Some(Arc::clone(known)));
        }
        let folder = self.folder_of(dataset_id);
        if !folder.join("data.mdb").exists() {
            return Ok(None);
        }
        self.open_environment(dataset_id, &folder).map(Some)
    }

    fn existing_or_new(&self, dataset_id: Id) -> Result<Arc<Environment>, StoreError> {
        if let Some(known) = self.existing(dataset_id)? {
            return Ok(known);
        }
        let folder = self.folder_of(dataset_id);
        fs::create_dir_all(&folder)
            .map_err(|error| self.failure("creating the dataset's folder", &error.into()))?;
        self.open_environment(dataset_id, &folder)
    }

    fn open_environment(
        &self,
        dataset_id: Id,
        folder: &Path,
    ) -> Result<Arc<Environment>, StoreError> {
        let environment = Environment::open(folder, self.first_map_bytes)
            .map_err(|error| self.failure("opening the dataset's environment", &error))?;
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

    fn failure(&self, operation: &str, error: &heed::Error) -> StoreError {
        let folder = self.folder.display();
        match error {
            heed::Error::Io(io) if is_full(io) => StoreError::Full {
                reason: format!("no room is left on the disk of {folder}: free some and try again"),
            },
            heed::Error::Mdb(MdbError::MapFull) => StoreError::Full {
                reason: format!("a dataset in {folder} has reached the largest size of LMDB"),
            },
            heed::Error::Io(io) if io.kind() == io::ErrorKind::PermissionDenied => {
                StoreError::Unavailable {
                    operation: operation.to_owned(),
                    reason: format!(
                        "no right to write in {folder}; readers too need it for LMDB's lock file: check the folder's owner and rights"
                    ),
                    node: None,
                    attempts: 1,
                }
            }
            other => StoreError::Unavailable {
                operation: operation.to_owned(),
                reason: format!("{other} (LMDB store {folder})"),
                node: None,
                attempts: 1,
            },
        }
    }

    fn read(&self, request: &ReadRequest) -> Result<Record, StoreError> {
        let missing = |field: Option<&str>| StoreError::Missing {
            dataset_id: request.dataset_id,
            object_id: request.object_id,
            field: field.map(str::to_owned),
            attempts: 1,
        };
        let environment = self
            .existing(request.dataset_id)?
            .ok_or_else(|| missing(None))?;
        let values = environment
            .read(|txn, database| read_values(txn, database, request))
            .map_err(|error| self.read_failure(request, &error))?;
        let mut fields = Vec::with_capacity(values.len());
        for (name, value) in values {
            let value = value.ok_or_else(|| missing(Some(&name)))?;
            let field =
                decode(Arc::clone(&name), &value).map_err(|reason| StoreError::Corrupt {
                    dataset_id: request.dataset_id,
                    object_id: request.object_id,
                    field: name.to_string(),
                    reason,
                    node: None,
                    attempts: 1,
                })?;
            fields.push(field);
        }
        if fields.is_empty() {
            return Err(missing(None));
        }
        Ok(Record {
            object_id: request.object_id,
            fields,
            attempts: 1,
        })
    }

    fn read_failure(&self, request: &ReadRequest, error: &heed::Error) -> StoreError {
        match error {
            heed::Error::Mdb(
                damage @ (MdbError::Corrupted | MdbError::PageNotFound | MdbError::Invalid),
            ) => StoreError::Corrupt {
                dataset_id: request.dataset_id,
                object_id: request.object_id,
                field: String::new(),
                reason: format!(
                    "the file {} is damaged: {damage}",
                    self.folder_of(request.dataset_id)
                        .join("data.mdb")
                        .display()
                ),
                node: None,
                attempts: 1,
            },
            other => self.failure("reading an object", other),
        }
    }

    fn write(&self, request: &WriteRequest) -> Result<(), StoreError> {
        self.refuse_read_only()?;
        for object in &request.objects {
            codec::check_object(object)?;
        }
        if request.objects.is_empty() {
            return Ok(());
        }
        let environment = self.existing_or_new(request.dataset_id)?;
        for portion in portions(&request.objects) {
            environment
                .write(|txn, database| {
                    for object in portion {
                        for (name, data) in &object.fields {
                            let key = key_of(request.table, object.object_id, name);
                            let header = encode_header(&Header::of(data));
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
                .map_err(|error| self.write_failure(portion, &error))?;
        }
        Ok(())
    }

    fn write_failure(&self, portion: &[NewObject], error: &heed::Error) -> StoreError {
        // LMDB reports a write that the disk took only half of as an input/output error.
        if let heed::Error::Io(io) = error
            && io.raw_os_error() == Some(libc::EIO)
            && free_bytes(&self.folder).is_ok_and(|free| free < size_of_objects(portion) as u64)
        {
            let full = io::Error::from_raw_os_error(libc::ENOSPC);
            return self.failure("writing objects", &full.into());
        }
        self.failure("writing objects", error)
    }

    fn delete(&self, table: Table, dataset_id: Id, object_ids: &[Id]) -> Result<(), StoreError> {
        self.refuse_read_only()?;
        let Some(environment) = self.existing(dataset_id)? else {
            return Ok(());
        };
        environment
            .write(|txn, database| {
                for object_id in object_ids {
                    let prefix = key_of(table, *object_id, "");
                    let keys: Vec<Vec<u8>> = database
                        .remap_data_type::<DecodeIgnore>()
                        .prefix_iter(txn, &prefix)?
                        .map(|entry| entry.map(|(key, ())| key.to_vec()))
                        .collect::<heed::Result<_>>()?;
                    for key in keys {
                        database.delete(txn, &key)?;
                    }
                }
                Ok(())
            })
            .map_err(|error| self.failure("deleting objects", &error))
    }

    fn scan(&self, table: Table, dataset_id: Id) -> Result<Vec<Id>, StoreError> {
        let Some(environment) = self.existing(dataset_id)? else {
            return Ok(Vec::new());
        };
        environment
            .read(|txn, database| {
                let mut ids: Vec<Id> = Vec::new();
                let keys = database.remap_data_type::<DecodeIgnore>();
                for entry in keys.prefix_iter(txn, &[table as u8])? {
                    let (key, ()) = entry?;
                    if let Some(id) = key.get(1..17).and_then(Id::from_slice)
                        && ids.last() != Some(&id)
                    {
                        ids.push(id);
                    }
                }
                Ok(ids)
            })
            .map_err(|error| self.failure("listing objects", &error))
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

type Values = Vec<(Arc<str>, Option<Bytes>)>;

/// Copies the values out, so that the transaction is short: a long one pins pages and makes the file grow.
fn read_values(
    txn: &heed::RoTxn<'_, heed::WithoutTls>,
    database: &heed::Database<heed::types::Bytes, heed::types::Bytes>,
    request: &ReadRequest,
) -> heed::Result<Values> {
    let mut values = Values::new();
    match &request.fields {
        Fields::All => {
            let prefix = key_of(request.table, request.object_id, "");
            for entry in database.prefix_iter(txn, &prefix)? {
                let (key, value) = entry?;
                let name = String::from_utf8_lossy(&key[prefix.len()..]);
                values.push((name.into(), Some(Bytes::copy_from_slice(value))));
            }
        }
        Fields::Named(names) => {
            for name in names.iter() {
                let value = database.get(txn, &key_of(request.table, request.object_id, name))?;
                values.push((Arc::clone(name), value.map(Bytes::copy_from_slice)));
            }
        }
    }
    Ok(values)
}

fn key_of(table: Table, object_id: Id, field: &str) -> Vec<u8> {
    let mut key = Vec::with_capacity(1 + Id::LENGTH + field.len());
    key.push(table as u8);
    key.extend_from_slice(object_id.as_bytes());
    key.extend_from_slice(field.as_bytes());
    key
}

fn encode_header(header: &Header) -> [u8; HEADER_BYTES] {
    let mut bytes = [0; HEADER_BYTES];
    bytes[0] = header.layout.cast_unsigned();
    bytes[8..16].copy_from_slice(&header.total_bytes.to_le_bytes());
    bytes[16..24].copy_from_slice(&header.xxh3.to_le_bytes());
    bytes
}

fn decode(name: Arc<str>, value: &Bytes) -> Result<FieldData, String> {
    if value.len() < HEADER_BYTES {
        return Err(format!("{} bytes of its header are there", value.len()));
    }
    let number = |from: usize| {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&value[from..from + 8]);
        u64::from_le_bytes(bytes)
    };
    let header = Header {
        layout: value[0].cast_signed(),
        // A value is never cut in LMDB: one chunk, however long.
        chunk_bytes: u32::MAX,
        total_bytes: number(8),
        xxh3: number(16),
    };
    codec::assemble(name, header, vec![(0, value.slice(HEADER_BYTES..))])
}

fn size_of_objects(objects: &[NewObject]) -> usize {
    let fields = objects.iter().flat_map(|object| &object.fields);
    fields.map(|(_, data)| data.len()).sum()
}

/// Cuts a request into transactions of bounded size; a single object is never cut.
fn portions(objects: &[NewObject]) -> impl Iterator<Item = &[NewObject]> {
    let mut rest = objects;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let mut count = 0;
        for object in rest {
            bytes += size_of_objects(std::slice::from_ref(object));
            if count > 0 && bytes > TRANSACTION_BYTES {
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
            fs::read_dir(&shared.folder)
                .map(drop)
                .map_err(|error| shared.failure("looking into the store's folder", &error.into()))
        })
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.shared.is_closed.store(true, Ordering::Relaxed);
            self.shared.environments().clear();
        })
    }

    fn lanes(&self) -> usize {
        crate::process::MAX_BLOCKING_THREADS
    }
}
