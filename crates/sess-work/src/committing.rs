//! Committing what lies changed in a workspace, for whoever cannot run git there.

use crate::{
    Error, Git, Oid, Result, Slug, Verb, Work, checkout::status_command, git::failed, projecting::message,
    templates::one_line,
};

impl Work {
    /// Commits everything that is changed in a session's workspace; `None` when nothing is.
    ///
    /// What `.worktreeinclude` brought and git does not track stays out, as long as it is unchanged.
    pub fn commit_all(&self, slug: &Slug, what: &str) -> Result<Option<Oid>> {
        let record = self.record_for(Verb::End, slug, &self.see_or_recall()?)?;
        let path = self.workspace(slug).ok_or_else(|| {
            Error::wrong_state(format!("{slug} has no workspace in this clone"))
                .next(format!("sess work claim {slug}"))
        })?;
        let git = self.repo.git.at(&path);
        let _turn = self.repo.lock("branch")?;
        // What a killed verb left half done would be taken back.
        self.unfinished(slug)?;
        self.check_checked_out(slug, &path)?;
        self.check_filters_in(&git)?;
        let unmerged = git.text(["ls-files", "--unmerged", "-z"])?;
        if !unmerged.is_empty() {
            return Err(Error::would_lose(format!(
                "the workspace of {slug} has conflicts that nobody has resolved"
            ))
            .next(status_command(&path)));
        }
        let told = git.text(["ls-files", "-z", "--others", "--exclude-standard"])?;
        let new = self.own(&path, told.split_terminator('\0').collect())?;
        let new: String = new.into_iter().map(|name| format!("{name}\0")).collect();
        run(&git, &["add", "--update", "--", ":/"], None, &[])?;
        if !new.is_empty() {
            // Names are names: one with a star in it means itself.
            let literal = [("GIT_LITERAL_PATHSPECS", "1")];
            run(&git, &["add", "--pathspec-from-file=-", "--pathspec-file-nul"], Some(&new), &literal)?;
        }
        if git.run(["diff", "--cached", "--quiet", "--no-ext-diff", "HEAD"])?.is_ok() {
            return Ok(None);
        }
        let text = message(slug, &one_line(what), &self.by(), Some(&record));
        let env = self.env(slug);
        let env: Vec<(&str, &str)> = env.iter().map(|(name, value)| (*name, value.as_str())).collect();
        run(&git, &["commit", "--quiet", "--cleanup=whitespace", "--file=-"], Some(&text), &env)?;
        git.oid(["rev-parse", "HEAD"]).map(Some)
    }

    /// Returns the files of a workspace that the caller's session would end without: git neither tracks nor ignores
    /// them, and they are no unchanged copies of what `.worktreeinclude` names.
    pub fn new_files(&self, slug: &Slug) -> Result<Vec<String>> {
        // Whose session it is not, the verb that ends it says.
        let is_own = self.record_for(Verb::End, slug, &self.see_or_recall()?).is_ok();
        match self.workspace(slug).filter(|_| is_own) {
            Some(path) => self.untracked(&path),
            None => Ok(Vec::new()),
        }
    }
}

fn run(git: &Git, args: &[&str], input: Option<&str>, env: &[(&str, &str)]) -> Result<()> {
    let ended = git.run_with(args, input.map(str::as_bytes), env, None)?;
    if ended.is_ok() { Ok(()) } else { Err(failed(args, &ended)) }
}
