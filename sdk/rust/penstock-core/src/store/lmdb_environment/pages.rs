//! Pages of LMDB's file, taken apart without trust: every number is checked before it is followed.
//!
//! LMDB itself follows them unseen, and a flipped bit in a page makes it read or write anywhere in memory.

/// What a file that LMDB would crash on, or read wrong bytes from, has wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Damage(pub String);

pub(crate) type Checked<T> = Result<T, Damage>;

pub(crate) fn damage<T>(what: impl Into<String>) -> Checked<T> {
    Err(Damage(what.into()))
}

pub(crate) const PAGE_HEADER_BYTES: usize = 16;
/// A page header and what LMDB keeps in a meta page.
pub(crate) const META_BYTES: usize = PAGE_HEADER_BYTES + 136;
/// The root of a tree without pages.
pub(crate) const NO_PAGE: u64 = u64::MAX;
/// LMDB's cursors hold no more levels.
pub(crate) const MAX_DEPTH: u16 = 32;

/// A process can address no more than this: mapping it would fail for want of memory, which says nothing of the damage.
const MAX_MAP_BYTES: u64 = 1 << 47;
const MAGIC: u32 = 0xbeef_c0de;
const FORMAT: u32 = 1;
const NODE_HEADER_BYTES: usize = 8;
const INTEGER_KEYS: u16 = 0x08;

const BRANCH: u16 = 0x01;
const LEAF: u16 = 0x02;
const OVERFLOW: u16 = 0x04;
const META: u16 = 0x08;

/// One of the two trees of a file: entries, or free pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tree {
    pub depth: u16,
    pub branch_pages: u64,
    pub leaf_pages: u64,
    pub entries: u64,
    pub root: u64,
}

/// One of the two first pages of a file. A commit writes the one that its number has the parity of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Meta {
    pub page_bytes: usize,
    pub map_bytes: u64,
    pub free: Tree,
    pub main: Tree,
    pub last_page: u64,
    pub commit: u64,
}

impl Meta {
    pub fn parse(bytes: &[u8; META_BYTES], number: u64) -> Checked<Self> {
        let is_meta = u64_at(bytes, 0) == number && u16_at(bytes, 10) == META;
        if !is_meta || u32_at(bytes, 16) != MAGIC || u32_at(bytes, 20) != FORMAT {
            return damage(format!("page {number} is no head of an LMDB file"));
        }
        let page_bytes = u32_at(bytes, 40) as usize;
        let meta = Self {
            page_bytes,
            map_bytes: u64_at(bytes, 32),
            free: tree_at(bytes, 40),
            main: tree_at(bytes, 88),
            last_page: u64_at(bytes, 136),
            commit: u64_at(bytes, 144),
        };
        let flags = [u16_at(bytes, 44), u16_at(bytes, 92)];
        let has_sound_page_size =
            page_bytes.is_power_of_two() && (512..=1 << 15).contains(&page_bytes);
        let has_room = meta
            .last_page
            .checked_add(1)
            .and_then(|pages| pages.checked_mul(page_bytes as u64))
            .is_some_and(|needed| needed <= meta.map_bytes);
        let is_sound = has_sound_page_size
            && has_room
            && meta.map_bytes < MAX_MAP_BYTES
            && meta.last_page >= 1
            && flags == [INTEGER_KEYS, 0]
            && u32_at(bytes, 88) == 0
            && [meta.free, meta.main]
                .iter()
                .all(|tree| tree.is_sound(meta.last_page));
        if is_sound {
            return Ok(meta);
        }
        damage(format!("head {number} of the file contradicts itself"))
    }
}

impl Tree {
    fn is_sound(&self, last_page: u64) -> bool {
        if self.root == NO_PAGE {
            return self.depth == 0 && self.entries == 0;
        }
        (1..=MAX_DEPTH).contains(&self.depth) && (2..=last_page).contains(&self.root)
    }
}

fn tree_at(bytes: &[u8; META_BYTES], from: usize) -> Tree {
    Tree {
        depth: u16_at(bytes, from + 6),
        branch_pages: u64_at(bytes, from + 8),
        leaf_pages: u64_at(bytes, from + 16),
        entries: u64_at(bytes, from + 32),
        root: u64_at(bytes, from + 40),
    }
}

/// A page of a tree.
#[derive(Debug)]
pub(crate) struct Page {
    number: u64,
    bytes: Vec<u8>,
    is_leaf: bool,
    nodes: usize,
}

/// Where the bytes of an entry are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    Inline(&'a [u8]),
    /// On pages of their own, from this one on.
    Apart {
        page: u64,
        len: usize,
    },
}

impl Page {
    pub fn parse(number: u64, bytes: Vec<u8>) -> Checked<Self> {
        let [flags, lower, upper] = [10, 12, 14].map(|from| u16_at(&bytes, from));
        let (lower, upper) = (usize::from(lower), usize::from(upper));
        let is_tree_page = flags == BRANCH || flags == LEAF;
        let has_sound_bounds =
            PAGE_HEADER_BYTES <= lower && lower <= upper && upper <= bytes.len() && lower % 2 == 0;
        if u64_at(&bytes, 0) != number || !is_tree_page || !has_sound_bounds {
            return damage(format!("page {number} is no page of the tree"));
        }
        let nodes = (lower - PAGE_HEADER_BYTES) / 2;
        if nodes == 0 {
            return damage(format!("page {number} is empty"));
        }
        Ok(Self {
            number,
            is_leaf: flags == LEAF,
            nodes,
            bytes,
        })
    }

    pub const fn number(&self) -> u64 {
        self.number
    }

    pub const fn is_leaf(&self) -> bool {
        self.is_leaf
    }

    pub const fn nodes(&self) -> usize {
        self.nodes
    }

    /// Where a node starts, and its bytes from there to the end of the page.
    fn node(&self, index: usize) -> Checked<(usize, &[u8])> {
        let start = usize::from(u16_at(&self.bytes, PAGE_HEADER_BYTES + 2 * index));
        let first = PAGE_HEADER_BYTES + 2 * self.nodes;
        match self.bytes.get(start..) {
            Some(node) if start >= first && node.len() >= NODE_HEADER_BYTES => Ok((start, node)),
            _ => damage(format!(
                "entry {index} of page {} lies outside of it",
                self.number
            )),
        }
    }

    pub fn key(&self, index: usize) -> Checked<&[u8]> {
        let (_, node) = self.node(index)?;
        let end = NODE_HEADER_BYTES + usize::from(u16_at(node, 6));
        self.inside(index, node.get(NODE_HEADER_BYTES..end))
    }

    fn inside<'a>(&self, index: usize, part: Option<&'a [u8]>) -> Checked<&'a [u8]> {
        part.map_or_else(
            || {
                damage(format!(
                    "entry {index} of page {} is too long for it",
                    self.number
                ))
            },
            Ok,
        )
    }

    /// The page below a branch.
    pub fn child(&self, index: usize) -> Checked<u64> {
        let (_, node) = self.node(index)?;
        let [low, middle, high] = [0, 2, 4].map(|from| u64::from(u16_at(node, from)));
        Ok(low | middle << 16 | high << 32)
    }

    pub fn value(&self, index: usize) -> Checked<Value<'_>> {
        let (_, node) = self.node(index)?;
        let len = u32_at(node, 0) as usize;
        let from = NODE_HEADER_BYTES + self.key(index)?.len();
        match u16_at(node, 4) {
            0 => Ok(Value::Inline(
                self.inside(index, node.get(from..from + len))?,
            )),
            1 => {
                let place = self.inside(index, node.get(from..from + 8))?;
                Ok(Value::Apart {
                    page: u64_at(place, 0),
                    len,
                })
            }
            flags => damage(format!(
                "entry {index} of page {} is of kind {flags}",
                self.number
            )),
        }
    }

    /// The index of the first entry whose key is not below `key`.
    pub fn seek(&self, key: &[u8]) -> Checked<usize> {
        self.partition_point(0, |found| found < key)
    }

    /// The branch that leads to `key`. The first one stands for everything below the second key.
    pub fn branch_to(&self, key: &[u8]) -> Checked<usize> {
        Ok(self.partition_point(1, |found| found <= key)? - 1)
    }

    fn partition_point(&self, from: usize, is_before: impl Fn(&[u8]) -> bool) -> Checked<usize> {
        let (mut low, mut high) = (from, self.nodes);
        while low < high {
            let middle = usize::midpoint(low, high);
            if is_before(self.key(middle)?) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        Ok(low)
    }

    /// LMDB moves nodes about inside a page and relies on their lying side by side up to its end.
    pub fn check_tiling(&self) -> Checked<()> {
        let mut spans = Vec::with_capacity(self.nodes);
        for index in 0..self.nodes {
            let (start, _) = self.node(index)?;
            let mut len = NODE_HEADER_BYTES + self.key(index)?.len();
            if self.is_leaf {
                len += match self.value(index)? {
                    Value::Inline(bytes) => bytes.len(),
                    Value::Apart { .. } => 8,
                };
            }
            spans.push((start, start + len.next_multiple_of(2)));
        }
        spans.sort_unstable();
        let upper = usize::from(u16_at(&self.bytes, 14));
        let end = spans
            .iter()
            .try_fold(upper, |at, (start, end)| (*start == at).then_some(*end));
        if end == Some(self.bytes.len()) {
            return Ok(());
        }
        damage(format!(
            "the entries of page {} lie over each other",
            self.number
        ))
    }
}

/// How many pages a value takes that lies apart.
pub(crate) const fn pages_of(len: usize, page_bytes: usize) -> u64 {
    (PAGE_HEADER_BYTES + len).div_ceil(page_bytes) as u64
}

/// How many pages the head of a value that lies apart says it has.
pub(crate) fn overflow_pages(number: u64, head: &[u8]) -> Checked<u64> {
    if u64_at(head, 0) != number || u16_at(head, 10) != OVERFLOW {
        return damage(format!("page {number} is not the start of a value"));
    }
    Ok(u64::from(u32_at(head, 12)))
}

fn array_at<const N: usize>(bytes: &[u8], from: usize) -> [u8; N] {
    let mut array = [0; N];
    array.copy_from_slice(&bytes[from..from + N]);
    array
}

fn u16_at(bytes: &[u8], from: usize) -> u16 {
    u16::from_ne_bytes(array_at(bytes, from))
}

fn u32_at(bytes: &[u8], from: usize) -> u32 {
    u32::from_ne_bytes(array_at(bytes, from))
}

pub(crate) fn u64_at(bytes: &[u8], from: usize) -> u64 {
    u64::from_ne_bytes(array_at(bytes, from))
}
