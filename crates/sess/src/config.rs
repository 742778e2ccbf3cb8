//! Configuration: read once, here, and handed down as values.

use std::{
    path::{Path, PathBuf},
    time::{SystemTime, UNIX_EPOCH},
};

use anyhow::{Context as _, anyhow, bail};
use serde::Deserialize;
use sess_app::Settings;
use sess_core::{Timestamp, policy::ContextVisibility};

/// How many days an unused plan file stays, when nobody says.
const PLANS_KEEP_DAYS: u32 = 30;

/// What this process was started with.
pub struct Config {
    pub settings: Settings,
    /// The environment, in which hosts say who is calling.
    pub env: Vec<(String, String)>,
}

/// The configuration file. Unknown keys are errors: a misspelt one would do nothing in silence.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct File {
    plans: Plans,
    tools: Tools,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Plans {
    dir: Option<PathBuf>,
    keep_days: Option<u32>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct Tools {
    context: ContextTools,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ContextTools {
    visibility: Option<String>,
}

impl Config {
    /// Reads the environment and the configuration file; `SESS_*` variables win over the file.
    #[expect(clippy::disallowed_methods, reason = "the one place where the environment is read")]
    pub fn load(named: Option<&Path>) -> anyhow::Result<Self> {
        let env: Vec<(String, String)> = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        let get = |name: &str| {
            env.iter().find(|(key, value)| key == name && !value.is_empty()).map(|(_, value)| value.as_str())
        };
        let user_home = get("HOME").map(PathBuf::from);
        let below_home = |rest: &str| user_home.as_ref().map(|home| home.join(rest));

        let home = match (get("SESS_HOME"), get("XDG_DATA_HOME")) {
            (Some(home), _) => Some(PathBuf::from(home)),
            (None, Some(data)) => Some(Path::new(data).join("intersession")),
            (None, None) => below_home(".local/share/intersession"),
        };
        let home = match home {
            Some(home) => {
                Some(std::path::absolute(&home).with_context(|| format!("cannot use {}", home.display()))?)
            }
            None => None,
        };
        let file = match named.map(Path::to_owned).or_else(|| get("SESS_CONFIG").map(PathBuf::from)) {
            Some(path) => read_file(&path)?,
            None => {
                let dir = get("XDG_CONFIG_HOME").map(PathBuf::from).or_else(|| below_home(".config"));
                let path = dir.map(|dir| dir.join("intersession/config.yaml")).filter(|path| path.exists());
                path.as_deref().map(read_file).transpose()?.unwrap_or_default()
            }
        };

        let keep_days = match get("SESS_PLANS_KEEP_DAYS") {
            None => file.plans.keep_days.unwrap_or(PLANS_KEEP_DAYS),
            Some(days) => days
                .parse()
                .with_context(|| format!("SESS_PLANS_KEEP_DAYS is \"{days}\": expected a number of days"))?,
        };
        let visibility = get("SESS_TOOLS_CONTEXT_VISIBILITY").or(file.tools.context.visibility.as_deref());
        let visibility = match visibility {
            None | Some("all") => ContextVisibility::All,
            Some("agent") => ContextVisibility::Agent,
            Some(other) => bail!(
                "tools.context.visibility (SESS_TOOLS_CONTEXT_VISIBILITY) is \"{other}\": expected agent or all"
            ),
        };
        let cwd = std::env::current_dir().ok();
        let repo = cwd.as_deref().and_then(repository);
        let text = |path: &Path| path.to_string_lossy().into_owned();
        let settings = Settings {
            home,
            plans_dir: get("SESS_PLANS_DIR").map(PathBuf::from).or(file.plans.dir).map(|dir| {
                let expanded = match (dir.strip_prefix("~"), &user_home) {
                    (Ok(rest), Some(home)) => home.join(rest),
                    _ => dir,
                };
                std::path::absolute(&expanded).unwrap_or(expanded)
            }),
            plans_keep_days: keep_days,
            context_visibility: visibility,
            cwd: cwd.as_deref().map(text),
            repo: repo.as_deref().map(text),
            now,
            random,
        };
        Ok(Self { settings, env })
    }
}

fn read_file(path: &Path) -> anyhow::Result<File> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the configuration {}", path.display()))?;
    if text.trim().is_empty() {
        return Ok(File::default());
    }
    serde_saphyr::from_str(&text).map_err(|error| {
        // One sentence with the line; the drawing around it would be out of place in an editor's log.
        let reason = error.without_snippet();
        anyhow!("the configuration {} is not valid: {reason}", path.display())
    })
}

/// Returns the nearest directory above that is a git repository.
fn repository(dir: &Path) -> Option<PathBuf> {
    dir.ancestors().find(|dir| dir.join(".git").exists()).map(Path::to_owned)
}

#[expect(clippy::disallowed_methods, reason = "the one clock; everything below gets the time as an argument")]
pub fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis_clamped(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

pub fn random() -> u128 {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the system has random bytes");
    u128::from_ne_bytes(bytes)
}
