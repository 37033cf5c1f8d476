//! The places done before a run began: many, shared by all of its states, and the same at every step.

use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use super::codec;
use crate::plan::Runs;

/// Places that were done when the run last started. Copies share one set and its encoded form.
#[derive(Debug, Clone, Default)]
pub struct Base(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    runs: Runs,
    encoded: OnceLock<Vec<u8>>,
}

impl Base {
    /// As it stands in a state; made when first asked for.
    pub(super) fn encoded(&self) -> &[u8] {
        let shared = &self.0;
        shared
            .encoded
            .get_or_init(|| codec::encode_base(&shared.runs))
    }
}

impl From<Runs> for Base {
    fn from(runs: Runs) -> Self {
        let encoded = OnceLock::new();
        Self(Arc::new(Shared { runs, encoded }))
    }
}

impl Deref for Base {
    type Target = Runs;

    fn deref(&self) -> &Runs {
        &self.0.runs
    }
}

impl PartialEq for Base {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.runs == other.0.runs
    }
}

impl Eq for Base {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_encoded_once() {
        let base = Base::from(Runs::from_ranges([(3, 2), (9, 1)]));
        let copy = base.clone();
        assert_eq!(base.encoded().as_ptr(), copy.encoded().as_ptr());
        assert_eq!(base.encoded(), [2, 3, 2, 4, 1]);
        assert_eq!(base, Base::from(Runs::from_ranges([(9, 1), (3, 2)])));
        assert_ne!(base, Base::default());
    }
}
