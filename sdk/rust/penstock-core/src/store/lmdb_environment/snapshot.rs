//! One commit of an LMDB file, read with `pread`: whatever the file holds, and however short it is, the worst that
//! can come of it is an error. A transaction has to be open meanwhile, so that the pages of the commit stay in place.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::rc::Rc;

use bytes::Bytes;

use super::pages::{
    Checked, META_BYTES, Meta, PAGE_HEADER_BYTES, Page, Tree, Value, damage, overflow_pages,
    pages_of,
};
use super::{EnvironmentError, Result};
use crate::arena::Pool;

/// Device and inode: the same under every name of a file, and no other file's as long as it is open.
pub(super) type FileIdentity = (u64, u64);

/// The data file of an environment.
#[derive(Debug)]
pub(crate) struct DataFile(File);

impl DataFile {
    /// The identity of the data file in `folder`, if there is one.
    pub fn identity_in(folder: &Path) -> io::Result<Option<FileIdentity>> {
        match Self::open(folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            other => other?.identity().map(Some),
        }
    }

    pub fn identity(&self) -> io::Result<FileIdentity> {
        let file = self.0.metadata()?;
        Ok((file.dev(), file.ino()))
    }

    pub fn open(folder: &Path) -> io::Result<Self> {
        File::open(folder.join("data.mdb")).map(Self)
    }

    /// Checks what LMDB believes unseen when it opens the file. A new file is still empty.
    pub fn check_heads(&self) -> Result<()> {
        if self.0.metadata()?.len() == 0 {
            return Ok(());
        }
        let first = self.meta(0, 0)?;
        let second = self.meta(1, first.page_bytes)?;
        let is_new = first.commit == 0 && second.commit == 0;
        let are_neighbours = first.commit.abs_diff(second.commit) == 1;
        if second.page_bytes != first.page_bytes || !(is_new || are_neighbours) {
            damage("the two heads of the file contradict each other")?;
        }
        Ok(())
    }

    /// The size of a page, which never changes.
    pub fn page_bytes(&self) -> Result<usize> {
        Ok(self.meta(0, 0)?.page_bytes)
    }

    /// The size of the map that the last commit needs, in whole pages of this machine.
    pub fn map_bytes(&self, page_bytes: usize) -> Result<usize> {
        let heads = [self.meta(0, 0)?, self.meta(1, page_bytes)?];
        let largest = heads.map(|head| head.map_bytes).into_iter().max();
        Ok(usize::try_from(largest.unwrap_or_default()).unwrap_or(usize::MAX))
    }

    /// The commit of this number, or `None` when its head has been written over meanwhile.
    pub fn snapshot(&self, commit: u64, page_bytes: usize) -> Result<Option<Snapshot<'_>>> {
        let place = if commit.is_multiple_of(2) {
            0
        } else {
            page_bytes
        };
        // Read twice: a commit at this very moment may have written half of it.
        match [self.meta(commit % 2, place), self.meta(commit % 2, place)] {
            [Ok(meta), Ok(again)] if meta == again && meta.commit == commit => Ok(Some(Snapshot {
                file: &self.0,
                meta,
                branches: RefCell::default(),
            })),
            [Err(error @ EnvironmentError::Lmdb(_)), _] => Err(error),
            _ => Ok(None),
        }
    }

    fn meta(&self, number: u64, place: usize) -> Result<Meta> {
        let mut bytes = [0; META_BYTES];
        fill(&self.0, &mut bytes, place as u64)?;
        Ok(Meta::parse(&bytes, number)?)
    }
}

/// All entries of one commit.
#[derive(Debug)]
pub(crate) struct Snapshot<'a> {
    file: &'a File,
    pub(super) meta: Meta,
    /// Pages above the leaves, which every look-up passes: few, and read once.
    branches: RefCell<HashMap<u64, Rc<Page>>>,
}

impl Snapshot<'_> {
    /// A cursor at the first entry that is not below `key`.
    pub fn seek(&self, key: &[u8]) -> Result<Cursor<'_>> {
        let tree = self.meta.main;
        let mut path = Vec::with_capacity(usize::from(tree.depth));
        let mut number = tree.root;
        while path.len() < usize::from(tree.depth) {
            let page = self.page(number, tree, path.len())?;
            let index = if page.is_leaf() {
                check_bounds(&path, &page)?;
                page.seek(key)?
            } else {
                let index = page.branch_to(key)?;
                number = page.child(index)?;
                index
            };
            path.push((page, index));
        }
        let mut cursor = Cursor {
            snapshot: self,
            path,
        };
        cursor.leave_end_of_leaf()?;
        Ok(cursor)
    }

    /// A page of a tree, `level` steps below its root.
    pub(super) fn page(&self, number: u64, tree: Tree, level: usize) -> Result<Rc<Page>> {
        let known = self.branches.borrow().get(&number).map(Rc::clone);
        let page = match known {
            Some(page) => page,
            None => self.read_page(number)?,
        };
        if page.is_leaf() != (level + 1 == usize::from(tree.depth)) {
            damage(format!("page {number} is on the wrong level"))?;
        }
        Ok(page)
    }

    fn read_page(&self, number: u64) -> Result<Rc<Page>> {
        self.check_range(number, 1)?;
        let mut bytes = vec![0; self.meta.page_bytes];
        fill(self.file, &mut bytes, self.place(number))?;
        let page = Rc::new(Page::parse(number, bytes)?);
        if !page.is_leaf() {
            let mut branches = self.branches.borrow_mut();
            branches.insert(number, Rc::clone(&page));
        }
        Ok(page)
    }

    pub(super) fn check_range(&self, first: u64, pages: u64) -> Checked<()> {
        let end = first.checked_add(pages);
        if first >= 2 && end.is_some_and(|end| end <= self.meta.last_page + 1) {
            return Ok(());
        }
        damage(format!("page {first} lies outside of the file"))
    }

    fn place(&self, page: u64) -> u64 {
        page * self.meta.page_bytes as u64
    }

    /// All bytes of a value, in memory of `pool` when they lie apart.
    pub fn read(&self, value: Value<'_>, pool: &Pool) -> Result<Bytes> {
        let (page, len) = match value {
            Value::Inline(bytes) => return Ok(Bytes::copy_from_slice(bytes)),
            Value::Apart { page, len } => (page, len),
        };
        let pages = self.check_apart(page, len)?;
        let block = pool.take(PAGE_HEADER_BYTES + len);
        let mut block = block.map_err(|error| heed::Error::Io(error.into()))?;
        self.fill_apart(page, pages, block.as_mut_slice())?;
        Ok(block.into_bytes().slice(PAGE_HEADER_BYTES..))
    }

    /// The first bytes of a value, `most` or as many as there are. The head of one that lies apart is checked.
    pub fn read_start(&self, value: Value<'_>, most: usize) -> Result<Bytes> {
        let (page, len) = match value {
            Value::Inline(bytes) => {
                return Ok(Bytes::copy_from_slice(&bytes[..most.min(bytes.len())]));
            }
            Value::Apart { page, len } => (page, len),
        };
        let pages = self.check_apart(page, len)?;
        let mut bytes = vec![0; PAGE_HEADER_BYTES + most.min(len)];
        self.fill_apart(page, pages, &mut bytes)?;
        Ok(Bytes::from(bytes).slice(PAGE_HEADER_BYTES..))
    }

    /// Reads a value that lies apart into `head` and `rest`, which together are as long as it is. With `is_cached_only`
    /// nothing waits for the disk: what is not in memory is asked for, and `false` says to come again.
    pub fn read_parts(
        &self,
        page: u64,
        head: &mut [u8],
        rest: &mut [u8],
        is_cached_only: bool,
    ) -> Result<bool> {
        let len = head.len() + rest.len();
        let pages = self.check_apart(page, len)?;
        let place = self.place(page);
        let mut page_head = [0; PAGE_HEADER_BYTES];
        let parts = [&mut page_head[..], head, rest];
        if is_cached_only {
            if !fill_from_cache(self.file, parts, place) {
                will_need(self.file, place, PAGE_HEADER_BYTES + len);
                return Ok(false);
            }
        } else {
            let mut place = place;
            for part in parts {
                fill(self.file, part, place)?;
                place += part.len() as u64;
            }
        }
        if overflow_pages(page, &page_head)? != pages {
            damage(format!("the value on page {page} has another length"))?;
        }
        Ok(true)
    }

    fn fill_apart(&self, page: u64, pages: u64, target: &mut [u8]) -> Result<()> {
        fill(self.file, target, self.place(page))?;
        if overflow_pages(page, target)? != pages {
            damage(format!("the value on page {page} has another length"))?;
        }
        Ok(())
    }

    /// How many pages a value takes that lies apart.
    pub(super) fn check_apart(&self, page: u64, len: usize) -> Checked<u64> {
        let pages = pages_of(len, self.meta.page_bytes);
        self.check_range(page, pages)?;
        Ok(pages)
    }

    /// A list of free pages, and how many pages it lies on itself: LMDB may have reserved more than it wrote.
    pub(super) fn read_free_list(&self, value: Value<'_>) -> Result<(Bytes, u64)> {
        let (page, len) = match value {
            Value::Inline(bytes) => return Ok((Bytes::copy_from_slice(bytes), 0)),
            Value::Apart { page, len } => (page, len),
        };
        let needed = self.check_apart(page, len)?;
        let mut bytes = vec![0; PAGE_HEADER_BYTES + len];
        fill(self.file, &mut bytes, self.place(page))?;
        let pages = overflow_pages(page, &bytes)?;
        self.check_range(page, pages)?;
        if pages < needed {
            damage(format!("the list of free pages on page {page} is cut off"))?;
        }
        Ok((Bytes::from(bytes).slice(PAGE_HEADER_BYTES..), pages))
    }
}

/// A place in the order of the entries: the pages from the root to a leaf, and the index taken in each.
#[derive(Debug)]
pub(crate) struct Cursor<'a> {
    snapshot: &'a Snapshot<'a>,
    path: Vec<(Rc<Page>, usize)>,
}

impl Cursor<'_> {
    /// Key and value of the entry here, `None` behind the last one.
    pub fn entry(&self) -> Result<Option<(&[u8], Value<'_>)>> {
        match self.path.last() {
            Some((leaf, index)) if *index < leaf.nodes() => {
                Ok(Some((leaf.key(*index)?, leaf.value(*index)?)))
            }
            _ => Ok(None),
        }
    }

    /// As `entry`, while the key starts with `prefix`.
    pub fn entry_of(&self, prefix: &[u8]) -> Result<Option<(&[u8], Value<'_>)>> {
        let entry = self.entry()?;
        Ok(entry.filter(|(key, _)| key.starts_with(prefix)))
    }

    /// Whether the page of this entry has all the entries that were written to it: a damaged count leaves some out.
    pub fn check_page(&self) -> Result<()> {
        match self.path.last() {
            Some((leaf, _)) => Ok(leaf.check_tiling()?),
            None => Ok(()),
        }
    }

    pub fn advance(&mut self) -> Result<()> {
        let Some((leaf, index)) = self.path.last_mut() else {
            return Ok(());
        };
        let before = leaf.key(*index)?.to_vec();
        *index += 1;
        self.leave_end_of_leaf()?;
        match self.entry()? {
            // Else a damaged branch could lead round in a circle.
            Some((key, _)) if key <= before.as_slice() => Ok(damage("the keys are out of order")?),
            _ => Ok(()),
        }
    }

    /// Goes one entry back; `false` when this is the first.
    pub fn go_back(&mut self) -> Result<bool> {
        let Some(level) = self.path.iter().rposition(|(_, index)| *index > 0) else {
            return Ok(false);
        };
        self.path[level].1 -= 1;
        self.descend(level, Page::nodes)?;
        Ok(true)
    }

    /// Behind the last entry of a leaf is the first one of the next leaf, if there is one.
    fn leave_end_of_leaf(&mut self) -> Result<()> {
        match self.path.last() {
            Some((leaf, index)) if *index >= leaf.nodes() => {}
            _ => return Ok(()),
        }
        let branches = &self.path[..self.path.len() - 1];
        let Some(level) = branches
            .iter()
            .rposition(|(page, index)| index + 1 < page.nodes())
        else {
            return Ok(());
        };
        self.path[level].1 += 1;
        self.descend(level, |_| 1)
    }

    /// Takes, below `level`, on each page the entry before the one that `end_of` names.
    fn descend(&mut self, level: usize, end_of: fn(&Page) -> usize) -> Result<()> {
        let tree = self.snapshot.meta.main;
        self.path.truncate(level + 1);
        while let Some((page, index)) = self.path.last()
            && !page.is_leaf()
        {
            let child = page.child(*index)?;
            let below = self.snapshot.page(child, tree, self.path.len())?;
            below.check_tiling()?;
            let index = end_of(&below) - 1;
            self.path.push((below, index));
        }
        Ok(())
    }
}

/// A damaged branch leads to a sound leaf of other keys, where the one that is looked for is absent.
fn check_bounds(branches: &[(Rc<Page>, usize)], leaf: &Page) -> Checked<()> {
    let (first, last) = (leaf.key(0)?, leaf.key(leaf.nodes() - 1)?);
    for (page, index) in branches {
        let is_above = *index == 0 || page.key(*index)? <= first;
        let is_below = index + 1 == page.nodes() || last < page.key(index + 1)?;
        if !is_above || !is_below {
            return damage(format!("page {} has the keys of another", leaf.number()));
        }
    }
    Ok(())
}

/// Whether all parts could be read, one after the other, from what the system has in memory.
fn fill_from_cache(file: &File, parts: [&mut [u8]; 3], place: u64) -> bool {
    let wanted: usize = parts.iter().map(|part| part.len()).sum();
    let vectors = parts.map(|part| libc::iovec {
        iov_base: part.as_mut_ptr().cast(),
        iov_len: part.len(),
    });
    let Ok(place) = libc::off_t::try_from(place) else {
        return false;
    };
    // SAFETY: the vectors are slices that are borrowed for writing until the call is over.
    let count = unsafe {
        libc::preadv2(
            file.as_raw_fd(),
            vectors.as_ptr(),
            3,
            place,
            libc::RWF_NOWAIT,
        )
    };
    usize::try_from(count) == Ok(wanted)
}

/// Lets the system read ahead, many places at once.
fn will_need(file: &File, place: u64, len: usize) {
    let (Ok(place), Ok(len)) = (libc::off_t::try_from(place), libc::off_t::try_from(len)) else {
        return;
    };
    // SAFETY: advice about a range of an open file; it touches no memory of this process.
    unsafe { libc::posix_fadvise(file.as_raw_fd(), place, len, libc::POSIX_FADV_WILLNEED) };
}

fn fill(file: &File, bytes: &mut [u8], place: u64) -> Result<()> {
    match file.read_exact_at(bytes, place) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            Ok(damage(format!("the file ends before byte {place}"))?)
        }
        other => Ok(other?),
    }
}
