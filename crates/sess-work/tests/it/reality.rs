//! What became of a plan: drift, status, context, blame, adopted work, the knowledge base.

use std::{collections::BTreeMap, fs, path::Path};

use sess_work::{Change, ClaimOptions, Draft, Kind, Note, Phase, Repo, Settings, Slug, State, Who, Work};

use crate::lab::{Lab, now, planned, work, work_with};

#[track_caller]
fn commit(lab: &Lab, dir: &Path, file: &str, text: &str, message: &str) {
    let path = dir.join(file);
    fs::create_dir_all(path.parent().expect("a directory")).expect("made");
    fs::write(&path, text).expect("written");
    lab.git(dir, &["add", file]);
    lab.git(dir, &["commit", "--quiet", "-m", message]);
}

/// Makes a session with this plan, and takes it.
fn claimed(work: &Work, title: &str, plan: &str) -> (Slug, std::path::PathBuf) {
    let draft = Draft { title: title.to_owned(), ..Draft::default() };
    let slug = work.draft(None, &draft, Some(plan)).expect("drafted");
    work.ready(&slug).expect("ready");
    let claimed = work.claim(&slug, &ClaimOptions::default()).expect("claimed");
    (slug, claimed.workspace.expect("a workspace"))
}

const LOGIN: &str = "---\ntouches: [\"src/auth/**\"]\nlabels: [auth]\ngates: [test, lint]\nestimate: 2h\n---\n# Add login\n\n## Context\n\nSee `docs/login.md`.\n\n## Acceptance Criteria\n\n- [ ] A person can log in\n- [ ] Tests exist\n- [ ] It is fast\n";

#[test]
fn a_plan_is_compared_with_what_was_done() {
    let lab = Lab::new();
    let gates = BTreeMap::from([("test".to_owned(), "true".to_owned())]);
    let ann = work_with(&lab.clone_named("ann"), Settings { gates, ..Settings::default() });
    let bob = work(&lab.clone_named("bob"));
    let (slug, place) = claimed(&ann, "Add login", LOGIN);
    let (other, elsewhere) =
        claimed(&bob, "Add logout", "# Logout\n\n## Context\n\nc\n\n## Acceptance Criteria\n\n- [ ] a\n");

    commit(&lab, &place, "src/auth/form.rs", "form\n", "form");
    commit(&lab, &place, "docs/login.md", "docs\n", "docs");
    commit(&lab, &place, "src/other.rs", "other\n", "other");
    commit(&lab, &elsewhere, "src/other.rs", "another\n", "other");
    bob.heartbeat(&other).expect("shared");
    ann.note(&slug, Note::Plan, "[x] a person can log in!").expect("noted");
    ann.note(&slug, Note::Plan, "write more").expect("noted");
    ann.note(&slug, Note::Log, "[x] Tests exist").expect("noted");
    ann.sub(&slug, "Reset passwords", true).expect("a sub-session");
    let plan = LOGIN.replace("- [ ] It is fast", "- [ ] It is safe");
    ann.amend(&slug, Some(&plan), "fast it is anyway").expect("amended");
    let written = fs::read_to_string(place.join(format!("_AGENTS/sessions/active/{slug}/active-plan.md")))
        .expect("a plan");
    assert!(written.ends_with("- [x] a person can log in!\n- [ ] write more\n"), "{written}");

    fs::write(place.join("src/auth/form.rs"), "changed\n").expect("written");
    let check = |who: &Work, state: State| {
        let drift = who.drift(&slug).expect("a drift");
        assert_eq!(drift.state, state);
        let told: Vec<_> = drift.criteria.iter().map(|c| (c.text.as_str(), c.done, c.change)).collect();
        assert_eq!(
            told,
            [
                ("A person can log in", true, None),
                ("Tests exist", true, None),
                ("It is safe", false, Some(Change::Added)),
                ("It is fast", false, Some(Change::Removed)),
            ]
        );
        assert_eq!(drift.files.changed, ["docs/login.md", "src/auth/form.rs", "src/other.rs"]);
        assert_eq!(drift.files.outside, ["src/other.rs"]);
        let shared: Vec<_> = drift.files.shared.iter().map(|file| (&*file.path, &file.with[..])).collect();
        assert_eq!(shared, [("src/other.rs", &[other.clone()][..])]);
        assert_eq!(drift.subsessions.len(), 1, "{:?}", drift.subsessions);
        assert!(drift.subsessions[0].starts_with("Reset passwords (`"), "{:?}", drift.subsessions);
        assert_eq!(drift.amendments.len(), 1);
        assert_eq!(drift.amendments[0].reason, "fast it is anyway");
        assert_eq!(drift.time.estimate_minutes, Some(120));
    };
    check(&ann, State::Active);
    // Others see it from what was shared.
    check(&bob, State::Active);

    let status = ann.status(&slug).expect("a status");
    assert_eq!(status.uncommitted, ["src/auth/form.rs"]);
    let gates: Vec<_> = status.gates.iter().map(|gate| (gate.name.as_str(), gate.configured)).collect();
    assert_eq!(gates, [("test", true), ("lint", false)]);
    let lease = status.lease.expect("a lease");
    assert!(lease.mine && !lease.stale && lease.fence == 1);
    let branch = status.branch.expect("a branch");
    // Three commits, the notes, the sub-session and the amendment.
    assert_eq!((branch.ahead, branch.shared), (8, true));
    assert_eq!(ann.drift(&slug).expect("a drift").criteria_counts(), (3, 2));
    assert_eq!((status.drift.criteria, status.drift.criteria_done, status.drift.criteria_changed), (3, 2, 2));
    assert_eq!((status.drift.files_outside, status.drift.files_shared), (1, 1));
    assert!(!bob.status(&slug).expect("a status").lease.expect("a lease").mine);

    // What was landed on the way counts, and so does what is completed and archived.
    lab.git(&place, &["checkout", "--quiet", "--", "."]);
    let plan = plan.replace("gates: [test, lint]\n", "gates: [test]\n");
    ann.amend(&slug, Some(&plan), "nobody lints").expect("amended");
    ann.land(&slug).expect("landed");
    assert_eq!(ann.drift(&slug).expect("a drift").files.changed.len(), 3);
    ann.complete(&slug, None).expect("completed");
    let drift = bob.drift(&slug).expect("a drift");
    assert_eq!(drift.state, State::Completed);
    assert_eq!(drift.files.changed, ["docs/login.md", "src/auth/form.rs", "src/other.rs"]);
    assert_eq!(drift.files.outside, ["src/other.rs"]);
    assert_eq!(drift.amendments.len(), 2);
    assert_eq!(drift.criteria.iter().filter(|criterion| criterion.done).count(), 2);
    let json = serde_json::to_value(&drift).expect("it is data");
    for key in ["slug", "state", "criteria", "files", "subsessions", "amendments", "time"] {
        assert!(json.get(key).is_some(), "{json}");
    }
    assert_eq!(json["criteria"][2]["change"], "added");
    assert!(json["time"]["spentMinutes"].is_u64());

    let missing = bob.drift(&"2025-01-01-none".parse().expect("a slug")).expect_err("there is none");
    assert_eq!(missing.kind, Kind::WrongState);
}

#[test]
fn whoever_goes_on_goes_by_the_amended_plan() {
    let lab = Lab::new();
    let (ann, bob) = (work(&lab.clone_named("ann")), work(&lab.clone_named("bob")));
    let (slug, place) = claimed(&ann, "Add login", LOGIN);
    commit(&lab, &place, "src/auth/form.rs", "form\n", "form");
    let plan = LOGIN.replace("gates: [test, lint]\n", "");
    ann.amend(&slug, Some(&plan), "no gates").expect("amended");
    ann.note(&slug, Note::Log, "half of it").expect("noted");
    ann.release(&slug, Some("lunch")).expect("released");
    let shown = bob.show(&slug, &bob.see().expect("seen")).expect("shown");
    assert_eq!(shown.plan, plan);
    assert!(shown.worklog.is_some_and(|log| log.contains("half of it")));

    bob.claim(&slug, &ClaimOptions::default()).expect("claimed");
    assert_eq!(bob.drift(&slug).expect("a drift").amendments.len(), 1);
    bob.complete(&slug, None).expect("completed by the plan that was left");
    assert_eq!(lab.files("main", "src"), ["src/auth/form.rs"]);
    let history = ann.history(&slug, &ann.see().expect("seen")).expect("a history");
    assert_eq!(history.first().map(|past| past.phase), Some(Phase::Completed));
    assert!(history.len() >= 4, "{history:?}");
}

fn agent(dir: &Path, name: &str, session: &str) -> Work {
    let who = Who {
        agent: Some(name.to_owned()),
        session: Some(session.to_owned()),
        host: "host".to_owned(),
        pid: 1,
    };
    Work::new(Repo::find(dir).expect("a repository"), Settings::default(), who, now).expect("a caller")
}

#[test]
fn a_line_leads_to_its_session_and_what_was_learned_to_the_next() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    let ann = agent(&dir, "claude", "session-1");
    let plan = LOGIN.replace("gates: [test, lint]\n", "");
    let (slug, place) = claimed(&ann, "Add login", &plan);
    commit(&lab, &place, "src/auth/form.rs", "one\ntwo\n", &format!("[{slug}] feat: form"));
    // Before it lands, from the workspace.
    let here = agent(&place, "claude", "session-1");
    assert_eq!(here.blame("src/auth/form.rs", 2).expect("found").slug, Some(slug.clone()));
    fs::write(place.join("src/auth/form.rs"), "one\ntwo\nthree\n").expect("written");
    let fresh = here.blame("src/auth/form.rs", 3).expect("found");
    assert_eq!(
        (fresh.slug.as_ref(), fresh.commit, fresh.title.as_deref()),
        (Some(&slug), None, Some("Add login"))
    );
    lab.git(&place, &["checkout", "--quiet", "--", "."]);
    ann.note(&slug, Note::Learning, "forms need a token").expect("learned");
    let kb = ann.complete(&slug, None).expect("completed").kb.expect("something was learned");

    lab.git(&dir, &["pull", "--quiet"]);
    commit(&lab, &dir, "src/auth/form.rs", "one\ntwo\nthree\n", "by hand");
    let blame = ann.blame("src/auth/form.rs", 2).expect("found");
    assert_eq!(blame.text, "two");
    assert_eq!(blame.slug, Some(slug.clone()));
    assert_eq!(blame.state, Some(State::Completed));
    assert_eq!(blame.title.as_deref(), Some("Add login"));
    assert_eq!((blame.agents, blame.sessions), (vec!["claude".to_owned()], vec!["session-1".to_owned()]));
    let by_hand = ann.blame("src/auth/form.rs", 3).expect("found");
    assert_eq!((by_hand.slug, by_hand.summary.as_str()), (None, "by hand"));
    // Lines are counted as the file is now, whatever is committed.
    fs::write(dir.join("src/auth/form.rs"), "new\none\ntwo\nthree\n").expect("written");
    assert_eq!(ann.blame("src/auth/form.rs", 3).expect("found").slug, Some(slug.clone()));
    let fresh = ann.blame("src/auth/form.rs", 1).expect("found");
    assert_eq!((fresh.text.as_str(), fresh.commit, fresh.slug), ("new", None, None));
    let gone = ann.blame("src/form.rs", 1).expect_err("it is elsewhere");
    assert_eq!(gone.next_command(), "git ls-files --cached --others -- '*form.rs'");
    for (file, line, kind) in [
        ("src/auth/form.rs", 0, Kind::Usage),
        ("src/auth/form.rs", 99, Kind::WrongState),
        ("--version", 1, Kind::WrongState),
        ("../../etc/passwd", 1, Kind::WrongState),
    ] {
        assert_eq!(ann.blame(file, line).expect_err(file).kind, kind, "{file}:{line}");
    }

    // The knowledge base, and a session of the same labels.
    let path = format!("sessions/{slug}/learnings.md");
    let listed = ann.kb_list().expect("listed");
    assert_eq!(listed.iter().map(|entry| entry.path.as_str()).collect::<Vec<_>>(), [path.as_str()]);
    assert!(ann.kb_show(&path).expect("shown").contains("forms need a token"));
    assert!(ann.kb_show(&format!("_AGENTS/knowledge/{path}")).is_ok());
    for outside in ["", "..", "../sessions/sessions.lock", "/etc/passwd", "sessions/../../x", "a//b"] {
        assert_eq!(ann.kb_show(outside).expect_err(outside).kind, Kind::Usage, "{outside}");
    }
    assert_eq!(ann.kb_show("none.md").expect_err("none").kind, Kind::WrongState);
    // A session merges it already; given up, it has to be made anew.
    assert_eq!(ann.kb_merge("auth").expect_err("made").kind, Kind::WrongState);
    ann.claim(&kb, &ClaimOptions::default()).expect("claimed");
    ann.abandon(&kb, "no time").expect("abandoned");
    let merge = ann.kb_merge("auth").expect("made");
    assert!(merge.as_str().starts_with("kb-") && merge.as_str().ends_with("-merge-auth"), "{merge}");
    let shown = ann.show(&merge, &ann.see().expect("seen")).expect("shown");
    assert_eq!(shown.row.state, State::Planned);
    assert!(shown.plan.contains(&path), "{}", shown.plan);
    assert_eq!(ann.kb_merge("auth").expect_err("made").kind, Kind::WrongState);

    let plan = "---\nlabels: auth\n---\n# Sign out\n\n## Context\n\nc\n\n## Acceptance Criteria\n\n- [x] old\n- [ ] new\n";
    let (next, _) = claimed(&ann, "Sign out", plan);
    ann.note(&next, Note::Log, "began").expect("noted");
    let context = ann.context(&next, 100_000).expect("a context").0;
    for part in ["# Sign out", "## Open criteria\n\n- [ ] new\n", "began", "forms need a token"] {
        assert!(context.contains(part), "{part}: {context}");
    }
    assert!(!context.contains("labels:"), "{context}");
    for bytes_max in [0, 10, 100, 300, context.len() - 1] {
        assert!(ann.context(&next, bytes_max).expect("a context").0.len() <= bytes_max);
    }
    assert!(ann.context(&next, 300).expect("a context").0.contains("--bytes"));
    let unrelated = planned(&ann, "Larger fonts");
    assert!(!ann.context(&unrelated, 100_000).expect("a context").0.contains("forms need a token"));
}

#[test]
fn work_that_was_begun_becomes_a_session_where_it_is() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    let ann = work(&dir);
    let wild = lab.path().join("wild place");
    lab.git(&dir, &["worktree", "add", "--quiet", "-b", "feature/add-login", &wild.to_string_lossy()]);
    commit(&lab, &wild, "login.rs", "login\n", "feat: login");
    fs::write(wild.join("readme.md"), "changed\n").expect("written");
    fs::write(wild.join("staged.rs"), "staged\n").expect("written");
    fs::write(wild.join("new.rs"), "new\n").expect("written");
    lab.git(&wild, &["add", "staged.rs"]);
    let status = lab.git(&wild, &["status", "--porcelain"]);

    let claimed = work(&wild).adopt(None, None).expect("adopted");
    let slug = claimed.record.claim.slug.clone();
    assert!(slug.as_str().ends_with("-add-login"), "{slug}");
    assert_eq!(claimed.workspace.as_deref(), Some(wild.as_path()));
    assert_eq!(claimed.notices, Vec::<String>::new());
    assert_eq!(lab.git(&wild, &["status", "--porcelain"]), status);
    assert_eq!(lab.git(&wild, &["symbolic-ref", "--short", "HEAD"]), slug.branch());
    assert_eq!(lab.git(&dir, &["branch", "--list", "feature/*"]), "");
    assert_eq!(ann.workspace(&slug).as_deref(), Some(wild.as_path()));
    let active = lab.files("main", "_AGENTS/sessions/active");
    assert!(active.contains(&format!("_AGENTS/sessions/active/{slug}/SESSION.md")), "{active:?}");
    let changed = ann.drift(&slug).expect("a drift").files.changed;
    assert_eq!(changed, ["login.rs", "new.rs", "readme.md", "staged.rs"]);

    // Again, it goes on.
    assert!(work(&wild).adopt(None, None).expect("adopted").is_resumed);
    let refused = ann.complete(&slug, None).expect_err("not committed");
    assert_eq!(refused.kind, Kind::WouldLoseWork);
    assert!(refused.to_string().contains("wild place"), "{refused}");
    lab.git(&wild, &["commit", "--quiet", "-am", &format!("[{slug}] feat: more")]);
    let done = ann.complete(&slug, None).expect("completed");
    assert!(
        wild.join("new.rs").is_file() && done.notices.iter().any(|notice| notice.contains("stays")),
        "{done:?}"
    );
    assert_eq!(lab.git(&lab.hub(), &["show", "main:staged.rs"]), "staged");

    // A branch that is checked out nowhere, and a worktree without a branch.
    lab.git(&dir, &["branch", "fix_it", "origin/main"]);
    let claimed = ann.adopt(Some(Path::new("fix_it")), Some("Fix it all")).expect("adopted");
    assert!(claimed.record.claim.slug.as_str().ends_with("-fix-it-all"));
    assert!(claimed.workspace.is_some_and(|path| path.starts_with(dir.join(".sessions"))));
    let loose = lab.path().join("loose");
    lab.git(&dir, &["worktree", "add", "--quiet", "--detach", &loose.to_string_lossy(), "origin/main"]);
    let claimed = ann.adopt(Some(&loose), Some("Loose")).expect("adopted");
    assert_eq!(claimed.workspace, Some(loose));

    // The main checkout is never taken away.
    lab.git(&dir, &["checkout", "--quiet", "-b", "topic"]);
    let slug = ann.adopt(None, None).expect("adopted").record.claim.slug;
    fs::write(dir.join("topic.rs"), "topic\n").expect("written");
    // There is nothing that it could be a copy of.
    ann.commit_all(&slug, "feat: topic").expect("committed").expect("something new");
    ann.complete(&slug, None).expect("completed");
    assert!(dir.join("topic.rs").is_file() && dir.join(".git").is_dir());

    lab.git(&dir, &["checkout", "--quiet", "main"]);
    let stranger = Lab::new();
    let foreign = stranger.clone_named("foreign");
    for (path, kind) in [
        (None, Kind::WrongState),
        (Some(Path::new("nothing-like-it")), Kind::WrongState),
        (Some(Path::new("main~0")), Kind::WrongState),
        (Some(foreign.as_path()), Kind::WrongState),
    ] {
        assert_eq!(ann.adopt(path, None).expect_err("refused").kind, kind, "{path:?}");
    }
}

#[test]
fn a_line_that_is_older_than_a_shallow_clone_is_nobodys() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    let ann = work(&dir);
    assert_eq!(ann.blame("readme.md", 1).expect("the very first commit").summary, "first");
    let slug = planned(&ann, "Add logout");
    let place = ann.claim(&slug, &ClaimOptions::default()).expect("claimed").workspace.expect("a workspace");
    commit(&lab, &place, "form.rs", "one\n", &format!("[{slug}] feat: form"));
    ann.complete(&slug, None).expect("completed");
    let hub = format!("file://{}", lab.hub().display());
    lab.git(lab.path(), &["clone", "--quiet", "--depth=1", &hub, "shallow"]);
    let shallow = lab.path().join("shallow");
    lab.git(&shallow, &["config", "user.name", "Bob"]);
    lab.git(&shallow, &["config", "user.email", "bob@example.com"]);
    commit(&lab, &shallow, "form.rs", "one\ntwo\n", "by hand");
    let bob = work(&shallow);
    for setting in ["false", "true"] {
        lab.git(&shallow, &["config", "blame.showRoot", setting]);
        let ended = bob.blame("readme.md", 1).expect_err("another commit made it");
        assert_eq!(ended.kind, Kind::WrongState, "{ended}");
        assert!(ended.message().contains("the history of this clone ends at"), "{ended}");
        assert_eq!(ended.next_command(), "git fetch --unshallow");
        assert_eq!(bob.blame("form.rs", 2).expect("it is here").summary, "by hand");
    }
    lab.git(&shallow, &["fetch", "--quiet", "--unshallow"]);
    assert_eq!(work(&shallow).blame("readme.md", 1).expect("all is here").summary, "first");
    assert_eq!(work(&shallow).blame("form.rs", 1).expect("all is here").slug, Some(slug));
}

#[test]
fn history_tells_when_something_happened_and_not_when_it_was_renewed() {
    let lab = Lab::new();
    let ann = work(&lab.clone_named("ann"));
    let slug = planned(&ann, "Add logout");
    let first = ann.claim(&slug, &ClaimOptions::default()).expect("claimed").record.claim.claimed_at;
    let renew = || ann.heartbeat(&slug).expect("renewed").claim;
    renew();
    let plan = ann.show(&slug, &ann.see().expect("seen")).expect("shown").plan;
    let amended = ann.amend(&slug, Some(&format!("{plan}\nMore.\n")), "more").expect("amended").claim;
    let last = renew();
    assert!(last.renewed_at > amended.renewed_at && amended.renewed_at > first);
    let history = ann.history(&slug, &ann.see().expect("seen")).expect("told");
    let times: Vec<&str> = history.iter().map(|past| past.at.as_str()).collect();
    assert_eq!(times, [amended.renewed_at.to_string(), first.to_string()]);
}

#[test]
fn why_a_session_was_taken_over_is_not_why_it_ended() {
    let lab = Lab::new();
    let (ann, bob) = (work(&lab.clone_named("ann")), work(&lab.clone_named("bob")));
    let slug = planned(&ann, "Add logout");
    ann.claim(&slug, &ClaimOptions::default()).expect("claimed");
    bob.takeover(&slug, true, Some("Ann is away"), &ClaimOptions::default()).expect("taken");
    bob.complete(&slug, None).expect("completed");
    let history = bob.history(&slug, &bob.see().expect("seen")).expect("told");
    let told: Vec<_> = history.iter().map(|past| (past.phase, past.reason.as_deref())).collect();
    let expected = [(Phase::Completed, None), (Phase::Active, Some("Ann is away")), (Phase::Active, None)];
    assert_eq!(told, expected);
}

#[test]
fn what_an_abandoned_attempt_learned_is_known() {
    for has_remote in [true, false] {
        let lab = Lab::new();
        let dir = lab.clone_named("ann");
        if !has_remote {
            lab.git(&dir, &["remote", "remove", "origin"]);
        }
        let ann = work(&dir);
        let (slug, _) = claimed(&ann, "Learn", &LOGIN.replace("gates: [test, lint]\n", ""));
        ann.note(&slug, Note::Learning, "the port is 8081").expect("noted");
        ann.abandon(&slug, "it leads nowhere").expect("abandoned");
        let path = format!("sessions/{slug}/learnings.md");
        let listed =
            || ann.kb_list().expect("listed").into_iter().map(|entry| entry.path).collect::<Vec<_>>();
        assert_eq!(listed(), [path.as_str()]);

        assert_eq!(ann.retry(&slug).expect("planned anew"), 2);
        let place = ann.claim(&slug, &ClaimOptions::default()).expect("claimed").workspace.expect("a place");
        let learned = || fs::read_to_string(place.join("_AGENTS/knowledge").join(&path)).expect("read");
        assert!(learned().contains("the port is 8081"), "{}", learned());
        let (context, _) = ann.context(&slug, 100_000).expect("a context");
        assert!(context.contains("the port is 8081"), "{context}");
        ann.note(&slug, Note::Learning, "the host is ::1").expect("noted");
        assert!(learned().contains("8081") && learned().contains("::1"), "{}", learned());
        ann.abandon(&slug, "nor does this").expect("abandoned");
        assert_eq!(listed(), [path.as_str()]);
        assert!(ann.kb_show(&path).expect("shown").contains("::1"));
        let merge = ann.kb_merge("ports").expect("made");
        let shown = ann.show(&merge, &ann.see().expect("seen")).expect("shown");
        assert!(shown.plan.contains(&path), "{}", shown.plan);
    }
}

#[test]
fn what_merges_knowledge_is_told_with_the_knowledge_that_it_changes() {
    let lab = Lab::new();
    let ann = work(&lab.clone_named("ann"));
    let (slug, workspace) = claimed(&ann, "Learn", &LOGIN.replace("gates: [test, lint]\n", ""));
    ann.note(&slug, Note::Learning, "forms need a token").expect("noted");
    assert_eq!(ann.drift(&slug).expect("compared").files.changed, Vec::<String>::new());
    commit(&lab, &workspace, "src/auth/form.rs", "one\n", &format!("[{slug}] feat: a form"));
    let kb = ann.complete(&slug, None).expect("completed").kb.expect("it learned something");
    let claimed = ann.claim(&kb, &ClaimOptions::default()).expect("claimed");
    let workspace = claimed.workspace.expect("a workspace");
    commit(&lab, &workspace, "_AGENTS/knowledge/forms.md", "# Forms\n", &format!("[{kb}] docs: forms"));
    fs::write(workspace.join("_AGENTS/knowledge/more.md"), "# More\n").expect("written");
    let (status, drift) = ann.status_and_drift(&kb).expect("compared");
    assert_eq!(drift.files.changed, ["_AGENTS/knowledge/forms.md", "_AGENTS/knowledge/more.md"]);
    assert_eq!((drift.files.outside, status.drift.files_changed), (Vec::new(), 2));
}
