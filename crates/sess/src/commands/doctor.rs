//! `sess doctor`: what is wrong with the store, and what to do about it.

use std::{fmt::Write as _, os::unix::fs::PermissionsExt as _, path::Path, process::ExitCode};

use anyhow::Context as _;
use console::Style;
use serde::Serialize;
use serde_json::json;
use sess_agent::confine;
use sess_app::{Kind, Retention, SOON_DAYS};
use sess_core::{Source, redact::redact};
use sess_readers::{Age, Archiving, Keeping, Pause, Reach};

use super::{Context, progress::Progress};
use crate::{
    cli,
    output::{Output, one_line},
};

/// SQLite before this version can corrupt a write-ahead log.
const SQLITE_MIN: [u32; 3] = [3, 51, 3];

/// File systems where locks of other machines may not hold.
const NETWORK_FILE_SYSTEMS: [(u64, &str); 4] =
    [(0x6969, "NFS"), (0xff53_4d42, "CIFS"), (0xfe53_4d42, "SMB2"), (0x0102_1997, "9P")];

#[derive(Serialize)]
struct Check {
    name: &'static str,
    /// `ok`, `warning`, `damaged`, `invalid`, or `failed` when there was no looking.
    outcome: &'static str,
    detail: String,
}

pub async fn run(context: &Context, output: &Output, args: cli::Doctor) -> anyhow::Result<ExitCode> {
    if let Some(target) = args.salvage {
        return salvage(context, output, &target).await;
    }
    let home = context.home()?;
    let progress = Progress::new("looking");
    let mut checks = vec![check_home(home), check_config(context), check_sqlite()];
    checks.extend(check_file_system(home));
    checks.push(check_sandbox(context));
    if context.app.has_store() {
        match context.app.health() {
            Ok(health) => {
                let lag = health.index_lag.map_or("not made yet".to_owned(), |lag| format!("{lag} behind"));
                let detail = format!(
                    "{} sessions, {} messages, {} runs, schema {}, search index {lag}",
                    health.sessions, health.messages, health.runs, health.schema
                );
                let outcome = if health.damage.is_empty() { "ok" } else { "damaged" };
                checks.push(Check { name: "store", outcome, detail });
                for detail in health.damage {
                    checks.push(Check { name: "damage", outcome: "damaged", detail });
                }
            }
            Err(error) => {
                let outcome = if error.kind() == Kind::Damaged { "damaged" } else { "failed" };
                checks.push(Check { name: "store", outcome, detail: error.to_string() });
            }
        }
    } else {
        checks.push(Check {
            name: "store",
            outcome: "ok",
            detail: "none yet: it is made at the first write".to_owned(),
        });
    }
    checks.extend(check_index(context));
    checks.extend(check_retention(context).await);
    drop(progress);
    for check in &mut checks {
        // The name of a directory may hold a secret.
        check.detail = redact(&check.detail).0.into_owned();
    }
    let has = |outcome: &str| checks.iter().any(|check| check.outcome == outcome);
    let (is_damaged, has_failed, is_invalid) = (has("damaged"), has("failed"), has("invalid"));
    if output.json {
        output.data(&json!({ "healthy": !is_damaged && !has_failed && !is_invalid, "checks": checks }))?;
    } else {
        for check in &checks {
            let style = match check.outcome {
                "ok" => Style::new().green(),
                "warning" => Style::new().yellow(),
                _ => Style::new().red(),
            };
            let line = format!(
                "{:<8} {:<12} {}",
                style.apply_to(check.outcome),
                check.name,
                one_line(&check.detail)
            );
            output.line(&line)?;
        }
        if is_damaged {
            output.say(
                "The file is left as it is. `sess doctor --salvage <new dir>` copies what can be read into a new \
                 store; then set SESS_HOME to that directory, or move it into place.",
            );
        }
    }
    Ok(ExitCode::from(match (is_damaged, has_failed, is_invalid) {
        (true, _, _) => 1,
        (false, true, _) => 6,
        (false, false, true) => 2,
        (false, false, false) => 0,
    }))
}

async fn salvage(context: &Context, output: &Output, target: &Path) -> anyhow::Result<ExitCode> {
    let target = std::path::absolute(target).context("cannot use that directory")?;
    let salvaged = context.app.salvage(&target).await?;
    if output.json {
        output.data(&json!({
            "dir": target, "sessions": salvaged.sessions, "messages": salvaged.messages,
            "plan_revisions": salvaged.plan_revisions, "runs": salvaged.runs, "lost": salvaged.lost,
        }))?;
    } else {
        output.line(&format!(
            "Salvaged {} sessions, {} messages, {} plan revisions and {} runs into {}; {} rows could not be read.",
            salvaged.sessions,
            salvaged.messages,
            salvaged.plan_revisions,
            salvaged.runs,
            target.display(),
            salvaged.lost
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn check_home(home: &Path) -> Check {
    let shown = home.display();
    let (outcome, detail) = match home.metadata() {
        Err(_) => ("ok", format!("{shown} (not made yet)")),
        Ok(found) if found.permissions().mode() & 0o077 != 0 => {
            ("warning", format!("{shown} can be read by others; `chmod 700` it"))
        }
        Ok(_) => ("ok", shown.to_string()),
    };
    Check { name: "data", outcome, detail }
}

fn check_config(context: &Context) -> Check {
    let config = &context.config;
    let (outcome, detail) = match (&config.problem, config.notices.first()) {
        (Some(problem), _) => ("invalid", problem.to_string()),
        (None, Some(notice)) => ("warning", notice.clone()),
        (None, None) => {
            let used = config.files.iter().filter(|file| file.state == "used");
            let used: Vec<String> = used.map(|file| file.path.display().to_string()).collect();
            ("ok", if used.is_empty() { "no file".to_owned() } else { used.join(", ") })
        }
    };
    Check { name: "config", outcome, detail }
}

fn check_sqlite() -> Check {
    let version = sess_app::sqlite_version();
    let numbers: Vec<u32> = version.split('.').filter_map(|number| number.parse().ok()).collect();
    let outcome = if numbers.as_slice() >= SQLITE_MIN.as_slice() { "ok" } else { "warning" };
    Check { name: "sqlite", outcome, detail: version }
}

fn check_sandbox(context: &Context) -> Check {
    let path = context.env.iter().find(|(name, _)| name == "PATH").map_or("", |(_, path)| path.as_str());
    let abilities = confine::probe(confine::find_bubblewrap(path).as_deref());
    let outcome = if abilities.can_confine() { "ok" } else { "warning" };
    Check { name: "sandbox", outcome, detail: abilities.to_string() }
}

/// Says what is wrong with the index of other agents' sessions. It costs a search time and nothing else.
fn check_index(context: &Context) -> Option<Check> {
    let problem = context.app.index_problem().unwrap_or_else(|error| Some(error.to_string()));
    problem.map(|detail| Check { name: "index", outcome: "warning", detail })
}

/// Says which agents delete sessions by themselves, when, and how to stop that, and what of theirs cannot be read.
async fn check_retention(context: &Context) -> Vec<Check> {
    let found = match context.app.retention().await {
        Ok(found) => found,
        Err(error) => {
            return vec![Check { name: "agents", outcome: "warning", detail: error.to_string() }];
        }
    };
    let mut checks = Vec::new();
    for kept in &found {
        let name = kept.source.as_str();
        let is_wrong = match &kept.keeping {
            Keeping::Paused(pause) => pause.reach != Reach::Cleanup,
            Keeping::Unknown(_) => true,
            Keeping::All | Keeping::OnServer | Keeping::Swept(_) | Keeping::Archived(_) => false,
        };
        let outcome = if kept.unsaved > 0 || is_wrong { "warning" } else { "ok" };
        checks.push(Check { name, outcome, detail: retention(kept) });
        let problem = |what: &String| Check { name, outcome: "warning", detail: what.clone() };
        checks.extend(kept.problems.iter().map(problem));
    }
    checks
}

fn retention(kept: &Retention) -> String {
    let mut text = sessions(kept.sessions);
    match &kept.keeping {
        Keeping::OnServer => {
            text.push_str("; it keeps threads on its server, and what is here is what older releases left");
        }
        Keeping::All => text.push_str("; it deletes none by itself, as far as is known"),
        Keeping::Archived(archiving) => text.push_str(&archived(archiving)),
        Keeping::Paused(pause) => text.push_str(&paused(pause, kept.source)),
        Keeping::Unknown(why) => {
            let _infallible = write!(text, "; whether it deletes them is not known: {why}");
        }
        Keeping::Swept(sweep) => {
            let since = match sweep.age {
                Age::File => "whose files did not change",
                Age::Use => "in which nothing was said",
            };
            let value = sweep.value.as_ref().map_or("is not set".to_owned(), |value| format!("is {value}"));
            let _infallible = write!(
                text,
                "; it deletes those {since} for {} ({} in {} {value})",
                lasting(sweep.after_ms),
                sweep.setting,
                sweep.file.display()
            );
            if kept.soon > 0 {
                let _infallible = write!(text, "; {} may go within {SOON_DAYS} days", kept.soon);
                let _infallible = match kept.unsaved {
                    0 => write!(text, ", all with a snapshot"),
                    unsaved => write!(text, ", {unsaved} without a snapshot: `sess snapshot` takes them"),
                };
            }
            if !sweep.keeps_all() {
                let _infallible = write!(text, "; to keep all, write {} there", sweep.remedy);
            }
        }
    }
    if kept.saved > 0 {
        let _infallible = write!(text, "; {} more in snapshots alone", kept.saved);
    }
    text
}

/// Says what OpenClaw archives, and what it deletes.
fn archived(archiving: &Archiving) -> String {
    let Archiving { setting, file, value, remedy } = archiving;
    let value = value.as_ref().map_or("is not set: 30d".to_owned(), |value| format!("is {value}"));
    format!(
        "; it archives those that were not used for a while, with all that was said ({setting} in {} {value}); it \
         deletes what automation left (cron, hooks, sub-agents and the like), and above maxDiskBytes (10 GB an agent \
         when it is not set) the oldest history that no session goes on with and what maxEntries archived; to keep \
         all, write {remedy} there",
        file.display()
    )
}

/// Says why an agent deletes no sessions at present, and what else that costs.
fn paused(pause: &Pause, source: Source) -> String {
    let Pause { file, wrong, reach, remedy } = pause;
    let file = file.display();
    let cost = match (reach, source) {
        (Reach::File, Source::Claude) => {
            "so nothing in that file is in effect, the hook of `sess install claude` neither, and its cleanup is paused"
        }
        (Reach::File, _) => "so nothing in that file is in effect, and its cleanup is paused",
        (Reach::Agent, _) => "so it does not start",
        (Reach::Cleanup, _) => "so its cleanup is off",
    };
    format!(
        "; it deletes none at present: {file} is invalid for it ({wrong}), {cost}; mend it, and to keep all, write \
         {remedy} there"
    )
}

fn sessions(count: u64) -> String {
    if count == 1 { "1 session".to_owned() } else { format!("{count} sessions") }
}

/// Writes how long something lasts, in the unit that fits.
fn lasting(ms: i64) -> String {
    let hours = ms / 3_600_000;
    match (hours, hours % 24) {
        (24, _) => "1 day".to_owned(),
        (48.., 0) => format!("{} days", hours / 24),
        (1, _) => "1 hour".to_owned(),
        _ => format!("{hours} hours"),
    }
}

fn check_file_system(home: &Path) -> Option<Check> {
    let existing = home.ancestors().find(|dir| dir.exists())?;
    let kind = u64::try_from(rustix::fs::statfs(existing).ok()?.f_type).ok()?;
    let (_, name) = NETWORK_FILE_SYSTEMS.iter().find(|(magic, _)| *magic == kind & 0xffff_ffff)?;
    let detail =
        format!("{} is on {name}: locks may not hold there; set SESS_HOME to a local disk", home.display());
    Some(Check { name: "disk", outcome: "warning", detail })
}
