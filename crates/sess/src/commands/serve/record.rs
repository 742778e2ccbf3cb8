//! Where the gateway of a store listens, for whoever looks for it: a file in the data directory.

use std::{
    fs, io,
    path::{Path, PathBuf},
    process::Command,
};

use serde::{Deserialize, Serialize};

use crate::private;

const NAME: &str = "gateway.json";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Where it listens, as `http://127.0.0.1:4747`.
    pub address: String,
    pub pid: u32,
    /// When that process started, as the system tells it: process ids are used again.
    pub started: String,
}

/// Takes the record away when the gateway ends.
pub struct Recorded {
    path: PathBuf,
    record: Record,
}

impl Drop for Recorded {
    fn drop(&mut self) {
        if read(&self.path).as_ref() == Some(&self.record) {
            // A record that stays is recognised by its process, which is gone.
            let _stays = fs::remove_file(&self.path);
        }
    }
}

/// Returns the gateway that runs on the store in `home`.
pub fn running(home: &Path) -> Option<Record> {
    let record = read(&home.join(NAME))?;
    (started(record.pid)? == record.started).then_some(record)
}

/// Records that this process listens at `address`. A gateway that runs here already keeps its record.
pub fn write(home: &Path, address: &str) -> Option<Recorded> {
    if running(home).is_some() {
        return None;
    }
    let pid = std::process::id();
    let record = Record { address: address.to_owned(), pid, started: started(pid)? };
    let path = home.join(NAME);
    match serde_json::to_vec(&record).map_err(io::Error::from).and_then(|json| private::write(&path, &json)) {
        Ok(()) => Some(Recorded { path, record }),
        Err(error) => {
            tracing::warn!(%error, "`sess open` will not find this gateway: {} was not written", path.display());
            None
        }
    }
}

fn read(path: &Path) -> Option<Record> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

/// Returns when a process started; `None` when there is none.
fn started(pid: u32) -> Option<String> {
    if let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) {
        // The name in brackets may hold anything; after it the start is the 20th field.
        let (_, fields) = stat.rsplit_once(')')?;
        return fields.split_whitespace().nth(19).map(str::to_owned);
    }
    let asked = Command::new("ps").args(["-o", "lstart=", "-p", &pid.to_string()]).output().ok()?;
    let told = String::from_utf8(asked.stdout).ok()?.trim().to_owned();
    (!told.is_empty()).then_some(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_counts_while_its_process_runs_and_no_longer() {
        let dir = tempfile::tempdir().expect("a directory");
        assert_eq!(running(dir.path()), None);
        let recorded = write(dir.path(), "http://127.0.0.1:1").expect("recorded");
        let found = running(dir.path()).expect("this process runs");
        assert_eq!(found.address, "http://127.0.0.1:1");
        assert!(write(dir.path(), "http://127.0.0.1:2").is_none(), "the first one keeps its record");
        drop(recorded);
        assert!(!dir.path().join(NAME).exists());

        let stale = Record { started: "0".to_owned(), ..found };
        let stale = serde_json::to_vec(&stale).expect("JSON");
        fs::write(dir.path().join(NAME), stale).expect("written");
        assert_eq!(running(dir.path()), None, "another process has its number now");
        let _recorded = write(dir.path(), "http://127.0.0.1:3").expect("a stale record gives way");
        assert_eq!(running(dir.path()).expect("recorded").address, "http://127.0.0.1:3");
        fs::write(dir.path().join(NAME), "{").expect("written");
        assert_eq!(running(dir.path()), None, "half a record is none");
    }
}
