//! Child processes that leave nothing behind: their own session, no descriptor of ours, killed as a group.

use std::{
    collections::VecDeque,
    ffi::OsString,
    io,
    path::PathBuf,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal};
use sess_core::redact::{AROUND_CUT_BYTES, around_cut};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _},
    process::{Child, Command},
};
use tokio_util::sync::CancellationToken;

use crate::tool::capped_at;

/// How long a group has to end by itself after it was asked to.
const GRACE: Duration = Duration::from_millis(500);
/// How long a pipe may stay open after the group was killed: by somebody who left the group.
const LAST_WORDS: Duration = Duration::from_secs(1);
const CHUNK_BYTES: usize = 65_536;

/// What is started, with which environment, where.
#[derive(Clone, Debug)]
pub(crate) struct Launch {
    pub program: PathBuf,
    pub args: Vec<OsString>,
    pub env: Vec<(String, String)>,
    pub cwd: PathBuf,
}

impl Launch {
    /// A command in a session of its own. Its streams are to be set; nothing else is inherited.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command
            .args(&self.args)
            .env_clear()
            .envs(self.env.iter().map(|(name, value)| (name, value)))
            .current_dir(&self.cwd)
            .kill_on_drop(true);
        #[expect(unsafe_code, reason = "what happens between fork and exec can only be said this way")]
        // SAFETY: the closure only makes system calls, which is allowed after fork in a process with
        // threads; it does not allocate, lock or panic.
        unsafe {
            command.pre_exec(|| {
                // No terminal to read a password from, and one group to kill.
                rustix::process::setsid()?;
                // Killed, we could not stop it any more.
                #[cfg(target_os = "linux")]
                rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
                inherit_nothing();
                Ok(())
            });
        }
        command
    }
}

/// Marks every descriptor but the three streams to be closed when the program starts.
///
/// All of ours are marked already; this is for those that a library forgot.
#[cfg(target_os = "linux")]
pub(crate) fn inherit_nothing() {
    #[expect(unsafe_code, reason = "no crate of ours has a function for it")]
    // SAFETY: the call takes numbers only, and changes a flag of descriptors.
    unsafe {
        // A kernel without it (before 5.11) leaves the belt without the braces.
        libc::syscall(libc::SYS_close_range, 3_u32, u32::MAX, libc::CLOSE_RANGE_CLOEXEC);
    }
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn inherit_nothing() {}

/// The group of a child, which ends with this value.
pub(crate) struct Group(Option<Pid>);

impl Group {
    pub fn of(child: &Child) -> Self {
        Self(child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw))
    }

    pub fn signal(&self, signal: Signal) {
        if let Some(group) = self.0 {
            let _nobody_left = rustix::process::kill_process_group(group, signal);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

/// How a process ended.
#[derive(Debug)]
pub(crate) enum End {
    Exited(ExitStatus),
    TimedOut,
    Cancelled,
}

/// Waits for the child, a time-out or the cancellation, then ends its whole group. Meanwhile what it
/// prints goes to `kept`.
pub(crate) async fn run(
    mut child: Child,
    mut output: impl AsyncRead + Unpin,
    kept: &mut Kept,
    timeout: Duration,
    cancel: &CancellationToken,
) -> io::Result<End> {
    let group = Group::of(&child);
    let deadline = tokio::time::sleep(timeout);
    tokio::pin!(deadline);
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut is_open = true;
    let end = loop {
        tokio::select! {
            biased;
            () = cancel.cancelled() => break End::Cancelled,
            () = &mut deadline => break End::TimedOut,
            status = child.wait() => break End::Exited(status?),
            read = output.read(&mut buffer), if is_open => match read {
                Ok(0) | Err(_) => is_open = false,
                Ok(count) => kept.add(&buffer[..count]),
            },
        }
    };
    if !matches!(end, End::Exited(_)) {
        group.signal(Signal::TERM);
        let _killed_below = tokio::time::timeout(GRACE, async {
            while is_open {
                match output.read(&mut buffer).await {
                    Ok(0) | Err(_) => is_open = false,
                    Ok(count) => kept.add(&buffer[..count]),
                }
            }
            child.wait().await
        })
        .await;
    }
    group.signal(Signal::KILL);
    let _somebody_left_the_group = tokio::time::timeout(LAST_WORDS, async {
        while is_open {
            match output.read(&mut buffer).await {
                Ok(0) | Err(_) => is_open = false,
                Ok(count) => kept.add(&buffer[..count]),
            }
        }
    })
    .await;
    child.wait().await?;
    Ok(end)
}

/// The beginning and the end of what was printed, however much it was.
///
/// Some more is kept around both cuts until the text is asked for: then it is seen whether they
/// would split a secret.
#[derive(Debug)]
pub(crate) struct Kept {
    bytes_max: usize,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    left_out: usize,
}

impl Kept {
    pub fn new(bytes_max: usize) -> Self {
        Self { bytes_max, head: Vec::new(), tail: VecDeque::new(), left_out: 0 }
    }

    pub fn add(&mut self, bytes: &[u8]) {
        let most = self.bytes_max / 2 + AROUND_CUT_BYTES;
        let (head, tail) = bytes.split_at(bytes.len().min(most - self.head.len()));
        self.head.extend_from_slice(head);
        let too_many = (self.tail.len() + tail.len()).saturating_sub(most);
        let from_kept = too_many.min(self.tail.len());
        self.tail.drain(..from_kept);
        self.tail.extend(&tail[too_many - from_kept..]);
        self.left_out += too_many;
    }

    /// Returns it as text; what is no UTF-8 becomes `�`.
    pub fn text(mut self) -> String {
        if self.left_out == 0 {
            self.head.extend(&self.tail);
            return capped_at(String::from_utf8_lossy(&self.head).into_owned(), self.bytes_max);
        }
        let half = self.bytes_max / 2;
        let head = String::from_utf8_lossy(&self.head);
        let tail = String::from_utf8_lossy(self.tail.make_contiguous());
        let head_end = around_cut(&head, head.floor_char_boundary(half)).start;
        let tail_start = around_cut(&tail, tail.ceil_char_boundary(tail.len() - half)).end;
        let left_out = self.left_out + (head.len() - head_end) + tail_start;
        format!("{}\n[… {left_out} bytes left out …]\n{}", &head[..head_end], &tail[tail_start..])
    }
}

/// A pipe for a child: its end, and ours.
pub(crate) fn pipe() -> io::Result<(tokio::net::unix::pipe::Receiver, io::PipeWriter)> {
    let (ours, theirs) = io::pipe()?;
    Ok((tokio::net::unix::pipe::Receiver::from_owned_fd(ours.into())?, theirs))
}

/// Sends both of a child's outputs to one pipe, in the order in which they are written.
pub(crate) fn joined_output(command: &mut Command) -> io::Result<tokio::net::unix::pipe::Receiver> {
    let (ours, theirs) = pipe()?;
    command.stdin(Stdio::null()).stdout(Stdio::from(theirs.try_clone()?)).stderr(Stdio::from(theirs));
    Ok(ours)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_and_the_end_are_kept() {
        let mut kept = Kept::new(8);
        kept.add(b"abc");
        kept.add(b"defgh");
        assert_eq!(kept.text(), "abcdefgh");
        let mut kept = Kept::new(8);
        for _ in 0..10 {
            kept.add(b"0123456789");
        }
        assert_eq!(kept.text(), "0123\n[… 92 bytes left out …]\n6789");
        let mut kept = Kept::new(8);
        for _ in 0..10_000 {
            kept.add(b"0123456789");
        }
        assert_eq!(kept.text(), "0123\n[… 99992 bytes left out …]\n6789");
    }

    #[test]
    fn no_secret_is_split_by_what_is_left_out() {
        let printed = |middle: usize| {
            let mut kept = Kept::new(40);
            kept.add(b"first line\nTOKEN=a1b2c3d4e5f6g7h8\n");
            kept.add(&b"word ".repeat(middle));
            kept.add(b"\nTOKEN=a1b2c3d4e5f6g7h8\nlast line\n");
            kept.text()
        };
        for middle in [10, 10_000] {
            let left_out = 5 * middle + 40;
            let told = format!("first line\nTOKEN=\n[… {left_out} bytes left out …]\n\nlast line\n");
            assert_eq!(printed(middle), told);
        }
    }
}
