//! Looks at every page of both trees before LMDB is let loose on them to write. Objects that lie apart are not read:
//! they may be a terabyte, and LMDB follows their heads only when they change (see `Snapshot::read_start`).

use std::cmp::Ordering;

use super::Result;
use super::pages::{Checked, NO_PAGE, Page, Tree, Value, damage, u64_at};
use super::snapshot::Snapshot;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Objects,
    FreePages,
}

/// The pages that something has claimed already, as bits.
struct Claimed(Vec<u64>);

impl Claimed {
    fn claim(&mut self, first: u64, pages: u64) -> Checked<()> {
        for page in first..first + pages {
            let word = usize::try_from(page / 64)
                .ok()
                .and_then(|place| self.0.get_mut(place));
            let bit = 1 << (page % 64);
            match word {
                Some(word) if *word & bit == 0 => *word |= bit,
                _ => return damage(format!("page {page} is used twice")),
            }
        }
        Ok(())
    }
}

/// Succeeds when LMDB can change this file without following a wrong number.
pub(super) fn check(snapshot: &Snapshot<'_>) -> Result<()> {
    let words = usize::try_from(snapshot.meta.last_page / 64 + 1).unwrap_or(usize::MAX);
    let mut claimed = Claimed(vec![0; words]);
    claimed.claim(0, 2)?;
    for (kind, tree) in [
        (Kind::Objects, snapshot.meta.main),
        (Kind::FreePages, snapshot.meta.free),
    ] {
        let mut walk = Walk {
            snapshot,
            kind,
            tree,
            claimed: &mut claimed,
            found: Tree {
                branch_pages: 0,
                leaf_pages: 0,
                entries: 0,
                ..tree
            },
        };
        if tree.root != NO_PAGE {
            walk.visit(tree.root, 0, None, None)?;
        }
        if walk.found != tree {
            damage("the head of the file counts other pages than there are")?;
        }
    }
    Ok(())
}

/// A walk over one tree.
struct Walk<'a> {
    snapshot: &'a Snapshot<'a>,
    kind: Kind,
    tree: Tree,
    claimed: &'a mut Claimed,
    /// What has been counted so far.
    found: Tree,
}

impl Walk<'_> {
    /// Checks a page and all below it, whose keys have to be from `low` to before `high`.
    fn visit(
        &mut self,
        number: u64,
        level: usize,
        low: Option<&[u8]>,
        high: Option<&[u8]>,
    ) -> Result<()> {
        let page = self.snapshot.page(number, self.tree, level)?;
        self.claimed.claim(number, 1)?;
        page.check_tiling()?;
        self.check_order(&page, low, high)?;
        if page.is_leaf() {
            self.found.leaf_pages += 1;
            self.found.entries += page.nodes() as u64;
            return (0..page.nodes()).try_for_each(|index| self.check_entry(&page, index));
        }
        self.found.branch_pages += 1;
        if page.nodes() < 2 {
            damage(format!("page {number} has one branch only"))?;
        }
        for index in 0..page.nodes() {
            let low = if index == 0 {
                low
            } else {
                Some(page.key(index)?)
            };
            let high = if index + 1 == page.nodes() {
                high
            } else {
                Some(page.key(index + 1)?)
            };
            self.visit(page.child(index)?, level + 1, low, high)?;
        }
        Ok(())
    }

    fn check_order(&self, page: &Page, low: Option<&[u8]>, high: Option<&[u8]>) -> Checked<()> {
        // The first key of a branch page is never looked at.
        let first = usize::from(!page.is_leaf());
        let mut before = low;
        for index in first..page.nodes() {
            let key = page.key(index)?;
            let is_first = index == first;
            let rises = before.is_none_or(|before| match self.compare(before, key) {
                Ordering::Less => true,
                Ordering::Equal => is_first,
                Ordering::Greater => false,
            });
            let is_known = self.kind == Kind::Objects || key.len() == size_of::<u64>();
            if !rises || !is_known || key.is_empty() {
                return damage(format!(
                    "the keys of page {} are out of order",
                    page.number()
                ));
            }
            before = Some(key);
        }
        match (before, high) {
            (Some(last), Some(high)) if self.compare(last, high) != Ordering::Less => damage(
                format!("the keys of page {} belong on another page", page.number()),
            ),
            _ => Ok(()),
        }
    }

    fn compare(&self, left: &[u8], right: &[u8]) -> Ordering {
        if self.kind == Kind::FreePages
            && left.len() == right.len()
            && left.len() == size_of::<u64>()
        {
            return u64_at(left, 0).cmp(&u64_at(right, 0));
        }
        left.cmp(right)
    }

    fn check_entry(&mut self, page: &Page, index: usize) -> Result<()> {
        let value = page.value(index)?;
        match (self.kind, value) {
            (Kind::Objects, Value::Inline(_)) => Ok(()),
            (Kind::Objects, Value::Apart { page, len }) => {
                let pages = self.snapshot.check_apart(page, len)?;
                Ok(self.claimed.claim(page, pages)?)
            }
            (Kind::FreePages, value) => {
                let (list, pages) = self.snapshot.read_free_list(value)?;
                if let Value::Apart { page, .. } = value {
                    self.claimed.claim(page, pages)?;
                }
                Ok(self.check_free_list(page.number(), &list)?)
            }
        }
    }

    /// A count and that many page numbers, falling.
    fn check_free_list(&mut self, page: u64, list: &[u8]) -> Checked<()> {
        let words: Vec<u64> = list.chunks_exact(8).map(|word| u64_at(word, 0)).collect();
        let numbers = words.split_first().and_then(|(count, rest)| {
            let count = usize::try_from(*count).ok()?;
            rest.get(..count)
        });
        let Some(numbers) = numbers else {
            return damage(format!("a list of free pages on page {page} is cut off"));
        };
        if !numbers.is_sorted_by(|left, right| left > right) {
            return damage(format!(
                "a list of free pages on page {page} is out of order"
            ));
        }
        for number in numbers {
            self.snapshot.check_range(*number, 1)?;
            self.claimed.claim(*number, 1)?;
        }
        Ok(())
    }
}
