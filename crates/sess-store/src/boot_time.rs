//! The clock that leases are told by, and when a process began by it.

use std::{
    fs::{self, File},
    os::unix::fs::FileExt as _,
    path::Path,
    sync::OnceLock,
};

use sess_core::run::BootTime;

use crate::{Error, Process, Result};

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
const UPTIME: &str = "/proc/uptime";

/// Returns the time since this machine was started, suspend included.
///
/// It is read from a file, in hundredths of a second, which is plenty for a lease of
/// seconds. `clock_gettime(CLOCK_BOOTTIME)` would say the same, but goes through the C
/// library, where programs that pretend another time (faketime) change it with the wall
/// clock: two nodes of which one pretends would take each other's leases for lapsed.
///
/// A machine that does not tell is an error and never a guess, for the same reason.
///
/// A turn asks several times, so the file stays open, and the boot's name is read once:
/// no process outlives it.
pub fn boot_time() -> Result<BootTime> {
    static NAME: OnceLock<String> = OnceLock::new();
    static CLOCK: OnceLock<File> = OnceLock::new();
    let boot_id = once(&NAME, || {
        let name = fs::read_to_string(BOOT_ID).map_err(cannot_read(BOOT_ID))?;
        Ok(name.trim().to_owned())
    })?;
    let clock = once(&CLOCK, || File::open(UPTIME).map_err(cannot_read(UPTIME)))?;
    let mut line = [0; 64];
    let length = clock.read_at(&mut line, 0).map_err(cannot_read(UPTIME))?;
    let uptime = String::from_utf8_lossy(&line[..length]);
    let millis = millis(&uptime)
        .ok_or_else(|| Error::Unavailable(format!("cannot tell the time from {UPTIME}: \"{uptime}\"")))?;
    Ok(BootTime { boot_id: boot_id.clone(), millis })
}

/// Returns this process, as it can be told from others.
pub fn this_process() -> Result<Process> {
    static THIS: OnceLock<Process> = OnceLock::new();
    once(&THIS, || {
        let pid = std::process::id();
        let unknown =
            || Error::Unavailable(format!("cannot tell from /proc/{pid}/stat when this process began"));
        Ok(Process { pid, started: started(pid).ok_or_else(unknown)? })
    })
    .copied()
}

/// Returns what the cell holds, or fills it; a failure is tried again the next time.
fn once<T>(cell: &'static OnceLock<T>, fill: impl FnOnce() -> Result<T>) -> Result<&'static T> {
    match cell.get() {
        Some(value) => Ok(value),
        None => fill().map(|value| cell.get_or_init(|| value)),
    }
}

/// Tells whether a process still runs: the very one, and not a later one with its number.
pub fn is_alive(process: Process) -> bool {
    started(process.pid) == Some(process.started)
}

/// Returns when a process began, in ticks since the machine did: the 22nd field, counted from
/// behind the name, which may hold anything.
fn started(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    // One that has ended stays in the list until its parent looks.
    let is_over = matches!(fields.next()?, "Z" | "X");
    fields.nth(18)?.parse().ok().filter(|_| !is_over)
}

fn cannot_read(path: &str) -> impl Fn(std::io::Error) -> Error {
    move |error| Error::from_io("read", Path::new(path), &error)
}

/// Parses `13790.63 7456.77`: seconds since the start, and seconds idle.
fn millis(uptime: &str) -> Option<u64> {
    let (seconds, hundredths) = uptime.split_whitespace().next()?.split_once('.')?;
    let hundredths: u64 = (hundredths.len() == 2).then(|| hundredths.parse().ok())??;
    seconds.parse::<u64>().ok()?.checked_mul(1_000)?.checked_add(hundredths * 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uptime_is_read_to_the_hundredth() {
        assert_eq!(millis("13790.63 7456.77\n"), Some(13_790_630));
        assert_eq!(millis("0.05 0.00\n"), Some(50));
        for odd in ["", "13790", "13790.6 1.0", "x.yz 1.0"] {
            assert_eq!(millis(odd), None, "{odd}");
        }
    }

    #[test]
    fn a_process_is_told_from_a_later_one_with_its_number() {
        let this = this_process().expect("this process");
        assert!(is_alive(this));
        assert!(!is_alive(Process { started: this.started + 1, ..this }));
        assert!(!is_alive(Process { pid: u32::MAX, ..this }));
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().expect("it starts");
        let pid = child.id();
        let process = Process { pid, started: started(pid).expect("it runs") };
        assert!(is_alive(process));
        child.kill().expect("killed");
        // Nobody has looked at how it ended.
        while is_alive(process) {
            std::thread::yield_now();
        }
        child.wait().expect("ended");
    }

    #[test]
    fn boot_time_goes_forward_within_one_boot() {
        let one = boot_time().expect("a boot time");
        let two = boot_time().expect("a boot time");
        assert_eq!(one.boot_id.len(), 36);
        assert_eq!(one.boot_id, two.boot_id);
        assert!(one.millis <= two.millis);
    }
}
