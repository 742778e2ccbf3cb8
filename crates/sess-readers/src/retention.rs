//! Which agents delete sessions by themselves, and when, as their own settings say.

use std::path::PathBuf;

use serde_json::{Map, Value};
use sess_core::{Source, Timestamp};

use crate::{
    Foreign, Homes,
    settings::{Dialect, Settings},
};

const DAY_MS: i64 = 86_400_000;
/// What Claude Code does when nobody says otherwise.
const USUAL_DAYS: i64 = 30;
/// Whoever waits for so long deletes none that anybody will ask for. Claude Code has no word for never.
const KEEPING_DAYS: i64 = 36_500;

/// How an agent keeps its sessions, as far as is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Keeping {
    /// It deletes none by itself.
    All,
    /// What is here is not what it goes by, so nothing that it deletes would be seen here.
    OnServer,
    Swept(Sweep),
    /// It puts old ones aside with all that was said in them, and deletes what nobody said.
    Archived(Archiving),
    /// It deletes none as long as its settings are as they are.
    Paused(Pause),
    /// What it does is not known, for this reason: its settings cannot be read here.
    Unknown(String),
}

/// An agent's way to put sessions aside that were not used for a while.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Archiving {
    /// The setting that says for how long, the file it stands in, and what it is there; none when it is not.
    pub setting: &'static str,
    pub file: PathBuf,
    pub value: Option<String>,
    /// What to write there so that nothing is put aside or deleted.
    pub remedy: &'static str,
}

/// Why an agent deletes no sessions at present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pause {
    pub file: PathBuf,
    /// What is wrong in the file.
    pub wrong: String,
    pub reach: Reach,
    /// What to write there so that sessions stay when it is mended.
    pub remedy: &'static str,
}

/// How much is without effect because of something wrong in settings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The cleanup alone.
    Cleanup,
    /// All that stands in the file.
    File,
    /// The agent: it does not start.
    Agent,
}

/// An agent's way to delete sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sweep {
    /// How old a session gets.
    pub after_ms: i64,
    pub age: Age,
    /// The setting that says so, the file it stands in, and what it is there; none when it is not.
    pub setting: &'static str,
    pub file: PathBuf,
    pub value: Option<String>,
    /// What to write there so that sessions stay.
    pub remedy: &'static str,
}

/// What a session's age is counted from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Age {
    /// The last change of its file.
    File,
    /// When something was last said in it.
    Use,
}

impl Keeping {
    /// Returns how it deletes sessions, if it does so here.
    pub fn sweep(&self) -> Option<&Sweep> {
        match self {
            Self::Swept(sweep) => Some(sweep),
            Self::All | Self::OnServer | Self::Archived(_) | Self::Paused(_) | Self::Unknown(_) => None,
        }
    }
}

impl Sweep {
    /// Tells whether sessions stay as it is, so that nothing is to be written there.
    pub fn keeps_all(&self) -> bool {
        self.after_ms >= KEEPING_DAYS * DAY_MS
    }

    /// Returns when a session may be deleted.
    pub fn due_at(&self, session: &Foreign) -> Timestamp {
        let from = match self.age {
            Age::File => session.changed_at().unwrap_or(session.updated_at),
            Age::Use => session.updated_at,
        };
        Timestamp::from_millis_clamped(from.as_millis().saturating_add(self.after_ms))
    }
}

/// Returns how an agent keeps its sessions.
pub fn keeping(homes: &Homes, source: Source) -> Keeping {
    match source {
        Source::Claude => claude(homes),
        Source::Gemini => gemini(homes),
        Source::Openclaw => openclaw(homes),
        Source::Amp => Keeping::OnServer,
        Source::Native
        | Source::Codex
        | Source::Opencode
        | Source::Goose
        | Source::DockerAgent
        | Source::Cursor
        | Source::Zed
        | Source::Crush
        | Source::Qwen
        | Source::Copilot => Keeping::All,
    }
}

/// Claude Code 2.1.325 goes by no settings of a file in which one is invalid, and deletes nothing meanwhile.
fn claude(homes: &Homes) -> Keeping {
    let file = homes.claude().join("settings.json");
    let (setting, remedy) = ("cleanupPeriodDays", "\"cleanupPeriodDays\": 36500");
    let paused = |file, wrong| Keeping::Paused(Pause { file, wrong, reach: Reach::File, remedy });
    let days = match Settings::read(&file, Dialect::Plain) {
        Err(error) => return Keeping::Unknown(error.to_string()),
        Ok(Settings::Malformed(why)) => return paused(file, why),
        Ok(Settings::None) => None,
        Ok(Settings::Some(mut fields)) => fields.remove(setting),
    };
    // For JavaScript 90.0 is a whole number, too.
    let is_valid = |days: &f64| *days >= 1.0 && days.fract() == 0.0;
    let after_ms = match days.as_ref().map(|days| days.as_f64().filter(is_valid)) {
        None => USUAL_DAYS * DAY_MS,
        Some(Some(days)) => (days * DAY_MS as f64) as i64,
        Some(None) => {
            let value = days.unwrap_or_default();
            return paused(file, format!("{setting} is {value}, and has to be a whole number above 0"));
        }
    };
    let value = days.map(|days| days.to_string());
    Keeping::Swept(Sweep { after_ms, age: Age::File, setting, file, value, remedy })
}

/// Gemini CLI 0.61 cleans nothing up when it does not understand for how long it should keep sessions, and does not
/// start when it does not understand the file.
fn gemini(homes: &Homes) -> Keeping {
    const USUAL: &str = "30d";
    const LEAST: &str = "1d";
    let file = homes.gemini().join("settings.json");
    let remedy = "\"general\": {\"sessionRetention\": {\"enabled\": false}}";
    let paused = |file, wrong, reach| Keeping::Paused(Pause { file, wrong, reach, remedy });
    let fields = match Settings::read(&file, Dialect::Comments) {
        Err(error) => return Keeping::Unknown(error.to_string()),
        Ok(Settings::Malformed(why)) => return paused(file, why, Reach::Agent),
        Ok(Settings::None) => Map::new(),
        Ok(Settings::Some(fields)) => fields,
    };
    let retention = fields.get("general").and_then(|general| general.get("sessionRetention"));
    let set = |name: &str| retention.and_then(|retention| retention.get(name));
    if set("enabled").and_then(Value::as_bool) == Some(false) {
        return Keeping::All;
    }
    let value = set("maxAge");
    let Some(after_ms) = value.map_or(Some(USUAL), Value::as_str).and_then(period_ms) else {
        let value = value.map(Value::to_string).unwrap_or_default();
        let wrong = format!(
            "maxAge is {value}, and has to be a text such as \"30d\": a number above 0, and h, d, w or m"
        );
        return paused(file, wrong, Reach::Cleanup);
    };
    let least = set("minRetention").and_then(Value::as_str).filter(|least| period_ms(least).is_some());
    let least = least.unwrap_or(LEAST);
    if Some(after_ms) < period_ms(least) {
        let wrong = format!(
            "maxAge is {}, which is less than minRetention, {least}",
            value.map_or(USUAL.to_owned(), shown)
        );
        return paused(file, wrong, Reach::Cleanup);
    }
    let value = value.map(shown);
    let setting = "general.sessionRetention.maxAge";
    Keeping::Swept(Sweep { after_ms, age: Age::Use, setting, file, value, remedy })
}

/// Reads how long something lasts as Gemini CLI does: `36h`, `30d`, `2w`, or `6m` of 30 days each.
fn period_ms(text: &str) -> Option<i64> {
    let (digits, unit) = text.split_at_checked(text.len().checked_sub(1)?)?;
    let unit_ms = match unit {
        "h" => DAY_MS / 24,
        "d" => DAY_MS,
        "w" => 7 * DAY_MS,
        "m" => 30 * DAY_MS,
        _ => return None,
    };
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    // More than fits is for ever.
    let number = is_number.then(|| digits.parse::<i64>().unwrap_or(i64::MAX)).filter(|number| *number > 0)?;
    Some(number.saturating_mul(unit_ms))
}

/// OpenClaw 2026.9.6 archives in place what a person said; what it deletes by age is what automation left.
fn openclaw(homes: &Homes) -> Keeping {
    let file = homes.openclaw().join("openclaw.json");
    let fields = match Settings::read(&file, Dialect::Five) {
        Err(error) => return Keeping::Unknown(error.to_string()),
        Ok(Settings::Malformed(why)) => {
            return Keeping::Unknown(format!("{} cannot be understood: {why}", file.display()));
        }
        Ok(Settings::None) => Map::new(),
        Ok(Settings::Some(fields)) => fields,
    };
    let maintenance = fields.get("session").and_then(|session| session.get("maintenance"));
    let set = |name: &str| maintenance.and_then(|maintenance| maintenance.get(name));
    if set("mode").and_then(Value::as_str) == Some("warn") {
        return Keeping::All;
    }
    let value = set("pruneAfter").map(shown);
    let remedy = "\"session\": {\"maintenance\": {\"mode\": \"warn\"}}";
    Keeping::Archived(Archiving { setting: "session.maintenance.pruneAfter", file, value, remedy })
}

/// Writes a value as a person would.
fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Says what is made of a settings file: `hours, value`, or how sessions are kept otherwise.
    #[track_caller]
    fn check(source: Source, file: &str, settings: &str, said: &str) {
        let home = tempfile::tempdir().expect("a home");
        let path = home.path().join(file);
        fs::create_dir_all(path.parent().expect("a directory")).expect("made");
        fs::write(&path, settings).expect("written");
        let told = match keeping(&Homes::at(home.path()), source) {
            Keeping::All => "all".to_owned(),
            Keeping::OnServer => "on its server".to_owned(),
            Keeping::Archived(archiving) => {
                assert_eq!(archiving.file, path);
                format!("archived, {}", archiving.value.as_deref().unwrap_or("-"))
            }
            Keeping::Paused(pause) => {
                assert_eq!(pause.file, path);
                format!("paused, {:?}: {}", pause.reach, pause.wrong)
            }
            Keeping::Unknown(why) => why,
            Keeping::Swept(sweep) => {
                assert_eq!(sweep.file, path);
                let keeps = if sweep.keeps_all() { ", keeps all" } else { "" };
                let value = sweep.value.unwrap_or_else(|| "-".to_owned());
                format!("{} h, {value}{keeps}", sweep.after_ms / 3_600_000)
            }
        };
        assert_eq!(told, said, "{settings}");
    }

    #[test]
    fn claude_code_goes_by_no_settings_of_a_file_that_has_a_bad_one() {
        let check =
            |settings: &str, said: &str| check(Source::Claude, ".claude/settings.json", settings, said);
        let is_invalid = |value: &str| {
            let wrong = format!("cleanupPeriodDays is {value}, and has to be a whole number above 0");
            check(&format!(r#"{{"cleanupPeriodDays": {value}}}"#), &format!("paused, File: {wrong}"));
        };
        for value in ["0", "7.5", "-1", "\"90\"", "null", "\"soon\"", "[7]"] {
            is_invalid(value);
        }
        check(r#"{"cleanupPeriodDays": 90.0}"#, "2160 h, 90.0");
        check("{", "paused, File: EOF while parsing an object at line 1 column 1");
        check("[]", "paused, File: it is no object");
        check("null", "paused, File: it is no object");
        check("{ // mine\n}", "paused, File: key must be a string at line 1 column 3");
        check("", "720 h, -");
    }

    #[test]
    fn gemini_cli_cleans_nothing_up_when_it_does_not_understand_for_how_long() {
        let check = |retention: &str, said: &str| {
            let settings = format!(r#"{{"general": {{"sessionRetention": {{{retention}}}}}}}"#);
            check(Source::Gemini, ".gemini/settings.json", &settings, said);
        };
        let is_none = |value: &str| {
            let wrong = "and has to be a text such as \"30d\": a number above 0, and h, d, w or m";
            check(&format!(r#""maxAge": {value}"#), &format!("paused, Cleanup: maxAge is {value}, {wrong}"));
        };
        for value in ["\"ever\"", "90", "\"0d\"", "\"30\"", "\" 30d\"", "\"\"", "\"+3d\"", "null", "\"3ä\""]
        {
            is_none(value);
        }
        check(r#""maxAge": "12h""#, "paused, Cleanup: maxAge is 12h, which is less than minRetention, 1d");
        check(r#""maxAge": "12h", "minRetention": "6h""#, "12 h, 12h");
        check(
            r#""maxAge": "12h", "minRetention": "ever""#,
            "paused, Cleanup: maxAge is 12h, which is less than minRetention, 1d",
        );
        check(
            r#""maxAge": "2w", "minRetention": "1m""#,
            "paused, Cleanup: maxAge is 2w, which is less than minRetention, 1m",
        );
        check(
            r#""minRetention": "2m""#,
            "paused, Cleanup: maxAge is 30d, which is less than minRetention, 2m",
        );
        check(r#""maxAge": "99999999999999999999d""#, "2562047788015 h, 99999999999999999999d, keeps all");
        check(r#""maxAge": "7d","#, "paused, Agent: trailing comma at line 1 column 50");
    }

    #[test]
    fn openclaw_archives_and_does_not_delete() {
        let check =
            |settings: &str, said: &str| check(Source::Openclaw, ".openclaw/openclaw.json", settings, said);
        check("{session: {}}", "archived, -");
        check(r#"{"session": {"maintenance": {"pruneAfter": "14d"}}}"#, "archived, 14d");
        check("{session: {maintenance: {pruneAfter: 7,},}, /* x */}", "archived, 7");
        check("{session: {maintenance: {mode: 'warn'}}} // mine", "all");
    }

    #[test]
    fn settings_that_cannot_be_understood_leave_open_what_is_deleted() {
        let home = tempfile::tempdir().expect("a home");
        let path = home.path().join(".openclaw/openclaw.json");
        fs::create_dir_all(path.parent().expect("a directory")).expect("made");
        fs::write(&path, "session:").expect("written");
        let why = format!("{} cannot be understood: expected a value at line 1", path.display());
        assert_eq!(keeping(&Homes::at(home.path()), Source::Openclaw), Keeping::Unknown(why));
    }

    #[test]
    fn settings_may_be_a_link_to_a_file() {
        let home = tempfile::tempdir().expect("a home");
        let (dir, kept) = (home.path().join(".claude"), home.path().join("dotfiles"));
        fs::create_dir_all(&dir).and_then(|()| fs::create_dir(&kept)).expect("made");
        fs::write(kept.join("settings.json"), r#"{"cleanupPeriodDays": 365}"#).expect("written");
        let link = dir.join("settings.json");
        let link_to = |target: &str| {
            let _none_yet = fs::remove_file(&link);
            std::os::unix::fs::symlink(target, &link).expect("linked");
            keeping(&Homes::at(home.path()), Source::Claude)
        };
        let value = |keeping: Keeping| keeping.sweep().cloned().expect("a sweep").value;
        assert_eq!(value(link_to("../dotfiles/settings.json")).as_deref(), Some("365"));
        assert_eq!(value(link_to("../gone")), None, "agents take it for a file that is not there");
        let unknown = link_to("../dotfiles");
        assert!(matches!(&unknown, Keeping::Unknown(why) if why.contains("no regular file")), "{unknown:?}");
    }

    #[test]
    fn what_a_user_set_counts_and_otherwise_what_is_usual() {
        let claude =
            |settings: &str, said: &str| check(Source::Claude, ".claude/settings.json", settings, said);
        claude("{}", "720 h, -");
        claude(r#"{"cleanupPeriodDays": 7}"#, "168 h, 7");
        claude(r#"{"cleanupPeriodDays": 36499}"#, "875976 h, 36499");
        claude(r#"{"cleanupPeriodDays": 36500}"#, "876000 h, 36500, keeps all");
        claude(r#"{"cleanupPeriodDays": 9999999999}"#, "239999999976 h, 9999999999, keeps all");
        claude("\u{feff}{\"cleanupPeriodDays\": 90}", "2160 h, 90");
        let gemini =
            |settings: &str, said: &str| check(Source::Gemini, ".gemini/settings.json", settings, said);
        gemini("{}", "720 h, -");
        gemini(r#"{"general": {"sessionRetention": {"enabled": false}}}"#, "all");
        gemini("{\n // mine\n \"general\": {\"sessionRetention\": {\"enabled\": false}}\n}", "all");
        gemini(r#"{"general": {"sessionRetention": {"maxAge": "2w"}}}"#, "336 h, 2w");
        gemini(r#"{"general": {"sessionRetention": {"maxAge": "36h"}}}"#, "36 h, 36h");
        check(Source::Codex, ".codex/config.toml", "", "all");
        check(Source::Amp, ".config/amp/settings.json", "{}", "on its server");
    }
}
