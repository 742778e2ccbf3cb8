//! `sess work …`: the real binary on real repositories, with a remote on the same disk.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use serde_json::{Value, json};

use crate::{
    terminal::in_terminal,
    world::{Beside, Run, World},
};

/// A remote, and clones of it.
struct Lab {
    world: World,
}

impl Lab {
    fn new() -> Self {
        let world = World::new();
        world.write(
            ".gitconfig",
            "[user]\n\tname = Ann\n\temail = ann@example.com\n[init]\n\tdefaultBranch = main\n",
        );
        let lab = Self { world };
        lab.git(".", &["init", "--quiet", "--bare", "hub.git"]);
        let ann = lab.clone_named("ann");
        std::fs::write(ann.join("readme.md"), "# A project\n").expect("written");
        lab.git("ann", &["add", "."]);
        lab.git("ann", &["commit", "--quiet", "-m", "first"]);
        lab.git("ann", &["push", "--quiet", "origin", "HEAD:main"]);
        lab
    }

    fn clone_named(&self, name: &str) -> PathBuf {
        self.git(".", &["clone", "--quiet", "hub.git", name]);
        self.world.path(name)
    }

    #[track_caller]
    fn git(&self, dir: impl AsRef<Path>, args: &[&str]) -> String {
        let mut command = Command::new("git");
        self.world.clean(&mut command);
        let ended = command.args(args).current_dir(self.world.path(dir)).output().expect("git runs");
        let run = Run::from(ended);
        assert_eq!(run.code, 0, "git {args:?}: {run:?}");
        run.stdout
    }

    /// Runs git with the hooks that `sess work init` installed; they find `sess` in `bin`.
    fn git_with_hooks(&self, dir: impl AsRef<Path>, args: &[&str]) -> Run {
        let mut command = Command::new("git");
        self.world.clean(&mut command);
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin", self.world.path("bin").display());
        command.args(args).env("PATH", path).current_dir(self.world.path(dir));
        command.output().expect("git runs").into()
    }

    fn run(&self, dir: impl AsRef<Path>, args: &[&str]) -> Run {
        let mut command = self.world.command(args.iter().copied());
        command.current_dir(self.world.path(dir)).stdin(Stdio::null()).output().expect("sess starts").into()
    }

    /// Runs `sess work …`, which has to succeed.
    #[track_caller]
    fn ok(&self, dir: impl AsRef<Path>, args: &[&str]) -> String {
        let run = self.run(dir, &[&["work"], args].concat());
        assert_eq!(run.code, 0, "{args:?}: {run:?}");
        run.stdout
    }

    /// Runs `sess work … --json`; the answer has its version.
    #[track_caller]
    fn json(&self, dir: impl AsRef<Path>, args: &[&str]) -> Value {
        let data: Value = serde_json::from_str(&self.ok(dir, &[args, &["--json"]].concat())).expect("JSON");
        assert_eq!(data["schema_version"], 1, "{data}");
        data
    }

    /// Runs what has to fail with this code; what is said names the next command.
    #[track_caller]
    fn fails(&self, dir: impl AsRef<Path>, args: &[&str], code: i32, said: &str) {
        let run = self.run(dir, &[&["work"], args].concat());
        run.fails(code, said);
        let names_next = run.stderr.trim_end().ends_with('`') && run.stderr.contains("; run `");
        assert!(names_next, "{args:?} does not say what to run next: {run:?}");
    }

    #[track_caller]
    fn planned(&self, title: &str) -> String {
        let args = ["new", title, "--context", "Because.", "--criterion", "It works", "--label", "web"];
        let slug = self.ok("ann", &args).trim().to_owned();
        self.ok("ann", &["ready", &slug]);
        slug
    }

    /// Claims what is planned, and commits a file in its workspace.
    #[track_caller]
    fn worked_on(&self, slug: &str, file: &str, text: &str) -> PathBuf {
        let claimed = self.json("ann", &["claim", slug]);
        let workspace = PathBuf::from(claimed["workspace"].as_str().expect("a workspace"));
        std::fs::write(workspace.join(file), text).expect("written");
        self.git(&workspace, &["add", file]);
        self.git(&workspace, &["commit", "--quiet", "-m", &format!("[{slug}] feat: {file}")]);
        workspace
    }
}

#[test]
fn a_work_session_is_told_as_data_from_draft_to_end() {
    let lab = Lab::new();
    let check = |data: &Value, slug: &str, state: &str| {
        assert_eq!((&data["slug"], &data["state"]), (&json!(slug), &json!(state)), "{data}");
    };
    let drafted =
        lab.json("ann", &["new", "Add user login", "--context", "Why not", "--criterion", "It works"]);
    let slug = drafted["slug"].as_str().expect("a slug").to_owned();
    assert!(slug.ends_with("-add-user-login"), "{slug}");
    check(&drafted, &slug, "drafting");
    check(&lab.json("ann", &["ready", &slug]), &slug, "planned");
    check(&lab.json("ann", &["unready", &slug]), &slug, "drafting");
    let plan = "# Session: Log in\n\n## Context\n\nc\n\n## Acceptance Criteria\n\n- [ ] It works\n";
    let file = lab.world.write("plan.md", plan);
    let edited = lab.json("ann", &["edit", &slug, "--file", &file.to_string_lossy()]);
    check(&edited, &slug, "drafting");
    assert_eq!(edited["changed"], true);
    check(&lab.json("ann", &["ready", &slug]), &slug, "planned");

    let listed = lab.json("ann", &["list", "--ready"]);
    check(&listed["workSessions"][0], &slug, "planned");
    assert_eq!(listed["workSessions"][0]["title"], "Log in");

    let claimed = lab.json("ann", &["claim", "--next"]);
    check(&claimed, &slug, "active");
    assert_eq!((&claimed["fence"], &claimed["resumed"]), (&json!(1), &json!(false)));
    assert_eq!(claimed["branch"], format!("session/{slug}"));
    let workspace = PathBuf::from(claimed["workspace"].as_str().expect("a path"));
    assert!(workspace.is_absolute() && workspace.is_dir());
    assert_eq!(lab.json("ann", &["claim", &slug])["resumed"], true);

    // Inside the workspace nobody has to say which one.
    let env = lab.json(&workspace, &["env"]);
    check(&env, &slug, "active");
    assert_eq!(env["env"]["GIT_AUTHOR_NAME"], format!("Ann ({slug})"));
    for (verb, file) in [("log", "worklog.md"), ("plan", "active-plan.md"), ("learn", "learnings.md")] {
        let noted = lab.json(&workspace, &[verb, "something"]);
        check(&noted, &slug, "active");
        assert_eq!(noted["file"], file);
    }
    let sub = lab.json(&workspace, &["sub", "Another form", "--new"]);
    check(&sub, &slug, "active");
    assert!(sub["drafted"].as_str().expect("a slug").ends_with("-another-form"));
    check(&lab.json(&workspace, &["heartbeat"]), &slug, "active");
    let done = lab.run(&workspace, &["work", "exec", "--", "sh", "-c", "echo $GIT_AUTHOR_NAME; exit 7"]);
    assert_eq!((done.code, done.stdout), (7, format!("Ann ({slug})\n")));
    let committed_with = |env: &[(&str, &str)]| {
        let script = "git commit --quiet --allow-empty -m \"[$SESSION_SLUG] chore: nothing\" && \
                      git log -1 --format='%an <%ae>, %cn <%ce>'";
        let mut command = lab.world.command(["work", "exec", "--", "sh", "-c", script]);
        command.envs(env.iter().copied()).current_dir(&workspace).stdin(Stdio::null());
        let run = Run::from(command.output().expect("sess starts"));
        assert_eq!(run.code, 0, "{run:?}");
        run.stdout
    };
    let ann = format!("Ann ({slug}) <ann@example.com>");
    let foreign = [
        ("GIT_AUTHOR_NAME", "Mallory"),
        ("GIT_AUTHOR_EMAIL", "mallory@example.com"),
        ("GIT_COMMITTER_NAME", "Mallory"),
        ("GIT_COMMITTER_EMAIL", "mallory@example.com"),
    ];
    // The user is who the configuration says, and the environment where that says nothing.
    assert_eq!(committed_with(&foreign), format!("{ann}, {ann}\n"));
    let mallory = format!("Mallory ({slug}) <mallory@example.com>");
    let nobody = [("GIT_CONFIG_GLOBAL", "/dev/null")];
    assert_eq!(committed_with(&[&foreign[..], &nobody].concat()), format!("{mallory}, {mallory}\n"));
    let drift = lab.json(&workspace, &["drift"]);
    check(&drift, &slug, "active");
    for field in ["criteria", "files", "subsessions", "amendments"] {
        assert!(!drift[field].is_null(), "{field}: {drift}");
    }
    check(&lab.json(&workspace, &["status"]), &slug, "active");
    check(&lab.json(&workspace, &["show"]), &slug, "active");
    check(&lab.json(&workspace, &["context"]), &slug, "active");

    std::fs::write(workspace.join("login.txt"), "in\n").expect("written");
    lab.git(&workspace, &["add", "login.txt"]);
    lab.git(&workspace, &["commit", "--quiet", "-m", &format!("[{slug}] feat: log in")]);
    check(&lab.json(&workspace, &["sync"]), &slug, "active");
    check(&lab.json(&workspace, &["land"]), &slug, "active");
    let ended = lab.json(&workspace, &["complete", "--notes", "It went well."]);
    check(&ended, &slug, "completed");
    assert!(
        ended["commit"].is_string() && ended["kb"].as_str().is_some_and(|kb| kb.starts_with("kb-")),
        "{ended}"
    );
    assert_eq!(lab.git("hub.git", &["show", "main:login.txt"]), "in\n");

    let other = lab.planned("Another");
    lab.json("ann", &["claim", &other, "--no-workspace"]);
    check(&lab.json("ann", &["release", &other, "--reason", "later"]), &other, "planned");
    lab.json("ann", &["claim", &other, "--lease", "5"]);
    check(&lab.json("ann", &["abandon", &other, "--reason", "never mind"]), &other, "abandoned");
    let again = lab.json("ann", &["retry", &other]);
    check(&again, &other, "planned");
    assert_eq!(again["attempt"], 2);
}

#[test]
fn every_kind_of_refusal_has_its_exit_code() {
    let lab = Lab::new();
    for wrong in
        ["../x", "x", "2025-13-01-x", "2025-10-14-", "2025-10-14-x.lock", "2025-10-14-ä", "2025-10-14-a b"]
    {
        lab.fails("ann", &["claim", wrong], 2, "invalid slug");
    }
    lab.fails("ann", &["show"], 2, "this is no session's workspace");
    lab.fails("ann", &["claim", "2025-10-14-nothing"], 3, "there is no work session");
    lab.fails("ann", &["claim", "--next"], 3, "nothing is ready");
    let drafted = lab.ok("ann", &["new", "Empty"]).trim().to_owned();
    let refused = lab.run("ann", &["work", "ready", &drafted]);
    assert!(refused.code != 0 && refused.stderr.contains("## Context"), "{refused:?}");

    let slug = lab.planned("Add a form");
    let workspace = lab.worked_on(&slug, "form.txt", "a form\n");
    lab.clone_named("bob");
    lab.fails("bob", &["claim", &slug], 4, "is claimed by Ann");
    lab.fails("bob", &["takeover", &slug], 4, "it is not stale");
    lab.fails("bob", &["log", "mine", "--slug", &slug], 4, "is claimed by Ann");

    std::fs::write(workspace.join("readme.md"), "changed\n").expect("written");
    lab.fails(&workspace, &["complete"], 5, "readme.md");
    lab.git(&workspace, &["commit", "--quiet", "--all", "-m", &format!("[{slug}] docs: another readme")]);
    std::fs::write(lab.world.path("bob/readme.md"), "Bob's\n").expect("written");
    lab.git("bob", &["commit", "--quiet", "--all", "-m", "Bob's readme"]);
    lab.git("bob", &["pull", "--quiet", "--rebase", "origin", "main"]);
    lab.git("bob", &["push", "--quiet", "origin", "HEAD:main"]);
    lab.fails(&workspace, &["complete"], 7, "readme.md");

    let gated = lab.world.write(
        "gated.md",
        "---\ngates: [test]\n---\n# Gated\n\n## Context\n\nc\n\n## Acceptance Criteria\n\n- [ ] a\n",
    );
    let gated = lab.ok("ann", &["new", "--from", &gated.to_string_lossy()]).trim().to_owned();
    lab.ok("ann", &["ready", &gated]);
    lab.worked_on(&gated, "gated.txt", "x\n");
    lab.fails("ann", &["complete", &gated], 8, "the gate \"test\"");

    let hook = lab.world.write("hub.git/hooks/pre-receive", "#!/bin/sh\necho 'not today' >&2\nexit 1\n");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&hook, mode).expect("marked");
    lab.fails("ann", &["new", "Refused"], 9, "not today");
    std::fs::remove_file(hook).expect("removed");

    std::fs::rename(lab.world.path("hub.git"), lab.world.path("gone.git")).expect("moved");
    lab.fails("ann", &["claim", &slug], 6, "cannot be reached");
    let listed = lab.run("ann", &["work", "list"]);
    assert!(listed.code == 0 && listed.stderr.contains("this is what it said last"), "{listed:?}");
    lab.fails(".", &["list"], 3, "no git repository");
}

#[test]
fn every_mistake_names_the_next_command() {
    let lab = Lab::new();
    let slug = lab.planned("Add a form");
    let gone = "it's gone/plän 1.md";
    lab.fails("ann", &["edit", &slug, "--file", gone], 2, "cannot read it's gone/plän 1.md");
    // What is there of it is looked at; the same command would say the same.
    lab.fails("ann", &["edit", &slug, "--file", gone], 2, "run `ls -la -- .`");
    std::fs::create_dir(lab.world.path("ann/it's gone")).expect("made");
    lab.fails("ann", &["new", "--from", gone], 2, r"run `ls -la -- 'it'\''s gone'`");
    lab.fails("ann", &["edit", &slug, "--file", "."], 2, "cannot read .");
    let pasted = |args: &[&str]| {
        let run = lab.run("ann", &[&["work"], args].concat());
        run.fails(2, "is not UTF-8 text");
        let next = run.stderr.rsplit_once("run `").expect("a command").1.trim_end().trim_end_matches('`');
        let mut shell = Command::new("sh");
        lab.world.clean(&mut shell);
        let bin = Path::new(env!("CARGO_BIN_EXE_sess")).parent().expect("a directory");
        shell.env("PATH", format!("{}:/usr/local/bin:/usr/bin:/bin", bin.display()));
        let ended = shell.args(["-c", next]).current_dir(lab.world.path("ann")).output().expect("sh starts");
        let ended = Run::from(ended);
        assert_eq!(ended.code, 0, "{next}: {ended:?}");
        ended.stdout
    };
    let plan = "# Caf\u{e9}\n\n## Context\n\nc\n\n## Acceptance Criteria\n\n- [ ] a\n";
    let latin = lab.world.path("it's latin.md");
    std::fs::write(&latin, plan.chars().map(|c| c as u8).collect::<Vec<u8>>()).expect("written");
    pasted(&["edit", &slug, "--file", &latin.to_string_lossy()]);
    assert!(lab.ok("ann", &["show", &slug]).contains("# Caf\u{e9}"));
    let wide = lab.world.path("wide.md");
    let bytes = "\u{feff}".encode_utf16().chain(plan.encode_utf16()).flat_map(u16::to_le_bytes);
    std::fs::write(&wide, bytes.collect::<Vec<u8>>()).expect("written");
    assert!(pasted(&["new", "--from", &wide.to_string_lossy()]).trim_end().ends_with("-cafe"));
    std::fs::write(lab.world.path("ann/binary"), [0xff, 0, 1, 2]).expect("written");
    lab.fails("ann", &["new", "--from", "binary"], 2, "run `ls -la -- binary`");
    lab.fails("ann", &["new", "X", "--slug", "no-date"], 2, "run `sess work new \"<title>\"`");
    lab.fails("ann", &["new", "X", "--depends", "no-date"], 2, "run `sess work list`");
    lab.fails("ann", &["new"], 2, "run `sess work new \"<title>\"`");
    let wrong = lab.world.write("wrong.md", "---\ndepends: [\n---\n# X\n");
    let wrong = wrong.to_string_lossy().into_owned();
    lab.fails("ann", &["new", "X", "--from", &wrong], 2, "run `${EDITOR:-vi} ");
    lab.fails("ann", &["edit", &slug, "--file", &wrong], 2, &format!("run `sess work edit {slug}`"));
    lab.fails("ann", &["blame", "readme.md"], 2, "run `sess work blame <file>:<line>`");
    lab.fails("ann", &["list", "--state", "done"], 2, "[possible values: drafting, planned,");
    lab.fails("ann", &["run", &slug, "--agent", "x"], 2, "there are no agents");
    lab.worked_on(&slug, "form.txt", "a form\n");
    lab.fails("ann", &["exec", &slug, "--", "no such program"], 1, "run `command -v 'no such program'`");
    lab.fails("ann", &["amend", &slug, "--reason", "x", "--file", gone], 2, "cannot read");

    let mut wrong = lab.world.command(["work", "list"]);
    wrong.env("SESS_WORK_LAND", "bogus").current_dir(lab.world.path("ann"));
    let wrong = Run::from(wrong.output().expect("sess starts"));
    wrong.fails(2, "SESS_WORK_LAND");
    wrong.fails(2, "; run `sess config check`\n");

    // What somebody wrote in an editor is never lost.
    let editing = |editor: &str| {
        let mut command = lab.world.command(["work", "edit", "2026-01-31-other"]);
        command.env("EDITOR", editor).env_remove("VISUAL").current_dir(lab.world.path("ann"));
        Run::from(command.stdin(Stdio::null()).output().expect("sess starts"))
    };
    lab.ok("ann", &["new", "Other", "--slug", "2026-01-31-other"]);
    editing("false").fails(1, "the plan is as it was; run `sess work edit 2026-01-31-other --file <file>`");
    for wrong in [r"printf -- '---\nlabels: [\n---\n' >", r"printf 'Caf\351' >"] {
        let run = editing(wrong);
        run.fails(2, "what you wrote is kept in ");
        let (_, again) =
            run.stderr.split_once(" && sess work edit 2026-01-31-other --file ").expect("a path");
        let path = again.trim_end().trim_end_matches('`');
        assert!(std::fs::metadata(path).is_ok_and(|kept| kept.len() > 3), "{run:?}");
    }
}

#[test]
fn paths_in_the_next_command_can_be_pasted() {
    let lab = Lab::new();
    let ann = lab.clone_named("it's \"Ann's\" $HOME é");
    let slug = lab.planned("Add a form");
    let claimed = lab.json(&ann, &["claim", &slug]);
    let workspace = PathBuf::from(claimed["workspace"].as_str().expect("a path"));
    std::fs::write(workspace.join("readme.md"), "not committed\n").expect("written");
    let refused = lab.run(&ann, &["work", "complete", &slug]);
    refused.fails(5, "readme.md");
    let next = refused.stderr.rsplit_once("run `").expect("a command").1.trim_end().trim_end_matches('`');
    let mut shell = Command::new("sh");
    lab.world.clean(&mut shell);
    let ended = Run::from(shell.args(["-c", &format!("cd / && {next}")]).output().expect("sh starts"));
    assert!(ended.code == 0 && ended.stdout.contains("readme.md"), "{next}: {ended:?}");
}

#[test]
fn errors_are_data_when_data_is_asked_for() {
    let lab = Lab::new();
    let check = |args: &[&str], code: i32, kind: &str, next: &str| {
        let run = lab.run("ann", &[args, &["--json"]].concat());
        assert_eq!(run.code, code, "{run:?}");
        let data: Value =
            serde_json::from_str(&run.stdout).unwrap_or_else(|error| panic!("{error}: {run:?}"));
        let error = &data["error"];
        assert_eq!((&data["schema_version"], &error["type"]), (&json!(1), &json!(kind)), "{data}");
        assert_eq!((&error["exitCode"], &error["next"]), (&json!(code), &json!(next)), "{data}");
        assert!(
            error["message"].as_str().is_some_and(|text| !text.is_empty() && !text.contains("run `")),
            "{data}"
        );
        // People are told, too.
        assert!(run.stderr.starts_with("error: "), "{run:?}");
    };
    check(&["work", "claim", "../x"], 2, "usage", "sess work list");
    check(&["work", "claim", "--no-such-option"], 2, "usage", "sess work claim --help");
    check(&["work", "show", "2025-10-14-nothing"], 3, "not_found", "sess work list");
    let slug = lab.planned("Add a form");
    lab.json("ann", &["claim", &slug, "--no-workspace"]);
    lab.clone_named("bob");
    let run = lab.run("bob", &["work", "claim", &slug, "--json"]);
    let data: Value = serde_json::from_str(&run.stdout).expect("JSON");
    assert_eq!(data["error"]["next"], format!("sess work show {slug}"), "{data}");
    // The same shape everywhere.
    let run = lab.run("ann", &["read", "nothing", "--json"]);
    let data: Value = serde_json::from_str(&run.stdout).unwrap_or_else(|error| panic!("{error}: {run:?}"));
    assert_eq!(
        (&data["error"]["type"], &data["error"]["exitCode"]),
        (&json!("not_found"), &json!(3)),
        "{data}"
    );
    assert!(data["error"]["hint"].is_string(), "{data}");
}

#[test]
fn hooks_check_what_is_committed_and_pushed_with_the_real_program() {
    let lab = Lab::new();
    std::fs::create_dir(lab.world.path("bin")).expect("made");
    let program = lab.world.path("bin/sess");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_sess"), &program).expect("linked");
    lab.ok("ann", &["init"]);
    let slug = lab.planned("Add a form");
    let claimed = lab.json("ann", &["claim", &slug]);
    let workspace = PathBuf::from(claimed["workspace"].as_str().expect("a path"));
    let write = |path: &str, text: &str| {
        let path = workspace.join(path);
        std::fs::create_dir_all(path.parent().expect("a directory")).expect("made");
        std::fs::remove_file(&path).ok();
        std::fs::write(path, text).expect("written");
    };
    let commit = |message: &str| {
        assert_eq!(lab.git_with_hooks(&workspace, &["add", "--all"]).code, 0);
        lab.git_with_hooks(&workspace, &["commit", "--quiet", "-m", message])
    };
    let reset = || lab.git(&workspace, &["reset", "--quiet", "--hard"]);
    let good = format!("[{slug}] feat: a form");
    #[track_caller]
    fn check(run: &Run, said: &str, next: &str) {
        assert!(run.code != 0 && run.stderr.contains(said), "{said}: {run:?}");
        assert!(run.stderr.contains(&format!("run `{next}")), "{next}: {run:?}");
    }

    // The message names its session.
    write("form.txt", "a form\n");
    check(&commit("feat: a form"), "begin with", &format!("git commit -m \"[{slug}]"));
    assert_eq!(commit(&good).code, 0);
    // Elsewhere everybody commits as they like.
    let elsewhere = lab.git_with_hooks("ann", &["commit", "--quiet", "--allow-empty", "-m", "as I like"]);
    assert_eq!(elsewhere.code, 0, "{elsewhere:?}");
    // The plan is frozen.
    write(&format!("_AGENTS/sessions/active/{slug}/SESSION.md"), "# Another\n");
    check(&commit(&good), "it stays as it is", "git restore --staged");
    reset();
    // The knowledge base is for those who merge it.
    write("_AGENTS/knowledge/facts.md", "# Facts\n");
    check(&commit(&good), "only a kb-merge session", &format!("sess work learn --slug {slug}"));
    reset();
    write(&format!("_AGENTS/knowledge/sessions/{slug}/learnings.md"), "- forms are hard\n");
    assert_eq!(commit(&good).code, 0);

    // Whoever lost the work session neither commits nor pushes, as soon as this clone knows.
    lab.clone_named("bob");
    lab.ok("bob", &["takeover", &slug, "--force", "--reason", "Ann is away"]);
    lab.ok("ann", &["list"]);
    write("form.txt", "another form\n");
    check(&commit(&good), "is not yours", &format!("sess work show {slug}"));
    let pushed = lab.git_with_hooks(&workspace, &["push", "--quiet", "origin", "HEAD"]);
    check(&pushed, "is not yours", &format!("sess work show {slug}"));

    // Without the program everything passes, with a warning.
    std::fs::remove_file(&program).expect("removed");
    let passed = commit("as I like");
    assert!(passed.code == 0 && passed.stderr.contains("warning: sess is not on PATH"), "{passed:?}");
}

#[test]
fn hooks_that_git_tracks_check_as_much_when_they_call_ours() {
    let lab = Lab::new();
    let (program, hooks) = (lab.world.path("bin/sess"), lab.world.path("ann/own-hooks"));
    std::fs::create_dir_all(program.parent().expect("a directory")).expect("made");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_sess"), &program).expect("linked");
    std::fs::create_dir_all(&hooks).expect("made");
    for name in ["commit-msg", "pre-commit", "pre-push"] {
        let hook = hooks.join(name);
        std::fs::write(&hook, format!("#!/bin/sh\nsess work hook {name} \"$@\"\n")).expect("written");
        std::fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("set");
    }
    lab.git("ann", &["add", "."]);
    lab.git("ann", &["commit", "--quiet", "-m", "hooks"]);
    lab.git("ann", &["push", "--quiet", "origin", "HEAD:main"]);
    lab.git("ann", &["config", "core.hooksPath", "own-hooks"]);
    let advice = "which git tracks; call `sess work hook <name> \"$@\"` in yours";
    let init = lab.json("ann", &["init"])["notices"].to_string();
    assert!(init.replace("\\\"", "\"").contains(advice), "{init}");

    let slug = lab.planned("Add a form");
    let claimed = lab.json("ann", &["claim", &slug]);
    let notices = claimed["notices"].to_string().replace("\\\"", "\"");
    assert!(notices.contains(advice) && !notices.contains("installs them"), "{notices}");

    let workspace = PathBuf::from(claimed["workspace"].as_str().expect("a path"));
    let plan = format!("_AGENTS/sessions/active/{slug}/SESSION.md");
    std::fs::remove_file(workspace.join(&plan)).expect("removed");
    std::fs::write(workspace.join(&plan), "# Another\n").expect("written");
    let good = format!("[{slug}] feat: a form");
    for more in [&["--all"][..], &["--", &plan]] {
        let run = lab.git_with_hooks(&workspace, &[&["commit", "--quiet", "-m", &good], more].concat());
        assert!(run.code != 0 && run.stderr.contains("it stays as it is"), "{more:?}: {run:?}");
    }
    lab.git(&workspace, &["reset", "--quiet", "--hard"]);

    let push = || lab.git_with_hooks(&workspace, &["push", "--quiet", "origin", "HEAD"]);
    lab.git_with_hooks(&workspace, &["commit", "--quiet", "--allow-empty", "-m", &good]);
    assert_eq!(push().code, 0);
    lab.clone_named("bob");
    lab.ok("bob", &["takeover", &slug, "--force", "--reason", "Ann is away"]);
    lab.ok("ann", &["list"]);
    lab.git(
        &workspace,
        &["-c", "core.hooksPath=/dev/null", "commit", "--quiet", "--allow-empty", "-m", &good],
    );
    let pushed = push();
    assert!(pushed.code != 0 && pushed.stderr.contains("is not yours"), "{pushed:?}");
}

#[test]
fn whoever_lost_a_work_session_is_told_by_what_only_looks() {
    let lab = Lab::new();
    let slug = lab.planned("Add a form");
    let workspace = PathBuf::from(lab.json("ann", &["claim", &slug])["workspace"].as_str().expect("a path"));
    for verb in ["context", "drift"] {
        assert_eq!(lab.json(&workspace, &[verb])["notices"], json!([]), "{verb}");
    }
    let bob = lab.clone_named("bob");
    lab.git(&bob, &["config", "user.name", "Bob"]);
    lab.ok("bob", &["takeover", &slug, "--force", "--reason", "Ann is away"]);
    for verb in ["context", "drift"] {
        let told = lab.json(&workspace, &[verb])["notices"].to_string();
        assert!(told.contains(&format!("{slug} is not yours any more")) && told.contains("Bob"), "{told}");
        let run = lab.run(&workspace, &["work", verb]);
        assert!(run.code == 0 && run.stderr.contains("is not yours any more"), "{run:?}");
        assert_eq!(lab.json("bob", &[verb, &slug])["notices"], json!([]), "{verb}");
    }
    let told = lab.run(&workspace, &["tool", "call", "work_status"]);
    assert!(told.code == 0 && told.stdout.contains("is not yours any more"), "{told:?}");
}

#[test]
fn a_label_goes_with_the_next_one_alone() {
    let lab = Lab::new();
    let slug = lab.planned("Add a form");
    let run = lab.run("ann", &["work", "claim", &slug, "--label", "docs"]);
    assert!(run.code == 2 && run.stderr.contains("--label"), "{run:?}");
    assert_eq!(lab.json("ann", &["show", &slug])["state"], "planned");
    lab.ok("ann", &["claim", "--next", "--label", "web"]);
}

#[test]
fn whoever_stands_in_a_workspace_that_goes_is_told_where_to_go() {
    let lab = Lab::new();
    let slug = lab.planned("Add a form");
    let workspace = lab.worked_on(&slug, "form.txt", "a form\n");
    let run = lab.run(&workspace, &["work", "complete"]);
    assert_eq!(run.code, 0, "{run:?}");
    let home = lab.world.path("ann").canonicalize().expect("there");
    assert!(run.stderr.contains(&format!("run `cd {}`", home.display())), "{run:?}");
    assert!(!workspace.exists());
    // Whoever does not, is not; and a program reads it among the notices.
    let slug = lab.planned("Add another form");
    let workspace = lab.worked_on(&slug, "other.txt", "a form\n");
    assert_eq!(lab.json("ann", &["release", &slug])["notices"], json!([]));
    assert!(!workspace.exists());
    let workspace = PathBuf::from(lab.json("ann", &["claim", &slug])["workspace"].as_str().expect("a path"));
    let abandoned = lab.json(&workspace, &["abandon", "--reason", "no"]);
    assert!(
        abandoned["notices"][0].as_str().is_some_and(|notice| notice.contains("run `cd ")),
        "{abandoned}"
    );
}

#[test]
fn what_is_shown_fits_the_terminal() {
    let lab = Lab::new();
    let long =
        "A title that is much longer than any terminal is wide, because somebody could not stop writing";
    let long_slug = lab.planned(long);
    let slug = lab.planned("Add a form");
    lab.worked_on(&slug, "form.txt", "a form\n");
    let criterion = "word ".repeat(40);
    let plan = format!("# X\n\n## Context\n\nc\n\n## Acceptance Criteria\n\n- [ ] {criterion}\n");
    let plan = lab.world.write("plan.md", &plan).to_string_lossy().into_owned();
    lab.ok("ann", &["amend", &slug, "--reason", &"reason ".repeat(30), "--file", &plan]);
    let waiting =
        lab.ok("ann", &["new", "Wait", "--depends", &slug, "--depends", &long_slug]).trim().to_owned();
    for width in [50, 80, 120] {
        for args in [
            &["list"][..],
            &["show", &slug],
            &["context", &slug],
            &["status", &slug],
            &["drift", &slug],
            &["doctor"],
            &["gc", "--dry-run"],
            &["board"],
        ] {
            let mut command = lab.world.command([&["work"], args].concat());
            command.env("NO_COLOR", "1").current_dir(lab.world.path("ann"));
            let shown = in_terminal(command, width);
            assert!(shown.lines().count() > 1, "{args:?}: {shown}");
            for line in shown.lines() {
                // A path and a name are one word, and stay whole.
                let is_long = |word: &str| word.starts_with('/') || word.chars().count() + 14 > width.into();
                let fits = line.chars().count() <= usize::from(width);
                assert!(fits || line.split_whitespace().any(is_long), "{args:?}: {line}");
            }
            let words = shown.split_whitespace().collect::<Vec<_>>().join(" ");
            match args[0] {
                "list" | "board" => {
                    for whole in [&slug, &long_slug, &waiting, &format!("waits for {slug}, {long_slug}")] {
                        assert!(words.contains(whole.as_str()), "{whole} at {width}: {shown}");
                    }
                    assert!(words.contains("Ann (you)"), "{shown}");
                }
                "doctor" => assert!(words.contains(&long_slug), "{shown}"),
                "status" => assert!(shown.contains("claimed just now"), "times are told in words: {shown}"),
                _ => {}
            }
        }
    }
    let mut command = lab.world.command(["work", "claim", &slug]);
    command.env("NO_COLOR", "1").current_dir(lab.world.path("ann"));
    let shown = in_terminal(command, 80);
    assert!(shown.contains(&format!("{slug} is yours already for 30 min\n")), "{shown}");
}

#[test]
fn gates_are_what_the_person_wrote_and_never_what_came_with_the_repository() {
    let lab = Lab::new();
    let plan = "---\ngates: [test]\n---\n# Gated\n\n## Context\n\nc\n\n## Acceptance Criteria\n\n- [ ] a\n";
    let plan = lab.world.write("plan.md", plan);
    let slug = lab.ok("ann", &["new", "--from", &plan.to_string_lossy()]).trim().to_owned();
    lab.ok("ann", &["ready", &slug]);
    lab.worked_on(&slug, "a.txt", "a\n");
    lab.world.write("ann/sess.yaml", "work: {gates: {test: 'touch ../../../canary'}}\n");
    lab.fails("ann", &["complete", &slug], 8, "your configuration has none of that name");
    assert!(!lab.world.path("canary").exists());

    let config = lab.world.write("config.yaml", "work: {gates: {test: 'echo it broke; false'}}\n");
    let config = config.to_string_lossy().into_owned();
    lab.fails("ann", &["complete", &slug, "--config", &config], 8, "it broke");
    lab.world.write("config.yaml", "work: {leaseMinutes: 90, gates: {test: 'test -f a.txt'}}\n");
    let kept = lab.json("ann", &["claim", &slug, "--config", &config]);
    assert_eq!(kept["resumed"], true);
    assert_eq!(lab.json("ann", &["complete", &slug, "--config", &config])["state"], "completed");

    for (wrong, said) in [
        ("work: {leaseMinutes: 0}", "expected a number from 1 to 525600"),
        ("work: {land: later}", "expected push, pr or none"),
        ("work: {gates: {test: ''}}", "work.gates.test: expected a command"),
        ("work: {kb: {state: done}}", "expected planned or drafting"),
        ("work: {gate: {}}", "did you mean \"gates\"?"),
    ] {
        lab.world.write("wrong.yaml", wrong);
        let run = lab.run(".", &["config", "check", "wrong.yaml"]);
        assert!(run.code == 2 && run.stderr.contains(said), "{wrong}: {run:?}");
    }
}

#[test]
fn an_agent_without_a_shell_does_its_part_with_tools() {
    let lab = Lab::new();
    let slug = lab.planned("Add a form");
    let call = |tool: &str, arguments: Value| -> Value {
        let run =
            lab.run("ann", &["tool", "call", tool, &arguments.to_string(), "--session", "s1", "--json"]);
        serde_json::from_str(&run.stdout).unwrap_or_else(|error| panic!("{error}: {run:?}"))
    };
    let listed = call("work_list", json!({ "ready": true }));
    assert_eq!(listed["structuredContent"]["workSessions"][0]["slug"], json!(slug), "{listed}");
    let both = call("work_claim", json!({ "slug": slug, "label": "backend" }));
    assert!(both["text"].as_str().is_some_and(|text| text.contains("give one of them")), "{both}");
    let claimed = call("work_claim", json!({}));
    let data = &claimed["structuredContent"];
    assert_eq!((&data["slug"], &data["state"]), (&json!(slug), &json!("active")), "{claimed}");
    assert!(claimed["text"].as_str().is_some_and(|text| text.contains("It works")), "{claimed}");
    let workspace = PathBuf::from(data["workspace"].as_str().expect("a path"));
    // The claim says whose it is: another agent's session in the same clone is somebody else.
    let shown = lab.json("ann", &["show", &slug]);
    assert_eq!(shown["sessions"], json!(["agent:main:chat:s1"]), "{shown}");
    let other = lab
        .run("ann", &["tool", "call", "work_claim", &json!({ "slug": slug }).to_string(), "--session", "s2"]);
    assert!(other.code == 1 && other.stderr.contains("is claimed by"), "{other:?}");

    for kind in ["log", "plan", "sub", "learning"] {
        let noted = call("work_note", json!({ "slug": slug, "kind": kind, "text": "a word" }));
        assert_eq!(noted["isError"], false, "{noted}");
    }
    let status = call("work_status", json!({ "slug": slug }));
    assert!(status["structuredContent"]["drift"]["criteria"].is_array(), "{status}");
    std::fs::write(workspace.join("form.txt"), "a form\n").expect("written");
    for outcome in ["complete", "release"] {
        let new = call("work_finish", json!({ "slug": slug, "outcome": outcome }));
        assert_eq!(new["isError"], true, "{new}");
        let told = new["text"].as_str().expect("words");
        assert!(told.contains("form.txt") && told.contains("commitMessage"), "{told}");
        let (_, call) = told.split_once("work_finish '").expect("a command");
        let (args, _) = call.split_once('\'').expect("its arguments");
        serde_json::from_str::<Value>(args).expect("JSON");
    }
    assert_eq!(lab.json("ann", &["show", &slug])["state"], "active");
    std::fs::write(workspace.join("readme.md"), "# With a form\n").expect("written");
    let dirty = call("work_finish", json!({ "slug": slug, "outcome": "complete" }));
    assert_eq!(dirty["isError"], true, "{dirty}");
    let finish = json!({ "slug": slug, "outcome": "complete", "commitMessage": "feat: a form" });
    let finished = call("work_finish", finish);
    assert_eq!(finished["structuredContent"]["state"], "completed", "{finished}");
    assert_eq!(lab.git("hub.git", &["show", "main:form.txt"]), "a form\n");

    let outside = lab.run(".", &["tool", "call", "work_list"]);
    assert!(outside.code == 1 && outside.stderr.contains("no git repository"), "{outside:?}");
    let bad = call("work_note", json!({ "slug": "../x", "kind": "log", "text": "x" }));
    assert_eq!(bad["isError"], true, "{bad}");
}

#[test]
fn an_agent_without_a_shell_reads_what_is_left_for_others_to_do() {
    let lab = Lab::new();
    let config = lab.world.write("config.yaml", "work: {land: pr}\n").to_string_lossy().into_owned();
    let slug = lab.planned("Add a form");
    lab.worked_on(&slug, "form.txt", "a form\n");
    let told = |tool: &str, arguments: Value| -> String {
        let run = lab.run("ann", &["tool", "call", tool, &arguments.to_string(), "--config", &config]);
        assert_eq!(run.code, 0, "{run:?}");
        run.stdout
    };
    let finished = told("work_finish", json!({ "slug": slug, "outcome": "complete" }));
    assert!(finished.starts_with(&format!("{slug} is done, and waits to be merged.\n")), "{finished}");
    assert!(finished.contains(&format!("open a pull request from session/{slug} to main")), "{finished}");
    let listed = told("work_list", json!({}));
    assert_eq!(listed, format!("{slug} (active, yours; it is done, and waits to be merged): Add a form\n"));
    let claimed = told("work_claim", json!({ "slug": slug }));
    assert!(claimed.starts_with(&format!("{slug} is yours: it is done, and waits to be")), "{claimed}");
}

#[test]
fn a_configured_agent_carries_out_a_work_session() {
    let lab = Lab::new();
    let config = "agents:\n  coder:\n    model: scripted/replies.yaml\n    \
                  toolsets: [{type: session_plan}, {type: filesystem}]\n  hasty:\n    \
                  model: scripted/replies.yaml\n    toolsets: [{type: filesystem}]\n    limits: {turns: 1}\n";
    let config = lab.world.write("agents.yaml", config);
    let config = config.to_string_lossy().into_owned();
    lab.world.write(
        "replies.yaml",
        "- {tool_calls: [{name: read_session_plan}]}\n\
         - {when: '# Session: Add a form', tool_calls: [{name: write_file, arguments: {path: form.txt, content: a form}}]}\n\
         - {text: The form is there.}\n",
    );
    let slug = lab.planned("Add a form");
    let done = lab.json("ann", &["run", &slug, "--agent", "coder", "--yolo", "--config", &config]);
    assert_eq!((&done["slug"], &done["state"]), (&json!(slug), &json!("completed")), "{done}");
    assert_eq!(lab.git("hub.git", &["show", "main:form.txt"]), "a form");
    let log = lab.git("hub.git", &["show", &format!("main:_AGENTS/sessions/completed/{slug}/worklog.md")]);
    assert!(log.contains("coder: done. The form is there."), "{log}");
    let sessions = lab.world.json(["list"]);
    assert!(sessions.to_string().contains("coder"), "{sessions}");

    // One that fails ends it, and what it did stays on the branch.
    let slug = lab.planned("Add another form");
    lab.world.write(
        "replies.yaml",
        "- {tool_calls: [{name: write_file, arguments: {path: half.txt, content: half}}]}\n",
    );
    let failed =
        lab.run("ann", &["work", "run", &slug, "--agent", "hasty", "--yolo", "--config", &config, "--json"]);
    assert_eq!(failed.code, 1, "{failed:?}");
    let data: Value = serde_json::from_str(&failed.stdout).expect("JSON");
    assert_eq!((&data["state"], &data["outcome"]), (&json!("abandoned"), &json!("failed")), "{failed:?}");
    let reason = data["reason"].as_str().expect("a reason");
    assert!(reason.starts_with("hasty ended without success (failed): "), "{reason}");
    let error = json!({
        "type": "failed",
        "message": reason,
        "exitCode": 1,
        "next": format!("sess work retry {slug}"),
    });
    assert_eq!(data["error"], error, "{data}");
    assert_eq!(lab.git("hub.git", &["show", &format!("session/{slug}:half.txt")]), "half");
    let log = format!("session/{slug}:_AGENTS/sessions/active/{slug}/worklog.md");
    let log = lab.git("hub.git", &["show", &log]);
    assert!(log.contains("hasty: failed.") && log.contains(reason), "{log}");
    assert_eq!(lab.json("ann", &["show", &slug])["state"], "abandoned");
    lab.ok("ann", &["retry", &slug]);
    let args = ["run", &slug, "--agent", "nobody", "--config", &config];
    lab.fails("ann", &args, 3, "the agents are: coder, hasty");
    lab.fails("ann", &args, 3, &format!("run `sess work run {slug} --agent coder`"));
    assert_eq!(lab.json("ann", &["show", &slug])["state"], "planned");
}

#[test]
fn whoever_stops_an_agent_gets_its_work_session_back_as_planned() {
    let lab = Lab::new();
    let config = "agents:\n  coder:\n    model: scripted/replies.yaml\n    toolsets: [{type: shell}]\n";
    let config = lab.world.write("agents.yaml", config).to_string_lossy().into_owned();
    let begun = lab.world.path("begun");
    let made = Command::new("mkfifo").arg(&begun).status().expect("mkfifo runs");
    assert!(made.success());
    let waits = format!("echo half > half.txt; echo x > {}; sleep 600", begun.display());
    let reply = json!([{ "tool_calls": [{ "name": "shell", "arguments": { "cmd": waits } }] }]);
    lab.world.write("replies.yaml", &reply.to_string());
    let slug = lab.planned("Add a form");
    let args = ["work", "run", &slug, "--agent", "coder", "--yolo", "--config", &config];
    let mut command = lab.world.command(args);
    let errors = std::fs::File::create(lab.world.path("errors.txt")).expect("made");
    command.current_dir(lab.world.path("ann")).stdin(Stdio::null()).stderr(errors);
    let run = Beside::start(command);
    // Read when the agent is at work.
    std::fs::read(&begun).expect("written to");
    assert_eq!(run.interrupt(), Some(130));
    let told = std::fs::read_to_string(lab.world.path("errors.txt")).expect("read");
    let next = format!("`sess work run {slug} --agent coder` goes on with it\n");
    assert!(told.ends_with(&next), "{told}");
    assert_eq!(lab.json("ann", &["show", &slug])["state"], "planned");
    assert_eq!(lab.git("hub.git", &["show", &format!("session/{slug}:half.txt")]), "half\n");
}

#[test]
fn an_agent_that_finished_by_itself_ended_well_also_when_it_waits_to_be_merged() {
    let lab = Lab::new();
    let config = "work: {land: pr}\nagents:\n  coder:\n    model: scripted/replies.yaml\n    \
                  toolsets: [{type: filesystem}, {type: work}]\n";
    let config = lab.world.write("agents.yaml", config).to_string_lossy().into_owned();
    lab.world.write(
        "replies.yaml",
        "- {tool_calls: [{name: write_file, arguments: {path: form.txt, content: a form}}]}\n\
         - {tool_calls: [{name: work_finish, arguments: {outcome: complete, commitMessage: 'feat: a form'}}]}\n\
         - {when: waits to be merged, text: It waits.}\n",
    );
    let slug = lab.planned("Add a form");
    let args = ["run", &slug, "--agent", "coder", "--yolo", "--config", &config];
    let done = lab.json("ann", &args);
    assert_eq!((&done["state"], &done["outcome"]), (&json!("active"), &json!("done")), "{done}");
    assert_eq!(lab.json("ann", &["show", &slug])["holder"]["waits"], true);
    // There is nothing left for an agent to do.
    lab.fails("ann", &args, 3, "waits to be merged");
}

#[test]
fn an_agent_that_did_nothing_completes_nothing() {
    let lab = Lab::new();
    let config = "agents:\n  talker:\n    model: scripted/replies.yaml\n";
    let config = lab.world.write("agents.yaml", config).to_string_lossy().into_owned();
    lab.world.write("replies.yaml", "- {text: All is well.}\n");
    let slug = lab.planned("Add a form");
    let args = ["work", "run", &slug, "--agent", "talker", "--config", &config];
    let ended = lab.run("ann", &args);
    assert_eq!(ended.code, 1, "{ended:?}");
    assert!(ended.stdout.contains("did nothing that could land: All is well."), "{ended:?}");
    assert!(ended.stderr.ends_with(&format!("`sess work retry {slug}` plans it anew\n")), "{ended:?}");
    // Whoever watches for what is ready would have it done in vain for ever.
    assert_eq!(lab.json("ann", &["show", &slug])["state"], "abandoned");
    lab.ok("ann", &["retry", &slug]);
    let ended = lab.run("ann", &[&args[..], &["--json"]].concat());
    let data: Value = serde_json::from_str(&ended.stdout).expect("JSON");
    assert_eq!((&data["state"], &data["outcome"]), (&json!("abandoned"), &json!("done")), "{data}");
    let error = &data["error"];
    assert_eq!((&error["message"], &error["exitCode"]), (&data["reason"], &json!(1)), "{data}");
    assert_eq!(error["next"], format!("sess work retry {slug}"), "{data}");
}

#[test]
fn a_work_session_that_its_agent_cannot_begin_is_abandoned() {
    let lab = Lab::new();
    let config = "agents:\n  coder:\n    model: scripted/replies.yaml\n";
    let config = lab.world.write("agents.yaml", config).to_string_lossy().into_owned();
    lab.world.write("replies.yaml", "- {text: Done.}\n");
    let slug = lab.planned("Much to do");
    // More than an agent's own session takes as its plan.
    lab.git("ann", &["pull", "--quiet", "origin", "main"]);
    let plan = format!("ann/_AGENTS/sessions/planned/{slug}/SESSION.md");
    let text = std::fs::read_to_string(lab.world.path(&plan)).expect("a plan");
    lab.world.write(&plan, &(text + &"Much more.\n".repeat(1_000_000)));
    lab.git("ann", &["commit", "--quiet", "--all", "-m", "more"]);
    lab.git("ann", &["push", "--quiet", "origin", "HEAD:main"]);
    let failed = lab.run("ann", &["work", "run", &slug, "--agent", "coder", "--config", &config]);
    assert_eq!(failed.code, 1, "{failed:?}");
    assert!(failed.stdout.contains("is abandoned") && failed.stdout.contains("too large"), "{failed:?}");
    assert_eq!(lab.json("ann", &["list"])["workSessions"][0]["state"], "abandoned");
}

#[test]
fn a_watcher_whose_command_fails_tells_and_waits_before_it_claims_more() {
    let lab = Lab::new();
    let slugs = ["One", "Two"].map(|title| lab.planned(title));
    let errors = std::fs::File::create(lab.world.path("errors.txt")).expect("made");
    let mut command = lab.world.command(["work", "watch", "--exec", "date +%s%N; exit 127"]);
    command.current_dir(lab.world.path("ann")).stderr(errors);
    let watch = Beside::start(command);
    let at = slugs.each_ref().map(|slug| {
        assert_eq!(watch.line(), format!("claimed {slug}"));
        watch.line().parse::<u64>().expect("a time")
    });
    assert!(at[1] - at[0] >= 5_000_000_000, "it waited {} ns", at[1] - at[0]);
    let told = std::fs::read_to_string(lab.world.path("errors.txt")).expect("read");
    assert!(told.contains(&format!("the command ended with 127 in {}", slugs[0])), "{told}");
    assert_eq!(watch.interrupt(), Some(130));
}

#[test]
fn a_watcher_takes_what_fits_and_the_board_shows_it() {
    let lab = Lab::new();
    let slug = lab.planned("Add a form");
    let command = "echo x > x.txt; git add x.txt; git commit --quiet -m \"[$SESSION_SLUG] feat: x\"; exit 3";
    let watched = lab.run("ann", &["work", "watch", "--once", "--label", "web", "--exec", command]);
    assert_eq!((watched.code, watched.stdout), (3, format!("claimed {slug}\n")));
    let board = lab.ok("ann", &["board"]);
    assert!(board.contains("active (1)\n  Add a form\n") && board.contains("Ann (you)"), "{board}");
    let data = lab.json("ann", &["board"]);
    assert_eq!(data["workSessions"][0]["slug"], json!(slug));
}

#[test]
fn the_tools_are_served_inside_a_repository_that_has_work_sessions() {
    let world = World::new();
    let tools = |world: &World| crate::mcp::Server::start(world, &[]).tools();
    assert!(!tools(&world).contains(&"work_list".to_owned()));
    std::fs::create_dir_all(world.path(".git")).expect("made");
    std::fs::create_dir_all(world.path("_AGENTS/sessions")).expect("made");
    let names = tools(&world);
    for name in ["work_list", "work_claim", "work_note", "work_status", "work_finish"] {
        assert!(names.contains(&name.to_owned()), "{name}: {names:?}");
    }
}

#[test]
fn what_is_somebody_elses_is_told_with_its_owner() {
    let lab = Lab::new();
    lab.clone_named("bob");
    let slug = lab.planned("Whose");
    lab.fails("bob", &["env", &slug], 3, "is planned");
    lab.ok("ann", &["claim", &slug]);
    for args in [&["env", &slug][..], &["exec", &slug, "--", "true"], &["log", "--slug", &slug, "x"]] {
        lab.fails("bob", args, 4, &format!("{slug} is claimed by Ann"));
    }
    lab.ok("ann", &["exec", &slug, "--", "true"]);
}

#[test]
fn a_command_whose_work_session_is_taken_meanwhile_did_not_end_well() {
    let lab = Lab::new();
    lab.clone_named("bob");
    let sess = env!("CARGO_BIN_EXE_sess");
    let bob = lab.world.path("bob").display().to_string();
    let check = |ends: &str, code: i32, json: &[&str]| {
        let slug = lab.planned("Whose");
        lab.ok("ann", &["claim", &slug, "--lease", "1"]);
        let takes = format!(
            "cd {bob} && {sess} work takeover {slug} --force --reason 'it is mine' >/dev/null && echo out; {ends}"
        );
        let args = [&["work", "exec", &slug][..], json, &["--", "sh", "-c", &takes]].concat();
        let run = lab.run("ann", &args);
        assert_eq!(run.code, code, "{run:?}");
        let said = format!("{slug} is not yours any more: ");
        let told = run.stderr.lines().last().unwrap_or_default();
        let label = if ends == "true" { "error: " } else { "notice: " };
        assert!(told.starts_with(&format!("{label}{said}")), "{run:?}");
        assert!(told.ends_with(&format!("; run `sess work show {slug}`")), "{run:?}");
        assert!(!run.stderr.contains("error="), "{run:?}");
        (slug, run.stdout)
    };
    assert_eq!(check("true", 4, &[]).1, "out\n");
    // One that fails has its own code.
    assert_eq!(check("exit 7", 7, &[]).1, "out\n");
    let data = |stdout: &str| -> Value {
        let printed = stdout.strip_prefix("out\n").expect("what the command prints is its own");
        serde_json::from_str(printed).expect("JSON")
    };
    let (slug, stdout) = check("true", 4, &["--json"]);
    let told = data(&stdout);
    assert_eq!((&told["slug"], &told["exitCode"]), (&json!(slug), &json!(0)), "{told}");
    let error = &told["error"];
    assert_eq!((&error["type"], &error["exitCode"]), (&json!("conflict"), &json!(4)), "{told}");
    assert_eq!(error["next"], format!("sess work show {slug}"), "{told}");
    let told = data(&check("exit 7", 7, &["--json"]).1);
    assert_eq!((&told["exitCode"], &told["error"]), (&json!(7), &Value::Null), "{told}");
}

#[test]
fn what_came_of_a_command_is_told_as_data_when_it_has_ended() {
    let lab = Lab::new();
    let slug = lab.planned("Run something");
    lab.ok("ann", &["claim", &slug]);
    let run = |command: &str| -> (i32, Value) {
        let run = lab.run("ann", &["work", "exec", &slug, "--json", "--", "sh", "-c", command]);
        let printed = run.stdout.strip_prefix("its own\n").expect("what the command prints is its own");
        (run.code, serde_json::from_str(printed).unwrap_or_else(|error| panic!("{error}: {run:?}")))
    };
    let (code, data) = run("echo its own; exit 7");
    assert_eq!((code, &data["exitCode"], &data["slug"]), (7, &json!(7), &json!(slug)), "{data}");
    assert_eq!((&data["schema_version"], &data["state"]), (&json!(1), &json!("active")), "{data}");
    // It may have ended the work session.
    let abandons = format!("echo its own; {} work abandon --reason x >/dev/null", env!("CARGO_BIN_EXE_sess"));
    let (code, data) = run(&abandons);
    assert_eq!((code, &data["exitCode"], &data["state"]), (0, &json!(0), &json!("abandoned")), "{data}");
}

#[test]
fn a_session_that_is_named_is_a_part_of_the_claim() {
    let lab = Lab::new();
    let recorded = |slug: &str| lab.json("ann", &["show", slug])["holder"].clone();
    let named = lab.planned("Named");
    lab.ok("ann", &["claim", &named, "--session", "s1"]);
    let inherited = lab.planned("Inherited");
    let mut command = lab.world.command(["work", "claim", &inherited]);
    command.env("SESS_SESSION", "s1").current_dir(lab.world.path("ann"));
    assert_eq!(Run::from(command.output().expect("sess starts")).code, 0);
    assert_eq!(recorded(&named)["session"], "agent:main:chat:s1");
    for field in ["session", "agent", "name"] {
        assert_eq!(recorded(&named)[field], recorded(&inherited)[field], "{field}");
    }
    // Another session is somebody else; whoever names none is the person, who may.
    lab.fails("ann", &["log", "mine", "--slug", &named, "--session", "s2"], 4, "is claimed by");
    lab.ok("ann", &["log", "mine", "--slug", &named, "--session", "s1"]);
    lab.ok("ann", &["log", "mine", "--slug", &named]);
}

#[test]
fn watching_with_nothing_to_run_claims_nothing() {
    let lab = Lab::new();
    let slug = lab.planned("Watched");
    for command in ["", " "] {
        lab.fails("ann", &["watch", "--once", "--exec", command], 2, "--exec has no command to run");
    }
    assert_eq!(lab.json("ann", &["show", &slug])["state"], "planned");
}

#[test]
fn watching_for_what_can_never_be_claimed_ends_at_once_and_claims_nothing() {
    let lab = Lab::new();
    lab.git(".", &["init", "--quiet", "empty"]);
    lab.fails("empty", &["watch"], 3, "there is no commit on main yet");
    lab.git("ann", &["remote", "remove", "origin"]);
    let slug = lab.planned("Watched");
    lab.fails("ann", &["watch", "--clone"], 3, "a clone of its own needs a remote");
    assert_eq!(lab.json("ann", &["show", &slug])["state"], "planned");
    lab.fails("ann", &["claim", "--next", "--label", "other"], 3, "nothing is ready to be claimed");
}

#[test]
fn a_file_that_is_trusted_counts_in_workspaces_too() {
    let lab = Lab::new();
    lab.world.write("ann/sess.yaml", "work:\n  gates:\n    there: test -f work.txt\n");
    assert_eq!(lab.run("ann", &["config", "trust"]).code, 0);
    let plan =
        "---\ngates: [there]\n---\n# X\n\n## Context\n\nc\n\n## Acceptance Criteria\n\n- [ ] It works\n";
    let file = lab.world.write("plan.md", plan);
    let slug = lab.ok("ann", &["new", "Gated", "--from", &file.to_string_lossy()]).trim().to_owned();
    lab.ok("ann", &["ready", &slug]);
    let workspace = lab.worked_on(&slug, "other.txt", "x\n");
    lab.fails(&workspace, &["complete"], 8, "the gate there failed");
    // One that the branch brings is anybody's.
    std::fs::write(workspace.join("sess.yaml"), "work:\n  gates:\n    there: 'true'\n").expect("written");
    lab.git(&workspace, &["add", "sess.yaml"]);
    lab.git(&workspace, &["commit", "--quiet", "-m", &format!("[{slug}] feat: cheat")]);
    lab.fails(&workspace, &["complete"], 8, "the gate there failed");
    // A directory that only says that it is a worktree is none.
    let link = std::fs::read_to_string(workspace.join(".git")).expect("a link");
    std::fs::create_dir(lab.world.path("elsewhere")).expect("made");
    std::fs::write(lab.world.path("elsewhere/.git"), link).expect("written");
    let shown = lab.run("elsewhere", &["config", "show"]);
    assert!(!shown.stdout.contains("test -f work.txt"), "{shown:?}");
    std::fs::write(workspace.join("work.txt"), "x\n").expect("written");
    lab.git(&workspace, &["add", "work.txt"]);
    lab.git(&workspace, &["commit", "--quiet", "-m", &format!("[{slug}] feat: work")]);
    lab.ok(&workspace, &["complete"]);
}

#[test]
fn what_waits_to_be_merged_is_told_wherever_it_is_shown() {
    let lab = Lab::new();
    let slug = lab.planned("Wait");
    // An empty plan is none that can be claimed.
    lab.fails("ann", &["edit", &slug, "--file", "-"], 3, "no text under ## Context, and no checkbox");
    let workspace = lab.worked_on(&slug, "a.txt", "a\n");
    let mut complete = lab.world.command(["work", "complete"]);
    complete.env("SESS_WORK_LAND", "pr").current_dir(&workspace);
    let done = Run::from(complete.output().expect("sess starts"));
    assert!(done.code == 0 && done.stdout.contains("waits to be merged"), "{done:?}");
    for shown in [&["list"][..], &["show", &slug], &["status", &slug], &["board"]] {
        let told = lab.ok("ann", shown);
        assert!(told.contains("waits to be merged") && !told.contains("lapsed"), "{shown:?}: {told}");
    }
    assert_eq!(lab.json("ann", &["status", &slug])["lease"]["waits"], true);
    lab.fails(&workspace, &["log", "more"], 3, "waits to be merged");
    lab.fails(&workspace, &["takeover"], 3, "waits to be merged");
    let released = lab.run("ann", &["work", "release", &slug]);
    assert!(released.code == 0 && released.stderr.contains("close the pull request"), "{released:?}");
    assert!(!released.stderr.contains("WARN"), "{released:?}");
}

#[test]
fn what_is_written_down_may_begin_with_a_dash() {
    let lab = Lab::new();
    let slug = lab.planned("Dashes");
    let workspace = lab.worked_on(&slug, "a.txt", "a\n");
    lab.ok(&workspace, &["plan", "- next"]);
    lab.ok(&workspace, &["log", "--dash"]);
    lab.ok("ann", &["log", "--slug", &slug, "-x"]);
    let dir = workspace.join("_AGENTS/sessions/active").join(&slug);
    let read = |name: &str| std::fs::read_to_string(dir.join(name)).expect("read");
    assert!(read("active-plan.md").contains("- next") && read("worklog.md").contains(" --dash\n"));
    assert!(read("worklog.md").ends_with(" -x\n"));
}

#[test]
fn what_cannot_be_asked_for_anew_is_told_as_old() {
    let lab = Lab::new();
    let slug = lab.planned("Old");
    lab.worked_on(&slug, "a.txt", "a\n");
    lab.git("ann", &["remote", "set-url", "origin", "/nowhere/at/all.git"]);
    for verb in [&["show", &slug][..], &["drift", &slug], &["context", &slug], &["kb", "list"]] {
        let run = lab.run("ann", &[&["work"], verb].concat());
        assert_eq!(run.code, 0, "{run:?}");
        assert!(run.stderr.contains("what it said last"), "{verb:?}: {run:?}");
    }
}
