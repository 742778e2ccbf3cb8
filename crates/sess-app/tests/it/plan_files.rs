//! Plan files: modes, links, what stands in the way, and other programs beside us.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, symlink},
    path::Path,
    process::Command,
    sync::atomic::{AtomicBool, Ordering},
};

use sess_store::PlanWrite;

use crate::world::{World, new_session, now};

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).expect("there").permissions().mode() & 0o7777
}

#[tokio::test]
async fn the_directory_is_0700_and_the_file_0600() {
    let world = World::new();
    world.write("s", "# p").await;
    assert_eq!(mode(&world.plans()), 0o700);
    assert_eq!(mode(&world.plan_path("s")), 0o600);
    assert_eq!(mode(&world.plans().join(".lock")) & 0o077, 0);

    // What was laxer before is made strict by the next write.
    fs::set_permissions(world.plans(), fs::Permissions::from_mode(0o755)).expect("ours");
    fs::set_permissions(world.plan_path("s"), fs::Permissions::from_mode(0o644)).expect("ours");
    world.write("s", "# q").await;
    assert_eq!(mode(&world.plans()), 0o700);
    assert_eq!(mode(&world.plan_path("s")), 0o600);
}

/// A umask belongs to the whole process, so the test above runs in others.
#[test]
fn modes_do_not_depend_on_the_umask() {
    let this = std::env::current_exe().expect("a path");
    for umask in ["000", "022", "077"] {
        let test = "plan_files::the_directory_is_0700_and_the_file_0600";
        let script = format!("umask {umask}; exec \"$0\" --exact {test}");
        let run = Command::new("sh").arg("-c").arg(script).arg(&this).output().expect("sh runs");
        let told = String::from_utf8_lossy(&run.stdout);
        assert!(run.status.success() && told.contains("1 passed"), "umask {umask}: {told}");
    }
}

#[tokio::test]
async fn a_link_at_the_target_is_replaced_and_not_followed() {
    let world = World::new();
    let outside = world.home().join("precious");
    fs::write(&outside, "keep me").expect("written");
    fs::create_dir(world.plans()).expect("made");
    symlink(&outside, world.plan_path("s")).expect("linked");
    assert!(world.read("s").await.starts_with("error: cannot read the plan"));
    assert!(world.write("s", "# p").await.starts_with("Plan saved"));
    assert_eq!(fs::read_to_string(&outside).expect("there"), "keep me");
    assert!(fs::symlink_metadata(world.plan_path("s")).expect("there").is_file());
    assert_eq!(world.read("s").await, "# p");

    // The same when there was a plan before: its text comes from the row, not from the link.
    fs::remove_file(world.plan_path("s")).expect("ours");
    symlink(&outside, world.plan_path("s")).expect("linked");
    assert!(world.write("s", "# q").await.starts_with("Plan saved"));
    assert_eq!(world.log("s").await, ["1 main 3", "2 main 3"]);
    assert_eq!(fs::read_to_string(&outside).expect("there"), "keep me");
}

#[tokio::test]
async fn reading_refuses_what_is_not_a_regular_file() {
    let world = World::new();
    world.write("other", "# other's").await;
    let path = |session: &str| world.plan_path(session).display().to_string();
    symlink("other.md", world.plan_path("inside")).expect("linked");
    symlink("/etc/hostname", world.plan_path("outside")).expect("linked");
    symlink("nowhere", world.plan_path("dangling")).expect("linked");
    for session in ["inside", "outside", "dangling"] {
        let told = format!(
            "error: cannot read the plan {}: it is a symbolic link, not a regular file",
            path(session)
        );
        assert_eq!(world.read(session).await, told);
        assert_eq!(world.exit(session).await, told);
    }
    fs::create_dir(world.plan_path("dir")).expect("made");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        world.plan_path("fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from(0o600),
        0,
    )
    .expect("a fifo");
    for session in ["dir", "fifo"] {
        let told = format!("error: cannot read the plan {}: it is not a regular file", path(session));
        assert_eq!(world.read(session).await, told);
    }
    fs::write(world.plan_path("bytes"), b"\xff\xfe").expect("written");
    let told = format!("error: cannot read the plan {}: it is not valid UTF-8", path("bytes"));
    assert_eq!(world.read("bytes").await, told);
    // Nothing a person has there is lost to an overwrite, even when it is no text.
    assert_eq!(world.write("bytes", "# p").await, told);
    fs::write(world.plan_path("huge"), vec![b'x'; 10_485_761]).expect("written");
    let told = format!("error: cannot read the plan {}: it is larger than 10485760 bytes", path("huge"));
    assert_eq!(world.read("huge").await, told);
}

#[tokio::test]
async fn a_plan_directory_that_is_a_link_or_a_file_is_refused() {
    for is_link in [true, false] {
        let world = World::new();
        let elsewhere = world.home().join("elsewhere");
        fs::create_dir(&elsewhere).expect("made");
        if is_link {
            symlink(&elsewhere, world.plans()).expect("linked");
        } else {
            fs::write(world.plans(), "in the way").expect("written");
        }
        let dir = world.plans().display().to_string();
        for told in [world.write("s", "# p").await, world.read("s").await, world.exit("s").await] {
            let (action, cause) = told.split_once(&dir).expect(&told);
            assert!(action.starts_with("error: cannot ") && cause.len() > 10, "{told}");
        }
        assert_eq!(fs::read_dir(&elsewhere).expect("a directory").count(), 0, "nothing went through");
        // Put right, everything works again.
        fs::remove_file(world.plans()).expect("ours");
        assert!(world.write("s", "# p").await.starts_with("Plan saved"));
        assert_eq!(world.log("s").await, ["1 main 3"], "what failed left no revision");
    }
}

#[tokio::test]
async fn a_write_that_cannot_take_its_place_leaves_neither_revision_nor_temporary_file() {
    let world = World::new();
    fs::create_dir_all(world.plan_path("s").join("inside")).expect("made");
    let told = world.write("s", "# p").await;
    let path = world.plan_path("s").display().to_string();
    assert!(told.starts_with(&format!("error: cannot write the plan {path}: ")), "{told}");
    assert_eq!(world.plan_names(), ["s.md"]);
    assert!(world.plan_path("s").join("inside").is_dir());
    assert_eq!(world.log("s").await, [""; 0]);

    fs::remove_dir_all(world.plan_path("s")).expect("ours");
    assert_eq!(
        world.read("s").await,
        "error: no plan written yet for this session; call write_session_plan first"
    );
    assert!(world.write("s", "# q").await.starts_with("Plan saved"));
    assert_eq!(world.log("s").await, ["1 main 3"], "the number is used again");
}

#[tokio::test]
async fn a_failed_write_leaves_the_earlier_plan_whole() {
    let world = World::new();
    world.write("s", "first").await;
    fs::remove_file(world.plan_path("s")).expect("ours");
    fs::create_dir(world.plan_path("s")).expect("made");
    assert!(world.write("s", "second").await.starts_with("error: cannot write the plan"));
    assert_eq!(world.plan_names(), ["s.md"]);
    assert_eq!(world.log("s").await, ["1 main 5"]);
    fs::remove_dir(world.plan_path("s")).expect("ours");
    assert_eq!(world.read("s").await, "first", "from the row");
    assert_eq!(world.plan_events().await, ["updated s 1 by main"]);
}

#[tokio::test]
async fn without_permission_the_error_names_the_path_and_the_cause() {
    let world = World::new();
    world.write("s", "first").await;
    fs::set_permissions(world.plan_path("s"), fs::Permissions::from_mode(0o000)).expect("ours");
    if fs::read(world.plan_path("s")).is_ok() {
        eprintln!("skipped: root may read everything");
        return;
    }
    let path = world.plan_path("s").display().to_string();
    assert_eq!(world.read("s").await, format!("error: cannot read the plan {path}: permission denied"));
}

/// Needs the right to mount, which a container or a plain user may lack.
#[tokio::test]
async fn on_a_full_disk_the_earlier_plan_is_still_there_and_work_goes_on_later() {
    let small = tempfile::tempdir().expect("a directory");
    let mount = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=64k,mode=700", "tmpfs"])
        .arg(small.path())
        .output();
    if !mount.is_ok_and(|mount| mount.status.success()) {
        eprintln!("skipped: a small file system cannot be mounted here");
        return;
    }
    let world = World::with(|settings| settings.plans_dir = Some(small.path().join("plans")));
    assert!(world.write("s", "first").await.starts_with("Plan saved"));
    let path = small.path().join("plans/s.md");
    let told = world.write("s", &"x".repeat(100_000)).await;
    let before = fs::read(&path);
    let names = fs::read_dir(small.path().join("plans")).map(Iterator::count);
    let again = world.write("s", "second").await;
    let unmounted = Command::new("umount").arg("-l").arg(small.path()).status();
    assert!(unmounted.is_ok_and(|status| status.success()));
    assert_eq!(told, format!("error: cannot write the plan {}: no space left on the disk", path.display()));
    assert_eq!(before.expect("there"), b"first");
    assert_eq!(names.expect("a directory"), 2, "the plan and the lock");
    assert!(again.starts_with("Plan saved"), "{again}");
    assert_eq!(world.log("s").await, ["1 main 5", "2 main 6"]);
}

/// Somebody swaps file and directory for links to what is precious, as fast as they can.
#[test]
fn an_attacker_who_swaps_links_in_gets_nothing_written_outside() {
    let world = World::new();
    let outside = world.home().join("outside");
    let precious = outside.join("s.md");
    fs::create_dir(&outside).expect("made");
    fs::write(&precious, "precious").expect("written");
    let aside = world.home().join("aside");
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            // What fails here fails because the other thread was there first.
            let mut swaps = 0_u64;
            while !is_over.load(Ordering::Relaxed) {
                swaps += 1;
                if swaps % 2 == 0 {
                    drop(fs::remove_file(world.plan_path("s")));
                    drop(symlink(&precious, world.plan_path("s")));
                } else if fs::rename(world.plans(), &aside).is_ok() {
                    drop(symlink(&outside, world.plans()));
                    drop(fs::remove_file(world.plans()));
                    drop(fs::rename(&aside, world.plans()));
                }
            }
        });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        for n in 0..200 {
            let content = format!("attack {n}");
            for told in [runtime.block_on(world.write("s", &content)), runtime.block_on(world.read("s"))] {
                assert!(!told.contains("precious"), "{told}");
            }
        }
        is_over.store(true, Ordering::Relaxed);
    });
    assert_eq!(fs::read_to_string(&precious).expect("there"), "precious");
    let names: Vec<_> =
        fs::read_dir(&outside).expect("a directory").flatten().map(|it| it.file_name()).collect();
    assert_eq!(names, ["s.md"], "not even a lock or a temporary file");
}

#[tokio::test]
async fn a_moved_plan_directory_is_shared_with_another_program_in_both_directions() {
    let shared = tempfile::tempdir().expect("a directory");
    let dir = shared.path().join(".cagent/session_plans");
    fs::create_dir_all(&dir).expect("made");
    // docker-agent wrote a plan for a session that we have never heard of.
    let theirs = "0b56c1d5-8a3f-4b39-9d7d-0a6f6a1b6f10";
    fs::write(dir.join(format!("{theirs}.md")), "# Theirs\n").expect("written");
    let world = World::with(|settings| settings.plans_dir = Some(dir.clone()));
    assert_eq!(world.read(theirs).await, "# Theirs\n");
    assert_eq!(world.log(theirs).await, ["1 external 9"]);
    // Ours is what they would write: the same name, plain Markdown.
    let saved = world.write(theirs, "# Ours\n").await;
    assert_eq!(saved, format!("Plan saved to {}", dir.join(format!("{theirs}.md")).display()));
    assert_eq!(fs::read_to_string(dir.join(format!("{theirs}.md"))).expect("there"), "# Ours\n");
    // They replace it the way they do, by a rename.
    fs::write(dir.join(".plan-123.tmp"), "# Theirs again\n").expect("written");
    fs::rename(dir.join(".plan-123.tmp"), dir.join(format!("{theirs}.md"))).expect("renamed");
    assert_eq!(world.exit(theirs).await, "Plan ready for review.");
    assert_eq!(world.read(theirs).await, "# Theirs again\n");
    assert_eq!(world.log(theirs).await, ["1 external 9", "2 main 7", "3 external 15"]);
    assert!(!world.plans().exists(), "nothing is in the directory that would be ours");
}

#[tokio::test]
async fn the_answers_path_is_absolute_even_when_the_setting_is_not() {
    let world = World::with(|settings| settings.plans_dir = Some("target/no-such-plans".into()));
    let session = world.session("s").await;
    let write = PlanWrite {
        content: "x".to_owned(),
        agent: "main".to_owned(),
        at: now(),
        expect_revision: None,
        key: None,
    };
    world.store().write_plan(new_session("s"), write).await.expect("a row");
    let plan = world.app.plan_revision(&session, 1).await.expect("a revision");
    assert!(Path::new(&plan.plan.path).is_absolute(), "{}", plan.plan.path);
}
