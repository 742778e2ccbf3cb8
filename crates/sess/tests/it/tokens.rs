//! `sess token`: what lets programs in, made and revoked by the owner alone.

use std::os::unix::fs::PermissionsExt as _;

use crate::world::World;

#[test]
fn the_owners_token_is_made_once_and_kept_for_the_owner() {
    let world = World::new();
    let token = world.ok(["token"]);
    assert!(token.starts_with("sess_") && token.trim_end().len() == 69, "{token}");
    assert_eq!(world.ok(["token"]), token);
    assert_eq!(world.json(["token"])["token"], token.trim_end());
    let mode = world.data().join("token").metadata().expect("a file").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(world.json(["token", "list"])["tokens"], serde_json::json!([]), "it is not listed");
}

#[test]
fn tokens_are_shown_once_and_listed_without_their_secret() {
    let world = World::with_sessions();
    let made = world.run(["token", "create", "--scope", "read,write", "--expires", "30d", "--label", "ci"]);
    assert_eq!(made.code, 0, "{made:?}");
    assert!(made.stderr.contains("This is shown once."), "{made:?}");
    let secret = made.stdout.trim_end();
    assert!(secret.starts_with("sess_") && secret.len() == 69, "{secret}");
    let of_session = world.json(["token", "create", "--scope", "read", "--session", "-1"]);
    assert_eq!(of_session["token"]["session"], "new-session");
    assert!(of_session["secret"].as_str().is_some_and(|token| token.starts_with("sess_")), "{of_session}");
    let of_agent = world.json(["token", "create", "--scope", "read", "--agent", "main"]);
    assert_eq!(of_agent["token"]["agent"], "main");

    let listed = world.json(["token", "list"]);
    let tokens = listed["tokens"].as_array().expect("a list");
    assert_eq!(tokens.len(), 3, "{listed}");
    assert!(!listed.to_string().contains("sess_"), "{listed}");
    let ci = tokens.iter().find(|row| row["label"] == "ci").expect("it is listed");
    assert_eq!(ci["scopes"], serde_json::json!(["read", "write"]));
    let lasts = ci["expiresAt"].as_i64().expect("an end") - ci["createdAt"].as_i64().expect("a beginning");
    assert_eq!(lasts, 30 * 24 * 60 * 60 * 1000);
    let table = world.ok(["token", "list"]);
    assert!(table.contains("session new-session") && table.contains("agent main"), "{table}");

    let id = ci["id"].as_str().expect("an id");
    assert_eq!(world.ok(["token", "revoke", id]), format!("revoked {id}\n"));
    assert!(world.ok(["token", "list"]).contains("revoked"));
    // What is stored lets nobody in.
    for file in ["sess.db", "sess.db-wal"] {
        let stored = std::fs::read(world.data().join(file)).unwrap_or_default();
        assert!(!stored.windows(secret.len()).any(|part| part == secret.as_bytes()), "{file}");
    }
}

#[test]
fn what_a_token_cannot_be_is_said() {
    let world = World::with_sessions();
    world.fails(["token", "create"], 2, "--scope <SCOPE>");
    world.fails(["token", "create", "--scope", "all"], 2, "invalid value 'all'");
    world.fails(["token", "create", "--scope", "read", "--expires", "30"], 2, "such as 30d");
    world.fails(["token", "create", "--scope", "read", "--agent", "a b"], 2, "--agent: ");
    let review = "cannot review plans: that is the person's";
    world.fails(["token", "create", "--scope", "review", "--agent", "main"], 8, review);
    world.fails(["token", "create", "--scope", "review", "--session", "-1"], 8, review);
    let run = world.run(["token", "create", "--scope", "review", "--agent", "main"]);
    assert!(!run.stderr.contains("recognised"), "nobody took the person for an agent: {run:?}");
    let run = world.run(["token", "create", "--scope", "read", "--agent", "nosuch"]);
    assert!(run.code == 0 && run.stderr.contains("no agent \"nosuch\" is configured here"), "{run:?}");
    world.fails(["token", "create", "--scope", "read", "--session", "nothing"], 3, "not found");
    world.fails(["token", "revoke", "0123"], 3, "there is no token 0123; `sess token list` shows them");
}

#[test]
fn an_agent_gets_no_token() {
    let world = World::with_sessions();
    for args in [
        vec!["token"],
        vec!["token", "list"],
        vec!["token", "create", "--scope", "read"],
        vec!["token", "revoke", "x"],
    ] {
        for sign in [("SESS_SESSION", "old"), ("CLAUDECODE", "1")] {
            world.run_env(&[sign], args.iter().copied()).fails(8, "only the owner may");
        }
    }
    assert!(!world.data().join("token").exists());
}
