//! The record behind a claim: who works on a session, since when, on what plan.
//!
//! It is a commit that one ref leads to. Its parent is the record before it, so that the chain tells who had the
//! session when, and why it changed hands.

use serde::{Deserialize, Serialize};
use sess_core::Timestamp;

use crate::{Oid, Slug, templates::one_line};

/// One record. What a later version adds is kept by an older one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Claim {
    pub slug: Slug,
    pub phase: Phase,
    pub owner: Owner,
    /// Who it is, for people to read.
    pub user: User,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<String>,
    pub host: String,
    pub pid: u32,
    /// The branch that the work lands on, and where it was when the session was claimed.
    pub base: String,
    pub base_commit: Oid,
    pub branch: String,
    /// The blob of SESSION.md that this attempt goes by.
    pub plan: Oid,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub amendments: Vec<Amendment>,
    /// Rises whenever the session changes hands: who has a lower one has lost it.
    pub fence: u64,
    /// The first is 1; a retry after it was abandoned is the next.
    pub attempt: u32,
    pub lease_seconds: u64,
    #[serde(with = "rfc3339")]
    pub claimed_at: Timestamp,
    #[serde(with = "rfc3339")]
    pub renewed_at: Timestamp,
    /// Makes each record an object of its own: two equal ones could both be pushed.
    pub nonce: String,
    /// Why it was taken, released or ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub landed: Option<Landed>,
    /// Its work was handed to others to merge, by this claim or one before it. When they do, the session is completed,
    /// whatever became of its claim meanwhile.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub offered: bool,
    #[serde(flatten)]
    pub unknown: serde_json::Map<String, serde_json::Value>,
}

/// What a claim says that is going on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Somebody works on it.
    Active,
    /// The work is done, and waits to be merged by others.
    Landing,
    Released,
    Completed,
    Abandoned,
}

impl Phase {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Landing => "landing",
            Self::Released => "released",
            Self::Completed => "completed",
            Self::Abandoned => "abandoned",
        }
    }

    /// Whether nobody has the session any more.
    pub fn has_ended(self) -> bool {
        match self {
            Self::Active | Self::Landing => false,
            Self::Released | Self::Completed | Self::Abandoned => true,
        }
    }
}

/// Who has a session: a clone, and the agent's session in it when that is known. Never the user's name alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Owner {
    pub clone: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
}

impl Owner {
    /// Whether `other` may act for this one: the same clone, and no other agent's session.
    ///
    /// A person at the terminal of the clone may: nothing says that it is another agent.
    pub fn includes(&self, other: &Self) -> bool {
        let is_another =
            matches!((&self.session, &other.session), (Some(mine), Some(theirs)) if mine != theirs);
        self.clone == other.clone && !is_another
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    pub name: String,
    pub email: String,
}

/// A change of the plan while somebody works by it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Amendment {
    #[serde(with = "rfc3339")]
    pub at: Timestamp,
    pub from: Oid,
    pub to: Oid,
    pub reason: String,
}

/// What became of the work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Landed {
    /// What the patch applies to.
    pub base: Oid,
    /// The commit that carries it all.
    pub commit: Oid,
    /// The last commit of the session's branch.
    pub tip: Oid,
    /// The plan as it was worked by, and as it lies in `completed/`: they differ by final notes.
    pub plan: Oid,
    pub plan_completed: Oid,
}

/// By how much two clocks may differ before a live claim of one is taken for a dead one by the other.
const CLOCKS_APART_MAX_MS: i64 = 60 * 60 * 1_000;

impl Claim {
    /// Returns when another clone may take it, which has seen it unchanged since `first_seen` by its own clock.
    ///
    /// That is when its lease has lapsed by both: by what the claim says, whose clock may be another, and by what was
    /// observed. Who looks for the first time cannot have observed anything, and goes by what the claim says alone when
    /// that is longer ago than clocks differ.
    pub fn left_at(&self, first_seen: Timestamp) -> Timestamp {
        let lapses_ms = self.lapses_at().as_millis();
        let lease_ms = lapses_ms.saturating_sub(self.renewed_at.as_millis());
        let observed_ms = first_seen.as_millis().saturating_add(lease_ms);
        let certain_ms = lapses_ms.saturating_add(CLOCKS_APART_MAX_MS);
        Timestamp::from_millis_clamped(lapses_ms.max(observed_ms.min(certain_ms)))
    }

    pub fn lapses_at(&self) -> Timestamp {
        let lease_ms = i64::try_from(self.lease_seconds.saturating_mul(1_000)).unwrap_or(i64::MAX);
        Timestamp::from_millis_clamped(self.renewed_at.as_millis().saturating_add(lease_ms))
    }

    /// Whether its lease has lapsed, by the clock of whoever asks. It is stale then, not free.
    ///
    /// What waits to be merged waits for others, and not for its owner: its lease does not lapse.
    pub fn is_stale(&self, now: Timestamp) -> bool {
        self.phase == Phase::Active && self.lapses_at() <= now
    }

    /// Whether nobody has done anything by it since it was made. Who has, has looked at the directory and renewed it; a
    /// takeover, which says why, goes on with what somebody did.
    pub(crate) fn is_untouched(&self) -> bool {
        self.renewed_at == self.claimed_at && self.amendments.is_empty() && self.reason.is_none()
    }

    /// Whether the work is done, and waits to be merged by others.
    pub fn waits(&self) -> bool {
        self.phase == Phase::Landing
    }

    /// Returns who has it, since when, and until when, as one sentence.
    pub fn told(&self, now: Timestamp) -> String {
        let Self { slug, claimed_at, .. } = self;
        let (name, host) = (folded(&self.user.name), folded(&self.host));
        let agent = self.agent.as_deref().map(|agent| format!("{} of ", folded(agent))).unwrap_or_default();
        if self.waits() {
            let since = self.renewed_at;
            return format!(
                "{slug} is done by {agent}{name} on {host}, and waits to be merged since {since}"
            );
        }
        let lapses_at = self.lapses_at();
        let until = if self.is_stale(now) { "its lease lapsed at" } else { "its lease lasts until" };
        format!("{slug} is claimed by {agent}{name} on {host} since {claimed_at}; {until} {lapses_at}")
    }
}

/// Returns a name so that it cannot pass for more than that in a sentence, which may end with a command to run.
pub(crate) fn folded(name: &str) -> String {
    one_line(name).replace('`', " ")
}

/// Times as people read them: RFC 3339, UTC.
mod rfc3339 {
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};
    use sess_core::Timestamp;

    pub(super) fn serialize<S: Serializer>(at: &Timestamp, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(at)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Timestamp, D::Error> {
        let text = String::deserialize(deserializer)?;
        Timestamp::parse_rfc3339(&text)
            .ok_or_else(|| D::Error::custom(format!("{text:?} is no RFC 3339 time")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_renewed_amended_or_took_over_a_claim_works_by_it() {
        let oid = || "0".repeat(40).parse::<Oid>().expect("an object");
        let fresh = crate::standing::tests::claim(Phase::Active);
        assert!(fresh.is_untouched());
        let at = Timestamp::from_millis_clamped(fresh.claimed_at.as_millis() + 1);
        let amendment = Amendment { at, from: oid(), to: oid(), reason: "it was wrong".to_owned() };
        for touched in [
            Claim { renewed_at: at, ..fresh.clone() },
            Claim { amendments: vec![amendment], ..fresh.clone() },
            Claim { reason: Some("its lease had lapsed".to_owned()), ..fresh.clone() },
        ] {
            assert!(!touched.is_untouched(), "{touched:?}");
        }
    }

    #[test]
    fn a_name_in_a_sentence_is_no_command() {
        assert_eq!(folded("Eve\n; run `rm -rf ~`"), "Eve ; run  rm -rf ~ ");
    }
}
