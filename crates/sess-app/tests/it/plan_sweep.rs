//! The sweep of old plan files.

use std::{
    fs::{self, File},
    os::unix::fs::symlink,
    path::Path,
    time::{Duration, UNIX_EPOCH},
};

use serde_json::json;
use sess_app::App;

use crate::world::{World, answer, now};

/// Gives a file the age of so many days.
fn age(path: &Path, days: f64) {
    let ms = now().as_millis() - (days * 86_400_000.0) as i64;
    let file = File::open(path).expect("there");
    file.set_modified(UNIX_EPOCH + Duration::from_millis(ms.unsigned_abs())).expect("ours");
}

impl World {
    /// Makes a plan that is so many days old, of a session last active so many days ago.
    async fn old_plan(&self, session: &str, file_days: f64, session_days: i64) {
        self.write(session, &format!("plan of {session}")).await;
        age(&self.plan_path(session), file_days);
        let updated = now().as_millis() - session_days * 86_400_000;
        self.sql(&format!("UPDATE sessions SET updated_at = {updated} WHERE id = '{session}'"));
    }

    /// Lets a new process use its plan tools for the first time.
    async fn first_use(&self) -> App {
        let app = self.other_process();
        answer(&app, &self.agent("fresh"), "read_session_plan", json!({})).await;
        app.finish().await;
        app
    }
}

#[tokio::test]
async fn plans_older_than_thirty_days_of_sessions_without_activity_leave_the_directory() {
    let world = World::new();
    world.old_plan("old", 30.1, 31).await;
    world.old_plan("young-file", 29.9, 31).await;
    world.old_plan("live-session", 400.0, 29).await;
    world.old_plan("very-old", 4_000.0, 4_000).await;
    world.first_use().await;
    assert_eq!(world.plan_names(), ["live-session.md", "young-file.md"]);
    assert_eq!(world.read("live-session").await, "plan of live-session");
}

#[tokio::test]
async fn a_swept_plan_counts_as_not_written_and_its_revisions_stay() {
    let world = World::new();
    world.write("old", "first").await;
    world.old_plan("old", 31.0, 31).await;
    let told = world.plan_events().await;
    world.first_use().await;
    let none = "error: no plan written yet for this session; call write_session_plan";
    assert_eq!(world.read("old").await, format!("{none} first"));
    assert_eq!(world.exit("old").await, format!("{none} before exit_plan_mode"));
    assert_eq!(world.log("old").await, ["1 main 5", "2 main 11"]);
    let session = world.stored("old").await;
    assert_eq!(world.app.plan_revision(&session, 2).await.expect("kept").content, "plan of old");
    assert_eq!(world.plan_events().await, told, "a sweep is no write");
    // An empty file at its place does not bring it back, nor make it an error.
    fs::write(world.plan_path("old"), "").expect("written");
    assert_eq!(world.read("old").await, format!("{none} first"));
    assert!(world.write("old", "third").await.starts_with("Plan saved"));
    assert_eq!(world.read("old").await, "third");
    assert_eq!(world.log("old").await, ["1 main 5", "2 main 11", "3 main 5"]);
}

#[tokio::test]
async fn a_plan_of_a_session_that_nobody_knows_is_kept_as_a_revision() {
    let world = World::new();
    fs::create_dir(world.plans()).expect("made");
    fs::write(world.plan_path("stranded"), "long gone").expect("written");
    age(&world.plan_path("stranded"), 40.0);
    world.first_use().await;
    assert_eq!(world.plan_names(), [""; 0]);
    assert_eq!(world.log("stranded").await, ["1 external 9"]);
    let session = world.stored("stranded").await;
    assert_eq!(world.app.plan_revision(&session, 1).await.expect("kept").content, "long gone");
    assert_eq!(world.call("me", "list_sessions", json!({})).await, "[]", "nor is it in anybody's way");
}

#[tokio::test]
async fn an_edit_by_hand_is_kept_before_its_file_is_swept() {
    let world = World::new();
    world.write("s", "ours").await;
    fs::write(world.plan_path("s"), "edited by hand").expect("edited");
    age(&world.plan_path("s"), 31.0);
    world.sql("UPDATE sessions SET updated_at = 0");
    world.first_use().await;
    assert_eq!(world.plan_names(), [""; 0]);
    assert_eq!(world.log("s").await, ["1 main 4", "2 external 14"]);
}

#[tokio::test]
async fn only_markdown_files_of_the_directory_itself_and_temporaries_of_ours_are_considered() {
    let world = World::new();
    world.write("s", "x").await;
    let dir = world.plans();
    fs::create_dir_all(dir.join("sub")).expect("made");
    fs::create_dir_all(dir.join("dir.md")).expect("made");
    let kept = [
        "notes.txt",
        "README",
        "no-suffix.md.bak",
        "_no-id.md",
        "a b.md",
        "sub/deep.md",
        ".hidden.md",
        ".other-program.tmp",
        "s.tmp",
        ".s.0123.tmp",
        ".s.0123456789abcdeg.tmp",
        ".-s.0123456789abcdef.tmp",
    ];
    let swept = ["gone.md", "A.b_c-9.md", ".s.0123456789abcdef.tmp", ".a.b.0123456789ABCDEF.tmp"];
    for name in kept.iter().chain(&swept) {
        fs::write(dir.join(name), "x").expect(name);
        age(&dir.join(name), 100.0);
    }
    let fresh = ".s.00000000000000ff.tmp";
    fs::write(dir.join(fresh), "x").expect("written");
    age(&dir.join(fresh), 0.5);
    symlink(dir.join("notes.txt"), dir.join("link.md")).expect("linked");
    world.first_use().await;
    for name in kept.iter().chain(&[fresh, "link.md", "dir.md", "s.md"]) {
        assert!(dir.join(name).symlink_metadata().is_ok(), "{name} is none of the sweep's");
    }
    for name in swept {
        assert!(!dir.join(name).exists(), "{name}");
    }
}

#[tokio::test]
async fn the_sweep_runs_once_a_process_at_the_first_use_of_any_plan_tool() {
    for tool in ["write_session_plan", "read_session_plan", "exit_plan_mode"] {
        let world = World::new();
        world.old_plan("old", 31.0, 31).await;
        let app = world.other_process();
        let me = world.agent("me");
        answer(&app, &me, "list_sessions", json!({})).await;
        app.finish().await;
        assert!(world.plan_path("old").exists(), "context tools sweep nothing");
        let arguments = if tool == "write_session_plan" { json!({"content": "x"}) } else { json!({}) };
        answer(&app, &me, tool, arguments.clone()).await;
        app.finish().await;
        assert!(!world.plan_path("old").exists(), "{tool}");

        fs::write(world.plan_path("later"), "x").expect("written");
        age(&world.plan_path("later"), 31.0);
        answer(&app, &me, tool, arguments).await;
        app.finish().await;
        assert!(world.plan_path("later").exists(), "not again in the same process");
        world.first_use().await;
        assert!(!world.plan_path("later").exists());
    }
}

#[tokio::test]
async fn the_age_is_a_setting_and_zero_turns_the_sweep_off() {
    for (days, left) in
        [(7, vec!["days-6.md"]), (0, vec!["days-6.md", "days-8.md"]), (9, vec!["days-6.md", "days-8.md"])]
    {
        let world = World::with(|settings| settings.plans_keep_days = days);
        world.old_plan("days-6", 6.0, 6).await;
        world.old_plan("days-8", 8.0, 8).await;
        world.first_use().await;
        assert_eq!(world.plan_names(), left, "{days} days");
    }
}

#[tokio::test]
async fn a_sweep_that_fails_costs_no_call_anything() {
    let world = World::new();
    world.old_plan("old", 31.0, 31).await;
    // What cannot be kept as a revision is not removed.
    fs::write(world.plan_path("bytes"), b"\xff").expect("written");
    age(&world.plan_path("bytes"), 31.0);
    world.old_plan("damaged", 31.0, 31).await;
    world.sql("UPDATE sessions SET title = 'changed' WHERE id = 'damaged'");
    let app = world.other_process();
    let written = answer(&app, &world.agent("me"), "write_session_plan", json!({"content": "x"})).await;
    assert!(!written.is_error, "{}", written.text);
    app.finish().await;
    assert_eq!(world.plan_names(), ["bytes.md", "damaged.md", "me.md"], "the others are swept all the same");
}

#[tokio::test]
async fn a_sweep_cut_short_after_the_removal_brings_the_plan_back_without_a_new_revision() {
    let world = World::new();
    world.old_plan("old", 31.0, 31).await;
    fs::remove_file(world.plan_path("old")).expect("ours");
    assert_eq!(world.read("old").await, "plan of old");
    assert_eq!(world.log("old").await, ["1 main 11"]);
}

#[tokio::test]
async fn many_old_plans_are_swept_beside_a_call() {
    let world = World::new();
    fs::create_dir(world.plans()).expect("made");
    for n in 0..40 {
        fs::write(world.plan_path(&format!("old-{n}")), "x").expect("written");
        age(&world.plan_path(&format!("old-{n}")), 31.0);
    }
    let app = world.other_process();
    let written = answer(&app, &world.agent("me"), "write_session_plan", json!({"content": "x"})).await;
    assert!(!written.is_error);
    assert!(world.plan_names().len() > 1, "the call did not wait for the sweep");
    app.finish().await;
    assert_eq!(world.plan_names(), ["me.md"]);
}
