//! Rows read straight from the pages of a damaged file, without its trees.
//!
//! A row lies on one leaf page, long values continue on a chain of others. When
//! a page *above* the leaves is damaged, SQLite finds none of the rows below it,
//! although they are all there. Whether something that looks like a row is one
//! of ours is not decided here: its checksum tells.

use std::{fs::File, io, os::unix::fs::FileExt as _, path::Path};

use rusqlite::types::Value;

/// Every store is made with this size; the header that says so may be the damage.
const PAGE_SIZE: usize = 4096;
const TABLE_LEAF: u8 = 13;
/// No row of ours is larger: a larger number is damage.
const ROW_SIZE_BYTES_MAX: usize = 256 << 20;

/// Hands over the number and the values of every row on every leaf page.
pub(super) fn visit_rows<E: From<io::Error>>(
    path: &Path,
    mut visit: impl FnMut(i64, Vec<Value>) -> Result<(), E>,
) -> Result<(), E> {
    let file = File::open(path)?;
    let pages = file.metadata()?.len() / PAGE_SIZE as u64;
    let mut page = [0; PAGE_SIZE];
    // The first page holds the schema, and the header before it.
    for number in 2..=pages {
        if read_page(&file, number, &mut page).is_none() || page[0] != TABLE_LEAF {
            continue;
        }
        for place in 0..usize::from(u16::from_be_bytes([page[3], page[4]])) {
            let Some(pointer) = page.get(8 + 2 * place..10 + 2 * place) else {
                break;
            };
            let cell = usize::from(u16::from_be_bytes([pointer[0], pointer[1]]));
            if let Some((row, values)) = read_cell(&file, &page, cell) {
                visit(row, values)?;
            }
        }
    }
    Ok(())
}

fn read_page(file: &File, number: u64, page: &mut [u8; PAGE_SIZE]) -> Option<()> {
    file.read_exact_at(page, number.checked_sub(1)?.checked_mul(PAGE_SIZE as u64)?).ok()
}

fn read_cell(file: &File, page: &[u8; PAGE_SIZE], at: usize) -> Option<(i64, Vec<Value>)> {
    let (size, at) = varint(page, at)?;
    let (row, at) = varint(page, at)?;
    let size = usize::try_from(size).ok().filter(|size| *size <= ROW_SIZE_BYTES_MAX)?;
    let local = local_size(size);
    let mut payload = page.get(at..at + local)?.to_vec();
    if local < size {
        let next = page.get(at + local..at + local + 4)?;
        follow(file, u32::from_be_bytes(next.try_into().ok()?), size, &mut payload)?;
    }
    Some((row.cast_signed(), read_record(&payload)?))
}

/// Returns how much of a row stands on its leaf page, by the rule of the file format.
fn local_size(size: usize) -> usize {
    const LOCAL_MAX: usize = PAGE_SIZE - 35;
    const LOCAL_MIN: usize = (PAGE_SIZE - 12) * 32 / 255 - 23;
    if size <= LOCAL_MAX {
        return size;
    }
    let local = LOCAL_MIN + (size - LOCAL_MIN) % (PAGE_SIZE - 4);
    if local <= LOCAL_MAX { local } else { LOCAL_MIN }
}

/// Appends the rest of a long row. A chain that goes in circles ends with the row's size.
fn follow(file: &File, mut next: u32, size: usize, payload: &mut Vec<u8>) -> Option<()> {
    let mut page = [0; PAGE_SIZE];
    while payload.len() < size {
        read_page(file, u64::from(next), &mut page)?;
        let part = (size - payload.len()).min(PAGE_SIZE - 4);
        payload.extend_from_slice(&page[4..4 + part]);
        next = u32::from_be_bytes([page[0], page[1], page[2], page[3]]);
    }
    Some(())
}

fn read_record(payload: &[u8]) -> Option<Vec<Value>> {
    let (header_size, mut at) = varint(payload, 0)?;
    let header_size = usize::try_from(header_size).ok().filter(|size| *size <= payload.len())?;
    let mut body = header_size;
    let mut values = Vec::new();
    while at < header_size {
        let (kind, next) = varint(payload, at)?;
        at = next;
        let size = match kind {
            0 | 8 | 9 => 0,
            1..=4 => usize::try_from(kind).ok()?,
            5 => 6,
            6 | 7 => 8,
            10 | 11 => return None,
            _ => usize::try_from((kind - 12) / 2).ok()?,
        };
        let bytes = payload.get(body..body.checked_add(size)?)?;
        body += size;
        values.push(match kind {
            0 => Value::Null,
            8 => Value::Integer(0),
            9 => Value::Integer(1),
            1..=6 => Value::Integer(integer(bytes)),
            7 => Value::Real(f64::from_be_bytes(bytes.try_into().ok()?)),
            _ if kind % 2 == 0 => Value::Blob(bytes.to_vec()),
            _ => Value::Text(String::from_utf8(bytes.to_vec()).ok()?),
        });
    }
    Some(values)
}

/// Returns a big-endian number of up to eight bytes, with its sign.
fn integer(bytes: &[u8]) -> i64 {
    let is_negative = bytes.first().is_some_and(|first| first & 0x80 != 0);
    bytes.iter().fold(if is_negative { -1 } else { 0 }, |number, byte| number << 8 | i64::from(*byte))
}

/// Returns a number of one to nine bytes, and where it ends.
fn varint(bytes: &[u8], at: usize) -> Option<(u64, usize)> {
    let mut number = 0;
    for place in 0..8 {
        let byte = *bytes.get(at + place)?;
        number = number << 7 | u64::from(byte & 0x7f);
        if byte & 0x80 == 0 {
            return Some((number, at + place + 1));
        }
    }
    Some((number << 8 | u64::from(*bytes.get(at + 8)?), at + 9))
}
