//! A full or read-only disk: refused with the cause, nothing lost, and work goes on.

use std::{
    fs,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use sess_store::{Error, Store};

use crate::support::{chat, id, plan, run, say, transcript};

/// A small file system of its own, gone when this is dropped.
struct SmallDisk {
    dir: tempfile::TempDir,
}

impl SmallDisk {
    /// Returns `None`, with a line that says so, where the test may not mount.
    fn new(size_mb: u32) -> Option<Self> {
        let is_root = fs::metadata("/proc/self").is_ok_and(|found| found.uid() == 0);
        let dir = tempfile::tempdir().expect("a temporary directory");
        let options = format!("size={size_mb}m,mode=0700");
        let mounted = is_root
            && Command::new("mount")
                .args(["-t", "tmpfs", "-o", &options, "tmpfs"])
                .arg(dir.path())
                .output()
                .is_ok_and(|output| output.status.success());
        if !mounted {
            println!("skipped: mounting a small disk needs root");
            return None;
        }
        Some(Self { dir })
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn remount(&self, option: &str) {
        let options = format!("remount,{option}");
        let status =
            Command::new("mount").args(["-o", &options]).arg(self.path()).status().expect("mount runs");
        assert!(status.success());
    }

    /// Takes all the space there is; the file is given back to be removed.
    fn fill(&self) -> PathBuf {
        use std::io::Write as _;
        let path = self.path().join("ballast");
        let mut ballast = fs::File::create(&path).expect("a file");
        for chunk in [vec![1; 65_536], vec![1; 512]] {
            while ballast.write_all(&chunk).is_ok() {}
        }
        path
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("-l").arg(self.path()).status();
        assert!(
            unmounted.is_ok_and(|status| status.success()),
            "could not unmount {}",
            self.path().display()
        );
    }
}

/// Appends until it is refused; returns the refusal.
async fn until_refused(store: &dyn Store, acknowledged: &mut Vec<String>) -> Error {
    loop {
        let text = format!("{} {}", acknowledged.len(), "x".repeat(3_000));
        match store.append(&id("a"), vec![say(&text)], None).await {
            Ok(appended) => acknowledged.push(format!("{} {text}", appended.last_seq)),
            Err(error) => return error,
        }
    }
}

#[test]
fn a_full_disk_is_named_and_loses_nothing_and_work_goes_on_once_there_is_room() {
    let Some(disk) = SmallDisk::new(8) else { return };
    run(async {
        let store = sess_store::open(disk.path()).expect("a store");
        store.ensure_session(chat("a")).await.expect("made");
        let mut acknowledged = Vec::new();
        for _ in 0..5 {
            let ballast = disk.fill();
            for _ in 0..3 {
                let error = until_refused(&*store, &mut acknowledged).await;
                assert!(
                    matches!(&error, Error::Unavailable(text) if text.contains("no space left")),
                    "{error}"
                );
                let error = store.write_plan(chat("a"), plan(&"y".repeat(5_000))).await.expect_err("no room");
                assert!(matches!(error, Error::Unavailable(_)), "{error}");
            }
            assert_eq!(transcript(&*store, "a").await, acknowledged, "what was there is still read");
            fs::remove_file(ballast).expect("room again");
            let text = format!("{} after", acknowledged.len());
            let appended = store.append(&id("a"), vec![say(&text)], None).await.expect("work goes on");
            acknowledged.push(format!("{} {text}", appended.last_seq));
        }
        drop(store);
        let store = sess_store::open(disk.path()).expect("the store opens again");
        assert_eq!(transcript(&*store, "a").await, acknowledged);
        assert_eq!(store.plan(&id("a")).await, Ok(None), "a refused plan is not there");
    });
    assert_eq!(sess_store::health(disk.path()).expect("readable").damage, Vec::<String>::new());
}

#[test]
fn a_store_cannot_be_made_on_a_full_disk_and_leaves_nothing_behind() {
    let Some(disk) = SmallDisk::new(1) else { return };
    let ballast = disk.fill();
    let error = sess_store::open(disk.path()).err().expect("no room");
    assert!(matches!(&error, Error::Unavailable(text) if text.contains("o space left")), "{error}");
    let names: Vec<_> =
        fs::read_dir(disk.path()).expect("a directory").flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(names, ["ballast"]);
    fs::remove_file(ballast).expect("room again");
    sess_store::open(disk.path()).expect("a store");
}

#[test]
fn a_read_only_disk_is_named_and_writing_resumes_when_it_is_writable() {
    let Some(disk) = SmallDisk::new(8) else { return };
    run(async {
        let store = sess_store::open(disk.path()).expect("a store");
        store.ensure_session(chat("a")).await.expect("made");
        drop(store);
        disk.remount("ro");
        match sess_store::open(disk.path()) {
            Err(error) => assert!(matches!(error, Error::Unavailable(_)), "{error}"),
            Ok(store) => {
                let error = store.append(&id("a"), vec![say("x")], None).await.expect_err("read-only");
                assert!(matches!(&error, Error::Unavailable(text) if text.contains("read-only")), "{error}");
                disk.remount("rw");
                store.append(&id("a"), vec![say("x")], None).await.expect("work goes on");
            }
        }
        disk.remount("rw");
        let store = sess_store::open(disk.path()).expect("a store");
        store.append(&id("a"), vec![say("y")], None).await.expect("work goes on");
    });
}
