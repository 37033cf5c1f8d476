//! Pages as no server would send them: whatever they hold, the answer is one of the three verdicts, and bytes that are
//! taken as good are those that were written.

use std::collections::BTreeMap;

use bytes::{BufMut, BytesMut};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use super::*;
use crate::checksum::xxh3;
use crate::codec::LAYOUT;
use crate::id::Id;
use crate::store::cql::wire::Cells;

/// Names in the order in which the table has them.
const NAMES: [&str; 3] = ["image", "mask", "z"];
const CELLS_A_ROW: usize = 8;

type Cell = Option<Vec<u8>>;
/// Object, name, chunk, layout, chunk size, total size, checksum, data.
type RowCells = [Cell; CELLS_A_ROW];

/// An object as it was written, in chunks of a few bytes.
#[derive(Debug, Clone)]
struct Written {
    fields: BTreeMap<&'static str, Vec<u8>>,
    chunk_bytes: u32,
}

fn objects() -> impl Strategy<Value = Written> {
    let content = vec(any::<u8>(), 0..40);
    let fields = prop::collection::btree_map(prop::sample::select(&NAMES[..]), content, 1..4);
    (fields, 1_u32..20).prop_map(|(fields, chunk_bytes)| Written {
        fields,
        chunk_bytes,
    })
}

impl Written {
    fn rows(&self) -> Vec<RowCells> {
        let fields = self.fields.iter();
        fields
            .flat_map(|(name, data)| self.rows_of(name, data))
            .collect()
    }

    fn rows_of(&self, name: &str, data: &[u8]) -> Vec<RowCells> {
        let size = usize::try_from(self.chunk_bytes).unwrap();
        let mut chunks: Vec<&[u8]> = data.chunks(size).collect();
        if chunks.is_empty() {
            chunks.push(&[]);
        }
        let row = |(chunk, data): (i32, &[u8])| {
            let is_first = chunk == 0;
            let header = |cell: Vec<u8>| is_first.then_some(cell);
            [
                Some(Id::default().as_bytes().to_vec()),
                Some(name.as_bytes().to_vec()),
                Some(chunk.to_be_bytes().to_vec()),
                header(vec![LAYOUT.cast_unsigned()]),
                header(self.chunk_bytes.to_be_bytes().to_vec()),
                header((self.fields[name].len() as u64).to_be_bytes().to_vec()),
                header(xxh3(&self.fields[name]).to_be_bytes().to_vec()),
                Some(data.to_vec()),
            ]
        };
        (0..).zip(chunks).map(row).collect()
    }

    /// Bytes under a name that was written are those written; another name can only be what damage made of one.
    fn check(&self, request: &ReadRequest, answer: &Found) -> Result<(), TestCaseError> {
        let Found::Fields(fields) = answer else {
            return Ok(());
        };
        if let Fields::Named(asked) = &request.fields {
            let names: Vec<&Arc<str>> = fields.iter().map(|field| &field.name).collect();
            prop_assert_eq!(names, asked.iter().collect::<Vec<_>>());
        }
        for field in fields {
            let bytes = field.to_bytes();
            prop_assert_eq!(field.size_bytes, bytes.len() as u64);
            prop_assert_eq!(field.xxh3, xxh3(&bytes));
            match self.fields.get(&*field.name) {
                Some(data) => prop_assert_eq!(&bytes[..], &data[..]),
                None => prop_assert!(self.fields.values().any(|data| *data == bytes)),
            }
        }
        Ok(())
    }
}

fn request(fields: Fields) -> ReadRequest {
    ReadRequest {
        table: Table::Samples,
        dataset_id: Id::default(),
        object_id: Id::default(),
        fields,
        consistency: Consistency::One,
        size_bytes: 0,
    }
}

/// All fields, or those that were written in any order.
fn request_for(written: &Written, order: &[Index]) -> ReadRequest {
    let mut names: Vec<Arc<str>> = written.fields.keys().map(|name| Arc::from(*name)).collect();
    if order.is_empty() {
        return request(Fields::All);
    }
    for place in order {
        let name = names.remove(place.index(names.len()));
        names.push(name);
    }
    request(Fields::Named(names.into()))
}

fn encoded(rows: &[RowCells]) -> BytesMut {
    let mut cells = BytesMut::new();
    for cell in rows.iter().flatten() {
        match cell {
            Some(content) => {
                cells.put_i32(i32::try_from(content.len()).unwrap());
                cells.put_slice(content);
            }
            None => cells.put_i32(-1),
        }
    }
    cells
}

fn page(row_count: usize, cells: impl Into<Bytes>) -> Page {
    Page::new(None, row_count, COLUMNS, Cells::new(cells.into()))
}

/// The rows cut into pages at these places, in their order.
fn pages(rows: &[RowCells], cuts: &[Index]) -> Vec<(usize, BytesMut)> {
    let mut places: Vec<usize> = cuts.iter().map(|cut| cut.index(rows.len() + 1)).collect();
    places.extend([0, rows.len()]);
    places.sort_unstable();
    let between = places.windows(2).map(|pair| &rows[pair[0]..pair[1]]);
    between.map(|rows| (rows.len(), encoded(rows))).collect()
}

/// What goes wrong with the rows of an answer.
#[derive(Debug, Clone)]
enum RowDamage {
    Drop(Index),
    /// Comes once more, at this place.
    Repeat(Index, Index),
    Swap(Index, Index),
    Cell(Index, Index, Cell),
    FlipCell(Index, Index, Index, u8),
}

fn row_damages() -> impl Strategy<Value = RowDamage> {
    let i = any::<Index>;
    // Content of another cell is worse than noise: the right length, and often the right kind.
    let cell = prop_oneof![
        Just(None),
        vec(any::<u8>(), 0..12).prop_map(Some),
        any::<i32>().prop_map(|number| Some(number.to_be_bytes().to_vec())),
        (-2..6_i32).prop_map(|number| Some(number.to_be_bytes().to_vec())),
        (0..50_u64).prop_map(|number| Some(number.to_be_bytes().to_vec())),
        any::<u64>().prop_map(|number| Some(number.to_be_bytes().to_vec())),
        Just(Some(vec![LAYOUT.cast_unsigned()])),
    ];
    prop_oneof![
        i().prop_map(RowDamage::Drop),
        (i(), i()).prop_map(|(row, to)| RowDamage::Repeat(row, to)),
        (i(), i()).prop_map(|(one, other)| RowDamage::Swap(one, other)),
        (i(), i(), cell).prop_map(|(row, place, cell)| RowDamage::Cell(row, place, cell)),
        (i(), i(), i(), any::<u8>())
            .prop_map(|(row, place, byte, bits)| RowDamage::FlipCell(row, place, byte, bits)),
    ]
}

impl RowDamage {
    fn apply(&self, rows: &mut Vec<RowCells>) {
        if rows.is_empty() {
            return;
        }
        match self {
            Self::Drop(row) => {
                rows.remove(row.index(rows.len()));
            }
            Self::Repeat(row, to) => {
                let again = rows[row.index(rows.len())].clone();
                rows.insert(to.index(rows.len() + 1), again);
            }
            Self::Swap(one, other) => {
                let count = rows.len();
                rows.swap(one.index(count), other.index(count));
            }
            Self::Cell(row, place, cell) => {
                let count = rows.len();
                rows[row.index(count)][place.index(CELLS_A_ROW)] = cell.clone();
            }
            Self::FlipCell(row, place, byte, bits) => {
                let count = rows.len();
                if let Some(cell) = &mut rows[row.index(count)][place.index(CELLS_A_ROW)]
                    && !cell.is_empty()
                {
                    let byte = byte.index(cell.len());
                    cell[byte] ^= bits;
                }
            }
        }
    }
}

/// What goes wrong with a page as bytes.
#[derive(Debug, Clone)]
enum PageDamage {
    Flip(Index, Index, u8),
    Cut(Index, Index),
    Count(Index, usize),
    Drop(Index),
    Repeat(Index),
    Swap(Index, Index),
}

fn page_damages() -> impl Strategy<Value = PageDamage> {
    let i = any::<Index>;
    let count = prop_oneof![0..9_usize, any::<usize>()];
    prop_oneof![
        (i(), i(), any::<u8>()).prop_map(|(page, place, bits)| PageDamage::Flip(page, place, bits)),
        (i(), i()).prop_map(|(page, length)| PageDamage::Cut(page, length)),
        (i(), count).prop_map(|(page, count)| PageDamage::Count(page, count)),
        i().prop_map(PageDamage::Drop),
        i().prop_map(PageDamage::Repeat),
        (i(), i()).prop_map(|(one, other)| PageDamage::Swap(one, other)),
    ]
}

impl PageDamage {
    fn apply(&self, pages: &mut Vec<(usize, BytesMut)>) {
        let total = pages.len();
        if total == 0 {
            return;
        }
        match self {
            Self::Flip(page, place, bits) => {
                let cells = &mut pages[page.index(total)].1;
                if !cells.is_empty() {
                    let place = place.index(cells.len());
                    cells[place] ^= bits;
                }
            }
            Self::Cut(page, length) => {
                let cells = &mut pages[page.index(total)].1;
                cells.truncate(length.index(cells.len() + 1));
            }
            Self::Count(page, count) => pages[page.index(total)].0 = *count,
            Self::Drop(page) => {
                pages.remove(page.index(total));
            }
            Self::Repeat(page) => {
                let again = pages[page.index(total)].clone();
                pages.push(again);
            }
            Self::Swap(one, other) => pages.swap(one.index(total), other.index(total)),
        }
    }
}

fn read(request: &ReadRequest, pages: Vec<(usize, BytesMut)>) -> Found {
    let pages = pages.into_iter().map(|(count, cells)| page(count, cells));
    found(request, pages.collect())
}

proptest! {
    #![proptest_config(crate::soak::cases(512, 100_000))]

    #[test]
    fn what_was_written_is_found_whatever_the_pages(
        written in objects(), order in vec(any::<Index>(), 0..3), cuts in vec(any::<Index>(), 0..5),
    ) {
        let request = request_for(&written, &order);
        let answer = read(&request, pages(&written.rows(), &cuts));
        written.check(&request, &answer)?;
        match answer {
            Found::Fields(fields) => prop_assert_eq!(fields.len(), written.fields.len()),
            other => prop_assert!(false, "{:?}", other),
        }
    }

    #[test]
    fn damaged_rows_and_pages_are_never_taken_for_others(
        written in objects(), order in vec(any::<Index>(), 0..3), cuts in vec(any::<Index>(), 0..5),
        row_damages in vec(row_damages(), 0..4), page_damages in vec(page_damages(), 0..3),
    ) {
        let request = request_for(&written, &order);
        let mut rows = written.rows();
        for damage in &row_damages {
            damage.apply(&mut rows);
        }
        let mut pages = pages(&rows, &cuts);
        for damage in &page_damages {
            damage.apply(&mut pages);
        }
        written.check(&request, &read(&request, pages))?;
    }

    #[test]
    fn a_chunk_that_is_missing_or_comes_twice_is_never_good(
        written in objects(), order in vec(any::<Index>(), 0..3), row: Index, is_twice: bool,
    ) {
        let request = request_for(&written, &order);
        let mut rows = written.rows();
        let row = row.index(rows.len());
        let name = rows[row][1].clone();
        if is_twice {
            rows.insert(row, rows[row].clone());
        } else {
            rows.remove(row);
        }
        match read(&request, pages(&rows, &[])) {
            Found::Fields(fields) => {
                // Of all fields one may be left out whole: nobody has said that it has to be there.
                prop_assert!(matches!(request.fields, Fields::All) && !is_twice);
                prop_assert!(fields.iter().all(|field| Some(field.name.as_bytes()) != name.as_deref()));
            }
            Found::Missing(field) => prop_assert!(field.is_none_or(|field| Some(field.into_bytes()) == name)),
            Found::Damaged { field, .. } => prop_assert_eq!(Some(field.into_bytes()), name),
        }
    }

    #[test]
    fn noise_is_never_good(
        noise in vec((any::<usize>(), vec(any::<u8>(), 0..200)), 0..4), is_all: bool,
    ) {
        let names: Arc<[Arc<str>]> = NAMES.map(Arc::from).into();
        let request = request(if is_all { Fields::All } else { Fields::Named(names) });
        let pages: Vec<Page> = noise.iter().map(|(count, bytes)| page(*count, bytes.clone())).collect();
        let is_empty = noise.iter().all(|(count, _)| *count == 0);
        match found(&request, pages) {
            Found::Fields(fields) => prop_assert!(false, "{:?}", fields),
            Found::Missing(_) => {}
            Found::Damaged { .. } => prop_assert!(!is_empty),
        }
    }

    #[test]
    fn rows_of_any_cells_are_good_only_with_their_checksum(
        rows in vec(any_row(), 0..5), cuts in vec(any::<Index>(), 0..3), is_all: bool,
    ) {
        let names: Arc<[Arc<str>]> = NAMES.map(Arc::from).into();
        let request = request(if is_all { Fields::All } else { Fields::Named(names) });
        if let Found::Fields(fields) = read(&request, pages(&rows, &cuts)) {
            for field in fields {
                let bytes = field.to_bytes();
                let sum = xxh3(&bytes).to_be_bytes();
                let size = (bytes.len() as u64).to_be_bytes();
                let says_so = |row: &RowCells| {
                    row[1].as_deref() == Some(field.name.as_bytes())
                        && row[5].as_deref() == Some(&size[..])
                        && row[6].as_deref() == Some(&sum[..])
                };
                prop_assert!(rows.iter().any(says_so));
            }
        }
    }
}

/// A row with the right kinds of cells and any content: now and then it is a sound one.
fn any_row() -> impl Strategy<Value = RowCells> {
    let data = vec(any::<u8>(), 0..3);
    let name = prop::sample::select(&NAMES[..]);
    (
        name,
        -1..3_i32,
        0..3_u8,
        0..4_u32,
        0..4_u64,
        data,
        any::<bool>(),
    )
        .prop_map(
            |(name, chunk, layout, chunk_bytes, total_bytes, data, is_sum_right)| {
                let sum = if is_sum_right { xxh3(&data) } else { 7 };
                [
                    Some(Id::default().as_bytes().to_vec()),
                    Some(name.as_bytes().to_vec()),
                    Some(chunk.to_be_bytes().to_vec()),
                    Some(vec![layout]),
                    Some(chunk_bytes.to_be_bytes().to_vec()),
                    Some(total_bytes.to_be_bytes().to_vec()),
                    Some(sum.to_be_bytes().to_vec()),
                    Some(data),
                ]
            },
        )
}
