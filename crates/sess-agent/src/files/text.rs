//! Reading text out of files of any size and content, with little memory.

use std::{
    fs::File,
    io::{BufRead as _, BufReader, Read as _},
    path::Path,
};

use serde::Deserialize;
use sess_core::redact::{AROUND_CUT_BYTES, around_cut};

use super::beneath::{Refusal, Root, refuse};
use crate::tool::ANSWER_BYTES_MAX;

/// How many lines are shown when nobody says.
const LINES: u64 = 2_000;
/// How much of a file decides whether it is text.
pub(super) const LOOK_BYTES: usize = 8_192;
/// Room that is left in an answer for what is said about it.
const NOTES_BYTES: usize = 500;
/// The longest beginning of a line that is kept.
pub(super) const LINE_BYTES_MAX: usize = 20_000;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Read {
    path: String,
    offset: Option<u64>,
    limit: Option<u64>,
}

pub(super) fn read(root: &Root, args: &Read, stop: &dyn Fn() -> bool) -> Result<String, Refusal> {
    let file = root.open_file(&root.below(&args.path)?)?;
    let size = file.metadata().map_or(0, |found| found.len());
    let failed = |error: std::io::Error| Refusal(format!("{}: {error}", args.path));
    let mut reader = BufReader::with_capacity(LOOK_BYTES * 8, file);
    if is_binary(reader.fill_buf().map_err(failed)?) {
        return refuse(format!("{} is binary ({size} bytes), not text", args.path));
    }
    let first = args.offset.unwrap_or(1).max(1);
    let limit = args.limit.unwrap_or(LINES).max(1);
    let (mut answer, mut number, mut is_whole, mut is_lossy) = (String::new(), 0, true, false);
    let mut line = Vec::new();
    loop {
        if stop() {
            return refuse("cancelled");
        }
        let Some(cut) = next_line(&mut reader, &mut line, stop).map_err(failed)? else { break };
        number += 1;
        if number < first {
            continue;
        }
        if number >= first.saturating_add(limit) || answer.len() + line.len() > ANSWER_BYTES_MAX - NOTES_BYTES
        {
            is_whole = false;
            break;
        }
        let text = String::from_utf8_lossy(&line);
        is_lossy |= matches!(text, std::borrow::Cow::Owned(_)) && cut == 0;
        answer.push_str(&text);
        if cut > 0 {
            answer.push_str(&format!("[… {cut} bytes of this line left out …]\n"));
        }
    }
    if number < first && number > 0 {
        return refuse(format!("{} has {number} lines; offset {first} is behind the end", args.path));
    }
    if !is_whole {
        end_line(&mut answer);
        answer.push_str(&format!(
            "[lines {first} to {} of {size} bytes; go on with offset {number}]",
            number - 1
        ));
    }
    if is_lossy {
        end_line(&mut answer);
        answer.push_str("[the file is not valid UTF-8; � stands for what cannot be read]");
    }
    if size == 0 && answer.is_empty() {
        answer.push_str("[the file is empty]");
    }
    Ok(answer)
}

/// Reads a whole file that has to be text, exactly.
pub(super) fn whole(root: &Root, below: &Path, bytes_max: usize) -> Result<String, Refusal> {
    let file = root.open_file(below)?;
    let shown = below.display();
    let mut bytes = Vec::new();
    let most = u64::try_from(bytes_max).unwrap_or(u64::MAX) + 1;
    file.take(most).read_to_end(&mut bytes).map_err(|error| Refusal(format!("{shown}: {error}")))?;
    if bytes.len() > bytes_max {
        return refuse(format!("{shown} is larger than {bytes_max} bytes"));
    }
    String::from_utf8(bytes)
        .map_err(|_| Refusal(format!("{shown} is not valid UTF-8; editing would damage it")))
}

pub(super) fn is_binary(beginning: &[u8]) -> bool {
    beginning[..beginning.len().min(LOOK_BYTES)].contains(&0)
}

/// Reads the next line with its end; returns how many bytes of it were too many, or `None` at the end.
///
/// A line that is too long ends before a secret that it would be cut through: half of one is not recognised,
/// and would not be masked.
pub(super) fn next_line(
    reader: &mut BufReader<File>,
    line: &mut Vec<u8>,
    stop: &dyn Fn() -> bool,
) -> std::io::Result<Option<usize>> {
    line.clear();
    let mut size_bytes = 0;
    loop {
        let buffer = reader.fill_buf()?;
        if buffer.is_empty() || stop() {
            break;
        }
        let end = buffer.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(buffer.len(), |end| end + 1);
        let kept = taken.min((LINE_BYTES_MAX + AROUND_CUT_BYTES).saturating_sub(line.len()));
        line.extend_from_slice(&buffer[..kept]);
        size_bytes += taken;
        reader.consume(taken);
        if end.is_some() {
            break;
        }
    }
    if line.len() > LINE_BYTES_MAX {
        let text = String::from_utf8_lossy(line).into_owned();
        let end = around_cut(&text, text.floor_char_boundary(LINE_BYTES_MAX)).start;
        line.clear();
        line.extend_from_slice(&text.as_bytes()[..end]);
    }
    Ok((size_bytes > 0).then(|| size_bytes.saturating_sub(line.len())))
}

fn end_line(text: &mut String) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
}
