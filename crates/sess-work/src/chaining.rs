//! Commits one upon the other, all of them by one git.
//!
//! Whoever comes first shows the claims of everybody. With four commands for each of them, that took longer than the
//! others waited before they did the same.

use std::fs;

use sess_core::Timestamp;

use crate::{
    Error, Oid, Result, Work,
    claim::User,
    git::failed,
    projecting::Step,
    refs::SEEN_MADE,
    tree::{Edit, File, PLAIN, Tree},
};

impl Work {
    /// Commits steps one upon the other, in the name of the person who calls. No checkout and no index has a part in
    /// it.
    pub(crate) fn chained(&self, tree: &Tree, steps: &[Step]) -> Result<Oid> {
        if steps.is_empty() {
            return Ok(tree.commit.clone());
        }
        self.check_known()?;
        let script = script(&tree.commit, steps, &self.user, self.now());
        // Forced, because these commits and those before have nothing to do with each other.
        let args = ["fast-import", "--quiet", "--force"];
        let git = &self.repo.git;
        let ended = self.repo.write_seen(|| git.run_with(args, Some(script.as_bytes()), &[], None))?;
        if ended.is_ok() {
            return ended.text().trim().parse().map_err(Error::failed);
        }
        // It writes down in the repository how it ended, and that is told here.
        let report = ended.stderr.lines().find_map(|line| line.split_once("dumping crash report to "));
        if let Some((_, report)) = report
            && let Err(error) = fs::remove_file(git.dir().join(report))
        {
            tracing::debug!(%error, report, "a report of git is left");
        }
        Err(failed(&args, &ended))
    }
}

/// Says to git what to commit; it answers with the name of the last one.
fn script(base: &Oid, steps: &[Step], user: &User, at: Timestamp) -> String {
    let who = format!("{} <{}> {} +0000", user.name, user.email, at.as_millis().div_euclid(1_000));
    let mut script = String::new();
    let data = |text: &str| format!("data {}\n{text}\n", text.len());
    for (n, Step { message, edits }) in steps.iter().enumerate() {
        let mark = n + 1;
        script.push_str(&format!("commit {SEEN_MADE}\nmark :{mark}\nauthor {who}\ncommitter {who}\n"));
        script.push_str(&data(message));
        if n == 0 {
            script.push_str(&format!("from {base}\n"));
        }
        // What is removed goes first: a file may take the place of a directory.
        for edit in edits {
            if let Edit::Remove(path) = edit {
                script.push_str(&format!("D {}\n", quoted(path)));
            }
        }
        for edit in edits {
            match edit {
                Edit::Put(path, File { mode, oid }) => {
                    script.push_str(&format!("M {mode} {oid} {}\n", quoted(path)));
                }
                Edit::Write(path, text) => {
                    script.push_str(&format!("M {PLAIN} inline {}\n", quoted(path)));
                    script.push_str(&data(text));
                }
                Edit::Remove(_) => {}
            }
        }
    }
    script.push_str(&format!("get-mark :{}\n", steps.len()));
    script
}

pub(crate) fn quoted(path: &str) -> String {
    format!("\"{}\"", path.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whatever_a_path_or_text_has_in_it_stays_in_it() {
        let oid: Oid = "0123456789012345678901234567890123456789".parse().expect("a name");
        let user = User { name: "Ann".to_owned(), email: "ann@example.com".to_owned() };
        let steps = [
            Step {
                message: "one\n".to_owned(),
                edits: vec![
                    Edit::Put(
                        "a \"b\"\\\nc".to_owned(),
                        File { mode: "100755".to_owned(), oid: oid.clone() },
                    ),
                    Edit::Remove("a".to_owned()),
                ],
            },
            Step {
                message: "two\n".to_owned(),
                edits: vec![Edit::Write("d".to_owned(), "é\nD d\n".to_owned())],
            },
        ];
        let at = Timestamp::from_millis(1_999).expect("in range");
        assert_eq!(
            script(&oid, &steps, &user, at),
            "commit refs/intersession/seen/made
mark :1
author Ann <ann@example.com> 1 +0000
committer Ann <ann@example.com> 1 +0000
data 4
one

from 0123456789012345678901234567890123456789
D \"a\"
M 100755 0123456789012345678901234567890123456789 \"a \\\"b\\\"\\\\\\nc\"
commit refs/intersession/seen/made
mark :2
author Ann <ann@example.com> 1 +0000
committer Ann <ann@example.com> 1 +0000
data 4
two

M 100644 inline \"d\"
data 7
é
D d

get-mark :2
"
        );
    }
}
