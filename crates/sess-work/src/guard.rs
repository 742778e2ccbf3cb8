//! What a repository's own configuration would have git run, and what git is given instead.
//!
//! Whoever gets a repository as a directory gets its configuration with it, and that can name commands: filters,
//! drivers, helpers, another ssh. What the user's own configuration says stays in force.

use std::path::Path;

use crate::{Error, Git, Kind, Result, repo::REMOTE_SETTING};

/// A person who trusts the configuration of every repository says so here, in a configuration of their own.
const TRUST_SETTING: &str = "intersession.trustlocal";
/// What that person runs.
pub(crate) const TRUST_COMMAND: &str = "git config --global intersession.trustlocal true";
/// What git itself does with two versions of a text; it fails when they do not go together.
const TEXT_MERGE: &str = "git merge-file -q --marker-size=%L %A %O %B || exit 1";

/// A setting of git, and whether it is the user's own rather than the repository's.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) name: String,
    pub(crate) value: String,
    pub(crate) is_users: bool,
}

/// Lists the settings that hold in a directory, later ones after those that they override.
pub(crate) fn settings(git: &Git) -> Result<Vec<Setting>> {
    let told = git.text(["config", "--null", "--show-scope", "--list"])?;
    let mut settings = Vec::new();
    let mut parts = told.split('\0');
    while let (Some(scope), Some(pair)) = (parts.next(), parts.next()) {
        // Those are what every command is given by us.
        if scope == "command" {
            continue;
        }
        let (name, value) = pair.split_once('\n').unwrap_or((pair, "true"));
        let is_users = matches!(scope, "system" | "global");
        settings.push(Setting { name: name.to_owned(), value: value.to_owned(), is_users });
    }
    Ok(settings)
}

/// Returns the settings that take the place of the repository's commands.
pub(crate) fn guards(settings: &[Setting]) -> Vec<(String, String)> {
    if is_trusted(settings) {
        return Vec::new();
    }
    let users = |name: &str| {
        settings.iter().rev().find(|known| known.is_users && known.name == name).map(|known| &*known.value)
    };
    let mut guards: Vec<(String, String)> = Vec::new();
    let foreign: Vec<&Setting> = settings.iter().filter(|known| !known.is_users).collect();
    for Setting { name, .. } in &foreign {
        if let Some(harmless) = harmless(name) {
            guards.push((name.clone(), users(name).unwrap_or(harmless).to_owned()));
        } else if let Some((hook, _)) = name.strip_prefix("hook.").and_then(|rest| rest.rsplit_once('.')) {
            guards.push((format!("hook.{hook}.enabled"), "false".to_owned()));
        }
    }
    // They add up, so that the list begins anew with the user's own.
    if foreign.iter().any(|known| is_helper(&known.name)) {
        let all = settings.iter().filter(|known| is_helper(&known.name));
        guards.extend(all.clone().map(|known| (known.name.clone(), String::new())));
        let own = all.filter(|known| known.is_users);
        guards.extend(own.map(|known| (known.name.clone(), known.value.clone())));
    }
    guards
}

/// Returns the filters that are not run, of those that files go through on their way into and out of a checkout.
pub(crate) fn unrun_filters(guards: &[(String, String)]) -> Vec<&str> {
    let unrun = guards.iter().filter(|(_, value)| value.is_empty());
    let drivers = unrun.filter_map(|(name, _)| name.strip_prefix("filter.")?.rsplit_once('.'));
    drivers.map(|(driver, _)| driver).collect()
}

/// Returns the setting by which this clone would talk to its remote, and that is not run.
pub(crate) fn unrun_transport(guards: &[(String, String)]) -> Option<&str> {
    let is_it = |(name, _): &&(String, String)| name == "core.sshcommand" || is_helper(name);
    guards.iter().find(is_it).map(|(name, _)| name.as_str())
}

fn is_trusted(settings: &[Setting]) -> bool {
    settings.iter().any(|known| known.is_users && known.name == TRUST_SETTING && known.value == "true")
}

fn is_helper(name: &str) -> bool {
    name.starts_with("credential.") && name.ends_with(".helper")
}

/// Returns what is as good as nothing for a setting that names a command.
fn harmless(name: &str) -> Option<&'static str> {
    let (section, _) = name.split_once('.')?;
    let (_, key) = name.rsplit_once('.')?;
    let harmless = match (section, key) {
        ("filter", "clean" | "smudge" | "process") => "",
        ("filter", "required") => "false",
        ("diff", "command" | "textconv" | "external") => "",
        ("merge", "driver") => TEXT_MERGE,
        ("core", "sshcommand") => "ssh",
        ("core", "askpass") => "",
        ("core", "alternaterefscommand") => "true",
        ("gpg", "program" | "defaultkeycommand") => "false",
        _ => return None,
    };
    Some(harmless)
}

/// Fails when talking to a remote would run what the repository says, because nothing can take its place.
///
/// That is a command of its own for the other side, or a directory of the checkout, whose hooks could be anybody's.
pub(crate) fn check_remotes(settings: &[Setting], top: &Path) -> Result<()> {
    let names_command = |known: &&Setting| {
        let is_command = [".uploadpack", ".receivepack", ".vcs"].iter().any(|end| known.name.ends_with(end));
        !known.is_users && known.name.starts_with("remote.") && is_command
    };
    if let Some(Setting { name, .. }) = settings.iter().find(names_command).filter(|_| !is_trusted(settings))
    {
        return Err(Error::new(
            Kind::Policy,
            format!(
                "the configuration of this repository names a command ({name}), and is not trusted with that"
            ),
        )
        .next(format!("git config --unset-all {name}")));
    }
    let Ok(top) = top.canonicalize() else { return Ok(()) };
    for Setting { name, value, .. } in settings {
        let place = match name.rsplit_once('.') {
            Some((lead, "url" | "pushurl")) if lead.starts_with("remote.") => value.as_str(),
            Some((lead, "insteadof" | "pushinsteadof")) if lead.starts_with("url.") => &lead["url.".len()..],
            // A place can stand where a remote's name is expected; only `.` means that there is none.
            Some(("intersession", "remote")) if value != "." && !value.is_empty() => value.as_str(),
            _ => continue,
        };
        // A directory may have the name of a remote.
        let is_name = name == REMOTE_SETTING
            && settings.iter().any(|known| known.name == format!("remote.{place}.url"));
        if !is_name && is_inside(place, &top) {
            return Err(Error::new(
                Kind::Policy,
                format!("the remote {place:?} is a part of this checkout: its hooks could be anybody's"),
            )
            .next("git remote -v"));
        }
    }
    Ok(())
}

/// Whether git would take this for a repository in the checkout, or for the checkout itself.
fn is_inside(place: &str, top: &Path) -> bool {
    let place = place.strip_prefix("file://").unwrap_or(place);
    // The ending may be left out.
    [place.to_owned(), format!("{place}.git")]
        .iter()
        .any(|place| top.join(place).canonicalize().is_ok_and(|path| path.starts_with(top)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(settings: &[(&str, &str, &str)], expected: &[(&str, &str)]) {
        let setting = |(scope, name, value): &(&str, &str, &str)| Setting {
            name: (*name).to_owned(),
            value: (*value).to_owned(),
            is_users: *scope == "user",
        };
        let guards = guards(&settings.iter().map(setting).collect::<Vec<_>>());
        let guards: Vec<(&str, &str)> =
            guards.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(guards, expected);
    }

    #[test]
    fn what_a_repository_would_run_is_replaced_and_what_the_user_runs_is_not() {
        check(&[("user", "filter.lfs.smudge", "git-lfs smudge -- %f")], &[]);
        check(&[("repo", "filter.a=b.c.smudge", "evil")], &[("filter.a=b.c.smudge", "")]);
        check(&[("repo", "diff.external", "evil")], &[("diff.external", "")]);
        check(&[("repo", "hook.x.command", "evil")], &[("hook.x.enabled", "false")]);
        check(&[("repo", "user.name", "Ann"), ("repo", "core.bare", "false")], &[]);
    }

    #[test]
    fn the_users_own_choice_counts_again() {
        let users = ("user", "core.sshcommand", "ssh -4");
        check(&[users, ("repo", "core.sshcommand", "evil")], &[("core.sshcommand", "ssh -4")]);
        check(&[("repo", "core.sshcommand", "evil")], &[("core.sshcommand", "ssh")]);
        check(
            &[("user", "credential.helper", "store"), ("repo", "credential.https://a.helper", "evil")],
            &[("credential.helper", ""), ("credential.https://a.helper", ""), ("credential.helper", "store")],
        );
        check(&[("repo", TRUST_SETTING, "true"), ("repo", "diff.external", "x")], &[("diff.external", "")]);
        check(&[("user", TRUST_SETTING, "true"), ("repo", "diff.external", "x")], &[]);
    }
}
