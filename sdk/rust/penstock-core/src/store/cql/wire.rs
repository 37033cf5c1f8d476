//! The few frames of the CQL protocol (version 4) that a data connection speaks: options, begin, log in, prepare, execute.
//!
//! The driver has all of the protocol, but chooses connections itself and opens one in twenty round trips. A lane
//! has to be one connection, opened in two, whose answers are counted as they come in.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use uuid::Uuid;

use crate::checksum::xxh3;

pub(super) const HEADER_BYTES: usize = 9;
/// A page is 16 rows of half a mebibyte; a longer answer is damaged, and must not make us allocate it.
const MAX_BODY_BYTES: usize = 64 << 20;
const REQUEST: u8 = 0x04;
const RESPONSE: u8 = 0x84;

const OP_ERROR: u8 = 0x00;
const OP_STARTUP: u8 = 0x01;
const OP_READY: u8 = 0x02;
const OP_AUTHENTICATE: u8 = 0x03;
const OP_OPTIONS: u8 = 0x05;
const OP_SUPPORTED: u8 = 0x06;
const OP_RESULT: u8 = 0x08;
const OP_PREPARE: u8 = 0x09;
const OP_EXECUTE: u8 = 0x0a;
const OP_AUTH_RESPONSE: u8 = 0x0f;
const OP_AUTH_SUCCESS: u8 = 0x10;

const FRAME_TRACED: u8 = 0x02;
const FRAME_PAYLOAD: u8 = 0x04;
const FRAME_WARNED: u8 = 0x08;

const RESULT_ROWS: i32 = 2;
const RESULT_PREPARED: i32 = 4;
const ROWS_GLOBAL: i32 = 0x01;
const ROWS_MORE: i32 = 0x02;
const ROWS_BARE: i32 = 0x04;

const WITH_VALUES: u8 = 0x01;
const WITHOUT_METADATA: u8 = 0x02;
const WITH_PAGE_SIZE: u8 = 0x04;
const WITH_PAGE: u8 = 0x08;

pub(super) const LOCAL_QUORUM: u16 = 0x0006;
pub(super) const LOCAL_ONE: u16 = 0x000a;

/// What a node says when it does not know a prepared statement (any more).
pub(super) const UNPREPARED: i32 = 0x2500;

/// The bytes are not what the protocol says.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("damaged answer: {0}")]
pub(super) struct Damaged(pub &'static str);

/// The first nine bytes of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    pub stream: i16,
    pub body_bytes: usize,
    flags: u8,
    opcode: u8,
}

impl Head {
    pub fn parse(bytes: &[u8; HEADER_BYTES]) -> Result<Self, Damaged> {
        let mut rest = &bytes[..];
        if rest.get_u8() != RESPONSE {
            return Err(Damaged("not an answer of protocol version 4"));
        }
        let flags = rest.get_u8();
        let stream = rest.get_i16();
        let opcode = rest.get_u8();
        let body_bytes = usize::try_from(rest.get_i32())
            .ok()
            .filter(|length| *length <= MAX_BODY_BYTES)
            .ok_or(Damaged("its length cannot be right"))?;
        Ok(Self {
            stream,
            body_bytes,
            flags,
            opcode,
        })
    }
}

/// An answer as it was received.
#[derive(Debug, Clone)]
pub(super) struct Frame {
    pub head: Head,
    pub body: Bytes,
}

/// What an answer says.
#[derive(Debug)]
pub(super) enum Answer {
    Ready,
    Authenticate,
    Supported(Options),
    Prepared,
    Rows(Page),
    Error { code: i32, message: String },
}

/// What a node says about itself: names, each with its values.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Options(Vec<(String, Vec<String>)>);

impl Options {
    pub fn first_value(&self, name: &str) -> Option<&str> {
        let (_, values) = self.0.iter().find(|(known, _)| known == name)?;
        values.first().map(String::as_str)
    }

    #[cfg(test)]
    pub fn from_pairs(pairs: &[(&str, &str)]) -> Self {
        let owned = pairs.iter().map(|(name, value)| {
            let values = vec![(*value).to_owned()];
            ((*name).to_owned(), values)
        });
        Self(owned.collect())
    }
}

/// One page of rows: how many cells each has is known from the statement.
#[derive(Debug)]
pub(super) struct Page {
    pub next: Option<Bytes>,
    pub row_count: usize,
    pub cells: Cells,
    /// The last cell of the only row.
    summed: Option<Summed>,
}

/// A cell and its checksum.
#[derive(Debug)]
struct Summed {
    cell: Bytes,
    xxh3: u64,
}

impl Page {
    /// A page of rows of `columns` cells. Works out the checksum of what is most likely the only large cell, when the
    /// page has just been received: later the processor would have to fetch it from memory again, for thrice the time.
    pub fn new(next: Option<Bytes>, row_count: usize, columns: usize, cells: Cells) -> Self {
        let cell = if row_count == 1 {
            cells.clone().last(columns)
        } else {
            None
        };
        Self {
            next,
            row_count,
            cells,
            summed: cell.map(|cell| Summed {
                xxh3: xxh3(&cell),
                cell,
            }),
        }
    }

    /// The checksum of a cell of this page, when it has been worked out.
    pub fn xxh3_of(&self, cell: &Bytes) -> Option<u64> {
        let summed = self.summed.as_ref()?;
        let is_same = summed.cell.as_ptr() == cell.as_ptr() && summed.cell.len() == cell.len();
        is_same.then_some(summed.xxh3)
    }
}

/// The cells of a page, one after the other.
#[derive(Debug, Clone)]
pub(super) struct Cells(Bytes);

impl Cells {
    #[cfg(test)]
    pub const fn new(cells: Bytes) -> Self {
        Self(cells)
    }

    /// A cell, or `None` for null; shares the memory of the answer.
    pub fn next(&mut self) -> Result<Option<Bytes>, Damaged> {
        bytes(&mut self.0)
    }

    /// The last of so many, when all are there.
    fn last(mut self, count: usize) -> Option<Bytes> {
        for _ in 1..count {
            self.next().ok()?;
        }
        self.next().ok()?
    }
}

impl Frame {
    pub fn parse(self) -> Result<Answer, Damaged> {
        let mut body = self.body;
        if self.head.flags & FRAME_TRACED != 0 {
            skip(&mut body, 16)?;
        }
        if self.head.flags & FRAME_WARNED != 0 {
            for _ in 0..short(&mut body)? {
                string(&mut body)?;
            }
        }
        if self.head.flags & FRAME_PAYLOAD != 0 {
            for _ in 0..short(&mut body)? {
                string(&mut body)?;
                bytes(&mut body)?;
            }
        }
        match self.head.opcode {
            OP_READY | OP_AUTH_SUCCESS => Ok(Answer::Ready),
            OP_AUTHENTICATE => Ok(Answer::Authenticate),
            OP_SUPPORTED => Ok(Answer::Supported(options(&mut body)?)),
            OP_RESULT => result(body),
            OP_ERROR => Ok(Answer::Error {
                code: int(&mut body)?,
                message: string(&mut body)?,
            }),
            _ => Err(Damaged("a kind of answer that was not asked for")),
        }
    }
}

fn options(body: &mut Bytes) -> Result<Options, Damaged> {
    let mut options = Vec::new();
    for _ in 0..short(body)? {
        let name = string(body)?;
        let count = short(body)?;
        let values = (0..count).map(|_| string(body)).collect::<Result<_, _>>()?;
        options.push((name, values));
    }
    Ok(Options(options))
}

fn result(mut body: Bytes) -> Result<Answer, Damaged> {
    match int(&mut body)? {
        RESULT_PREPARED => Ok(Answer::Prepared),
        RESULT_ROWS => {
            let flags = int(&mut body)?;
            let columns = int(&mut body)?;
            let next = if flags & ROWS_MORE == 0 {
                None
            } else {
                bytes(&mut body)?
            };
            if flags & ROWS_BARE == 0 {
                skip_columns(&mut body, columns, flags & ROWS_GLOBAL != 0)?;
            }
            let row_count = usize::try_from(int(&mut body)?)
                .map_err(|_| Damaged("a negative number of rows"))?;
            let columns = usize::try_from(columns).unwrap_or_default();
            Ok(Answer::Rows(Page::new(
                next,
                row_count,
                columns,
                Cells(body),
            )))
        }
        _ => Err(Damaged("a kind of result that was not asked for")),
    }
}

/// Names and types of the columns, which a server may send although it was told not to. Ours are plain types.
fn skip_columns(body: &mut Bytes, columns: i32, is_global: bool) -> Result<(), Damaged> {
    if is_global {
        string(body)?;
        string(body)?;
    }
    for _ in 0..columns {
        if !is_global {
            string(body)?;
            string(body)?;
        }
        string(body)?;
        let kind = short(body)?;
        if kind == 0 || kind >= 0x20 {
            return Err(Damaged("a column type that no table of Penstock has"));
        }
    }
    Ok(())
}

const SHORT: Damaged = Damaged("it ends too early");

fn skip(body: &mut Bytes, length: usize) -> Result<(), Damaged> {
    if body.len() < length {
        return Err(SHORT);
    }
    body.advance(length);
    Ok(())
}

fn short(body: &mut Bytes) -> Result<u16, Damaged> {
    body.try_get_u16().map_err(|_| SHORT)
}

fn int(body: &mut Bytes) -> Result<i32, Damaged> {
    body.try_get_i32().map_err(|_| SHORT)
}

fn string(body: &mut Bytes) -> Result<String, Damaged> {
    let length = usize::from(short(body)?);
    if body.len() < length {
        return Err(SHORT);
    }
    Ok(String::from_utf8_lossy(&body.split_to(length)).into_owned())
}

fn bytes(body: &mut Bytes) -> Result<Option<Bytes>, Damaged> {
    let Ok(length) = usize::try_from(int(body)?) else {
        return Ok(None);
    };
    if body.len() < length {
        return Err(SHORT);
    }
    Ok(Some(body.split_to(length)))
}

/// A read of one object, without its connection and page.
#[derive(Debug)]
pub(super) struct Execute<'a> {
    pub statement_id: &'a [u8],
    pub level: u16,
    pub dataset_id: Uuid,
    pub object_id: Uuid,
    pub fields: Option<&'a [std::sync::Arc<str>]>,
    pub page_rows: i32,
    pub page: Option<&'a [u8]>,
}

/// What is asked. Written to the end of `target` as a whole frame.
#[derive(Debug)]
pub(super) enum Ask<'a> {
    Options,
    Startup,
    Login { user: &'a str, password: &'a str },
    Prepare(&'a str),
    Execute(&'a Execute<'a>),
}

impl Ask<'_> {
    pub fn write(&self, stream: i16, target: &mut BytesMut) {
        let opcode = match self {
            Self::Options => OP_OPTIONS,
            Self::Startup => OP_STARTUP,
            Self::Login { .. } => OP_AUTH_RESPONSE,
            Self::Prepare(_) => OP_PREPARE,
            Self::Execute(_) => OP_EXECUTE,
        };
        let start = target.len();
        target.put_u8(REQUEST);
        target.put_u8(0);
        target.put_i16(stream);
        target.put_u8(opcode);
        target.put_i32(0);
        match self {
            Self::Options => {}
            Self::Startup => {
                target.put_u16(2);
                for text in ["CQL_VERSION", "3.0.0", "DRIVER_NAME", "penstock"] {
                    put_string(target, text);
                }
            }
            Self::Login { user, password } => {
                put_length(target, user.len() + password.len() + 2);
                for part in [user, password] {
                    target.put_u8(0);
                    target.put_slice(part.as_bytes());
                }
            }
            Self::Prepare(text) => {
                put_length(target, text.len());
                target.put_slice(text.as_bytes());
            }
            Self::Execute(execute) => execute.write(target),
        }
        let length = u32::try_from(target.len() - start - HEADER_BYTES).unwrap_or(u32::MAX);
        target[start + 5..start + HEADER_BYTES].copy_from_slice(&length.to_be_bytes());
    }
}

impl Execute<'_> {
    fn write(&self, target: &mut BytesMut) {
        target.put_u16(u16::try_from(self.statement_id.len()).unwrap_or(u16::MAX));
        target.put_slice(self.statement_id);
        target.put_u16(self.level);
        let paged = if self.page.is_some() { WITH_PAGE } else { 0 };
        target.put_u8(WITH_VALUES | WITHOUT_METADATA | WITH_PAGE_SIZE | paged);
        target.put_u16(if self.fields.is_some() { 3 } else { 2 });
        for id in [self.dataset_id, self.object_id] {
            put_length(target, 16);
            target.put_slice(id.as_bytes());
        }
        if let Some(fields) = self.fields {
            put_length(
                target,
                4 + fields.iter().map(|f| 4 + f.len()).sum::<usize>(),
            );
            put_length(target, fields.len());
            for field in fields {
                put_length(target, field.len());
                target.put_slice(field.as_bytes());
            }
        }
        target.put_i32(self.page_rows);
        if let Some(page) = self.page {
            put_length(target, page.len());
            target.put_slice(page);
        }
    }
}

fn put_string(target: &mut BytesMut, text: &str) {
    target.put_u16(u16::try_from(text.len()).unwrap_or(u16::MAX));
    target.put_slice(text.as_bytes());
}

fn put_length(target: &mut BytesMut, length: usize) {
    target.put_i32(i32::try_from(length).unwrap_or(i32::MAX));
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(opcode: u8, flags: u8, body: &[u8]) -> Frame {
        let length = u32::try_from(body.len()).unwrap().to_be_bytes();
        let mut head = [RESPONSE, flags, 0, 7, opcode, 0, 0, 0, 0];
        head[5..].copy_from_slice(&length);
        Frame {
            head: Head::parse(&head).unwrap(),
            body: Bytes::copy_from_slice(body),
        }
    }

    #[test]
    fn an_execute_frame_has_the_published_form() {
        let mut written = BytesMut::new();
        let execute = Execute {
            statement_id: &[0xaa, 0xbb],
            level: LOCAL_ONE,
            dataset_id: Uuid::from_u128(1),
            object_id: Uuid::from_u128(2),
            fields: Some(&["ab".into()]),
            page_rows: 16,
            page: None,
        };
        Ask::Execute(&execute).write(5, &mut written);
        let mut expected = vec![4, 0, 0, 5, 0x0a, 0, 0, 0, 67];
        expected.extend([0, 2, 0xaa, 0xbb, 0, 0x0a, 0x07, 0, 3]);
        for id in [1, 2] {
            expected.extend([0, 0, 0, 16]);
            expected.extend([0; 15]);
            expected.push(id);
        }
        expected.extend([0, 0, 0, 10, 0, 0, 0, 1, 0, 0, 0, 2, b'a', b'b']);
        expected.extend([0, 0, 0, 16]);
        assert_eq!(&written[..], &expected[..]);
    }

    #[test]
    fn rows_come_with_and_without_the_columns_that_nobody_wanted() {
        let bare = [
            0, 0, 0, 2, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 1, 9,
        ];
        let full = [
            &[0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 1, 0, 0, 0, 1, 5][..],
            &[
                0, 1, b'k', 0, 1, b't', 0, 1, b'c', 0, 3, 0, 0, 0, 1, 0, 0, 0, 1, 9,
            ][..],
        ]
        .concat();
        for (body, has_next) in [(&bare[..], false), (&full[..], true)] {
            let Answer::Rows(mut page) = frame(OP_RESULT, 0, body).parse().unwrap() else {
                panic!("no rows");
            };
            assert_eq!(page.row_count, 1);
            assert_eq!(page.next.is_some(), has_next);
            assert_eq!(page.cells.next().unwrap().unwrap(), vec![9]);
        }
    }

    #[test]
    fn only_the_last_cell_of_a_lone_row_is_summed_at_once() {
        let cells = Bytes::from_static(&[0, 0, 0, 1, 8, 0, 0, 0, 2, 9, 9]);
        let [first, last] = [cells.slice(4..5), cells.slice(9..)];
        let page = |row_count, columns| Page::new(None, row_count, columns, Cells(cells.clone()));
        assert_eq!(page(1, 2).xxh3_of(&last), Some(xxh3(&[9, 9])));
        assert_eq!(page(1, 2).xxh3_of(&first), None);
        assert_eq!(page(1, 2).xxh3_of(&Bytes::from_static(&[9, 9])), None);
        for (row_count, columns) in [(1, 1), (1, 3), (2, 1), (0, 2), (1, usize::MAX)] {
            assert_eq!(page(row_count, columns).xxh3_of(&last), None);
        }
    }

    #[test]
    fn warnings_before_an_error_are_skipped() {
        let body = [0, 1, 0, 2, b'h', b'o', 0, 0, 0x25, 0, 0, 1, b'x'];
        match frame(OP_ERROR, FRAME_WARNED, &body).parse().unwrap() {
            Answer::Error { code, message } => assert_eq!((code, &*message), (UNPREPARED, "x")),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn options_are_names_with_values() {
        let body = [
            &[0, 2, 0, 1, b'a', 0, 2, 0, 1, b'x', 0, 0][..],
            &[0, 1, b'b', 0, 0][..],
        ]
        .concat();
        let answer = frame(OP_SUPPORTED, 0, &body).parse().unwrap();
        let Answer::Supported(options) = answer else {
            panic!("{answer:?}");
        };
        assert_eq!(options.first_value("a"), Some("x"));
        assert_eq!(options.first_value("b"), None);
        assert_eq!(options.first_value("c"), None);
        assert!(frame(OP_SUPPORTED, 0, &body[..9]).parse().is_err());
    }

    #[test]
    fn a_head_that_cannot_be_right_is_refused() {
        assert!(Head::parse(&[0x04, 0, 0, 1, 8, 0, 0, 0, 1]).is_err());
        assert!(Head::parse(&[RESPONSE, 0, 0, 1, 8, 0x7f, 0, 0, 0]).is_err());
        assert!(Head::parse(&[RESPONSE, 0, 0, 1, 8, 0xff, 0, 0, 0]).is_err());
    }

    proptest! {
        #[test]
        fn no_body_makes_it_panic(opcode in 0_u8..0x12, flags in 0_u8..16, body: Vec<u8>) {
            if let Ok(Answer::Rows(mut page)) = frame(opcode, flags, &body).parse() {
                while let Ok(Some(_)) = page.cells.next() {}
            }
        }

        #[test]
        fn no_rows_make_it_panic(start in any::<[u8; 12]>(), body: Vec<u8>, flags in 0_u8..8) {
            let mut rows = vec![0, 0, 0, 2, 0, 0, 0, flags, 0, 0, 0, 3];
            rows.extend(start);
            rows.extend(body);
            if let Ok(Answer::Rows(mut page)) = frame(OP_RESULT, 0, &rows).parse() {
                while let Ok(Some(_)) = page.cells.next() {}
            }
        }
    }
}
