//! Text on its way from models to whoever follows.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use sess_app::{
    StreamedText,
    agents::{News, Person, Place},
};
use sess_core::RunId;

use super::super::hub::Hub;

/// How many runs are listened to at a time.
const RUNS_MAX: usize = 1_000;

/// Looks on at runs, and hands on what models say while they say it. Nobody can be asked here.
pub(in super::super) struct Deltas {
    hub: Arc<Hub>,
    streams: Mutex<HashMap<RunId, StreamedText>>,
}

impl Deltas {
    pub(in super::super) fn new(hub: Arc<Hub>) -> Self {
        Self { hub, streams: Mutex::default() }
    }

    fn tell_text(&self, place: &Place, text: String) {
        if !text.is_empty() {
            self.hub.tell_delta(&place.session, &place.run, text);
        }
    }
}

impl Person for Deltas {
    fn tell(&self, place: &Place, news: &News) {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        let text = match news {
            News::Text(piece) => {
                // Runs that failed in the middle of a reply leave theirs behind.
                if streams.len() >= RUNS_MAX && !streams.contains_key(&place.run) {
                    streams.clear();
                }
                streams.entry(place.run.clone()).or_default().push(piece)
            }
            News::Replied { .. } => streams.remove(&place.run).map(StreamedText::finish).unwrap_or_default(),
            News::Retry { .. } => {
                streams.remove(&place.run);
                String::new()
            }
            News::Thinking(_)
            | News::Calling { .. }
            | News::ToolStarted { .. }
            | News::ToolEnded { .. }
            | News::Compacting
            | News::Compacted
            | News::Switched(_)
            | News::Waiting { .. } => String::new(),
        };
        drop(streams);
        self.tell_text(place, text);
    }
}
