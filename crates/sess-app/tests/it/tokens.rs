//! Tokens: none does more than the one that made it, for every pair of them.

use std::{collections::BTreeSet, time::Duration};

use sess_app::{Access, NewToken};
use sess_core::Timestamp;
use sess_protocol::tokens::Scope;

use crate::world::World;

const HOUR: Duration = Duration::from_secs(60 * 60);

/// Whom a token is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bound {
    Nobody,
    Agent(&'static str),
    Session(&'static str),
}

#[derive(Clone, Copy, Debug)]
struct Shape {
    /// Bits in the order of [`Scope::ALL`].
    scopes: u8,
    bound: Bound,
    expires_in: Option<Duration>,
}

impl Shape {
    fn scopes(self) -> Vec<Scope> {
        Scope::ALL
            .into_iter()
            .zip(0..)
            .filter(|(_, bit)| self.scopes >> bit & 1 == 1)
            .map(|(scope, _)| scope)
            .collect()
    }

    fn new_token(self) -> NewToken {
        let (agent, session) = match self.bound {
            Bound::Nobody => (None, None),
            Bound::Agent(agent) => (Some(agent.parse().expect(agent)), None),
            Bound::Session(session) => (None, Some(session.to_owned())),
        };
        NewToken { scopes: self.scopes(), agent, session, expires_in: self.expires_in, ..NewToken::default() }
    }

    /// Written down on its own: what such a token may do, and where.
    fn rights(self) -> BTreeSet<&'static str> {
        let mut rights: BTreeSet<&str> = self.scopes().into_iter().map(Scope::as_str).collect();
        if rights.contains("admin") {
            rights.extend(["read", "write"]);
            // The person's word is the person's.
            if self.bound == Bound::Nobody {
                rights.insert("review");
            }
        }
        rights
    }

    fn may_be_made_by(self, maker: Self) -> bool {
        let speaks_for_the_person = self.bound != Bound::Nobody && self.scopes().contains(&Scope::Review);
        let is_inside = maker.bound == Bound::Nobody || maker.bound == self.bound;
        let ends_in_time = match (maker.expires_in, self.expires_in) {
            (None, _) => true,
            (Some(_), None) => false,
            (Some(most), Some(own)) => own <= most,
        };
        !speaks_for_the_person && is_inside && ends_in_time && self.rights().is_subset(&maker.rights())
    }
}

fn shapes() -> Vec<Shape> {
    let mut shapes = Vec::new();
    for bound in [
        Bound::Nobody,
        Bound::Agent("main"),
        Bound::Agent("other"),
        Bound::Session("s-1"),
        Bound::Session("s-2"),
    ] {
        shapes.extend((1..16).map(|scopes| Shape { scopes, bound, expires_in: None }));
    }
    shapes
}

async fn check(world: &World, makers: &[Shape], news: &[Shape]) -> (usize, usize) {
    let (mut made, mut refused) = (0, 0);
    for &maker in makers {
        // Whatever has review and a session or an agent cannot be made at all.
        let Ok((secret, _)) = world.app.create_token(&Access::owner(), maker.new_token()).await else {
            assert!(maker.bound != Bound::Nobody && maker.scopes().contains(&Scope::Review), "{maker:?}");
            continue;
        };
        let access = world.app.admit(secret.reveal()).await.expect("read").expect("it counts");
        for &new in news {
            let what = format!("{new:?} by {maker:?}");
            match world.app.create_token(&access, new.new_token()).await {
                Ok((secret, _)) => {
                    assert!(new.may_be_made_by(maker), "{what} was made");
                    let given = world.app.admit(secret.reveal()).await.expect("read").expect("it counts");
                    check_rights(&given, new, &access, &what);
                    made += 1;
                }
                Err(error) => {
                    assert!(!new.may_be_made_by(maker), "{what} was refused: {error}");
                    refused += 1;
                }
            }
        }
    }
    (made, refused)
}

/// What was made does what was asked for, and nothing that its maker does not.
#[track_caller]
fn check_rights(given: &Access, asked: Shape, maker: &Access, what: &str) {
    for scope in Scope::ALL {
        assert_eq!(given.allows(scope), asked.rights().contains(scope.as_str()), "{what}: {scope:?}");
        assert!(!given.allows(scope) || maker.allows(scope), "{what}: {scope:?}");
    }
    let end = |access: &Access| access.expires_at.map_or(i64::MAX, Timestamp::as_millis);
    assert!(end(given) <= end(maker), "{what}");
}

#[tokio::test]
async fn no_token_is_wider_than_its_maker_for_every_pair() {
    let world = World::new();
    for id in ["s-1", "s-2"] {
        world.session(id).await;
    }
    let (made, refused) = check(&world, &shapes(), &shapes()).await;
    assert!(made > 500 && refused > 2_000, "{made} made, {refused} refused");
}

#[tokio::test]
async fn no_token_lasts_longer_than_its_maker() {
    let world = World::new();
    let shapes: Vec<Shape> = [None, Some(HOUR), Some(2 * HOUR)]
        .into_iter()
        .flat_map(|expires_in| {
            [Bound::Nobody, Bound::Agent("main")].map(|bound| Shape { scopes: 0b1011, bound, expires_in })
        })
        .collect();
    let (made, refused) = check(&world, &shapes, &shapes).await;
    assert_eq!((made + refused, made > 5, refused > 10), (36, true, true), "{made} made, {refused} refused");
}

#[tokio::test]
async fn a_page_that_logs_in_with_a_token_gets_its_rights() {
    let world = World::new();
    world.session("s-1").await;
    for shape in shapes() {
        let Ok((secret, _)) = world.app.create_token(&Access::owner(), shape.new_token()).await else {
            continue;
        };
        let held = world.app.admit(secret.reveal()).await.expect("read").expect("it counts");
        match world.app.login_with_token(secret.reveal()).await.expect("asked") {
            None => assert!(matches!(shape.bound, Bound::Session(_)), "{shape:?}"),
            Some((cookie, given)) => {
                assert!(held.covers(&given), "{shape:?}");
                let admitted = world.app.admit(cookie.reveal()).await.expect("read").expect("it counts");
                check_rights(&admitted, shape, &held, &format!("{shape:?}"));
            }
        }
    }
}
