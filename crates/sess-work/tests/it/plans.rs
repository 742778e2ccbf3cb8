//! What plans say, whatever the repository's own templates have a place for.

use std::fs;

use sess_work::{Brief, ClaimOptions, Draft, InitOptions, Kind, Note, State, Work, WorkKind};

use crate::lab::{Lab, planned, work};

/// Puts templates on the base branch.
fn with_templates(lab: &Lab, templates: &[(&str, &str)]) {
    let hand = lab.clone_named("hand");
    let dir = hand.join("_AGENTS/sessions/_templates");
    fs::create_dir_all(&dir).expect("made");
    for (name, text) in templates {
        fs::write(dir.join(name), text).expect("written");
    }
    lab.git(&hand, &["add", "."]);
    lab.git(&hand, &["commit", "--quiet", "-m", "templates"]);
    lab.git(&hand, &["push", "--quiet", "origin", "HEAD:main"]);
}

fn plan_of(work: &Work, slug: &sess_work::Slug) -> Brief {
    let shown = work.show(slug, &work.see().expect("seen")).expect("shown");
    Brief::parse(&shown.plan).expect("a plan")
}

#[test]
fn templates_with_few_variables_lose_nothing_that_was_asked_for() {
    let lab = Lab::new();
    with_templates(
        &lab,
        &[
            (
                "SESSION.md.j2",
                "# {{ SESSION_SLUG }}\n\n## Context\n\n{{ CONTEXT }}\n\n## Notes\n\n{{ NOTES }}\n",
            ),
            ("kb-merge-SESSION.md.j2", "# Merge {{ TOPIC }}\n\n## Context\n\nFrom {{ SOURCE_SESSION }}.\n"),
        ],
    );
    let own = work(&lab.clone_named("ann"));
    let first = planned(&own, "First & <foremost>");
    let draft = Draft {
        title: "Say \"hello\"".to_owned(),
        context: Some("Because.".to_owned()),
        criteria: vec!["It works".to_owned()],
        labels: vec!["web".to_owned()],
        depends: vec![first.clone()],
        parent: None,
    };
    let slug = own.draft(None, &draft, None).expect("drafted");
    own.ready(&slug).expect("it has all that it needs");
    let brief = plan_of(&own, &slug);
    assert_eq!(
        (brief.title.as_str(), &brief.labels, &brief.depends),
        ("Say \"hello\"", &draft.labels, &draft.depends)
    );
    assert_eq!(brief.criteria.len(), 1);

    own.claim(&first, &ClaimOptions::default()).expect("claimed");
    let (sub, _) = own.sub(&first, "Another form", true).expect("noted");
    assert_eq!(plan_of(&own, &sub.expect("drafted")).parent.as_ref(), Some(&first));
    own.note(&first, Note::Learning, "templates are short").expect("learned");
    let kb = own.complete(&first, None).expect("completed").kb.expect("there is something to merge");
    let brief = plan_of(&own, &kb);
    assert_eq!((brief.kind, brief.parent.as_ref()), (WorkKind::KbMerge, Some(&first)));
    own.claim(&kb, &ClaimOptions::default()).expect("it has all that it needs");
}

#[test]
fn a_template_prints_the_criteria_as_a_list_or_goes_through_them() {
    let lab = Lab::new();
    let draft = |criteria: &[&str]| Draft {
        title: "Sell".to_owned(),
        context: Some("Because.".to_owned()),
        criteria: criteria.iter().map(|&text| text.to_owned()).collect(),
        ..Draft::default()
    };
    let own = work(&lab.clone_named("ann"));
    let text_of = |criteria: &[&str]| {
        let slug = own.draft(None, &draft(criteria), None).expect("drafted");
        own.show(&slug, &own.see().expect("seen")).expect("shown").plan
    };
    let built_in = text_of(&["It works", "It is fast"]);
    assert!(
        built_in.contains("## Acceptance Criteria\n\n- [ ] It works\n- [ ] It is fast\n\n"),
        "{built_in}"
    );
    let empty = text_of(&[]);
    assert!(empty.contains("## Acceptance Criteria\n\n_To be written._\n\n"), "{empty}");

    with_templates(
        &lab,
        &[(
            "SESSION.md.j2",
            "# {{ SESSION_SLUG }}\n\n## Context\n\n{{ CONTEXT }}\n\n## Acceptance Criteria\n\n\
             {% for criterion in ACCEPTANCE_CRITERIA %}* [ ] {{ loop.index }}. {{ criterion }}\n{% else %}Ask.\n{% endfor %}\n\
             {{ ACCEPTANCE_CRITERIA | length }}, first {{ ACCEPTANCE_CRITERIA[0] }}: {{ ACCEPTANCE_CRITERIA }}\n",
        )],
    );
    let looped = text_of(&["It works", "It is fast"]);
    let expected =
        "* [ ] 1. It works\n* [ ] 2. It is fast\n\n2, first It works: - [ ] It works\n- [ ] It is fast\n";
    assert!(looped.ends_with(expected), "{looped}");
    assert!(text_of(&[]).contains("\n\nAsk.\n\n0, first : _To be written._"));
}

#[test]
fn what_is_written_in_the_front_matter_can_be_read_by_people() {
    let lab = Lab::new();
    let own = work(&lab.clone_named("ann"));
    let slug = planned(&own, "Fish & <chips> aren't \"plain\"");
    let text = own.show(&slug, &own.see().expect("seen")).expect("shown").plan;
    assert!(text.contains("title: \"Fish & <chips> aren't \\\"plain\\\"\"\n"), "{text}");
}

#[test]
fn a_template_that_makes_no_plan_is_named() {
    let lab = Lab::new();
    with_templates(&lab, &[("SESSION.md.j2", "---\nlabels: [{{ SESSION_SLUG }}\n---\n# X\n")]);
    let own = work(&lab.clone_named("ann"));
    let draft = Draft { title: "After".to_owned(), ..Draft::default() };
    let error = own.draft(None, &draft, None).expect_err("nobody can read that");
    assert_eq!(error.kind, Kind::Failed);
    assert!(error.message().starts_with("the template _templates/SESSION.md.j2 cannot be used"), "{error}");
    assert_eq!(error.next_command(), "git log -1 -- _AGENTS/sessions/_templates/SESSION.md.j2");
    assert!(
        own.list(&own.see().expect("seen")).expect("listed").iter().all(|row| row.state != State::Drafting)
    );
}

#[test]
fn what_can_be_claimed_stays_as_ready_let_it_through() {
    let lab = Lab::new();
    let own = work(&lab.clone_named("ann"));
    let slug = planned(&own, "Planned");
    let (before, plan) = own.editable(&slug).expect("a plan");
    for (text, misses) in [
        ("", "no text under ## Context, and no checkbox"),
        ("# X\n\n## Context\n\nc\n", "no checkbox"),
        ("# X\n\n## Acceptance Criteria\n\n- [ ] a\n", "no text under ## Context"),
    ] {
        let refused = own.edit(&slug, before.as_ref(), text).expect_err("it is not ready");
        assert_eq!(refused.kind, Kind::WrongState, "{refused}");
        assert!(refused.message().contains(misses), "{refused}");
        assert_eq!(refused.next_command(), format!("sess work unready {slug}"));
    }
    assert_eq!(own.editable(&slug).expect("a plan").1, plan);
    own.unready(&slug).expect("a draft");
    own.edit(&slug, None, "").expect("a draft may be anything");
}

#[test]
fn a_plan_is_changed_where_a_claim_that_ended_leads_it() {
    let lab = Lab::new();
    let (ann, bob) = (work(&lab.clone_named("ann")), work(&lab.clone_named("bob")));
    let (edited, undone) = (planned(&ann, "Edited"), planned(&ann, "Undone"));
    for slug in [&edited, &undone] {
        ann.claim(slug, &ClaimOptions::default()).expect("claimed");
        let seen = ann.see().expect("seen").record(slug).expect("a claim").clone();
        // Given back, and nobody could show it yet.
        let hook = lab.hub().join("hooks/pre-receive");
        fs::write(
            &hook,
            "#!/bin/sh\nwhile read old new ref; do [ $ref != refs/heads/main ] || exit 1; done\n",
        )
        .expect("written");
        fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("set");
        ann.release(slug, None).expect("given back");
        fs::remove_file(&hook).expect("removed");
        assert_eq!(bob.see().expect("seen").tree.state(slug), Some(State::Active), "{seen:?}");
        match slug == &edited {
            true => bob.edit(slug, None, &bob.editable(slug).expect("a plan").1.replace("Because.", "So.")),
            false => bob.unready(slug),
        }
        .expect("changed");
    }
    let seen = bob.see().expect("seen");
    assert_eq!(seen.tree.odd, Vec::<String>::new());
    assert_eq!(
        (seen.tree.state(&edited), seen.tree.state(&undone)),
        (Some(State::Planned), Some(State::Drafting))
    );
    assert_eq!(plan_of(&bob, &edited).context.trim(), "So.");
}

#[test]
fn everybody_is_shown_the_plan_as_it_was_amended_and_why() {
    let lab = Lab::new();
    let (ann, bob) = (work(&lab.clone_named("ann")), work(&lab.clone_named("bob")));
    let slug = planned(&ann, "Amended");
    ann.claim(&slug, &ClaimOptions::default()).expect("claimed");
    let shown = |work: &Work| work.show(&slug, &work.see().expect("seen")).expect("shown");
    let text = shown(&ann).plan;
    ann.amend(&slug, Some(&format!("{text}\n- [ ] More\n")), "more is needed").expect("amended");
    for who in [&ann, &bob] {
        let shown = shown(who);
        assert!(shown.plan.ends_with("- [ ] More\n"), "{}", shown.plan);
        let reasons: Vec<Option<&str>> = shown.history.iter().map(|past| past.reason.as_deref()).collect();
        assert_eq!(reasons, [Some("the plan was amended: more is needed"), None]);
    }
}

#[test]
fn a_plan_that_waits_for_itself_is_refused() {
    let lab = Lab::new();
    let ann = work(&lab.clone_named("ann"));
    let slug: sess_work::Slug = "2025-10-14-x".parse().expect("a slug");
    let text =
        "---\ndepends: [2025-10-14-x]\n---\n# X\n\n## Context\n\nc\n\n## Acceptance Criteria\n\n- [ ] a\n";
    let refused = ann.draft(Some(&slug), &Draft::default(), Some(text)).expect_err("it would never be over");
    assert_eq!(refused.kind, Kind::Usage, "{refused}");
    ann.draft(Some(&slug), &Draft::default(), Some(&text.replace("-x]", "-y]"))).expect("drafted");
    let refused = ann.edit(&slug, None, text).expect_err("it would never be over");
    assert_eq!(refused.kind, Kind::Usage, "{refused}");
}

#[test]
fn what_is_named_to_merge_knowledge_stays_of_that_kind() {
    let lab = Lab::new();
    let hand = lab.clone_named("hand");
    let ann = work(&lab.clone_named("ann"));
    let slug: sess_work::Slug = "kb-2025-10-14-merge-x".parse().expect("a slug");
    let text = "---\nkind: kb-merge\n---\n# X\n\n## Context\n\nc\n\n## Acceptance Criteria\n\n- [ ] a\n";
    let standard = text.replace("kb-merge", "standard");
    let check = |refused: sess_work::Error| {
        assert_eq!(refused.kind, Kind::Policy, "{refused}");
        assert!(refused.message().ends_with("make it `kind: kb-merge`"), "{refused}");
        assert_eq!(refused.next_command(), format!("sess work edit {slug}"));
    };
    ann.draft(Some(&slug), &Draft::default(), Some(text)).expect("drafted");
    check(ann.edit(&slug, None, &standard).expect_err("a draft"));
    // Somebody may push it by hand.
    let push = |state: &str, text: &str| {
        lab.git(&hand, &["pull", "--quiet", "origin", "main"]);
        fs::write(hand.join(format!("_AGENTS/sessions/{state}/{slug}/SESSION.md")), text).expect("written");
        lab.git(&hand, &["commit", "--quiet", "--all", "-m", "by hand"]);
        lab.git(&hand, &["push", "--quiet", "origin", "HEAD:main"]);
    };
    push("drafting", &standard);
    check(ann.ready(&slug).expect_err("not to be claimed"));
    push("drafting", text);
    ann.ready(&slug).expect("ready");
    check(ann.edit(&slug, None, &standard).expect_err("a plan"));
    push("planned", &standard);
    check(ann.claim(&slug, &ClaimOptions::default()).expect_err("nobody works by it"));
    ann.edit(&slug, None, text).expect("there is a way on");
    ann.claim(&slug, &ClaimOptions::default()).expect("claimed");
    let refused = ann.amend(&slug, Some(&standard), "why not").expect_err("nobody works by it");
    assert_eq!(refused.kind, Kind::Policy, "{refused}");
}

#[test]
fn whoever_claims_is_told_once_what_the_clone_lacks() {
    let lab = Lab::new();
    with_templates(&lab, &[("session-env.template.j2", "{{ broken")]);
    let ann = work(&lab.clone_named("ann"));
    ann.init(&InitOptions { hooks: true, scripts: false }).expect("set up");
    let (one, two, three) = (planned(&ann, "One"), planned(&ann, "Two"), planned(&ann, "Three"));
    let bob = work(&lab.clone_named("bob"));
    let told = |work: &Work, slug| work.claim(slug, &ClaimOptions::default()).expect("claimed").notices;
    let is_told = |notices: &[String], words| notices.iter().any(|notice| notice.contains(words));
    let first = told(&bob, &one);
    assert!(is_told(&first, "sess work init") && is_told(&first, "session-env"), "{first:?}");
    let second = told(&bob, &two);
    assert!(!is_told(&second, "sess work init") && is_told(&second, "session-env"), "{second:?}");
    assert!(!is_told(&told(&ann, &three), "sess work init"));
}

#[test]
fn a_branch_that_was_deleted_by_hand_is_told() {
    let lab = Lab::new();
    let dir = lab.clone_named("ann");
    let ann = work(&dir);
    let slug = planned(&ann, "Deleted");
    let options = ClaimOptions { workspace: sess_work::Workspace::None, ..ClaimOptions::default() };
    assert_eq!(ann.claim(&slug, &options).expect("claimed").notices, Vec::<String>::new());
    lab.git(&dir, &["branch", "--quiet", "-D", &slug.branch()]);
    let found = ann.doctor(false).expect("looked at").findings;
    assert!(found.iter().any(|finding| finding.contains("is gone")), "{found:?}");
    let told = ann.claim(&slug, &options).expect("it is Ann's").notices;
    assert!(told.iter().any(|notice| notice.contains("was gone, and begins anew")), "{told:?}");
    assert_eq!(ann.doctor(false).expect("looked at").findings, Vec::<String>::new());
}

#[test]
fn a_template_that_never_ends_is_named() {
    let row = "{% for i in range(90000) %}";
    let end = "{% endfor %}";
    for (template, words) in [
        (format!("{row}{row}{row}{end}{end}{end}"), "steps"),
        (format!("{row}{{{{ '{}' }}}}{end}", "x".repeat(1_000)), "more than"),
    ] {
        let lab = Lab::new();
        with_templates(&lab, &[("SESSION.md.j2", &template)]);
        let own = work(&lab.clone_named("ann"));
        let draft = Draft { title: "After".to_owned(), ..Draft::default() };
        let error = own.draft(None, &draft, None).expect_err("it does not end");
        assert_eq!(error.kind, Kind::Failed);
        assert!(
            error.message().starts_with("the template _templates/SESSION.md.j2 cannot be used")
                && error.message().contains(words),
            "{error}"
        );
        assert_eq!(error.next_command(), "git log -1 -- _AGENTS/sessions/_templates/SESSION.md.j2");
    }
}

#[test]
fn a_context_that_would_break_the_plan_is_refused() {
    let lab = Lab::new();
    let own = work(&lab.clone_named("ann"));
    let draft = |context: &str| {
        let draft = Draft {
            title: "Sell".to_owned(),
            context: Some(context.to_owned()),
            criteria: vec!["It works".to_owned()],
            ..Draft::default()
        };
        own.draft(None, &draft, None)
    };
    for (context, words) in [
        ("  ## Why\nBecause.", "the heading \"## Why\""),
        ("Because.\r\n# Why\r\n", "the heading \"# Why\""),
        ("Because.\n\n## Acceptance Criteria\n\n- [ ] Another", "the heading \"## Acceptance Criteria\""),
        ("Because:\n```\ncode\n", "a code block that does not end"),
        ("Because. <!-- of this", "a comment that does not end"),
    ] {
        let refused = draft(context).expect_err(context);
        assert_eq!(refused.kind, Kind::Usage, "{refused}");
        assert!(refused.message().contains(words), "{refused}");
        assert_eq!(refused.next_command(), "sess work new \"<title>\" --from <file>");
    }
    for context in [
        "### Why\nBecause.",
        "```\n# a comment of a shell\n## another\n```\nso.",
        "#1 <!-- the first --> is it",
    ] {
        let slug = draft(context).expect(context);
        let plan = own.show(&slug, &own.see().expect("seen")).expect("shown").plan;
        assert_eq!(plan.matches(context).count(), 1, "{plan}");
        assert_eq!(plan_of(&own, &slug).criteria.len(), 1, "{plan}");
        own.ready(&slug).expect("it has all that it needs");
    }
}

#[test]
fn a_plan_that_was_pushed_by_hand_is_claimed_when_it_is_ready() {
    let lab = Lab::new();
    let hand = lab.clone_named("hand");
    let dir = hand.join("_AGENTS/sessions/planned/2025-10-14-x");
    fs::create_dir_all(&dir).expect("made");
    fs::write(dir.join("SESSION.md"), "# X\n\n## Context\n\nc\n").expect("written");
    lab.git(&hand, &["add", "."]);
    lab.git(&hand, &["commit", "--quiet", "-m", "a plan"]);
    lab.git(&hand, &["push", "--quiet", "origin", "HEAD:main"]);
    let own = work(&lab.clone_named("ann"));
    let slug: sess_work::Slug = "2025-10-14-x".parse().expect("a slug");
    let row = || own.list(&own.see().expect("seen")).expect("listed").remove(0);
    assert!(!row().ready, "{:?}", row());
    assert!(row().note.is_some_and(|note| note.contains("no checkbox")), "{:?}", row());
    let refused = own.claim(&slug, &ClaimOptions::default()).expect_err("it is not ready");
    assert_eq!(refused.kind, Kind::WrongState, "{refused}");
    assert_eq!(refused.next_command(), "sess work edit 2025-10-14-x");
    assert!(own.claim_next(None, &ClaimOptions::default()).expect("looked").is_none());
    own.edit(&slug, None, "# X\n\n## Context\n\nc\n\n## Acceptance Criteria\n\n- [ ] a\n").expect("edited");
    assert!(row().ready && row().note.is_none(), "{:?}", row());
    own.claim(&slug, &ClaimOptions::default()).expect("claimed");
}

/// A whole plan that says to be of the kind that may change the knowledge base.
const MERGING: &str =
    "---\nkind: kb-merge\n---\n# X\n\n## Context\n\nc\n\n## Acceptance Criteria\n\n- [ ] a\n";

#[test]
fn only_what_is_named_and_said_to_merge_knowledge_may_change_it() {
    let lab = Lab::new();
    let own = work(&lab.clone_named("ann"));
    let slug = planned(&own, "Plain");
    let check = |refused: sess_work::Error, next: &str| {
        assert_eq!(refused.kind, Kind::Policy, "{refused}");
        assert!(refused.message().contains("is of kind kb-merge"), "{refused}");
        assert_eq!(refused.next_command(), next);
    };
    let other: sess_work::Slug = "2025-10-14-x".parse().expect("a slug");
    check(
        own.draft(Some(&other), &Draft::default(), Some(MERGING)).expect_err("it is not named so"),
        "sess work new --slug 2025-10-14-x --from <file>",
    );
    check(own.edit(&slug, None, MERGING).expect_err("it is not named so"), &format!("sess work edit {slug}"));
    own.claim(&slug, &ClaimOptions::default()).expect("claimed");
    check(
        own.amend(&slug, Some(MERGING), "to write everywhere").expect_err("it is not named so"),
        &format!("sess work amend {slug} --file <file> --reason …"),
    );

    // Pushed by hand, it is a draft that cannot be made ready and a plan that cannot be claimed.
    let hand = lab.clone_named("hand");
    for state in ["drafting", "planned"] {
        let dir = hand.join(format!("_AGENTS/sessions/{state}/2025-10-14-{state}"));
        fs::create_dir_all(&dir).expect("made");
        fs::write(dir.join("SESSION.md"), MERGING).expect("written");
    }
    lab.git(&hand, &["add", "."]);
    lab.git(&hand, &["commit", "--quiet", "-m", "plans"]);
    lab.git(&hand, &["push", "--quiet", "origin", "HEAD:main"]);
    let slug = |name: &str| -> sess_work::Slug { name.parse().expect("a slug") };
    let draft = slug("2025-10-14-drafting");
    check(own.ready(&draft).expect_err("it is not named so"), "sess work edit 2025-10-14-drafting");
    let ready = slug("2025-10-14-planned");
    check(
        own.claim(&ready, &ClaimOptions::default()).expect_err("it is not named so"),
        "sess work edit 2025-10-14-planned",
    );
    own.draft(Some(&slug("kb-2025-10-14-merge-x")), &Draft::default(), Some(MERGING)).expect("it is both");
}

#[test]
fn what_is_named_to_merge_knowledge_is_of_that_kind_from_the_beginning() {
    let lab = Lab::new();
    let own = work(&lab.clone_named("ann"));
    let slug: sess_work::Slug = "kb-2025-10-14-merge-x".parse().expect("a slug");
    let plain = MERGING.replace("kb-merge", "standard");
    let refused = own.draft(Some(&slug), &Draft::default(), Some(&plain)).expect_err("it is not of the kind");
    assert_eq!(refused.kind, Kind::Policy, "{refused}");
    assert!(refused.message().contains("`kind: kb-merge`"), "{refused}");
    let draft = Draft {
        title: "Merge x".to_owned(),
        context: Some("Because.".to_owned()),
        criteria: vec!["It is merged".to_owned()],
        ..Draft::default()
    };
    own.draft(Some(&slug), &draft, None).expect("drafted");
    own.ready(&slug).expect("ready");
    let row = own.list(&own.see().expect("seen")).expect("listed").remove(0);
    assert_eq!((row.kind, row.title.as_str()), (sess_work::WorkKind::KbMerge, "Merge x"));
    let place = own.claim(&slug, &ClaimOptions::default()).expect("claimed").workspace.expect("a place");
    fs::create_dir_all(place.join("_AGENTS/knowledge")).expect("made");
    fs::write(place.join("_AGENTS/knowledge/x.md"), "# X\n").expect("written");
    lab.git(&place, &["add", "_AGENTS/knowledge"]);
    work(&place).hook("pre-commit", &[]).expect("that is what it is for");
}

#[test]
fn a_template_with_the_kind_alone_opens_no_knowledge() {
    let lab = Lab::new();
    with_templates(&lab, &[("SESSION.md.j2", MERGING)]);
    let dir = lab.clone_named("ann");
    lab.git(&dir, &["switch", "--quiet", "-c", "begun"]);
    let own = work(&dir);
    // Adopted work is claimed with whatever plan the template makes.
    let claimed = own.adopt(None, Some("Begun")).expect("adopted");
    let slug = claimed.record.claim.slug.clone();
    fs::create_dir_all(dir.join("_AGENTS/knowledge")).expect("made");
    fs::write(dir.join("_AGENTS/knowledge/z.md"), "z\n").expect("written");
    lab.git(&dir, &["add", "_AGENTS/knowledge"]);
    assert_eq!(work(&dir).hook("pre-commit", &[]).expect_err("not named so").kind, Kind::Policy);
    lab.git(&dir, &["commit", "--quiet", "--no-verify", "-m", &format!("[{slug}] feat: z")]);
    let refused = own.complete(&slug, None).expect_err("not named so");
    assert_eq!(refused.kind, Kind::Policy, "{refused}");
    assert!(refused.message().contains("_AGENTS/knowledge/z.md"), "{refused}");
}

#[test]
fn plans_that_wait_for_each_other_are_told() {
    let lab = Lab::new();
    let own = work(&lab.clone_named("ann"));
    let [one, two, three] = ["one", "two", "three"].map(|title| planned(&own, title));
    let wait = |slug: &sess_work::Slug, depends: &str| {
        let text = format!(
            "---\ndepends: [{depends}]\n---\n# X\n\n## Context\n\nc\n\n## Acceptance Criteria\n\n- [ ] a\n"
        );
        own.edit(slug, None, &text).expect("edited");
    };
    wait(&one, two.as_str());
    wait(&three, one.as_str());
    let told = || {
        let rows = own.list(&own.see().expect("seen")).expect("listed");
        let note = |slug: &sess_work::Slug| {
            rows.iter().find(|row| row.slug == *slug).and_then(|row| row.note.clone())
        };
        ([&one, &two, &three].map(note), own.doctor(false).expect("checked").findings)
    };
    assert_eq!(told(), ([None, None, None], Vec::new()), "none waits for itself");
    wait(&two, one.as_str());
    let ([note_one, note_two, note_three], findings) = told();
    let around = |slug: &sess_work::Slug, other: &sess_work::Slug| {
        format!("waits for itself ({slug}, {other}, {slug})")
    };
    assert!(note_one.is_some_and(|note| note.contains(&around(&one, &two))));
    assert!(note_two.is_some_and(|note| note.contains(&around(&two, &one))));
    assert_eq!(note_three, None, "it waits for others, who have to be told");
    assert_eq!(findings.len(), 1, "{findings:?}");
    let edit = format!("run `sess work edit {one}`");
    assert!(findings[0].contains(&around(&one, &two)) && findings[0].ends_with(&edit), "{findings:?}");
}
