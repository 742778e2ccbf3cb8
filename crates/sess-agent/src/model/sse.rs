//! Server-sent events, read as their bytes come.
//!
//! Only what a model's stream needs: the event's name and its data. A line may
//! end in any of the three ways, and a piece of the stream may end anywhere, also
//! inside a character.

/// The most bytes of one event. The last event of the Responses API repeats the whole reply.
pub(super) const EVENT_BYTES_MAX: usize = 16 << 20;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Event {
    /// Empty when the event has no name.
    pub(super) name: String,
    pub(super) data: String,
}

/// An event grew over [`EVENT_BYTES_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooLarge;

#[derive(Debug, Default)]
pub(super) struct Parser {
    /// The line that has not ended yet. Bytes, because a character may be cut in two.
    line: Vec<u8>,
    event: Event,
    has_data: bool,
    /// The last byte was a carriage return: a line feed after it belongs to the same ending.
    after_return: bool,
    /// The first line may begin with a byte order mark.
    past_first_line: bool,
}

impl Parser {
    /// Takes the next bytes in and returns the events that they complete.
    ///
    /// An event that the stream's end leaves incomplete is never returned.
    pub(super) fn push(&mut self, mut bytes: &[u8]) -> Result<Vec<Event>, TooLarge> {
        let mut events = Vec::new();
        while let Some(&first) = bytes.first() {
            if std::mem::take(&mut self.after_return) && first == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            let end = bytes.iter().position(|byte| matches!(byte, b'\n' | b'\r'));
            let part = &bytes[..end.unwrap_or(bytes.len())];
            if self.line.len() + self.event.data.len() + part.len() > EVENT_BYTES_MAX {
                return Err(TooLarge);
            }
            self.line.extend_from_slice(part);
            let Some(end) = end else { break };
            self.after_return = bytes[end] == b'\r';
            bytes = &bytes[end + 1..];
            events.extend(self.end_line());
        }
        Ok(events)
    }

    fn end_line(&mut self) -> Option<Event> {
        let line = std::mem::take(&mut self.line);
        let mut line = String::from_utf8_lossy(&line);
        if !std::mem::replace(&mut self.past_first_line, true)
            && let Some(rest) = line.strip_prefix('\u{feff}')
        {
            line = rest.to_owned().into();
        }
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            return std::mem::take(&mut self.has_data).then_some(event);
        }
        let (field, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.event.name),
            "data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
            }
            // A comment, or a field that only a browser needs.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Events are written `name:data`, with `|` for a line break in the data.
    #[track_caller]
    fn check(stream: &str, events: &[&str]) {
        assert_eq!(shown(&parsed(&[stream.as_bytes()])), events);
    }

    fn parsed(pieces: &[&[u8]]) -> Vec<Event> {
        let mut parser = Parser::default();
        pieces.iter().flat_map(|piece| parser.push(piece).expect("small events")).collect()
    }

    fn shown(events: &[Event]) -> Vec<String> {
        events.iter().map(|event| format!("{}:{}", event.name, event.data.replace('\n', "|"))).collect()
    }

    #[test]
    fn lines_end_in_any_way_and_comments_are_passed_over() {
        check("event: a\ndata: 1\n\n", &["a:1"]);
        check("event: a\r\ndata: 1\r\n\r\ndata: 2\r\n\r\n", &["a:1", ":2"]);
        check("event: a\rdata: 1\r\rdata:2\r\r", &["a:1", ":2"]);
        check(": hello\n\ndata: 1\nid: 7\nretry: 5\ndata:  2\n\n", &[":1| 2"]);
        check("data\n\n", &[":"]);
        check("event: only a name\n\ndata: x\n\n", &[":x"]);
        check("\u{feff}data: x\n\n", &[":x"]);
        check("data: not ended\n", &[]);
    }

    #[test]
    fn an_event_without_end_is_refused_and_not_kept_growing() {
        let mut parser = Parser::default();
        let piece = vec![b'x'; 1 << 20];
        let refused = (0..64).find(|_| parser.push(&piece).is_err());
        assert_eq!(refused, Some(EVENT_BYTES_MAX >> 20));

        let mut parser = Parser::default();
        let line = [b"data: ".as_slice(), &piece, b"\n"].concat();
        assert!((0..64).any(|_| parser.push(&line).is_err()));
    }

    proptest! {
        #[test]
        fn it_does_not_matter_where_the_stream_is_split(
            lines in prop::collection::vec("(data|event|id)?:? ?[a-zäß€😀]{0,4}(\r|\n|\r\n)", 0..20),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let stream = lines.concat().into_bytes();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
            cuts.sort_unstable();
            let mut pieces = Vec::new();
            let mut from = 0;
            for cut in cuts {
                pieces.push(&stream[from..cut]);
                from = cut;
            }
            pieces.push(&stream[from..]);
            let single: Vec<&[u8]> = stream.chunks(1).collect();
            let whole = parsed(&[&stream]);
            prop_assert_eq!(&parsed(&pieces), &whole);
            prop_assert_eq!(&parsed(&single), &whole);
        }

        #[test]
        fn any_bytes_are_survived(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            parsed(&[&bytes]);
        }
    }
}
