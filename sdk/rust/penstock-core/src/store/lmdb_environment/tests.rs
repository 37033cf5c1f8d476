//! The reader against LMDB's own files: sound ones are never called damaged, damaged ones never believed.
#![allow(clippy::unwrap_used)] // the steps of a test stand outside of `#[test]` functions here

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

use proptest::prelude::*;

use super::*;
use crate::arena::Pool;

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

#[derive(Debug, Clone)]
enum Change {
    Put(u8, usize),
    Delete(u8),
}

fn key_of(number: u8) -> Vec<u8> {
    // Spread out, long and short, as hashes and names are.
    let mut key = blake3::hash(&[number]).as_bytes()[..17].to_vec();
    key.extend(std::iter::repeat_n(b'f', usize::from(number % 60)));
    key
}

fn content_of(number: u8, len: usize) -> Vec<u8> {
    (0..=u8::MAX)
        .cycle()
        .skip(usize::from(number))
        .take(len)
        .collect()
}

fn apply(environment: &Environment, model: &mut Model, changes: &[Change]) {
    // One put a key and transaction, as the store does it.
    let mut latest: BTreeMap<u8, &Change> = BTreeMap::new();
    for change in changes {
        let (Change::Put(number, _) | Change::Delete(number)) = change;
        latest.insert(*number, change);
    }
    environment
        .write(|txn, database, _| {
            for change in latest.values() {
                match change {
                    Change::Put(number, len) => {
                        database.put(txn, &key_of(*number), &content_of(*number, *len))?;
                    }
                    Change::Delete(number) => _ = database.delete(txn, &key_of(*number))?,
                }
            }
            Ok(())
        })
        .unwrap();
    for change in latest.into_values() {
        match change {
            Change::Put(number, len) => {
                model.insert(key_of(*number), content_of(*number, *len));
            }
            Change::Delete(number) => {
                model.remove(&key_of(*number));
            }
        }
    }
}

fn all_of(snapshot: &Snapshot<'_>) -> Result<Model> {
    let pool = Pool::new(0);
    let mut model = Model::new();
    let mut cursor = snapshot.seek(&[])?;
    while let Some((key, value)) = cursor.entry()? {
        model.insert(key.to_vec(), snapshot.read(value, &pool)?.to_vec());
        cursor.advance()?;
    }
    Ok(model)
}

fn all_of_backwards(snapshot: &Snapshot<'_>) -> Result<Vec<Vec<u8>>> {
    let mut keys = Vec::new();
    let mut cursor = snapshot.seek(&[0xff; 100])?;
    while cursor.go_back()? {
        keys.extend(cursor.entry()?.map(|(key, _)| key.to_vec()));
    }
    Ok(keys)
}

fn changes() -> impl Strategy<Value = Vec<Vec<Change>>> {
    let len = prop_oneof![0_usize..100, 0_usize..3000, 0_usize..40_000];
    let change = prop_oneof![
        3 => (any::<u8>(), len).prop_map(|(number, len)| Change::Put(number, len)),
        1 => any::<u8>().prop_map(Change::Delete),
    ];
    prop::collection::vec(prop::collection::vec(change, 1..60), 1..12)
}

#[test]
fn map_larger_than_the_machine_is_refused_and_the_old_one_kept() {
    let folder = tempfile::tempdir().unwrap();
    let environment = Environment::open(folder.path(), 1 << 16).unwrap();
    apply(&environment, &mut Model::new(), &[Change::Put(1, 10)]);
    environment.move_map(1 << 60).unwrap_err();
    assert_eq!(environment.read(all_of).unwrap().len(), 1);
    apply(&environment, &mut Model::new(), &[Change::Put(2, 10)]);
}

#[test]
fn nobody_looks_into_the_map_while_it_is_moved() {
    const MAP_BYTES: usize = 1 << 16;
    let folder = tempfile::tempdir().unwrap();
    let environment = Environment::open(folder.path(), MAP_BYTES).unwrap();
    apply(&environment, &mut Model::new(), &[Change::Put(1, 10)]);
    for _ in 0..200 {
        std::thread::scope(|scope| {
            let alone = environment.gate.write().unwrap();
            for _ in 0..2 {
                scope.spawn(|| environment.write(|_, _, _| Ok(())).unwrap());
                scope.spawn(|| assert_eq!(environment.read(all_of).unwrap().len(), 1));
            }
            // Often enough for the threads to start meanwhile: to look into a map that is gone ends the process.
            for _ in 0..200 {
                environment.move_map(MAP_BYTES).unwrap();
            }
            drop(alone);
        });
    }
}

#[test]
fn closing_environment_is_waited_for_and_never_opened_beside() {
    let folder = tempfile::tempdir().unwrap();
    written(folder.path());
    let own_name = folder.path().canonicalize().unwrap();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..1000 {
                    let environment = Environment::open(folder.path(), 1 << 16).unwrap();
                    assert_eq!(environment.env.path(), own_name);
                    environment.read(|_| Ok(())).unwrap();
                }
            });
        }
    });
}

#[test]
fn one_file_in_two_folders_is_opened_once() {
    let folder = tempfile::tempdir().unwrap();
    written(folder.path());
    let other = tempfile::tempdir().unwrap();
    for name in ["data.mdb", "lock.mdb"] {
        fs::hard_link(folder.path().join(name), other.path().join(name)).unwrap();
    }
    let environment = Environment::open(folder.path(), 1 << 16).unwrap();
    let same = Environment::open(other.path(), 1 << 16).unwrap();
    assert!(Arc::ptr_eq(&environment, &same));
}

#[test]
fn read_only_medium_is_not_full() {
    let folder = tempfile::tempdir().unwrap();
    let mut disk = disk_of(folder.path()).unwrap();
    disk.f_flag = 0;
    disk.f_frsize = 4096;
    for (free, is_full_disk) in [(0, true), (255, true), (256, false)] {
        disk.f_bavail = free;
        assert_eq!(
            is_full(&disk),
            is_full_disk,
            "{free} of {LOCK_FILE_BYTES} bytes"
        );
    }
    disk.f_bavail = 0;
    disk.f_flag = libc::ST_RDONLY | libc::ST_NOSUID;
    assert!(!is_full(&disk));
}

/// Tells a process of this test program which folder to read.
const FOLDER_TO_READ: &str = "PENSTOCK_TEST_FOLDER_TO_READ";

#[test]
#[ignore = "a process of its own for the test below, which kills it"]
fn reader_that_does_not_end() {
    let Some(folder) = std::env::var_os(FOLDER_TO_READ) else {
        return;
    };
    let environment = Environment::open(Path::new(&folder), 1 << 16).unwrap();
    environment
        .read(|_| -> Result<()> {
            println!("reading");
            loop {
                std::thread::park();
            }
        })
        .unwrap();
}

fn kill_a_reader_of(folder: &Path) {
    let mut reader = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--nocapture", "reader_that_does_not_end"])
        .env(FOLDER_TO_READ, folder)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(reader.stdout.take().unwrap()).lines();
    let is_reading = output.any(|line| line.unwrap().contains("reading"));
    reader.kill().unwrap();
    reader.wait().unwrap();
    assert!(is_reading);
}

#[test]
fn file_does_not_grow_behind_a_killed_reader() {
    const MAP_BYTES: usize = 1 << 18;
    let folder = tempfile::tempdir().unwrap();
    let environment = Environment::open(folder.path(), MAP_BYTES).unwrap();
    let rewrite = || apply(&environment, &mut Model::new(), &[Change::Put(1, 20_000)]);
    rewrite();
    kill_a_reader_of(folder.path());
    for _ in 0..40 {
        rewrite();
    }
    let file = fs::metadata(folder.path().join("data.mdb")).unwrap();
    assert!(file.len() <= MAP_BYTES as u64, "{} bytes", file.len());
}

proptest! {
    #![proptest_config(crate::soak::cases(12, 300))]

    #[test]
    fn sound_files_are_read_whole_and_pass_the_check(rounds in changes()) {
        let folder = tempfile::tempdir().unwrap();
        let environment = Environment::open(folder.path(), 1 << 16).unwrap();
        let mut model = Model::new();
        for changes in &rounds {
            apply(&environment, &mut model, changes);
            environment.read(check::check).unwrap();
            prop_assert_eq!(&environment.read(all_of).unwrap(), &model);
            let backwards = environment.read(all_of_backwards).unwrap();
            prop_assert!(backwards.iter().eq(model.keys().rev()));
            for number in 0..=u8::MAX {
                let key = key_of(number);
                let found = environment.read(|snapshot| {
                    let cursor = snapshot.seek(&key)?;
                    Ok(cursor.entry()?.map(|(key, _)| key.to_vec()))
                });
                let expected = model.range(key.clone()..).next().map(|(key, _)| key.clone());
                prop_assert_eq!(found.unwrap(), expected);
            }
        }
        check_heads(folder.path()).unwrap();
    }
}

/// How often `written` commits.
const COMMITS: u64 = 12;

/// A file of several levels, with free pages, and what is in it.
fn written(folder: &Path) {
    let environment = Environment::open(folder, 1 << 16).unwrap();
    let mut model = Model::new();
    for round in 0..6_usize {
        let changes: Vec<Change> = (0..=u8::MAX)
            .filter(|number| usize::from(*number) % 3 != round % 3 || round < 2)
            .map(|number| Change::Put(number, usize::from(number) * 37 % 2500 + round))
            .collect();
        apply(&environment, &mut model, &changes);
        let gone: Vec<Change> = (0..40).map(|number| Change::Delete(number * 6)).collect();
        apply(&environment, &mut model, &gone);
    }
    environment.read(check::check).unwrap();
}

/// Bytes of `data.mdb` that a tree page or a head is made of: the rest is content, which has its own checksum.
fn places(bytes: &[u8], page_bytes: usize) -> Vec<usize> {
    let is_structure = |page: &&[u8]| u16::from_ne_bytes([page[10], page[11]]) & 0x0b != 0;
    let pages = bytes.chunks(page_bytes).enumerate();
    pages
        .filter(|(_, page)| is_structure(page))
        .flat_map(|(number, _)| number * page_bytes..(number + 1) * page_bytes)
        .collect()
}

proptest! {
    #![proptest_config(crate::soak::cases(400, 20_000))]

    #[test]
    fn flipped_structure_never_leads_out_of_the_file(
        flips in prop::collection::vec((any::<prop::sample::Index>(), 1_u8..=255), 1..4),
        cut in prop::option::weighted(0.1, any::<prop::sample::Index>()),
    ) {
        static SOUND: LazyLock<(Vec<u8>, Vec<usize>)> = LazyLock::new(|| {
            let folder = tempfile::tempdir().unwrap();
            written(folder.path());
            let bytes = fs::read(folder.path().join("data.mdb")).unwrap();
            let page_bytes = DataFile::open(folder.path()).unwrap().page_bytes().unwrap();
            let places = places(&bytes, page_bytes);
            (bytes, places)
        });
        let (bytes, places) = &*SOUND;
        let mut bytes = bytes.clone();
        for (place, mask) in &flips {
            bytes[*place.get(places)] ^= mask;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("data.mdb"), &bytes).unwrap();
        let data = DataFile::open(folder.path()).unwrap();
        drop(data.check_heads());
        for commit in COMMITS - 1..=COMMITS {
            let Ok(Some(snapshot)) = data.snapshot(commit, 4096) else {
                continue;
            };
            let is_passed = check::check(&snapshot).is_ok();
            let backwards = all_of_backwards(&snapshot);
            drop(all_of(&snapshot));
            if is_passed && cut.is_none() {
                prop_assert_eq!(backwards.unwrap().len() as u64, snapshot.meta.main.entries);
            }
            for number in 0..=u8::MAX {
                drop(snapshot.seek(&key_of(number)).map(|cursor| cursor.entry().is_ok()));
            }
        }
    }
}
