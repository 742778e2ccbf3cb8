//! Posts on their way to channels.

use std::{
    sync::{Arc, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use sess_core::{
    Timestamp,
    session::{Address, Channel},
};
use sess_store::{Lease, Post, PostTried, Store};

use super::Agents;
use crate::Result;

/// How often a post is tried at most.
const TRIES_MAX: u32 = 10;
/// How long is waited after the first try that failed; twice as long after each further one.
const RETRY_FIRST: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(300);
/// How long one try may take.
const TRY_MAX: Duration = Duration::from_secs(60);

/// Channels that this process can post in.
#[async_trait]
pub trait Channels: Send + Sync {
    fn channels(&self) -> Vec<Channel>;

    /// Posts a text; an error is a sentence, and worth another try.
    async fn post(&self, to: &Address, text: &str) -> Result<(), String>;
}

impl Agents {
    /// Posts from now on in these channels, too.
    pub fn connect(&self, channels: Arc<dyn Channels>) {
        self.inner.channels.lock().unwrap_or_else(PoisonError::into_inner).push(channels);
    }

    /// Takes the oldest post that is due, for as long as it may take to deliver it.
    ///
    /// Every node has the web chat: it is the transcript.
    pub(super) async fn take_post(&self, store: &dyn Store) -> Result<Option<(Post, Lease)>> {
        let mut open: Vec<Channel> = self.doors().iter().flat_map(|door| door.channels()).collect();
        open.push(Channel::Webchat);
        let mut lease = self.new_lease()?;
        let try_millis = u64::try_from(TRY_MAX.as_millis()).unwrap_or(u64::MAX);
        lease.until = sess_store::boot_time()?.plus(try_millis.saturating_mul(2));
        let post = store.take_post(&open, lease.clone(), self.app().now()).await?;
        Ok(post.map(|post| (post, lease)))
    }

    /// Tries to deliver a post, and records what came of it.
    pub(super) async fn deliver(&self, store: &dyn Store, post: &Post, lease: &Lease) -> Result<()> {
        let given_up = |error: String| PostTried::Failed { error, retry_at: None };
        let tried = match store.session(&post.session).await {
            // The policy of now counts, not the one of when it was written; and it does not pass by itself.
            Ok(Some(session)) if self.app().address_of(&session)?.is_none() => {
                given_up("send blocked by session policy".to_owned())
            }
            Ok(Some(_)) => match self.try_post(store, post).await {
                Ok(()) => PostTried::Delivered,
                Err(error) => {
                    let retry_at = retry_at(post.tries + 1, self.app().now());
                    PostTried::Failed { error, retry_at }
                }
            },
            // It does not come back, and nobody is left whose policy would allow the post.
            Ok(None) => given_up("its session was deleted".to_owned()),
            Err(sess_store::Error::Damaged(reason)) => given_up(reason),
            Err(error) => return Err(error.into()),
        };
        Ok(store.end_post(post.id, lease, tried, self.app().now()).await?)
    }

    fn doors(&self) -> Vec<Arc<dyn Channels>> {
        self.inner.channels.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Tries once; an error is a sentence, and worth another try.
    async fn try_post(&self, store: &dyn Store, post: &Post) -> Result<(), String> {
        if post.address.channel == Channel::Webchat {
            return self.app().post_to_webchat(store, post).await.map_err(|error| error.to_string());
        }
        let doors = self.doors();
        let door = doors.iter().find(|door| door.channels().contains(&post.address.channel));
        let Some(door) = door else {
            return Err(format!("the channel {} is closed", post.address.channel));
        };
        let posted = tokio::time::timeout(TRY_MAX, door.post(&post.address, &post.text)).await;
        posted.unwrap_or_else(|_| Err(format!("no answer within {} s", TRY_MAX.as_secs())))
    }
}

/// Returns when a post is tried again that was tried so often, the last time included; `None` is the end.
fn retry_at(tries: u32, now: Timestamp) -> Option<Timestamp> {
    if tries >= TRIES_MAX {
        return None;
    }
    let wait = RETRY_FIRST.saturating_mul(1 << tries.saturating_sub(1).min(16)).min(RETRY_MAX);
    let millis = i64::try_from(wait.as_millis()).unwrap_or(i64::MAX);
    Some(Timestamp::from_millis_clamped(now.as_millis().saturating_add(millis)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn posts_are_tried_ten_times_ever_more_slowly() {
        let now = Timestamp::default();
        let waits: Vec<Option<i64>> =
            (1..=11).map(|tries| retry_at(tries, now).map(|at| at.as_millis() / 1_000)).collect();
        let expected = [1, 2, 4, 8, 16, 32, 64, 128, 256].map(Some);
        assert_eq!(waits[..9], expected);
        assert_eq!(waits[9..], [None, None]);
    }
}
