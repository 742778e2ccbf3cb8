//! Ended claims leave the list of claims, and stay in one chain that keeps everything that they lead to.

use crate::{Kind, Move, Moved, Oid, Record, Repo, Result, Standing, State, Work, hub::LOG_LINE};

impl Work {
    /// Takes ended claims off the list, in one step; returns how many.
    pub fn archive(&self) -> Result<usize> {
        let seen = self.see()?;
        let ended: Vec<&Record> = seen
            .view
            .claims
            .values()
            .filter(|record| {
                let rests = matches!(seen.standing(&record.claim.slug), Standing::Rests(State::Completed));
                record.claim.phase.has_ended() && rests
            })
            .collect();
        if ended.is_empty() {
            return Ok(0);
        }
        let log = seen.view.log.clone();
        let mut head = log.clone();
        let mut moves = Vec::new();
        for record in &ended {
            head = Some(self.repo.write_log(head.as_ref(), record)?);
            moves.push(Move {
                name: self.repo.claim_ref(&record.claim.slug),
                from: Some(record.oid.clone()),
                to: None,
            });
        }
        moves.push(Move { name: self.repo.log_ref(), from: log, to: head });
        match self.repo.advance(&moves)? {
            Moved::Done => Ok(ended.len()),
            // Somebody else is at it: the next verb finds what is left.
            Moved::Overtaken { .. } => Ok(0),
            Moved::Rejected(words) => Err(crate::Error::new(Kind::Rejected, words).next("sess work gc")),
        }
    }
}

impl Repo {
    fn write_log(&self, before: Option<&Oid>, record: &Record) -> Result<Oid> {
        let tree = self.git.feed(["mktree"], b"")?;
        let tree: Oid = String::from_utf8_lossy(&tree).trim().parse().map_err(crate::Error::failed)?;
        let parents: Vec<&Oid> = before.into_iter().chain([&record.oid]).collect();
        self.commit_tree(&tree, &parents, &format!("{LOG_LINE}{}\n", record.claim.slug))
    }
}
