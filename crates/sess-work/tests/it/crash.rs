//! A process that is killed between any two commands of git leaves nothing that the next verb cannot go on with.
//!
//! The verb runs in a process of its own, this test's executable again, whose `git` counts and kills it. By default
//! a few places of each verb are tried, and all of them with `SESS_WORK_CRASH=1`.

use std::{
    fs,
    os::unix::{fs::PermissionsExt as _, process::ExitStatusExt as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use sess_work::{ClaimOptions, Draft, Kind, Note, Slug, State, Work};

use crate::{
    lab::{Lab, planned, work},
    many::{number, plan_in, planned_many},
};

/// How many places of each verb are tried, unless all are.
const PLACES: usize = 4;
const VERB: &str = "SESS_WORK_CRASH_VERB";

/// Counts, and kills whoever called it before or after the command of that number, or the first with those words; or
/// has each with those words fail.
const SHIM: &str = r#"#!/bin/sh
count=$(($(cat "$SHIM_COUNT" 2>/dev/null || echo 0) + 1))
echo "$count" > "$SHIM_COUNT"
echo "$*" >> "$SHIM_COUNT.words"
words=none
case "$SHIM_KILL" in *:*) words="${SHIM_KILL#*:}" ;; esac
case "$*" in *"$words"*) named="${SHIM_KILL%%:*}" ;; *) named=no ;; esac
if [ "$count-before" = "$SHIM_KILL" ] || [ "$named" = before ]; then kill -9 "$PPID"; exit 1; fi
if [ "$named" = fail ]; then echo "fatal: it fails" >&2; exit 128; fi
"$SHIM_GIT" "$@"
code=$?
if [ "$count-after" = "$SHIM_KILL" ] || [ "$named" = after ]; then kill -9 "$PPID"; fi
exit "$code"
"#;

/// The verb, in the process that is killed.
#[test]
#[expect(clippy::disallowed_methods, reason = "this is how the other process is told what to do")]
fn child() {
    let Ok(verb) = std::env::var(VERB) else { return };
    let told = |name: &str| std::env::var(name).expect("it is told");
    let caller = work(Path::new(&told("SESS_WORK_CRASH_DIR")));
    let slug: Slug = told("SESS_WORK_CRASH_SLUG").parse().expect("a slug");
    perform(&caller, &verb, &slug).expect("the verb goes through unless it is killed");
}

fn perform(caller: &Work, verb: &str, slug: &Slug) -> Result<(), sess_work::Error> {
    let options = ClaimOptions::default();
    match verb {
        "claim" => caller.claim(slug, &options).map(drop),
        "complete" => caller.complete(slug, None).map(drop),
        "abandon" => caller.abandon(slug, "because").map(drop),
        "release" => caller.release(slug, None).map(drop),
        "retry" => caller.retry(slug).map(drop),
        "note" => caller.note(slug, Note::Log, "it was written down").map(drop),
        "takeover" => caller.takeover(slug, true, Some("needed"), &options).map(drop),
        "repair" => caller.doctor(true).map(drop),
        other => panic!("{other} is no verb"),
    }
}

/// Two people, and a `git` that kills.
struct Stage {
    lab: Lab,
    ann: PathBuf,
    bob: PathBuf,
    shim: PathBuf,
    git: String,
}

impl Stage {
    fn new() -> Self {
        let lab = Lab::new();
        let (ann, bob) = (lab.clone_named("ann"), lab.clone_named("bob"));
        let shim = lab.path().join("shim");
        fs::create_dir(&shim).expect("made");
        fs::write(shim.join("git"), SHIM).expect("written");
        fs::set_permissions(shim.join("git"), fs::Permissions::from_mode(0o755)).expect("executable");
        let found = Command::new("sh").args(["-c", "command -v git"]).output().expect("a shell");
        let git = String::from_utf8(found.stdout).expect("a path").trim().to_owned();
        Self { lab, ann, bob, shim, git }
    }

    /// Runs a verb in a process of its own; returns how many commands it ran, and whether it was killed.
    fn run(&self, verb: &str, dir: &Path, slug: &Slug, kill: &str) -> (usize, bool) {
        let count = self.lab.path().join("count");
        drop(fs::remove_file(&count));
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", self.shim.display());
        let ended = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "crash::child", "--nocapture"])
            .env(VERB, verb)
            .env("SESS_WORK_CRASH_DIR", dir)
            .env("SESS_WORK_CRASH_SLUG", slug.as_str())
            .env("SHIM_COUNT", &count)
            .env("SHIM_KILL", kill)
            .env("SHIM_GIT", &self.git)
            .env("PATH", path)
            .stdin(Stdio::null())
            .output()
            .expect("it runs");
        let is_killed = ended.status.signal() == Some(9);
        assert!(
            is_killed || ended.status.success(),
            "{verb} with {kill}: {}{}",
            String::from_utf8_lossy(&ended.stdout),
            String::from_utf8_lossy(&ended.stderr)
        );
        let count = fs::read_to_string(count).expect("counted").trim().parse().expect("a number");
        (count, is_killed)
    }

    /// Brings a session to where the verb begins; returns the last commit of the work in it.
    fn prepare(&self, verb: &str, slug: &Slug) -> Option<String> {
        self.prepare_in(&self.ann, verb, slug)
    }

    fn prepare_in(&self, dir: &Path, verb: &str, slug: &Slug) -> Option<String> {
        if verb == "claim" {
            return None;
        }
        let ann = work(dir);
        let place =
            ann.claim(slug, &ClaimOptions::default()).expect("claimed").workspace.expect("a workspace");
        fs::write(place.join(format!("{slug}.txt")), "work\n").expect("written");
        self.lab.git(&place, &["add", "."]);
        self.lab.git(&place, &["commit", "--quiet", "-m", &format!("[{slug}] feat: work")]);
        if verb == "takeover" {
            ann.heartbeat(slug).expect("shared");
        }
        Some(self.lab.git(&place, &["rev-parse", "HEAD"]))
    }

    /// Fails unless a commit can be found from some ref, here or where everybody meets.
    #[track_caller]
    fn assert_reachable(&self, commit: &str, told: &str) {
        let found = [&self.ann, &self.lab.hub()].into_iter().any(|dir| {
            let asked = ["for-each-ref", "--contains", commit];
            let ended = Command::new(&self.git).args(asked).current_dir(dir).output().expect("git runs");
            ended.status.success() && !ended.stdout.is_empty()
        });
        assert!(found, "{told}: the work is lost");
    }
}

/// Takes what was left by a kill to its end, by others and by its owner; nothing is lost, and nobody has it twice.
fn go_on(stage: &Stage, verb: &str, slug: &Slug, commit: Option<&str>, told: &str) {
    let (ann, bob) = (work(&stage.ann), work(&stage.bob));
    // Somebody else's verb finishes what can be finished.
    let seen = bob.roll_forward().unwrap_or_else(|error| panic!("{told}: {error}"));
    assert!(seen.tree.odd.is_empty() && seen.view.damaged.is_empty(), "{told}: {:?}", seen.view.damaged);
    let state = seen.standing(slug).state();
    assert_eq!(seen.tree.state(slug), state, "{told}: the directory follows the claim");
    if let Some(commit) = commit {
        stage.assert_reachable(commit, told);
    }
    let again = |who: &Work, verb: &str| {
        perform(who, verb, slug).unwrap_or_else(|error| panic!("{told}: {verb} again: {error}"));
    };
    let refused = |who: &Work, verb: &str, kind: Kind| {
        assert_eq!(perform(who, verb, slug).expect_err(told).kind, kind, "{told}");
    };
    let owner = match verb {
        "claim" if state == Some(State::Planned) => {
            again(&bob, "claim");
            refused(&ann, "claim", Kind::Claimed);
            &bob
        }
        "claim" => {
            refused(&bob, "claim", Kind::Claimed);
            again(&ann, "claim");
            &ann
        }
        "takeover" => {
            let is_bobs =
                seen.standing(slug).holder().is_some_and(|claim| claim.user.email == "bob@example.com");
            if is_bobs {
                refused(&ann, "complete", Kind::Claimed);
                again(&bob, "claim");
            } else {
                ann.heartbeat(slug).unwrap_or_else(|error| panic!("{told}: {error}"));
                again(&bob, "takeover");
            }
            refused(&ann, "release", Kind::Claimed);
            &bob
        }
        "release" | "abandon" => {
            if state == Some(State::Active) {
                again(&ann, verb);
            } else {
                refused(&ann, verb, Kind::WrongState);
            }
            if verb == "abandon" {
                assert_eq!(bob.see().expect("seen").standing(slug).state(), Some(State::Abandoned), "{told}");
                stage.assert_reachable(commit.expect("there was work"), told);
                assert_eq!(bob.retry(slug).unwrap_or_else(|error| panic!("{told}: {error}")), 2);
            }
            again(&bob, "claim");
            &bob
        }
        _ => {
            if state == Some(State::Active) {
                again(&ann, "complete");
            } else {
                refused(&ann, "complete", Kind::WrongState);
            }
            &ann
        }
    };
    if verb != "complete" {
        again(owner, "complete");
    }
    let seen = bob.see().expect("seen");
    assert_eq!(seen.tree.state(slug), Some(State::Completed), "{told}");
    if let Some(commit) = commit {
        stage.assert_reachable(commit, told);
    }
    // An attempt that was given up stays on record, and the next one begins anew.
    if commit.is_some() && verb != "abandon" {
        assert_eq!(stage.lab.git(&stage.lab.hub(), &["show", &format!("main:{slug}.txt")]), "work", "{told}");
    }
}

fn kill_everywhere(verb: &str) {
    let stage = Stage::new();
    let probe = &planned_many(&stage.lab, &format!("{verb}-probe"), 1)[0];
    let dir = if verb == "takeover" { stage.bob.clone() } else { stage.ann.clone() };
    stage.prepare(verb, probe);
    let (count, is_killed) = stage.run(verb, &dir, probe, "none");
    assert!(!is_killed && count > 10, "{verb} ran {count} commands");

    let all: Vec<String> = (1..=count).flat_map(|n| [format!("{n}-before"), format!("{n}-after")]).collect();
    let step = if number("SESS_WORK_CRASH", 0) > 0 { 1 } else { all.len().div_ceil(PLACES) };
    // What comes before the first change of anything is all the same.
    let kills: Vec<&String> = all.iter().rev().step_by(step).collect();
    let slugs = planned_many(&stage.lab, verb, kills.len());
    let mut killed = 0;
    for (slug, kill) in slugs.iter().zip(&kills) {
        let commit = stage.prepare(verb, slug);
        let (_, is_killed) = stage.run(verb, &dir, slug, kill);
        let told = format!("{verb} of {slug}, killed {kill} of {count}");
        killed += usize::from(is_killed);
        go_on(&stage, verb, slug, commit.as_deref(), &told);
    }
    // How many commands there are varies a little with what others left to do.
    assert!(killed * 2 > kills.len(), "{verb} was killed {killed} times of {}", kills.len());
}

#[test]
fn claim_can_be_killed_anywhere() {
    kill_everywhere("claim");
}

#[test]
fn complete_can_be_killed_anywhere() {
    kill_everywhere("complete");
}

#[test]
fn abandon_can_be_killed_anywhere() {
    kill_everywhere("abandon");
}

#[test]
fn release_can_be_killed_anywhere() {
    kill_everywhere("release");
}

#[test]
fn takeover_can_be_killed_anywhere() {
    kill_everywhere("takeover");
}

#[test]
fn a_retry_that_was_killed_does_not_leave_the_branch_of_the_attempt_before() {
    let stage = Stage::new();
    let slugs = planned_many(&stage.lab, "retry", 2);
    // After the new plan is there for all to claim, and after the branch went.
    let kills = ["after:--force-with-lease=refs/heads/main:", "after:--force-with-lease=refs/heads/session/"];
    for (slug, kill) in slugs.iter().zip(kills) {
        let commit = stage.prepare("retry", slug).expect("there was work");
        work(&stage.ann).abandon(slug, "because").expect("abandoned");
        let (_, is_killed) = stage.run("retry", &stage.ann, slug, kill);
        assert!(is_killed, "{kill}");
        let bob = work(&stage.bob);
        if bob.see().expect("seen").standing(slug).state() == Some(State::Abandoned) {
            bob.retry(slug).expect("planned anew");
        }
        let claimed = bob.claim(slug, &ClaimOptions::default()).expect("claimed");
        assert_eq!(claimed.record.claim.attempt, 2, "{kill}");
        let place = claimed.workspace.expect("a workspace");
        assert!(!place.join(format!("{slug}.txt")).exists(), "{kill}: it goes on with the attempt before");
        stage.assert_reachable(&commit, kill);
    }
}

#[test]
fn a_checkout_that_follows_late_overwrites_nothing_that_came_since() {
    let stage = Stage::new();
    let (lab, dir) = (&stage.lab, &stage.ann);
    lab.git(dir, &["remote", "remove", "origin"]);
    fs::write(dir.join(".gitignore"), ".env\n*.log\n.sessions\n").expect("written");
    fs::create_dir(dir.join("out")).expect("made");
    fs::write(dir.join("out/tracked"), "tracked\n").expect("written");
    lab.git(dir, &["add", "."]);
    lab.git(dir, &["commit", "--quiet", "-m", "ignore"]);
    let ann = work(dir);
    for (name, precious) in [(".env", ".env"), ("out", "out/precious.log")] {
        let slug = planned(&ann, &format!("Brings {}", name.trim_start_matches('.')));
        let place = ann.claim(&slug, &ClaimOptions::default()).expect("claimed").workspace.expect("one");
        drop(fs::remove_dir_all(place.join(name)));
        fs::write(place.join(name), "of the session\n").expect("written");
        lab.git(&place, &["add", "--force", "--all", name]);
        lab.git(&place, &["commit", "--quiet", "-m", &format!("[{slug}] feat: {name}")]);
        let (_, is_killed) = stage.run("complete", dir, &slug, "before:read-tree -m -u");
        assert!(is_killed, "the base has moved, and its checkout has not");

        fs::write(dir.join(precious), "precious\n").expect("written");
        ann.list(&ann.see().expect("seen")).expect("listed");
        assert_eq!(fs::read_to_string(dir.join(precious)).expect("there"), "precious\n");
        let draft = Draft { title: "Another".to_owned(), ..Draft::default() };
        let refused = ann.draft(None, &draft, None).expect_err("it would be overwritten");
        assert_eq!(refused.kind, Kind::WouldLoseWork, "{refused}");
        assert!(refused.message().ends_with(precious), "{refused}");
        let command = refused.next_command();
        assert!(Command::new("sh").args(["-c", command]).status().expect("run").success(), "{command}");
        ann.draft(None, &draft, None).expect("drafted");
        assert_eq!(fs::read_to_string(dir.join(name)).expect("there"), "of the session\n");
        assert_eq!(lab.git(dir, &["show", &format!("stash^3:{precious}")]), "precious");
        assert_eq!(lab.git(dir, &["status", "--porcelain"]), "");
    }
}

#[test]
fn what_a_note_that_was_killed_left_half_done_is_not_taken_back_by_a_commit() {
    let stage = Stage::new();
    let slug = planned_many(&stage.lab, "noted", 1).remove(0);
    stage.prepare("note", &slug);
    let (_, is_killed) = stage.run("note", &stage.ann, &slug, "after:update-ref refs/heads/session/");
    assert!(is_killed, "the branch moves before its checkout");
    let ann = work(&stage.ann);
    let place = ann.workspace(&slug).expect("a workspace");
    fs::write(place.join("more.txt"), "more\n").expect("written");
    ann.commit_all(&slug, "feat: more").expect("committed").expect("there is something");
    let worklog = format!("HEAD:_AGENTS/sessions/active/{slug}/worklog.md");
    let shown = stage.lab.git(&place, &["show", &worklog]);
    assert!(shown.contains("it was written down"), "{shown}");
}

#[test]
fn a_workspace_that_git_knows_again_is_one_that_it_lists_wherever_the_repair_was_stopped() {
    let stage = Stage::new();
    let kills = ["fail:worktree repair", "after:worktree add", "after:read-tree HEAD"];
    for (slug, kill) in planned_many(&stage.lab, "repaired", kills.len()).iter().zip(kills) {
        let tip = stage.prepare("repair", slug).expect("there was work");
        let ann = work(&stage.ann);
        let place = ann.workspace(slug).expect("a workspace");
        fs::remove_dir_all(stage.ann.join(".git/worktrees")).expect("removed by hand");
        let (_, is_killed) = stage.run("repair", &stage.ann, slug, kill);
        assert_eq!(is_killed, !kill.starts_with("fail"), "{kill}");
        if is_killed {
            ann.doctor(true).expect("repaired");
        }
        let listed = stage.lab.git(&stage.ann, &["worktree", "list", "--porcelain"]);
        assert!(listed.contains(&format!("{}\n", place.display())), "{kill}: {listed}");
        assert!(!listed.contains("prunable") && !listed.contains(".new"), "{kill}: {listed}");
        assert_eq!(stage.lab.git(&place, &["rev-parse", "HEAD"]), tip, "{kill}");
        assert_eq!(stage.lab.git(&place, &["status", "--porcelain"]), "", "{kill}");
        // It is known by what git keeps of it, wherever it is moved to.
        let moved = stage.lab.path().join(format!("moved-{slug}"));
        stage.lab.git(&stage.ann, &["worktree", "move", &place.to_string_lossy(), &moved.to_string_lossy()]);
        ann.complete(slug, None).expect("completed");
        assert!(!moved.exists(), "{kill}: it goes with its session");
    }
}

#[test]
fn a_claim_that_was_killed_has_the_plan_that_was_changed_between_two_owners() {
    let stage = Stage::new();
    let slug = planned_many(&stage.lab, "changed", 1).remove(0);
    stage.prepare("release", &slug);
    let (ann, bob) = (work(&stage.ann), work(&stage.bob));
    ann.release(&slug, None).expect("released");
    let (before, text) = bob.editable(&slug).expect("a plan");
    bob.edit(&slug, before.as_ref(), &format!("{text}\nChanged.\n")).expect("edited");
    let (_, is_killed) = stage.run("claim", &stage.bob, &slug, "after:worktree add");
    assert!(is_killed);
    let place = bob.claim(&slug, &ClaimOptions::default()).expect("resumed").workspace.expect("a workspace");
    let plan = fs::read_to_string(place.join(format!("_AGENTS/sessions/active/{slug}/SESSION.md")));
    assert!(plan.expect("a plan").contains("Changed."));
    perform(&bob, "complete", &slug).expect("completed by the new plan");
}

/// Kills a verb where there is no remote; the checkout of the base follows with the next look at it.
fn kill_alone(stage: &Stage, dir: &Path, verb: &str, slug: &Slug, kill: &str) -> (usize, bool) {
    stage.prepare_in(dir, verb, slug);
    let (count, is_killed) = stage.run(verb, dir, slug, kill);
    let told = format!("{verb} of {slug} without a remote, killed {kill}");
    let own = work(dir);
    own.see().unwrap_or_else(|error| panic!("{told}: {error}"));
    assert_eq!(stage.lab.git(dir, &["status", "--porcelain"]), "", "{told}: the checkout stays behind");
    let again = |verb: &str| {
        perform(&own, verb, slug).unwrap_or_else(|error| panic!("{told}: {verb} again: {error}"));
    };
    let state = own.roll_forward().unwrap_or_else(|error| panic!("{told}: {error}")).standing(slug).state();
    if state == Some(State::Active) && verb == "abandon" {
        again("abandon");
    }
    if verb == "abandon" {
        again("retry");
    }
    if state != Some(State::Completed) {
        again("claim");
        again("complete");
    }
    assert!(dir.join(format!("_AGENTS/sessions/completed/{slug}/SESSION.md")).is_file(), "{told}");
    assert_eq!(stage.lab.git(dir, &["status", "--porcelain"]), "", "{told}");
    if matches!(verb, "complete" | "takeover") {
        assert!(dir.join(format!("{slug}.txt")).is_file(), "{told}: the work is lost");
    }
    (count, is_killed)
}

fn kill_everywhere_alone(verb: &str) {
    let stage = Stage::new();
    let dir = stage.lab.clone_named("alone");
    stage.lab.git(&dir, &["remote", "remove", "origin"]);
    let probe = &plan_in(&stage.lab, &dir, &format!("{verb}-probe"), 1)[0];
    let (count, is_killed) = kill_alone(&stage, &dir, verb, probe, "none");
    assert!(!is_killed && count > 10, "{verb} ran {count} commands");
    // Always where the base has moved and its checkout has not; it stays when its owner takes a session over.
    let moves_base = verb != "takeover";
    let mut kills: Vec<String> =
        moves_base.then(|| "before:read-tree -m -u".to_owned()).into_iter().collect();
    let all = (1..=count).flat_map(|n| [format!("{n}-before"), format!("{n}-after")]);
    let step = if number("SESS_WORK_CRASH", 0) > 0 { 1 } else { (2 * count).div_ceil(PLACES / 2) };
    kills.extend(all.skip(step / 2).step_by(step));
    let slugs = plan_in(&stage.lab, &dir, verb, kills.len());
    for (slug, kill) in slugs.iter().zip(&kills) {
        let (_, is_killed) = kill_alone(&stage, &dir, verb, slug, kill);
        assert!(is_killed || !kill.starts_with("before:"), "{verb} was not killed {kill}");
    }
}

#[test]
fn claim_without_a_remote_can_be_killed_anywhere() {
    kill_everywhere_alone("claim");
}

#[test]
fn complete_without_a_remote_can_be_killed_anywhere() {
    kill_everywhere_alone("complete");
}

#[test]
fn abandon_without_a_remote_can_be_killed_anywhere() {
    kill_everywhere_alone("abandon");
}

#[test]
fn release_without_a_remote_can_be_killed_anywhere() {
    kill_everywhere_alone("release");
}

#[test]
fn takeover_without_a_remote_can_be_killed_anywhere() {
    kill_everywhere_alone("takeover");
}

#[test]
fn a_claim_looks_at_the_remote_once() {
    let stage = Stage::new();
    let slug = planned_many(&stage.lab, "once", 1).remove(0);
    stage.run("claim", &stage.bob, &slug, "never");
    let words = fs::read_to_string(stage.lab.path().join("count.words")).expect("written down");
    let fetches = words.lines().filter(|line| line.contains(" fetch ")).count();
    assert_eq!(fetches, 1, "{words}");
}

#[test]
fn a_note_that_makes_up_for_a_claim_that_is_not_shown_looks_at_the_remote_once() {
    let stage = Stage::new();
    let slug = planned_many(&stage.lab, "unshown", 1).remove(0);
    let hook = stage.lab.hub().join("hooks/update");
    fs::create_dir_all(stage.lab.hub().join("hooks")).expect("made");
    fs::write(&hook, "#!/bin/sh\n[ $1 != refs/heads/main ]\n").expect("written");
    fs::set_permissions(&hook, fs::Permissions::from_mode(0o755)).expect("set");
    stage.prepare("note", &slug);
    fs::remove_file(&hook).expect("removed");
    stage.run("note", &stage.ann, &slug, "never");
    assert_eq!(work(&stage.bob).see().expect("seen").tree.state(&slug), Some(State::Active));
    let words = fs::read_to_string(stage.lab.path().join("count.words")).expect("written down");
    let fetches = words.lines().filter(|line| line.contains(" fetch ")).count();
    assert_eq!(fetches, 1, "{words}");
}
