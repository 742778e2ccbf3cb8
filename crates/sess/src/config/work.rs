//! From what is written to how work sessions are held, landed and checked.

use std::{collections::BTreeMap, path::Path, time::Duration};

use sess_work::{Land, Settings};

use super::{
    file,
    problem::{Problem, Trail},
    yaml::Document,
};

const LEASE_MINUTES_MAX: u64 = 525_600;

/// Makes the settings of work sessions.
pub fn build(
    document: &Document,
    file: &file::File,
    user_home: Option<&Path>,
) -> Result<Settings, Vec<Problem>> {
    let written = &file.work;
    let trail = Trail::default().key("work");
    let mut found = Vec::new();
    let mut wrong = |trail: &Trail, text: String| {
        found.push(Problem { at: document.spot(trail), text: format!("{trail}: {text}") });
    };
    let mut settings = Settings::default();
    if let Some(minutes) = written.lease_minutes {
        if !(1..=LEASE_MINUTES_MAX).contains(&minutes) {
            let text = format!("expected a number from 1 to {LEASE_MINUTES_MAX}, found {minutes}");
            wrong(&trail.key("leaseMinutes"), text);
        }
        settings.lease = Duration::from_secs(minutes.saturating_mul(60));
    }
    settings.land = match written.land {
        None | Some(file::Landing::Push) => Land::Push,
        Some(file::Landing::Pr) => Land::Pr,
        Some(file::Landing::None) => Land::None,
    };
    if let Some(text) = &written.workspaces {
        let trail = trail.key("workspaces");
        if text.trim().is_empty() {
            wrong(&trail, "expected a directory".to_owned());
        }
        let dir = document.origin(&trail).map(|origin| origin.dir.clone()).unwrap_or_default();
        settings.workspaces = Some(match (text.strip_prefix("~/"), user_home) {
            (Some(rest), Some(home)) => home.join(rest),
            _ => dir.join(text),
        });
    }
    let mut gates = BTreeMap::new();
    for (name, command) in &written.gates.0 {
        if command.trim().is_empty() {
            wrong(&trail.key("gates").key(name), "expected a command".to_owned());
        }
        gates.insert(name.clone(), command.clone());
    }
    settings.gates = gates;
    settings.kb_drafts = matches!(written.kb.state, Some(file::KbState::Drafting));
    if found.is_empty() { Ok(settings) } else { Err(found) }
}
