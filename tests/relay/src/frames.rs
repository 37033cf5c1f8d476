//! Where the answers of CQL begin in what a connection carries, so that two of them can be exchanged.

const HEADER_BYTES: usize = 9;
/// First byte of an answer in version 4 of the protocol.
const ANSWER: u8 = 0x84;
/// The kind of an answer that has rows.
const RESULT: u8 = 0x08;

/// Follows the frames of one direction. What is not CQL is left alone from its first odd byte on.
#[derive(Default)]
pub struct Frames {
    header: [u8; HEADER_BYTES],
    header_bytes: usize,
    body_left: usize,
    is_foreign: bool,
}

impl Frames {
    /// The places of the headers of results that lie in these bytes as a whole.
    pub fn results(&mut self, bytes: &[u8]) -> Vec<usize> {
        let mut places = Vec::new();
        let mut place = 0;
        while !self.is_foreign {
            let body = self.body_left.min(bytes.len() - place);
            self.body_left -= body;
            place += body;
            let part = (HEADER_BYTES - self.header_bytes).min(bytes.len() - place);
            if part == 0 {
                break;
            }
            self.header[self.header_bytes..][..part].copy_from_slice(&bytes[place..place + part]);
            self.header_bytes += part;
            place += part;
            self.is_foreign = self.header[0] != ANSWER;
            if self.header_bytes == HEADER_BYTES {
                self.header_bytes = 0;
                let [.., kind, a, b, c, d] = self.header;
                self.body_left = u32::from_be_bytes([a, b, c, d]) as usize;
                if kind == RESULT && part == HEADER_BYTES {
                    places.push(place - HEADER_BYTES);
                }
            }
        }
        places
    }
}

/// Give the answer at one place to the request of the other and the other way round.
pub fn exchange(bytes: &mut [u8], one: usize, other: usize) {
    for byte in 2..4 {
        bytes.swap(one + byte, other + byte);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(stream: u8, kind: u8, body: &[u8]) -> Vec<u8> {
        let length = u8::try_from(body.len()).unwrap();
        [&[ANSWER, 0, 0, stream, kind, 0, 0, 0, length], body].concat()
    }

    #[test]
    fn headers_are_found_however_the_bytes_are_cut() {
        let bytes = [frame(1, RESULT, b"first"), frame(2, 0x06, b""), frame(3, RESULT, &[ANSWER; 20])].concat();
        assert_eq!(Frames::default().results(&bytes), [0, 23]);
        for cut in 1..bytes.len() {
            let mut frames = Frames::default();
            let mut places = frames.results(&bytes[..cut]);
            places.extend(frames.results(&bytes[cut..]).iter().map(|place| place + cut));
            let whole = [0, 23].into_iter().filter(|place| !(place + 1..place + 9).contains(&cut));
            assert_eq!(places, whole.collect::<Vec<_>>(), "cut at {cut}");
        }
    }

    #[test]
    fn other_protocols_are_left_alone() {
        let mut frames = Frames::default();
        assert!(frames.results(&[0; 1000]).is_empty());
        assert!(frames.results(&frame(1, RESULT, b"late")).is_empty());
    }

    #[test]
    fn exchanged_answers_keep_their_bodies_and_lengths() {
        let mut bytes = [frame(1, RESULT, b"one"), frame(2, RESULT, b"other")].concat();
        exchange(&mut bytes, 0, 12);
        assert_eq!(bytes, [frame(2, RESULT, b"one"), frame(1, RESULT, b"other")].concat());
    }
}
