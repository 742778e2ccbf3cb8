//! `sess open`: the web page, logged in.

use std::{
    fs::File,
    io::Read as _,
    net::TcpListener,
    os::unix::{fs::OpenOptionsExt as _, process::CommandExt as _},
    path::Path,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use serde_json::json;
use sess_server::gateway::LISTEN;

use super::{
    Context,
    serve::{Record, running},
};
use crate::{cli, output::Output};

/// How long a gateway may take to listen.
const START_MAX: Duration = Duration::from_secs(20);
/// How often it is looked for until then.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// What a gateway that was started here has to say goes here, in the data directory.
const LOG: &str = "gateway.log";
/// How much of that is repeated when it does not start.
const LOG_BYTES_MAX: u64 = 4_096;

pub async fn run(context: &Context, output: &Output, args: cli::Open) -> anyhow::Result<()> {
    context.app.owner_access(&context.caller)?;
    // Also makes the data directory, when this is the first use of all.
    context.app.owner_token()?;
    let home = context.home()?;
    let gateway = match running(home) {
        Some(gateway) => gateway,
        None => start(context, home).await?,
    };
    let code = context.app.login_code().await?;
    let link = format!("{}/#login={}", gateway.address, code.reveal());
    let is_opened = !args.print && open(context, &link).await;
    if output.json {
        return output.data(&json!({ "address": gateway.address, "link": link, "opened": is_opened }));
    }
    if is_opened {
        output.say(&format!("Opened {} in your browser.", gateway.address));
        return Ok(());
    }
    output.line(&link)?;
    output.say("This link logs in whoever opens it first, within a minute.");
    Ok(())
}

/// Starts a gateway that outlives this command, and waits until it listens.
async fn start(context: &Context, home: &Path) -> anyhow::Result<Record> {
    let exe = std::env::current_exe().context("cannot tell which program this is")?;
    let log = home.join(LOG);
    let written = File::options().write(true).create(true).truncate(true).mode(0o600).open(&log);
    let written = written.with_context(|| format!("cannot write {}", log.display()))?;
    let mut command = Command::new(exe);
    if let Some(file) = &context.config.named {
        command.arg("--config").arg(file);
    }
    command.arg("serve");
    if context.config.gateway.listen.is_none() && TcpListener::bind(LISTEN).is_err() {
        // The usual port is somebody else's, such as another store's gateway.
        command.args(["--listen", "127.0.0.1:0"]);
    }
    // A group of its own: Ctrl-C here does not end it.
    command.process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(written);
    let mut child = command.spawn().context("cannot start a gateway")?;
    let began = Instant::now();
    loop {
        if let Some(gateway) = running(home) {
            return Ok(gateway);
        }
        if has_ended(&mut child)? {
            bail!("the gateway did not start: {}", said(&log));
        }
        if began.elapsed() > START_MAX {
            bail!("the gateway does not listen yet; {} has what it says", log.display());
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

fn has_ended(child: &mut Child) -> anyhow::Result<bool> {
    Ok(child.try_wait().context("cannot look after the gateway")?.is_some())
}

/// Returns the reason that a gateway gave before it ended.
fn said(log: &Path) -> String {
    let mut text = String::new();
    let read = File::open(log).and_then(|file| file.take(LOG_BYTES_MAX).read_to_string(&mut text));
    let reason = text.lines().find_map(|line| line.strip_prefix("error: "));
    match (read, reason) {
        (Ok(_), Some(reason)) => reason.to_owned(),
        _ => format!("{} has what it says", log.display()),
    }
}

/// Hands the link to the person's browser; tells whether there is one.
async fn open(context: &Context, link: &str) -> bool {
    let is_set = |name: &str| context.env.iter().any(|(key, value)| key == name && !value.is_empty());
    let program = if cfg!(target_os = "macos") {
        "open"
    } else if is_set("DISPLAY") || is_set("WAYLAND_DISPLAY") {
        "xdg-open"
    } else {
        return false;
    };
    let mut command = Command::new(program);
    command.arg(link).process_group(0).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(mut child) = command.spawn() else { return false };
    // It hands the link over and ends; one that stays is the browser itself.
    for _ in 0..50 {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) => tokio::time::sleep(LOOK_EVERY).await,
            Err(_) => return false,
        }
    }
    true
}
