//! One Arrow column, opened once, that writes the canonical encoding of its values.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    ArrowDictionaryKeyType, ArrowPrimitiveType, Date32Type, Date64Type, Float16Type, Float32Type,
    Float64Type, Int8Type, Int16Type, Int32Type, Int64Type, TimestampMicrosecondType,
    TimestampMillisecondType, TimestampNanosecondType, TimestampSecondType, UInt8Type, UInt16Type,
    UInt32Type, UInt64Type,
};
use arrow_array::{
    Array, ArrayRef, BinaryArray, BinaryViewArray, BooleanArray, FixedSizeBinaryArray,
    FixedSizeListArray, LargeBinaryArray, LargeListArray, LargeStringArray, ListArray,
    PrimitiveArray, StringArray, StringViewArray,
};
use arrow_schema::{DataType, TimeUnit};

use super::Kind;

const CANONICAL_NAN: u64 = 0x7ff8_0000_0000_0000;
const MICROSECONDS_A_DAY: i64 = 86_400_000_000;

/// Values that are already integers or floats are widened when the column is opened: one branch a value less.
#[derive(Debug)]
pub(super) struct Column {
    nulls: ArrayRef,
    values: Values,
}

#[derive(Debug)]
enum Values {
    Null,
    Bool(BooleanArray),
    Int(Vec<i64>),
    Float(Vec<f64>),
    /// Value and the number of microseconds in its unit.
    Time(Vec<i64>, i64),
    Nanoseconds(Vec<i64>),
    Text(StringArray),
    LargeText(LargeStringArray),
    TextView(StringViewArray),
    Bytes(BinaryArray),
    LargeBytes(LargeBinaryArray),
    BytesView(BinaryViewArray),
    FixedBytes(FixedSizeBinaryArray),
    List(ListArray, Box<Column>),
    LargeList(LargeListArray, Box<Column>),
    FixedList(FixedSizeListArray, Box<Column>),
    /// For each row the place of its value in the dictionary.
    Dictionary(Vec<usize>, Box<Column>),
}

impl Column {
    /// `None` when values of this type have no canonical encoding.
    pub(super) fn open(array: &ArrayRef) -> Option<Self> {
        Some(Self {
            nulls: array.clone(),
            values: open_values(array)?,
        })
    }

    /// Appends the encoding of one value; the error says why it has none.
    pub(super) fn encode(&self, row: usize, out: &mut Vec<u8>) -> Result<(), String> {
        if matches!(self.values, Values::Null) || self.nulls.is_null(row) {
            out.push(Kind::Null as u8);
            return Ok(());
        }
        match &self.values {
            Values::Null => {}
            Values::Bool(values) => {
                out.extend_from_slice(&[Kind::Bool as u8, u8::from(values.value(row))]);
            }
            Values::Int(values) => put_i64(out, Kind::Int, values[row]),
            Values::Float(values) => put_f64(out, values[row]),
            Values::Time(values, unit) => put_time(out, values[row], *unit)?,
            Values::Nanoseconds(values) => put_nanoseconds(out, values[row])?,
            Values::Text(values) => put_bytes(out, Kind::Text, values.value(row).as_bytes())?,
            Values::LargeText(values) => put_bytes(out, Kind::Text, values.value(row).as_bytes())?,
            Values::TextView(values) => put_bytes(out, Kind::Text, values.value(row).as_bytes())?,
            Values::Bytes(values) => put_bytes(out, Kind::Bytes, values.value(row))?,
            Values::LargeBytes(values) => put_bytes(out, Kind::Bytes, values.value(row))?,
            Values::BytesView(values) => put_bytes(out, Kind::Bytes, values.value(row))?,
            Values::FixedBytes(values) => put_bytes(out, Kind::Bytes, values.value(row))?,
            Values::List(list, items) => {
                let offsets = list.value_offsets();
                put_list(out, items, place(offsets[row])?, place(offsets[row + 1])?)?;
            }
            Values::LargeList(list, items) => {
                let offsets = list.value_offsets();
                put_list(out, items, place(offsets[row])?, place(offsets[row + 1])?)?;
            }
            Values::FixedList(list, items) => {
                let start = place(list.value_offset_at(row))?;
                put_list(out, items, start, start + place(list.value_length())?)?;
            }
            Values::Dictionary(places, values) => values.encode(places[row], out)?,
        }
        Ok(())
    }
}

fn open_values(array: &ArrayRef) -> Option<Values> {
    Some(match array.data_type() {
        DataType::Null => Values::Null,
        DataType::Boolean => Values::Bool(array.as_boolean().clone()),
        DataType::Utf8 => Values::Text(array.as_string().clone()),
        DataType::LargeUtf8 => Values::LargeText(array.as_string().clone()),
        DataType::Utf8View => Values::TextView(array.as_string_view().clone()),
        DataType::Binary => Values::Bytes(array.as_binary().clone()),
        DataType::LargeBinary => Values::LargeBytes(array.as_binary().clone()),
        DataType::BinaryView => Values::BytesView(array.as_binary_view().clone()),
        DataType::FixedSizeBinary(_) => Values::FixedBytes(array.as_fixed_size_binary().clone()),
        DataType::List(_) => {
            let list = array.as_list::<i32>().clone();
            let items = Box::new(Column::open(list.values())?);
            Values::List(list, items)
        }
        DataType::LargeList(_) => {
            let list = array.as_list::<i64>().clone();
            let items = Box::new(Column::open(list.values())?);
            Values::LargeList(list, items)
        }
        DataType::FixedSizeList(_, _) => {
            let list = array.as_fixed_size_list().clone();
            let items = Box::new(Column::open(list.values())?);
            Values::FixedList(list, items)
        }
        DataType::Dictionary(key, _) => open_dictionary(array, key)?,
        _ => return open_numbers(array),
    })
}

fn open_numbers(array: &ArrayRef) -> Option<Values> {
    Some(match array.data_type() {
        DataType::Int8 => Values::Int(widened::<Int8Type, _>(array, i64::from)),
        DataType::Int16 => Values::Int(widened::<Int16Type, _>(array, i64::from)),
        DataType::Int32 => Values::Int(widened::<Int32Type, _>(array, i64::from)),
        DataType::Int64 => Values::Int(widened::<Int64Type, _>(array, |value| value)),
        DataType::UInt8 => Values::Int(widened::<UInt8Type, _>(array, i64::from)),
        DataType::UInt16 => Values::Int(widened::<UInt16Type, _>(array, i64::from)),
        DataType::UInt32 => Values::Int(widened::<UInt32Type, _>(array, i64::from)),
        // Checksums use all 64 bits: they are taken as they are.
        DataType::UInt64 => Values::Int(widened::<UInt64Type, _>(array, u64::cast_signed)),
        DataType::Float16 => Values::Float(widened::<Float16Type, _>(array, f64::from)),
        DataType::Float32 => Values::Float(widened::<Float32Type, _>(array, f64::from)),
        DataType::Float64 => Values::Float(widened::<Float64Type, _>(array, |value| value)),
        DataType::Date32 => Values::Time(
            widened::<Date32Type, _>(array, i64::from),
            MICROSECONDS_A_DAY,
        ),
        DataType::Date64 => Values::Time(widened::<Date64Type, _>(array, |value| value), 1_000),
        DataType::Timestamp(TimeUnit::Second, _) => Values::Time(
            widened::<TimestampSecondType, _>(array, |value| value),
            1_000_000,
        ),
        DataType::Timestamp(TimeUnit::Millisecond, _) => Values::Time(
            widened::<TimestampMillisecondType, _>(array, |value| value),
            1_000,
        ),
        DataType::Timestamp(TimeUnit::Microsecond, _) => Values::Time(
            widened::<TimestampMicrosecondType, _>(array, |value| value),
            1,
        ),
        DataType::Timestamp(TimeUnit::Nanosecond, _) => {
            Values::Nanoseconds(widened::<TimestampNanosecondType, _>(array, |value| value))
        }
        _ => return None,
    })
}

fn open_dictionary(array: &ArrayRef, key: &DataType) -> Option<Values> {
    match key {
        DataType::Int8 => dictionary::<Int8Type>(array),
        DataType::Int16 => dictionary::<Int16Type>(array),
        DataType::Int32 => dictionary::<Int32Type>(array),
        DataType::Int64 => dictionary::<Int64Type>(array),
        DataType::UInt8 => dictionary::<UInt8Type>(array),
        DataType::UInt16 => dictionary::<UInt16Type>(array),
        DataType::UInt32 => dictionary::<UInt32Type>(array),
        DataType::UInt64 => dictionary::<UInt64Type>(array),
        _ => None,
    }
}

fn dictionary<K: ArrowDictionaryKeyType>(array: &ArrayRef) -> Option<Values> {
    let dictionary = array.as_dictionary::<K>();
    let places = (0..dictionary.len())
        .map(|row| dictionary.key(row).unwrap_or_default())
        .collect();
    let values = Box::new(Column::open(dictionary.values())?);
    Some(Values::Dictionary(places, values))
}

fn widened<T: ArrowPrimitiveType, V>(array: &ArrayRef, widen: impl Fn(T::Native) -> V) -> Vec<V> {
    let values: &PrimitiveArray<T> = array.as_primitive();
    values.values().iter().map(|value| widen(*value)).collect()
}

fn place(offset: impl TryInto<usize>) -> Result<usize, String> {
    offset
        .try_into()
        .map_err(|_| "a list has a negative offset".to_owned())
}

fn put_i64(out: &mut Vec<u8>, kind: Kind, value: i64) {
    out.push(kind as u8);
    out.extend_from_slice(&value.to_le_bytes());
}

fn put_f64(out: &mut Vec<u8>, value: f64) {
    let bits = if value.is_nan() {
        CANONICAL_NAN
    } else if value == 0.0 {
        0
    } else {
        value.to_bits()
    };
    out.push(Kind::Float as u8);
    out.extend_from_slice(&bits.to_le_bytes());
}

fn put_time(out: &mut Vec<u8>, value: i64, unit: i64) -> Result<(), String> {
    let microseconds = value
        .checked_mul(unit)
        .ok_or_else(|| format!("time {value} is out of the range of microseconds"))?;
    put_i64(out, Kind::Timestamp, microseconds);
    Ok(())
}

fn put_nanoseconds(out: &mut Vec<u8>, value: i64) -> Result<(), String> {
    // A digest that dropped digits would not cover all of the content.
    if value % 1_000 != 0 {
        return Err(format!(
            "time {value} ns is no whole number of microseconds: round it first"
        ));
    }
    put_i64(out, Kind::Timestamp, value / 1_000);
    Ok(())
}

fn put_bytes(out: &mut Vec<u8>, kind: Kind, value: &[u8]) -> Result<(), String> {
    out.push(kind as u8);
    put_count(out, value.len())?;
    out.extend_from_slice(value);
    Ok(())
}

fn put_list(out: &mut Vec<u8>, items: &Column, start: usize, end: usize) -> Result<(), String> {
    out.push(Kind::List as u8);
    put_count(out, end - start)?;
    (start..end).try_for_each(|item| items.encode(item, out))
}

fn put_count(out: &mut Vec<u8>, count: usize) -> Result<(), String> {
    let count =
        u32::try_from(count).map_err(|_| format!("a value of {count} items is too long"))?;
    out.extend_from_slice(&count.to_le_bytes());
    Ok(())
}
