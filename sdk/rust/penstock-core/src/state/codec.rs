//! A state as one line of text: `<format>.<base64url>.<digest>`.
//!
//! One string, because checkpoint libraries mix the leaves of several ranks; with a digest, because a
//! state that was cut or edited must not move a run to the wrong place.

use serde::{Deserialize, Serialize};

use super::{Share, State, StateError};
use crate::order::ALGORITHM;
use crate::plan::Runs;

/// Version of the text form.
pub const FORMAT: u64 = 1;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
const DIGEST_CHARS: usize = 16;

/// What stands in front of the run-length coded places.
#[derive(Debug, Serialize, Deserialize)]
struct Header {
    order: String,
    split: String,
    n: u64,
    shuffle: bool,
    seed: u64,
    epoch: u64,
    steps: u64,
    /// Rank, world size and frontier; absent when merged.
    share: Option<(u64, u64, u64)>,
    /// Absent in states of earlier versions.
    #[serde(default, skip_serializing_if = "is_false")]
    is_end_done: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // the form that serde calls
fn is_false(flag: &bool) -> bool {
    !*flag
}

impl State {
    pub fn encode(&self) -> String {
        let share = self.share.as_ref();
        let header = Header {
            order: ALGORITHM.to_owned(),
            split: self.split_digest.clone(),
            n: self.sample_count,
            shuffle: self.is_shuffled,
            seed: self.seed,
            epoch: self.epoch,
            steps: self.steps,
            share: share.map(|share| (share.rank, share.world_size, share.frontier)),
            is_end_done: share.is_some_and(|share| share.is_end_done),
        };
        let header = serde_json::to_vec(&header).unwrap_or_default();
        let mut payload = Vec::with_capacity(header.len() + 64);
        put_number(&mut payload, header.len() as u64);
        payload.extend(header);
        put_ranges(&mut payload, share.map_or(&[], |share| &share.holes));
        payload.extend(self.base.encoded());
        format!("{FORMAT}.{}.{}", to_base64(&payload), digest(&payload))
    }

    pub fn decode(text: &str) -> Result<Self, StateError> {
        let mut pieces = text.split('.');
        let (Some(format), Some(body), Some(sum), None) =
            (pieces.next(), pieces.next(), pieces.next(), pieces.next())
        else {
            return Err(StateError::NotAState);
        };
        let found = format.parse().map_err(|_| StateError::NotAState)?;
        if found != FORMAT {
            return Err(StateError::Format { found });
        }
        let payload = from_base64(body).ok_or(StateError::Damaged)?;
        if digest(&payload) != sum {
            return Err(StateError::Damaged);
        }
        read_payload(&payload).ok_or(StateError::Damaged)?
    }
}

/// `None` when the payload ends early; an error of its own when the order is another one.
fn read_payload(payload: &[u8]) -> Option<Result<State, StateError>> {
    let mut rest = payload;
    let length = usize::try_from(take_number(&mut rest)?).ok()?;
    let header: Header = serde_json::from_slice(rest.get(..length)?).ok()?;
    rest = rest.get(length..)?;
    if header.order != ALGORITHM {
        return Some(Err(StateError::Order {
            found: header.order,
        }));
    }
    let holes = take_ranges(&mut rest)?;
    let base = Runs::from_ranges(take_ranges(&mut rest)?).into();
    Some(Ok(State {
        split_digest: header.split,
        sample_count: header.n,
        is_shuffled: header.shuffle,
        seed: header.seed,
        epoch: header.epoch,
        steps: header.steps,
        base,
        share: header.share.map(|(rank, world_size, frontier)| Share {
            rank,
            world_size,
            frontier,
            holes,
            is_end_done: header.is_end_done,
        }),
    }))
}

/// A base as it stands in a state; the same at every step of a run.
pub(super) fn encode_base(base: &Runs) -> Vec<u8> {
    let mut encoded = Vec::new();
    put_ranges(&mut encoded, &base.ranges().collect::<Vec<_>>());
    encoded
}

fn digest(payload: &[u8]) -> String {
    let mut hex = blake3::hash(payload).to_hex().to_string();
    hex.truncate(DIGEST_CHARS);
    hex
}

/// Sorted ranges as gaps and lengths: mostly one byte each.
fn put_ranges(target: &mut Vec<u8>, ranges: &[(u64, u64)]) {
    put_number(target, ranges.len() as u64);
    let mut from = 0;
    for (start, length) in ranges {
        put_number(target, start - from);
        put_number(target, *length);
        from = start + length;
    }
}

fn take_ranges(source: &mut &[u8]) -> Option<Vec<(u64, u64)>> {
    let count = take_number(source)?;
    let mut from = 0_u64;
    let mut ranges = Vec::new();
    for _ in 0..count {
        let start = from.checked_add(take_number(source)?)?;
        let length = take_number(source)?;
        from = start.checked_add(length)?;
        ranges.push((start, length));
    }
    Some(ranges)
}

fn put_number(target: &mut Vec<u8>, mut value: u64) {
    loop {
        let low = (value & 0x7f) as u8;
        value >>= 7;
        if value == 0 {
            target.push(low);
            return;
        }
        target.push(low | 0x80);
    }
}

fn take_number(source: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (first, rest) = source.split_first()?;
        *source = rest;
        value |= u64::from(first & 0x7f) << shift;
        if first & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn to_base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let mut padded = [0; 4];
        padded[1..=chunk.len()].copy_from_slice(chunk);
        let word = u32::from_be_bytes(padded);
        let letters = [18, 12, 6, 0].map(|shift| ALPHABET[(word >> shift & 63) as usize]);
        text.extend(letters[..=chunk.len()].iter().copied().map(char::from));
    }
    text
}

fn from_base64(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3 + 2);
    for chunk in text.as_bytes().chunks(4) {
        if chunk.len() == 1 {
            return None;
        }
        let mut word = 0_u32;
        for letter in chunk {
            word = word << 6 | value_of(*letter)?;
        }
        word <<= 6 * (4 - chunk.len());
        let group = word.to_be_bytes();
        let (whole, leftover) = group[1..].split_at(chunk.len() - 1);
        // Bits that no byte takes: were they free, several texts would stand for one state.
        if leftover.iter().any(|byte| *byte != 0) {
            return None;
        }
        bytes.extend(whole);
    }
    Some(bytes)
}

fn value_of(letter: u8) -> Option<u32> {
    let value = match letter {
        b'A'..=b'Z' => letter - b'A',
        b'a'..=b'z' => letter - b'a' + 26,
        b'0'..=b'9' => letter - b'0' + 52,
        b'-' => 62,
        b'_' => 63,
        _ => return None,
    };
    Some(u32::from(value))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn states() -> impl Strategy<Value = State> {
        let ranges = || prop::collection::vec((0_u64..5_000, 1_u64..40), 0..30);
        let numbers = (any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>());
        let share = prop::option::of((0_u64..9, any::<u64>(), ranges(), any::<bool>()));
        ("[ -~]{0,40}", numbers, any::<bool>(), ranges(), share).prop_map(
            |(split_digest, numbers, is_shuffled, base, share)| State {
                split_digest,
                sample_count: numbers.0,
                is_shuffled,
                seed: numbers.1,
                epoch: numbers.2,
                steps: numbers.3,
                base: Runs::from_ranges(base).into(),
                share: share.map(|(rank, frontier, holes, is_end_done)| Share {
                    rank,
                    world_size: rank + 1,
                    frontier,
                    holes: Runs::from_ranges(holes).ranges().collect(),
                    is_end_done,
                }),
            },
        )
    }

    proptest! {
        #[test]
        fn text_round_trips(state in states()) {
            prop_assert_eq!(State::decode(&state.encode()).unwrap(), state);
        }

        #[test]
        fn a_changed_text_is_refused(state in states(), at: prop::sample::Index, with in 0_u8..64) {
            let mut text = state.encode().into_bytes();
            let at = at.index(text.len());
            prop_assume!(text[at] != ALPHABET[usize::from(with)]);
            text[at] = ALPHABET[usize::from(with)];
            prop_assert!(State::decode(std::str::from_utf8(&text).unwrap()).is_err());
        }

        #[test]
        fn any_text_is_refused_without_a_panic(text in ".{0,60}") {
            prop_assert!(State::decode(&text).is_err());
            let framed = ["1.", &text, ".0"].concat();
            prop_assert!(State::decode(&framed).is_err());
        }

        #[test]
        fn base64_round_trips(bytes: Vec<u8>) {
            prop_assert_eq!(from_base64(&to_base64(&bytes)), Some(bytes));
        }
    }

    /// States whose texts end in two, three and four letters of a group.
    fn samples() -> [State; 3] {
        ["", "b", "b3"].map(|split| State {
            split_digest: split.to_owned(),
            sample_count: 9,
            is_shuffled: true,
            seed: 1,
            epoch: 0,
            steps: 0,
            base: Runs::from_ranges([(2, 3)]).into(),
            share: None,
        })
    }

    #[test]
    fn every_other_character_at_every_place_is_refused() {
        let mut lengths = std::collections::BTreeSet::new();
        for state in samples() {
            let text = state.encode().into_bytes();
            lengths.insert(text.len() % 4);
            for at in 0..text.len() {
                for other in ALPHABET.iter().filter(|letter| **letter != text[at]) {
                    let mut changed = text.clone();
                    changed[at] = *other;
                    let changed = String::from_utf8(changed).unwrap();
                    assert!(State::decode(&changed).is_err(), "{changed}");
                }
            }
        }
        assert_eq!(lengths.len(), 3, "every number of leftover bits");
    }

    #[test]
    fn leftover_bits_have_to_be_zero() {
        assert_eq!(from_base64("TWE"), Some(b"Ma".to_vec()));
        assert_eq!(from_base64("TWF"), None);
        assert_eq!(from_base64("TQ"), Some(b"M".to_vec()));
        assert_eq!(from_base64("TR"), None);
    }

    #[test]
    fn a_state_of_another_order_says_so() {
        let header = br#"{"order":"penstock-feistel-9","split":"","n":1,"shuffle":true,"seed":1,"epoch":0,"steps":0,"share":null}"#;
        let mut payload = Vec::new();
        put_number(&mut payload, header.len() as u64);
        payload.extend(header);
        let text = format!("{FORMAT}.{}.{}", to_base64(&payload), digest(&payload));
        let found = "penstock-feistel-9".to_owned();
        let error = State::decode(&text).unwrap_err();
        assert_eq!(error, StateError::Order { found });
        assert!(error.to_string().contains(ALGORITHM), "{error}");
    }

    #[test]
    fn a_state_without_the_newer_mark_is_read() {
        let share = Share {
            rank: 1,
            world_size: 2,
            frontier: 3,
            holes: vec![],
            is_end_done: false,
        };
        let [mut state, ..] = samples();
        state.share = Some(share);
        assert!(
            !String::from_utf8_lossy(
                &from_base64(state.encode().split('.').nth(1).unwrap()).unwrap()
            )
            .contains("is_end_done")
        );
        assert_eq!(State::decode(&state.encode()), Ok(state));
    }

    #[test]
    fn base64_is_the_usual_one() {
        assert_eq!(to_base64(b"Man"), "TWFu");
        assert_eq!(to_base64(b"Ma"), "TWE");
        assert_eq!(to_base64(&[0xfb, 0xff]), "-_8");
    }

    #[test]
    fn a_newer_format_says_so() {
        let error = State::decode("2.abc.def").unwrap_err();
        assert_eq!(error, StateError::Format { found: 2 });
    }
}
