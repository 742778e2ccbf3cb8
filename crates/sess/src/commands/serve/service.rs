//! Units that start the gateway with the machine.

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use super::super::Context;
use crate::{
    cli::{self, ServiceKind},
    output::Output,
};

pub fn print(context: &Context, output: &Output, kind: ServiceKind, args: &cli::Serve) -> anyhow::Result<()> {
    let exe = std::env::current_exe().context("cannot tell which program this is")?;
    let words = words(context, &exe, args)?;
    let home = context.home()?;
    let (unit, hint) = match kind {
        ServiceKind::Systemd => (
            systemd(&words, home),
            "Save it as ~/.config/systemd/user/sess.service, then: systemctl --user enable --now sess",
        ),
        ServiceKind::Launchd => (
            launchd(&words, home),
            "Save it as ~/Library/LaunchAgents/dev.intersession.sess.plist, then: launchctl load -w <that file>",
        ),
    };
    output.raw(unit.as_bytes())?;
    output.say(hint);
    Ok(())
}

/// Returns the command line of the gateway, with paths that hold wherever it is started.
fn words(context: &Context, exe: &Path, args: &cli::Serve) -> anyhow::Result<Vec<String>> {
    let absolute = |path: &PathBuf| -> anyhow::Result<String> {
        let path = std::path::absolute(path).with_context(|| format!("cannot use {}", path.display()))?;
        Ok(path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))?.to_owned())
    };
    let mut words = vec![absolute(&exe.to_owned())?];
    if let Some(file) = &context.config.named {
        words.extend(["--config".to_owned(), absolute(file)?]);
    }
    words.push("serve".to_owned());
    if let Some(listen) = &args.listen {
        words.extend(["--listen".to_owned(), listen.clone()]);
    }
    if args.insecure {
        words.push("--insecure".to_owned());
    }
    if let (Some(cert), Some(key)) = (&args.tls_cert, &args.tls_key) {
        words.extend(["--tls-cert".to_owned(), absolute(cert)?, "--tls-key".to_owned(), absolute(key)?]);
    }
    Ok(words)
}

fn systemd(words: &[String], home: &Path) -> String {
    // Quoted, with what systemd would expand doubled.
    let quoted = |word: &str| {
        let escaped = word.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%").replace('$', "$$");
        format!("\"{escaped}\"")
    };
    let command: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    let environment = quoted(&format!("SESS_HOME={}", home.display())).replace("$$", "$");
    format!(
        "[Unit]\n\
         Description=Intersession gateway\n\
         After=network.target\n\
         \n\
         [Service]\n\
         ExecStart={}\n\
         Environment={environment}\n\
         Restart=on-failure\n\
         UMask=0077\n\
         LimitNOFILE=65536\n\
         \n\
         [Install]\n\
         WantedBy=default.target\n",
        command.join(" ")
    )
}

fn launchd(words: &[String], home: &Path) -> String {
    let escaped = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    let arguments: String =
        words.iter().map(|word| format!("    <string>{}</string>\n", escaped(word))).collect();
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n\
         <!DOCTYPE plist PUBLIC \"-//Apple//DTD PLIST 1.0//EN\" \
         \"http://www.apple.com/DTDs/PropertyList-1.0.dtd\">\n\
         <plist version=\"1.0\">\n\
         <dict>\n  \
         <key>Label</key>\n  <string>dev.intersession.sess</string>\n  \
         <key>ProgramArguments</key>\n  <array>\n{arguments}  </array>\n  \
         <key>EnvironmentVariables</key>\n  <dict>\n    <key>SESS_HOME</key>\n    <string>{}</string>\n  </dict>\n  \
         <key>RunAtLoad</key>\n  <true/>\n  \
         <key>KeepAlive</key>\n  <dict>\n    <key>SuccessfulExit</key>\n    <false/>\n  </dict>\n  \
         <key>Umask</key>\n  <integer>63</integer>\n\
         </dict>\n\
         </plist>\n",
        escaped(&home.display().to_string())
    )
}
